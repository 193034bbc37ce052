"""Labels of head maps: measure, model, sign of bias, claim; one row of data per head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from levelhead.core.calibration import DAGGER_NOTE, failed_calibration_mark
from levelhead.core.errors import LevelheadError
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import format_interval, format_number

if TYPE_CHECKING:
    from levelhead.locate.head_map import ComponentScore, HeadMap, LocateMethod

LAYER_TITLE, HEAD_TITLE = "layer, counted from 1", "head, counted from 1"
METHOD_TEXT: dict[LocateMethod, str] = {
    "gradient": "score: derivative of the measure by the head's mask",
    "ablation": "score: what the measure loses without the head",
    "path": "score: the head's share of the change on the path from no heads to all heads",
}


def require_heads(head_map: HeadMap) -> tuple[ComponentScore, ...]:
    """The heads of a map; raises an error if it has none."""
    if not head_map.heads:
        raise LevelheadError("this map has no heads", hint="locate with 'heads' among the parts")
    return head_map.heads


def score_title(head_map: HeadMap) -> str:
    """The axis title of the scores."""
    if not head_map.bias_sign.sign:
        return "score, sign undetermined"
    return "score: above 0 adds to the bias, below 0 takes from it"


def head_map_captions(head_map: HeadMap, *, clip_negative: bool = False) -> tuple[str, ...]:
    """Captions: definition of the score, sign of bias and its evidence, and the valid claim."""
    measurement = head_map.measurement
    captions = [
        METHOD_TEXT[head_map.method],
        _describe_direction(head_map, clip_negative),
        head_map.split.claim,
    ]
    if measurement.direction:
        captions.insert(1, f"{head_map.measure}, {measurement.direction}")
    if failed_calibration_mark(head_map.measured_by):
        captions.append(f"{head_map.measure} {DAGGER_NOTE}")
    return tuple(captions)


def _describe_direction(head_map: HeadMap, clip_negative: bool) -> str:
    sign, explanation = head_map.bias_sign.sign, head_map.bias_sign.reason
    if not sign:
        return (
            f"SIGN UNDETERMINED: {explanation}. Scores are of the plain value; "
            "no head may be said to add to a bias. Orange: above 0"
            f"{'' if clip_negative else ', purple: below 0'}"
        )
    return (
        f"{'more' if sign > 0 else 'less'} of the measure is called bias ({explanation}); "
        "orange adds to it"
        f"{'' if clip_negative else ', purple takes from it'}"
    )


def component_row(component: ComponentScore) -> dict[str, Any]:
    """The row of chart data of a component; missing values are stated, never plotted as 0."""
    interval, p = component.interval, component.p
    return {
        "part": component.component,
        "label": component.label,
        "layer": component.layer + 1,
        "head": None if component.head is None else component.head + 1,
        "score": component.score,
        "effect": component.effect,
        "low": None if interval is None else interval.low,
        "high": None if interval is None else interval.high,
        "significant": component.is_significant,
        "site": str(component.site),
        "formatted score": format_number(component.score),
        "formatted effect": format_number(component.effect, missing="not ablated"),
        "formatted interval": "none"
        if interval is None
        else f"{format_interval(interval.low, interval.high)}, {interval.level:.0%}",
        "formatted p": "none" if p is None or p.adjusted is None else format_number(p.adjusted),
    }


def head_tooltips() -> list[alt.Tooltip]:
    """The tooltips of a head."""
    return [
        alt.Tooltip("label:N", title="head, counted from 1"),
        alt.Tooltip("site:N", title="site, counted from 0"),
        alt.Tooltip("formatted score:N", title="score"),
        alt.Tooltip("formatted effect:N", title="effect of ablation"),
        alt.Tooltip("formatted interval:N", title="its interval"),
        alt.Tooltip("formatted p:N", title="corrected p"),
    ]
