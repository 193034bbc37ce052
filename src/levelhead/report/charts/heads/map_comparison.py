"""Maps of several models side by side (Yang et al. 2025, Figure 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.report.charts.heads.head_map import CLIPPED, head_grid, max_abs_score
from levelhead.report.head_map_labels import METHOD_TEXT
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import apply_theme, format_estimate, panel_title

if TYPE_CHECKING:
    from altair.typing import ChartType

    from levelhead.core.results import Estimate
    from levelhead.locate.compare_maps import ComparedMap, MapComparison
    from levelhead.locate.head_map import HeadMap

COLUMNS = 3
ORANGE = "orange: above 0, adds to the bias where the sign is known"
PURPLE = "; purple: below 0, takes from it"
SIGN = {
    1: "more of the measure is called bias",
    -1: "less of the measure is called bias",
    0: "SIGN UNDETERMINED",
}


def map_comparison_chart(result: MapComparison, *, clip_negative: bool = False) -> ChartType:
    """Plot all maps on one colour scale; frames mark the base's most negative heads.

    Args:
        result: the comparison.
        clip_negative: whether to show negative scores in white, as the paper does.
    """
    base = result.base.bias_sign.sign
    maps = [
        (result.name, result.base),
        *(
            (variant.name, _in_base_direction(variant.head_map, base))
            for variant in result.compared_maps
        ),
    ]
    # One scale for all panels: equal colours mean equal scores.
    limit = max_abs_score(*(head_map for _, head_map in maps))
    step = _step(max(max(head_map.layers, head_map.heads_per_layer) for _, head_map in maps))
    captions_by_map = [
        [_sign_text(result.base)],
        *(_variant_captions(result, variant) for variant in result.compared_maps),
    ]
    panels = [
        head_grid(
            head_map,
            limit=limit,
            step=step,
            clip_negative=clip_negative,
            # In a model of another shape, the same label names another head.
            boxed=result.anti_bias_in_base if _has_same_shape(result.base, head_map) else (),
        ).properties(title=panel_title(name, *map_captions))
        for (name, head_map), map_captions in zip(maps, captions_by_map, strict=True)
    ]
    chart = alt.concat(*panels, columns=min(COLUMNS, len(panels)), spacing=28)
    captions = [
        f"{METHOD_TEXT[result.base.method]}; {ORANGE}{'' if clip_negative else PURPLE}",
        result.base.split.claim,
    ]
    if result.anti_bias_in_base:
        captions.append(
            f"framed: the most negative heads of {result.name} "
            f"({', '.join(result.anti_bias_in_base)}; layer-head, counted from 1)"
        )
    captions += [CLIPPED] if clip_negative else []
    captions += result.notes
    width = sum(step * head_map.heads_per_layer + 60 for _, head_map in maps[:COLUMNS])
    return apply_theme(
        chart, f"{result.base.measure}: heads of {result.name} and of other models", captions,
        width=width,
    )  # fmt: skip


def _in_base_direction(head_map: HeadMap, sign: int) -> HeadMap:
    """A map with the sign of the base, so that both count the same heads as positive."""
    # A map whose sign is undetermined (0) is shown as it is.
    if (head_map.bias_sign.sign or 1) * (sign or 1) > 0:
        return head_map
    scores = []
    for score in head_map.scores:
        fields: dict[str, object] = {"score": -score.score}
        if score.effect is not None and score.interval is not None:
            # Negated, the ends of an interval change places.
            low, high = -score.interval.high, -score.interval.low
            fields["effect"] = -score.effect
            fields["interval"] = score.interval.model_copy(update={"low": low, "high": high})
        scores.append(score.model_copy(update=fields))
    return head_map.model_copy(update={"scores": tuple(scores)})


def _step(longest_side: int) -> int:
    return next(
        (step for up_to, step in ((12, 20), (16, 18), (32, 10)) if longest_side <= up_to), 7
    )


def _has_same_shape(base: HeadMap, head_map: HeadMap) -> bool:
    return (head_map.layers, head_map.heads_per_layer) == (base.layers, base.heads_per_layer)


def _sign_text(head_map: HeadMap) -> str:
    return SIGN[head_map.bias_sign.sign]


def _variant_captions(result: MapComparison, variant: ComparedMap) -> list[str]:
    captions = [_sign_text(variant.head_map)]
    if variant.head_map.bias_sign.sign != result.base.bias_sign.sign:
        captions.append(f"shown with the sign of {result.name}")
    if variant.anti_bias_now_positive is None:
        return [*captions, "other layers or heads: none framed"]
    captions.append(
        f"framed and now positive: {variant.anti_bias_now_positive} of "
        f"{len(result.anti_bias_in_base)}"
    )
    counts: list[tuple[str, Estimate | None]] = [
        ("fewer positive", variant.fewer_positive),
        ("positive in both, darker", variant.larger_positive),
        ("negative, now positive", variant.negative_to_positive),
        ("total of effects, change", variant.total),
    ]
    return captions + [
        f"{name}: {format_estimate(estimate)}" for name, estimate in counts if estimate is not None
    ]
