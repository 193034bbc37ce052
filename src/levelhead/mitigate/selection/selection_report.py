"""What tuning tells: which edit, why this one, what was tried beside it, and what was not shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from levelhead.core.calibration import Ruler
from levelhead.core.results import Dropped, Estimate, Provenance, Record
from levelhead.mitigate.selection.candidates import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

NOT_SHOWN = (
    "that it gains anything on other texts, tasks, groups or measures than these",
    "that what it takes out is removed from the model and not only hidden from this measure",
    "that edits of the same sites that have nothing to do with the groups gain less",
    "that it keeps anything but the price that was asked",
    "that it is more than a calmer classifier, whose decisions flip less whatever words change",
)
"""What no tuning shows, to be told beside every edit."""


class Tried(Record):
    """One candidate on dev."""

    name: str
    kind: Kind
    about: str
    gain: Estimate | None = None
    """By how much the bias comes nearer to parity; None: nothing changes, or nothing was read."""
    low: float | None = None
    """The lower bound of the gain that holds for all candidates together."""
    loss: Estimate | None = None
    """By how much the price is worse; above 0 is worse. None: not one answer changes."""
    why_not: str = ""
    """Why it may not be chosen; empty: it may."""


class OnTest(Record):
    """The chosen candidate on items that the choice has not seen."""

    gain: Estimate | None
    """None: nothing changes."""
    loss: Estimate | None
    most: float
    """The largest loss that may be paid, of the price of these items."""
    gains: bool
    """The interval of the gain lies above 0."""
    keeps: bool
    """The upper end of the loss lies within what may be paid."""


class Tuned(Record):
    """Which edit was chosen, why, and what was tried beside it."""

    gain: str
    price: str
    keep: Annotated[float, Field(gt=0, le=1)] | None
    """The share of the base's price that is to be kept; None: `most` was given."""
    most: float
    """The largest loss on dev, in the price's unit."""
    base: Estimate
    """The measure of bias of the model as it is, on dev."""
    base_price: Estimate
    chosen: str | None = None
    recommended: bool = False
    """Chosen on dev, and confirmed on test."""
    why: str
    tried: tuple[Tried, ...]
    on_test: OnTest | None = None
    trimmed: tuple[tuple[str, str], ...] = ()
    """Settings that were not tried, and by which rule of the paper."""
    dropped: tuple[tuple[str, tuple[Dropped, ...]], ...] = ()
    """Items that could not be used, with reasons: of dev, test, their prices, pairs of texts."""
    seen: tuple[str, ...] = ()
    """Words that projections were fitted on: by these nobody should judge them."""
    not_shown: tuple[str, ...] = NOT_SHOWN
    notes: tuple[str, ...] = ()
    provenance: Provenance
    measured_by: Ruler | None = None
    """The gain."""

    @property
    def eligible(self) -> tuple[Tried, ...]:
        """The candidates that might have been chosen."""
        return tuple(own for own in self.tried if not own.why_not)


def largest(rows: Sequence[Tried]) -> str | None:
    """The first of the largest lower bounds among those that may be chosen."""
    some = [(own.low, own.name) for own in rows if not own.why_not and own.low is not None]
    return max(some, key=lambda row: row[0])[1] if some else None


def why_this(rows: Sequence[Tried], name: str | None, on_test: OnTest | None) -> str:
    """In words: why this one, or why none."""
    gaining = sum(own.low is not None and own.low > 0 for own in rows)
    if name is None or on_test is None:
        return (
            f"nothing is recommended: of {len(rows)} candidates {gaining} are shown to gain on "
            "dev, and none of them within the price"
            if gaining
            else f"nothing is recommended: none of {len(rows)} candidates is shown to gain on dev"
        )
    eligible = sum(not own.why_not for own in rows)
    chosen = (
        f"{name} has the largest lower bound of the gain on dev, of {eligible} candidates (of "
        f"{len(rows)} tried) that are shown to gain within the price"
    )
    if on_test.gains and on_test.keeps:
        return f"{chosen}; gain and price are confirmed on test"
    failed = [
        what
        for what, held in (("the gain", on_test.gains), ("the price", on_test.keeps))
        if not held
    ]
    are = "is" if len(failed) == 1 else "are"
    return f"nothing is recommended: {chosen}; {' and '.join(failed)} {are} not confirmed on test"
