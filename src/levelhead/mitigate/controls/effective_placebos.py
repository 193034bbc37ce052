"""The effective number of independent placebos among correlated ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def effective_number(changes: NDArray[np.float64]) -> float:
    """Effective number of independent edits: from 1 to their number.

    (sum of sqrt(l_i))^2 / sum of l_i over the eigenvalues l_i of the correlation matrix of the
    changes by the edits, item by item (Galwey 2009, "A new measure of the effective number of
    tests", Genetic Epidemiology 33, after Nyholt 2004 and Li and Ji 2005). k groups of equal edits
    count as k, edits that all have the same effect as 1, and independent edits as nearly all. A
    shared part of the effects counts only if it is nearly the whole effect: at a correlation of .5,
    200 edits count as more than 100; at .95 they count as 16.

    It is at most the number of items less one, and lower if few items are correlated by chance: its
    error is towards "not independent". Edits that change all items equally are left out.

    Args:
        changes: `[edits, items]` values of the edited model less those of the base.

    >>> effective_number(np.array([[1.0, 2.0, 4.0], [2.0, 4.0, 8.0], [1.0, 2.0, 4.0]]))
    1.0
    """
    centred = changes - changes.mean(axis=1, keepdims=True)
    lengths = np.linalg.norm(centred, axis=1)
    moved = centred[lengths > 0] / lengths[lengths > 0, None]
    if not len(moved):
        return 1.0
    # Singular values of the unit rows are the roots of the eigenvalues of their correlations.
    roots = np.linalg.svd(moved, compute_uv=False)
    # Participation ratio: m for m orthogonal changes, 1 where all changes are proportional.
    number = float(roots.sum() ** 2 / (roots**2).sum())
    return round(min(max(number, 1.0), float(len(moved))), 9)


def needed_placebos(alpha: float, n_candidates: int = 1) -> int:
    """Minimum number of placebos with which p can be as small as alpha.

    The smallest p with m placebos is 1 / (m + 1), times the number of settings that the edit was
    chosen from.

    >>> needed_placebos(0.05), needed_placebos(0.05, 32)
    (19, 639)
    """
    # Rounded first: 1 / (1 - 0.9) is slightly above 10, and would become 11.
    return math.ceil(round(n_candidates / alpha, 9)) - 1
