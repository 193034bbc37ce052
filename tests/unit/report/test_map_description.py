from maps import description

from levelhead.report.charts.heads.map_description import description_chart


def test_each_number_beside_its_null():
    found = description()
    spec = description_chart(found, subject="seat, made-up-model").to_dict()
    figures, layers = spec["vconcat"]
    assert len(figures["vconcat"]) == len(found.statistics)
    names = [one["hconcat"][0]["mark"]["text"] for one in figures["vconcat"]]
    assert names == [one.name for one in found.statistics]
    texts = [one["hconcat"][2]["mark"]["text"] for one in figures["vconcat"]]
    assert texts[0] == "44, p 0.035"
    assert [len(one["hconcat"][1]["layer"]) for one in figures["vconcat"]] == [3] * 8
    sums = spec["datasets"][layers["layer"][1]["data"]["name"]]
    assert [one["value"] for one in sums] == [one.value for one in found.layer_sums]
    assert [one["layer"] for one in sums] == [1, 2, 3, 4, 5, 6]
    assert layers["layer"][1]["encoding"]["x"]["title"] == "layer, counted from 1"
    assert spec["title"]["subtitle"][0] == "seat, made-up-model"
    assert "199 maps with permuted labels" in " ".join(spec["title"]["subtitle"])


def test_without_a_null_that_is_said():
    spec = description_chart(description(relabellings=0)).to_dict()
    assert spec["title"]["subtitle"] == [
        "no null distribution: labels were not permuted, so the values expected by chance are "
        "not known"
    ]
    figures, layers = spec["vconcat"]
    assert [len(one["hconcat"][1]["layer"]) for one in figures["vconcat"]] == [1] * 8
    assert len(layers["layer"]) == 2
