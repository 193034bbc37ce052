"""How small an effect the data could have shown: printed beside every result that shows none."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy import special, stats

from levelhead.core.errors import LevelheadError, NotMeasurable

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from levelhead.core.results import Alternative, Precision


ALPHA, POWER = 0.05, 0.8
"""The level of every verdict, and how often an effect is to be found that is called detectable."""


def minimum_detectable_effect(
    standard_error: float,
    df: int,
    *,
    alternative: Alternative = "two-sided",
    alpha: float = ALPHA,
    power: float = POWER,
    critical: float | None = None,
) -> float:
    """The distance from parity that a t-test at `alpha` would find with probability `power`.

    Exact for normal data, by the noncentral t distribution. Give the standard error of the mean (or
    of a bootstrap) and its degrees of freedom; `alpha` is the level of the test that is used, after
    correction. `critical` is the |t| that such a test asks for, where it does not follow from
    alpha: that of the maximum of a family.

    >>> round(minimum_detectable_effect(1.0, 10**6), 4)  # (1.95996 + 0.84162) standard errors
    2.8016
    """
    if not (0 < alpha < power < 1):
        raise LevelheadError(
            f"power {power} at level {alpha}", mend="give 0 < alpha < power < 1, such as 0.05, 0.8"
        )
    if not 0 < standard_error < math.inf or df < 1:
        raise NotMeasurable(
            f"no power without spread: standard error {standard_error}, {df} degrees of freedom",
            mend="give at least two items that differ",
        )
    tail = alpha / 2 if alternative == "two-sided" else alpha
    if critical is None:
        critical = float(stats.t.isf(tail, df))
    # The chance of a hit in the far tail is left out: below 1e-5 at any df for power 0.8.
    return float(special.nctdtrinc(df, 1 - power, critical)) * standard_error


def detectable_effect(
    precision: Precision, *, alternative: Alternative = "two-sided", tests: int = 1
) -> float | None:
    """The minimum detectable effect of one of `tests` that Holm's method corrects together.

    At alpha / tests: the power for a single departure among true null hypotheses, which is the
    least that Holm's method has (each further departure that is found eases the rest). None where
    the test's p cannot become as small as that, so that no effect would be found.
    """
    alpha = ALPHA / tests
    if alpha < precision.least_p:
        return None
    beyond = minimum_detectable_effect(
        precision.standard_error, precision.df, alternative=alternative, alpha=alpha
    )
    return precision.margin + beyond


def critical_of_maximum(null: ArrayLike, *, alpha: float = ALPHA) -> float | None:
    """The studentised effect that Romano and Wolf's method asks of the largest of a family.

    That of a single departure among true null hypotheses: p = (b + 1) / (m + 1) <= alpha with b of
    the m maxima of `null` (m x k, as in `max_t`) at least as large. None where m is too small.
    """
    maxima = np.sort(np.asarray(null, dtype=np.float64).max(axis=1))[::-1]
    exceeding = math.floor(alpha * (maxima.size + 1) + 1e-9) - 1
    # The effect must exceed the maximum that is one too many.
    return None if exceeding < 0 else float(maxima[exceeding])
