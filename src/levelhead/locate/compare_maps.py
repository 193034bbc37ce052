"""Maps of several models side by side (Yang et al. 2025, section 7, Appendices C and D).

The paper compares heat maps by eye: fewer biased heads, some darker, some with another sign. Here
these observations are counts, with intervals over resampled words of the effects on the confirm
half.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from levelhead.core.errors import LevelheadError
from levelhead.core.results import Estimate, Interval, Record
from levelhead.locate.head_map import HeadMap, head_label

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from levelhead.models.sites import Site
    from levelhead.stats.paired_effects import PairedEffects

# Yang et al. 2025, Figure 5: the top-5 anti-biased heads are boxed in red.
N_ANTI_BIAS_HEADS = 5
NOISE_NOTE = (
    "darker heads and heads turned positive are counts of noisy signs: two maps of one model with "
    "other words have some, too"
)


class ComparedMap(Record):
    """One model compared with the first."""

    name: str
    head_map: HeadMap
    fewer_positive: Estimate | None = None
    """Number of positive heads of the first model less that of this model."""
    larger_positive: Estimate | None = None
    """Number of heads that are positive in both models, and larger in this one."""
    negative_to_positive: Estimate | None = None
    """Number of heads that are negative in the first model and positive in this one."""
    anti_bias_now_positive: int | None
    """Number of the first model's five most negative heads with a positive score in this model;
    None if the models have different heads."""
    total: Estimate | None = None
    """Sum of the effects, less that of the first model."""


class MapComparison(Record):
    """Several maps; the first of them is the base."""

    name: str
    base: HeadMap
    anti_bias_in_base: tuple[str, ...]
    """The most negative heads of the base by score, <layer>-<head>, counted from 1."""
    compared_maps: tuple[ComparedMap, ...]
    notes: tuple[str, ...] = ()


def compare_maps(
    maps: Sequence[tuple[str, HeadMap]], effects: Sequence[PairedEffects | None] = ()
) -> MapComparison:
    """Compare maps with the first of them.

    Args:
        maps: Names and maps; the first is the base.
        effects: The effects behind the maps, on the same items and resamples. Without them, only
            the signs of the base's most negative heads are counted.
    """
    if len(maps) < 2 or (effects and len(effects) != len(maps)):
        raise LevelheadError(
            f"{len(maps)} maps with {len(effects)} sets of effects are no comparison",
            hint="give at least two maps, and effects for all or none of them",
        )
    (name, base), *other_maps = maps
    for other_name, other_map in other_maps:
        if (
            other_map.measure != base.measure
            or other_map.measurement.comparability_key != base.measurement.comparability_key
        ):
            raise LevelheadError(
                f"{other_name} was not located by the same measure as {name}",
                hint="locate all models by one measure with the same options",
            )
        # Effects are paired by resample: another split or seed would resample other words.
        differing_settings = [
            setting_name
            for setting_name, setting_pair in {
                "way to locate": (other_map.method, base.method),
                "ablation": (other_map.ablation, base.ablation),
                "halves": (other_map.split.split_by, base.split.split_by),
                "seed": (other_map.split.seed, base.split.seed),
            }.items()
            if setting_pair[0] != setting_pair[1]
        ]
        if differing_settings:
            raise LevelheadError(
                f"{other_name} has another {differing_settings[0]} than {name}",
                hint="locate all models alike",
            )
    negative = set(
        base.negative_heads()[:N_ANTI_BIAS_HEADS]
    )  # refuses a base whose sign is undetermined
    anti_bias_heads = [head for head in reversed(base.ranked_heads) if head.site in negative]
    notes = []
    compared_maps = []
    for number, (other_name, other_map) in enumerate(other_maps, 1):
        # Head 3-2 of a model with other layers is another head: nothing can be paired by position.
        has_same_heads = (other_map.layers, other_map.heads_per_layer) == (
            base.layers,
            base.heads_per_layer,
        )
        # In the base's direction, whatever the child's own sign is: the same measure goes up.
        sign_factor = (other_map.bias_sign.sign or 1) * base.bias_sign.sign
        scores = {head.site: sign_factor * head.score for head in other_map.heads}
        effect_pair = (effects[0], effects[number]) if effects and has_same_heads else (None, None)
        if other_map.bias_sign.sign != base.bias_sign.sign:
            notes.append(
                f"{other_name}: its own sign is {other_map.bias_sign.sign}; compared as the base's"
            )
        if effects and not (
            _are_comparable(*effect_pair) and _ablated_sites(other_map) == _ablated_sites(base)
        ):
            effect_pair = (None, None)
            notes.append(
                f"{other_name}: other heads or other items than the base's: nothing is counted"
            )
        compared_maps.append(
            ComparedMap(
                name=other_name,
                head_map=other_map,
                anti_bias_now_positive=sum(scores[head.site] > 0 for head in anti_bias_heads)
                if has_same_heads
                else None,
                **_count_differences(*effect_pair, sign_factor),
            )
        )
    return MapComparison(
        name=name,
        base=base,
        anti_bias_in_base=tuple(head_label(head.site) for head in anti_bias_heads),
        compared_maps=tuple(compared_maps),
        notes=(*notes, NOISE_NOTE),
    )


def _ablated_sites(head_map: HeadMap) -> list[Site]:
    """The parts that were ablated."""
    return [score.site for score in head_map.scores if score.effect is not None]


def _are_comparable(first: PairedEffects | None, second: PairedEffects | None) -> bool:
    """Whether two sets of effects are of the same heads, items and resamples."""
    if first is None or second is None:
        return False
    return first.resamples.shape == second.resamples.shape and first.items == second.items


def _count_differences(
    first: PairedEffects | None, second: PairedEffects | None, sign_factor: int
) -> dict[str, Estimate]:
    if first is None or second is None:
        return {}
    second = replace(
        second, values=sign_factor * second.values, resamples=sign_factor * second.resamples
    )
    return {
        # Appendix C reads these off heat maps: "fewer biased heads", "getting darker", and heads
        # that "were originally negative" and turn positive.
        "fewer_positive": _estimate_difference(
            "fewer positive heads", _count_fewer_positive, first, second
        ),
        "larger_positive": _estimate_difference(
            "darker heads", _count_larger_positive, first, second
        ),
        "negative_to_positive": _estimate_difference(
            "heads turned positive", _count_negative_to_positive, first, second
        ),
        "total": _estimate_difference("difference of the total", _total_difference, first, second),
    }


def _count_fewer_positive(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray((a > 0).sum(-1) - (b > 0).sum(-1), dtype=np.float64)


def _count_larger_positive(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(((a > 0) & (b > a)).sum(-1), dtype=np.float64)


def _count_negative_to_positive(
    a: NDArray[np.float64], b: NDArray[np.float64]
) -> NDArray[np.float64]:
    return np.asarray(((a < 0) & (b > 0)).sum(-1), dtype=np.float64)


def _total_difference(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(b.sum(-1) - a.sum(-1))


def _estimate_difference(
    name: str,
    statistic: Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]],
    first: PairedEffects,
    second: PairedEffects,
) -> Estimate:
    """Estimate a difference of maps, with percentiles over the resamples as interval."""
    value = float(statistic(first.values, second.values))
    resampled_values = statistic(first.resamples, second.resamples)
    tail = (1 - first.level) / 2
    low, high = np.quantile(resampled_values, [tail, 1 - tail])
    return Estimate(
        name=name,
        value=value,
        interval=Interval(
            # Counts of noisy signs are biased, so percentiles may miss the value itself; the
            # interval is widened to contain it.
            low=min(float(low), value),
            high=max(float(high), value),
            level=first.level,
            method=f"percentile, {first.design}",
        ),
        n=len(first.values),
    )
