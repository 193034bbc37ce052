"""Shift: a vector that is added to an activation (activation addition, steering)."""

from __future__ import annotations

import math
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
class Shift(Edit):
    """Add a multiple of a vector to an activation: h' = h + s v.

    Activation addition (Turner et al. 2023); with the mean difference of contrastive pairs as the
    vector it is contrastive activation addition (Rimsky et al. 2024, section 3).

    >>> Shift(Site("mlp_out", 0), torch.ones(2), strength=-0.5)(torch.zeros(2), Site("mlp_out", 0))
    tensor([-0.5000, -0.5000])
    """

    site: Site
    _vector: torch.Tensor = field(repr=False)
    strength: float = 1.0
    tokens: TokenSelection = "all"
    kind: ClassVar[str] = "shift"

    def __init__(
        self,
        site: Site,
        vector: torch.Tensor,
        *,
        strength: float = 1.0,
        tokens: TokenSelection = "all",
    ) -> None:
        # float64 on the CPU: the hash of an edit must not depend on where it was fitted.
        values = torch.as_tensor(vector).detach().to("cpu", torch.float64, copy=True)
        if values.dim() != 1 or not values.numel() or not bool(values.isfinite().all()):
            raise LevelheadError(
                f"a vector of shape {tuple(values.shape)}, or not finite",
                hint="give the vector as [width] finite numbers",
            )
        object.__setattr__(self, "site", validate_site(site))
        object.__setattr__(self, "_vector", values)
        object.__setattr__(self, "strength", validate_strength(strength))
        object.__setattr__(self, "tokens", validate_tokens(tokens))

    @property
    def vector(self) -> torch.Tensor:
        """The vector, `[width]` in float64. A copy, because edits are frozen."""
        return self._vector.clone()

    @property
    def sites(self) -> tuple[Site, ...]:  # type: ignore[override]  # a field there, derived here
        """The site, as a tuple of one."""
        return (self.site,)

    def __call__(self, activation: torch.Tensor, site: Site) -> torch.Tensor:
        """Return the activation plus the scaled vector."""
        # Scaled in float64, and rounded once to the precision of the activation.
        step = (self.strength * self._vector).to(activation)
        return apply_to_tokens(activation, self.tokens, lambda selected: selected + step)

    def matrix(self, site: Site, width: int) -> torch.Tensor | None:
        """Return the identity if all tokens are edited; a pooled vector counts as all."""
        if not is_on_all_tokens(self.tokens, site):
            return None
        return torch.eye(width, dtype=torch.float64)

    def offset(self, site: Site, width: int) -> torch.Tensor | None:
        """Return the scaled vector."""
        if not is_on_all_tokens(self.tokens, site):
            return None
        return self.strength * self._vector

    def width(self, site: Site) -> int:
        """Return the width of its vector."""
        return len(self._vector)

    @property
    def settings(self) -> Mapping[str, Json]:
        """The strength, and the tokens it acts on."""
        return {"strength": self.strength, "tokens": self.tokens}

    @property
    def tensors(self) -> Mapping[str, torch.Tensor]:
        """The vector."""
        return {"vector": self.vector}

    @classmethod
    def from_parts(cls, parts: EditParts) -> Self:
        """Create it from its site, settings and vector."""
        (site,) = parts.sites
        return cls(site, **cast("dict[str, Any]", {**parts.settings, **parts.tensors}))

    def describe(self) -> str:
        """Describe length and strength."""
        length = float(self._vector.norm())
        return (
            f"a vector of length {length:.3g} is added with strength {self.strength:g}"
            f"{describe_tokens(self.tokens)}"
        )

    @classmethod
    def standalone_code(cls) -> str:
        """Return the code of a sum."""
        return _SHIFT_CODE

    # By hash: the == of tensors is elementwise and has no truth value.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shift) and self.content_hash == other.content_hash

    def __hash__(self) -> int:
        return hash(self.content_hash)


_SHIFT_CODE = """\
part = part + (step["strength"] * tensors[f"{step['edit']}.vector"]).to(x)
"""


def validate_strength(strength: float) -> float:
    """Return a strength as a float if it is finite; raise otherwise."""
    if not math.isfinite(strength):
        raise LevelheadError(
            f"a vector cannot be added with strength {strength}",
            hint="give a finite strength; 1 adds the vector as it is, -1 subtracts it",
        )
    return float(strength)
