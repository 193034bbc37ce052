"""MediationMap: how much of the effect of a counterfactual passes through each part of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from levelhead.core.notebook import NotebookResult
from levelhead.core.results import Estimate, Measurement, Provenance, Record
from levelhead.locate.head_map import Component, SplitBy, component_site, head_label

if TYPE_CHECKING:
    from levelhead.models.sites import Site

SIGNIFICANT = 0.05


class MediatedEffect(Record):
    """A part of a model, and the effects of the counterfactual through it and past it."""

    component: Component
    layer: Annotated[int, Field(ge=0)] = 0
    head: Annotated[int, Field(ge=0)] | None = None
    attribution: float
    """Linear approximation of the indirect effect, on the half that ranks."""
    indirect: Estimate | None = None
    """Natural indirect effect on the other half: the texts with this part of their twins, less the
    texts. None: not patched, or the exchange changes nothing."""
    direct: Estimate | None = None
    """Natural direct effect: the twins with this part of the texts, less the texts."""

    @property
    def site(self) -> Site:
        """Site of the part."""
        return component_site(self.component, self.layer, self.head)

    @property
    def label(self) -> str:
        """Label of the head as in the papers, <layer>-<head> counted from 1, or of the layer."""
        if self.component == "heads":
            return head_label(self.site)
        return self.component + ("" if self.component == "embeddings" else f" {self.layer + 1}")

    def mediates(self, total: Estimate) -> bool:
        """Whether the indirect effect is significant after correction, and has the total's sign."""
        return (
            self.indirect is not None
            and self.indirect.p is not None
            # Without a corrected p-value nothing is shown.
            and self.indirect.p.adjusted is not None
            and self.indirect.p.adjusted <= SIGNIFICANT
            and self.indirect.value * total.value > 0
        )


class MediationMap(NotebookResult, Record):
    """Total, indirect and direct effects of an exchange of words (Vig et al. 2020, section 3).

    With x a text, x' its twin and z a part of the model: the total effect is L(x') - L(x), the
    indirect effect L(x, z of x') - L(x), the direct effect L(x', z of x) - L(x). Differences, and
    not ratios as in the paper, because a measure may be 0 or negative.
    """

    measure: str
    twins: str
    """Words that are exchanged: the name of a lexicon, or "words"."""
    tokens: str
    """Tokens whose activations are exchanged: all, exchanged or others."""
    split_by: SplitBy
    claim: str
    """Scope of what is confirmed: words like these, or these words only."""
    total: Estimate
    """Total effect on the half that confirms."""
    discovery_total: Estimate
    """Total effect on the half that ranks."""
    effects: tuple[MediatedEffect, ...]
    agreement: Estimate | None = None
    """Spearman's correlation of attributions and exact indirect effects on the same half."""
    dropped: tuple[tuple[str, int], ...] = ()
    """Reasons why items have no twin, with counts."""
    n_items: int
    """Items with a twin, in both halves."""
    measurement: Measurement
    notes: tuple[str, ...] = ()
    provenance: Provenance

    @property
    def is_total_shown(self) -> bool:
        """Whether the total effect differs from 0 on both halves, in the same direction."""
        estimates = (self.total, self.discovery_total)
        return all(0.0 not in estimate.interval for estimate in estimates) and (
            self.total.value * self.discovery_total.value > 0
        )

    @property
    def ranked(self) -> tuple[MediatedEffect, ...]:
        """The parts from the largest attribution, in the direction of the total effect."""
        sign = -1 if self.discovery_total.value < 0 else 1
        return tuple(
            sorted(
                self.effects,
                key=lambda effect: (-sign * effect.attribution, effect.layer, effect.head or 0),
            )
        )

    @property
    def mediators(self) -> tuple[MediatedEffect, ...]:
        """The parts through which a confirmed part of the total effect passes, largest first."""
        # A part of an effect that is not there cannot be carried by anything.
        if not self.is_total_shown:
            return ()
        found = [effect for effect in self.effects if effect.mediates(self.total)]
        return tuple(
            sorted(found, key=lambda effect: -abs(effect.indirect.value if effect.indirect else 0))
        )

    def share(self, effect: MediatedEffect) -> float | None:
        """Indirect effect over total effect; None if either is not known."""
        if effect.indirect is None or not self.is_total_shown:
            return None
        return effect.indirect.value / self.total.value

    @property
    def verdict(self) -> str:
        """The number of parts that carry the effect, or why none can be named."""
        if not self.is_total_shown:
            return "inconclusive: the exchange of words is not shown to change the measure"
        n_patched = sum(effect.indirect is not None for effect in self.effects)
        if not n_patched:
            return "no part was patched"
        scope = "exploratory" if self.split_by == "none" else "confirmed"
        return f"{len(self.mediators)} of {n_patched} patched parts carry it ({scope})"

    @property
    def title(self) -> str:
        """The measure and the verdict."""
        return f"{self.measure}, twins by {self.twins}: {self.verdict}"

    def to_rows(self) -> list[dict[str, object]]:
        """One row for each part, from the largest attribution."""
        rows: list[dict[str, object]] = []
        for effect in self.ranked:
            row: dict[str, object] = {
                "component": effect.component,
                "layer": effect.layer,
                "head": effect.head,
                "label": effect.label,
                "attribution": effect.attribution,
            }
            for name, estimate in (("indirect", effect.indirect), ("direct", effect.direct)):
                interval = estimate and estimate.interval
                row |= {
                    name: estimate and estimate.value,
                    f"{name}_low": interval and interval.low,
                    f"{name}_high": interval and interval.high,
                    f"{name}_p_adjusted": estimate and estimate.p and estimate.p.adjusted,
                }
            rows.append(row | {"share": self.share(effect), "mediates": effect in self.mediators})
        return rows

    def __str__(self) -> str:
        first = ", ".join(f"{effect.label} {effect.attribution:.3g}" for effect in self.ranked[:3])
        return f"{self.title}; {first} first of {len(self.effects)}"
