"""Aspects: the formulas of a measure, each with all a reader must know to use its number.

An aspect makes one number (or a few) of every item, and one of them all. Both steps are written in
float64 torch, so that the value reported and the value differentiated are the same code; only the
second is repeated when items are redrawn or relabelled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, final

import numpy as np
import torch

from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.results import (
    Alternative,
    Interval,
)
from levelhead.stats.intervals import effect_size_interval, proportion_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.measures.responses import Readouts
    from levelhead.stats.bootstrap import Method
    from levelhead.stats.designs import Design, Draw

PerItem = Callable[["Readouts"], torch.Tensor]
"""`[items]` or `[items, k]`: what each item contributes."""
Over = Callable[[torch.Tensor, "Draw"], torch.Tensor]
"""The value, of the items drawn."""
Role = Literal["bias", "parity", "utility"]
"""What a larger value is more of, where no parity tells: bias, equal treatment, or neither, since
it is about what a model can do."""
Worse = Literal["higher", "lower"]


def exchanged(values: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
    """Twins exchanged: what an item contributes changes its sign."""
    return values * signs


def exchanged_first(values: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
    """The same where the first column is what changes its sign, and the rest says how it counts."""
    return torch.cat([values[:, :1] * signs[:, None], values[:, 1:]], dim=1)


@final
@dataclass(frozen=True, eq=False)
class Aspect:
    """One formula of a measure, and how its number is to be read."""

    name: str
    equation: str
    """Paper and equation."""
    per_item: PerItem
    over: Over
    unit: str
    low: float
    high: float
    """The least and the largest value it can have."""
    direction: str
    """What a larger value means."""
    comparable: str
    """Values may be compared where this is the same."""
    above: str = field(default="", kw_only=True)
    """What a value above parity says of the model, in words; needed where there is a parity."""
    below: str = field(default="", kw_only=True)
    """The same of a value below parity; empty where there can be none."""
    role: Role = field(default="bias", kw_only=True)
    worse: Worse | None = field(default=None, kw_only=True)
    """Which way a value is worse, where no parity tells. A utility says it; of bias it is higher,
    of equal treatment lower."""
    parity: float | None = 0.0
    """The value under equal treatment; None: the mean of the null, or none at all without one."""
    null: Literal["flip", "deal"] | None = None
    """How equal treatment looks: twins exchanged, or units dealt to the groups anew."""
    flip: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = exchanged
    lean: Over | None = None
    """The part of the value that an exchange of all twins turns round. Where it is given, it is
    what is tested, and the rest of the value is the parity: a mean of the largest hardly changes
    under exchange if all items lean alike, and would be called chance when it is anything but."""
    alternative: Alternative = "two-sided"
    companion: str | None = None
    """A step function's gradient is zero: the smooth measure to differentiate instead."""
    confirmed_by: str | None = None
    """Another aspect that must show the same before two models are said to differ."""
    method: Method | None = None
    """How its interval is made, where the design alone does not decide it."""
    closed: Callable[[torch.Tensor, Design, float], Interval | None] | None = None
    """An interval by formula, where one is better than resampling."""

    def __post_init__(self) -> None:
        if self.lean is not None and self.parity is not None:
            raise LevelheadError(f"{self.name} has two parities", mend="give a lean, or a parity")
        if self.role == "utility":
            if self.worse is None:  # no default could be right
                raise LevelheadError(
                    f"{self.name} does not say whether higher or lower is worse",
                    mend="give worse='higher' or worse='lower'",
                )
            return
        worse: Worse = "lower" if self.role == "parity" else "higher"
        if self.worse not in (None, worse):
            raise LevelheadError(
                f"{self.name} is of {self.role}, and {self.worse} is said to be worse",
                mend=f"leave out worse=, or give worse=None beside a new role: {worse!r} it is",
            )
        object.__setattr__(self, "worse", worse)

    @property
    def is_step(self) -> bool:
        """Whether its gradient is zero wherever there is one."""
        return self.companion is not None

    def value(self, readouts: Readouts, design: Design) -> torch.Tensor:
        """The value, differentiable in the readouts unless the aspect is a step function."""
        return self.over(self.per_item(readouts), design.whole)


def refuse_nothing(values: torch.Tensor) -> None:
    """Refuse what must never be reduced: nothing, and numbers that are none."""
    if not len(values):
        raise NotMeasurable("there is no item", mend="check why every item was dropped")
    bad = int((~values.isfinite()).flatten(1 if values.dim() > 1 else 0).sum())
    if bad:
        raise NotMeasurable(
            f"{bad} of {values.numel()} readouts are not finite numbers",
            mend="load the model with dtype='float32'; if it stays, its weights are damaged",
        )


def refuse_step(aspect: Aspect) -> None:
    """Refuse the gradient of a step function: it is zero, and would read as "no biased heads"."""
    if aspect.companion is not None:
        raise LevelheadError(
            f"{aspect.name} is a step function: its gradient is zero wherever there is one",
            mend=f"take the gradient of {aspect.companion}, its smooth companion; "
            "`levelhead measure --list` says how it is named",
        )


def percent_interval(values: torch.Tensor, design: Design, level: float) -> Interval | None:
    """Wilson's interval of a share, in percent, where every item is its own unit."""
    if len(design.factors) > 1 or design.factors[0].units != len(values):
        return None
    hits = round(float((values > 0).sum() + (values == 0).sum() / 2))
    return scaled(proportion_interval(hits, len(values), level=level), 100)


def all_or_none(values: torch.Tensor, design: Design, level: float) -> Interval:
    """Wilson's interval of 0 or 100%, of as many trials as units were sampled."""
    units = design.scarcest.units
    return scaled(proportion_interval(units if float(values[0]) else 0, units, level=level), 100)


SHORT = 30
"""Words a side below which resampling is too narrow for an effect size; a formula is not."""


def short_lists(
    x: torch.Tensor, y: torch.Tensor, rows: torch.Tensor, level: float
) -> Interval | None:
    """The interval of an effect size of short lists: of words' means, in the spread of all rows."""
    if min(len(x), len(y)) >= SHORT:
        return None
    found = effect_size_interval(x.numpy(), y.numpy(), level=level)
    return scaled(found, float(torch.cat([x, y]).std(correction=1) / rows.std(correction=1)))


def scaled(interval: Interval, factor: float) -> Interval:
    """An interval in another unit."""
    ends = {"low": factor * interval.low, "high": factor * interval.high}
    return interval.model_copy(update=ends)


def jackknife(left_out: Sequence[float]) -> float:
    """The variance of a value, from what it is with one block left out after another."""
    if not left_out:
        return 0.0
    values = np.array(left_out)
    return float((values.size - 1) / values.size * ((values - values.mean()) ** 2).sum())
