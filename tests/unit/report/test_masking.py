import pytest
from maps import WAYS, curves, masked_lines, targeted

from levelhead.core.errors import LevelheadError
from levelhead.report.charts.heads.masking import (
    curves_chart,
    masking_chart,
    masking_curve_chart,
)


def test_one_line_a_test_with_its_band():
    spec = curves_chart(curves(), measure="LPBS", model="a-model", notes=("a note",)).to_dict()
    rows = next(item for item in spec["datasets"].values() if "test" in item[0])
    assert len(rows) == 3 * 10
    assert (rows[1]["k"], rows[1]["low"], rows[1]["high"]) == (5, 0.75, 1.25)
    encoding = spec["layer"][1]["encoding"]
    assert encoding["x"]["axis"]["values"] == [0, 5, 10, 15, 20, 25, 30, 35, 40, 44]
    assert encoding["y"]["title"] == "LPBS"
    assert spec["title"]["text"] == ["LPBS when heads of a-model are masked"]
    assert spec["title"]["subtitle"][-1] == "a note"


def test_the_curves_of_a_result():
    spec = masking_curve_chart(
        masked_lines(), measure="LPBS", subject="seat, made-up-model"
    ).to_dict()
    assert spec["title"]["text"] == ["LPBS when heads are masked"]
    assert spec["title"]["subtitle"][1:] == ["seat, made-up-model", "a note"]


def test_gain_against_price_with_intervals_both_ways():
    spec = masking_chart(targeted()).to_dict()
    rows = next(item for item in spec["datasets"].values() if "gain" in item[0])
    assert len(rows) == 5
    assert rows[0]["formatted gain"] == "-0.42 [-0.57, -0.27]"
    assert rows[0]["formatted price"] == "0.6 [0.2, 1]"
    points = spec["vconcat"][0]["layer"][-1]["encoding"]
    names = [name for name, _, _ in WAYS]
    assert points["shape"]["scale"]["domain"] == points["color"]["scale"]["domain"] == names


@pytest.mark.parametrize(("half", "first"), [(True, -0.42), (False, -0.52)])
def test_a_panel_a_price_on_the_confirm_half(half, first):
    spec = masking_chart(targeted(("pppl", "contrast"), half=half)).to_dict()
    assert len(spec["vconcat"]) == 2
    points = spec["vconcat"][1]["layer"][-1]["encoding"]
    output = "change of seat, confirm half" if half else "change of seat"
    assert (points["x"]["title"], points["y"]["title"]) == (output, "change of contrast")
    rows = next(item for item in spec["datasets"].values() if "gain" in item[0])
    assert rows[0]["gain"] == pytest.approx(first)
    assert spec["title"]["subtitle"][-1] == "random: mean of 5 sets, interval over the sets"


def test_intervals_over_sets_are_drawn_and_told_apart_from_those_over_items():
    spec = masking_chart(targeted()).to_dict()
    sample = next(item for item in spec["datasets"].values() if "gain" in item[0])
    over = {row["way"]: (row["over"], row["sets"]) for row in sample}
    assert over["top 3"] == ("items", False)
    assert over["random 3"] == over["random 44"] == ("5 random head sets", True)
    assert "solid over items, dashed over random head sets" in " ".join(spec["title"]["subtitle"])
    *_, across, upright, points = spec["vconcat"][0]["layer"]
    for line in (across, upright):
        assert line["encoding"]["strokeDash"]["condition"]["test"] == "datum.sets"
    assert "over" in [tip["field"] for tip in points["encoding"]["tooltip"]]


def test_refusals():
    with pytest.raises(LevelheadError, match="there is nothing to plot"):
        curves_chart([], measure="LPBS")
    with pytest.raises(LevelheadError, match="two lines have the same name"):
        curves_chart([*curves(), *curves()], measure="LPBS")
    with pytest.raises(LevelheadError, match="there is nothing to plot"):
        masking_chart(targeted().model_copy(update={"rows": ()}))
    with pytest.raises(LevelheadError, match="no utility cost was measured") as error:
        masking_chart(targeted(()))
    assert error.value.hint == "add a measure of fluency to that of the map"
    result = targeted()
    bare = result.rows[0].model_copy(update={"changes": result.base})
    with pytest.raises(LevelheadError, match="top 3 has no change to plot"):
        masking_chart(result.model_copy(update={"rows": (bare,)}))
