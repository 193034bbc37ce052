"""An edit among its placebos, and the same with intervals."""

from sweeps import placebo_judged

from levelhead.core.results import Dropped
from levelhead.report.charts.edits.placebo import placeboed


def test_all_placebos_and_where_the_edit_lies():
    found = placebo_judged()
    spec = placeboed(found, of="a-model").to_dict()
    bars, rules = (spec["datasets"][one["data"]["name"]] for one in spec["vconcat"][0]["layer"])
    assert sum(one["placebos"] for one in bars) == 200
    assert [one["low"] for one in rules] == [0.05, found.judged.quantile]
    low, high = spec["vconcat"][0]["layer"][0]["encoding"]["x"]["scale"]["domain"]
    assert low < min(found.judged.placebos)
    assert high > 0.05
    told = spec["title"]["subtitle"]
    assert told[:2] == ["a-model", found.judged.verdict]
    assert "an ordinary paired test calls 31% of the placebos an effect, 22% a gain" in told
    assert "largest |cosine| with the edit 0.31" in " ".join(told)
    assert "NEARLY THE EDIT" not in " ".join(told)
    assert "200 placebos amount to 120 independent ones, by what they change item by item" in told


def test_what_cannot_be_tested_is_said_first():
    told = placeboed(placebo_judged(effective=1.02)).to_dict()["title"]["subtitle"]
    assert told[0].startswith("untestable: placebos not independent (200 amount to 1.02")
    assert not any("not shown to mitigate" in line for line in told)


def test_gains_with_intervals_and_what_is_left_beyond_confidence():
    spec = placeboed(placebo_judged()).to_dict()
    strokes, rows = (
        spec["datasets"][spec["vconcat"][1]["layer"][i]["data"]["name"]] for i in (2, 3)
    )
    assert len(strokes) == 200
    assert [row["which"] for row in rows] == [
        "the edit",
        "the base, as unsure as the edit",
        "the edit beyond lost confidence",
    ]
    assert (rows[0]["low"], rows[0]["high"]) == (0.05 - 0.02, 0.05 + 0.02)
    assert rows[2]["told"] == "the edit beyond lost confidence\n0.035 [0.015, 0.055], n 234"


def test_no_collapse_placebos_like_the_edit_and_notes():
    found = placebo_judged(0.012, collapse=False)
    judged = found.judged.model_copy(
        update={"notes": ("a note",), "dropped": (Dropped("item", "too long"),)}
    )
    alike = found.matched.model_copy(update={"real": 0.95})
    spec = placeboed(found.model_copy(update={"judged": judged, "matched": alike})).to_dict()
    told = spec["title"]["subtitle"]
    assert told[0].startswith("not shown to mitigate: placebos gain as much")
    assert told[-4:] == [
        "SOME PLACEBOS ARE NEARLY THE EDIT ITSELF: that they gain as much says little",
        "1 items were left out",
        "a note",
        "lost confidence is not told apart: the measure is not of two classes",
    ]


def test_nothing_beyond_confidence_is_said():
    found = placebo_judged()
    collapse = found.collapse.model_copy(update={"gain": None, "p": None, "beyond": False})
    spec = placeboed(found.model_copy(update={"collapse": collapse})).to_dict()
    rows = spec["datasets"][spec["vconcat"][1]["layer"][3]["data"]["name"]]
    assert rows[2] == {
        "which": "the edit beyond lost confidence",
        "told": "the edit beyond lost confidence\nno change",
    }
