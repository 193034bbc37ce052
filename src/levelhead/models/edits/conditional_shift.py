"""Conditional shift: vectors that are added where linear detectors fire."""

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
    validate_tokens,
)
from levelhead.models.edits.shift import validate_strength
from levelhead.models.sites import Site, validate_site

if TYPE_CHECKING:
    from collections.abc import Mapping

    from levelhead.core.canonical_json import Json


@final
@dataclass(frozen=True, eq=False)
class ConditionalShift(Edit):
    """Add vectors to the activations where their linear detectors fire.

    h' = h + s sum_g [<w_g, h> + b_g > 0] v_g, for every token by itself. With one detector it is
    conditional steering. With one detector for each group and v_g = common mean - mean of group g
    it is mean matching (Singh et al. 2024, "Representation surgery", section 4), where a detector
    decides the group that their map is given.

    It is not continuous: an activation within rounding of a detector's plane may go to either side.
    """

    site: Site
    _weights: torch.Tensor = field(repr=False)
    _biases: torch.Tensor = field(repr=False)
    _vectors: torch.Tensor = field(repr=False)
    strength: float = 1.0
    tokens: TokenSelection = "all"
    kind: ClassVar[str] = "conditional_shift"

    def __init__(
        self,
        site: Site,
        *,
        weights: torch.Tensor,
        biases: torch.Tensor,
        vectors: torch.Tensor,
        strength: float = 1.0,
        tokens: TokenSelection = "all",
    ) -> None:
        # float64 on the CPU: the hash of an edit must not depend on where it was fitted.
        tensors = [
            torch.as_tensor(value).detach().to("cpu", torch.float64, copy=True)
            for value in (weights, biases, vectors)
        ]
        _check_detectors(*tensors)
        object.__setattr__(self, "site", validate_site(site))
        for name, tensor in zip(("_weights", "_biases", "_vectors"), tensors, strict=True):
            object.__setattr__(self, name, tensor)
        object.__setattr__(self, "strength", validate_strength(strength))
        object.__setattr__(self, "tokens", validate_tokens(tokens))

    @property
    def weights(self) -> torch.Tensor:
        """w_g, the normals of the detectors: `[k, width]` in float64. A copy."""
        # Edits are frozen: a caller who changed the tensor in place would change the edit.
        return self._weights.clone()

    @property
    def biases(self) -> torch.Tensor:
        """b_g, `[k]` in float64. A copy."""
        return self._biases.clone()

    @property
    def vectors(self) -> torch.Tensor:
        """v_g, the vectors that are added: `[k, width]` in float64. A copy."""
        return self._vectors.clone()

    @property
    def sites(self) -> tuple[Site, ...]:  # type: ignore[override]  # a field there, derived here
        """The site, as a tuple of one."""
        return (self.site,)

    def __call__(self, activation: torch.Tensor, site: Site) -> torch.Tensor:
        """Return the activation plus the vectors of the detectors that fire."""
        return apply_to_tokens(activation, self.tokens, self._shift)

    def fires(self, activation: torch.Tensor) -> torch.Tensor:
        """Return which detectors fire, `[..., k]` booleans, for activations `[..., width]`."""
        # At least float32: in bfloat16 the rounding of <w, h> alone would decide many tokens.
        precise = activation.to(torch.promote_types(activation.dtype, torch.float32))
        return precise @ self._weights.to(precise).T + self._biases.to(precise) > 0

    def _shift(self, activation: torch.Tensor) -> torch.Tensor:
        steps = (self.strength * self._vectors).to(activation)
        return activation + self.fires(activation).to(activation) @ steps

    def matrix(self, site: Site, width: int) -> None:
        """Return None: it is affine only between the planes of its detectors."""
        return

    def width(self, site: Site) -> int:
        """Return the width of its vectors."""
        return int(self._vectors.shape[1])

    @property
    def settings(self) -> Mapping[str, Json]:
        """The strength, and the tokens it acts on."""
        return {"strength": self.strength, "tokens": self.tokens}

    @property
    def tensors(self) -> Mapping[str, torch.Tensor]:
        """The detectors and their vectors."""
        return {"weights": self.weights, "biases": self.biases, "vectors": self.vectors}

    @classmethod
    def from_parts(cls, parts: EditParts) -> Self:
        """Create it from its site, settings, detectors and vectors."""
        (site,) = parts.sites
        return cls(site, **cast("dict[str, Any]", {**parts.settings, **parts.tensors}))

    def describe(self) -> str:
        """Describe the number of detectors, and the strength."""
        return (
            f"{len(self._vectors)} vector(s) are added where their linear detectors fire, with "
            f"strength {self.strength:g}{describe_tokens(self.tokens)}"
        )

    @classmethod
    def standalone_code(cls) -> str:
        """Return the code that evaluates the detectors and adds the vectors."""
        return _CONDITIONAL_SHIFT_CODE

    # By hash: the == of tensors is elementwise and has no truth value.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConditionalShift) and self.content_hash == other.content_hash

    def __hash__(self) -> int:
        return hash(self.content_hash)


_CONDITIONAL_SHIFT_CODE = """\
precise = part.to(torch.promote_types(part.dtype, torch.float32))
weights, biases = (tensors[f"{step['edit']}.{n}"].to(precise) for n in ("weights", "biases"))
fires = precise @ weights.T + biases > 0
part = part + fires.to(x) @ (step["strength"] * tensors[f"{step['edit']}.vectors"]).to(x)
"""


def _check_detectors(weights: torch.Tensor, biases: torch.Tensor, vectors: torch.Tensor) -> None:
    shapes = [tuple(tensor.shape) for tensor in (weights, biases, vectors)]
    if weights.dim() != 2 or not weights.numel() or shapes[1:] != [shapes[0][:1], shapes[0]]:
        raise LevelheadError(
            "detectors of shapes {} and {} do not fit vectors of shape {}".format(*shapes),
            hint="give weights and vectors as [k, width], one detector per row, and biases as [k]",
        )
    if not all(bool(tensor.isfinite().all()) for tensor in (weights, biases, vectors)):
        raise LevelheadError("the detectors or vectors hold NaN or infinity", hint="fit them again")
    # A detector without a normal fires everywhere or nowhere, whatever the activation.
    if not bool((weights.norm(dim=1) > 0).all()):
        raise LevelheadError(
            "the weights of a detector are all 0: it does not depend on the activation",
            hint="use Shift to add a vector everywhere",
        )
