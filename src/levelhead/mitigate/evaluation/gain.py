"""Gain: by how much a measure comes nearer to its parity, redrawn for all settings at once.

Gain = bias(model) - bias(edited model), where bias is the distance of a measure from its parity:

- a parity that is a number: |value - parity|; beyond parity it is bias again;
- a parity that each model has of its own (Strength: the mean of the value and of what it is with
  all twins exchanged): |lean|, which is the value less that parity. A tail that shrinks on both
  sides alike is no gain by this; the raw change of the value stands beside it;
- no parity, and more of the value is more bias (Distance): the value; or more of it is more parity
  (a share of neutral answers): less the value.

`by="value"` takes the value itself wherever it has a parity of each model's own, as Dawkins et al.
2024 do: a smaller Strength is then a gain even if the model never leaned.

Units are redrawn as the measure's design says, the same ones for the model and all its settings,
and the formula is computed anew from stored readouts. No model is run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, final, get_args

import numpy as np

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError, NotMeasurable, UnknownName
from levelhead.core.results import Dropped
from levelhead.locate.effects import DRAWS, Effects
from levelhead.measures.metric import refuse_nothing
from levelhead.measures.reductions import absolute, less, scaled_by
from levelhead.stats.degenerate import ROUNDING
from levelhead.stats.designs import one_factor
from levelhead.stats.paired import resampled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from levelhead.core.run_context import Inference
    from levelhead.measures.base import Measure
    from levelhead.measures.metric import Aspect, Over, Worse
    from levelhead.measures.responses import Readouts
    from levelhead.stats.designs import Design

By = Literal["parity", "value"]
"""What comes down: the distance from parity, or the value."""


def bias_of(aspect: Aspect, by: By = "parity") -> Over:
    """The distance of an aspect from its parity, of the items drawn.

    Args:
        aspect: the formula.
        by: "value": where the parity is each model's own, the value itself.
    """
    if by not in get_args(By):
        raise UnknownName("way of gaining", str(by), get_args(By))
    over, sided = aspect.over, sided_of(aspect, by)
    if aspect.lean is not None and by == "value":
        return over
    if sided is not None:
        return absolute(sided)
    if aspect.role == "utility":
        raise LevelheadError(
            f"{aspect.name} is a price: it has no parity that an edit could come nearer to",
            mend="give a measure of bias, and this one as the price",
        )
    if aspect.null is not None:
        raise LevelheadError(
            f"the parity of {aspect.name} is the mean of a null, and not a formula of the items",
            mend="give an aspect with a parity, or with a lean",
        )
    if aspect.role == "parity":
        return scaled_by(-1, over)
    return over


def sided_of(aspect: Aspect, by: By = "parity") -> Over | None:
    """The distance from parity with its sign; None where the bias has no other side."""
    over, lean, parity = aspect.over, aspect.lean, aspect.parity
    if lean is not None:
        return lean if by == "parity" else None
    if parity is not None:
        return less(over, parity)
    return None


def paid_by(aspect: Aspect, worse: Worse | None = None) -> Over:
    """A price, larger being worse.

    Args:
        aspect: such as perplexity, or accuracy.
        worse: which way is worse; by default as the aspect says, if it is a utility.
    """
    # Bias and parity have a worse way too, but nobody pays with them unless he says so.
    over, way = aspect.over, worse or (aspect.worse if aspect.role == "utility" else None)
    if way is None:
        raise LevelheadError(
            f"{aspect.name} does not say whether higher or lower is worse",
            mend="give worse='higher' or worse='lower'",
        )
    if way not in ("higher", "lower"):
        raise UnknownName("way of being worse", str(way), ("higher", "lower"))
    return over if way == "higher" else scaled_by(-1, over)


def shared(readouts: Sequence[Readouts]) -> tuple[list[Readouts], tuple[Dropped, ...]]:
    """The items that all could read, in the order of the first; and the others, with reasons."""
    first, *others = readouts
    kept = set.intersection(*({item.id for item in one.items} for one in readouts))
    if not kept:
        raise NotMeasurable(
            "no item could be read by every model", mend="look at what each dropped, and why"
        )
    found = [one.some(lambda item: item.id in kept) for one in readouts]
    order = [item.id for item in found[0].items]
    if any([item.id for item in one.items] != order for one in found[1:]):
        raise LevelheadError(
            "the models were asked the same items in different orders",
            mend="read all of them with one measure",
        )
    why = {item.id: reason for one in others for item, reason in one.dropped}
    own = [Dropped(item.id, reason) for item, reason in first.dropped]
    alone = [
        Dropped(item.id, f"not read by every edited model: {why.get(item.id, 'not asked')}")
        for item in first.items
        if item.id not in kept
    ]
    return found, (*own, *alone)


@final
@dataclass(frozen=True, eq=False)
class Redrawn:
    """A formula of a model (first) and its settings, of all items and of units redrawn."""

    whole: NDArray[np.float64]
    """`[1 + k]`."""
    draws: NDArray[np.float64]
    """`[m, 1 + k]`."""
    left: NDArray[np.float64]
    """`[m, 1 + k]`: of the units that the same draw left out; `[0, 1 + k]` if not wanted.

    A distance from parity is measured to the side on which the units drawn lie, and may be below 0:
    without its sign it would grow with the noise of the few that are left out.
    """
    design: Design
    level: float
    items: tuple[str, ...]

    def effects(self, some: Sequence[int] | None = None, *, way: int = 1) -> Effects:
        """The model less each of some settings (from 0), or the reverse if way is -1."""
        kept = np.arange(1, len(self.whole)) if some is None else np.array(some) + 1
        return Effects(
            values=way * _less(self.whole[:1], self.whole[kept]),
            draws=way * _less(self.draws[:, :1], self.draws[:, kept]),
            base=way * self.draws[:, 0],
            design=self.design,
            level=self.level,
            items=self.items,
        )


def redrawn(
    measure: Measure,
    readouts: Sequence[Readouts],
    over: Over,
    *,
    aspect: Aspect,
    inference: Inference,
    draws: int | None = None,
    left: bool = False,
    sided: Over | None = None,
) -> Redrawn:
    """A formula of several models' readouts, of the same units redrawn.

    Measures of the same items are redrawn alike, so that gain and price of one draw belong
    together.

    Args:
        measure: whose design says what was sampled.
        readouts: of the model, then of its settings, item by item the same.
        over: the formula.
        aspect: whose numbers of single items it takes.
        inference: seed and level.
        draws: of the units; by default those of `inference`, at most 999.
        left: whether the formula is wanted of the units left out, too.
        sided: the formula with a sign, if it is the absolute value of one.
    """
    design = one_factor(measure.design(readouts[0], aspect))
    values = [aspect.per_item(one).detach() for one in readouts]
    for one in values:
        refuse_nothing(one)
    items = tuple(item.id for item in measure.sampled(readouts[0]).items)
    wanted = min(inference.resamples, DRAWS) if draws is None else draws
    rng = inference.rng("units redrawn", content_hash([*items, str(design)]))
    overs = (over, *((sided,) if left and sided is not None else ()))
    rest = ((sided or over),) if left else ()
    found = resampled(design, values, overs, rng, wanted, left_out=rest)
    sides = np.sign(found[1]) if left and sided is not None else 1.0
    return Redrawn(
        whole=np.array([float(over(one, design.whole)) for one in values]),
        draws=found[0],
        left=sides * found[-1] if left else np.empty((0, len(values))),
        design=design,
        level=inference.level,
        items=items,
    )


def _less(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """The difference; 0 where it is left over from float arithmetic."""
    found = first - second
    return np.where(np.abs(found) <= ROUNDING * np.maximum(abs(first), abs(second)), 0.0, found)
