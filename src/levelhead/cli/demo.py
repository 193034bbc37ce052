"""`levelhead demo`: a planted bias, measured; nothing to download."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.cli.shared.options import to_write
from levelhead.cli.shared.progress import steps
from levelhead.core.run_context import Inference

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.calibrate.demo import Grown
    from levelhead.core.results import Record
    from levelhead.locate.head_map import HeadMap
    from levelhead.measures.compare import Comparison
    from levelhead.models.sites import Site
    from levelhead.study.audit.audit import Audit


def demo(
    architecture: Annotated[
        str, typer.Option(help="bert, roberta, albert, gpt2 or llama: which kind to grow.")
    ] = "bert",
    seed: Annotated[int, typer.Option(help="Of text and training.")] = 0,
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", callback=to_write, help="Where the report goes, an HTML file."
        ),
    ] = "levelhead-demo.html",
) -> None:
    """Grow a small model twice, without and with a planted bias, and measure both.

    The biased one is edited, and measured again: what that buys and what it costs. A third one has
    a single head that sees group words; its heads are located. It ends with a report to open.

    The text is made here, so its bias is known: at rho 0 group words and occupations, traits and
    likings are independent, at rho 1 they always agree. Models are kept in the cache.
    """
    from levelhead.calibrate.demo import audited, located, mitigated
    from levelhead.calibrate.demo import demo as run

    # As an audit's: half the time is statistics.
    inference = Inference(resamples=999, permutations=1999)
    with steps() as tell:
        found = run(architecture, seed=seed, inference=inference, tell=tell)
        compared = mitigated(found[-1], inference=inference, tell=tell)
        heads, planted = located(seed=seed, inference=inference, tell=tell)
    _show(found)
    _show_edited(found[-1], compared)
    _show_heads(heads, planted)
    _report(*audited(found[-1], compared, heads), output)


def _report(audit: Audit, results: Mapping[str, Record], output: str) -> None:
    """The same as a page, if what draws it is installed."""
    from levelhead.core.errors import MissingExtra
    from levelhead.core.files import write_atomic
    from levelhead.report.audit_page.page import page

    try:
        write_atomic(output, page(audit, results, command="levelhead demo"))
    except MissingExtra as error:
        typer.echo(f"levelhead: no report: {error}", err=True)
        return
    typer.echo(f"\na report to open: {output}")


def _show_edited(grown: Grown, compared: Sequence[Comparison]) -> None:
    """What a projection of the biased model buys and costs."""
    rho = grown.organism.language.rho
    typer.echo(
        f"\nrho {rho:g}, edited: the direction in which sentences of the two groups differ\n"
        "is taken out, from the last layer but one onwards; the last row is its price:"
    )
    for one in compared:
        typer.echo(f"  {one}")


def _show_heads(heads: HeadMap, planted: Site) -> None:
    """Where the one head that sees group words comes among all heads."""
    from levelhead.locate.head_map import label

    first = heads.ranked[0]
    rank = [one.site for one in heads.ranked].index(planted) + 1
    typer.echo(
        f"\na third model, in which head {label(planted)} alone sees group words (<layer>-<head>, "
        f"counted from 1):\n  first by gradient: {first.label}; the planted head comes "
        f"{rank} of {len(heads.heads)}"
    )
    if first.effect is not None:
        typer.echo(
            f"  without {first.label}, {heads.measure} loses {first.effect:.3g} {first.interval} "
            f"of {heads.measurement.value:.3g}, on the other half of the words"
        )


def _show(found: Sequence[Grown]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from levelhead.calibrate.demo import FOUND
    from levelhead.cli.measure import cells
    from levelhead.core.calibration import MISSED, mark_of, marked

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 110)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("ruler", "planted", "value", "interval", "parity", "p", "n", "detectable"):
        table.add_column(name, justify="left" if name in ("ruler", "interval") else "right")
    for rows in zip(*(one.measurements for one in found), strict=True):
        for grown, one in zip(found, rows, strict=True):
            table.add_row(
                marked(one.measure, one), f"rho {grown.organism.language.rho:g}", *cells(one)
            )
    console.print(table)
    if any(mark_of(one) for grown in found for one in grown.measurements):
        console.print(Text(MISSED))
    console.print()
    for grown in found:
        rho = f"rho {grown.organism.language.rho:g}"
        for skill in grown.skills:
            console.print(Text(f"{rho}: {skill}"), soft_wrap=True)
        rulers = f"{len(grown.found)} of {len(grown.measurements)} rulers"
        named = [marked(one.measure, one) for one in grown.measurements]
        named = [name for name in named if name.partition(" ")[0] in grown.found]
        told = f" ({', '.join(named)})" if named else ""
        console.print(
            Text(f"{rho}: {rulers} tell it from parity, Holm-corrected p <= {FOUND}{told}"),
            soft_wrap=True,
        )
    console.print()
    for grown in found:
        console.print(
            Text(f"rho {grown.organism.language.rho:g} is kept in {grown.folder}"), soft_wrap=True
        )
