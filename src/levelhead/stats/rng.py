"""Check of random generators: every function takes one as an argument and creates none."""

from __future__ import annotations

import numpy as np

from levelhead.core.errors import LevelheadError


def check_rng(rng: object) -> np.random.Generator:
    """Return the given generator; raise an error for anything else, including None."""
    # None would be seeded from the system, and the result could not be reproduced.
    if not isinstance(rng, np.random.Generator):
        raise LevelheadError(
            f"rng must be a numpy Generator, not {type(rng).__name__}",
            hint="give rng=numpy.random.default_rng(seed)",
        )
    return rng
