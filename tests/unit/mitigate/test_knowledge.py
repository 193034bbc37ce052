"""Knowledge that an edit must keep: equivalence, verdicts on edits, and the plane of both."""

from dataclasses import replace

import pytest
import torch
from maps import estimate, measurement
from metric_cases import FAST, agreeing, made, model
from sweeps import placebo_judged

import levelhead as lh
from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.measures.compare import Comparison
from levelhead.measures.utility.definitional_gender import DefinitionalGender
from levelhead.mitigate.controls.placebo_test import PlaceboResponses, run_placebo_test
from levelhead.mitigate.evaluation.knowledge import (
    KnowledgePanel,
    evaluate_knowledge,
    list_knowledge_measures,
)
from levelhead.mitigate.evaluation.knowledge_front import compare_edits, group_edits
from levelhead.mitigate.evaluation.price import MitigationReport, evaluate_mitigation
from levelhead.models.edits.base import HeadScale
from levelhead.models.sites import Site
from levelhead.report.study_page import draw_figures, write_study_page

UNITS = 100
TEXTS = tuple(
    sentence._replace(id=f"{i} {sentence.group}", unit=f"{i}")
    for i in range(UNITS)
    for sentence in agreeing()[:2]
)
MEASURE = replace(made("definitional_gender"), texts=TEXTS)
BASE = model("definitional_gender")
EDITED = BASE.edited(HeadScale([Site("head_out", 0, 0)], 0))


@pytest.fixture
def panel_of(monkeypatch):
    """The panel of a base and an edited model that are right on the units given."""
    (responses,) = MEASURE.read(BASE)

    def answers(right):
        values = torch.zeros_like(responses.values)
        for number, item in enumerate(responses.items):
            says_she = (item.group == "female") == right(item)
            values[number, 0, int(says_she)] = 1.0 + number  # he, she
        return replace(responses, values=values)

    def judge(base, edited, **options):
        by_model = {
            lm.content_hash: answers(right) for lm, right in ((BASE, base), (EDITED, edited))
        }
        monkeypatch.setattr(
            DefinitionalGender, "read", lambda self, lm, context=None: [by_model[lm.content_hash]]
        )
        return evaluate_knowledge(BASE, EDITED, [MEASURE], inference=FAST, **options)

    return judge


def all_right(item):
    return True


def all_but(lost):
    return lambda item: int(item.units[0]) >= lost


def always_she(item):
    return item.group == "female"


def test_no_change_of_enough_words_is_equivalent(panel_of):
    panel = panel_of(all_right, all_right)
    (row,) = panel.changes
    assert row.outcome == "equivalent"
    assert (row.change.value, row.change.n, row.margin, row.chance) == (0, 2 * UNITS, 5, 50)
    assert row.change.interval.level == pytest.approx(0.9)
    assert (row.change.interval.low, row.change.interval.high) == pytest.approx(
        (-2.63, 2.63), abs=0.01
    )
    assert panel.is_kept
    assert panel.lost == ()
    assert "kept within 5 percentage points: definitional_gender" in str(panel)
    assert row.edited.provenance.edits == (EDITED.edits[0].content_hash,)


@pytest.mark.parametrize(
    ("lost", "margin", "outcome"),
    [
        (1, 5.0, "equivalent"),
        (2, 5.0, "inconclusive"),  # 5 lost would be as few as 2 in 12% of samples
        (2, 10.0, "equivalent"),
        (20, 5.0, "changed"),
        (20, 30.0, "equivalent"),  # a shown loss, and shown to be within the margin
    ],
)
def test_lost_words(panel_of, lost, margin, outcome):
    panel = panel_of(all_right, all_but(lost), margin=margin)
    (row,) = panel.changes
    assert row.change.value == pytest.approx(-lost)
    assert row.outcome == outcome
    assert row.is_lost == (outcome == "changed")
    assert panel.is_kept == (outcome == "equivalent")
    assert KnowledgePanel.from_json(panel.to_json()) == panel
    assert panel.to_frame("dict")["outcome"] == [outcome]


def test_a_base_that_guesses_has_nothing_to_keep(panel_of):
    """Both models always say she: no change at all, and no equivalence."""
    panel = panel_of(always_she, always_she)
    (row,) = panel.changes
    assert (row.base.value, row.change.value, row.outcome) == (50, 0, "inconclusive")
    assert "not shown to know it" in row.reason
    assert not panel.is_kept
    assert "0 of 1 measures equivalent" in panel.title


def test_little_knowledge_is_not_kept_by_a_margin_that_is_most_of_it(panel_of):
    """62% is shown to be above chance, and below what counts as a skill."""

    def mostly_she(item):
        return item.group == "female" or int(item.units[0]) < 24

    panel = panel_of(mostly_she, mostly_she)
    (row,) = panel.changes
    assert row.base.interval.low > 50
    assert row.outcome == "inconclusive"
    assert "62; chance 50, needed 65" in row.reason


def test_added_knowledge_is_no_equivalence_and_no_loss(panel_of):
    panel = panel_of(all_but(30), all_right)
    assert panel.changes[0].outcome == "changed"
    assert panel.lost == ()
    assert not panel.is_kept


def test_what_gives_no_number_is_not_kept(monkeypatch):
    def refuse(self, lm, context=None):
        raise NotMeasurableError("no item can be read", hint="")

    monkeypatch.setattr(DefinitionalGender, "read", refuse)
    panel = evaluate_knowledge(BASE, EDITED, [MEASURE], inference=FAST)
    assert panel.unmeasured == (("definitional_gender", "no item can be read"),)
    assert not panel.is_kept
    assert "not measured: definitional_gender: no item can be read" in str(panel)


def test_only_shares_of_right_answers_have_a_margin():
    for name in ("crows", "pppl", "pronoun_agreement_margin"):
        with pytest.raises(LevelheadError, match="is no share of right answers"):
            evaluate_knowledge(BASE, EDITED, [made(name)])
    with pytest.raises(LevelheadError, match="the two models are the same"):
        evaluate_knowledge(BASE, BASE, [MEASURE])
    with pytest.raises(LevelheadError, match="a margin of 0 percentage points"):
        evaluate_knowledge(BASE, EDITED, [MEASURE], margin=0)
    names = [measure.name for measure in list_knowledge_measures(BASE)]
    assert names == ["definitional_gender", "pronoun_agreement"]
    with pytest.raises(NotMeasurableError, match="without its task"):
        list_knowledge_measures(model("nli_accuracy"))


def test_the_interval_is_that_of_the_change_of_the_measure(panel_of):
    """The change equals the difference of the two measurements, whatever the answers are."""
    panel = panel_of(all_but(3), lambda item: int(item.units[0]) % 3 > 0)
    (row,) = panel.changes
    assert row.change.value == pytest.approx(row.edited.value - row.base.value)


def test_accuracy_and_facts_know_their_chance():
    facts, accuracy = made("facts"), made("accuracy")
    (responses,) = facts.read(model("facts"))
    assert facts.guessing_value(responses) == 100 / len(facts.resolved_questions[0].answers)
    (responses,) = accuracy.read(model("accuracy"))
    groups = [item.group for item in responses.items]
    most = max(map(groups.count, groups))
    assert accuracy.guessing_value(responses) == pytest.approx(100 * most / len(groups))
    (responses,) = made("crows").read(model("crows"))
    assert made("crows").guessing_value(responses) is None


# -- the verdict on an edit


def compared(verdict="nearer to parity (lower)"):
    return Comparison(
        measure="seat",
        first=measurement(1.0),
        second=measurement(0.2),
        difference=estimate("difference of seat", -0.8, p=0.01),
        distance=estimate("change of the distance from parity", -0.8),
        verdict=verdict,
    )


def judged_by_placebos(*, mitigates=True, **options):
    test = placebo_judged(**options).placebo_test
    return test.model_copy(update={"measure": "seat", "mitigates": mitigates})


def test_mitigation_needs_placebos_and_knowledge(panel_of):
    kept, lost = panel_of(all_right, all_right), panel_of(all_right, all_but(40))
    unclear, gained = panel_of(all_right, all_but(2)), panel_of(all_but(30), all_right)
    placebos = (judged_by_placebos(),)
    for knowledge, tests, expected in (
        (kept, placebos, "mitigation"),
        (lost, placebos, "bias reduced, knowledge lost"),
        (lost, (), "bias reduced, knowledge lost"),
        (unclear, placebos, "bias reduced, knowledge not shown to be kept"),
        (gained, placebos, "bias reduced, knowledge not shown to be kept"),
        (None, placebos, "bias reduced, knowledge not measured"),
        (kept, (), "bias reduced, placebos not compared"),
        (None, (), "bias reduced, placebos not compared"),
        (kept, (judged_by_placebos(mitigates=False),), "not shown"),
        (lost, (judged_by_placebos(mitigates=False),), "not shown"),
        # Placebos that are few independent ones decide nothing; a base without a bias does.
        (kept, (judged_by_placebos(effective=4.0),), "bias reduced, placebos not compared"),
        (kept, (judged_by_placebos(base_p=0.5),), "not shown"),
    ):
        report = MitigationReport(
            bias=(compared(),), price=(), placebo_tests=tests, knowledge=knowledge
        )
        assert report.verdict == expected
        assert str(report).startswith(f"{expected}: ")
        parts = report.to_frame("dict")["part"]
        assert parts.count("knowledge") == (0 if knowledge is None else 1)
    unshown = MitigationReport(bias=(compared("no difference shown"),), price=(), knowledge=kept)
    assert unshown.verdict == "not shown"


def test_every_measure_must_fall_beyond_placebos(panel_of):
    other = compared().model_copy(update={"measure": "crows"})
    report = MitigationReport(
        bias=(compared(), other),
        price=(),
        placebo_tests=(judged_by_placebos(),),
        knowledge=panel_of(all_right, all_right),
    )
    assert report.verdict == "bias reduced, placebos not compared"
    unclear = judged_by_placebos(mitigates=False).model_copy(update={"measure": "crows"})
    both = report.model_copy(update={"placebo_tests": (judged_by_placebos(), unclear)})
    assert both.verdict == "not shown"


# -- removed bias against kept knowledge


def test_edits_stand_in_the_plane_of_bias_and_knowledge(panel_of):
    def report(panel, gain):
        row = compared()
        distance = row.distance.model_copy(update={"value": -gain})
        interval = row.distance.interval.model_copy(update={"low": -gain - 0.1, "high": 0.1 - gain})
        row = row.model_copy(
            update={"distance": distance.model_copy(update={"interval": interval})}
        )
        return MitigationReport(bias=(row,), price=(), knowledge=panel)

    kept, lost = panel_of(all_right, all_right), panel_of(all_right, all_but(40))
    front = compare_edits(
        {"mask all": report(lost, 0.9), "cda": report(kept, 0.6), "worse": report(lost, 0.5)}
    )
    points = {point.name: point for point in front.points}
    assert [name for name, point in points.items() if point.is_on_front] == ["mask all", "cda"]
    assert points["cda"].gain.value == pytest.approx(0.6)
    assert (points["cda"].gain.interval.low, points["cda"].gain.interval.high) == pytest.approx(
        (0.5, 0.7)
    )
    assert points["mask all"].change.value == pytest.approx(-40)
    assert points["mask all"].verdict == "bias reduced, knowledge lost"
    specification = lh.chart(front).to_dict()
    assert "margin of 5" in " ".join(specification["title"]["subtitle"])
    with pytest.raises(LevelheadError, match="no common measure of bias"):
        compare_edits({"a": report(kept, 0.5), "b": report(None, 0.5)})


def test_edits_of_a_study_are_placed_by_model(panel_of, tmp_path):
    kept = panel_of(all_right, all_right)

    def report(model_name, knowledge=kept, distance=True):
        first = measurement(1.0, model=model_name)
        provenance = first.provenance.model_copy(update={"model_hash": model_name * 64})
        row = compared().model_copy(
            update={"first": first.model_copy(update={"provenance": provenance})}
        )
        row = row if distance else row.model_copy(update={"distance": None})
        return MitigationReport(bias=(row,), price=(), knowledge=knowledge)

    reports = {
        "cda": report("a"),
        "mask": report("a"),
        "other model": report("b"),
        "no panel": report("a", None),
        "no parity": report("a", distance=False),
    }
    fronts = group_edits(reports)
    assert [[point.name for point in front.points] for front in fronts] == [
        ["cda", "mask"],
        ["other model"],
    ]
    results = {f"mitigation.{name}": row for name, row in list(reports.items())[:1]}
    figures = draw_figures(results, tmp_path)
    assert figures == ("knowledge.seat.1",)
    page = write_study_page(results, None, tmp_path, title="x", figures=figures).read_text()
    assert "bias reduced, placebos not compared: nearer to parity by seat" in page
    assert 'src="figures/knowledge.seat.1.svg"' in page


def test_placebos_are_models_like_any_other():
    """Their gains are those of the placebo test on what each of them answers."""
    measure, lm = made("crows_margin"), model("crows_margin")
    edited, *placebos = (lm.edited(HeadScale([Site("head_out", 1, i)], 0)) for i in range(4))
    report = evaluate_mitigation(lm, edited, [measure], price=[], placebos=placebos, inference=FAST)
    (test,) = report.placebo_tests
    responses = PlaceboResponses(*(measure.read(each)[0] for each in (lm, edited)), [
        measure.read(placebo)[0] for placebo in placebos
    ])  # fmt: skip
    assert test == run_placebo_test(measure, responses, inference=FAST, min_placebos=1)
    assert len(test.placebo_gains) == 3
    assert test.outcome.startswith("untestable")  # three are too few, whatever they gain
    assert report.verdict in ("not shown", "bias reduced, placebos not compared")
    unchanged = lm.edited(HeadScale([Site("head_out", 1, 0)], 1))
    same = evaluate_mitigation(
        lm, unchanged, [measure], price=[], placebos=placebos, inference=FAST
    )
    assert same.placebo_tests == ()
    assert [row.reason.startswith("placebos: ") for row in same.unmeasured] == [False, True]
