"""The report of a selection: the chosen edit, the reason, the other candidates, and the limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from levelhead.core.calibration import MeasureKey
from levelhead.core.notebook import NotebookResult
from levelhead.core.results import DroppedItem, Estimate, Provenance, Record
from levelhead.mitigate.selection.candidates import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

NOT_SHOWN_BY_SELECTION = (
    "that it gains anything on other texts, tasks, groups or measures than these",
    "that what it takes out is removed from the model and not only hidden from this measure",
    "that edits of the same sites that have nothing to do with the groups gain less",
    "that it keeps anything but the utility that was measured",
    "that it is more than a calmer classifier, whose decisions flip less whatever words change",
)
"""Limits of any selection; reported with every edit."""


class CandidateResult(Record):
    """One candidate on dev."""

    name: str
    kind: Kind
    description: str
    gain: Estimate | None = None
    """Decrease of the distance from parity; None if nothing changes, or nothing was read."""
    lower_bound: float | None = None
    """Lower bound of the gain that holds for all candidates together."""
    loss: Estimate | None = None
    """Increase of the utility cost; above 0 is worse. None if no answer changes."""
    exclusion_reason: str = ""
    """Reason why it may not be chosen; empty if it may be."""


class HeldOutResult(Record):
    """The chosen candidate on items that the choice has not used."""

    gain: Estimate | None
    """Gain; None if nothing changes."""
    loss: Estimate | None
    max_utility_loss: float
    """Maximum permitted loss of the utility on these items."""
    is_gain_confirmed: bool
    """Whether the interval of the gain lies above 0."""
    is_utility_kept: bool
    """Whether the upper end of the loss is within the limit."""


class SelectionReport(NotebookResult, Record):
    """The chosen edit, the reason, and the other candidates."""

    bias_measure: str
    utility_measure: str
    min_utility_kept: Annotated[float, Field(gt=0, le=1)] | None
    """Share of the base's utility that must be kept; None if `max_utility_loss` was given."""
    max_utility_loss: float
    """Maximum loss on dev, in the utility's unit."""
    base: Estimate
    """Measure of bias of the unedited model, on dev."""
    base_utility: Estimate
    chosen: str | None = None
    is_recommended: bool = False
    """Whether the edit was chosen on dev and confirmed on test."""
    reason: str
    candidates: tuple[CandidateResult, ...]
    on_test: HeldOutResult | None = None
    excluded: tuple[tuple[str, str], ...] = ()
    """Settings that were left out, with the rule of the paper."""
    dropped: tuple[tuple[str, tuple[DroppedItem, ...]], ...] = ()
    """Items that could not be used, with reasons: of dev, test, their utilities and pairs of
    texts."""
    fitted_words: tuple[str, ...] = ()
    """Words that projections were fitted on, which must not be used to test them."""
    not_shown: tuple[str, ...] = NOT_SHOWN_BY_SELECTION
    notes: tuple[str, ...] = ()
    provenance: Provenance
    measured_by: MeasureKey | None = None
    """Key of the measure of bias with this type of model."""

    @property
    def title(self) -> str:
        """Which candidate was chosen, or why none was."""
        return self.reason

    def to_rows(self) -> list[dict[str, object]]:
        """One row per candidate: gain and loss with intervals, and why it may not be chosen."""
        return [
            {
                "name": candidate.name,
                "kind": candidate.kind,
                "gain": candidate.gain and candidate.gain.value,
                "low": candidate.gain and candidate.gain.interval.low,
                "high": candidate.gain and candidate.gain.interval.high,
                "lower_bound": candidate.lower_bound,
                "loss": candidate.loss and candidate.loss.value,
                "loss_low": candidate.loss and candidate.loss.interval.low,
                "loss_high": candidate.loss and candidate.loss.interval.high,
                "chosen": candidate.name == self.chosen,
                "excluded_because": candidate.exclusion_reason,
            }
            for candidate in self.candidates
        ]

    @property
    def eligible(self) -> tuple[CandidateResult, ...]:
        """Candidates that may be chosen."""
        return tuple(candidate for candidate in self.candidates if not candidate.exclusion_reason)


def best_candidate(rows: Sequence[CandidateResult]) -> str | None:
    """The first of the largest lower bounds among the candidates that may be chosen."""
    bounds = [
        (candidate.lower_bound, candidate.name)
        for candidate in rows
        if not candidate.exclusion_reason and candidate.lower_bound is not None
    ]
    # By the lower bound, not the gain: a large gain with a wide interval may be nothing.
    return max(bounds, key=lambda row: row[0])[1] if bounds else None


def explain_choice(
    rows: Sequence[CandidateResult], name: str | None, on_test: HeldOutResult | None
) -> str:
    """Explain in words why this candidate was chosen, or why none."""
    gaining = sum(
        candidate.lower_bound is not None and candidate.lower_bound > 0 for candidate in rows
    )
    if name is None or on_test is None:
        return (
            f"nothing is recommended: of {len(rows)} candidates {gaining} are shown to gain on "
            "dev, and none of them within the price"
            if gaining
            else f"nothing is recommended: none of {len(rows)} candidates is shown to gain on dev"
        )
    eligible = sum(not candidate.exclusion_reason for candidate in rows)
    choice = (
        f"{name} has the largest lower bound of the gain on dev, of {eligible} candidates (of "
        f"{len(rows)} tried) that are shown to gain within the price"
    )
    if on_test.is_gain_confirmed and on_test.is_utility_kept:
        return f"{choice}; gain and price are confirmed on test"
    failed = [
        criterion
        for criterion, is_met in (
            ("the gain", on_test.is_gain_confirmed),
            ("the price", on_test.is_utility_kept),
        )
        if not is_met
    ]
    are = "is" if len(failed) == 1 else "are"
    return f"nothing is recommended: {choice}; {' and '.join(failed)} {are} not confirmed on test"
