"""What a classifier decides of texts put in two ways: by class, for either group.

Signed changes of probability, gaps of true and false positive rates, and the ratio of selection
rates ("impact ratio"; US practice asks below four fifths). All are paired by text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from levelhead.core.errors import NotMeasurable
from levelhead.core.results import Interval
from levelhead.core.statistics.designs import clusters
from levelhead.core.statistics.intervals import proportion_interval
from levelhead.measure.aspects import Aspect, corrected
from levelhead.measure.reductions import drawn, mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.core.results import Estimate
    from levelhead.core.statistics.designs import Design, Draw
    from levelhead.measure.aspects import Judge


class Two(NamedTuple):
    """What a classifier says of some texts put in two ways."""

    p: torch.Tensor
    """`[texts, 2, classes]`."""
    label: tuple[str, ...]
    """What each should be called; empty strings if that is not known."""
    units: tuple[str, ...]
    """Texts that are the same are one unit."""
    name: str
    """Which way less which."""


def by_class(
    two: Two, classes: Sequence[str], positive: str | None, judge: Judge
) -> tuple[list[Estimate], list[str]]:
    """All numbers of one class after another; each kind's p-values are corrected together (Holm).

    Args:
        two: what was said.
        classes: in the order of the columns.
        positive: the class that is wanted; None: all.
        judge: seed, resamples and level.
    """
    said = two.p.argmax(2)
    estimates: list[Estimate] = []
    notes: list[str] = []
    which = classes if positive is None else (positive,)
    everywhere = torch.ones(len(two.label), dtype=torch.bool)
    for kind in ("p", "TPR", "FPR") if any(two.label) else ("p",):
        family = []
        for name in which:
            c = classes.index(name)
            decided = (said == c).double()
            own = torch.tensor([label == name for label in two.label])
            keep = {"p": everywhere, "TPR": own, "FPR": ~own}[kind]
            both = two.p[:, :, c] if kind == "p" else decided
            told = f"p({name})" if kind == "p" else f"{kind} of {name}"
            try:
                family.append(_difference(f"{told}, {two.name}", both, keep, two, judge))
            except NotMeasurable as error:
                notes.append(f"{told}, {two.name}: {error.what}")
        estimates += corrected(family)
    for name in which:
        decided = (said == classes.index(name)).double()
        told = f"impact ratio of {name}, {two.name.replace(' less ', ' over ')}"
        try:
            estimates.append(_ratio(told, decided, two, judge))
        except NotMeasurable as error:
            notes.append(f"{told}: {error.what}")
    return estimates, notes


def _difference(
    name: str, both: torch.Tensor, keep: torch.Tensor, two: Two, judge: Judge
) -> Estimate:
    """A mean difference between the two ways, with the null of their exchange."""
    values = (both[:, 0] - both[:, 1])[keep]
    if not len(values):
        raise NotMeasurable("no text has this label", mend="leave the labels out")
    difference = Aspect(
        name=name,
        equation="mean over texts of the first way less the second",
        per_item=lambda readouts: values,
        over=mean,
        unit="share of texts" if name[:2] != "p(" else "probability",
        low=-1.0,
        high=1.0,
        direction="above 0: more for the first way",
        comparable=name,
        null="flip",
        closed=_no_change,
    )
    units = [unit for unit, kept in zip(two.units, keep.tolist(), strict=True) if kept]
    # Where nothing changes there is nothing to rearrange.
    return judge.estimate(difference, values, clusters(units), tested=bool(values.any()))


def _ratio(name: str, decided: torch.Tensor, two: Two, judge: Judge) -> Estimate:
    """The selection rate of the first way over that of the second."""
    if not bool(decided.any(0).all()):
        raise NotMeasurable("one of the two is never decided so", mend="give more texts")
    ratio = Aspect(
        name=name,
        equation="selection rate of the first way over that of the second",
        per_item=lambda readouts: decided,
        over=_rates,
        unit="ratio",
        low=0.0,
        high=float("inf"),
        direction="above 1: decided so more often for the first way",
        comparable=name,
        parity=1.0,
        closed=_same_rates,
    )
    same = bool((decided[:, 0] == decided[:, 1]).all())
    return judge.estimate(ratio, decided, clusters(two.units), tested=not same)


def _rates(values: torch.Tensor, draw: Draw) -> torch.Tensor:
    own = drawn(values, draw).sum(0)
    return own[0] / own[1]


def _no_change(values: torch.Tensor, design: Design, level: float) -> Interval | None:
    """Where nothing changed at all: as far as it might have, by Wilson, either way."""
    if bool(values.any()):
        return None
    return no_change(0.0, proportion_interval(0, design.scarcest.units, level=level).high, level)


def _same_rates(values: torch.Tensor, design: Design, level: float) -> Interval | None:
    if bool((values[:, 0] != values[:, 1]).any()):
        return None
    selected = int(values[:, 0].sum())
    return no_change(1.0, proportion_interval(0, selected, level=level).high, level)


def no_change(value: float, reach: float, level: float) -> Interval:
    """The interval of a difference or ratio of things that are all alike."""
    return Interval(
        low=value - reach, high=value + reach, level=level, method="wilson of no change"
    )
