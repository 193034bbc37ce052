"""`levelhead report RUN -o FILE`: a run as a page, a table, or a section of a README."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from levelhead.core.results import Record


def report(
    run: Annotated[str, typer.Argument(help="The folder of an audit or a study.")],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            help=".html: the report; .csv, .parquet, .tex: the table; .md: a section and metadata "
            "in that README, the rest of which stays as it is.",
        ),
    ],
) -> None:
    """Write what a run found as a file; its ending says how."""
    from levelhead.core.errors import UnknownName
    from levelhead.core.files import write_atomic
    from levelhead.study.results_dir import finished

    ending = Path(output).suffix.lower()
    if ending not in ENDINGS:
        raise UnknownName("kind of report", ending, ENDINGS)
    write_atomic(output, ENDINGS[ending](Path(run), finished(run), Path(output)))
    typer.echo(output, file=sys.stdout)


def _page(run: Path, results: Mapping[str, Record], output: Path) -> bytes:
    from levelhead.cli.audit import command
    from levelhead.report.audit_page.page import page
    from levelhead.study.audit.audit import read_audit

    return page(read_audit(run), results, command=command(run))


def _card(run: Path, results: Mapping[str, Record], output: Path) -> bytes:
    from levelhead.report.model_card_section import merged
    from levelhead.study.audit.audit import read_audit

    audit = read_audit(run)
    readme = output.read_bytes().decode() if output.exists() else ""
    name = Path(audit.plan.models["model"].path).name
    return merged(readme, audit, results, name=name).encode()


def _table(kind: str) -> Callable[[Path, Mapping[str, Record], Path], bytes]:
    def written(run: Path, results: Mapping[str, Record], output: Path) -> bytes:
        from levelhead.report import tables

        return bytes(getattr(tables, kind)(tables.table_of(results)))

    return written


ENDINGS: dict[str, Callable[[Path, Mapping[str, Record], Path], bytes]] = {
    ".html": _page,
    ".csv": _table("csv"),
    ".parquet": _table("parquet"),
    ".tex": _table("latex"),
    ".md": _card,
}
