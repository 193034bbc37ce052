"""Turn a direction until the activations have the same variance along it as along another.

It is turned in the plane of the direction and a principal direction of the activations: away from
principal directions of high variance, which keeps most of the direction, or otherwise towards a
principal direction.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from scipy import optimize

from levelhead.core.errors import NotMeasurableError
from levelhead.models.edits.base import Projection

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

FLAT = 1e-9
"""A direction of which less than this share is orthogonal to others lies in their span."""


class VarianceMatcher(NamedTuple):
    """A site with its real edit, and the variance of the activations there.

    Directions are given by their coordinates along the principal directions. They may be close to
    the real directions: if another contrast has the direction of the edit, the edit is not specific
    to the groups.
    """

    edit: Projection
    target_variances: torch.Tensor
    """`[k]` variance along each real direction."""
    principal_axes: torch.Tensor
    """`[width, width]` principal directions of the activations."""
    axis_variances: torch.Tensor
    """`[width]` variance along each principal direction."""

    @classmethod
    def fit(cls, edit: Projection, activations: torch.Tensor) -> VarianceMatcher:
        """Build the site of an edit from its activations `[n, width]`."""
        rows, basis = activations.detach().double(), edit.basis
        if len(rows) < 2 or not rows.isfinite().all():
            raise NotMeasurableError(
                f"{len(rows)} activations at {edit.site}, or some that are not finite",
                hint="give what many texts give there",
            )
        # `torch.cov` of a site of width 1 is a scalar.
        covariance = torch.cov(rows.T).reshape(rows.shape[1], rows.shape[1])
        # The diagonal of basis C basis^T: the variance of the activations along each direction.
        target_variances = ((basis @ covariance) * basis).sum(1)
        if float(target_variances.min()) <= FLAT * float(covariance.diagonal().max()):
            raise NotMeasurableError(
                f"nothing varies along a direction of the edit at {edit.site}",
                hint="give activations of more and other texts",
            )
        values, axes = torch.linalg.eigh(covariance)
        return cls(edit, target_variances, axes.T.contiguous(), values)

    def make_placebo(self, differences: torch.Tensor, rng: np.random.Generator) -> Projection:
        """Directions of one placebo, from differences of pairs with another contrast."""
        _, sizes, directions = torch.linalg.svd(differences.detach().double(), full_matrices=False)
        directions = (
            directions[sizes > FLAT * sizes.max()] @ self.principal_axes.T
        )  # the others are rounding
        used: list[torch.Tensor] = []
        basis = torch.empty_like(self.edit.basis)
        # The largest variance first: it is the hardest to find in what is left.
        for rank, j in enumerate(torch.argsort(self.target_variances, descending=True).tolist()):
            direction = _orthogonalise(directions[rank], used) if rank < len(directions) else None
            if direction is None:
                raise NotMeasurableError(
                    f"differences of rank {rank} at {self.edit.site}: {len(basis)} directions are "
                    "wanted",
                    hint="give more pairs, or pairs of another contrast",
                )
            used.append(
                self._rotate_to_variance(direction, float(self.target_variances[j]), used, rng)
            )
            # From principal coordinates back to those of the site.
            basis[j] = used[-1] @ self.principal_axes
        weights, tokens = self.edit.weights, self.edit.tokens
        return Projection(self.edit.site, basis, weights=weights, tokens=tokens)

    def _variance(self, direction: torch.Tensor) -> float:
        return float(direction**2 @ self.axis_variances)

    def _axis(self, index: int, used: Sequence[torch.Tensor]) -> torch.Tensor | None:
        """A principal direction, less its components along directions in use."""
        axis = torch.zeros_like(self.axis_variances)
        axis[index] = 1.0
        return _orthogonalise(axis, used)

    def _rotate_to_variance(
        self,
        direction: torch.Tensor,
        target: float,
        used: Sequence[torch.Tensor],
        rng: np.random.Generator,
    ) -> torch.Tensor:
        """Turn the direction until it has the target variance."""
        variance = self._variance(direction)
        reduced = self._reduce_variance(direction, target, used) if variance > target else None
        if reduced is not None:
            return reduced
        for number in self._axes_in_random_order(variance, target, rng):
            towards = self._axis(number, used)
            if (
                towards is not None
                and (self._variance(towards) - target) * (variance - target) <= 0
            ):
                return self._interpolate(direction, towards, target)
        raise NotMeasurableError(
            f"no other direction at {self.edit.site} has a variance of {target:.4g} "
            f"(principal ones: {float(self.axis_variances.min()):.4g} to "
            f"{float(self.axis_variances.max()):.4g})",
            hint="give activations of texts of all kinds, not of the pairs the edit was fitted on",
        )

    def _reduce_variance(
        self, direction: torch.Tensor, target: float, used: Sequence[torch.Tensor]
    ) -> torch.Tensor | None:
        """Turn the direction away from the principal directions that give it most of its variance.

        This keeps more of the contrast than a turn towards a direction of low variance. Returns
        None if nothing of the direction is left.
        """
        for number in torch.argsort(direction**2 * self.axis_variances, descending=True).tolist():
            away = self._axis(number, used) if self.axis_variances[number] > target else None
            lower = None if away is None else _orthogonalise(direction, [away])
            if lower is None:
                continue
            if self._variance(lower) <= target:
                return self._interpolate(direction, lower, target)
            direction = lower
        return None

    def _axes_in_random_order(
        self, variance: float, target: float, rng: np.random.Generator
    ) -> list[int]:
        """Principal directions to turn to, in a random order that differs between placebos.

        Directions that leave at least half of the direction come first.
        """
        excess = (self.axis_variances - target) * (1 if variance < target else -1)
        leaves_half = excess >= abs(target - variance)
        order = rng.permutation(len(self.axis_variances)).tolist()
        return sorted((i for i in order if excess[i] >= 0), key=lambda i: not leaves_half[i])

    def _interpolate(self, start: torch.Tensor, end: torch.Tensor, target: float) -> torch.Tensor:
        """The direction between two directions, in their plane, that has the target variance."""
        orthogonal = _orthogonalise(end, [start])
        if orthogonal is None:
            return start

        def rotate(angle: float) -> torch.Tensor:
            return start * math.cos(angle) + orthogonal * math.sin(angle)

        max_angle = math.atan2(float(end @ orthogonal), float(end @ start))
        # The variance changes continuously along the arc and crosses the target between its ends,
        # so a bracketing root finder always converges.
        return rotate(
            optimize.brentq(lambda angle: self._variance(rotate(angle)) - target, 0, max_angle)
        )


def _orthogonalise(
    direction: torch.Tensor, directions: Sequence[torch.Tensor]
) -> torch.Tensor | None:
    """The part of a direction orthogonal to others, of length 1; None if nothing is left."""
    remainder = direction
    for _ in range(2):  # once more for the rounding of the first time
        for used in directions:
            remainder = remainder - (remainder @ used) * used
        if float(remainder.norm()) < FLAT:
            return None
        remainder = torch.nn.functional.normalize(remainder, dim=0, eps=0.0)
    return remainder
