"""`levelhead demo`: measure a planted bias, without any download."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.cli.shared.help_pages import Panel
from levelhead.cli.shared.options import Quiet, check_output_path
from levelhead.cli.shared.progress import show_steps
from levelhead.core.run_context import Inference

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.calibrate.demo import DemoModel
    from levelhead.core.results import Record
    from levelhead.locate.head_map import HeadMap
    from levelhead.measures.compare import Comparison
    from levelhead.models.sites import Site
    from levelhead.study.audit.audit import Audit


def demo_command(
    architecture: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=Panel.TRAINING,
            help="Architecture to train: bert, roberta, albert, gpt2 or llama.",
        ),
    ] = "bert",
    seed: Annotated[
        int,
        typer.Option(
            metavar="SEED",
            rich_help_panel=Panel.TRAINING,
            help="Random seed of the text and the training.",
        ),
    ] = 0,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            rich_help_panel=Panel.OUTPUT,
            callback=check_output_path,
            help="HTML file for the report.",
        ),
    ] = "levelhead-demo.html",
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            rich_help_panel=Panel.TRAINING,
            help="Train for three times as many steps, as calibration does; takes minutes.",
        ),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Train two small models, one with planted bias; measure both.

    The biased model is edited and measured again, for its bias reduction and utility cost. In a
    third model a single head sees group words, and all heads are scored. The result is an HTML
    report. Nothing is downloaded. It takes one to two minutes, and less when it is repeated: the
    models are stored in the cache.

    The text is generated here, so its bias is known: at rho 0 group words are independent of
    occupations, traits and likings, at rho 1 they always agree.
    """
    from levelhead.calibrate.demo import (
        locate_visible_head,
        make_demo_audit,
        mitigate_demo,
        run_demo,
    )

    # Fewer resamples than `measure` uses, as in an audit: half the time is statistics.
    inference = Inference(resamples=999, permutations=1999)
    with show_steps(quiet=quiet) as on_step:
        organism_models = run_demo(
            architecture, seed=seed, quick=not full, inference=inference, progress=on_step
        )
        comparisons = mitigate_demo(organism_models[-1], inference=inference, progress=on_step)
        heads, planted = locate_visible_head(
            seed=seed, quick=not full, inference=inference, progress=on_step
        )
    _show(organism_models)
    if not full:
        typer.echo("\nThe training was short; `levelhead demo --full` trains three times longer.")
    _show_edited(organism_models[-1], comparisons)
    _show_heads(heads, planted)
    _report(*make_demo_audit(organism_models[-1], comparisons, heads), output)


def _report(audit: Audit, results: Mapping[str, Record], output: str) -> None:
    """Write the results as a page, if the report extra is installed."""
    from levelhead.core.errors import MissingExtraError
    from levelhead.core.files import write_atomic
    from levelhead.report.audit_page.page import render_audit_page

    try:
        write_atomic(output, render_audit_page(audit, results, command="levelhead demo"))
    except MissingExtraError as error:
        typer.echo(f"levelhead: no report: {error}", err=True)
        return
    typer.echo(f"\nreport: {output} (open it in a browser)")


def _show_edited(organism_model: DemoModel, comparisons: Sequence[Comparison]) -> None:
    """Print the bias reduction and utility cost of a projection of the biased model."""
    rho = organism_model.organism.language.rho
    typer.echo(
        f"\nEdited model (rho {rho:g}): the direction in which sentences of the two groups differ "
        "is projected\nout from the penultimate layer on. Two measures of bias, then the utility "
        "cost:"
    )
    for comparison in comparisons:
        typer.echo(f"  {comparison}")


def _show_heads(heads: HeadMap, planted: Site) -> None:
    """Print the rank of the one head that sees group words among all heads."""
    from levelhead.locate.head_map import head_label

    first = heads.ranked_heads[0]
    rank = [head.site for head in heads.ranked_heads].index(planted) + 1
    typer.echo(
        f"\nThird model, in which head {head_label(planted)} alone sees group words "
        f"(layer-head, counted from 1):\n"
        f"  highest gradient score: {first.label}; the planted head has rank {rank} of "
        f"{len(heads.heads)}"
    )
    if first.effect is not None:
        typer.echo(
            f"  masking {first.label} lowers {heads.measure} by {first.effect:.3g} "
            f"{first.interval} from {heads.measurement.value:.3g}, on the other half of the words"
        )


def _show(organism_models: Sequence[DemoModel]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from levelhead.calibrate.demo import DETECTION_P
    from levelhead.cli.shared.measurement_tables import format_cells
    from levelhead.core.calibration import DAGGER_NOTE, failed_calibration_mark, with_mark

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 110)
    table = Table(box=None, pad_edge=False, header_style="bold")
    console.print(
        Text(
            "Two small models, trained on generated text. rho is the planted bias: at 0 groups and "
            "occupations are independent, at 1 they always agree."
        )
    )
    console.print()
    for name in ("measure", "planted", "value", "interval", "parity", "p", "n", "detectable"):
        table.add_column(name, justify="left" if name in ("measure", "interval") else "right")
    # Both models of a measure in adjacent rows: the comparison is the point of the demo.
    for rows in zip(
        *(organism_model.measurements for organism_model in organism_models), strict=True
    ):
        for organism_model, measurement in zip(organism_models, rows, strict=True):
            table.add_row(
                with_mark(measurement.measure, measurement),
                f"rho {organism_model.organism.language.rho:g}",
                *format_cells(measurement),
            )
    console.print(table)
    if any(
        failed_calibration_mark(measurement)
        for organism_model in organism_models
        for measurement in organism_model.measurements
    ):
        console.print(Text(DAGGER_NOTE))
    console.print()
    for organism_model in organism_models:
        rho = f"rho {organism_model.organism.language.rho:g}"
        for skill in organism_model.skills:
            console.print(Text(f"{rho}: skill: {skill}"), soft_wrap=True)
        count_text = (
            f"{len(organism_model.detecting_measures)} of {len(organism_model.measurements)} "
            "measures"
        )
        measure_names = [
            with_mark(measurement.measure, measurement)
            for measurement in organism_model.measurements
        ]
        measure_names = [
            name
            for name in measure_names
            if name.partition(" ")[0] in organism_model.detecting_measures
        ]
        names_text = f": {', '.join(measure_names)}" if measure_names else ""
        lines = [
            f"{rho}: {count_text} detect a bias (Holm-corrected p <= {DETECTION_P}){names_text}"
        ]
        lines += [
            f"{rho}: inconclusive: {name}: {reason}"
            for name, reason in organism_model.inconclusive_measures
        ]
        for line in lines:
            console.print(Text(line), soft_wrap=True)
    console.print()
    for organism_model in organism_models:
        console.print(
            Text(
                f"rho {organism_model.organism.language.rho:g} is stored in {organism_model.folder}"
            ),
            soft_wrap=True,
        )
