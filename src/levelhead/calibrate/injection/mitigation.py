"""Locate the heads of an injected association, edit the model, and compare it with dose 0.

The reference of a mitigation is not parity but the model that read the same sentences at parity: an
edit that removes the injection leaves that model's value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from levelhead.calibrate.injection.items import InjectionItems
from levelhead.calibrate.injection.run import INFERENCE, InjectedModel, Injection
from levelhead.calibrate.injection.texts import draw_injection_occupations
from levelhead.core.errors import LevelheadError
from levelhead.core.run_context import RunContext
from levelhead.data.counterfactuals.contrast_pairs import contrast_pairs
from levelhead.locate.score_heads import locate
from levelhead.measures.run import run_measures
from levelhead.measures.utility.perplexity import Perplexity, PseudoPerplexity
from levelhead.mitigate.heads.mask import mask_heads
from levelhead.mitigate.projection.baselines import leace
from levelhead.models.loading.load import load
from levelhead.models.sites import Site

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from levelhead.locate.head_map import HeadMap
    from levelhead.measures.base import Measure
    from levelhead.models.edits.base import Edit
    from levelhead.models.lm import LM

TOP = 3
PAIRS = 200
FLUENCY_TEXTS = 30


def mitigate_injection(injection: Injection, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Locate heads, mask them, erase the group, and yield what each edit leaves of the injection.

    Args:
        injection: the injection; models that are not trained are trained.
        seed: seed of the models.
    """
    context = RunContext(store=str(injection.folder / "store"))
    parity, full = (
        load(injection.train(InjectedModel("groups", dose, seed))) for dose in (0.0, 1.0)
    )
    items = InjectionItems(draw_injection_occupations().in_texts, str(injection.folder))
    # Only the items that training names, which the injection is about.
    bias: list[Measure] = [items.cloze, items.measures(full)["crows_margin"]]
    maps = [
        locate(lm, items.cloze, bias_direction="+", inference=INFERENCE, context=context)
        for lm in (parity, full)
    ]
    yield from _describe_maps(*maps)
    fluency = (Perplexity if full.is_causal else PseudoPerplexity)(limit=FLUENCY_TEXTS)
    for name, edits in _make_edits(full, maps[1]):
        for measure in (*bias, fluency):
            yield {"edit": name, "what": measure.metric} | _effect_cells(
                full, parity, edits, measure, context
            )


def _make_edits(full: LM, head_map: HeadMap) -> Iterator[tuple[str, Sequence[Edit]]]:
    yield f"mask the top {TOP}", (mask_heads(head_map.top(TOP)),)
    if confirmed := head_map.confirmed_heads():
        yield f"mask all {len(confirmed)} confirmed", (mask_heads(confirmed),)
    # The layer before the last: heads of the last layer read what the edit leaves.
    site = Site("block_out", full.layout.layers - 2)
    yield "LEACE", leace(full, contrast_pairs("gender-en", n=PAIRS), site)


def _describe_maps(parity: HeadMap, full: HeadMap) -> Iterator[dict[str, Any]]:
    for name, head_map in (("dose 0", parity), ("dose 1", full)):
        row = {"edit": f"located, {name}", "value": len(head_map.confirmed_heads()), "share": ""}
        yield {**row, "what": "confirmed heads", "low": "", "high": "", "p": ""}


def _effect_cells(
    full: LM, parity: LM, edits: Sequence[Edit], measure: Measure, context: RunContext
) -> dict[str, Any]:
    (comparison,) = run_measures(
        full.edited(*edits), [measure], against=full, inference=INFERENCE, context=context
    ).comparisons
    (reference,) = run_measures(
        full, [measure], against=parity, inference=INFERENCE, context=context
    ).comparisons
    difference, injected = comparison.difference, reference.difference.value
    if not injected:
        raise LevelheadError(
            f"{measure.metric} does not differ between the doses", hint="inject more"
        )
    return {
        "value": f"{difference.value:.3g}",
        # Of the injected difference; a utility has none.
        "share": "" if measure.is_utility else f"{-difference.value / injected:.3g}",
        "low": f"{difference.interval.low:.3g}",
        "high": f"{difference.interval.high:.3g}",
        "p": "" if difference.p is None else f"{difference.p.value:.3g}",
    }
