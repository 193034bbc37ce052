"""Tables of measurements, comparisons and multiverses, and what is printed below them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from levelhead.core.results import Estimate, Measurement
    from levelhead.core.run_context import RunContext
    from levelhead.measures.base import Measure
    from levelhead.measures.robustness.multiverse import Multiverse
    from levelhead.measures.run import MeasureRun
    from levelhead.models.lm import LM

LEGEND = "detectable: smallest distance from parity that the test detects four times out of five"


def show_measurements(measure_run: MeasureRun, measures: list[Measure], *, details: bool) -> None:
    """Print tables and verdicts of a run.

    Args:
        measure_run: the measurements and comparisons.
        measures: the measures of the run.
        details: whether to show all extra numbers.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from levelhead.core.calibration import DAGGER_NOTE, failed_calibration_mark, with_mark
    from levelhead.measures.base import UNFLAGGED

    # A measure's other metrics and its result without flagged items belong to the result; the
    # remaining extras are for --details.
    always_shown = {
        metric.name for measure in measures for metric in measure.ordered_metrics[1:]
    } | {UNFLAGGED}
    fully_shown = {measure.name for measure in measures if measure.always_show_extras}
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 110)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("measure", "value", "interval", "parity", "p", "n", "detectable"):
        table.add_column(name, justify="left" if name in ("measure", "interval") else "right")
    for measurement in measure_run.measurements:
        table.add_row(
            with_mark(_display_name(measurement), measurement),
            *format_cells(measurement),
            style="bold" if details else "",
        )
        for extra in measurement.extras:
            if details or measurement.measure in fully_shown or extra.name in always_shown:
                table.add_row(
                    f"  {with_mark(extra.name, measurement, extra.name)}", *format_cells(extra)
                )
    console.print(table)
    console.print()
    for text in _verdict_lines(measure_run):
        console.print(Text(text), soft_wrap=True)
    for measurement in measure_run.measurements:
        for note in measurement.notes:
            console.print(Text(f"{_display_name(measurement)}: note: {note}"), soft_wrap=True)
    if any(failed_calibration_mark(measurement) for measurement in measure_run.measurements):
        console.print(Text(DAGGER_NOTE))
    _show_comparisons(console, measure_run)
    if any(
        measurement.p is not None and measurement.p.adjusted is not None
        for measurement in measure_run.measurements
    ):
        console.print(Text("p: corrected by Holm for the measures of this run"))
    console.print(Text(LEGEND))


def show_measure_list() -> None:
    """Print every metric under the name that -m takes."""
    from levelhead.measures.registry import MEASURES, is_utility, metric_texts

    texts = metric_texts()
    for measure_type in MEASURES.values():
        for metric, description in measure_type.metrics.items():
            prefix = "utility: " if is_utility(texts[metric]) else ""
            typer.echo(
                f"{texts[metric]:<33} {prefix}{description} ({' or '.join(measure_type.needs)})"
            )


def show_cost(
    models: list[LM], measures: list[Measure], context: RunContext, *, json: bool
) -> None:
    """Print what measuring the models would cost.

    Args:
        models: the models.
        measures: the measures.
        context: store and threads.
        json: whether to print JSON.
    """
    from levelhead.study.cost import CostEstimate, estimate_cost

    costs = [estimate_cost(lm, measures, context=context) for lm in models]
    total = sum(costs, CostEstimate())
    typer.echo(total.to_json() if json else str(total))


def _verdict_lines(measure_run: MeasureRun) -> list[str]:
    """Format the verdict of each measurement, and the model's skill at its task."""
    from levelhead.core.verdicts import decide_measure_verdict

    lines = []
    for measurement in measure_run.measurements:
        verdict = decide_measure_verdict(measurement)
        # A measure without parity has no verdict, and silence is no "no bias".
        if verdict.status != "no test":
            lines.append(f"{_display_name(measurement)}: verdict: {verdict}")
        if measurement.skill is not None:
            lines.append(f"{_display_name(measurement)}: skill: {measurement.skill}")
    return lines


def show_multiverses(universes: list[Multiverse], *, details: bool) -> None:
    """Print how each conclusion changes with other choices of the analysis.

    Args:
        universes: the multiverse of each measure.
        details: whether to list every specification.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from levelhead.core.calibration import DAGGER_NOTE, failed_calibration_mark, with_mark

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 110)
    for universe in universes:
        title = with_mark(_display_name(universe), universe.measured_by)
        console.print(Text(f"multiverse of {title}: {universe}"), soft_wrap=True)
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("specification", "value", "interval", "p", "n", "conclusion"):
            left = name in ("specification", "interval", "conclusion")
            table.add_column(name, justify="left" if left else "right")
        for specification in universe.specifications if details else ():
            p = "" if specification.p is None else _format_p(specification.p.value)
            cells = (
                f"{specification.value:.4g}",
                str(specification.interval),
                p,
                str(specification.n),
                specification.conclusion or "",
            )
            table.add_row(f"  {specification.name}", *cells)
        # Specifications that failed are always listed: without them the rest may look robust.
        for name, reason in universe.failed:
            table.add_row(f"  {name}", "", "", "", "", reason)
        if table.row_count:
            console.print(table)
        if failed_calibration_mark(universe.measured_by):
            console.print(Text(DAGGER_NOTE))


def _display_name(result: Measurement | Multiverse) -> str:
    """Format a measure's name, with the groups that it compares if these are a choice."""
    return f"{result.measure} ({', '.join(result.groups)})" if result.groups else result.measure


def _show_comparisons(console: Console, measure_run: MeasureRun) -> None:
    """Print the comparisons, if there are any."""
    from rich.table import Table
    from rich.text import Text

    if not measure_run.comparisons:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("second - first", "value", "interval", "parity", "p", "n", "detectable"):
        table.add_column(name, justify="left" if name in ("interval",) else "right")
    table.columns[0].justify = "left"
    for comparison in measure_run.comparisons:
        for difference in (comparison.difference, *comparison.extras):
            table.add_row(
                f"{difference.name} {comparison.mark}".rstrip(), *format_cells(difference)
            )
    console.print(table)
    for comparison in measure_run.comparisons:
        console.print(Text(str(comparison)), soft_wrap=True)
        for note in comparison.notes:
            console.print(Text(f"{comparison.measure}: {note}"), soft_wrap=True)


def format_cells(estimate: Measurement | Estimate) -> tuple[str, ...]:
    """Format an estimate as cells: value, interval, parity, p, n, detectable effect.

    Args:
        estimate: the estimate; n also reports its dropped items.
    """
    # The corrected p-value, if there is one: the table has all measures of a run.
    p = (
        ""
        if estimate.p is None
        else _format_p(estimate.p.value if estimate.p.adjusted is None else estimate.p.adjusted)
    )
    dropped = getattr(estimate, "dropped", ())
    n = f"{estimate.n} of {estimate.n + len(dropped)}" if dropped else str(estimate.n)
    return (
        f"{estimate.value:.4g}",
        str(estimate.interval),
        "" if estimate.parity is None else f"{estimate.parity:.4g}",
        p,
        n,
        "" if estimate.detectable is None else f"{estimate.detectable:.3g}",
    )


def _format_p(value: float) -> str:
    return "< .0001" if value < 1e-4 else f"{value:.4f}".lstrip("0") if value < 1 else "1"
