"""What is told beside every map of heads: measure, model, direction, claim; one row a head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from levelhead.core.calibration import MISSED, mark_of
from levelhead.core.errors import LevelheadError
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import ends, number

if TYPE_CHECKING:
    from levelhead.core.results import Provenance
    from levelhead.locate.head_map import By, HeadMap, PartScore

LAYER, HEAD = "layer, counted from 1", "head, counted from 1"
BY: dict[By, str] = {
    "gradient": "score: derivative of the measure by the head's mask",
    "ablation": "score: what the measure loses without the head",
    "path": "score: the head's share of the way from no heads to all",
}


def heads_of(found: HeadMap) -> tuple[PartScore, ...]:
    """The heads of a map that has some."""
    if not found.heads:
        raise LevelheadError("this map has no heads", mend="locate with 'heads' among the parts")
    return found.heads


def model_name(provenance: Provenance) -> str:
    """The model without the folders it lies in; "+ 2 edits" if it is edited."""
    name = provenance.model.rstrip("/")
    if name.count("/") > 1 or name.startswith("/"):
        name = name.rpartition("/")[2]
    edits = len(provenance.edits)
    return name + (f" + {edits} edit{'s' * (edits > 1)}" if edits else "")


def score_title(found: HeadMap) -> str:
    """What the axis of scores says."""
    if not found.direction.sign:
        return "score, sign undetermined"
    return "score: above 0 adds to the bias, below 0 takes from it"


def lines(found: HeadMap, *, clip_negative: bool = False) -> tuple[str, ...]:
    """What a score is, which way is bias and how that is known, what may be claimed."""
    value = found.measurement
    told = [BY[found.by], _direction(found, clip_negative), found.halves.claim]
    if value.direction:
        told.insert(1, f"{found.measure}, {value.direction}")
    if mark_of(found.measured_by):
        told.append(f"{found.measure} {MISSED}")
    return tuple(told)


def _direction(found: HeadMap, clip_negative: bool) -> str:
    sign, why = found.direction.sign, found.direction.why
    if not sign:
        return (
            f"SIGN UNDETERMINED: {why}. Scores are of the plain value; "
            "no head may be said to add to a bias. Orange: above 0"
            f"{'' if clip_negative else ', purple: below 0'}"
        )
    return (
        f"{'more' if sign > 0 else 'less'} of the measure is called bias ({why}); orange adds to it"
        f"{'' if clip_negative else ', purple takes from it'}"
    )


def row(one: PartScore) -> dict[str, Any]:
    """A part as the charts read it; what is missing is said, never drawn as 0."""
    interval, p = one.interval, one.p
    return {
        "part": one.part,
        "label": one.label,
        "layer": one.layer + 1,
        "head": None if one.head is None else one.head + 1,
        "score": one.score,
        "effect": one.effect,
        "low": None if interval is None else interval.low,
        "high": None if interval is None else interval.high,
        "significant": one.is_significant,
        "site": str(one.site),
        "told score": number(one.score),
        "told effect": number(one.effect, missing="not ablated"),
        "told interval": "none"
        if interval is None
        else f"{ends(interval.low, interval.high)}, {interval.level:.0%}",
        "told p": "none" if p is None or p.adjusted is None else number(p.adjusted),
    }


def tips() -> list[alt.Tooltip]:
    """What is shown when a head is pointed at."""
    return [
        alt.Tooltip("label:N", title="head, counted from 1"),
        alt.Tooltip("site:N", title="site, counted from 0"),
        alt.Tooltip("told score:N", title="score"),
        alt.Tooltip("told effect:N", title="effect of ablation"),
        alt.Tooltip("told interval:N", title="its interval"),
        alt.Tooltip("told p:N", title="corrected p"),
    ]


def data(rows: list[dict[str, Any]]) -> alt.InlineData:
    """Rows inside of the chart: a saved chart needs no other file."""
    return alt.InlineData(values=rows)
