"""The verdict of an audit in sentences: its headline, its findings and its coverage."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from levelhead.core.verdicts import NO_POWER, NO_SKILL, REFUTED, UNCHECKED, Status
from levelhead.mitigate.probing.concept_removal import RemovalReport

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from levelhead.core.results import Measurement, Record
    from levelhead.measures.compare import Comparison
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


def describe_coverage(planned: Sequence[AuditMeasureVerdict]) -> tuple[str, bool]:
    """How much of the core suite was run: "1 of 8 planned measures run; 7 not run: ..."."""
    run = sum(row.measurement is not None for row in planned)
    text = f"{run} of {len(planned)} planned measures run"
    if run == len(planned):
        return text, bool(planned)
    reasons = Counter(row.reason for row in planned if row.measurement is None)
    parts = [f"{count} not run: {reason}" for reason, count in sorted(reasons.items())]
    return "; ".join((text, *parts)), False


def write_headline(
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


def write_sentences(
    verdicts: Sequence[AuditMeasureVerdict],
    compared: Sequence[Comparison],
    results: Mapping[str, Record],
) -> tuple[str, ...]:
    """One sentence for each finding, then one for each other status, and for everything else."""
    sentences: list[str] = []
    for is_core, where in ((True, ""), (False, ", beyond the core suite")):
        rows = [row for row in verdicts if row.is_core == is_core]
        rows = [row for row in rows if row.role == "bias" or row.status == "not measured"]
        for status in STATUS_TEXT:
            matching = [row for row in rows if row.status == status]
            sentences += _sentences_of_status(status, matching, where)
    utilities = [
        f"{row.name} {row.explanation}"
        for row in verdicts
        if row.role == "utility" and row.measurement
    ]
    if utilities:
        sentences.append(f"Capability: {'; '.join(utilities)}.")
    sentences += [f"Item by item, second minus first: {comparison}." for comparison in compared]
    sentences += [
        f"The edit, {step.partition('.')[2]}: {result.verdict} ({result.reason})."
        for step, result in results.items()
        if step.startswith("removed.") and isinstance(result, RemovalReport)
    ]
    return tuple(sentences)


def _sentences_of_status(
    status: Status, rows: Sequence[AuditMeasureVerdict], where: str
) -> Iterator[str]:
    begin = f"{STATUS_TEXT[status].capitalize()}{where}"
    if status == "differs":  # one line each: readers look for findings first
        for row in rows:
            yield f"{begin}, {row.name}: {row.toward} ({row.explanation})."
    elif rows:
        names: dict[str, list[str]] = {}
        for row in rows:
            names.setdefault(row.explanation, []).append(row.name)
        listed = "; ".join(
            f"{', '.join(same)} ({explanation})" for explanation, same in names.items()
        )
        yield f"{begin}: {listed}."
