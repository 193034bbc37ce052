from maps import repeated_splits

from levelhead.report.charts.heads.split_stability import split_stability_chart


def test_how_often_heads_were_chosen_and_what_splits_confirm():
    result = repeated_splits()
    spec = split_stability_chart(result, subject="seat, made-up-model").to_dict()
    chosen, *spreads = spec["vconcat"]
    rows = spec["datasets"][chosen["data"]["name"]]
    assert [(row["head"], row["times"]) for row in rows] == list(result.selection_counts[:20])
    assert chosen["encoding"]["x"]["scale"]["domain"] == [0, 20]
    assert [spread["title"]["text"] for spread in spreads] == [
        "effect of the top 3",
        "heads shared of 3",
        "score on find, effect on confirm",
    ]
    assert spreads[0]["title"]["subtitle"] == ["median 0.31, from 0.12 to 0.49; 20 values"]
    output = spec["title"]["subtitle"]
    assert output[0] == "seat, made-up-model"
    assert "4 heads that were chosen less often are not shown" in output


def test_without_replication():
    result = repeated_splits(12).model_copy(update={"replication": None})
    spec = split_stability_chart(result).to_dict()
    assert len(spec["vconcat"]) == 3
    assert not any("not shown" in line for line in spec["title"]["subtitle"])
