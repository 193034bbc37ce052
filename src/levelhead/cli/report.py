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
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            rich_help_panel=Panel.OUTPUT,
            help="File to write. Its ending selects the format: .html for the report page; .csv, "
            ".parquet or .tex for the table; .md for a section of a README, whose other text "
            "stays unchanged.",
        ),
    ] = None,
    push: Annotated[
        str | None,
        typer.Option(
            metavar="REPO",
            rich_help_panel=Panel.OUTPUT,
            help="Model on the Hugging Face Hub for whose card the audit is proposed, as a pull "
            "request with evaluation results in the metadata.",
        ),
    ] = None,
) -> None:
    """Write a run's results as a page, a table or a README section."""
    if output is None and push is None:
        raise typer.BadParameter("name a file with -o, or a repository with --push")
    if push is not None:
        from levelhead.report.push import push_to_model_card
        from levelhead.study.audit.saved_plan import read_audit
        from levelhead.study.results_dir import load_results

        typer.echo(push_to_model_card(push, read_audit(run), load_results(run)), file=sys.stdout)
    if output is not None:
        _write(run, output)


def _write(run: str, output: str) -> None:
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
    from levelhead.core.errors import LevelheadError
    from levelhead.report.model_card_section import update_readme
    from levelhead.study.audit.saved_plan import read_audit

    audit = read_audit(run)
    # Only the section between levelhead's marks is replaced: the rest belongs to the user.
    try:
        readme = output.read_bytes().decode() if output.exists() else ""
    except UnicodeDecodeError:
        raise LevelheadError(f"{output} is not UTF-8 text", hint="save it as UTF-8") from None
    if (model := audit.study_config.models.get("model")) is None:
        raise LevelheadError(f"the audit in {run} has no model", hint="audit the model again")
    name = Path(model.path).name
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
