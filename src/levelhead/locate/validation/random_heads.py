"""Is it these heads, or any heads? Chosen heads beside random ones of the same layers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from levelhead.core.calibration import Ruler
from levelhead.core.errors import LevelheadError
from levelhead.core.results import Estimate, PValue, Record
from levelhead.core.run_context import Inference, RunContext
from levelhead.locate.attribution.ablation import Variant
from levelhead.locate.attribution.variants import vary
from levelhead.locate.effects import effects
from levelhead.locate.head_map import label
from levelhead.models.sites import Site

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.measures.base import Measure
    from levelhead.measures.responses import Readouts
    from levelhead.models.lm import LM

FEWEST = 199


class Control(Record):
    """What masking some heads does, beside masking random heads of the same layers."""

    heads: tuple[str, ...]
    """As the paper labels them, <layer>-<head>, counted from 1."""
    effect: Estimate
    """By how much the measure falls, joint mask, on the confirm half."""
    random: tuple[float, ...]
    """The same of every random set."""
    p: PValue
    """That random heads of these layers do as much: (b + 1) / (m + 1)."""
    notes: tuple[str, ...] = ()
    measured_by: Ruler | None = None
    """What it is measured by."""

    @property
    def median(self) -> float:
        """Of the random sets."""
        return float(np.median(self.random))

    @property
    def top(self) -> float:
        """The 95th percentile of the random sets."""
        return float(np.quantile(self.random, 0.95))


def random_heads(
    sites: Sequence[Site], heads_a_layer: int, *, rng: np.random.Generator
) -> tuple[Site, ...]:
    """As many heads of every layer as there are among some, drawn at random."""
    found = []
    for layer, count in sorted(Counter(site.layer for site in sites).items()):
        chosen = rng.choice(heads_a_layer, count, replace=False)
        found += [Site("head_out", layer, int(head)) for head in sorted(chosen)]
    return tuple(found)


def control(
    lm: LM,
    measure: Measure,
    readouts: Readouts,
    sites: Sequence[Site],
    *,
    sign: int = 1,
    draws: int = 199,
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> Control:
    """Mask some heads, and random ones of the same layers as often as wanted.

    Args:
        lm: the model.
        measure: what falls.
        readouts: of the confirm half, on which the heads were not chosen.
        sites: the chosen heads.
        sign: which way of the measure is bias.
        draws: random sets.
        inference: seed and level.
        context: store, threads, progress and cancellation.
    """
    if draws < FEWEST:
        raise LevelheadError(f"{draws} random sets say little", mend=f"give at least {FEWEST}")
    if not sites or any(site.stream != "head_out" or site.head is None for site in sites):
        raise LevelheadError("random heads stand for heads only", mend="give sites of heads")
    chosen = tuple(sorted(sites))
    rng = inference.rng(measure.name, "random heads", *map(str, chosen))
    drawn = [random_heads(chosen, lm.anatomy.heads, rng=rng) for _ in range(draws)]
    distinct = list(dict.fromkeys([chosen, *drawn]))  # a set that comes twice is asked once
    varied = vary(
        lm,
        measure,
        readouts,
        [Variant(own) for own in distinct],
        context=context,
    )
    way, base = sign or 1, float(measure.reduce(varied.of(None)))
    of = {own: way * (base - float(measure.reduce(varied.of(i)))) for i, own in enumerate(distinct)}
    random = tuple(of[own] for own in drawn)
    judged = effects(
        measure, varied.of(None), [varied.of(0)], sign=way, inference=inference, name="joint"
    )
    (effect,) = judged.estimates(["joint mask"], unit=measure.headline.unit)
    if effect is None:
        raise LevelheadError("masking these heads changes nothing", mend="check the heads")
    b = sum(one >= of[chosen] for one in random)
    notes: tuple[str, ...] = ()
    if len(set(drawn)) < draws / 2:
        notes = (f"these layers allow few sets: {len(set(drawn))} different ones were drawn",)
    return Control(
        heads=tuple(label(site) for site in chosen),
        effect=effect,
        random=random,
        p=PValue(
            value=(b + 1) / (draws + 1),
            method="random heads of the same layers",
            alternative="greater",
            draws=draws,
        ),
        notes=notes,
        measured_by=measure.ruler(lm),
    )
