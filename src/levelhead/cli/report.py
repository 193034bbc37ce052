"""`levelhead report RUN -o FILE`: write a run as a page, a table, or a section of a README."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.cli.shared.help_pages import Panel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from levelhead.core.results import Record


def report_command(
    run: Annotated[
        str, typer.Argument(metavar="FOLDER", help="Folder of an audit's or a study's results.")
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            rich_help_panel=Panel.OUTPUT,
            help="File to write. Its ending selects the format: .html for the report page; .csv, "
            ".parquet or .tex for the table; .md for a section of a README, whose other text "
            "stays unchanged.",
        ),
    ],
) -> None:
    """Write a run's results as a page, a table or a README section."""
    from levelhead.core.errors import UnknownNameError
    from levelhead.core.files import write_atomic
    from levelhead.study.results_dir import load_results

    ending = Path(output).suffix.lower()
    if ending not in ENDINGS:
        raise UnknownNameError("kind of report", ending, ENDINGS)
    write_atomic(output, ENDINGS[ending](Path(run), load_results(run), Path(output)))
    typer.echo(output, file=sys.stdout)


def _page(run: Path, results: Mapping[str, Record], output: Path) -> bytes:
    from levelhead.cli.audit import rerun_command
    from levelhead.report.audit_page.page import render_audit_page
    from levelhead.study.audit.saved_plan import read_audit

    return render_audit_page(read_audit(run), results, command=rerun_command(run))


def _card(run: Path, results: Mapping[str, Record], output: Path) -> bytes:
    from levelhead.report.model_card_section import update_readme
    from levelhead.study.audit.saved_plan import read_audit

    audit = read_audit(run)
    # Only the section between levelhead's marks is replaced: the rest belongs to the user.
    readme = output.read_bytes().decode() if output.exists() else ""
    name = Path(audit.study_config.models["model"].path).name
    return update_readme(readme, audit, results, name=name).encode()


def _table(kind: str) -> Callable[[Path, Mapping[str, Record], Path], bytes]:
    def render(run: Path, results: Mapping[str, Record], output: Path) -> bytes:
        from levelhead.report import tables

        return bytes(getattr(tables, kind)(tables.results_to_rows(results)))

    return render


ENDINGS: dict[str, Callable[[Path, Mapping[str, Record], Path], bytes]] = {
    ".html": _page,
    ".csv": _table("to_csv_bytes"),
    ".parquet": _table("to_parquet_bytes"),
    ".tex": _table("to_latex_bytes"),
    ".md": _card,
}
