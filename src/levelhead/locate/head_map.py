"""HeadMap: the contribution of every attention head, with intervals and corrected p-values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from levelhead.core.calibration import get_measure_key
from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.notebook import NotebookResult
from levelhead.core.results import Estimate, Interval, Measurement, Provenance, PValue, Record
from levelhead.models.sites import Site

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from levelhead.core.calibration import MeasureKey
    from levelhead.models.lm import LM

LocateMethod = Literal["gradient", "ablation", "path"]
Ablation = Literal["zero", "mean"]
Component = Literal["heads", "mlp", "embeddings"]
SplitBy = Literal["words", "contexts", "none"]


class UndeterminedSignError(NotMeasurableError):
    """The data do not show whether a larger or a smaller value of a measure is more bias."""


class BiasSign(Record):
    """Direction of a measure called bias (Yang et al. 2025, Eq. 4: |SEAT| = sign x SEAT)."""

    sign: Literal[-1, 0, 1]
    """0 if it is undetermined because the interval contains parity. Scores are then those of the
    value itself."""
    reason: str


class SplitReport(Record):
    """The values on the half that heads were chosen on, and on the half that confirms them."""

    split_by: SplitBy
    seed: int
    claim: str
    """Scope of a confirmed head: words like these, or these words only."""
    discovery: Estimate
    confirmation: Estimate | None = None


class ComponentScore(Record):
    """A part of a model: a head, a feed-forward layer or the embeddings. Counted from 0."""

    component: Component
    layer: Annotated[int, Field(ge=0)] = 0
    head: Annotated[int, Field(ge=0)] | None = None
    score: float
    """Score that ranks the part: the signed derivative of the measure by its mask, on the find
    half."""
    effect: float | None = None
    """Decrease of the measure without the part, on the confirmation half; positive: the part adds
    to the bias."""
    interval: Interval | None = None
    p: PValue | None = None
    detectable: float | None = None
    """The effect that the corrected test detects with 80% power, if only this part has an
    effect; None if the resamples are too few to detect any."""

    @property
    def site(self) -> Site:
        """Site of the part."""
        return component_site(self.component, self.layer, self.head)

    @property
    def label(self) -> str:
        """Label of the head as in the paper: <layer>-<head>, counted from 1."""
        if self.component == "heads":
            return head_label(self.site)
        return (
            self.component
            if self.component == "embeddings"
            else f"{self.component} {self.layer + 1}"
        )

    @property
    def is_significant(self) -> bool:
        """Whether the effect differs from 0 after correction."""
        # Adjusted: of 144 heads without an effect, seven would have a raw p below .05.
        return self.p is not None and self.p.adjusted is not None and self.p.adjusted <= 0.05


def head_label(site: Site) -> str:
    """Label of a head as in the paper: <layer>-<head>, counted from 1."""
    return f"{site.layer + 1}-{(site.head or 0) + 1}"


def component_site(component: Component, layer: int, head: int | None = None) -> Site:
    """The site of a part."""
    if component == "heads":
        return Site("head_out", layer, head)
    return Site("mlp_out", layer) if component == "mlp" else Site("embeddings")


class HeadMap(NotebookResult, Record):
    """Scores of all heads, with the settings and controls that they depend on."""

    method: LocateMethod
    ablation: Ablation
    layers: Annotated[int, Field(ge=1)]
    heads_per_layer: Annotated[int, Field(ge=1)]
    measure: str
    bias_sign: BiasSign
    split: SplitReport
    scores: tuple[ComponentScore, ...]
    """Heads in order of layer and number, followed by the other requested parts."""
    agreement: Estimate | None = None
    """Spearman's rank correlation of scores and effects on the same items, which compares the
    methods."""
    replication: Estimate | None = None
    """Spearman's rank correlation of scores on the discovery half and effects on the confirmation
    half."""
    measurement: Measurement
    notes: tuple[str, ...] = ()
    provenance: Provenance

    @property
    def measured_by(self) -> MeasureKey | None:
        """Key of the measure with this type of model."""
        return get_measure_key(self.measurement)

    @property
    def title(self) -> str:
        """The measure, the method and the verdict."""
        return f"{self.measure} by {self.method}: {self.verdict}"

    def to_rows(self) -> list[dict[str, object]]:
        """One row per head and other requested part, from the largest score to the least."""
        return [
            {
                "component": score.component,
                "layer": score.layer,
                "head": score.head,
                "label": score.label,
                "score": score.score,
                "effect": score.effect,
                "low": score.interval and score.interval.low,
                "high": score.interval and score.interval.high,
                "p": score.p and score.p.value,
                "p_adjusted": score.p and score.p.adjusted,
                "detectable": score.detectable,
                "significant": score.is_significant,
            }
            for score in sorted(self.scores, key=lambda score: -score.score)
        ]

    @property
    def heads(self) -> tuple[ComponentScore, ...]:
        """The attention heads only."""
        return tuple(score for score in self.scores if score.component == "heads")

    def grid(self, field: Literal["score", "effect"] = "score") -> NDArray[np.float64]:
        """`[layers, heads]` numbers; NaN for a head without such a number."""
        # NaN, not 0: a head that was not ablated is no head without an effect.
        grid = np.full((self.layers, self.heads_per_layer), np.nan)
        for head in self.heads:
            value = getattr(head, field)
            if value is not None:
                grid[head.layer, head.head] = value
        return grid

    @property
    def ranked_heads(self) -> tuple[ComponentScore, ...]:
        """Heads from the largest score to the smallest; ties by layer and head."""
        return tuple(sorted(self.heads, key=lambda head: (-head.score, head.layer, head.head)))

    def top(self, k: int) -> tuple[Site, ...]:
        """The k heads with the largest scores, all of them positive (Targeted-Debias)."""
        return self._take_first(k, self.positive_heads(), "positive")

    def bottom(self, k: int) -> tuple[Site, ...]:
        """The k heads with the most negative scores: the paper's anti-bias heads."""
        return self._take_first(k, self.negative_heads(), "negative")

    def positive_heads(self) -> tuple[Site, ...]:
        """All heads that add to the bias, the strongest first: the biased heads of the paper."""
        self._require_sign()
        return tuple(head.site for head in self.ranked_heads if head.score > 0)

    def negative_heads(self) -> tuple[Site, ...]:
        """All heads that reduce the bias, the strongest first."""
        self._require_sign()
        return tuple(head.site for head in reversed(self.ranked_heads) if head.score < 0)

    def confirmed_heads(self) -> tuple[Site, ...]:
        """Positive heads whose effect on the other half is positive, after correction."""
        if self.split.split_by == "none":
            raise NotMeasurableError(
                "heads were found and tested on the same items: none is confirmed",
                hint="give enough words or contexts for two halves",
            )
        # A significant effect may be negative: such a head works against the bias, so both the
        # score and the effect must be positive.
        score_of_site = {head.site: head for head in self.heads}
        return tuple(
            site
            for site in self.positive_heads()
            if score_of_site[site].is_significant and (score_of_site[site].effect or 0) > 0
        )

    @property
    def verdict(self) -> str:
        """The number of confirmed heads, or the reason why none can be confirmed."""
        if not self.bias_sign.sign:
            return "sign undetermined"
        if not any(head.effect is not None for head in self.heads):
            return "no head was tested"
        if self.split.split_by == "none":
            n_significant = sum(head.is_significant for head in self.heads)
            return f"{n_significant} significant on the same items (exploratory)"
        return f"{len(self.confirmed_heads())} confirmed"

    @model_validator(mode="after")
    def _check_complete(self) -> Self:
        """Raise an error for a truncated file, which must not be read as a map."""
        heads = [(head.layer, head.head) for head in self.heads]
        n_heads = self.layers * self.heads_per_layer
        if heads and (len(set(heads)) != len(heads) or len(heads) != n_heads):
            raise ValueError(f"a map of {n_heads} heads has {len(heads)} scores")
        return self

    def _take_first(self, k: int, sites: tuple[Site, ...], polarity: str) -> tuple[Site, ...]:
        if not 1 <= k <= len(sites):
            raise NotMeasurableError(
                f"{k} heads are wanted; {len(sites)} have a {polarity} score",
                hint=f"give a number from 1 to {len(sites)}" if sites else "nothing is to be had",
            )
        return sites[:k]

    def require_same_model(self, lm: LM) -> None:
        """Raise an error if a model is not that of the map: its heads would be different heads."""
        if lm.content_hash != self.provenance.model_hash:
            raise LevelheadError(
                f"the map was made of another model than {lm.identity.name}, or of another edit or "
                f"precision of it: {self.provenance.model_hash[:12]}, not {lm.content_hash[:12]}",
                hint="give the model, its edit and its precision as they were when the heads were "
                "located",
            )

    def _require_sign(self) -> None:
        if not self.bias_sign.sign:
            raise UndeterminedSignError(
                f"sign undetermined: {self.bias_sign.reason}",
                hint="give more words or contexts; or say which way is bias: bias_direction='+' "
                "or '-'",
            )

    def __str__(self) -> str:
        ranked_scores = sorted(self.scores, key=lambda score: -score.score)
        first = ", ".join(f"{score.label} {score.score:.3g}" for score in ranked_scores[:3])
        total = len(ranked_scores)
        return f"{self.measure} by {self.method}: {first} first of {total}; {self.verdict}"
