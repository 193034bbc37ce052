"""How small an effect the data could have shown: printed beside every result that shows none."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scipy import special, stats

from levelhead.core.errors import LevelheadError, NotMeasurable

if TYPE_CHECKING:
    from levelhead.core.results import Alternative


def minimum_detectable_effect(
    standard_error: float,
    df: int,
    *,
    alternative: Alternative = "two-sided",
    alpha: float = 0.05,
    power: float = 0.8,
) -> float:
    """The distance from parity that a t-test at `alpha` would find with probability `power`.

    Exact for normal data, by the noncentral t distribution. Give the standard error of the mean (or
    of a bootstrap) and its degrees of freedom.

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
    critical = stats.t.isf(tail, df)
    # The chance of a hit in the far tail is left out: below 1e-5 at any df for power 0.8.
    return float(special.nctdtrinc(df, 1 - power, critical)) * standard_error
