"""Edits: frozen values that say what happens to an activation, and where.

An edit is called with the activation at one of its sites and returns the edited one. It knows no
model: `LM.edited` checks that the model has its sites and widths.
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
from levelhead.core.errors import LevelheadError, UnknownName
from levelhead.models.sites import Site, checked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from levelhead.core.canonical_json import Json

Which = Literal["all", "first"]
"""The tokens an edit acts on."""


class EditParts(NamedTuple):
    """What an edit is made of, as a file keeps it."""

    at: tuple[Site, ...]
    settings: Mapping[str, Json]
    tensors: Mapping[str, torch.Tensor]


class Edit(ABC):
    """What happens to the activation at some sites. Abstract.

    An edit that is to be saved, loaded and exported defines `from_parts` and `standalone_code` too,
    and has a row in `levelhead.models.edits.kinds.EDIT_KINDS`.
    """

    kind: ClassVar[str]
    at: tuple[Site, ...]

    @abstractmethod
    def __call__(self, activation: torch.Tensor, site: Site) -> torch.Tensor:
        """The activation `[..., width]` at one of the sites, edited. Never in place."""

    @abstractmethod
    def matrix(self, site: Site, width: int) -> torch.Tensor | None:
        """`[width, width]` M in float64 of the map M x + c that it is for every token; or None."""

    def offset(self, site: Site, width: int) -> torch.Tensor | None:
        """`[width]` c in float64 with M x + c = self(x, site); None if it is linear: c is 0."""
        return None

    @abstractmethod
    def width(self, site: Site) -> int | None:
        """The only width of activation it fits; None if any."""

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, Json]:
        """Everything it is made of but its sites and tensors: texts and numbers, by name.

        An edit of the first token of every text alone has the setting `tokens`: "first".
        """

    @property
    @abstractmethod
    def tensors(self) -> Mapping[str, torch.Tensor]:
        """Its tensors, by field name."""

    def to_parts(self) -> EditParts:
        """What `from_parts` makes the same edit of."""
        return EditParts(self.at, self.settings, self.tensors)

    @classmethod
    def from_parts(cls, parts: EditParts) -> Self:
        """The edit that has these parts; TypeError or ValueError if they fit none."""
        raise LevelheadError(
            f"{cls.__name__} does not say how it is made of its sites, settings and tensors",
            mend=f"define the class method {cls.__name__}.from_parts",
        )

    def describe(self) -> str:
        """What it does, in words for the model card; its sites are named behind them."""
        told = ", ".join(f"{name} {value}" for name, value in self.settings.items())
        return f"an edit of kind `{self.kind}`" + (f" ({told})" if told else "")

    @classmethod
    def standalone_code(cls) -> str:
        """Lines of PyTorch that do what it does, for whoever has no levelhead.

        They make a new `part` (`[..., width]`: the activation at the site) of the old one.
        `step["name"]` is a setting, and `tensors[f"{step['edit']}.name"]` a tensor, by its name.
        What is of the first token alone is seen to outside of them.
        """
        raise LevelheadError(
            f"{cls.__name__} has no lines that apply it without levelhead",
            mend=f"define the class method {cls.__name__}.standalone_code, or save the edit alone "
            "with save_edits(edits, folder)",
        )

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 of everything it is made of: equal edits have equal hashes."""
        return content_hash(
            {
                "kind": self.kind,
                "at": [list(site) for site in self.at],
                "settings": dict(self.settings),
                "tensors": {name: _hash(value) for name, value in self.tensors.items()},
            }
        )


@final
@dataclass(frozen=True)
class HeadScale(Edit):
    """Multiply what some heads hand on by a factor: 0 masks, 1 changes nothing, 2 doubles.

    The mask m of Yang et al. 2025, Eq. 2. Scaling a head's output before the output projection is
    the same as scaling its attention probabilities: (m P) V = m (P V).

    >>> HeadScale([Site.paper("9-12")], 0)
    HeadScale(at=(Site(stream='head_out', layer=8, head=11),), factor=0.0)
    """

    at: tuple[Site, ...]
    factor: float
    kind: ClassVar[str] = "head_scale"

    def __init__(self, at: Iterable[Site], factor: float) -> None:
        object.__setattr__(self, "at", _sites(at))
        object.__setattr__(self, "factor", float(factor))
        if not math.isfinite(self.factor):
            raise LevelheadError(
                f"a head cannot be scaled by {factor}", mend="give a finite factor; 0 masks a head"
            )
        for site in self.at:
            if site.stream != "head_out" or site.head is None:
                raise LevelheadError(
                    f"HeadScale acts on heads, not on {site}",
                    mend="give sites like Site('head_out', layer, head)",
                )

    def __call__(self, activation: torch.Tensor, site: Site) -> torch.Tensor:
        """The activation times the factor."""
        return activation * self.factor

    def matrix(self, site: Site, width: int) -> torch.Tensor:
        """The factor times the identity."""
        return torch.eye(width, dtype=torch.float64) * self.factor

    def width(self, site: Site) -> None:
        """Any."""
        return

    @property
    def settings(self) -> Mapping[str, Json]:
        """The factor."""
        return {"factor": self.factor}

    @classmethod
    def from_parts(cls, parts: EditParts) -> Self:
        """Of its sites and its factor."""
        return cls(parts.at, **cast("dict[str, Any]", {**parts.settings, **parts.tensors}))

    def describe(self) -> str:
        """By what is multiplied."""
        return f"what heads hand on is multiplied by {self.factor:g}"

    @classmethod
    def standalone_code(cls) -> str:
        """A product."""
        return 'part = part * step["factor"]\n'

    @property
    def tensors(self) -> Mapping[str, torch.Tensor]:
        """None."""
        return {}


@final
@dataclass(frozen=True, eq=False)
class Projection(Edit):
    """Take out of an activation what lies along some directions (Dawkins et al. 2024, Eq. 5).

    h' = h - sum_i w_i <h, g_i> g_i, with orthonormal g_i. Without weights all w_i are 1 (hard):
    nothing is left along g_i. With weights in [0, 1] (the paper: the share of variance that the
    component explains) a part is left.
    """

    site: Site
    _basis: torch.Tensor = field(repr=False)
    _weights: torch.Tensor
    tokens: Which = "all"
    kind: ClassVar[str] = "projection"

    def __init__(
        self,
        site: Site,
        basis: torch.Tensor,
        *,
        weights: torch.Tensor | None = None,
        tokens: Which = "all",
    ) -> None:
        basis = torch.as_tensor(basis).detach().to("cpu", torch.float64, copy=True)
        ones = torch.ones(basis.shape[:1], dtype=torch.float64)
        given = ones if weights is None else torch.as_tensor(weights).detach()
        weights = given.to("cpu", torch.float64, copy=True)
        _check_directions(basis, weights)
        object.__setattr__(self, "site", checked(site))
        object.__setattr__(self, "_basis", basis)
        object.__setattr__(self, "_weights", weights)
        object.__setattr__(self, "tokens", checked_tokens(tokens))

    @property
    def basis(self) -> torch.Tensor:
        """`[k, width]` in float64, one orthonormal direction a row. A copy: edits are frozen."""
        return self._basis.clone()

    @property
    def weights(self) -> torch.Tensor:
        """`[k]` in [0, 1], float64. A copy."""
        return self._weights.clone()

    @property
    def at(self) -> tuple[Site, ...]:  # type: ignore[override]  # a field there, derived here
        """The one site."""
        return (self.site,)

    def __call__(self, activation: torch.Tensor, site: Site) -> torch.Tensor:
        """What is left of the activation."""
        return at_tokens(activation, self.tokens, self._taken_out)

    def along(self, activation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The directions `[k, width]`, and how much `[..., k]` of an activation is taken out."""
        basis = self._basis.to(activation)
        return basis, (activation @ basis.T) * self._weights.to(activation)

    def _taken_out(self, activation: torch.Tensor) -> torch.Tensor:
        basis, along = self.along(activation)
        return activation - along @ basis

    def matrix(self, site: Site, width: int) -> torch.Tensor | None:
        """I - G^T diag(w) G, if all tokens are edited; a pooled vector is all there is."""
        if not is_everywhere(self.tokens, site):
            return None
        eye = torch.eye(width, dtype=torch.float64)
        return eye - self._basis.T @ (self._weights[:, None] * self._basis)

    def width(self, site: Site) -> int:
        """That of its directions."""
        return int(self._basis.shape[1])

    @property
    def settings(self) -> Mapping[str, Json]:
        """Which tokens."""
        return {"tokens": self.tokens}

    @property
    def tensors(self) -> Mapping[str, torch.Tensor]:
        """The directions and their weights."""
        return {"basis": self.basis, "weights": self.weights}

    @classmethod
    def from_parts(cls, parts: EditParts) -> Self:
        """Of its site, which tokens, and its directions and weights."""
        (site,) = parts.at
        return cls(site, **cast("dict[str, Any]", {**parts.settings, **parts.tensors}))

    def describe(self) -> str:
        """How many directions are taken out, and how much of them."""
        weights = self._weights.tolist()
        is_hard = all(weight == 1 for weight in weights)
        part = (
            "wholly" if is_hard else f"in part (weights {', '.join(f'{w:.3g}' for w in weights)})"
        )
        return f"{len(weights)} direction(s) taken out {part}{of_tokens(self.tokens)}"

    @classmethod
    def standalone_code(cls) -> str:
        """What lies along the directions, subtracted."""
        return _PROJECTION_CODE

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Projection) and self.content_hash == other.content_hash

    def __hash__(self) -> int:
        return hash(self.content_hash)


_PROJECTION_CODE = """\
basis, weights = (tensors[f"{step['edit']}.{n}"].to(x) for n in ("basis", "weights"))
part = part - ((part @ basis.T) * weights) @ basis
"""


def of_tokens(tokens: Which) -> str:
    """Which tokens, as the end of a description; all go without saying."""
    return " of the first token" if tokens == "first" else ""


def is_everywhere(tokens: Which, site: Site) -> bool:
    """Whether every vector at a site is treated alike; a text has but one pooled vector."""
    return tokens == "all" or site.stream == "pooled"


def at_tokens(
    activation: torch.Tensor, tokens: Which, act: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """The activation with some of its tokens acted on."""
    if tokens == "first" and activation.dim() > 2:  # [batch, token, width]
        return torch.cat([act(activation[:, :1]), activation[:, 1:]], dim=1)
    return act(activation)


def checked_tokens(tokens: Which) -> Which:
    """The choice of tokens, if it is one."""
    if tokens not in get_args(Which):
        raise UnknownName("choice of tokens", str(tokens), get_args(Which))
    return tokens


def _check_directions(basis: torch.Tensor, weights: torch.Tensor) -> None:
    if basis.dim() == 1:
        raise LevelheadError("one direction where a list is wanted", mend="give direction[None]")
    if basis.dim() != 2 or not basis.shape[0] or weights.shape != basis.shape[:1]:
        raise LevelheadError(
            f"directions of shape {tuple(basis.shape)} with weights {tuple(weights.shape)}",
            mend="give directions as [k, width], one a row, with one weight each",
        )
    if not (basis.isfinite().all() and weights.isfinite().all()):
        raise LevelheadError(
            "the directions or weights hold NaN or infinity", mend="fit the subspace again"
        )
    if weights.min() < 0 or weights.max() > 1:
        raise LevelheadError(
            f"the weights reach from {weights.min():.3g} to {weights.max():.3g}",
            mend="weights are shares of variance: keep them in [0, 1]",
        )
    gram = basis @ basis.T
    if not torch.allclose(gram, torch.eye(len(basis), dtype=torch.float64), atol=1e-5):
        raise LevelheadError(
            "the directions are not orthonormal",
            mend="orthonormalise them first: torch.linalg.qr(basis.T).Q.T",
        )


def _sites(at: Iterable[Site]) -> tuple[Site, ...]:
    """Checked, and sorted: within one edit their order means nothing."""
    given: tuple[object, ...] = tuple(at)  # one Site is a tuple too, of other things
    if not all(isinstance(site, Site) for site in given):
        raise LevelheadError(
            f"{at!r:.60} is no list of sites",
            mend="write [Site('head_out', layer, head)], or [Site.paper('9-12')]",
        )
    sites = tuple(
        sorted(
            map(checked, cast("tuple[Site, ...]", given)),
            key=lambda site: (site.stream, site.layer, str(site)),
        )
    )
    if not sites:
        raise LevelheadError("an edit needs a site", mend="give at least one Site")
    if len(set(sites)) < len(sites):
        raise LevelheadError("a site is named twice in one edit", mend="name each site once")
    return sites


def _hash(tensor: torch.Tensor) -> str:
    head = f"{tensor.dtype} {tuple(tensor.shape)} ".encode()
    return hashlib.sha256(head + tensor.contiguous().numpy().tobytes()).hexdigest()
