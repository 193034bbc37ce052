"""The verdict of an audit in words: what the measures show, their limits, and what was skipped.

The summary sentence counts only the core suite, which does not depend on the time budget. Added
measures are reported with it and corrected separately: they change no count and no p-value of the
core suite.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from levelhead.core.calibration import find_calibration
from levelhead.core.results import Measurement, Record, Skill, StepFailure
from levelhead.core.verdicts import (
    NO_POWER,
    NO_SKILL,
    REFUTED,
    UNCHECKED,
    adjusted_p_value,
    decide_measure_verdict,
)
from levelhead.explain.prompting.knowledge import KnowledgeResult
from levelhead.measures.compare import Comparison, holm_corrected_comparisons
from levelhead.measures.inference import holm_corrected
from levelhead.measures.utility.pronoun_agreement import GAP_PREFIX
from levelhead.models.serving.budget import SPENT
from levelhead.report.audit_page.questions import registry_name
from levelhead.report.audit_page.verdict_text import (
    CONCLUSIVE,
    AuditMeasureVerdict,
    describe_coverage,
    write_headline,
    write_sentences,
)
from levelhead.report.theme import format_estimate, format_number
from levelhead.study.audit.budget_shares import COUNTEREXAMPLES
from levelhead.study.audit.suite import planned_text
from levelhead.study.distributed import OUT_OF_TIME

if TYPE_CHECKING:
    from collections.abc import Mapping

    from levelhead.core.results import Estimate, Provenance
    from levelhead.study.audit.audit import Audit
    from levelhead.study.audit.core_suite import Role

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
DERIVED_ROWS = {
    GAP_ROW: ("pronoun_agreement", "Pronoun agreement, gap between groups"),
    BASE_ROW: ("cloze", "Occupation sentences before counterexamples"),
}
"""Measure in the registry and title of each derived row."""
MIN_AGREEMENT = 60.0
"""Percent of pronouns that agree (random guessing: 50). A model that knows one pronoun in five and
guesses the others reaches 60: 20 + 80 / 2. Below that, a gap between the groups shows a preference
for one pronoun, not worse knowledge."""


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

    @property
    def bias_tests(self) -> tuple[AuditMeasureVerdict, ...]:
        """The tests of bias that the headline counts: those of the core suite."""
        core = (row for row in self.measures if row.is_core and row.role == "bias")
        return (*core, *(row for row in self.derived if row.is_core))


REASONS = (REFUTED, NO_SKILL, NO_POWER, UNCHECKED)
"""Reasons for an inconclusive measure; its verdict begins with one of them."""
NOT_REACHED = StepFailure(
    problem="the run ended before this measure", hint="call the audit again: it resumes from there"
)


def _results_by_measure(results: Mapping[str, Record]) -> dict[str, Record]:
    return {
        step.rpartition(".")[2]: result
        for step, result in results.items()
        if step.startswith("cell.")
    }


def compute_audit_verdict(audit: Audit, results: Mapping[str, Record]) -> AuditVerdict:
    """Compute the verdict of an audit.

    The p-values of the core suite are corrected together (Holm), those of added measures and those
    of comparisons separately.
    """
    roles, core = dict(audit.roles), set(audit.core_names)
    cells = _results_by_measure(results)
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
    # The order of the audit, which may differ from that of the results.
    for name, role in audit.roles:
        if name not in cells and name in skipped:
            verdict = _skipped(name, role, skipped[name].details, skipped[name].reason)
        else:
            record = tested.get(name, cells.get(name, NOT_REACHED))
            verdict = _assess_measure(name, role, record)
        verdicts.append(
            verdict._replace(is_core=name in core, measure=_registry_name(audit, name, cells))
        )
    derived = tuple(
        _assess_measure(name, "bias", tested[name])._replace(measure=measure, derived_title=title)
        for name, (measure, title) in DERIVED_ROWS.items()
        if name in tested
    )
    core_verdicts = [verdict for verdict in verdicts if verdict.is_core]
    coverage, is_complete = describe_coverage(core_verdicts)
    bias_verdicts = [verdict for verdict in (*core_verdicts, *derived) if verdict.role == "bias"]
    comparisons = _correct_comparisons(results, core)
    return AuditVerdict(
        write_headline(bias_verdicts, coverage, is_complete=is_complete),
        write_sentences([*verdicts, *derived], comparisons, results),
        tuple(verdicts),
        comparisons,
        derived,
        coverage,
        is_complete,
        any(verdict.status in CONCLUSIVE for verdict in bias_verdicts),
    )


def _registry_name(audit: Audit, name: str, cells: Mapping[str, Record]) -> str:
    """Name in the registry of a measure of the audit; a plan need not hold one that did not fit."""
    text = audit.study_config.measures.get(name)
    if text is None:
        result = cells.get(name)
        text = result.measure if isinstance(result, Measurement) else planned_text(name)
    return registry_name(text)


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
    if agreement is None:
        return None
    gap = next((extra for extra in agreement.extras if extra.name.startswith(GAP_PREFIX)), None)
    if gap is None:
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


def _derive_measurement(
    provenance: Provenance,
    estimate: Estimate,
    *,
    measure: str,
    direction: str,
    above: str,
    below: str,
    skill: Skill | None,
) -> Measurement:
    return Measurement(
        measure=measure,
        direction=direction,
        above=above,
        below=below,
        skill=skill,
        value=estimate.value,
        interval=estimate.interval,
        parity=estimate.parity,
        p=estimate.p,
        unit=estimate.unit,
        detectable=estimate.detectable,
        precision=estimate.precision,
        n=estimate.n,
        dropped=(),
        provenance=provenance,
    )


def _skipped(name: str, role: Role, explanation: str, reason: str) -> AuditMeasureVerdict:
    return AuditMeasureVerdict(name, role, "not measured", None, explanation, reason=reason)


def _explain_failure(failure: StepFailure) -> tuple[str, str]:
    """Why a measure has no result: in words, and as one of a few reasons."""
    if failure.problem == OUT_OF_TIME:
        return "time budget; the same command resumes from here", "time budget"
    # Requests are sent by several tasks, whose errors a job reports together.
    if SPENT in failure.problem:
        return failure.problem, "token budget"
    return failure.problem, "not reached" if failure == NOT_REACHED else "could not be measured"


def _assess_measure(name: str, role: Role, result: Record) -> AuditMeasureVerdict:
    if isinstance(result, StepFailure):
        return _skipped(name, role, *_explain_failure(result))
    if not isinstance(result, Measurement):
        raise TypeError(f"{name} is no measurement")  # results of a cell are read by type
    text = format_estimate(result)
    # A utility has no parity: it is reported, but is no test of bias.
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
        reason = next(reason for reason in REASONS if verdict.reason.startswith(reason))
        calibration = find_calibration(result) if reason == REFUTED else None
        text += f"; {verdict.reason}"
        if calibration and calibration.reasons:
            text += f": {'; '.join(calibration.reasons)}"
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
