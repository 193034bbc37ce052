"""An edit among its placebos, and the same with intervals."""

from sweeps import placebo_judged

from levelhead.core.results import DroppedItem
from levelhead.report.charts.edits.placebo import placebo_chart


def test_all_placebos_and_where_the_edit_lies():
    found = placebo_judged()
    spec = placebo_chart(found, subject="a-model").to_dict()
    bars, rules = (spec["datasets"][one["data"]["name"]] for one in spec["vconcat"][0]["layer"])
    assert sum(one["placebos"] for one in bars) == 200
    assert [one["low"] for one in rules] == [0.05, found.placebo_test.quantile]
    low, high = spec["vconcat"][0]["layer"][0]["encoding"]["x"]["scale"]["domain"]
    assert low < min(found.placebo_test.placebo_gains)
    assert high > 0.05
    told = spec["title"]["subtitle"]
    assert told[:2] == ["a-model", found.placebo_test.verdict]
    assert (
        "an ordinary paired test calls 31% of the placebos an effect, 22% a bias reduction" in told
    )
    assert "largest |cosine| with the edit 0.31" in " ".join(told)
    assert "NEARLY IDENTICAL TO THE EDIT" not in " ".join(told)
    assert "200 placebos amount to 120 independent ones, by what they change item by item" in told


def test_what_cannot_be_tested_is_said_first():
    told = placebo_chart(placebo_judged(effective=1.02)).to_dict()["title"]["subtitle"]
    assert told[0].startswith("untestable: placebos not independent (200 amount to 1.02")
    assert not any("not shown to mitigate" in line for line in told)


def test_gains_with_intervals_and_what_is_left_beyond_confidence():
    spec = placebo_chart(placebo_judged()).to_dict()
    strokes, rows = (
        spec["datasets"][spec["vconcat"][1]["layer"][i]["data"]["name"]] for i in (2, 3)
    )
    assert len(strokes) == 200
    assert [row["which"] for row in rows] == [
        "the edit",
        "the base, temperature-scaled",
        "the edit beyond lost confidence",
    ]
    assert (rows[0]["low"], rows[0]["high"]) == (0.05 - 0.02, 0.05 + 0.02)
    assert rows[2]["formatted"] == "the edit beyond lost confidence\n0.035 [0.015, 0.055], n 234"


def test_no_collapse_placebos_like_the_edit_and_notes():
    found = placebo_judged(0.012, collapse=False)
    judged = found.placebo_test.model_copy(
        update={"notes": ("a note",), "dropped": (DroppedItem("item", "too long"),)}
    )
    alike = found.variance_match.model_copy(update={"max_cosine": 0.95})
    spec = placebo_chart(
        found.model_copy(update={"placebo_test": judged, "variance_match": alike})
    ).to_dict()
    told = spec["title"]["subtitle"]
    assert told[0].startswith("not shown to mitigate: placebos gain as much")
    assert told[-4:] == [
        "SOME PLACEBOS ARE NEARLY IDENTICAL TO THE EDIT: the comparison has little meaning",
        "1 items were left out",
        "a note",
        "lost confidence is not controlled for: the measure is not of two classes",
    ]


def test_nothing_beyond_confidence_is_said():
    found = placebo_judged()
    collapse = found.confidence_control.model_copy(
        update={"gain": None, "p": None, "exceeds_confidence_loss": False}
    )
    spec = placebo_chart(found.model_copy(update={"confidence_control": collapse})).to_dict()
    rows = spec["datasets"][spec["vconcat"][1]["layer"][3]["data"]["name"]]
    assert rows[2] == {
        "which": "the edit beyond lost confidence",
        "formatted": "the edit beyond lost confidence\nno change",
    }
