"""Aspects: the formulas of a measure, each with all a reader must know to use its number.

An aspect makes one number (or a few) of every item, and one of them all. Both steps are written in
float64 torch, so that the value reported and the value differentiated are the same code; only the
second is repeated when items are redrawn or relabelled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeVar, final

import numpy as np
import torch
from scipy import stats

from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.results import (
    Alternative,
    Estimate,
    Interval,
    Measurement,
    Precision,
    PValue,
)
from levelhead.stats.bootstrap import Bootstrap, bootstrap
from levelhead.stats.designs import times_of
from levelhead.stats.intervals import effect_size_interval, proportion_interval
from levelhead.stats.multiple_testing import holm
from levelhead.stats.paired import many_of
from levelhead.stats.permutation import Null, permutation, sign_flip
from levelhead.stats.power import detectable_effect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from levelhead.measure.readouts import Readouts
    from levelhead.stats.bootstrap import AtOnce, Method
    from levelhead.stats.designs import Design, Draw
    from levelhead.stats.permutation import SignsAtOnce

PerItem = Callable[["Readouts"], torch.Tensor]
"""`[items]` or `[items, k]`: what each item contributes."""
Over = Callable[[torch.Tensor, "Draw"], torch.Tensor]
"""The value, of the items drawn."""


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
    more: Literal["bias", "parity", "price"] = field(default="bias", kw_only=True)
    """What a larger value is more of, where no parity tells: bias, equal treatment, or neither."""
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

    @property
    def is_step(self) -> bool:
        """Whether its gradient is zero wherever there is one."""
        return self.companion is not None

    def value(self, readouts: Readouts, design: Design) -> torch.Tensor:
        """The value, differentiable in the readouts unless the aspect is a step function."""
        return self.over(self.per_item(readouts), design.whole)


@final
@dataclass(frozen=True)
class Judge:
    """How chance is judged: seed, resamples, level."""

    seed: int = 0
    draws: int = 1999
    permutations: int = 9999
    level: float = 0.95

    def __post_init__(self) -> None:
        if self.seed < 0 or self.draws < 99 or self.permutations < 99 or not 0 < self.level < 1:
            raise LevelheadError(
                f"chance cannot be judged with {self}",
                mend="give a seed of 0 or more, at least 99 draws and permutations, and a level "
                "such as 0.95",
            )

    def rng(self, *names: str) -> np.random.Generator:
        """Chance for one number, whatever else is computed beside it."""
        words = [int.from_bytes(name.encode(), "little") for name in names]
        return np.random.default_rng([self.seed, *words])

    def estimate(
        self,
        aspect: Aspect,
        values: torch.Tensor,
        design: Design,
        *,
        name: str | None = None,
        among: float = 0.0,
        tested: bool = True,
    ) -> Estimate:
        """A number with interval, p and the least effect that would have been found.

        Args:
            aspect: the formula.
            values: what each item contributes.
            design: what was sampled.
            name: what it is called; by default the aspect's name.
            among: variance that the design cannot see, such as that of the contexts of words.
            tested: whether a p-value is wanted.
        """
        name = name or aspect.name
        fixed = values.detach()
        refuse_nothing(fixed)
        exact = aspect.closed and aspect.closed(fixed, design, self.level)
        found = (
            _by_formula(float(aspect.over(fixed, design.whole)), exact, design.scarcest.df)
            if exact
            else bootstrap(
                lambda draw: float(aspect.over(fixed, draw)),
                design,
                rng=self.rng(name, "interval"),
                draws=self.draws,
                level=self.level,
                method=aspect.method,
                at_once=_at_once(aspect.over, fixed),
            )
        )
        found = _clipped(_widened(found, among), aspect)
        null = self.null(aspect, fixed, design, name=name) if tested else None
        parity = aspect.parity if null is None or aspect.parity is not None else null.mean
        if aspect.lean is not None:
            lean = self._of_lean(aspect.lean, fixed, design, name)
            parity = found.value - lean.value
            found = replace(found, standard_error=lean.standard_error)
        p: PValue | None = null.p if null is not None else None
        if p is None and parity is not None and tested:
            p = found.p(parity, alternative=aspect.alternative)
        precision = None if parity is None else _precision(found, null)
        return Estimate(
            name=name,
            value=found.value,
            interval=found.interval,
            parity=parity,
            p=p,
            n=len(fixed),
            unit=aspect.unit,
            detectable=None
            if precision is None
            else detectable_effect(precision, alternative=aspect.alternative),
            precision=precision,
        )

    def lean(
        self, aspect: Aspect, values: torch.Tensor, design: Design, *, name: str | None = None
    ) -> Estimate | None:
        """What `estimate` tests of an aspect with a lean: value less parity, with its own interval.

        Parity is estimated from the same items, so the value's interval moved by it is not the
        difference's. None for an aspect without a lean.
        """
        if aspect.lean is None:
            return None
        found = self._of_lean(aspect.lean, values.detach(), design, name or aspect.name)
        return Estimate(
            name=f"{name or aspect.name} less its parity",
            value=found.value,
            interval=found.interval,
            parity=0.0,
            n=len(values),
            unit=aspect.unit,
        )

    def null(
        self, aspect: Aspect, values: torch.Tensor, design: Design, *, name: str
    ) -> Null | None:
        """The value's distribution under equal treatment; None if the aspect has no such null.

        Of its distance from parity, where that is a constant; of its lean, where it has one.
        """
        rng, parity = self.rng(name, "null"), aspect.parity or 0.0
        over = aspect.lean or aspect.over
        if aspect.null == "deal":
            many = _at_once(over, values)
            return permutation(
                lambda draw: float(over(values, draw)) - parity,
                design,
                rng=rng,
                draws=self.permutations,
                alternative=aspect.alternative,
                at_once=many and (lambda times: many(times) - parity),
            )
        if aspect.null == "flip":
            whole = design.whole  # one, for it remembers which items there are
            flips = _flipped_at_once(aspect, over, values, design)
            return sign_flip(
                lambda signs: (
                    float(over(aspect.flip(values, torch.from_numpy(signs)), whole)) - parity
                ),
                design,
                rng=rng,
                draws=self.permutations,
                alternative=aspect.alternative,
                at_once=flips and (lambda signs: flips(signs) - parity),
            )
        return None

    def _of_lean(self, lean: Over, values: torch.Tensor, design: Design, name: str) -> Bootstrap:
        """What is tested, its interval and standard error."""
        return bootstrap(
            lambda draw: float(lean(values, draw)),
            design,
            rng=self.rng(name, "lean"),
            draws=self.draws,
            level=self.level,
            # A difference of top shares of which a few items decide: see docs/statistics.md.
            method="outer",
            at_once=_at_once(lean, values),
        )


def _precision(found: Bootstrap, null: Null | None) -> Precision:
    return Precision(
        standard_error=found.standard_error,
        df=found.df,
        least_p=0.0 if null is None else null.least_p,
    )


def _at_once(over: Over, values: torch.Tensor) -> AtOnce | None:
    """The value of many draws at once, where the reduction has a form for it."""
    many = many_of(over)
    if many is None:
        return None
    variant = values.double().numpy()[:, None]
    return lambda times: many(variant, times)[:, 0]


def _flipped_at_once(
    aspect: Aspect, over: Over, values: torch.Tensor, design: Design
) -> SignsAtOnce | None:
    """The value under many exchanges of twins at once: each exchange is a variant of the values."""
    many = many_of(over)
    if many is None:
        return None
    once = times_of(design, [sample[None] for sample in design.samples])

    def of(signs: NDArray[np.float64]) -> NDArray[np.float64]:
        flipped = [aspect.flip(values, torch.from_numpy(row)) for row in signs]
        return np.asarray(many(torch.stack(flipped, dim=1).double().numpy(), once)[0])

    return of


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
            mend=f"take the gradient of {aspect.companion}, its smooth companion",
        )


Tested = TypeVar("Tested", Estimate, Measurement)


def corrected(tested: Sequence[Tested]) -> tuple[Tested, ...]:
    """A family of tests, their p-values corrected by Holm; what has no p stays as it is.

    The minimum detectable effect becomes that of the corrected test: the level that is left for a
    single departure is alpha divided by the size of the family.
    """
    family = [one.p for one in tested if one.p is not None]
    if len(family) < 2:
        return tuple(tested)
    adjusted = iter(holm([p.value for p in family]).tolist())
    found = []
    for one in tested:
        if one.p is None:
            found.append(one)
            continue
        told = {"adjusted": next(adjusted), "correction": "holm", "family": len(family)}
        update: dict[str, object] = {"p": one.p.model_copy(update=told)}
        if one.precision is not None:
            update["detectable"] = detectable_effect(
                one.precision, alternative=one.p.alternative, tests=len(family)
            )
        found.append(one.model_copy(update=update))
    return tuple(found)


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


def _by_formula(value: float, interval: Interval, df: int) -> Bootstrap:
    """A value whose interval needs no resampling; its standard error is the interval's."""
    reach = float(stats.t.ppf((1 + interval.level) / 2, df))
    return Bootstrap(value, interval, (interval.high - interval.low) / (2 * reach), df)


def jackknife(left_out: Sequence[float]) -> float:
    """The variance of a value, from what it is with one block left out after another."""
    if not left_out:
        return 0.0
    values = np.array(left_out)
    return float((values.size - 1) / values.size * ((values - values.mean()) ** 2).sum())


def _clipped(found: Bootstrap, aspect: Aspect) -> Bootstrap:
    """An interval within the values that there are."""
    low, high = (
        min(max(end, aspect.low), aspect.high) for end in (found.interval.low, found.interval.high)
    )
    interval = found.interval.model_copy(update={"low": low, "high": high})
    return Bootstrap(found.value, interval, found.standard_error, found.df)


def _widened(found: Bootstrap, among: float) -> Bootstrap:
    """With a variance that comes on top of the design's: ends move out in proportion."""
    if not among:
        return found
    factor = float(np.sqrt(1 + among / found.standard_error**2))
    ends = found.interval.low, found.interval.high
    low, high = (found.value + factor * (end - found.value) for end in ends)
    # Where the value lies outside its interval, an end would move inwards.
    wider = {"low": min(low, ends[0]), "high": max(high, ends[1])}
    interval = found.interval.model_copy(
        update=wider | {"method": f"{found.interval.method}, contexts added"}
    )
    return Bootstrap(found.value, interval, found.standard_error * factor, found.df)
