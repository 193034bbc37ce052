"""Greedy selection of heads: each is chosen for its effect beyond that of the heads before it.

The top k heads by single scores may all carry the same information; masked together, they may have
a smaller or a larger effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

import numpy as np

from levelhead.core.calibration import MeasureKey
from levelhead.core.errors import LevelheadError
from levelhead.core.results import Estimate, Record
from levelhead.core.run_context import Inference, RunContext
from levelhead.locate.attribution.ablation import AblationVariant
from levelhead.locate.attribution.variants import read_variants
from levelhead.locate.effects import estimate_effects
from levelhead.locate.head_map import head_label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.measures.base import Measure
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM
    from levelhead.models.sites import Site
    from levelhead.stats.paired_effects import PairedEffects


class GreedyHead(Record):
    """A head that was added to the selection."""

    head: str
    """<layer>-<head>, counted from 1."""
    layer: int
    number: int
    gain: Estimate
    """Decrease of the measure by masking the head in addition to those before it, on the find
    half."""


class GreedySelection(Record):
    """The selected heads, in order, and the reason why the selection ended."""

    steps: tuple[GreedyHead, ...]
    stop_reason: str
    joint_effect: Estimate | None = None
    """Decrease of the measure by masking all of them, on the confirmation half."""
    top_heads_effect: Estimate | None = None
    """Decrease of the measure by masking as many heads with the largest single scores."""
    measured_by: MeasureKey | None = None
    """Key of the measure with this type of model."""

    @property
    def sites(self) -> tuple[Site, ...]:
        """Sites of the selected heads."""
        from levelhead.models.sites import Site

        return tuple(Site("head_out", step.layer, step.number) for step in self.steps)


def select_heads_greedily(
    lm: LM,
    measure: Measure,
    responses: Responses,
    candidates: Sequence[Site],
    *,
    max_heads: int,
    sign: int = 1,
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> GreedySelection:
    """Select up to k heads; end when no candidate's gain differs from 0 after correction.

    Args:
        lm: The model.
        measure: The measure to reduce.
        responses: Responses to the discovery half.
        candidates: Heads to select from, such as the twelve with the largest scores.
        max_heads: Maximum number of heads.
        sign: Direction of bias.
        inference: Seed and level.
        context: Store, threads, progress and cancellation.
    """
    if max_heads < 1 or not candidates:
        raise LevelheadError("no head can be chosen", hint="give candidates, and k of at least 1")
    steps: list[GreedyHead] = []
    selected: tuple[Site, ...] = ()
    remaining = list(dict.fromkeys(candidates))
    stop_reason = f"{max_heads} heads"
    while len(steps) < max_heads and remaining:
        # Sorted, so that the same set in another order of choice has the same stored answers.
        site_sets = [tuple(sorted((*selected, site))) for site in remaining]
        selected_sets = [tuple(sorted(selected))] if selected else []
        ablation_responses = read_variants(
            lm,
            measure,
            responses,
            [AblationVariant(site_set) for site_set in (*selected_sets, *site_sets)],
            context=context,
        )
        # The base is the model without the heads chosen so far: a gain is what a head adds to them.
        base = (
            ablation_responses.responses_of(0)
            if selected
            else ablation_responses.responses_of(None)
        )
        variant_responses = [
            ablation_responses.responses_of(i + len(selected_sets)) for i in range(len(site_sets))
        ]
        ablation_effects = estimate_effects(
            measure,
            base,
            variant_responses,
            sign=sign,
            inference=inference,
            name=f"step {len(steps)}",
        )
        gains = _estimate_gains(ablation_effects, remaining)
        significant_gains = {
            i: gain
            for i, gain in enumerate(gains)
            if _is_significant_gain(gain, 1 - inference.level)
        }
        if not significant_gains:
            stop_reason = "no further head's gain differs from 0 after correction"
            break
        best = max(significant_gains, key=lambda i: significant_gains[i].value)
        gain, site = significant_gains[best], remaining.pop(best)
        selected = (*selected, site)
        steps.append(
            GreedyHead(head=head_label(site), layer=site.layer, number=site.head or 0, gain=gain)
        )
    else:
        stop_reason = stop_reason if len(steps) == max_heads else "no candidate is left"
    return GreedySelection(
        steps=tuple(steps), stop_reason=stop_reason, measured_by=measure.measure_key(lm)
    )


def confirm_greedy_selection(
    lm: LM,
    measure: Measure,
    responses: Responses,
    selection: GreedySelection,
    candidates: Sequence[Site],
    *,
    sign: int = 1,
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> GreedySelection:
    """Mask the selected heads, and as many of the first candidates, on the confirmation half.

    Args:
        lm: The model.
        measure: The measure to reduce.
        responses: Responses to the confirmation half.
        selection: The selection on the discovery half.
        candidates: The heads that it was made from, the largest score first.
        sign: Direction of bias.
        inference: Seed and level.
        context: Store, threads, progress and cancellation.
    """
    if not selection.steps:
        return selection
    site_sets = [tuple(sorted(selection.sites)), tuple(sorted(candidates[: len(selection.steps)]))]
    ablation_responses = read_variants(
        lm,
        measure,
        responses,
        [AblationVariant(site_set) for site_set in site_sets],
        context=context,
    )
    variant_responses = [ablation_responses.responses_of(i) for i in range(2)]
    ablation_effects = estimate_effects(
        measure,
        ablation_responses.responses_of(None),
        variant_responses,
        sign=sign,
        inference=inference,
        name="greedy, confirm",
    )
    # Two hypotheses on one half, so they are corrected together.
    joint, top = ablation_effects.to_estimates(["greedy, joint mask", "top, joint mask"])
    return selection.model_copy(update={"joint_effect": joint, "top_heads_effect": top})


def _is_significant_gain(gain: Estimate | None, alpha: float) -> TypeGuard[Estimate]:
    if gain is None or gain.p is None or gain.p.adjusted is None:
        return False
    # The correction is over all candidates of a round, as the best of them is chosen.
    return gain.value > 0 and gain.p.adjusted <= alpha


def _estimate_gains(
    ablation_effects: PairedEffects, sites: Sequence[Site]
) -> Sequence[Estimate | None]:
    # `to_estimates` refuses a family in which nothing changes; here, it ends the selection.
    if not np.any(ablation_effects.standard_errors > 0):
        return [None] * len(sites)
    return ablation_effects.to_estimates([head_label(site) for site in sites])
