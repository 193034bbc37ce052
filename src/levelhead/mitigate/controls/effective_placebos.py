"""How many independent placebos many correlated ones amount to."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def effective_number(changes: NDArray[np.float64]) -> float:
    """How many independent edits would be as various as these: from 1 to their number.

    (sum of sqrt(l_i))^2 / sum of l_i over the eigenvalues l_i of the correlation matrix of what the
    edits change, item by item (Galwey 2009, "A new measure of the effective number of tests",
    Genetic Epidemiology 33, after Nyholt 2004 and Li and Ji 2005). k groups of equal edits count
    as k, edits that all do the same as 1, independent ones as nearly all. What edits have in common
    with each other counts only where it is nearly all they do: at a correlation of .5 among 200
    they count as more than 100, at .95 as 16.

    It is never more than the items less one, and lower where chance correlates few items: it errs
    towards "not independent". Edits that change no item differently than any other are left out.

    Args:
        changes: `[edits, items]`, edited less base.

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
    """The fewest placebos whose p-value can be as small as alpha.

    The least p that m placebos allow is 1 / (m + 1), times the number of settings that the edit was
    chosen among.

    >>> needed_placebos(0.05), needed_placebos(0.05, 32)
    (19, 639)
    """
    # Rounded first: 1 / (1 - 0.9) is slightly above 10, and would become 11.
    return math.ceil(round(n_candidates / alpha, 9)) - 1
