"""Charts of probes before and after an edit, and of the selection of an edit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.core.calibration import DAGGER_NOTE, failed_calibration_mark, with_mark
from levelhead.core.errors import LevelheadError
from levelhead.core.results import Estimate
from levelhead.mitigate.probing.concept_removal import PRESENT_ABOVE, REMOVED_BELOW
from levelhead.report.charts.paired_differences import (
    TEXT_WIDTH,
    WIDTH,
    DifferenceRow,
    difference_rows_chart,
)
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import (
    OKABE_ITO,
    PALE,
    apply_theme,
    format_estimate,
    format_number,
    panel_title,
    subtitle_lines,
)

if TYPE_CHECKING:
    from altair.typing import ChartType

    from levelhead.mitigate.probing.concept_removal import RemovalReport, SiteRemoval
    from levelhead.mitigate.selection.selection_report import CandidateResult, SelectionReport

MAX_CANDIDATES = 20
"""Number of candidates that the chart shows."""


def probing_chart(result: RemovalReport, *, subject: str = "") -> ChartType:
    """Plot the AUC of every probe before and after the edit, by site.

    Args:
        result: report on removed or hidden information.
        subject: description of the model and the edit.
    """
    panels = [
        difference_rows_chart(
            _probes(site_result),
            "AUC on words that were not used to fit the edit",
            # The AUC of guessing.
            parity=0.5,
            dashes=(REMOVED_BELOW, PRESENT_ABOVE),
        ).properties(
            title=panel_title(f"{_site(site_result)}: {site_result.verdict}", site_result.reason)
        )
        for site_result in result.sites
    ]
    level = result.sites[0].after.probes[0].auc.interval.level
    captions = [
        result.reason,
        f"{result.words} words, {result.n} pairs of texts; lines: intervals, {level:.0%}; dashes: "
        f"{REMOVED_BELOW} (removed: both lie below) and {PRESENT_ABOVE} (readable: one lies above)",
    ]
    if isinstance(result.bias_reduction, Estimate):
        captions.append(f"bias reduction: {format_estimate(result.bias_reduction)}")
    if failed_calibration_mark(result.bias_measure):
        captions.append(f"the measure {DAGGER_NOTE}")
    if result.dropped:
        captions.append(f"{len(result.dropped)} pairs were left out")
    return apply_theme(
        # One axis for all sites, so that their AUCs can be compared by eye.
        alt.vconcat(*panels, spacing=26).resolve_scale(x="shared"),
        f"Removed or hidden? {result.verdict}",
        [*subtitle_lines(subject), *captions, *result.notes],
        width=WIDTH + TEXT_WIDTH + 120,
    )


def edit_selection_chart(result: SelectionReport, *, subject: str = "") -> ChartType:
    """Plot the candidates' bias reductions on dev, and that of the chosen candidate on test.

    Args:
        result: report of the selection.
        subject: description of the model and its task.
    """
    changed = [candidate for candidate in result.candidates if candidate.gain is not None]
    if not changed:
        raise LevelheadError(
            "no candidate changes anything: there is nothing to plot", hint="see .tried"
        )
    # By the simultaneous lower bound, because the selection uses it.
    changed = sorted(changed, key=lambda candidate: -(candidate.lower_bound or 0.0))
    plotted = changed[:MAX_CANDIDATES]
    lines = [_candidate(candidate, result.chosen) for candidate in plotted]
    if result.on_test is not None and result.on_test.gain is not None:
        confirmed = "confirmed" if result.is_recommended else "not confirmed"
        lines.append(
            DifferenceRow(
                f"{result.chosen}, on test",
                result.on_test.gain,
                f"{confirmed}; loss {format_estimate(result.on_test.loss)}",
                OKABE_ITO[1],
            )
        )
    captions = [
        result.reason,
        (
            f"{with_mark(result.bias_measure, result.measured_by)} of the base "
            f"{format_estimate(result.base)}; "
            f"{result.utility_measure} {format_estimate(result.base_utility)}; "
            f"{format_number(result.max_utility_loss)} may be lost"
        ),
        "lines: intervals of single candidates; simultaneous bounds decide what may be chosen",
    ]
    if failed_calibration_mark(result.measured_by):
        captions.append(DAGGER_NOTE)
    if len(changed) > len(plotted):
        captions.append(f"{len(changed) - len(plotted)} candidates with lower bounds are not shown")
    return apply_theme(
        difference_rows_chart(
            lines, f"bias reduction by {with_mark(result.bias_measure, result.measured_by)}"
        ),
        f"Tuned: {result.chosen if result.is_recommended else 'nothing is recommended'}",
        [*subtitle_lines(subject), *captions],
        width=WIDTH + TEXT_WIDTH + 200,
    )


def _probes(site_result: SiteRemoval) -> list[DifferenceRow]:
    return [
        DifferenceRow(
            f"{probe.probe}, {when}",
            probe.auc,
            (
                f"{format_estimate(probe.auc)}; permuted labels "
                f"{format_number(probe.permuted_auc.value)}"
            ),
            colour,
        )
        for when, probe_report, colour in (
            ("before", site_result.before, PALE),
            ("after", site_result.after, OKABE_ITO[0]),
        )
        for probe in probe_report.probes
    ]


def _candidate(candidate: CandidateResult, selected: str | None) -> DifferenceRow:
    verdict = (
        "may be chosen"
        if not candidate.exclusion_reason
        else candidate.exclusion_reason.partition(":")[0]
    )
    colour = (
        OKABE_ITO[1]
        if candidate.name == selected
        else PALE
        if candidate.exclusion_reason
        else OKABE_ITO[0]
    )
    return DifferenceRow(
        candidate.name, candidate.gain, "chosen" if candidate.name == selected else verdict, colour
    )


def _site(site_result: SiteRemoval) -> str:
    """Blocks are counted from 1, as everywhere in charts."""
    stream, layer, _ = site_result.site
    return "pooled" if stream == "pooled" else f"{stream.replace('block_out', 'layer')} {layer + 1}"
