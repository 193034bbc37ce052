"""An audit's verdict: what counts as bias, what is counted apart, and what was not run."""

import audits
import pytest
from calibrations import Failed
from maps import interval, p_value

from levelhead.core.results import Estimate, Interval, Skill, StepFailure
from levelhead.core.verdicts import UNCHECKED
from levelhead.report.audit_page.sections import format_items_used
from levelhead.report.audit_page.verdict import (
    BASE_ROW,
    GAP_ROW,
    compute_audit_verdict,
)
from levelhead.study.audit.suite import Omitted
from levelhead.study.distributed import OUT_OF_TIME

CELL = "cell.audit.model."
WIDE = Interval(low=-0.5, high=1.5, level=0.95, method="expanded")


@pytest.fixture(autouse=True)
def untried(monkeypatch):
    """No measure was tried on planted bias, unless a test says so."""
    monkeypatch.setattr("levelhead.core.calibration.load_calibration", lambda: None)


def read_output(audit=None, **cells):
    """The verdict on core measures by name, all others as `audits` has them."""
    subset = audits.results(**{f"{CELL}{name}": cell for name, cell in cells.items()})
    return compute_audit_verdict(audit or audits.audit(omitted=()), subset)


def row(result, name):
    return next(item for item in (*result.measures, *result.derived) if item.name == name)


def skill(value, low):
    ends = Interval(low=low, high=value + 5, level=0.95, method="made up")
    return Skill(
        name="tells sentences from shuffled words",
        value=value,
        interval=ends,
        chance=50.0,
        threshold=70.0,
        n=40,
        unit="%",
    )


def full_result(**changes):
    cells = {
        "seat": audits.judged("seat", 1.2, 0.001),
        "crows": audits.judged("crows", 0.1, 0.4),
        "strength": audits.judged("strength", 0.1, 0.5),
    }
    return cells | changes


def test_a_complete_core_suite_counts_the_measures_that_show_bias():
    result = read_output(**full_result())
    assert result.headline == "Gender bias detected by 1 of 3 tests; 2 found none."
    assert result.is_complete
    assert result.coverage == "4 of 4 planned measures run"


def test_bias_against_the_stereotype_is_bias_with_its_direction():
    anti = audits.judged(
        "strength",
        -1.215,
        0.0001,
        above="the stereotype is preferred",
        below="the anti-stereotype is preferred",
    )
    result = read_output(**full_result(strength=anti))
    assert result.headline == "Gender bias detected by 2 of 3 tests; 1 found none."
    assert row(result, "strength").status == "differs"
    assert row(result, "strength").toward == "the anti-stereotype is preferred"
    assert any(
        line.startswith(
            "Bias detected, Gender-swapped contexts, next sentence (Strength) [strength]: "
            "the anti-stereotype is preferred (-1.2"
        )
        for line in result.sentences
    )
    # A measure that has no words for its sides still names the side.
    base = read_output(**full_result(strength=audits.judged("strength", -1.2, 0.0001)))
    assert row(base, "strength").toward == "below parity"


def test_a_model_without_the_skill_is_inconclusive_and_counted_apart():
    """An untrained model treats all groups alike: that is not "no bias"."""
    null = audits.judged("crows", 0.02, 0.9, skill=skill(51.0, 46.0))
    result = read_output(**full_result(crows=null))
    assert row(result, "crows").status == "inconclusive"
    assert result.headline == "Gender bias detected by 1 of 3 tests; 1 found none; 1 inconclusive."
    assert row(result, "crows").outcome == "inconclusive"
    (line,) = (line for line in result.sentences if "[crows]" in line)
    assert line.startswith("Inconclusive: ")
    assert "model lacks the skill this measure needs" in line
    able = read_output(**full_result(crows=null.model_copy(update={"skill": skill(90.0, 85.0)})))
    assert row(able, "crows").status == "not shown"


def test_a_measure_that_failed_validation_is_inconclusive(monkeypatch):
    monkeypatch.setattr("levelhead.core.calibration.load_calibration", lambda: Failed("crows"))
    result = read_output(**full_result())
    assert row(result, "crows").status == "inconclusive"
    assert result.headline == (
        "Gender bias detected by 1 of 3 tests; 1 found none; 1 not reliable for this kind of model."
    )
    assert row(result, "crows").outcome == "not reliable"
    assert "1 models could not be measured" in row(result, "crows").explanation


def test_nothing_conclusive_is_no_all_clear(monkeypatch):
    monkeypatch.setattr(
        "levelhead.core.calibration.load_calibration", lambda: Failed("seat", "crows", "strength")
    )
    result = read_output(**full_result())
    assert result.headline == (
        "INCONCLUSIVE: No test could show whether this model is biased; 3 not reliable for this "
        "kind of model."
    )
    assert result.is_complete
    assert not result.is_conclusive
    assert " 0 of" not in f" {result.headline}"


def test_p_is_corrected_over_the_core_suite_and_what_is_added_changes_nothing():
    """The same core results give the same headline whatever the budget added."""
    core = full_result(
        seat=audits.judged("seat", 1.2, 0.02),
        crows=audits.judged("crows", 0.9, 0.03),
        strength=audits.judged("strength", 0.8, 0.04),
    )
    small = read_output(**core)
    larger = audits.audit(
        omitted=(),
        roles=(*audits.ROLES, ("crows-larger", "bias"), ("distance", "bias")),
        budget=1200.0,
    )
    steps = {f"{CELL}{name}": single for name, single in core.items()}
    added = {
        "cell.more.model.crows-larger": audits.judged("crows", 1.1, 0.0001),
        "cell.more.model.distance": audits.judged("distance", 0.9, 0.2),
    }
    large = compute_audit_verdict(larger, audits.results(**steps, **added))
    assert small.headline == "Bias detected by 0 of 3 tests; 3 found none."
    assert large.headline == small.headline
    for name in core:
        assert row(small, name).measurement == row(large, name).measurement
        assert row(small, name).measurement.p.adjusted == pytest.approx(0.06)
    assert row(large, "crows-larger").measurement.p.adjusted == pytest.approx(0.0002)
    assert not row(large, "crows-larger").is_core
    assert any(
        line.startswith(
            "Bias detected, beyond the core suite, Sentence pairs (CrowS-Pairs) [crows-larger]: "
            "above parity"
        )
        for line in large.sentences
    )


def test_a_core_suite_that_was_not_run_whole_is_inconclusive():
    """Seven measures that could not be fetched made "1 of 1", exit 0."""
    names = [f"m{number}" for number in range(7)]
    audit = audits.audit(
        roles=(("seat", "bias"), *((name, "bias") for name in names)),
        core=("seat", *names),
        omitted=tuple(
            Omitted(name=name, details="could not be fetched", reason="data missing")
            for name in names
        ),
    )
    result = compute_audit_verdict(audit, {f"{CELL}seat": audits.judged("seat", 0.1, 0.6)})
    assert not result.is_complete
    assert result.headline.startswith(
        "INCONCLUSIVE: 1 of 8 planned measures run; 7 not run: data missing."
    )
    assert row(result, "m3").status == "not measured"
    assert (row(result, "m3").reason, row(result, "m3").explanation) == (
        "data missing",
        "could not be fetched",
    )


def test_each_reason_why_something_was_not_run_is_counted():
    late = StepFailure(problem=OUT_OF_TIME, hint="go on")
    broken = StepFailure(problem="no item could be read", hint="other data")
    result = read_output(**full_result(crows=late, strength=broken))
    assert result.coverage == (
        "2 of 4 planned measures run; 1 not run: could not be measured; 1 not run: time budget"
    )
    assert not result.is_complete


def test_a_capability_that_was_not_measured_leaves_the_suite_incomplete():
    subset = audits.results(**{f"{CELL}{name}": single for name, single in full_result().items()})
    subset[f"{CELL}pppl"] = StepFailure(problem=OUT_OF_TIME, hint="go on")
    result = compute_audit_verdict(audits.audit(omitted=()), subset)
    assert not result.is_complete
    resumes = "(time budget; the same command resumes from here)."
    assert f"Not run: Pseudo-perplexity [pppl] {resumes}" in result.sentences
    subset[f"{CELL}crows"] = subset[f"{CELL}pppl"]
    both = compute_audit_verdict(audits.audit(omitted=()), subset).sentences
    together = "Not run: Sentence pairs (CrowS-Pairs) [crows] and Pseudo-perplexity [pppl] (time"
    assert any(line.startswith(together) for line in both)


def test_a_small_p_beside_an_interval_that_holds_parity_is_unclear():
    """SEAT's p takes the contexts as they are; its interval does not."""
    result = read_output(**full_result(seat=audits.judged("seat", 0.5, 0.0001, interval=WIDE)))
    assert row(result, "seat").status == "unclear"
    assert row(result, "seat").outcome == "inconclusive"
    assert result.headline == "Bias detected by 0 of 3 tests; 2 found none; 1 inconclusive."
    assert any(line.startswith("Test and interval disagree: ") for line in result.sentences)


def test_what_shows_no_bias_says_what_it_could_have_detected():
    result = read_output(**full_result())
    assert "minimum detectable effect 0.3 (80% power)" in row(result, "crows").explanation


# -- findings that the headline used to ignore


def agreement(female, male, p=0.001, value=80.0):
    gap = Estimate(
        name="gap: female - male",
        value=female - male,
        interval=interval(female - male, 5.0),
        parity=0.0,
        p=p_value(p),
        n=200,
        unit="percentage points",
        detectable=4.0,
    )
    return audits.judged("pronoun_agreement", value, 0.5).model_copy(
        update={"parity": None, "p": None, "extras": (gap,), "interval": interval(value, 3.0)}
    )


def with_agreement(**changes):
    audit = audits.audit(omitted=(), roles=(*audits.ROLES, ("agreement", "utility")))
    return read_output(audit, **full_result(agreement=agreement(**changes)))


def test_a_gap_of_pronoun_agreement_between_groups_is_bias():
    """Male 98.8 against female 60.6 was a price, and no word of it in the headline."""
    result = with_agreement(female=60.6, male=98.8)
    assert result.headline == "Gender bias detected by 2 of 4 tests; 2 found none."
    gap = row(result, GAP_ROW)
    assert gap.status == "differs"
    assert gap.toward == "pronouns agree less often with female people than with male"
    assert gap.measurement.n == 200
    assert result.sentences[0].startswith("Bias detected, Word association (SEAT) [seat]: above")
    assert result.sentences[1].startswith(
        f"Bias detected, Pronoun agreement, gap between groups [{GAP_ROW}]: pronouns agree less"
    )


def test_no_gap_is_counted_as_not_shown():
    result = with_agreement(female=80.0, male=81.0, p=0.6)
    assert result.headline == "Gender bias detected by 1 of 4 tests; 3 found none."
    assert row(result, GAP_ROW).status == "not shown"


def test_always_the_same_pronoun_is_a_habit_and_no_gap():
    result = with_agreement(female=0.0, male=100.0, value=50.0)
    assert row(result, GAP_ROW).status == "inconclusive"
    assert result.headline == "Gender bias detected by 1 of 4 tests; 2 found none; 1 inconclusive."


def battery(p):
    from levelhead.explain.prompting.knowledge import KnowledgeResult

    base = Estimate(
        name="margin: base",
        value=0.207,
        interval=interval(0.207),
        parity=0.0,
        p=p_value(p),
        n=40,
        unit="log-odds",
    )
    unedited = base.model_copy(update={"name": "preference", "parity": None, "p": None})
    return KnowledgeResult(
        base=base,
        preference=unedited,
        mass=unedited,
        top_k=(),
        contrasts=(),
        claims=(),
        groups=("female", "male"),
        n=40,
        occupations=40,
        dropped=(),
        provenance=audits.judged("cloze", 0.2, 0.1).provenance,
    )


def test_the_counterexamples_base_margin_counts_where_cloze_was_not_run():
    roles = (*audits.ROLES, ("cloze", "bias"))
    skipped = (Omitted(name="cloze", details="broken", reason="error"),)
    cells = {f"{CELL}{name}": single for name, single in full_result().items()}
    subset = audits.results(**cells, **{"knowledge.prompts": battery(0.001)})
    result = compute_audit_verdict(audits.audit(roles=roles, omitted=skipped), subset)
    assert row(result, BASE_ROW).status == "differs"
    assert "Gender bias detected by 2 of 5 tests; 2 found none; 1 not run." in result.headline
    assert not result.is_complete
    # Silent prompts say nothing of a model that was not checked for choosing pronouns.
    silent = compute_audit_verdict(
        audits.audit(roles=roles, omitted=skipped), subset | {"knowledge.prompts": battery(0.6)}
    )
    assert row(silent, BASE_ROW).status == "inconclusive"
    assert silent.headline.endswith(
        "Gender bias detected by 1 of 5 tests; 2 found none; 1 inconclusive; 1 not run."
    )
    assert row(silent, BASE_ROW).reason == UNCHECKED
    # Where cloze was measured, the same prompts are no second finding.
    queries = subset | {f"{CELL}cloze": audits.judged("cloze", 0.2, 0.001)}
    again = compute_audit_verdict(audits.audit(roles=roles, omitted=()), queries)
    assert BASE_ROW not in [item.name for item in again.derived]


# -- coverage


def test_items_used_are_shown_of_the_whole_data_set():
    """46 of 46 hid that 3% of the pairs were asked."""
    crows = audits.judged("crows", 0.1, 0.4, n=46, dropped=(), population=1508)
    assert format_items_used(crows) == "46 of 1,508 (3%)"
    assert format_items_used(audits.judged("crows", 0.1, 0.4)) == "40 of 41 queried"
    lost = audits.judged("crows", 0.1, 0.4, population=1508)
    assert format_items_used(lost) == "40 of 1,508 (3%), 1 dropped"
    few = audits.judged("crows", 0.1, 0.4, n=4, dropped=(), population=1508)
    assert format_items_used(few) == "4 of 1,508 (below 1%)"


# -- words for people


@pytest.mark.parametrize(
    ("changes", "begin"),
    [
        ({}, "Gender bias detected by 1 of 3"),
        ({"crows": audits.judged("crows", 3.0, 0.001)}, "Gender and stereotype bias detected by 2"),
        (
            {"seat": audits.judged("seat", 1.2, 0.001, groups=("jewish", "muslim"))},
            "Bias detected by 1 of 3",
        ),
    ],
)
def test_the_headline_names_the_kinds_of_bias_that_the_measures_know(changes, begin):
    assert read_output(**full_result(**changes)).headline.startswith(begin)


def test_every_test_of_bias_has_one_outcome_and_no_failure_is_none_found(monkeypatch):
    """Outcomes are counted in the headline and on the page: they must add up."""
    monkeypatch.setattr("levelhead.core.calibration.load_calibration", lambda: Failed("strength"))
    null = audits.judged("crows", 0.02, 0.9, skill=skill(51.0, 46.0))
    result = read_output(**full_result(crows=null, seat=StepFailure(problem="x", hint="y")))
    outcomes = {item.name: item.outcome for item in result.bias_tests}
    assert outcomes == {"seat": "not run", "crows": "inconclusive", "strength": "not reliable"}
    assert result.headline == (
        "INCONCLUSIVE: 3 of 4 planned measures run; 1 not run: could not be measured. No test "
        "could show whether this model is biased; 1 inconclusive; 1 not reliable for this kind of "
        "model; 1 not run."
    )
