"""Inference about one number: interval, null distribution, p-value; and families of tests."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from scipy import stats

from levelhead.core.results import Estimate, Interval, Measurement, Precision, PValue
from levelhead.measures.metric import refuse_nothing
from levelhead.stats.bootstrap import Bootstrap, bootstrap
from levelhead.stats.designs import times_of
from levelhead.stats.multiple_testing import holm
from levelhead.stats.paired import many_of
from levelhead.stats.permutation import Null, permutation, sign_flip
from levelhead.stats.power import detectable_effect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from levelhead.core.run_context import Inference
    from levelhead.measures.metric import Aspect, Over
    from levelhead.stats.bootstrap import AtOnce
    from levelhead.stats.designs import Design
    from levelhead.stats.permutation import SignsAtOnce


def estimate(
    inference: Inference,
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
        inference: seed, resamples and level.
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
    exact = aspect.closed and aspect.closed(fixed, design, inference.level)
    found = (
        _by_formula(float(aspect.over(fixed, design.whole)), exact, design.scarcest.df)
        if exact
        else bootstrap(
            lambda draw: float(aspect.over(fixed, draw)),
            design,
            rng=inference.rng(name, "interval"),
            draws=inference.resamples,
            level=inference.level,
            method=aspect.method,
            at_once=_at_once(aspect.over, fixed),
        )
    )
    found = _clipped(_widened(found, among), aspect)
    null = null_distribution(inference, aspect, fixed, design, name=name) if tested else None
    parity = aspect.parity if null is None or aspect.parity is not None else null.mean
    if aspect.lean is not None:
        lean = _bootstrap_lean(inference, aspect.lean, fixed, design, name)
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


def estimate_lean(
    inference: Inference,
    aspect: Aspect,
    values: torch.Tensor,
    design: Design,
    *,
    name: str | None = None,
) -> Estimate | None:
    """What `estimate` tests of an aspect with a lean: value less parity, with its own interval.

    Parity is estimated from the same items, so the value's interval moved by it is not the
    difference's. None for an aspect without a lean.
    """
    if aspect.lean is None:
        return None
    found = _bootstrap_lean(inference, aspect.lean, values.detach(), design, name or aspect.name)
    return Estimate(
        name=f"{name or aspect.name} less its parity",
        value=found.value,
        interval=found.interval,
        parity=0.0,
        n=len(values),
        unit=aspect.unit,
    )


def null_distribution(
    inference: Inference, aspect: Aspect, values: torch.Tensor, design: Design, *, name: str
) -> Null | None:
    """The value's distribution under equal treatment; None if the aspect has no such null.

    Of its distance from parity, where that is a constant; of its lean, where it has one.
    """
    rng, parity = inference.rng(name, "null"), aspect.parity or 0.0
    over = aspect.lean or aspect.over
    if aspect.null == "deal":
        many = _at_once(over, values)
        return permutation(
            lambda draw: float(over(values, draw)) - parity,
            design,
            rng=rng,
            draws=inference.permutations,
            alternative=aspect.alternative,
            at_once=many and (lambda times: many(times) - parity),
        )
    if aspect.null == "flip":
        whole = design.whole  # one, for it remembers which items there are
        flips = _flipped_at_once(aspect, over, values, design)
        return sign_flip(
            lambda signs: float(over(aspect.flip(values, torch.from_numpy(signs)), whole)) - parity,
            design,
            rng=rng,
            draws=inference.permutations,
            alternative=aspect.alternative,
            at_once=flips and (lambda signs: flips(signs) - parity),
        )
    return None


def _bootstrap_lean(
    inference: Inference, lean: Over, values: torch.Tensor, design: Design, name: str
) -> Bootstrap:
    """What is tested, its interval and standard error."""
    return bootstrap(
        lambda draw: float(lean(values, draw)),
        design,
        rng=inference.rng(name, "lean"),
        draws=inference.resamples,
        level=inference.level,
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


def _by_formula(value: float, interval: Interval, df: int) -> Bootstrap:
    """A value whose interval needs no resampling; its standard error is the interval's."""
    reach = float(stats.t.ppf((1 + interval.level) / 2, df))
    return Bootstrap(value, interval, (interval.high - interval.low) / (2 * reach), df)


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
