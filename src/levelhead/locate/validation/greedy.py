"""Heads chosen one after another, each for what it adds to those chosen before.

The top k by single scores may all carry the same thing; masked together they may do less, or more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

import numpy as np

from levelhead.core.calibration import Ruler
from levelhead.core.errors import LevelheadError
from levelhead.core.results import Estimate, Record
from levelhead.core.run_context import Inference, RunContext
from levelhead.locate.attribution.ablation import Variant
from levelhead.locate.attribution.variants import vary
from levelhead.locate.effects import Effects, effects
from levelhead.locate.head_map import label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.measures.base import Measure
    from levelhead.measures.responses import Readouts
    from levelhead.models.lm import LM
    from levelhead.models.sites import Site


class Step(Record):
    """One head more."""

    head: str
    """<layer>-<head>, counted from 1."""
    layer: int
    number: int
    gain: Estimate
    """What masking it takes from the measure beyond the heads before it, on the find half."""


class Greedy(Record):
    """The heads chosen, in order, and why it ended."""

    steps: tuple[Step, ...]
    ended: str
    joint: Estimate | None = None
    """What masking all of them takes from the measure on the confirm half."""
    top: Estimate | None = None
    """The same of as many heads with the largest single scores."""
    measured_by: Ruler | None = None
    """What it is measured by."""

    @property
    def sites(self) -> tuple[Site, ...]:
        """The heads."""
        from levelhead.models.sites import Site

        return tuple(Site("head_out", step.layer, step.number) for step in self.steps)


def greedy(
    lm: LM,
    measure: Measure,
    readouts: Readouts,
    candidates: Sequence[Site],
    *,
    k: int,
    sign: int = 1,
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> Greedy:
    """Choose up to k heads; end when no candidate's gain differs from 0 after correction.

    Args:
        lm: the model.
        measure: what shall fall.
        readouts: of the find half.
        candidates: heads to choose from, such as the twelve with the largest scores.
        k: how many at most.
        sign: which way of the measure is bias.
        inference: seed and level.
        context: store, threads, progress and cancellation.
    """
    if k < 1 or not candidates:
        raise LevelheadError("no head can be chosen", mend="give candidates, and k of at least 1")
    steps: list[Step] = []
    chosen: tuple[Site, ...] = ()
    left = list(dict.fromkeys(candidates))
    ended = f"{k} heads"
    while len(steps) < k and left:
        sets = [tuple(sorted((*chosen, site))) for site in left]
        before = [tuple(sorted(chosen))] if chosen else []
        varied = vary(
            lm,
            measure,
            readouts,
            [Variant(own) for own in (*before, *sets)],
            context=context,
        )
        base = varied.of(0) if chosen else varied.of(None)
        others = [varied.of(i + len(before)) for i in range(len(sets))]
        judged = effects(
            measure, base, others, sign=sign, inference=inference, name=f"step {len(steps)}"
        )
        gains = _gains(judged, left)
        sure = {i: gain for i, gain in enumerate(gains) if _is_gain(gain, 1 - inference.level)}
        if not sure:
            ended = "no further head's gain differs from 0 after correction"
            break
        best = max(sure, key=lambda i: sure[i].value)
        gain, site = sure[best], left.pop(best)
        chosen = (*chosen, site)
        steps.append(Step(head=label(site), layer=site.layer, number=site.head or 0, gain=gain))
    else:
        ended = ended if len(steps) == k else "no candidate is left"
    return Greedy(steps=tuple(steps), ended=ended, measured_by=measure.ruler(lm))


def confirmed(
    lm: LM,
    measure: Measure,
    readouts: Readouts,
    found: Greedy,
    candidates: Sequence[Site],
    *,
    sign: int = 1,
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> Greedy:
    """The heads that were chosen, and as many of the first candidates, on the confirm half.

    Args:
        lm: the model.
        measure: what shall fall.
        readouts: of the confirm half.
        found: what was chosen on the find half.
        candidates: the heads they were chosen from, the largest score first.
        sign: which way of the measure is bias.
        inference: seed and level.
        context: store, threads, progress and cancellation.
    """
    if not found.steps:
        return found
    sets = [tuple(sorted(found.sites)), tuple(sorted(candidates[: len(found.steps)]))]
    varied = vary(
        lm,
        measure,
        readouts,
        [Variant(own) for own in sets],
        context=context,
    )
    others = [varied.of(i) for i in range(2)]
    judged = effects(
        measure, varied.of(None), others, sign=sign, inference=inference, name="greedy, confirm"
    )
    joint, top = judged.estimates(["greedy, joint mask", "top, joint mask"])
    return found.model_copy(update={"joint": joint, "top": top})


def _is_gain(gain: Estimate | None, alpha: float) -> TypeGuard[Estimate]:
    if gain is None or gain.p is None or gain.p.adjusted is None:
        return False
    return gain.value > 0 and gain.p.adjusted <= alpha


def _gains(judged: Effects, left: Sequence[Site]) -> Sequence[Estimate | None]:
    if not np.any(judged.errors > 0):
        return [None] * len(left)
    return judged.estimates([label(site) for site in left])
