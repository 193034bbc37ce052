"""FeatureMap: which features of a sparse dictionary add to a measure."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from levelhead.core.notebook import NotebookResult
from levelhead.core.results import Estimate, Provenance, Record
from levelhead.locate.head_map import BiasSign, SplitBy
from levelhead.locate.patching.mediation_map import SIGNIFICANT
from levelhead.models.sites import Stream


class FeatureEffect(Record):
    """A feature, and what it adds to the bias."""

    feature: Annotated[int, Field(ge=0)]
    """Number in the dictionary."""
    attribution: float
    """Linear approximation, on the half that ranks, in the direction of the bias."""
    discovery: float
    """Effect of its exact ablation on the half that ranks."""
    ablation: Estimate | None = None
    """Effect on the other half: bias of the model less that without the feature. None: its ablation
    changes nothing."""

    @property
    def is_confirmed(self) -> bool:
        """Whether the feature adds to the bias, after correction for all that were ablated."""
        if self.ablation is None or self.ablation.p is None or self.ablation.p.adjusted is None:
            return False
        return self.ablation.p.adjusted <= SIGNIFICANT and self.ablation.value > 0


class FeatureMap(NotebookResult, Record):
    """Features of a dictionary by what they add to a measure."""

    measure: str
    site: tuple[Stream, int, int | None]
    dictionary: str
    """SHA-256 of the dictionary."""
    n_features: int
    n_attributed: int
    """Number of features that are active where the measure reads."""
    baseline: str
    split_by: SplitBy
    claim: str
    """Scope of what is confirmed: words like these, or these words only."""
    bias_sign: BiasSign
    discovery_base: Estimate
    """The measure on the half that ranks."""
    base: Estimate
    """The measure on the half that confirms."""
    effects: tuple[FeatureEffect, ...]
    """The features that were ablated, from the largest attribution."""
    agreement: Estimate | None = None
    """Spearman's correlation of attribution and exact ablation on the same half."""
    dropped: tuple[tuple[str, int], ...] = ()
    """Reasons why items have no twin, with counts."""
    n_items: int
    provenance: Provenance

    @property
    def confirmed(self) -> tuple[FeatureEffect, ...]:
        """The features that are shown to add to the bias, largest first."""
        # A bias that is not shown is carried by nothing.
        if not self.bias_sign.sign:
            return ()
        confirmed = [effect for effect in self.effects if effect.is_confirmed]
        return tuple(
            sorted(confirmed, key=lambda row: -(row.ablation.value if row.ablation else 0.0))
        )

    @property
    def verdict(self) -> str:
        """The number of features that add to the bias, or why none can be named."""
        if not self.bias_sign.sign:
            return f"inconclusive: no bias is shown ({self.bias_sign.reason})"
        scope = "exploratory" if self.split_by == "none" else "confirmed"
        return f"{len(self.confirmed)} of {len(self.effects)} ablated features add to it ({scope})"

    @property
    def title(self) -> str:
        """The measure and the verdict."""
        return f"{self.measure}, features of a dictionary of {self.n_features}: {self.verdict}"

    def to_rows(self) -> list[dict[str, object]]:
        """One row for each feature that was ablated, from the largest attribution."""
        confirmed = {effect.feature for effect in self.confirmed}
        return [
            {
                "feature": effect.feature,
                "attribution": effect.attribution,
                "discovery": effect.discovery,
                "ablation": effect.ablation and effect.ablation.value,
                "low": effect.ablation and effect.ablation.interval.low,
                "high": effect.ablation and effect.ablation.interval.high,
                "p_adjusted": effect.ablation and effect.ablation.p and effect.ablation.p.adjusted,
                "is_confirmed": effect.feature in confirmed,
            }
            for effect in self.effects
        ]

    def __str__(self) -> str:
        first = ", ".join(f"{row.feature} {row.attribution:.3g}" for row in self.effects[:3])
        return f"{self.title}; {first} first of {self.n_attributed} active"
