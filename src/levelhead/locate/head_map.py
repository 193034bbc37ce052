"""HeadMap: what every attention head adds to a measure, with intervals and corrected p-values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from levelhead.core.calibration import ruler_of
from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.results import Estimate, Interval, Measurement, Provenance, PValue, Record
from levelhead.models.sites import Site

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from levelhead.core.calibration import Ruler
    from levelhead.models.lm import LM

By = Literal["gradient", "ablation", "path"]
Ablation = Literal["zero", "mean"]
Part = Literal["heads", "mlp", "embeddings"]
SplitBy = Literal["words", "contexts", "none"]


class UndeterminedSign(NotMeasurable):
    """Whether more or less of a measure is more bias cannot be told from the data."""


class Direction(Record):
    """Which way of a measure is called bias (Yang et al. 2025, Eq. 4: |SEAT| = sign x SEAT)."""

    sign: Literal[-1, 0, 1]
    """0: undetermined, the interval contains parity. Scores are then those of the plain value."""
    why: str


class Halves(Record):
    """What was found on one half of the items and confirmed on the other."""

    by: SplitBy
    seed: int
    claim: str
    """What a confirmed head may be said to do: for words like these, or for these words."""
    find: Estimate
    confirm: Estimate | None = None


class PartScore(Record):
    """One part of a model: a head, a feed-forward, the embeddings. Counted from 0."""

    part: Part
    layer: Annotated[int, Field(ge=0)] = 0
    head: Annotated[int, Field(ge=0)] | None = None
    score: float
    """What ranks it: the signed derivative of the measure by its mask, on the find half."""
    effect: float | None = None
    """What the measure loses without it, on the confirm half; positive: it adds to the bias."""
    interval: Interval | None = None
    p: PValue | None = None
    detectable: float | None = None
    """The effect that the corrected test would have found four times out of five, if this part
    alone had one; None where so few draws find none."""

    @property
    def site(self) -> Site:
        """Where it is."""
        return site_of(self.part, self.layer, self.head)

    @property
    def label(self) -> str:
        """As the paper writes it: <layer>-<head>, counted from 1."""
        if self.part == "heads":
            return label(self.site)
        return self.part if self.part == "embeddings" else f"{self.part} {self.layer + 1}"

    @property
    def is_significant(self) -> bool:
        """Whether its effect differs from 0 after correction."""
        return self.p is not None and self.p.adjusted is not None and self.p.adjusted <= 0.05


def label(site: Site) -> str:
    """A head as the paper writes it: <layer>-<head>, counted from 1."""
    return f"{site.layer + 1}-{(site.head or 0) + 1}"


def site_of(part: Part, layer: int, head: int | None = None) -> Site:
    """The site of a part."""
    if part == "heads":
        return Site("head_out", layer, head)
    return Site("mlp_out", layer) if part == "mlp" else Site("embeddings")


class HeadMap(Record):
    """Scores of all heads, and all that belongs to them."""

    by: By
    ablation: Ablation
    layers: Annotated[int, Field(ge=1)]
    heads_a_layer: Annotated[int, Field(ge=1)]
    measure: str
    direction: Direction
    halves: Halves
    scores: tuple[PartScore, ...]
    """Heads in order of layer and number, then the other parts that were asked for."""
    agreement: Estimate | None = None
    """Spearman's rank correlation of score and effect, on the same items: do the methods agree?"""
    replication: Estimate | None = None
    """The same of the scores on the find half and the effects on the confirm half."""
    measurement: Measurement
    notes: tuple[str, ...] = ()
    provenance: Provenance

    @property
    def measured_by(self) -> Ruler | None:
        """What it is measured by."""
        return ruler_of(self.measurement)

    @property
    def heads(self) -> tuple[PartScore, ...]:
        """The attention heads alone."""
        return tuple(one for one in self.scores if one.part == "heads")

    def grid(self, what: Literal["score", "effect"] = "score") -> NDArray[np.float64]:
        """`[layers, heads]`; NaN where a head has no such number."""
        grid = np.full((self.layers, self.heads_a_layer), np.nan)
        for one in self.heads:
            value = getattr(one, what)
            if value is not None:
                grid[one.layer, one.head] = value
        return grid

    @property
    def ranked(self) -> tuple[PartScore, ...]:
        """Heads from the largest score to the least; ties by layer and head."""
        return tuple(sorted(self.heads, key=lambda one: (-one.score, one.layer, one.head)))

    def top(self, k: int) -> tuple[Site, ...]:
        """The k heads with the largest scores, all of them positive (Targeted-Debias)."""
        return self._first(k, self.positive(), "positive")

    def bottom(self, k: int) -> tuple[Site, ...]:
        """The k heads with the most negative scores: the paper's anti-bias heads."""
        return self._first(k, self.negative(), "negative")

    def positive(self) -> tuple[Site, ...]:
        """All heads that add to the bias, the strongest first: the paper's biased heads."""
        self._refuse_undetermined()
        return tuple(one.site for one in self.ranked if one.score > 0)

    def negative(self) -> tuple[Site, ...]:
        """All heads that take from it, the strongest first."""
        self._refuse_undetermined()
        return tuple(one.site for one in reversed(self.ranked) if one.score < 0)

    def confirmed(self) -> tuple[Site, ...]:
        """Positive heads whose effect on the other half is positive, after correction."""
        if self.halves.by == "none":
            raise NotMeasurable(
                "heads were found and judged on the same items: none is confirmed",
                mend="give enough words or contexts for two halves",
            )
        own = {one.site: one for one in self.heads}
        return tuple(
            site
            for site in self.positive()
            if own[site].is_significant and (own[site].effect or 0) > 0
        )

    @property
    def verdict(self) -> str:
        """How many heads are confirmed, or why none can be."""
        if not self.direction.sign:
            return "sign undetermined"
        if not any(one.effect is not None for one in self.heads):
            return "no head was tested"
        if self.halves.by == "none":
            sure = sum(one.is_significant for one in self.heads)
            return f"{sure} significant on the same items (exploratory)"
        return f"{len(self.confirmed())} confirmed"

    @model_validator(mode="after")
    def _whole(self) -> Self:
        """A file cut short must not read as a map."""
        heads = [(one.layer, one.head) for one in self.heads]
        every = self.layers * self.heads_a_layer
        if heads and (len(set(heads)) != len(heads) or len(heads) != every):
            raise ValueError(f"a map of {every} heads has {len(heads)} scores")
        return self

    def _first(self, k: int, sites: tuple[Site, ...], which: str) -> tuple[Site, ...]:
        if not 1 <= k <= len(sites):
            raise NotMeasurable(
                f"{k} heads are wanted; {len(sites)} have a {which} score",
                mend=f"give a number from 1 to {len(sites)}" if sites else "nothing is to be had",
            )
        return sites[:k]

    def refuse_other(self, lm: LM) -> None:
        """Refuse a model that the map was not made of: its heads would be others."""
        if lm.content_hash != self.provenance.model_hash:
            raise LevelheadError(
                f"the map was made of another model than {lm.identity.name}, or of another edit or "
                f"precision of it: {self.provenance.model_hash[:12]}, not {lm.content_hash[:12]}",
                mend="give the model, its edit and its precision as they were when the heads were "
                "located",
            )

    def _refuse_undetermined(self) -> None:
        if not self.direction.sign:
            raise UndeterminedSign(
                f"sign undetermined: {self.direction.why}",
                mend="give more words or contexts; or say which way is bias: sign='+' or sign='-'",
            )

    def __str__(self) -> str:
        ranked = sorted(self.scores, key=lambda one: -one.score)
        first = ", ".join(f"{one.label} {one.score:.3g}" for one in ranked[:3])
        return f"{self.measure} by {self.by}: {first} first of {len(ranked)}; {self.verdict}"
