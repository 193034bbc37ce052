"""What the value would be if nothing were the matter: rearrangements of what was read.

One-sided p = (b + 1) / (m + 1), with b of m random rearrangements at least as extreme (Phipson and
Smyth 2010); two-sided p is twice the smaller side. Where all rearrangements can be listed, all are,
and p is exact. The null's mean is kept because statistics such as |SEAT| are positive when there is
no bias: it is their parity. Rearrangements are drawn or listed by `scipy.stats.permutation_test`;
a statistic that can take many at once is handed 256 a call.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
from scipy import stats

from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.results import Alternative, PValue
from levelhead.stats.degenerate import finite, is_constant
from levelhead.stats.designs import Draw, times_of
from levelhead.stats.rng import generator

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from scipy.stats._resampling import PermutationTestResult

    from levelhead.stats.bootstrap import AtOnce, Reduce
    from levelhead.stats.designs import Design, Indices

    SignReduce = Callable[[NDArray[np.float64]], float]
    SignsAtOnce = Callable[[NDArray[np.float64]], NDArray[np.float64]]
    """Signs `[rearrangements, items]`: a value each."""


@final
@dataclass(frozen=True, eq=False)
class Null:
    """The value beside its distribution under the null."""

    value: float
    p: PValue
    mean: float
    deviation: float
    least_p: float
    """The smallest p that so many rearrangements can give."""


def permutation(
    reduce: Reduce,
    design: Design,
    *,
    rng: np.random.Generator,
    draws: int = 9999,
    alternative: Alternative = "two-sided",
    at_once: AtOnce | None = None,
) -> Null:
    """Deal the units of all groups out again at random: "which group a unit is in is irrelevant".

    `reduce` takes the same `Draw` as a bootstrap's; its `groups` hold the items as they were dealt.
    `at_once` is the same of many draws: quicker where the formula is linear.
    """
    if len(design.factors) != 1 or len(design.samples) < 2:
        raise LevelheadError(
            f"a permutation needs independent units in two or more groups, not {design}",
            mend="make the design with groups(n, m) or clusters(labels, within=groups), or use "
            "sign_flip on paired differences",
        )

    def each(*samples: Indices, axis: int) -> NDArray[np.float64]:
        # One dealing a row.
        rows = [sample.reshape(-1, sample.shape[-1]) for sample in samples]
        if at_once is None:
            dealt = [Draw(design, row, dealt=True) for row in zip(*rows, strict=True)]
            values = [finite(reduce(draw)) for draw in dealt]
        else:
            values = [finite(value) for value in at_once(times_of(design, rows, dealt=True))]
        return np.array(values).reshape(samples[0].shape[:-1])

    result = stats.permutation_test(
        design.samples,
        each,
        permutation_type="independent",
        vectorized=True,
        n_resamples=draws,
        batch=256,  # bounds the memory
        alternative=alternative,
        rng=generator(rng),
    )
    ways = math.factorial(design.factors[0].units)
    for sample in design.samples:
        ways //= math.factorial(len(sample))
    return _null(result, "permutation", alternative=alternative, draws=_random(draws, ways))


def sign_flip(
    reduce: SignReduce,
    design: Design,
    *,
    rng: np.random.Generator,
    draws: int = 9999,
    alternative: Alternative = "two-sided",
    at_once: SignsAtOnce | None = None,
) -> Null:
    """Swap the two members of a pair at random: "which member is which is irrelevant".

    `reduce` takes one sign an item; items of one cluster get the same sign. The test is exact for
    independent clusters; crossed factors are refused, use `Bootstrap.p` there. `at_once` is the
    same of many rearrangements.
    """
    if len(design.factors) != 1:
        raise LevelheadError(
            f"sign flips need independent clusters, not {design}",
            mend="use the p-value of a bootstrap over the crossed factors",
        )
    (factor,) = design.factors

    def each(signs: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
        # One rearrangement a row.
        rows = signs.reshape(-1, signs.shape[-1])[:, factor.unit]
        values = [reduce(row) for row in rows] if at_once is None else at_once(rows)
        return np.array([finite(value) for value in values]).reshape(signs.shape[:-1])

    result = stats.permutation_test(
        (np.ones(factor.units),),
        each,
        permutation_type="samples",
        vectorized=True,
        n_resamples=draws,
        batch=256,  # bounds the memory; the same rearrangements are drawn
        alternative=alternative,
        rng=generator(rng),
    )
    ways = 2**factor.units
    return _null(result, "sign flip", alternative=alternative, draws=_random(draws, ways))


def _random(draws: int, ways: int) -> int | None:
    """How many rearrangements scipy drew at random; None if it listed all of them instead."""
    return None if ways <= draws else draws


def _null(
    result: PermutationTestResult, method: str, *, alternative: Alternative, draws: int | None
) -> Null:
    null = np.asarray(result.null_distribution, dtype=np.float64)
    if is_constant([float(result.statistic), *null]):
        raise NotMeasurable(
            "every rearrangement gives the same value, so chance cannot be judged",
            mend="check that the items differ and that the value is computed from the groups drawn",
        )
    if alternative == "two-sided" and null.min() >= 0:
        raise LevelheadError(
            "the value is never negative under the null, so its lower side is no evidence",
            mend='give alternative="greater"',
        )
    return Null(
        value=float(result.statistic),
        p=PValue(
            value=float(result.pvalue),
            method=f"{method}, exact" if draws is None else method,
            alternative=alternative,
            draws=draws,
        ),
        mean=float(null.mean()),
        deviation=float(null.std()),
        # Listed rearrangements hold the data themselves; random ones are joined by them.
        least_p=min(
            1.0,
            (2 if alternative == "two-sided" else 1) / (null.size + (0 if draws is None else 1)),
        ),
    )
