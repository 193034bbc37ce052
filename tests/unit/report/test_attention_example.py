from maps import example_of

from levelhead.report.charts.attention_example import attention_example_chart


def test_two_strips_of_words_a_head():
    result = example_of(heads=3)
    spec = attention_example_chart(result).to_dict()
    assert [item["title"]["text"] for item in spec["concat"]] == [
        "biased head 1-1",
        "biased head 2-3",
        "regular head 3-5",
    ]
    cells = spec["datasets"][spec["concat"][0]["data"]["name"]]
    assert len(cells) == 2 * 9
    assert [cell["word"] for cell in cells[:9]] == list(result.original.words)
    assert [cell["attention"] for cell in cells[9:]] == list(result.heads[0].counter)
    roles = [(cell["word"], cell["role"]) for cell in cells if cell["role"]]
    assert roles == [
        ("women", "attribute"),
        ("calm", "target"),
        ("men", "attribute"),
        ("calm", "target"),
    ]


def test_long_words_are_cut_and_told_whole():
    word = "uncharacteristically-soft-spoken"
    spec = attention_example_chart(example_of(2, (word, "women", "calm"))).to_dict()
    cells = spec["datasets"][spec["concat"][0]["data"]["name"]]
    assert cells[0]["shown"] == "uncharacteristically-so…"
    assert len(cells[0]["shown"]) == 24
    assert cells[0]["word"] == word
