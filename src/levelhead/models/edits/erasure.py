"""Erasure (LEACE): an affine edit that removes linear information about a label."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast, final

import torch

from levelhead.core.errors import LevelheadError
from levelhead.models.edits.base import (
    Edit,
    EditParts,
    TokenSelection,
    apply_to_tokens,
    describe_tokens,
    is_on_all_tokens,
    validate_tokens,
)
from levelhead.models.sites import Site, validate_site

if TYPE_CHECKING:
    from collections.abc import Mapping

    from levelhead.core.canonical_json import Json


@final
@dataclass(frozen=True, eq=False)
class Erasure(Edit):
    """Remove what linearly predicts a label from an activation (Belrose et al. 2023, LEACE).

    h' = h - sum_i <h - mean, r_i> l_i: their r(x) = x - P (x - E[x]) with P = sum_i l_i r_i^T. With
    <r_i, l_j> = 1 if i = j and 0 otherwise it is a projection, oblique where l and r differ:
    h' - mean has no component along any r_i. The mean does not change.
    """

    site: Site
    _left: torch.Tensor = field(repr=False)
    _right: torch.Tensor = field(repr=False)
    _mean: torch.Tensor = field(repr=False)
    tokens: TokenSelection = "all"
    kind: ClassVar[str] = "erasure"

    def __init__(
        self,
        site: Site,
        *,
        left: torch.Tensor,
        right: torch.Tensor,
        mean: torch.Tensor,
        tokens: TokenSelection = "all",
    ) -> None:
        # float64 on the CPU: the hash of an edit must not depend on where it was fitted.
        tensors = [
            torch.as_tensor(value).detach().to("cpu", torch.float64, copy=True)
            for value in (left, right, mean)
        ]
        _check_factors(*tensors)
        object.__setattr__(self, "site", validate_site(site))
        for name, tensor in zip(("_left", "_right", "_mean"), tensors, strict=True):
            object.__setattr__(self, name, tensor)
        object.__setattr__(self, "tokens", validate_tokens(tokens))

    @property
    def left(self) -> torch.Tensor:
        """l_i, the vectors that are subtracted: `[k, width]` in float64. A copy."""
        # Edits are frozen: a caller who changed the tensor in place would change the edit.
        return self._left.clone()

    @property
    def right(self) -> torch.Tensor:
        """r_i, which give the coefficients: `[k, width]` in float64. A copy."""
        return self._right.clone()

    @property
    def mean(self) -> torch.Tensor:
        """Mean of the activations, `[width]` in float64. A copy."""
        return self._mean.clone()

    @property
    def sites(self) -> tuple[Site, ...]:  # type: ignore[override]  # a field there, derived here
        """The site, as a tuple of one."""
        return (self.site,)

    def __call__(self, activation: torch.Tensor, site: Site) -> torch.Tensor:
        """Return the activation without what predicts the label."""
        return apply_to_tokens(activation, self.tokens, self._erase)

    def _erase(self, activation: torch.Tensor) -> torch.Tensor:
        # Two thin products, never the [width, width] matrix: k is small.
        coefficients = (activation - self._mean.to(activation)) @ self._right.to(activation).T
        return activation - coefficients @ self._left.to(activation)

    def matrix(self, site: Site, width: int) -> torch.Tensor | None:
        """Return I - P if all tokens are edited; a pooled vector counts as all."""
        if not is_on_all_tokens(self.tokens, site):
            return None
        return torch.eye(width, dtype=torch.float64) - self._left.T @ self._right

    def offset(self, site: Site, width: int) -> torch.Tensor | None:
        """Return P times the mean."""
        if not is_on_all_tokens(self.tokens, site):
            return None
        return (self._right @ self._mean) @ self._left

    def width(self, site: Site) -> int:
        """Return the width of its mean."""
        return int(self._mean.shape[0])

    @property
    def settings(self) -> Mapping[str, Json]:
        """The tokens it acts on."""
        return {"tokens": self.tokens}

    @property
    def tensors(self) -> Mapping[str, torch.Tensor]:
        """The two factors and the mean."""
        return {"left": self.left, "right": self.right, "mean": self.mean}

    @classmethod
    def from_parts(cls, parts: EditParts) -> Self:
        """Create it from its site, token selection, two factors and mean."""
        (site,) = parts.sites
        return cls(site, **cast("dict[str, Any]", {**parts.settings, **parts.tensors}))

    def describe(self) -> str:
        """Describe its rank."""
        return f"an erasure of rank {len(self._left)} about a mean{describe_tokens(self.tokens)}"

    @classmethod
    def standalone_code(cls) -> str:
        """Return the code that subtracts the components."""
        return _ERASURE_CODE

    # By hash: the == of tensors is elementwise and has no truth value.
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
            "factors of shapes {} and {} do not fit a mean of shape {}".format(*shapes),
            hint="give left and right as [k, width], one vector per row, and a mean as [width]",
        )
    if not all(bool(tensor.isfinite().all()) for tensor in (left, right, mean)):
        raise LevelheadError("the factors or the mean hold NaN or infinity", hint="fit them again")
    # As for directions: 1e-5 accepts factors that were computed in float32.
    if not torch.allclose(right @ left.T, torch.eye(len(left), dtype=torch.float64), atol=1e-5):
        raise LevelheadError(
            "left and right do not form a projection: <right_i, left_j> must be 1 for i = j and "
            "0 otherwise",
            hint="multiply left by the inverse of right @ left.T, transposed",
        )
