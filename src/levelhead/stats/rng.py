"""Chance is an argument: no function here makes its own."""

from __future__ import annotations

import numpy as np

from levelhead.core.errors import LevelheadError


def generator(rng: object) -> np.random.Generator:
    """The generator that was given; anything else, None too, is refused."""
    if not isinstance(rng, np.random.Generator):
        raise LevelheadError(
            f"chance must come from a numpy Generator, not {type(rng).__name__}",
            mend="give rng=numpy.random.default_rng(seed)",
        )
    return rng
