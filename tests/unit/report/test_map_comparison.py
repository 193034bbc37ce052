import pytest
from maps import comparison, head_map

from levelhead.report.charts.heads.map_comparison import map_comparison_chart


@pytest.fixture(scope="module")
def sample():
    result = comparison()
    return result, map_comparison_chart(result).to_dict()


def test_one_scale_of_colours_and_the_same_boxes(sample):
    result, spec = sample
    panels = spec["concat"]
    assert len(panels) == 5
    scales = [panel["layer"][0]["encoding"]["color"]["scale"] for panel in panels]
    assert all(scale == scales[0] for scale in scales)
    most = max(
        abs(head.score)
        for item in (result.base, *(child.head_map for child in result.compared_maps))
        for head in item.heads
    )
    assert scales[0]["domain"][-1] == most
    for panel in panels[:4]:
        frame = panel["layer"][1]
        assert frame["mark"]["stroke"] == "#000000"
        labels = {item["label"] for item in spec["datasets"][frame["data"]["name"]]}
        assert labels == set(result.anti_bias_in_base)
    assert len(panels[4]["layer"]) == 1
    assert panels[4]["title"]["subtitle"][2] == "other layers or heads: none framed"


def test_counts_with_intervals(sample):
    _, spec = sample
    assert spec["concat"][1]["title"]["text"] == "cda, 250 steps"
    assert spec["concat"][1]["title"]["subtitle"] == [
        "more of the measure is called bias",
        "framed and now positive: 1 of 5",
        "fewer positive: 7 [2, 12]",
        "positive in both, darker: 12 [8, 16]",
        "negative, now positive: 9 [3, 15]",
        "total of effects, change: -0.31 [-0.51, -0.11]",
    ]
    assert spec["concat"][3]["title"]["subtitle"][0] == "SIGN UNDETERMINED"


def test_without_counts_that_is_said():
    spec = map_comparison_chart(comparison(12, 12, 2, counted=False), clip_negative=True).to_dict()
    output = spec["title"]["subtitle"]
    assert "without stored effects there are no intervals" in output
    assert "negative scores are white, as the paper prints them" in output
    assert not any("purple" in line for line in output)
    assert len(spec["concat"][1]["title"]["subtitle"]) == 2


def test_a_child_is_drawn_in_the_direction_of_the_base():
    result = comparison(3, 4, 1)
    child = result.compared_maps[0]
    turned = child.head_map.model_copy(update={"bias_sign": head_map(sign=-1).bias_sign})
    result = result.model_copy(
        update={"compared_maps": (child.model_copy(update={"head_map": turned}),)},
    )
    spec = map_comparison_chart(result).to_dict()
    panel = spec["concat"][1]
    output = panel["title"]["subtitle"]
    assert output[:2] == [
        "less of the measure is called bias",
        "shown with the sign of base",
    ]
    cells = spec["datasets"][panel["layer"][0]["data"]["name"]]
    assert [cell["score"] for cell in cells] == [-head.score for head in child.head_map.heads]
    assert cells[0]["low"] == -child.head_map.heads[0].interval.high
