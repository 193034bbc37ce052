"""Maps of several models side by side (Yang et al. 2025, Figure 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.report.charts.heads.head_map import CLIPPED, grid, reach
from levelhead.report.head_map_labels import BY
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import ends, finished, panel

if TYPE_CHECKING:
    from altair.typing import ChartType

    from levelhead.core.results import Estimate
    from levelhead.locate.compare_maps import ChildMap, MapComparison
    from levelhead.locate.head_map import HeadMap

COLUMNS = 3
ORANGE = "orange: above 0, adds to the bias where the sign is known"
PURPLE = "; purple: below 0, takes from it"
SIGN = {
    1: "more of the measure is called bias",
    -1: "less of the measure is called bias",
    0: "SIGN UNDETERMINED",
}


def compared(found: MapComparison, *, clip_negative: bool = False) -> ChartType:
    """All maps in one scale of colours, the base's most negative heads framed in each.

    Args:
        found: the comparison.
        clip_negative: draw negative scores white, as the paper does.
    """
    base = found.base.direction.sign
    maps = [
        (found.name, found.base),
        *((one.name, _turned(one.map, base)) for one in found.children),
    ]
    most = reach(*(own for _, own in maps))
    step = _step(max(max(own.layers, own.heads_a_layer) for _, own in maps))
    about = [[_sign(found.base)], *(_about(found, one) for one in found.children)]
    panels = [
        grid(
            own,
            reach=most,
            step=step,
            clip_negative=clip_negative,
            boxed=found.boxed if _alike(found.base, own) else (),
        ).properties(title=panel(name, *told))
        for (name, own), told in zip(maps, about, strict=True)
    ]
    drawn = alt.concat(*panels, columns=min(COLUMNS, len(panels)), spacing=28)
    told = [
        f"{BY[found.base.by]}; {ORANGE}{'' if clip_negative else PURPLE}",
        found.base.halves.claim,
    ]
    if found.boxed:
        told.append(
            f"framed: the most negative heads of {found.name} "
            f"({', '.join(found.boxed)}; layer-head, counted from 1)"
        )
    told += [CLIPPED] if clip_negative else []
    told += found.notes
    width = sum(step * own.heads_a_layer + 60 for _, own in maps[:COLUMNS])
    return finished(
        drawn, f"{found.base.measure}: heads of {found.name} and of models beside it", told,
        width=width,
    )  # fmt: skip


def _turned(own: HeadMap, sign: int) -> HeadMap:
    """A map in the base's direction, as its heads are counted there."""
    if (own.direction.sign or 1) * (sign or 1) > 0:
        return own
    scores = []
    for one in own.scores:
        told: dict[str, object] = {"score": -one.score}
        if one.effect is not None and one.interval is not None:
            low, high = -one.interval.high, -one.interval.low
            told["effect"] = -one.effect
            told["interval"] = one.interval.model_copy(update={"low": low, "high": high})
        scores.append(one.model_copy(update=told))
    return own.model_copy(update={"scores": tuple(scores)})


def _step(most: int) -> int:
    return next((step for up_to, step in ((12, 20), (16, 18), (32, 10)) if most <= up_to), 7)


def _alike(base: HeadMap, own: HeadMap) -> bool:
    return (own.layers, own.heads_a_layer) == (base.layers, base.heads_a_layer)


def _sign(own: HeadMap) -> str:
    return SIGN[own.direction.sign]


def _about(found: MapComparison, child: ChildMap) -> list[str]:
    told = [_sign(child.map)]
    if child.map.direction.sign != found.base.direction.sign:
        told.append(f"drawn as if its sign were that of {found.name}")
    if child.boxed_flipped is None:
        return [*told, "other layers or heads: none framed"]
    told.append(f"framed and now positive: {child.boxed_flipped} of {len(found.boxed)}")
    counts: list[tuple[str, Estimate | None]] = [
        ("fewer positive", child.fewer),
        ("positive in both, darker", child.darker),
        ("negative, now positive", child.flipped),
        ("total of effects, change", child.total),
    ]
    return told + [
        f"{name}: {one.value:.3g} {ends(one.interval.low, one.interval.high)}"
        for name, one in counts
        if one is not None
    ]
