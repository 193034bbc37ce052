"""What an edit left behind, and which edit was tuned: rows with intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.core.calibration import MISSED, mark_of, marked
from levelhead.core.errors import LevelheadError
from levelhead.core.results import Estimate
from levelhead.mitigate.probing.concept_removal import GONE, THERE
from levelhead.report.charts.paired_differences import BESIDE, WIDTH, Line, rows
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import OKABE_ITO, PALE, ends, finished, named, number, panel

if TYPE_CHECKING:
    from altair.typing import ChartType

    from levelhead.mitigate.probing.concept_removal import Place, Removed
    from levelhead.mitigate.selection.selection_report import Tried, Tuned

MOST = 20
"""Candidates drawn."""


def left_behind(found: Removed, *, of: str = "") -> ChartType:
    """The AUC of every probe before and after the edit, site by site.

    Args:
        found: removed, hidden or unclear.
        of: the model and the edit, if they are to be told in other words.
    """
    panels = [
        rows(_probes(place), "AUC on words the edit never met", parity=0.5, dashes=(GONE, THERE))
        .properties(title=panel(f"{_site(place)}: {place.verdict}", place.why))
        for place in found.places
    ]  # fmt: skip
    level = found.places[0].after.probes[0].auc.interval.level
    told = [
        found.why,
        f"{found.words} words, {found.n} pairs of texts; lines: intervals, {level:.0%}; dashes: "
        f"{GONE} (removed: both lie below) and {THERE} (readable: one lies above)",
    ]
    if isinstance(found.ruler, Estimate):
        told.append(f"the ruler's gain: {_told(found.ruler)}")
    if mark_of(found.gain_by):
        told.append(f"the ruler {MISSED}")
    if found.dropped:
        told.append(f"{len(found.dropped)} pairs were left out")
    return finished(
        alt.vconcat(*panels, spacing=26).resolve_scale(x="shared"),
        f"Removed or hidden? {found.verdict}",
        [*named(of), *told, *found.notes],
        width=WIDTH + BESIDE + 120,
    )


def tuned_to(found: Tuned, *, of: str = "") -> ChartType:
    """The gains of the candidates on dev, the one chosen, and its gain on test.

    Args:
        found: what tuning told.
        of: the model and its task, if they are to be told in other words.
    """
    some = [one for one in found.tried if one.gain is not None]
    if not some:
        raise LevelheadError(
            "no candidate changes anything: there is nothing to draw", mend="see .tried"
        )
    some = sorted(some, key=lambda one: -(one.low or 0.0))
    kept = some[:MOST]
    lines = [_candidate(one, found.chosen) for one in kept]
    if found.on_test is not None and found.on_test.gain is not None:
        confirmed = "confirmed" if found.recommended else "not confirmed"
        lines.append(
            Line(
                f"{found.chosen}, on test",
                found.on_test.gain,
                f"{confirmed}; loss {_told(found.on_test.loss)}",
                OKABE_ITO[1],
            )
        )
    told = [
        found.why,
        f"{marked(found.gain, found.measured_by)} of the base {_told(found.base)}; "
        f"{found.price} {_told(found.base_price)}; {number(found.most)} may be lost",
        "lines: intervals of each alone; what may be chosen is told by bounds that hold for all",
    ]
    if mark_of(found.measured_by):
        told.append(MISSED)
    if len(some) > len(kept):
        told.append(f"{len(some) - len(kept)} candidates with lower bounds are not drawn")
    return finished(
        rows(lines, f"gain of {marked(found.gain, found.measured_by)}"),
        f"Tuned: {found.chosen if found.recommended else 'nothing is recommended'}",
        [*named(of), *told],
        width=WIDTH + BESIDE + 200,
    )


def _probes(place: Place) -> list[Line]:
    return [
        Line(
            f"{one.probe}, {when}",
            one.auc,
            f"{_told(one.auc)}; dealt labels {number(one.dealt.value)}",
            colour,
        )
        for when, found, colour in (
            ("before", place.before, PALE),
            ("after", place.after, OKABE_ITO[0]),
        )
        for one in found.probes
    ]


def _candidate(one: Tried, chosen: str | None) -> Line:
    may = "may be chosen" if not one.why_not else one.why_not.partition(":")[0]
    colour = OKABE_ITO[1] if one.name == chosen else PALE if one.why_not else OKABE_ITO[0]
    return Line(one.name, one.gain, "chosen" if one.name == chosen else may, colour)


def _site(place: Place) -> str:
    """Blocks are counted from 1, as everywhere in charts."""
    stream, layer, _ = place.site
    return "pooled" if stream == "pooled" else f"{stream.replace('block_out', 'layer')} {layer + 1}"


def _told(one: Estimate | None) -> str:
    return (
        "none"
        if one is None
        else f"{number(one.value)} {ends(one.interval.low, one.interval.high)}"
    )
