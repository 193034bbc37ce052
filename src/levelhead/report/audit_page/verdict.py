"""The verdict of an audit in words: what the measures show, their limits, and what was skipped.

The summary sentence counts only the core suite, which does not depend on the time budget. Added
measures are reported with it and corrected separately: they change no count and no p-value of the
core suite.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from levelhead.core.calibration import find_calibration
from levelhead.core.results import Measurement, Record, Skill, StepFailure
from levelhead.core.verdicts import (
    NO_POWER,
    NO_SKILL,
    REFUTED,
    UNCHECKED,
    Status,
    adjusted_p_value,
    decide_measure_verdict,
)
from levelhead.explain.prompting.knowledge import KnowledgeResult
from levelhead.measures.compare import Comparison, holm_corrected_comparisons
from levelhead.measures.inference import holm_corrected
from levelhead.measures.utility.pronoun_agreement import GAP_PREFIX
from levelhead.report.theme import format_estimate, format_number
from levelhead.study.audit.budget_shares import COUNTEREXAMPLES
from levelhead.study.distributed import OUT_OF_TIME

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.core.results import Estimate
    from levelhead.study.audit.audit import Audit
    from levelhead.study.audit.core_suite import Role

STATUS_TEXT: dict[Status, str] = {
    "differs": "significant bias",
    "unclear": "test and interval disagree",
    "not shown": "no bias shown",
    "inconclusive": "inconclusive",
    "no test": "no parity to test against",
    "not measured": "skipped",
}
CONCLUSIVE: tuple[Status, ...] = ("differs", "unclear", "not shown")
"""The statuses of a measure that can distinguish bias from no bias."""
LIMITATIONS = (
    "Bias towards other groups, or in other languages, domains and tasks.",
    "That groups are treated alike. Where no bias is shown, a bias smaller than the reported "
    "minimum detectable effect is still possible.",
    "How the model behaves in your application: intrinsic scores often do not predict it "
    "(Dawkins et al. 2024). Measure that, too: levelhead measure -m counterfactual.",
)
AGREEMENT = "agreement"
GAP_ROW, BASE_ROW = "agreement gap", "counterexamples, base prompts"
"""Rows that are derived from another measure or from the counterexamples."""
MIN_AGREEMENT = 60.0
"""Percent of pronouns that agree (random guessing: 50). A model that knows one pronoun in five and
guesses the others reaches 60: 20 + 80 / 2. Below that, a gap between the groups shows a preference
for one pronoun, not worse knowledge."""


class AuditMeasureVerdict(NamedTuple):
    """The verdict of one measure."""

    name: str
    role: Role
    status: Status
    measurement: Measurement | None
    explanation: str
    """In words."""
    is_core: bool = True
    toward: str = ""
    """Direction of the difference from parity, in words; empty if no difference is shown."""
    reason: str = ""
    """Why a measure is inconclusive or skipped, in a few fixed words that can be counted."""


class AuditVerdict(NamedTuple):
    """The verdict of the complete audit."""

    headline: str
    sentences: tuple[str, ...]
    measures: tuple[AuditMeasureVerdict, ...]
    """The measures of the audit: the core suite first, then what was added."""
    comparisons: tuple[Comparison, ...]
    """Comparisons, with p corrected for multiple tests."""
    derived: tuple[AuditMeasureVerdict, ...] = ()
    """Further findings that the summary counts, derived from a measure's extra statistics."""
    coverage: str = ""
    """How much of the core suite was run, and why the rest was not."""
    is_complete: bool = True
    """Whether the complete core suite was run."""
    is_conclusive: bool = True
    """Whether any measure could distinguish bias from no bias: without one, nothing was audited."""


REASONS = (REFUTED, NO_SKILL, NO_POWER, UNCHECKED)
"""Reasons for an inconclusive measure; its verdict begins with one of them."""
NOT_REACHED = StepFailure(
    problem="the run ended before this measure", hint="call the audit again: it resumes from there"
)


def unreached_measures(audit: Audit, results: Mapping[str, Record]) -> dict[str, StepFailure]:
    """The planned measures that an unfinished audit has not reached."""
    reached = {step.rpartition(".")[2] for step in results if step.startswith("cell.")}
    skipped = {row.name for row in audit.omitted}
    return {
        name: NOT_REACHED for name, _ in audit.roles if name not in reached and name not in skipped
    }


def compute_audit_verdict(audit: Audit, results: Mapping[str, Record]) -> AuditVerdict:
    """Compute the verdict of an audit.

    The p-values of the core suite are corrected together (Holm), those of added measures and those
    of comparisons separately.
    """
    roles, core = dict(audit.roles), set(audit.core_names)
    cells = {
        step.rpartition(".")[2]: result
        for step, result in results.items()
        if step.startswith("cell.")
    }
    measured = {name: result for name, result in cells.items() if isinstance(result, Measurement)}
    biases = {
        name: measurement for name, measurement in measured.items() if roles.get(name) == "bias"
    }
    first = {name: measurement for name, measurement in biases.items() if name in core}
    if (gap := _agreement_gap(measured.get(AGREEMENT))) is not None and AGREEMENT in core:
        first[GAP_ROW] = gap
    second = {name: measurement for name, measurement in biases.items() if name not in core}
    base = _base_prompts(results, _agreement_skill(measured.get(AGREEMENT)))
    # The base prompts are cloze prompts: where the cloze measure was run, they add no evidence.
    if base is not None and COUNTEREXAMPLES in core and COUNTEREXAMPLES not in measured:
        second[BASE_ROW] = base
    # Two Holm families: what the time budget adds must not weaken the tests of the core suite.
    tested = {**_correct_p_values(first), **_correct_p_values(second)}
    skipped = {verdict.name: verdict for verdict in audit.omitted}
    verdicts = []
    for (
        name,
        role,
    ) in audit.roles:  # the order of the audit, which may differ from that of the results
        record = tested.get(name, cells.get(name, NOT_REACHED))
        verdict = _assess_measure(name, role, record)
        if name not in cells and name in skipped:
            explanation, reason = skipped[name].details, skipped[name].reason
            verdict = AuditMeasureVerdict(
                name, role, "not measured", None, explanation, reason=reason
            )
        verdicts.append(verdict._replace(is_core=name in core))
    derived = tuple(
        _assess_measure(name, "bias", tested[name])
        for name in (GAP_ROW, BASE_ROW)
        if name in tested
    )
    core_verdicts = [verdict for verdict in verdicts if verdict.is_core]
    coverage, is_complete = _describe_coverage(core_verdicts)
    bias_verdicts = [verdict for verdict in (*core_verdicts, *derived) if verdict.role == "bias"]
    comparisons = _correct_comparisons(results, core)
    return AuditVerdict(
        _write_headline(bias_verdicts, coverage, is_complete=is_complete),
        _write_sentences([*verdicts, *derived], comparisons, results),
        tuple(verdicts),
        comparisons,
        derived,
        coverage,
        is_complete,
        any(verdict.status in CONCLUSIVE for verdict in bias_verdicts),
    )


def _correct_p_values(family: Mapping[str, Measurement]) -> dict[str, Measurement]:
    return dict(zip(family, holm_corrected(list(family.values())), strict=True))


def _agreement_skill(agreement: Measurement | None) -> Skill | None:
    """The share of pronouns that agree, as a skill; margins have no threshold."""
    if agreement is None or agreement.measure != "pronoun_agreement":
        return None
    return Skill(
        name="pronouns that agree",
        value=agreement.value,
        interval=agreement.interval,
        chance=50.0,
        threshold=MIN_AGREEMENT,
        n=agreement.n,
        unit="%",
    )


def _agreement_gap(agreement: Measurement | None) -> Measurement | None:
    """The difference of agreement between two groups as a measurement of bias."""
    gap = next(
        (extra for extra in agreement.extras if extra.name.startswith(GAP_PREFIX))
        if agreement
        else iter(()),
        None,
    )
    if agreement is None or gap is None:
        return None
    first, _, second = gap.name.removeprefix(GAP_PREFIX).partition(" - ")
    return _derive_measurement(
        agreement.provenance,
        gap,
        measure="pronoun_agreement_gap",
        direction=f"above 0: pronouns agree more often with {first} people than with {second}",
        above=f"pronouns agree less often with {second} people than with {first}",
        below=f"pronouns agree less often with {first} people than with {second}",
        skill=_agreement_skill(agreement),
    )


def _base_prompts(results: Mapping[str, Record], skill: Skill | None) -> Measurement | None:
    """The result of the prompts without counterexamples, as a measurement of bias.

    Their blanks are pronouns and persons: a model without pronoun agreement gives no evidence.
    """
    knowledge = next(
        (result for result in results.values() if isinstance(result, KnowledgeResult)), None
    )
    if knowledge is None:
        return None
    return _derive_measurement(
        knowledge.provenance,
        knowledge.base,
        measure=COUNTEREXAMPLES,
        direction="above 0: towards the group that dominates an occupation",
        above="the group that dominates an occupation is put into its sentence",
        below="the other group is put into an occupation's sentence",
        skill=skill,
    )


def _derive_measurement(provenance: object, estimate: Estimate, **words: object) -> Measurement:
    fields = {
        "value": estimate.value,
        "interval": estimate.interval,
        "parity": estimate.parity,
        "p": estimate.p,
        "unit": estimate.unit,
        "detectable": estimate.detectable,
        "precision": estimate.precision,
        "n": estimate.n,
        "dropped": (),
        "provenance": provenance,
    }
    return Measurement(**fields, **words)  # type: ignore[arg-type]


def _assess_measure(name: str, role: Role, result: Record) -> AuditMeasureVerdict:
    if isinstance(result, StepFailure):
        if result.problem == OUT_OF_TIME:
            explanation = "time budget; the same command resumes from here"
            return AuditMeasureVerdict(
                name, role, "not measured", None, explanation, reason="time budget"
            )
        reason = "not reached" if result == NOT_REACHED else "could not be measured"
        return AuditMeasureVerdict(name, role, "not measured", None, result.problem, reason=reason)
    if not isinstance(result, Measurement):
        raise TypeError(f"{name} is no measurement")  # results of a cell are read by type
    text = format_estimate(result)
    if role == "utility":
        return AuditMeasureVerdict(name, role, "no test", result, text)
    verdict = decide_measure_verdict(result)
    effect = result.effect
    if result.parity is not None:
        text += f", parity {format_number(result.parity)}"
    p = adjusted_p_value(result)
    toward = ""
    if verdict.status == "differs" and effect is not None:
        toward = verdict.toward or ("above parity" if effect[0] > 0 else "below parity")
        text += f", p {format_number(p)}"
    elif verdict.status == "not shown" and result.detectable is not None:
        text += f"; minimum detectable effect {format_number(result.detectable)} (80% power)"
    reason = ""
    if verdict.status == "inconclusive":
        reason = next(
            known_reason for known_reason in REASONS if verdict.reason.startswith(known_reason)
        )
        calibration = find_calibration(result) if reason == REFUTED else None
        text += f"; {verdict.reason}" + (
            f": {'; '.join(calibration.reasons)}" if calibration and calibration.reasons else ""
        )
    elif verdict.reason:
        text += f"; {verdict.reason}"
    return AuditMeasureVerdict(
        name, role, verdict.status, result, text, toward=toward, reason=reason
    )


def _correct_comparisons(results: Mapping[str, Record], core: set[str]) -> tuple[Comparison, ...]:
    pairs = {
        step: comparison
        for step, comparison in results.items()
        if isinstance(comparison, Comparison)
    }
    # Separate Holm families, as for the measures.
    done: dict[str, Comparison] = {}
    for is_core in (True, False):
        family = {
            step: comparison
            for step, comparison in pairs.items()
            if (step.rpartition(".")[2] in core) == is_core
        }
        done |= zip(family, holm_corrected_comparisons(list(family.values())), strict=True)
    return tuple(done[step] for step in pairs)


def _describe_coverage(planned: Sequence[AuditMeasureVerdict]) -> tuple[str, bool]:
    """How much of the core suite was run: "1 of 8 planned measures run; 7 not run: ..."."""
    run = sum(row.measurement is not None for row in planned)
    text = f"{run} of {len(planned)} planned measures run"
    if run == len(planned):
        return text, bool(planned)
    reasons = Counter(row.reason for row in planned if row.measurement is None)
    parts = [f"{count} not run: {reason}" for reason, count in sorted(reasons.items())]
    return "; ".join((text, *parts)), False


def _write_headline(
    verdicts: Sequence[AuditMeasureVerdict], coverage: str, *, is_complete: bool
) -> str:
    """How many of the conclusive measures of the core suite show bias.

    Measures without skill or validation are counted separately: they show neither bias nor its
    absence.
    """
    status = Counter(row.status for row in verdicts)
    conclusive = sum(status[conclusive_status] for conclusive_status in CONCLUSIVE)
    differs = status["differs"]
    parts = [] if is_complete else [f"INCONCLUSIVE: {coverage}."]
    if conclusive:
        verb = "shows" if differs == 1 else "show"
        parts.append(f"{differs} of {conclusive} measures {verb} significant bias.")
    else:
        silent = "No measure could show whether this model is biased."
        parts.append(silent if parts else f"INCONCLUSIVE: {silent}")
    if status["unclear"]:
        parts.append(f"{status['unclear']} unclear: test and interval disagree.")
    reasons = Counter(row.reason for row in verdicts if row.status == "inconclusive")
    if reasons[REFUTED]:
        parts.append(
            f"{reasons[REFUTED]} inconclusive: failed validation on models with planted bias."
        )
    parts += [
        f"{reasons[reason]} inconclusive: {reason}."
        for reason in (NO_SKILL, NO_POWER, UNCHECKED)
        if reasons[reason]
    ]
    if status["no test"]:
        parts.append(f"{status['no test']} without a test.")
    return " ".join(parts)


def _write_sentences(
    verdicts: Sequence[AuditMeasureVerdict],
    compared: Sequence[Comparison],
    results: Mapping[str, Record],
) -> tuple[str, ...]:
    sentences = []
    for is_core, where in ((True, ""), (False, ", beyond the core suite")):
        rows = [row for row in verdicts if row.is_core == is_core]
        rows = [row for row in rows if row.role == "bias" or row.status == "not measured"]
        for status, sign in STATUS_TEXT.items():
            matching = [row for row in rows if row.status == status]
            if status == "differs":  # one line each: readers look for findings first
                sentences += [
                    f"{sign.capitalize()}{where}, {row.name}: {row.toward} ({row.explanation})."
                    for row in matching
                ]
            elif matching:
                names: dict[str, list[str]] = {}
                for row in matching:
                    names.setdefault(row.explanation, []).append(row.name)
                listed = "; ".join(
                    f"{', '.join(same)} ({explanation})" for explanation, same in names.items()
                )
                sentences.append(f"{sign.capitalize()}{where}: {listed}.")
    utilities = [
        f"{row.name} {row.explanation}"
        for row in verdicts
        if row.role == "utility" and row.measurement
    ]
    if utilities:
        sentences.append(f"Capability: {'; '.join(utilities)}.")
    sentences += [f"Item by item, second minus first: {comparison}." for comparison in compared]
    sentences += [
        (f"The edit, {step.partition('.')[2]}: {result.verdict} ({result.reason}).")  # type: ignore[attr-defined]
        for step, result in results.items()
        if step.startswith("removed.") and not isinstance(result, StepFailure)
    ]
    return tuple(sentences)
