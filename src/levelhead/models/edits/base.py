"""Edits: frozen values that define a change of activations at sites.

An edit is called with the activation at one of its sites and returns the edited activation. It is
independent of any model: `LM.edited` checks that a model has its sites and widths.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self, cast, final, get_args

import torch

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.models.sites import Site, validate_site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from levelhead.core.canonical_json import Json

TokenSelection = Literal["all", "first"]
"""The tokens an edit acts on."""


class EditParts(NamedTuple):
    """The parts of an edit, as they are stored in a file."""

    sites: tuple[Site, ...]
    settings: Mapping[str, Json]
    tensors: Mapping[str, torch.Tensor]


class Edit(ABC):
    """A change of the activation at some sites. Abstract.

    To be saved, loaded and exported, a kind of edit must also define `from_parts` and
    `standalone_code`, and needs a row in `levelhead.models.edits.kinds.EDIT_KINDS`.
    """

    kind: ClassVar[str]
    sites: tuple[Site, ...]

    @abstractmethod
    def __call__(self, activation: torch.Tensor, site: Site) -> torch.Tensor:
        """Return the edited activation `[..., width]` of one of the sites. Never in place."""

    @abstractmethod
    def matrix(self, site: Site, width: int) -> torch.Tensor | None:
        """Return M, `[width, width]` in float64, if the edit is the map M x + c for every token.

        None if it is not such a map: plain weights cannot express it.
        """

    def offset(self, site: Site, width: int) -> torch.Tensor | None:
        """Return c, `[width]` in float64, with M x + c = self(x, site); None if c is 0."""
        return None

    @abstractmethod
    def width(self, site: Site) -> int | None:
        """Return the width of the activations that it fits; None if it fits any width."""

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, Json]:
        """All its parameters except sites and tensors: texts and numbers, by name.

        An edit of only the first token of every text has the setting `tokens`: "first".
        """

    @property
    @abstractmethod
    def tensors(self) -> Mapping[str, torch.Tensor]:
        """Its tensors, by field name."""

    def to_parts(self) -> EditParts:
        """Return the parts from which `from_parts` creates the same edit."""
        return EditParts(self.sites, self.settings, self.tensors)

    @classmethod
    def from_parts(cls, parts: EditParts) -> Self:
        """Create the edit that has these parts; TypeError or ValueError if they do not fit."""
        raise LevelheadError(
            f"{cls.__name__} does not define how it is created from sites, settings and tensors",
            hint=f"define the class method {cls.__name__}.from_parts",
        )

    def describe(self) -> str:
        """Describe the edit for the model card, which appends its sites."""
        settings = ", ".join(f"{name} {value}" for name, value in self.settings.items())
        return f"an edit of kind `{self.kind}`" + (f" ({settings})" if settings else "")

    @classmethod
    def standalone_code(cls) -> str:
        """Return lines of PyTorch that apply the edit without levelhead.

        They replace `part` (`[..., width]`: the activation at the site) by its edited value.
        `step["name"]` is the setting of that name, `tensors[f"{step['edit']}.name"]` the tensor of
        that name. The code around these lines restricts an edit to the first token.
        """
        raise LevelheadError(
            f"{cls.__name__} has no code that applies it without levelhead",
            hint=f"define the class method {cls.__name__}.standalone_code, or save only the edit "
            "with save_edits(edits, folder)",
        )

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 of kind, sites, settings and tensors: equal edits have equal hashes."""
        # Edit files and stored responses contain this hash: keys and form must not change.
        return content_hash(
            {
                "kind": self.kind,
                "at": [list(site) for site in self.sites],
                "settings": dict(self.settings),
                "tensors": {name: _hash_tensor(value) for name, value in self.tensors.items()},
            }
        )


@final
@dataclass(frozen=True)
class HeadScale(Edit):
    """Multiply the outputs of some heads by a factor: 0 masks, 1 changes nothing, 2 doubles.

    The mask m of Yang et al. 2025, Eq. 2. Scaling a head's output before the output projection is
    the same as scaling its attention probabilities: (m P) V = m (P V).

    >>> HeadScale([Site.from_paper_label("9-12")], 0)
    HeadScale(sites=(Site(stream='head_out', layer=8, head=11),), factor=0.0)
    """

    sites: tuple[Site, ...]
    factor: float
    kind: ClassVar[str] = "head_scale"

    def __init__(self, sites: Iterable[Site], factor: float) -> None:
        # Frozen: fields can be set only past the dataclass.
        object.__setattr__(self, "sites", _validate_sites(sites))
        object.__setattr__(self, "factor", float(factor))
        if not math.isfinite(self.factor):
            raise LevelheadError(
                f"a head cannot be scaled by {factor}", hint="give a finite factor; 0 masks a head"
            )
        for site in self.sites:
            if site.stream != "head_out" or site.head is None:
                raise LevelheadError(
                    f"HeadScale acts on heads, not on {site}",
                    hint="give sites such as Site('head_out', layer, head)",
                )

    def __call__(self, activation: torch.Tensor, site: Site) -> torch.Tensor:
        """Multiply the activation by the factor."""
        return activation * self.factor

    def matrix(self, site: Site, width: int) -> torch.Tensor:
        """Return the factor times the identity."""
        return torch.eye(width, dtype=torch.float64) * self.factor

    def width(self, site: Site) -> None:
        """Return None: it fits activations of any width."""
        return

    @property
    def settings(self) -> Mapping[str, Json]:
        """The factor."""
        return {"factor": self.factor}

    @classmethod
    def from_parts(cls, parts: EditParts) -> Self:
        """Create it from its sites and its factor."""
        return cls(parts.sites, **cast("dict[str, Any]", {**parts.settings, **parts.tensors}))

    def describe(self) -> str:
        """Describe the factor."""
        return f"the outputs of heads are multiplied by {self.factor:g}"

    @classmethod
    def standalone_code(cls) -> str:
        """Return the code of a product."""
        return 'part = part * step["factor"]\n'

    @property
    def tensors(self) -> Mapping[str, torch.Tensor]:
        """None."""
        return {}


@final
@dataclass(frozen=True, eq=False)
class Projection(Edit):
    """Remove the component along some directions from an activation (Dawkins et al. 2024, Eq. 5).

    h' = h - sum_i w_i <h, g_i> g_i, with orthonormal g_i. Without weights all w_i are 1 (hard
    projection): the component along g_i is 0 afterwards. With weights in [0, 1] (in the paper, the
    share of variance that the component explains) a part of the component remains.
    """

    site: Site
    _basis: torch.Tensor = field(repr=False)
    _weights: torch.Tensor
    tokens: TokenSelection = "all"
    kind: ClassVar[str] = "projection"

    def __init__(
        self,
        site: Site,
        basis: torch.Tensor,
        *,
        weights: torch.Tensor | None = None,
        tokens: TokenSelection = "all",
    ) -> None:
        # float64 on the CPU: the hash of an edit must not depend on where it was fitted.
        # A copy: the caller may change the given tensor in place.
        basis = torch.as_tensor(basis).detach().to("cpu", torch.float64, copy=True)
        ones = torch.ones(basis.shape[:1], dtype=torch.float64)
        unchecked = ones if weights is None else torch.as_tensor(weights).detach()
        weights = unchecked.to("cpu", torch.float64, copy=True)
        _check_directions(basis, weights)
        object.__setattr__(self, "site", validate_site(site))
        object.__setattr__(self, "_basis", basis)
        object.__setattr__(self, "_weights", weights)
        object.__setattr__(self, "tokens", validate_tokens(tokens))

    @property
    def basis(self) -> torch.Tensor:
        """Orthonormal directions, `[k, width]` in float64. A copy, because edits are frozen."""
        return self._basis.clone()

    @property
    def weights(self) -> torch.Tensor:
        """Weights of the directions, `[k]` in [0, 1], float64. A copy."""
        return self._weights.clone()

    @property
    def sites(self) -> tuple[Site, ...]:  # type: ignore[override]  # a field there, derived here
        """The site, as a tuple of one."""
        return (self.site,)

    def __call__(self, activation: torch.Tensor, site: Site) -> torch.Tensor:
        """Return the activation without the projected components."""
        return apply_to_tokens(activation, self.tokens, self._project_out)

    def directions_and_coefficients(
        self, activation: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return directions `[k, width]` and the coefficients `[..., k]` that are subtracted."""
        directions = self._basis.to(activation)
        return directions, (activation @ directions.T) * self._weights.to(activation)

    def _project_out(self, activation: torch.Tensor) -> torch.Tensor:
        directions, coefficients = self.directions_and_coefficients(activation)
        # Two thin products, never the [width, width] matrix: k is small.
        return activation - coefficients @ directions

    def matrix(self, site: Site, width: int) -> torch.Tensor | None:
        """Return I - G^T diag(w) G if all tokens are edited; a pooled vector counts as all."""
        if not is_on_all_tokens(self.tokens, site):
            return None
        # float64: the product with the weights is rounded only once, in the weights' precision.
        eye = torch.eye(width, dtype=torch.float64)
        return eye - self._basis.T @ (self._weights[:, None] * self._basis)

    def width(self, site: Site) -> int:
        """Return the width of its directions."""
        return int(self._basis.shape[1])

    @property
    def settings(self) -> Mapping[str, Json]:
        """The tokens it acts on."""
        return {"tokens": self.tokens}

    @property
    def tensors(self) -> Mapping[str, torch.Tensor]:
        """The directions and their weights."""
        return {"basis": self.basis, "weights": self.weights}

    @classmethod
    def from_parts(cls, parts: EditParts) -> Self:
        """Create it from its site, token selection, directions and weights."""
        # Another number of sites in a file raises ValueError, which names the edit to the user.
        (site,) = parts.sites
        return cls(site, **cast("dict[str, Any]", {**parts.settings, **parts.tensors}))

    def describe(self) -> str:
        """Describe how many directions are removed, and with which weights."""
        weights = self._weights.tolist()
        is_hard = all(weight == 1 for weight in weights)
        extent = (
            "fully" if is_hard else f"partially (weights {', '.join(f'{w:.3g}' for w in weights)})"
        )
        return f"{len(weights)} direction(s) removed {extent}{describe_tokens(self.tokens)}"

    @classmethod
    def standalone_code(cls) -> str:
        """Return the code that subtracts the components along the directions."""
        return _PROJECTION_CODE

    # By hash: the == of tensors is elementwise and has no truth value.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Projection) and self.content_hash == other.content_hash

    def __hash__(self) -> int:
        return hash(self.content_hash)


_PROJECTION_CODE = """\
basis, weights = (tensors[f"{step['edit']}.{n}"].to(x) for n in ("basis", "weights"))
part = part - ((part @ basis.T) * weights) @ basis
"""


def describe_tokens(tokens: TokenSelection) -> str:
    """Return the end of a description that names the tokens; empty for all tokens."""
    return " of the first token" if tokens == "first" else ""


def is_on_all_tokens(tokens: TokenSelection, site: Site) -> bool:
    """Whether every vector at a site is edited; a text has only one pooled vector."""
    return tokens == "all" or site.stream == "pooled"


def apply_to_tokens(
    activation: torch.Tensor,
    tokens: TokenSelection,
    function: Callable[[torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """Apply a function to the selected tokens of an activation."""
    # Two dimensions are [batch, width]: a pooled vector, which has no tokens to choose from.
    if tokens == "first" and activation.dim() > 2:
        return torch.cat([function(activation[:, :1]), activation[:, 1:]], dim=1)
    return function(activation)


def validate_tokens(tokens: TokenSelection) -> TokenSelection:
    """Return the token selection if it is valid; raise otherwise."""
    if tokens not in get_args(TokenSelection):
        raise UnknownNameError("choice of tokens", str(tokens), get_args(TokenSelection))
    return tokens


def _check_directions(basis: torch.Tensor, weights: torch.Tensor) -> None:
    if basis.dim() == 1:
        raise LevelheadError(
            "a single direction is given instead of a list", hint="give direction[None]"
        )
    if basis.dim() != 2 or not basis.shape[0] or weights.shape != basis.shape[:1]:
        raise LevelheadError(
            f"directions of shape {tuple(basis.shape)} do not fit weights of shape "
            f"{tuple(weights.shape)}",
            hint="give directions as [k, width], one per row, with one weight each",
        )
    if not (basis.isfinite().all() and weights.isfinite().all()):
        raise LevelheadError(
            "the directions or weights hold NaN or infinity", hint="fit the subspace again"
        )
    if weights.min() < 0 or weights.max() > 1:
        raise LevelheadError(
            f"the weights range from {weights.min():.3g} to {weights.max():.3g}",
            hint="give weights in [0, 1]: they are shares of variance",
        )
    # With oblique directions, the sum of components would not be a projection.
    gram = basis @ basis.T
    # 1e-5: directions that were orthonormalised in float32 pass, others do not.
    if not torch.allclose(gram, torch.eye(len(basis), dtype=torch.float64), atol=1e-5):
        raise LevelheadError(
            "the directions are not orthonormal",
            hint="orthonormalise them: torch.linalg.qr(basis.T).Q.T",
        )


def _validate_sites(sites: Iterable[Site]) -> tuple[Site, ...]:
    """Validate and sort sites; within one edit their order has no meaning."""
    # A single Site is a tuple as well: its fields would pass as a list.
    unchecked: tuple[object, ...] = tuple(sites)
    if not all(isinstance(site, Site) for site in unchecked):
        raise LevelheadError(
            f"{sites!r:.60} is not a list of sites",
            hint="write [Site('head_out', layer, head)], or [Site.from_paper_label('9-12')]",
        )
    ordered = tuple(
        sorted(
            map(validate_site, cast("tuple[Site, ...]", unchecked)),
            key=lambda site: (site.stream, site.layer, str(site)),
        )
    )
    if not ordered:
        raise LevelheadError("the edit has no site", hint="give at least one Site")
    if len(set(ordered)) < len(ordered):
        raise LevelheadError("a site occurs twice in one edit", hint="give each site once")
    return ordered


def _hash_tensor(tensor: torch.Tensor) -> str:
    # With dtype and shape: equal bytes of another shape are another tensor.
    header = f"{tensor.dtype} {tuple(tensor.shape)} ".encode()
    return hashlib.sha256(header + tensor.contiguous().numpy().tobytes()).hexdigest()
