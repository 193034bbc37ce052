"""Minimum detectable effects, which are reported with every non-significant result."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy import special, stats

from levelhead.core.errors import LevelheadError, NotMeasurableError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from levelhead.core.results import Alternative, Precision


ALPHA, POWER = 0.05, 0.8
"""Level of every verdict, and the probability of detection of a detectable effect."""


def minimum_detectable_effect(
    standard_error: float,
    df: int,
    *,
    alternative: Alternative = "two-sided",
    alpha: float = ALPHA,
    power: float = POWER,
    critical_value: float | None = None,
) -> float:
    """Compute the distance from parity that a t-test detects with probability `power`.

    The result is exact for normal data, by the noncentral t distribution.

    >>> round(minimum_detectable_effect(1.0, 10**6), 4)  # (1.95996 + 0.84162) standard errors
    2.8016

    Args:
        standard_error: standard error of the mean or of a bootstrap.
        df: degrees of freedom of the standard error.
        alternative: side of the test.
        alpha: level of the test, after correction for its family.
        power: probability of detection.
        critical_value: |t| from which on the test rejects, if it does not follow from `alpha`: that
            of the maximum of a family.
    """
    if not (0 < alpha < power < 1):
        raise LevelheadError(
            f"power {power} at level {alpha}", hint="give 0 < alpha < power < 1, such as 0.05, 0.8"
        )
    if not 0 < standard_error < math.inf or df < 1:
        raise NotMeasurableError(
            f"no power without spread: standard error {standard_error}, {df} degrees of freedom",
            hint="give at least two items that differ",
        )
    tail = alpha / 2 if alternative == "two-sided" else alpha
    if critical_value is None:
        critical_value = float(stats.t.isf(tail, df))
    # The rejection probability in the opposite tail is ignored: below 1e-5 at any df for power 0.8.
    return float(special.nctdtrinc(df, 1 - power, critical_value)) * standard_error


def holm_detectable_effect(
    precision: Precision, *, alternative: Alternative = "two-sided", tests: int = 1
) -> float | None:
    """Compute the minimum detectable effect of one of several tests corrected by Holm's method.

    The level is alpha / tests: the power for a single departure among true null hypotheses, which
    is the lowest power of Holm's method (each rejection makes the other tests easier). The result
    is None if the p-value of the test cannot become that small, so that no effect is detectable.

    Args:
        precision: standard error, degrees of freedom and smallest p-value of the test.
        alternative: side of the test.
        tests: number of tests that are corrected together.
    """
    alpha = ALPHA / tests
    if alpha < precision.min_p:
        return None
    distance = minimum_detectable_effect(
        precision.standard_error, precision.df, alternative=alternative, alpha=alpha
    )
    # A minimum-effect test is centred at its margin, so the distance starts there.
    return precision.margin + distance


def critical_max_t(null: ArrayLike, *, alpha: float = ALPHA) -> float | None:
    """Compute the critical value of the largest statistic of a family (Romano and Wolf).

    It holds for a single departure among true null hypotheses: p = (b + 1) / (m + 1) <= alpha with
    b of the m maxima of `null` at least as large. The result is None if m is too small.

    Args:
        null: statistics under the null, m x k, as in `max_t`.
        alpha: level of the test.
    """
    maxima = np.sort(np.asarray(null, dtype=np.float64).max(axis=1))[::-1]
    # 1e-9 guards against products just below an integer, such as 0.29 * 100.
    exceeding = math.floor(alpha * (maxima.size + 1) + 1e-9) - 1
    # An effect that does not exceed this maximum has p above alpha.
    return None if exceeding < 0 else float(maxima[exceeding])
