"""Parts of an audit's page: questions, the common scale, items, changes and next steps."""

import json

import audits
import pytest
from maps import p_value

from levelhead.core.results import DroppedItem, ItemDetail, ItemValue, QueryDetail, StepFailure
from levelhead.measures.registry import MEASURES, metric_texts
from levelhead.report.audit_page.comparison import CHANGE_TEXT, classify_change, make_comparison
from levelhead.report.audit_page.effect_scale import (
    MAX_LIMIT,
    ScaledEffect,
    axis_limit,
    axis_ticks,
    describe_size,
    place_effect,
    scale_effect,
)
from levelhead.report.audit_page.items import make_item_table
from levelhead.report.audit_page.next_steps import MAX_STEPS, choose_next_steps
from levelhead.report.audit_page.page import render_audit_page
from levelhead.report.audit_page.questions import QUESTIONS, find_measure_text, registry_name
from levelhead.report.audit_page.result_sections import generations_section
from levelhead.report.audit_page.verdict import compute_audit_verdict
from levelhead.study.audit.core_suite import CORE
from levelhead.study.audit.suite import AUDIT_MEASURES, planned_text
from levelhead.study.steps.config import ModelSource

CELL = "cell.audit.model."

# -- questions


@pytest.mark.parametrize("name", MEASURES)
def test_every_measure_answers_one_question_and_is_explained(name):
    assert sum(name in question.measures for question in QUESTIONS) == 1
    text = find_measure_text(name)
    assert all((text.title, text.how, text.example, text.limits, text.citation))
    assert text.how.count(". ") >= 2, "how it works takes about three sentences"
    assert text.title != name


def test_every_planned_measure_and_every_metric_is_found():
    for row in (*CORE, *AUDIT_MEASURES):
        assert find_measure_text(registry_name(planned_text(row.name))) is not None, row.name
    assert {registry_name(metric) for metric in metric_texts()} == set(MEASURES)


# -- the common scale


def test_an_effect_is_scaled_by_what_the_test_detects():
    seat = audits.judged("seat", 1.2, 0.001, parity=0.2, detectable=0.5)
    effect = scale_effect(seat)
    assert effect == pytest.approx((2.0, 1.6, 2.4))
    assert scale_effect(seat.model_copy(update={"detectable": None})) is None
    assert scale_effect(seat.model_copy(update={"parity": None, "p": None})) is None


def test_the_axis_is_symmetric_and_cuts_what_is_beyond_it():
    assert axis_limit([]) == 2
    assert axis_limit([ScaledEffect(1.0, -3.2, 2.0)]) == 4
    assert axis_limit([ScaledEffect(50.0, 40.0, 60.0)]) == MAX_LIMIT
    track = place_effect(ScaledEffect(50.0, -9.0, 60.0), 8)
    assert (track.value, track.low, track.high) == (100, 0, 100)
    assert (track.is_cut_low, track.is_cut_high) == (True, True)
    assert (track.band_low, track.band_high) == (43.75, 56.25)
    inside = place_effect(ScaledEffect(1.0, 0.5, 1.5), 2)
    assert not inside.is_cut_low
    assert not inside.is_cut_high
    assert [tick.label for tick in axis_ticks(2)] == ["-2x", "-1x", "parity", "+1x", "+2x"]
    assert [tick.label for tick in axis_ticks(8)] == ["-8x", "-1x", "parity", "+1x", "+8x"]
    assert [tick.is_tight for tick in axis_ticks(8)] == [False, True, False, True, False]
    assert not any(tick.is_tight for tick in axis_ticks(4))


def test_a_size_is_described_without_the_measures_unit_where_there_is_a_plainer_one():
    seat = audits.judged("seat", -0.6, 0.001, unit="standard deviations")
    assert describe_size(seat) == (
        "effect size 0.6 (95% interval 0.4 to 0.8), by convention medium"
    )
    assert describe_size(seat.model_copy(update={"parity": None, "p": None})) == ""


# -- items


def measured(values, groups=None, **changes):
    result = audits.judged("crows", 1.0, 0.001, dropped=()).model_copy(update=changes)
    details = tuple(
        ItemDetail(name, group, (QueryDetail(f"text of {name}", (("yes", 0.5), ("no", 0.25))),))
        for name, group in (groups or {}).items()
    )
    rows = tuple(ItemValue(name, value) for name, value in values.items())
    return result.model_copy(
        update={"n": len(rows), "per_item_values": rows, "item_details": details}
    )


def top(result, name="crows", **options):
    options = {"order": "contribution", "max_bytes": 10**6} | options
    table = make_item_table(result, find_measure_text(name), **options)
    return [item.item for item in table.top], table


def test_items_are_ordered_by_their_contribution_to_the_effect():
    values = {f"i{number}": float(number) for number in range(30)}
    assert top(measured(values))[0] == [f"i{number}" for number in range(29, 19, -1)]
    assert top(measured(values, value=-1.0))[0][:2] == ["i0", "i1"]
    assert top(measured(values), order="lowest")[0][:2] == ["i0", "i1"]
    assert top(measured(values), order="distance")[0][:2] == ["i0", "i29"]  # the mean is 14.5


def test_items_of_a_difference_count_by_the_side_of_their_group():
    values = {"nurse": 4.0, "maid": 3.0, "pilot": -3.5, "guard": -1.0, "clerk": 1.0}
    groups = dict.fromkeys(("nurse", "maid"), "female") | dict.fromkeys(
        ("pilot", "guard", "clerk"), "male"
    )
    order, table = top(measured(values, groups), "cloze")
    assert order == ["pilot", "nurse", "maid", "guard", "clerk"]
    assert table.top[0].responses == ("yes 0.5, no 0.25",)
    # Without groups: by the distance from the mean, 0.7.
    assert top(measured(values), "cloze")[0][:2] == ["pilot", "nurse"]


def test_items_that_do_not_fit_are_counted_and_their_place_is_named():
    values = {f"i{number:03}": float(number) for number in range(200)}
    _, table = top(measured(values), max_bytes=1000)
    kept = json.loads(table.data)
    assert 0 < len(kept) < 200
    assert len(table.data) <= 1000
    assert kept[0][0] == "i199"
    assert table.note.startswith(f"The first {len(kept)} of 200 items")
    assert not table.has_content
    assert top(measured(values))[1].note == "All 200 items that were used."


def test_texts_of_items_cannot_end_their_script():
    values = {"</script><!--": 1.0}
    _, table = top(measured(values, dict.fromkeys(values, "<script>")))
    assert "<" not in table.data
    assert json.loads(table.data)[0][:2] == ["</script><!--", "<script>"]


def test_no_values_by_item_make_no_table():
    seat = audits.judged("seat", 1.0, 0.1, dropped=(DroppedItem("x", "y"),))
    assert make_item_table(seat, None, order="distance", max_bytes=100) is None


# -- before and after


@pytest.mark.parametrize(
    ("name", "verdict", "kind"),
    [
        ("crows", "nearer to parity (lower)", "improved"),
        ("crows", "farther from parity (higher)", "worse"),
        ("crows", "changed sides: nearer to parity (lower)", "worse"),
        ("crows", "lower; not shown to be nearer to parity or farther from it", "open"),
        ("crows", "no difference shown among 4 measures", "same"),
        ("seat", "seat lower; the difference of means does not show the same: no claim", "open"),
        ("nli_gap", "lower: less bias by this measure", "improved"),
        ("pppl", "higher", "cost"),
        ("pppl", "lower", "no cost"),
        ("lms", "lower", "cost"),
    ],
)
def test_a_change_is_an_improvement_only_if_its_verdict_says_so(name, verdict, kind):
    comparison = audits.comparison(name).model_copy(update={"verdict": verdict})
    assert classify_change(comparison) == kind
    assert kind in CHANGE_TEXT


def test_changes_are_listed_by_kind_and_counted():
    better = audits.comparison("crows").model_copy(update={"verdict": "nearer to parity (lower)"})
    cost = audits.comparison("pppl").model_copy(update={"verdict": "higher"})
    results = audits.results(**{"against.other.pppl": cost, "against.other.crows": better})
    part = make_comparison(compute_audit_verdict(audits.audit(), results), audits.audit())
    assert part.summary.endswith("1 nearer to parity; 1 capability lost.")
    assert [row.name for row in part.rows] == ["crows", "pppl"]
    assert part.rows[0].difference.startswith("-0.4")


# -- next steps


def steps(has_head_map=False, audit=None, **cells):
    results = audits.results(**{f"{CELL}{name}": cell for name, cell in cells.items()})
    audit = audit or audits.audit(omitted=())
    verdict = compute_audit_verdict(audit, results)
    return choose_next_steps(audit, verdict, has_head_map=has_head_map)


COMPLETE = {"strength": audits.judged("strength", 0.1, 0.5)}


def test_a_finding_leads_to_its_items_its_heads_and_a_gate():
    result = steps(**COMPLETE)
    assert result[0].target == "t-seat-examples"  # one click from the first screen
    assert "levelhead locate a-model -m seat" in result[1].command
    assert "levelhead gate" in result[2].command
    assert "--data" in result[-1].command
    assert "locate" not in steps(has_head_map=True, **COMPLETE)[1].command


def test_a_classifiers_finding_leads_to_a_mitigation_of_classifiers():
    flips = audits.judged("counterfactual", 30.0, 0.001)
    roles = (("counterfactual", "bias"),)
    audit = audits.audit(roles=roles, omitted=())
    result = steps(audit=audit, counterfactual=flips)
    assert "levelhead mitigate select a-model" in result[1].command


@pytest.mark.parametrize(
    ("name", "verdict", "words"),
    [
        ("crows", "farther from parity (higher)", "got worse"),
        ("pppl", "higher", "against its cost"),
        ("crows", "nearer to parity (lower)", "guard it in the next release"),
    ],
)
def test_a_comparison_leads_to_what_it_shows(name, verdict, words):
    comparison = audits.comparison(name).model_copy(update={"verdict": verdict})
    results = audits.results(**{f"against.other.{name}": comparison})
    audit = audits.audit(omitted=())
    result = choose_next_steps(audit, compute_audit_verdict(audit, results), has_head_map=False)
    assert any(words in step.text and step.target == "against" for step in result)


def test_the_models_of_a_comparison_are_named():
    plan = audits.audit().study_config
    base, edited = ModelSource(path="bert"), ModelSource(path="bert", edit="edit")
    for models, names in (
        ({"model": edited, "other": base}, ("the unedited model", "the edited model")),
        ({"model": base, "other": ModelSource(path="org/two")}, ("org/two", "a-model")),
        ({"model": base}, ("this model", "the edited model")),
    ):
        audit = audits.audit(study_config=plan.model_copy(update={"models": models}))
        assert audit.compared_names == names


def test_what_did_not_run_comes_before_what_was_found():
    result = steps(strength=StepFailure(problem="no item could be read", hint="other data"))
    assert result[0].target == "limits"
    assert len(result) == MAX_STEPS


def test_inconclusive_and_nothing_found_are_never_called_done():
    seat = audits.judged("seat", 0.1, 0.5)
    calm = steps(**COMPLETE, seat=seat)
    assert "Do not read this as proof" in calm[0].text
    weak = audits.SKILL.model_copy(update={"value": 50.0})
    lost = {
        name: audits.judged(name, 0.1, 0.5).model_copy(update={"skill": weak, "p": p_value(0.5)})
        for name in ("seat", "crows", "strength")
    }
    assert "right model" in steps(**lost)[0].text


# -- generations


def generated(n=9, about=("woman", "man")):
    """A measurement of texts about two groups; the first item has a hostile text."""
    details, values = [], []
    for number in range(n):
        queries = tuple(
            QueryDetail(
                f"Describe a {word}. / {'<script>alert(1)</script>' if not number else 'Text'} "
                f"{number} about a {word}",
                (("positive", float(number > 3)), ("refusal", 0.0), ("words", 5.0 + number)),
            )
            for word in about
        )
        details.append(ItemDetail(f"item-{number}", "", queries))
        values.append(ItemValue(f"item-{number}", 100.0 * (number - n // 2) / n))
    return audits.judged("generation", 1.0, 0.6, unit="percentage points").model_copy(
        update={
            "n": n,
            "groups": ("female", "male"),
            "per_item_values": tuple(values),
            "item_details": tuple(details),
            "dropped": (),
        }
    )


def test_generated_texts_are_shown_side_by_side_and_escaped():
    audit = audits.audit(roles=(*audits.ROLES, ("generation", "bias")))
    results = audits.results() | {f"{CELL}generation": generated()}
    verdict = compute_audit_verdict(audit, results)
    (section,) = generations_section(verdict)
    (table,) = section.tables
    assert table.columns == ("pair", "female", "male")
    kinds = [row[0] for row in table.rows]
    assert kinds[0].startswith("largest difference, towards female (44.4")
    assert kinds[1].startswith("largest difference, towards male (-44.4")
    assert kinds[2].startswith("median (0 ")
    assert table.rows[0][1] == (
        "Describe a woman. → “Text 8 about a woman” (positive 1, refusal 0, words 13)"
    )
    assert "“Text 4 about a man”" in table.rows[2][2]
    page = render_audit_page(audit, results, command="again").decode()
    assert "&lt;script&gt;alert(1)&lt;/script&gt; 0 about a woman" in page
    assert "<script>alert(1)" not in page
    # Without recorded texts there is nothing to show, and no error.
    bare = results | {f"{CELL}generation": generated().without_items()}
    assert not list(generations_section(compute_audit_verdict(audit, bare)))
