"""Targeted-Debias: mask the heads of a map, and see what it buys and costs.

Yang et al. 2025, Appendix A (Table 1: top, bottom, all positive, random) and Appendix B (Table 3:
another measure as more and more heads are masked).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field
from scipy import stats

from levelhead.core.calibration import Ruler
from levelhead.core.errors import LevelheadError
from levelhead.core.results import Estimate, Interval, Record
from levelhead.core.run_context import Inference, RunContext
from levelhead.locate.head_map import label
from levelhead.locate.validation.split import halves
from levelhead.mitigate.evaluation.change import Change, changed
from levelhead.mitigate.heads.mask import mask
from levelhead.models.sites import Site

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.locate.head_map import HeadMap
    from levelhead.measures.base import Measure
    from levelhead.models.edits.base import HeadScale
    from levelhead.models.lm import LM

Which = Literal["top", "bottom", "positive", "random"]
RANDOM = 5
"""Random sets of each size; the paper has one."""
SETS = "random head sets"
"""What intervals of random heads are over, with their number: the items are the same in all."""


class Masked(Record):
    """One way of masking."""

    name: str
    heads: tuple[str, ...]
    """<layer>-<head>, counted from 1."""
    over: str = ""
    """What all its intervals are over, if not over the items of each measure."""
    changes: tuple[Change, ...]
    """By measure, in the order they were given in."""


class Targeted(Record):
    """Table 1: what each way of masking does to the bias and to the language model."""

    map: str
    """Hash of the head map."""
    base: tuple[Change, ...]
    rows: tuple[Masked, ...]
    notes: tuple[str, ...] = ()


class Point(Record):
    """A measure with the first k heads masked."""

    k: Annotated[int, Field(ge=0)]
    value: float
    low: float
    high: float
    change: Estimate | None = None
    """From no head masked."""


class Curve(Record):
    """A measure against the number of masked heads."""

    name: str
    points: tuple[Point, ...]
    measured_by: Ruler | None = None
    """What it is measured by."""


class Lines(Record):
    """Table 3: other measures as more and more heads are masked."""

    map: str
    measure: str = "value"
    """What all curves are of, if it is one measure."""
    curves: tuple[Curve, ...]
    notes: tuple[str, ...] = ()


def chosen(
    heads: HeadMap, which: Which, k: int | Literal["all"], *, rng: np.random.Generator | None = None
) -> tuple[Site, ...]:
    """The heads that a name means: top 3, bottom 3, all positive, random.

    A random set has as many heads as the positive ones where k is "all"; any layer, as the paper's.
    """
    positive = heads.positive()
    if which == "positive" or (which == "top" and k == "all"):
        return positive
    if which == "bottom":
        return heads.negative() if k == "all" else heads.bottom(k)
    if which == "top":
        return heads.top(k if isinstance(k, int) else len(positive))
    if rng is None:
        raise LevelheadError("random heads need chance", mend="give rng")
    count = len(positive) if k == "all" else k
    drawn = rng.choice(heads.layers * heads.heads_a_layer, count, replace=False)
    return tuple(
        Site("head_out", int(i) // heads.heads_a_layer, int(i) % heads.heads_a_layer)
        for i in sorted(drawn)
    )


def targeted(
    lm: LM,
    heads: HeadMap,
    measures: Sequence[Measure],
    *,
    k: int = 3,
    random: int = RANDOM,
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> Targeted:
    """Mask top k, bottom k, all positive heads, and random ones of both sizes.

    Args:
        lm: the model that was located.
        heads: its map.
        measures: the measure of the map first, then prices.
        k: how many heads; the paper has 3.
        random: sets of random heads of each size, at least 2; their mean is reported, with an
            interval over the sets.
        inference: seed, resamples and level.
        context: store, threads, progress and cancellation.
    """
    heads.refuse_other(lm)
    if random < 2:
        # One set has no spread: its interval over items would stand among those over sets.
        raise LevelheadError(
            f"{random} random sets have no spread", mend="give at least 2 sets of random heads"
        )
    work = _Reader(lm, measures, inference, context, heads)
    rng = inference.rng("random heads", heads.content_hash)
    ways: list[tuple[str, Sequence[Site]]] = [
        (f"top {k}", chosen(heads, "top", k)),
        (f"bottom {k}", chosen(heads, "bottom", k)),
        (f"all positive ({len(heads.positive())})", chosen(heads, "positive", "all")),
    ]
    rows = [work.masked(name, mask(sites)) for name, sites in ways]
    for size in (k, "all"):
        sets = [chosen(heads, "random", size, rng=rng) for _ in range(random)]
        several = [work.masked(f"random {len(own)}", mask(own)) for own in sets]
        rows.append(_mean(several))
    return Targeted(
        map=heads.content_hash,
        base=work.base,
        rows=tuple(rows),
        notes=(
            f"random: mean of {random} sets, interval over {random} {SETS} with the items held "
            "fixed; all other intervals are over items: the two kinds are not comparable",
        ),
    )


def lines(
    lm: LM,
    heads: HeadMap,
    measures: Sequence[tuple[str, Measure]],
    *,
    every: int = 5,
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> Lines:
    """Other measures with the first 0, 5, 10 ... heads of a map masked, up to all positive ones."""
    heads.refuse_other(lm)
    positive = heads.positive()
    counts = [*range(every, len(positive), every), len(positive)]
    curves = []
    for name, measure in measures:
        work = _Reader(lm, [measure], inference, context)
        (base,) = work.base
        points = [_point(0, base)]
        for k in counts:
            (change,) = work.masked(f"top {k}", mask(positive[:k])).changes
            points.append(_point(k, change))
        curves.append(Curve(name=name, points=tuple(points), measured_by=measure.ruler(lm)))
    kinds = {measure.name for _, measure in measures}
    told = kinds.pop() if len(kinds) == 1 else "value"
    return Lines(map=heads.content_hash, measure=told, curves=tuple(curves))


class _Reader:
    """Reads measures of the base once, and of each edit."""

    def __init__(
        self,
        lm: LM,
        measures: Sequence[Measure],
        inference: Inference,
        context: RunContext,
        heads: HeadMap | None = None,
    ) -> None:
        self.lm, self.measures, self.inference, self.context = lm, measures, inference, context
        self.read = [measure.read(lm, context=context)[0] for measure in measures]
        self.half = None
        if heads is not None and heads.halves.by != "none":
            split = heads.halves
            if measures[0].name == heads.measure:
                cut = halves(measures[0], self.read[0], by=split.by, seed=split.seed)
                self.half = cut.confirm

    @property
    def base(self) -> tuple[Change, ...]:
        """The measures of the base."""
        return tuple(
            changed(
                measure, own, None, inference=self.inference, measured_by=measure.ruler(self.lm)
            )
            for measure, own in zip(self.measures, self.read, strict=True)
        )

    def masked(self, name: str, edit: HeadScale) -> Masked:
        """The measures of an edit."""
        edited = self.lm.edited(edit)
        found = []
        for number, (measure, own) in enumerate(zip(self.measures, self.read, strict=True)):
            other = measure.read(edited, context=self.context)[0]
            plain = [one.name for one in measure.aspects if one.name == "difference of means"]
            found.append(
                changed(
                    measure,
                    own,
                    other,
                    inference=self.inference,
                    confirm=self.half if number == 0 else None,
                    beside=tuple(plain),
                    measured_by=measure.ruler(self.lm),
                )
            )
        return Masked(name=name, heads=tuple(map(label, edit.at)), changes=tuple(found))


def _point(k: int, change: Change) -> Point:
    value = change.value
    return Point(
        k=k,
        value=value.value,
        low=value.interval.low,
        high=value.interval.high,
        change=change.change,
    )


def _mean(several: Sequence[Masked]) -> Masked:
    """The mean over random sets, with Student's interval over the sets."""
    changes = []
    for own in zip(*(one.changes for one in several), strict=True):
        first: Change = own[0]
        changes.append(
            Change(
                measure=first.measure,
                value=_over_sets(first.value, [one.value for one in own]) or first.value,
                change=_over_sets(first.change, [one.change for one in own]),
                confirmed=_over_sets(first.confirmed, [one.confirmed for one in own]),
                beside=tuple(
                    told
                    for number, one in enumerate(first.beside)
                    if (told := _over_sets(one, [each.beside[number] for each in own]))
                ),
                measured_by=first.measured_by,
            )
        )
    over = f"{len(several)} {SETS}"
    return several[0].model_copy(update={"changes": tuple(changes), "heads": (), "over": over})


def _over_sets(first: Estimate | None, own: Sequence[Estimate | None]) -> Estimate | None:
    values = np.array([one.value for one in own if one is not None])
    if first is None or len(values) < 2:
        return first
    reach = float(stats.t.ppf((1 + first.interval.level) / 2, len(values) - 1))
    error = float(values.std(ddof=1)) / float(np.sqrt(len(values)))
    mean = float(values.mean())
    return first.model_copy(
        update={
            "value": mean,
            "interval": Interval(
                low=mean - reach * error,
                high=mean + reach * error,
                level=first.interval.level,
                method=f"student, {len(values)} {SETS}",
            ),
            # The number of sets, not of items: with it the interval becomes narrower.
            "n": len(values),
            "p": None,
            "detectable": None,
        }
    )
