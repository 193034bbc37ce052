"""An affine edit: what predicts a label is taken out about a mean (LEACE)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast, final

import torch

from levelhead.core.errors import LevelheadError
from levelhead.models.edits.base import (
    Edit,
    EditParts,
    Which,
    at_tokens,
    checked_tokens,
    is_everywhere,
    of_tokens,
)
from levelhead.models.sites import Site, checked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from levelhead.core.canonical_json import Json


@final
@dataclass(frozen=True, eq=False)
class Erasure(Edit):
    """Take out of an activation what predicts a label, about a mean (Belrose et al. 2023, LEACE).

    h' = h - sum_i <h - mean, r_i> l_i: their r(x) = x - P (x - E[x]) with P = sum_i l_i r_i^T. With
    <r_i, l_j> = 1 if i = j and else 0 it is a projection, oblique where l and r differ: of h' -
    mean, nothing is left along any r_i. The mean stays what it was.
    """

    site: Site
    _left: torch.Tensor = field(repr=False)
    _right: torch.Tensor = field(repr=False)
    _mean: torch.Tensor = field(repr=False)
    tokens: Which = "all"
    kind: ClassVar[str] = "erasure"

    def __init__(
        self,
        site: Site,
        *,
        left: torch.Tensor,
        right: torch.Tensor,
        mean: torch.Tensor,
        tokens: Which = "all",
    ) -> None:
        own = [
            torch.as_tensor(given).detach().to("cpu", torch.float64, copy=True)
            for given in (left, right, mean)
        ]
        _check_factors(*own)
        object.__setattr__(self, "site", checked(site))
        for name, tensor in zip(("_left", "_right", "_mean"), own, strict=True):
            object.__setattr__(self, name, tensor)
        object.__setattr__(self, "tokens", checked_tokens(tokens))

    @property
    def left(self) -> torch.Tensor:
        """`[k, width]` in float64, one l_i a row: what is taken out. A copy: edits are frozen."""
        return self._left.clone()

    @property
    def right(self) -> torch.Tensor:
        """`[k, width]` in float64, one r_i a row: how much of it. A copy."""
        return self._right.clone()

    @property
    def mean(self) -> torch.Tensor:
        """`[width]` in float64. A copy."""
        return self._mean.clone()

    @property
    def at(self) -> tuple[Site, ...]:  # type: ignore[override]  # a field there, derived here
        """The one site."""
        return (self.site,)

    def __call__(self, activation: torch.Tensor, site: Site) -> torch.Tensor:
        """What is left of the activation."""
        return at_tokens(activation, self.tokens, self._taken_out)

    def _taken_out(self, activation: torch.Tensor) -> torch.Tensor:
        along = (activation - self._mean.to(activation)) @ self._right.to(activation).T
        return activation - along @ self._left.to(activation)

    def matrix(self, site: Site, width: int) -> torch.Tensor | None:
        """I - P, if all tokens are edited; a pooled vector is all there is."""
        if not is_everywhere(self.tokens, site):
            return None
        return torch.eye(width, dtype=torch.float64) - self._left.T @ self._right

    def offset(self, site: Site, width: int) -> torch.Tensor | None:
        """P mean."""
        if not is_everywhere(self.tokens, site):
            return None
        return (self._right @ self._mean) @ self._left

    def width(self, site: Site) -> int:
        """That of its mean."""
        return int(self._mean.shape[0])

    @property
    def settings(self) -> Mapping[str, Json]:
        """Which tokens."""
        return {"tokens": self.tokens}

    @property
    def tensors(self) -> Mapping[str, torch.Tensor]:
        """The two factors and the mean."""
        return {"left": self.left, "right": self.right, "mean": self.mean}

    @classmethod
    def from_parts(cls, parts: EditParts) -> Self:
        """Of its site, which tokens, its two factors and the mean."""
        (site,) = parts.at
        return cls(site, **cast("dict[str, Any]", {**parts.settings, **parts.tensors}))

    def describe(self) -> str:
        """Its rank."""
        return f"an erasure of rank {len(self._left)} about a mean{of_tokens(self.tokens)}"

    @classmethod
    def standalone_code(cls) -> str:
        """What lies along one factor is subtracted along the other."""
        return _ERASURE_CODE

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Erasure) and self.content_hash == other.content_hash

    def __hash__(self) -> int:
        return hash(self.content_hash)


_ERASURE_CODE = """\
names = ("left", "right", "mean")
left, right, mean = (tensors[f"{step['edit']}.{n}"].to(x) for n in names)
part = part - ((part - mean) @ right.T) @ left
"""


def _check_factors(left: torch.Tensor, right: torch.Tensor, mean: torch.Tensor) -> None:
    shapes = [tuple(tensor.shape) for tensor in (left, right, mean)]
    if left.dim() != 2 or not left.numel() or shapes[1:] != [shapes[0], shapes[0][1:]]:
        raise LevelheadError(
            "factors of shapes {} and {} with a mean of shape {}".format(*shapes),
            mend="give left and right as [k, width], one vector a row, and a mean as [width]",
        )
    if not all(bool(tensor.isfinite().all()) for tensor in (left, right, mean)):
        raise LevelheadError("the factors or the mean hold NaN or infinity", mend="fit them again")
    if not torch.allclose(right @ left.T, torch.eye(len(left), dtype=torch.float64), atol=1e-5):
        raise LevelheadError(
            "left and right are no projection: <right_i, left_j> is not 1 for i = j and 0 else",
            mend="multiply left by the inverse of right @ left.T, transposed",
        )
