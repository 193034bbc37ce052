"""Counterfactuals beyond their control: what changes with the group and not with any other word.

`Counterfactual` sets a classifier's decisions beside those on placebo twins. Here the two are one
formula of the same texts, with a parity of 0, so that an edit can be chosen by it. The difference
also shrinks where placebo twins flip more: who chooses by it asks that `part` falls as well. And it
shrinks in proportion where all decisions flip less: a calmer classifier is not told from one that
heeds the group less.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, final

import torch

from levelhead.core.errors import NotMeasurable
from levelhead.measures.base import Measure, Need
from levelhead.measures.classification.counterfactual import FEWEST, Counterfactual
from levelhead.measures.classification.group_rates import paired_shares
from levelhead.measures.metric import scaled
from levelhead.measures.reductions import of_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from levelhead.core.results import Interval
    from levelhead.measures.items import Asked
    from levelhead.measures.metric import Aspect, PerItem
    from levelhead.measures.responses import Readouts
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Design

WITHOUT = "no placebo twin: its words have no other of their group"


@final
@dataclass(frozen=True)
class Excess(Measure):
    """Flips (or the shift) of texts and their twins, less those of texts and placebo twins."""

    of: Counterfactual = field(default_factory=Counterfactual)
    """Which texts, lexicon, classes and headline."""

    needs: ClassVar[tuple[Need, ...]] = Counterfactual.needs
    of_the_model: ClassVar[tuple[str, ...]] = Counterfactual.of_the_model

    @property
    def smooth(self) -> Excess:
        """The same with the headline whose gradient is not zero."""
        return replace(self, of=replace(self.of, metric="counterfactual_shift"))

    @property
    def compared(self) -> tuple[str, ...]:
        """The two groups that are exchanged."""
        return self.of.compared

    @property
    def data(self) -> Mapping[str, str]:
        """As of the counterfactual."""
        return self.of.data

    @property
    def settings(self) -> dict[str, object]:
        """As of the counterfactual."""
        return self.of.settings

    def questions(self, lm: LM) -> tuple[Asked, ...]:
        """Every text, its twin and its placebo twin; texts without one are dropped."""
        real, *controls = self.of.asked(lm)
        placebos = {item.id: item.asks[1] for one in controls for item in one.items}
        if len(placebos) < FEWEST:
            raise NotMeasurable(
                f"{len(placebos)} of {len(real.items)} texts have a placebo twin, {FEWEST} are "
                "needed",
                mend="give more texts, a lexicon with placebos, or count flips without a control",
            )
        items = tuple(
            item._replace(asks=(*item.asks, placebos[item.id]))
            if item.id in placebos
            else item._replace(asks=(), cannot=item.cannot or WITHOUT)
            for item in real.items
        )
        return (real._replace(items=items),)

    def design(self, readouts: Readouts, aspect: Aspect) -> Design:
        """Texts; the same text twice is one, and so are a text and its twin."""
        return readouts.design()

    @property
    def formulas(self) -> tuple[Aspect, ...]:
        """The excess of flips and that of the shift, as the counterfactual has them."""
        return tuple(map(_excess, self.of.aspects))

    @property
    def part(self) -> Aspect:
        """Flips (or the shift) with the group alone, of the same texts: what must fall as well."""
        own = self.of.headline
        return replace(
            own,
            name=f"{own.name} of texts with placebo twins",
            per_item=lambda readouts: _both(own.per_item)(readouts)[:, 0],
            parity=None,
            null=None,
            lean=None,
            role="bias",
        )


def _excess(aspect: Aspect) -> Aspect:
    return replace(
        aspect,
        name=f"{aspect.name}, excess over placebo twins",
        equation=f"{aspect.equation}, less the same of placebo twins",
        per_item=_both(aspect.per_item),
        over=of_columns(aspect.over, 0, 1),
        low=-aspect.high,
        direction=f"{aspect.direction} than with other words of the same group",
        comparable=f"{aspect.comparable}, excess",
        parity=0.0,
        companion=aspect.companion and f"{aspect.companion}, excess over placebo twins",
        closed=_percent_points if aspect.is_step else None,
    )


def _percent_points(values: torch.Tensor, design: Design, level: float) -> Interval:
    """Bonett and Price's, which has a width where nothing flips; resampling has none there."""
    return scaled(paired_shares(values, design, level), 100)


def _both(per_item: PerItem) -> PerItem:
    """`[texts, 2]`: of text and twin, and of text and placebo twin."""

    def of(readouts: Readouts) -> torch.Tensor:
        pairs = [replace(readouts, values=readouts.values[:, [0, other]]) for other in (1, 2)]
        return torch.stack([per_item(one) for one in pairs], dim=1)

    return of
