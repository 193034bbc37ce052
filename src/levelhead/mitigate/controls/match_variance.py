"""A direction turned until activations vary along it as much as along another.

Within the plane of the direction and a principal direction of the activations: away from principal
directions of high variance, which keeps most of what the direction is, or else towards one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from scipy import optimize

from levelhead.core.errors import NotMeasurable
from levelhead.models.edits.base import Projection

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

FLAT = 1e-9
"""A direction that keeps less than this of its length lies in what it must be orthogonal to."""


class Place(NamedTuple):
    """A site with its real edit: how activations vary there.

    Directions are told by their coordinates along the principal ones. They are not kept away from
    the real ones: where another contrast has the edit's direction, it is not the groups' own.
    """

    edit: Projection
    wanted: torch.Tensor
    """`[k]` variance along each real direction."""
    axes: torch.Tensor
    """`[width, width]` principal directions of the activations."""
    spread: torch.Tensor
    """The variance along each."""

    @classmethod
    def of(cls, edit: Projection, activations: torch.Tensor) -> Place:
        """The field of an edit, by what its site holds `[n, width]`."""
        rows, basis = activations.detach().double(), edit.basis
        if len(rows) < 2 or not rows.isfinite().all():
            raise NotMeasurable(
                f"{len(rows)} activations at {edit.site}, or some that are not finite",
                mend="give what many texts give there",
            )
        covariance = torch.cov(rows.T).reshape(rows.shape[1], rows.shape[1])
        wanted = ((basis @ covariance) * basis).sum(1)
        if float(wanted.min()) <= FLAT * float(covariance.diagonal().max()):
            raise NotMeasurable(
                f"nothing varies along a direction of the edit at {edit.site}",
                mend="give activations of more and other texts",
            )
        values, axes = torch.linalg.eigh(covariance)
        return cls(edit, wanted, axes.T.contiguous(), values)

    def placebo(self, differences: torch.Tensor, rng: np.random.Generator) -> Projection:
        """One placebo, from differences of pairs with another contrast."""
        _, sizes, drawn = torch.linalg.svd(differences.detach().double(), full_matrices=False)
        drawn = drawn[sizes > FLAT * sizes.max()] @ self.axes.T  # the others are rounding
        taken: list[torch.Tensor] = []
        found = torch.empty_like(self.edit.basis)
        # The largest variance first: it is the hardest to find in what is left.
        for place, j in enumerate(torch.argsort(self.wanted, descending=True).tolist()):
            direction = _apart(drawn[place], taken) if place < len(drawn) else None
            if direction is None:
                raise NotMeasurable(
                    f"differences of rank {place} at {self.edit.site}: {len(found)} directions are "
                    "wanted",
                    mend="give more pairs, or pairs of another contrast",
                )
            taken.append(self._turned(direction, float(self.wanted[j]), taken, rng))
            found[j] = taken[-1] @ self.axes
        weights, tokens = self.edit.weights, self.edit.tokens
        return Projection(self.edit.site, found, weights=weights, tokens=tokens)

    def _variance(self, direction: torch.Tensor) -> float:
        return float(direction**2 @ self.spread)

    def _axis(self, number: int, taken: Sequence[torch.Tensor]) -> torch.Tensor | None:
        """A principal direction, as far as it is not taken."""
        axis = torch.zeros_like(self.spread)
        axis[number] = 1.0
        return _apart(axis, taken)

    def _turned(
        self,
        direction: torch.Tensor,
        wanted: float,
        taken: Sequence[torch.Tensor],
        rng: np.random.Generator,
    ) -> torch.Tensor:
        """The direction, turned from or to principal ones until it has the variance wanted."""
        own = self._variance(direction)
        lowered = self._lowered(direction, wanted, taken) if own > wanted else None
        if lowered is not None:
            return lowered
        for number in self._far(own, wanted, rng):
            towards = self._axis(number, taken)
            if towards is not None and (self._variance(towards) - wanted) * (own - wanted) <= 0:
                return self._between(direction, towards, wanted)
        raise NotMeasurable(
            f"no other direction at {self.edit.site} has a variance of {wanted:.4g} "
            f"(principal ones: {float(self.spread.min()):.4g} to {float(self.spread.max()):.4g})",
            mend="give activations of texts of all kinds, not of the pairs the edit was fitted on",
        )

    def _lowered(
        self, direction: torch.Tensor, wanted: float, taken: Sequence[torch.Tensor]
    ) -> torch.Tensor | None:
        """Turned away from the principal directions that give it most of its variance.

        That keeps more of the contrast than a turn towards a direction of low variance; None if
        nothing of it is left so.
        """
        for number in torch.argsort(direction**2 * self.spread, descending=True).tolist():
            away = self._axis(number, taken) if self.spread[number] > wanted else None
            lower = None if away is None else _apart(direction, [away])
            if lower is None:
                continue
            if self._variance(lower) <= wanted:
                return self._between(direction, lower, wanted)
            direction = lower
        return None

    def _far(self, own: float, wanted: float, rng: np.random.Generator) -> list[int]:
        """Principal directions to turn to, in random order: another one for every placebo.

        First those that leave at least half of the direction, then the others.
        """
        beyond = (self.spread - wanted) * (1 if own < wanted else -1)
        half = beyond >= abs(wanted - own)
        order = rng.permutation(len(self.spread)).tolist()
        return sorted((i for i in order if beyond[i] >= 0), key=lambda i: not half[i])

    def _between(self, start: torch.Tensor, end: torch.Tensor, wanted: float) -> torch.Tensor:
        """Of the plane of two directions, the one between them that has the variance wanted."""
        beside = _apart(end, [start])
        if beside is None:
            return start

        def at(angle: float) -> torch.Tensor:
            return start * math.cos(angle) + beside * math.sin(angle)

        last = math.atan2(float(end @ beside), float(end @ start))
        return at(optimize.brentq(lambda angle: self._variance(at(angle)) - wanted, 0, last))


def _apart(direction: torch.Tensor, others: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """The part of a direction orthogonal to others, of length 1; None if nothing is left."""
    found = direction
    for _ in range(2):  # once more for the rounding of the first time
        for other in others:
            found = found - (found @ other) * other
        if float(found.norm()) < FLAT:
            return None
        found = torch.nn.functional.normalize(found, dim=0, eps=0.0)
    return found
