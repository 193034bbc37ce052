"""What a classifier decides of texts put in two ways: by class, for either group.

Signed changes of probability, gaps of true and false positive rates, and the ratio of selection
rates ("impact ratio"; US practice asks below four fifths). All are paired by text.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from scipy import stats

from levelhead.core.errors import NotMeasurable
from levelhead.core.results import Interval
from levelhead.measures.inference import corrected, estimate, null_distribution
from levelhead.measures.metric import Aspect
from levelhead.measures.next_sentence.distance import exchanged_columns
from levelhead.measures.reductions import drawn, mean, of_columns
from levelhead.stats.designs import clusters
from levelhead.stats.intervals import proportion_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.core.results import Estimate
    from levelhead.core.run_context import Inference
    from levelhead.stats.designs import Design, Draw


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
    two: Two, classes: Sequence[str], positive: str | None, inference: Inference
) -> tuple[list[Estimate], list[str]]:
    """All numbers of one class after another; each kind's p-values are corrected together (Holm).

    Args:
        two: what was said.
        classes: in the order of the columns.
        positive: the class that is wanted; None: all.
        inference: seed, resamples and level.
    """
    said = two.p.argmax(2)
    estimates: list[Estimate] = []
    notes: list[str] = []
    which = classes if positive is None else (positive,)
    everywhere = torch.ones(len(two.label), dtype=torch.bool)
    for kind in ("p", "rate", "TPR", "FPR") if any(two.label) else ("p", "rate"):
        family = []
        for name in which:
            c = classes.index(name)
            decided = (said == c).double()
            own = torch.tensor([label == name for label in two.label])
            keep = {"TPR": own, "FPR": ~own}.get(kind, everywhere)
            both = two.p[:, :, c] if kind == "p" else decided
            told = f"p({name})" if kind == "p" else f"{kind} of {name}"
            try:
                step = kind != "p"
                family.append(
                    _difference(f"{told}, {two.name}", both[keep], keep, two, inference, step)
                )
            except NotMeasurable as error:
                notes.append(f"{told}, {two.name}: {error.what}")
        estimates += corrected(family)
    ratios = []
    for name in which:
        decided = (said == classes.index(name)).double()
        told = f"impact ratio of {name}, {two.name.replace(' less ', ' over ')}"
        try:
            ratios.append(_ratio(told, decided, two, inference))
        except NotMeasurable as error:
            notes.append(f"{told}: {error.what}")
    estimates += corrected(ratios)
    return estimates, notes


def _difference(
    name: str, both: torch.Tensor, keep: torch.Tensor, two: Two, inference: Inference, step: bool
) -> Estimate:
    """A mean difference between the two ways, with the null of their exchange."""
    if not len(both):
        raise NotMeasurable("no text has this label", mend="leave the labels out")
    difference = Aspect(
        name=name,
        equation="mean over texts of the first way less the second",
        per_item=lambda readouts: both,
        over=of_columns(mean, 0, 1),
        unit="share of texts" if step else "probability",
        low=-1.0,
        high=1.0,
        direction="above 0: more for the first way",
        above="decided so more often for the first way",
        below="decided so more often for the second way",
        comparable=name,
        null="flip",
        flip=exchanged_columns,
        closed=paired_shares if step else None,
    )
    units = [unit for unit, kept in zip(two.units, keep.tolist(), strict=True) if kept]
    # Where nothing changes there is nothing to rearrange.
    changes = bool((both[:, 0] != both[:, 1]).any())
    return estimate(inference, difference, both, clusters(units), tested=changes)


def _ratio(name: str, decided: torch.Tensor, two: Two, inference: Inference) -> Estimate:
    """The selection rate of the first way over that of the second; p is of their exchange."""
    if not bool(decided[:, 1].any()):
        raise NotMeasurable("the second is never decided so", mend="give more texts")
    ratio = Aspect(
        name=name,
        equation="selection rate of the first way over that of the second",
        per_item=lambda readouts: decided,
        over=_rates,
        unit="ratio",
        low=0.0,
        high=float("inf"),
        direction="above 1: decided so more often for the first way",
        above="decided so more often for the first way",
        below="decided so more often for the second way",
        comparable=name,
        parity=1.0,
        closed=_log_interval,
    )
    design = clusters(two.units)
    found = estimate(inference, ratio, decided, design, tested=False)
    # A distance has no unit on this scale.
    found = found.model_copy(update={"detectable": None, "precision": None})
    if bool((decided[:, 0] == decided[:, 1]).all()):
        return found
    # Of the difference of the rates: the ratio's own distance from 1 depends on which is first.
    gap = replace(
        ratio, over=of_columns(mean, 0, 1), parity=0.0, null="flip", flip=exchanged_columns
    )
    null = null_distribution(inference, gap, decided, design, name=name)
    return found if null is None else found.model_copy(update={"p": null.p})


def _rates(values: torch.Tensor, draw: Draw) -> torch.Tensor:
    own = drawn(values, draw).sum(0)
    return own[0] / own[1]


def paired_shares(values: torch.Tensor, design: Design, level: float) -> Interval:
    """Bonett and Price 2012: the difference of two paired shares, columns of 0 and 1.

    Resampling cannot leave the side on which the few texts lie that change; adding one text either
    way can. As many texts as units were sampled.
    """
    n = design.scarcest.units
    change = values[:, 0] - values[:, 1]
    first, second = (float((change * sign > 0).double().mean()) * n for sign in (1, -1))
    b, c = (first + 1) / (n + 2), (second + 1) / (n + 2)
    reach = float(stats.norm.ppf((1 + level) / 2)) * math.sqrt((b + c - (b - c) ** 2) / (n + 2))
    return Interval(low=b - c - reach, high=b - c + reach, level=level, method="bonett-price")


def _log_interval(values: torch.Tensor, design: Design, level: float) -> Interval:
    """Of the log ratio, linearised and clustered.

    Where the first is never decided so, half a decision stands for none, with its own variance.
    """
    unit = torch.from_numpy(design.scarcest.unit)
    total = values.sum(0) + (0.5 if bool((values.sum(0) == 0).any()) else 0.0)
    parts = values[:, 0] / total[0] - values[:, 1] / total[1]
    by_unit = torch.zeros(design.scarcest.units, dtype=values.dtype).index_add(0, unit, parts)
    never = not bool(values[:, 0].any())
    error = math.sqrt(float(by_unit.square().sum()) + (1 / 0.5 if never else 0.0))
    if not error:
        reach = proportion_interval(0, design.scarcest.units, level=level).high
        told = "wilson of no change"
        return Interval(low=1 - reach, high=1 + reach, level=level, method=told)
    centre = float((total[0] / total[1]).log())
    reach = float(stats.t.ppf((1 + level) / 2, design.scarcest.df)) * error
    low = 0.0 if never else math.exp(centre - reach)
    return Interval(low=low, high=math.exp(centre + reach), level=level, method="log ratio")
