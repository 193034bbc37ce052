"""Is there any spread to judge chance by? Rounding is not spread."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from levelhead.core.errors import NotMeasurable

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

ROUNDING = 1e-12
"""Differences below this share of the numbers themselves are left over from float arithmetic."""


def is_constant(values: ArrayLike) -> bool:
    """Whether all values are the same up to rounding."""
    numbers = np.asarray(values, dtype=np.float64)
    return bool(np.ptp(numbers) <= ROUNDING * np.abs(numbers).max())


def finite(value: float) -> float:
    """The value as a float; NaN and infinities end the computation."""
    if not math.isfinite(value):
        raise NotMeasurable(
            "the value is not a finite number for some of the items drawn",
            mend="look for items without spread or with probability 0; drop them by name",
        )
    return float(value)
