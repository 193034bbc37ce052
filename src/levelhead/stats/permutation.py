"""Null distributions by rearrangement: permutation and sign-flip tests.

One-sided p = (b + 1) / (m + 1), with b of m random rearrangements at least as extreme (Phipson and
Smyth 2010); two-sided p is twice the smaller side. If all rearrangements can be listed, p is exact.
The mean of the null is stored because statistics such as |SEAT| are positive without a bias: it is
their parity. `scipy.stats.permutation_test` samples or lists the rearrangements; a vectorised
statistic receives 256 of them per call.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
from scipy import stats

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.results import Alternative, PValue
from levelhead.stats.degenerate import is_constant, require_finite
from levelhead.stats.designs import Resample, count_items
from levelhead.stats.rng import check_rng

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from scipy.stats._resampling import PermutationTestResult

    from levelhead.stats.bootstrap import ReduceFunction, VectorisedReduction
    from levelhead.stats.designs import Design, Indices

    SignReduction = Callable[[NDArray[np.float64]], float]
    VectorisedSignReduction = Callable[[NDArray[np.float64]], NDArray[np.float64]]
    """Function from signs `[rearrangements, items]` to one value per rearrangement."""


@final
@dataclass(frozen=True, eq=False)
class NullDistribution:
    """A value and its distribution under the null hypothesis."""

    value: float
    p: PValue
    mean: float
    deviation: float
    min_p: float
    """Smallest p-value that this number of rearrangements can give."""


def permutation(
    reduce: ReduceFunction,
    design: Design,
    *,
    rng: np.random.Generator,
    n_resamples: int = 9999,
    alternative: Alternative = "two-sided",
    vectorised: VectorisedReduction | None = None,
) -> NullDistribution:
    """Permute the units over the groups; the null hypothesis is that groups are exchangeable.

    Args:
        reduce: formula of the measure; the `groups` of its `Resample` hold the permuted items.
        design: independent units in two or more groups.
        rng: random generator.
        n_resamples: number of random permutations, unless all can be listed.
        alternative: side of the test.
        vectorised: form of `reduce` for many resamples; faster if the formula is linear.
    """
    if len(design.factors) != 1 or len(design.samples) < 2:
        raise LevelheadError(
            f"a permutation needs independent units in two or more groups, not {design}",
            hint="make the design with grouped_design(n, m) or clustered_design(labels, "
            "within=groups), or use sign_flip on paired differences",
        )

    def reduce_rows(*samples: Indices, axis: int) -> NDArray[np.float64]:
        # One permutation per row.
        rows = [sample.reshape(-1, sample.shape[-1]) for sample in samples]
        if vectorised is None:
            resamples = [Resample(design, row, permuted=True) for row in zip(*rows, strict=True)]
            values = [require_finite(reduce(resample)) for resample in resamples]
        else:
            values = [
                require_finite(value)
                for value in vectorised(count_items(design, rows, permuted=True))
            ]
        return np.array(values).reshape(samples[0].shape[:-1])

    result = stats.permutation_test(
        design.samples,
        reduce_rows,
        permutation_type="independent",
        vectorized=True,
        n_resamples=n_resamples,
        batch=256,  # limits the memory
        alternative=alternative,
        rng=check_rng(rng),
    )
    # The multinomial coefficient: permutations within a group do not change its items.
    n_rearrangements = math.factorial(design.factors[0].n_units)
    for sample in design.samples:
        n_rearrangements //= math.factorial(len(sample))
    return _null_distribution(
        result,
        "permutation",
        alternative=alternative,
        n_resamples=_n_random(n_resamples, n_rearrangements),
    )


def sign_flip(
    reduce: SignReduction,
    design: Design,
    *,
    rng: np.random.Generator,
    n_resamples: int = 9999,
    alternative: Alternative = "two-sided",
    vectorised: VectorisedSignReduction | None = None,
) -> NullDistribution:
    """Exchange the two members of pairs; the null hypothesis is that they are exchangeable.

    The test is exact for independent clusters. Crossed factors raise an error: use
    `BootstrapEstimate.p` for them.

    Args:
        reduce: formula of one sign per item; items of a cluster have the same sign.
        design: independent clusters of pairs.
        rng: random generator.
        n_resamples: number of random sign flips, unless all can be listed.
        alternative: side of the test.
        vectorised: form of `reduce` for many rearrangements.
    """
    if len(design.factors) != 1:
        raise LevelheadError(
            f"sign flips need independent clusters, not {design}",
            hint="use the p-value of a bootstrap over the crossed factors",
        )
    (factor,) = design.factors

    def reduce_rows(signs: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
        # One rearrangement per row.
        # Items of a cluster share its sign: they are dependent and cannot be exchanged one by one.
        rows = signs.reshape(-1, signs.shape[-1])[:, factor.unit_of_item]
        values = [reduce(row) for row in rows] if vectorised is None else vectorised(rows)
        return np.array([require_finite(value) for value in values]).reshape(signs.shape[:-1])

    result = stats.permutation_test(
        # scipy flips the signs of its data. Here the data are the signs, so that a statistic
        # receives them.
        (np.ones(factor.n_units),),
        reduce_rows,
        permutation_type="samples",
        vectorized=True,
        n_resamples=n_resamples,
        batch=256,  # limits the memory; the batch size does not change the rearrangements
        alternative=alternative,
        rng=check_rng(rng),
    )
    # A cluster has one sign, so clusters, not items, limit how small p can become.
    n_rearrangements = 2**factor.n_units
    return _null_distribution(
        result,
        "sign flip",
        alternative=alternative,
        n_resamples=_n_random(n_resamples, n_rearrangements),
    )


def _n_random(n_resamples: int, n_rearrangements: int) -> int | None:
    """Number of rearrangements that scipy sampled; None if it listed all of them."""
    return None if n_rearrangements <= n_resamples else n_resamples


def _null_distribution(
    result: PermutationTestResult, method: str, *, alternative: Alternative, n_resamples: int | None
) -> NullDistribution:
    null = np.asarray(result.null_distribution, dtype=np.float64)
    # Every rearrangement would count as at least as extreme: p = 1 would read as "no bias".
    if is_constant([float(result.statistic), *null]):
        raise NotMeasurableError(
            "every rearrangement gives the same value, so no p-value can be computed",
            hint="check that the items differ and that the value depends on the permuted groups",
        )
    # Twice the smaller tail would call a distance unusually close to 0 significant.
    if alternative == "two-sided" and null.min() >= 0:
        raise LevelheadError(
            "the value is never negative under the null, so a two-sided test is not valid",
            hint='give alternative="greater"',
        )
    return NullDistribution(
        value=float(result.statistic),
        p=PValue(
            value=float(result.pvalue),
            method=f"{method}, exact" if n_resamples is None else method,
            alternative=alternative,
            n_resamples=n_resamples,
        ),
        mean=float(null.mean()),
        deviation=float(null.std()),
        # Listed rearrangements include the observed data; for random ones, (b + 1) / (m + 1) adds
        # them.
        min_p=min(
            1.0,
            (2 if alternative == "two-sided" else 1)
            / (null.size + (0 if n_resamples is None else 1)),
        ),
    )
