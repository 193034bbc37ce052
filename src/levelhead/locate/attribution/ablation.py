"""Ablation: the output of a part is replaced by zero or by its mean."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple, final

import torch

from levelhead.models.edits.base import Edit, HeadScale
from levelhead.models.sites import Site, Stream

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.core.canonical_json import Json


class AblationVariant(NamedTuple):
    """Parts of the model that are scaled, or set to their means."""

    sites: tuple[Site, ...]
    factor: float | None = 0.0
    """0 ablates, 2 doubles; None: replaced by the mean over the tokens of the queries."""

    @property
    def as_json(self) -> tuple[Json, ...]:
        """The variant as plain JSON."""
        return tuple(tuple(site) for site in self.sites), self.factor

    @classmethod
    def from_json(
        cls, values: tuple[Sequence[tuple[Stream, int, int | None]], float | None]
    ) -> AblationVariant:
        """Read the variant from plain JSON."""
        sites, factor = values
        return cls(tuple(Site(*site) for site in sites), factor)

    def make_edit(self, means: Mapping[Site, torch.Tensor]) -> Edit:
        """The edits that make the variant of the model."""
        if self.factor is None:
            return AblationEdit(self.sites, tuple(means[site] for site in self.sites))
        if all(site.stream == "head_out" for site in self.sites):
            return HeadScale(self.sites, self.factor)
        return AblationEdit(self.sites, factor=self.factor)


@final
@dataclass(frozen=True, eq=False)
class AblationEdit(Edit):
    """Scale any site, or replace it by a constant; for measuring only, never saved with a model."""

    sites: tuple[Site, ...]
    means: tuple[torch.Tensor, ...] = field(default=(), repr=False)
    factor: float = 0.0
    kind: ClassVar[str] = "ablated"

    def __call__(self, activation: torch.Tensor, site: Site) -> torch.Tensor:
        """The mean of the site for all tokens, or the activation times the factor."""
        if not self.means:
            return activation * self.factor
        # One vector at every token; padding gets it as well, which attention does not read.
        return self.means[self.sites.index(site)].to(activation).expand_as(activation)

    def matrix(self, site: Site, width: int) -> torch.Tensor | None:
        """The factor times the identity; None for a mean."""
        return None if self.means else torch.eye(width, dtype=torch.float64) * self.factor

    def width(self, site: Site) -> int | None:
        """Width of the mean."""
        return len(self.means[self.sites.index(site)]) if self.means else None

    @property
    def settings(self) -> Mapping[str, Json]:
        """The factor."""
        return {"factor": self.factor}

    @property
    def tensors(self) -> Mapping[str, torch.Tensor]:
        """The means."""
        return {str(site): mean for site, mean in zip(self.sites, self.means, strict=False)}
