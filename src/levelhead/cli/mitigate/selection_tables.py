"""What `levelhead mitigate select` prints, and the README of an edit that it chose."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from levelhead.core.results import Estimate
    from levelhead.mitigate.selection.selection_report import CandidateResult, SelectionReport

REPORT_FILE = "why.json"
N_SHOWN = 12
"""Candidates in the table without --details: a screen, not a list of hundreds."""


def render_readme(selection: SelectionReport) -> str:
    """Render the README of an edit: why it was chosen, and what was not shown.

    Args:
        selection: the report of the selection.
    """
    from levelhead.core.calibration import with_mark

    # What was not shown and every rejected candidate go with the edit: whoever gets the folder
    # sees how many were tried, not only the one that passed.
    measure_key = selection.measured_by
    lines = [
        f"# {selection.chosen}: an edit of {selection.provenance.model}",
        "",
        f"{selection.reason[0].upper()}{selection.reason[1:]}.",
        "",
        *(f"- {line}" for line in _summary_lines(selection)),
        "",
        "Not shown:",
        "",
        *(f"- {limitation}" for limitation in selection.not_shown),
        *(f"- {note}" for note in selection.notes),
        "",
        "## Candidates on dev",
        "",
        f"| candidate | description | {with_mark('gain', measure_key)} | lower bound | loss "
        "| rejected because |",
        "|---|---|---|---|---|---|",
        *(f"| {' | '.join(_row(candidate))} |" for candidate in selection.candidates),
        "",
        f"Not tried: {len(selection.excluded)} settings (Dawkins et al. 2024, section 5).",
        f"All numbers, hashes and what was dropped: {REPORT_FILE}.",
    ]
    return "\n".join(lines) + "\n"


def _summary_lines(selection: SelectionReport) -> list[str]:
    """List the base, the gain and the utility cost, and whether the measure failed calibration."""
    from levelhead.core.calibration import DAGGER_NOTE, failed_calibration_mark

    dropped_text = ", ".join(f"{what} {len(rows)}" for what, rows in selection.dropped if rows)
    lines = [
        f"before, on dev: {selection.base}; {selection.base_utility}",
        f"utility cost allowed: {selection.max_utility_loss:.4g} of {selection.utility_measure}"
        + ("" if selection.min_utility_kept is None else f" (keep {selection.min_utility_kept:g})"),
        f"dropped: {dropped_text or 'nothing'}",
    ]
    if selection.on_test is not None:
        gain, loss = selection.on_test.gain, selection.on_test.loss
        lines.append(f"on test: {_estimate_text(gain)}; {_estimate_text(loss)}")
    if failed_calibration_mark(selection.measured_by):
        lines.append(f"{selection.bias_measure} {DAGGER_NOTE}")
    return lines


def _estimate_text(estimate: Estimate | None) -> str:
    return "no change" if estimate is None else str(estimate)


def _row(candidate: CandidateResult) -> tuple[str, ...]:
    return (
        candidate.name,
        candidate.description,
        *_cells(candidate),
        candidate.exclusion_reason,
    )


def _cells(candidate: CandidateResult) -> tuple[str, str, str]:
    return (
        "" if candidate.gain is None else f"{candidate.gain.value:.4g} {candidate.gain.interval}",
        "" if candidate.lower_bound is None else f"{candidate.lower_bound:.4g}",
        "" if candidate.loss is None else f"{candidate.loss.value:.4g} {candidate.loss.interval}",
    )


def show_selection(selection: SelectionReport, *, details: bool) -> None:
    """Print the candidates with the largest bounds, or all, and the notes of the report.

    Args:
        selection: the report of the selection.
        details: whether to print all candidates.
    """
    from rich.console import Console
    from rich.text import Text

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 130)
    console.print(_table(selection, details=details))
    missing = (
        [f"not shown: {limitation}" for limitation in selection.not_shown]
        if selection.is_recommended
        else []
    )
    for line in (*_summary_lines(selection), selection.reason, *missing, *selection.notes):
        console.print(Text(line), soft_wrap=True)


def _table(selection: SelectionReport, *, details: bool) -> Table:
    from rich.table import Table

    from levelhead.core.calibration import with_mark

    table = Table(box=None, pad_edge=False, header_style="bold")
    gain = with_mark("gain on dev", selection.measured_by)
    for name in ("candidate", gain, "lower bound", "loss on dev", "rejected because"):
        table.add_column(name, justify="right" if name == "lower bound" else "left")
    # By the bound, not the value: a large gain with a wide interval is not the better candidate.
    ranked = sorted(
        selection.candidates,
        key=lambda candidate: (
            # Candidates without a bound come last.
            -float("inf") if candidate.lower_bound is None else candidate.lower_bound
        ),
    )
    ranked.reverse()
    for candidate in ranked if details else ranked[:N_SHOWN]:
        table.add_row(candidate.name, *_cells(candidate), candidate.exclusion_reason)
    if len(ranked) > N_SHOWN and not details:
        table.add_row(f"... {len(ranked) - N_SHOWN} more", "", "", "", "")
    return table
