"""An edit among its placebos, and the same with intervals."""

from sweeps import placebo_judged

from levelhead.core.results import DroppedItem
from levelhead.report.charts.edits.placebo import placebo_chart


def test_all_placebos_and_where_the_edit_lies():
    result = placebo_judged()
    spec = placebo_chart(result, subject="a-model").to_dict()
    bars, rules = (spec["datasets"][item["data"]["name"]] for item in spec["vconcat"][0]["layer"])
    assert sum(bar["placebos"] for bar in bars) == 200
    assert [rule["low"] for rule in rules] == [0.05, result.placebo_test.quantile]
    low, high = spec["vconcat"][0]["layer"][0]["encoding"]["x"]["scale"]["domain"]
    assert low < min(result.placebo_test.placebo_gains)
    assert high > 0.05
    output = spec["title"]["subtitle"]
    assert output[:2] == ["a-model", result.placebo_test.verdict]
    assert (
        "an ordinary paired test calls 31% of the placebos an effect, 22% a bias reduction"
        in output
    )
    assert "largest |cosine| with the edit 0.31" in " ".join(output)
    assert "NEARLY IDENTICAL TO THE EDIT" not in " ".join(output)
    assert "200 placebos amount to 120 independent ones, by what they change item by item" in output


def test_what_cannot_be_tested_is_said_first():
    output = placebo_chart(placebo_judged(effective=1.02)).to_dict()["title"]["subtitle"]
    assert output[0].startswith("untestable: placebos not independent (200 amount to 1.02")
    assert not any("not shown to mitigate" in line for line in output)


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
    result = placebo_judged(0.012, collapse=False)
    judged = result.placebo_test.model_copy(
        update={"notes": ("a note",), "dropped": (DroppedItem("item", "too long"),)}
    )
    alike = result.variance_match.model_copy(update={"max_cosine": 0.95})
    spec = placebo_chart(
        result.model_copy(update={"placebo_test": judged, "variance_match": alike})
    ).to_dict()
    output = spec["title"]["subtitle"]
    assert output[0].startswith("not shown to mitigate: placebos gain as much")
    assert output[-4:] == [
        "SOME PLACEBOS ARE NEARLY IDENTICAL TO THE EDIT: the comparison has little meaning",
        "1 items were left out",
        "a note",
        "lost confidence is not controlled for: the measure is not of two classes",
    ]


def test_nothing_beyond_confidence_is_said():
    result = placebo_judged()
    collapse = result.confidence_control.model_copy(
        update={"gain": None, "p": None, "exceeds_confidence_loss": False}
    )
    spec = placebo_chart(result.model_copy(update={"confidence_control": collapse})).to_dict()
    rows = spec["datasets"][spec["vconcat"][1]["layer"][3]["data"]["name"]]
    assert rows[2] == {
        "which": "the edit beyond lost confidence",
        "formatted": "the edit beyond lost confidence\nno change",
    }
