"""Inference for one metric: interval, null distribution, p-value; and families of tests."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from scipy import stats

from levelhead.core.errors import NotMeasurableError
from levelhead.core.results import Estimate, Interval, Measurement, Precision, PValue
from levelhead.measures.metric import require_values
from levelhead.stats.bootstrap import BootstrapEstimate, bootstrap
from levelhead.stats.designs import count_items
from levelhead.stats.multiple_testing import holm
from levelhead.stats.paired import vectorised_form
from levelhead.stats.permutation import (
    NullDistribution,
    permutation,
    sign_flip,
)
from levelhead.stats.power import holm_detectable_effect

ROUNDING = 1e-9
"""By how much a value that equals parity may differ from it, in its unit."""
CONSTANT = "every rearrangement gives the same value"
"""Method of a p-value of equal items."""

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from levelhead.core.run_context import Inference
    from levelhead.measures.metric import Aggregate, Metric
    from levelhead.stats.bootstrap import VectorisedReduction
    from levelhead.stats.designs import Design
    from levelhead.stats.permutation import VectorisedSignReduction


def estimate(
    inference: Inference,
    metric: Metric,
    values: torch.Tensor,
    design: Design,
    *,
    name: str | None = None,
    extra_variance: float = 0.0,
    test: bool = True,
) -> Estimate:
    """Estimate a metric with interval, p-value and minimum detectable effect.

    Args:
        inference: Seed, resamples and level.
        metric: The metric.
        values: Per-item values.
        design: The sampling design.
        name: Name of the estimate; by default that of the metric. It also seeds the resampling.
        extra_variance: Variance outside the design, such as that of the contexts of words.
        test: Whether to compute a p-value.
    """
    name = name or metric.name
    fixed = values.detach()
    require_values(fixed)
    # A formula comes first: where it applies, resampling is too narrow or has no width
    # (decision 0003).
    closed_form = metric.closed_form_interval and metric.closed_form_interval(
        fixed, design, inference.level
    )
    result = (
        _from_formula(
            float(metric.aggregate(fixed, design.full_sample)),
            closed_form,
            design.limiting_factor.df,
        )
        if closed_form
        else bootstrap(
            lambda resample: float(metric.aggregate(fixed, resample)),
            design,
            # The name is part of the seed: an estimate does not change if others are added before
            # it.
            rng=inference.rng(name, "interval"),
            n_resamples=inference.resamples,
            level=inference.level,
            method=metric.method,
            vectorised=_vectorise(metric.aggregate, fixed),
        )
    )
    # Widened before clipping: a clipped end must not move out again.
    result = _clip(_widen(result, extra_variance), metric)
    is_parity = (
        metric.can_be_constant
        and closed_form is not None
        and metric.parity is not None
        and abs(result.value - metric.parity) < ROUNDING
    )
    null = (
        null_distribution(inference, metric, fixed, design, name=name)
        if test and not is_parity
        else None
    )
    # Without a fixed parity, the mean of the null distribution is the value under equal treatment.
    parity = metric.parity if null is None or metric.parity is not None else null.mean
    if metric.signed_part is not None:
        signed_part = _bootstrap_signed_part(inference, metric.signed_part, fixed, design, name)
        parity = result.value - signed_part.value
        # p tests the signed part, so the detectable effect must use its standard error.
        result = replace(result, standard_error=signed_part.standard_error)
    p: PValue | None = null.p if null is not None else None
    if test and is_parity:
        # No rearrangement of equal items changes the value: all are as extreme.
        p = PValue(value=1.0, method=CONSTANT, alternative=metric.alternative)
    if p is None and parity is not None and test:
        p = result.p(parity, alternative=metric.alternative)
    precision = None if parity is None else _precision(result, null)
    return Estimate(
        name=name,
        value=result.value,
        interval=result.interval,
        parity=parity,
        p=p,
        n=len(fixed),
        unit=metric.unit,
        detectable=None
        if precision is None
        else holm_detectable_effect(precision, alternative=metric.alternative),
        precision=precision,
    )


def estimate_signed_part(
    inference: Inference,
    metric: Metric,
    values: torch.Tensor,
    design: Design,
    *,
    name: str | None = None,
) -> Estimate | None:
    """Estimate value less parity of a metric with a signed part, with its interval.

    Parity is estimated from the same items, so the value's interval shifted by parity is not the
    interval of the difference. Returns None for a metric without a signed part.
    """
    if metric.signed_part is None:
        return None
    result = _bootstrap_signed_part(
        inference, metric.signed_part, values.detach(), design, name or metric.name
    )
    return Estimate(
        name=f"{name or metric.name} less its parity",
        value=result.value,
        interval=result.interval,
        parity=0.0,
        n=len(values),
        unit=metric.unit,
    )


def null_distribution(
    inference: Inference, metric: Metric, values: torch.Tensor, design: Design, *, name: str
) -> NullDistribution | None:
    """Distribution of a metric under equal treatment; None if the metric defines no null.

    It is the distribution of the distance from a constant parity, or of the signed part.
    """
    rng, parity = inference.rng(name, "null"), metric.parity or 0.0
    aggregate = metric.signed_part or metric.aggregate
    if metric.null == "permute_units":
        vectorised = _vectorise(aggregate, values)
        return permutation(
            lambda resample: float(aggregate(values, resample)) - parity,
            design,
            rng=rng,
            n_resamples=inference.permutations,
            alternative=metric.alternative,
            vectorised=vectorised and (lambda item_counts: vectorised(item_counts) - parity),
        )
    if metric.null == "sign_flip":
        # Created once: a full sample caches the indices of its items.
        full_sample = design.full_sample
        vectorised_flips = _vectorise_flips(metric, aggregate, values, design)
        return sign_flip(
            lambda signs: (
                float(aggregate(metric.flip(values, torch.from_numpy(signs)), full_sample)) - parity
            ),
            design,
            rng=rng,
            n_resamples=inference.permutations,
            alternative=metric.alternative,
            vectorised=vectorised_flips and (lambda signs: vectorised_flips(signs) - parity),
        )
    return None


def _bootstrap_signed_part(
    inference: Inference, signed_part: Aggregate, values: torch.Tensor, design: Design, name: str
) -> BootstrapEstimate:
    """Bootstrap the signed part: value, interval and standard error."""
    return bootstrap(
        lambda resample: float(signed_part(values, resample)),
        design,
        rng=inference.rng(name, "lean"),
        n_resamples=inference.resamples,
        level=inference.level,
        # A difference of top shares depends on a few items: see docs/development/statistics.md.
        method="outer",
        vectorised=_vectorise(signed_part, values),
    )


def _precision(result: BootstrapEstimate, null: NullDistribution | None) -> Precision:
    return Precision(
        standard_error=result.standard_error,
        df=result.df,
        # A permutation test of few units cannot give a smaller p, whatever the effect.
        min_p=0.0 if null is None else null.min_p,
    )


def _vectorise(aggregate: Aggregate, values: torch.Tensor) -> VectorisedReduction | None:
    """The aggregate for many resamples at once, if the reduction has a vectorised form."""
    vectorised = vectorised_form(aggregate)
    if vectorised is None:
        return None
    variant = values.double().numpy()[:, None]
    return lambda item_counts: vectorised(variant, item_counts)[:, 0]


def _vectorise_flips(
    metric: Metric, aggregate: Aggregate, values: torch.Tensor, design: Design
) -> VectorisedSignReduction | None:
    """The aggregate for many sign flips at once; each flip is a variant of the values."""
    vectorised = vectorised_form(aggregate)
    if vectorised is None:
        return None
    full_counts = count_items(design, [sample[None] for sample in design.samples])

    def reduce_signs(signs: NDArray[np.float64]) -> NDArray[np.float64]:
        flipped = [metric.flip(values, torch.from_numpy(row)) for row in signs]
        return np.asarray(vectorised(torch.stack(flipped, dim=1).double().numpy(), full_counts)[0])

    return reduce_signs


EstimateT = TypeVar("EstimateT", Estimate, Measurement)


def holm_corrected(results: Sequence[EstimateT]) -> tuple[EstimateT, ...]:
    """Correct the p-values of a family of tests by Holm; results without p are unchanged.

    The minimum detectable effect becomes that of the corrected test: if a single hypothesis is
    false, its level is alpha divided by the size of the family.
    """
    family = [result.p for result in results if result.p is not None]
    # One test needs no correction, and must not be reported as corrected.
    if len(family) < 2:
        return tuple(results)
    adjusted = iter(holm([p.value for p in family]).tolist())
    corrected = []
    for result in results:
        if result.p is None:
            corrected.append(result)
            continue
        adjustment = {"adjusted": next(adjusted), "correction": "holm", "family": len(family)}
        update: dict[str, object] = {"p": result.p.model_copy(update=adjustment)}
        if result.precision is not None:
            update["detectable"] = holm_detectable_effect(
                result.precision, alternative=result.p.alternative, tests=len(family)
            )
        corrected.append(result.model_copy(update=update))
    return tuple(corrected)


def _from_formula(value: float, interval: Interval, df: int) -> BootstrapEstimate:
    """A value with a closed-form interval; the standard error is derived from its width."""
    quantile = float(stats.t.ppf((1 + interval.level) / 2, df))
    return BootstrapEstimate(value, interval, (interval.high - interval.low) / (2 * quantile), df)


def _clip(result: BootstrapEstimate, metric: Metric) -> BootstrapEstimate:
    """Clip an interval to the range of the metric."""
    low, high = (
        min(max(end, metric.low), metric.high)
        for end in (result.interval.low, result.interval.high)
    )
    interval = result.interval.model_copy(update={"low": low, "high": high})
    return BootstrapEstimate(result.value, interval, result.standard_error, result.df)


def _widen(result: BootstrapEstimate, extra_variance: float) -> BootstrapEstimate:
    """Widen an interval by additional variance: both ends move outwards in proportion."""
    if not extra_variance:
        return result
    # Independent variances add, so the standard error grows by this factor.
    factor = float(np.sqrt(1 + extra_variance / result.standard_error**2))
    ends = result.interval.low, result.interval.high
    low, high = (result.value + factor * (end - result.value) for end in ends)
    # If the value lies outside its interval, one end would move inwards.
    wider = {"low": min(low, ends[0]), "high": max(high, ends[1])}
    interval = result.interval.model_copy(
        update=wider | {"method": f"{result.interval.method}, contexts added"}
    )
    return BootstrapEstimate(result.value, interval, result.standard_error * factor, result.df)


@contextmanager
def note_failure(notes: list[str], name: str) -> Iterator[None]:
    """Add a note instead of raising an error if a number cannot be measured."""
    try:
        yield
    except NotMeasurableError as error:
        notes.append(f"{name}: {error.problem}")
