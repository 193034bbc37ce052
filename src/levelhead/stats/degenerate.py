"""Checks for constant and non-finite values; rounding errors do not count as spread."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from levelhead.core.errors import NotMeasurableError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

# About 4500 times the relative precision of float64: the error of long sums stays below it.
ROUNDING = 1e-12
"""Relative differences below this value are attributed to rounding in float arithmetic."""


def is_constant(values: ArrayLike) -> bool:
    """Return whether all values are equal up to rounding."""
    numbers = np.asarray(values, dtype=np.float64)
    # Relative to the largest number, so that the unit of the values does not matter.
    return bool(np.ptp(numbers) <= ROUNDING * np.abs(numbers).max())


def require_finite(value: float) -> float:
    """Return the value as a float; raise NotMeasurableError for NaN and infinities."""
    if not math.isfinite(value):
        raise NotMeasurableError(
            "the value is not a finite number for some of the resampled items",
            hint="look for items without spread or with probability 0; drop them by name",
        )
    return float(value)
