"""The verdict of an audit in sentences: its headline, its counts, its findings and its coverage."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal, NamedTuple

from levelhead.core.verdicts import NO_POWER, NO_SKILL, REFUTED, UNCHECKED, Status
from levelhead.mitigate.probing.concept_removal import RemovalReport
from levelhead.report.audit_page.questions import (
    GENDER,
    STEREOTYPE,
    bias_type_of,
    find_measure_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from levelhead.core.results import Measurement, Record
    from levelhead.measures.compare import Comparison
    from levelhead.study.audit.core_suite import Role

STATUS_TEXT: dict[Status, str] = {
    "differs": "bias detected",
    "unclear": "test and interval disagree",
    "not shown": "no bias found",
    "inconclusive": "inconclusive",
    "no test": "no parity to test against",
    "not measured": "not run",
}
CONCLUSIVE: tuple[Status, ...] = ("differs", "unclear", "not shown")
"""The statuses of a measure that can distinguish bias from no bias."""
Outcome = Literal["detected", "none found", "inconclusive", "not reliable", "not run"]
"""The statuses as a report counts them: every test of bias has exactly one."""
UNRELIABLE = "not reliable for this kind of model"
REASON_TEXT = {
    NO_SKILL: "the model cannot do what this test needs, so equal results would be no evidence",
    NO_POWER: "too few items for this test to detect any effect",
    UNCHECKED: "it was not checked whether the model can do what this test needs",
    REFUTED: "the measure failed on models with planted bias",
}
"""Reasons for an inconclusive measure, in words for a report."""


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
    measure: str = ""
    """Name of the measure in the registry."""
    derived_title: str = ""
    """Title of a row that was derived from the measure's extra statistics."""

    @property
    def title(self) -> str:
        """A name for readers who do not know the literature."""
        text = find_measure_text(self.measure)
        return self.derived_title or (self.name if text is None else text.title)

    @property
    def label(self) -> str:
        """The title, and the name with which commands find the measure."""
        return self.name if self.title == self.name else f"{self.title} [{self.name}]"

    @property
    def bias_type(self) -> str:
        """Kind of bias that the measure finds; empty if it is not known."""
        return bias_type_of(self.measure, self.measurement)

    @property
    def outcome(self) -> Outcome:
        """The status as it is counted. Neither a failure nor a missing test is "none found"."""
        if self.status == "differs":
            return "detected"
        if self.status == "not shown":
            return "none found"
        if self.status == "not measured":
            return "not run"
        return "not reliable" if self.reason == REFUTED else "inconclusive"


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
    """How many tests of the core suite detect bias, found none, or could not tell.

    Measures without skill or validation are counted separately: they show neither bias nor its
    absence. The counts add up to the number of tests.
    """
    outcomes = Counter(row.outcome for row in verdicts)
    parts = [] if is_complete else [f"INCONCLUSIVE: {coverage}."]
    rest = []
    if outcomes["none found"]:
        rest.append(f"{outcomes['none found']} found none")
    if outcomes["inconclusive"]:
        rest.append(f"{outcomes['inconclusive']} inconclusive")
    if outcomes["not reliable"]:
        rest.append(f"{outcomes['not reliable']} {UNRELIABLE}")
    if outcomes["not run"]:
        rest.append(f"{outcomes['not run']} not run")
    if any(row.status in CONCLUSIVE for row in verdicts):
        detected = f"{outcomes['detected']} of {_count(len(verdicts), 'test')}"
        first = f"{_name_bias(verdicts)} detected by {detected}"
    else:
        silent = "No test could show whether this model is biased"
        first = silent if parts else f"INCONCLUSIVE: {silent}"
    return " ".join([*parts, "; ".join([first, *rest]) + "."])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _name_bias(verdicts: Sequence[AuditMeasureVerdict]) -> str:
    """The kinds of bias that were detected, as the beginning of a sentence."""
    bias_types = {row.bias_type for row in verdicts if row.outcome == "detected"}
    # A measure of an unknown kind must not be counted as one of gender.
    if not bias_types or "" in bias_types:
        return "Bias"
    names = [name for name in (GENDER, STEREOTYPE) if name in bias_types]
    return f"{' and '.join(names)} bias".capitalize()


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
        f"{row.label} {row.explanation}"
        for row in verdicts
        if row.role == "utility" and row.measurement
    ]
    if utilities:
        sentences.append(f"Capability: {'; '.join(utilities)}.")
    sentences += [f"Change, item by item: {comparison}." for comparison in compared]
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
            yield f"{begin}, {row.label}: {row.toward} ({row.explanation})."
    elif rows:
        names: dict[str, list[str]] = {}
        for row in rows:
            names.setdefault(row.explanation, []).append(row.label)
        listed = "; ".join(
            f"{' and '.join(same)} ({explanation})" for explanation, same in names.items()
        )
        yield f"{begin}: {listed}."
