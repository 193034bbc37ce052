from maps import description

from levelhead.report.charts.heads.map_description import description_chart


def test_each_number_beside_its_null():
    result = description()
    spec = description_chart(result, subject="seat, made-up-model").to_dict()
    figures, layers = spec["vconcat"]
    assert len(figures["vconcat"]) == len(result.statistics)
    names = [figure["hconcat"][0]["mark"]["text"] for figure in figures["vconcat"]]
    assert names == [statistic.name for statistic in result.statistics]
    texts = [figure["hconcat"][2]["mark"]["text"] for figure in figures["vconcat"]]
    assert texts[0] == "44, p 0.035"
    assert [len(figure["hconcat"][1]["layer"]) for figure in figures["vconcat"]] == [3] * 8
    sums = spec["datasets"][layers["layer"][1]["data"]["name"]]
    assert [item["value"] for item in sums] == [item.value for item in result.layer_sums]
    assert [item["layer"] for item in sums] == [1, 2, 3, 4, 5, 6]
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
    assert [len(figure["hconcat"][1]["layer"]) for figure in figures["vconcat"]] == [1] * 8
    assert len(layers["layer"]) == 2
