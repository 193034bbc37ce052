"""The page of a study: its figures, and its tables with those that a paper prints."""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator, Field, ValidationError

from levelhead.core.calibration import DAGGER_NOTE, failed_calibration_mark
from levelhead.core.errors import LevelheadError
from levelhead.core.files import write_atomic
from levelhead.core.results import Record, StepFailure
from levelhead.core.toml import parse_toml
from levelhead.locate.compare_maps import MapComparison
from levelhead.locate.head_map import HeadMap
from levelhead.mitigate.evaluation.knowledge_front import group_edits
from levelhead.mitigate.evaluation.price import MitigationReport
from levelhead.mitigate.selection.select_on_dev import DevSelection
from levelhead.replication.yang2025.masking_curves import MaskingCurves
from levelhead.report.charts.edits.selection import is_drawable
from levelhead.report.charts.heads.head_distribution import distribution_chart, distributions_chart
from levelhead.report.charts.heads.head_ranking import head_ranking_chart
from levelhead.report.charts.heads.masking import masking_curve_chart
from levelhead.report.charts.registry import CHARTS, chart
from levelhead.report.save import save
from levelhead.study.table import group_by_interval, result_to_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from altair.typing import ChartType

    from levelhead.study.table_row import TableRow

FIGURES_DIR = "figures"
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #111; background: #fff }
table { border-collapse: collapse; margin: 1rem 0 } th, td { padding: .2rem .7rem; text-align: left;
  border-bottom: 1px solid #ccc; font-variant-numeric: tabular-nums }
figure { margin: 1.5rem 0 } img { max-width: 100% } figcaption { color: #444 }
"""


def _to_tuples(value: object) -> object:
    """Lists of TOML, at every depth, as tuples."""
    return tuple(map(_to_tuples, value)) if isinstance(value, list) else value


class PaperTable(Record):
    """A table of a paper, and the step of the study that replicates it."""

    title: str
    note: str = ""
    columns: Annotated[tuple[str, ...], BeforeValidator(_to_tuples), Field(min_length=1)]
    rows: Annotated[tuple[tuple[str, ...], ...], BeforeValidator(_to_tuples)]
    step: str
    """Name of a step of the study."""
    what: Annotated[tuple[str, ...], BeforeValidator(_to_tuples)] = ()
    """Names of the step's numbers to show; all by default."""


class PaperTables(Record):
    """The tables of a paper."""

    source: str
    tables: Annotated[tuple[PaperTable, ...], BeforeValidator(_to_tuples)]


def read_paper_tables(path: str | Path) -> PaperTables:
    """Read the tables of a paper from a TOML file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        return PaperTables.model_validate(parse_toml(text, path))
    except (OSError, UnicodeError, ValidationError) as error:
        raise LevelheadError(f"cannot read {path}: {error}", hint="correct that file") from None


def draw_figures(results: Mapping[str, Record], folder: str | Path) -> tuple[str, ...]:
    """Write the figures of all results with a chart, as SVG and PNG, and return their names."""
    figures_dir = Path(folder) / FIGURES_DIR
    figures_dir.mkdir(parents=True, exist_ok=True)
    charts: dict[str, ChartType] = {}
    for name, result in results.items():
        if type(result) not in CHARTS or not _has_chart(result):
            continue
        charts[name] = _make_chart(result)
        if isinstance(result, HeadMap) and result.heads:
            charts[f"{name}.distribution"] = distribution_chart(result)
            charts[f"{name}.ranked"] = head_ranking_chart(result)
            if result.bias_sign.sign:
                charts[f"{name}.as-printed"] = chart(result, clip_negative=True)
        if isinstance(result, MapComparison):
            maps = [
                (result.name, result.base),
                *((variant.name, variant.head_map) for variant in result.compared_maps),
            ]
            charts[f"{name}.distributions"] = distributions_chart(maps)
    reports = {
        name.removeprefix("mitigation."): result
        for name, result in results.items()
        if isinstance(result, MitigationReport)
    }
    for number, front in enumerate(group_edits(reports), start=1):
        charts[f"knowledge.{front.bias_measure}.{number}"] = chart(front)
    for name, figure in charts.items():
        for kind in ("svg", "png"):
            save(figure, str(figures_dir / f"{name}.{kind}"))
    return tuple(charts)


def _has_chart(result: Record) -> bool:
    """Whether a result has a chart: a selection of nothing without utility costs has only text."""
    return not isinstance(result, DevSelection) or is_drawable(result)


def _make_chart(result: Record) -> ChartType:
    """Make the chart of a result; the axis of masking curves gets the name of the measure."""
    if isinstance(result, MaskingCurves):
        return masking_curve_chart(result, measure=result.measure)
    return chart(result)


def write_study_page(
    results: Mapping[str, Record],
    paper: PaperTables | None,
    folder: str | Path,
    *,
    title: str,
    figures: Sequence[str] = (),
) -> Path:
    """Write `index.html`: a paper's tables with those of the study, then every figure."""
    parts = [f"<h1>{html.escape(title)}</h1>"]
    compared_steps: set[str] = set()
    unsure = {name: result for name, result in results.items() if isinstance(result, StepFailure)}
    if unsure:
        failures = (
            f"{html.escape(name)}: {html.escape(result.problem)}" for name, result in unsure.items()
        )
        parts.append("<h2>Inconclusive</h2><ul><li>" + "</li><li>".join(failures) + "</li></ul>")
    if paper is not None:
        parts.append(f"<p>Printed figures: {html.escape(paper.source)}.</p>")
        for table in paper.tables:
            if table.step in results:
                parts += _compare_tables(table, results)
                compared_steps.add(table.step)
    for name, result in results.items():
        if (
            name not in compared_steps
            and not isinstance(result, HeadMap | StepFailure)
            and result_to_rows(name, result)
        ):
            parts += [
                f"<h2>{html.escape(name)}</h2>",
                *_verdict_lines(result),
                _numbers_tables(result_to_rows(name, result)),
            ]
        elif isinstance(result, HeadMap):
            notes = [result.bias_sign.reason, result.split.claim, result.verdict, *result.notes]
            notes += (
                [f"{result.measure} {DAGGER_NOTE}"]
                if failed_calibration_mark(result.measured_by)
                else []
            )
            parts += [f"<h2>{html.escape(name)}</h2>", f"<p>{html.escape('; '.join(notes))}.</p>"]
    for name in figures:
        source_url = html.escape(f"{FIGURES_DIR}/{name}.svg", quote=True)
        parts.append(
            f'<figure><img src="{source_url}" alt="{html.escape(name, quote=True)}">'
            f"<figcaption>{html.escape(name)}</figcaption></figure>"
        )
    page = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style>'
        + "\n".join(parts)
        + "</html>\n"
    )
    path = Path(folder) / "index.html"
    write_atomic(str(path), page.encode())
    return path


def _verdict_lines(result: Record) -> list[str]:
    """The verdict on an edit: whether it is a mitigation, and what is missing."""
    return [f"<p>{html.escape(result.title)}.</p>"] if isinstance(result, MitigationReport) else []


def _compare_tables(table: PaperTable, results: Mapping[str, Record]) -> list[str]:
    parts = [f"<h2>{html.escape(table.title)}</h2>"]
    if table.note:
        parts.append(f"<p>{html.escape(table.note)}</p>")
    parts += ["<h3>As printed</h3>", _html_table(table.columns, table.rows), "<h3>Here</h3>"]
    result_rows = result_to_rows(table.step, results[table.step])
    parts.append(
        _numbers_tables([row for row in result_rows if not table.what or row.what in table.what])
    )
    return parts


def _numbers_tables(table_rows: Sequence[TableRow]) -> str:
    columns = ("", "number", "value", "interval", "over", "p, corrected in a family of tests")
    tables = "".join(
        (f"<p>Intervals over {html.escape(over)}, not over items:</p>" if over else "")
        + _html_table(
            (*columns, "minimum detectable effect", "n"), [_row_cells(row) for row in group]
        )
        for over, group in group_by_interval(table_rows)
    )
    return tables + (f"<p>{DAGGER_NOTE}</p>" if any(row.mark for row in table_rows) else "")


def _row_cells(row: TableRow) -> tuple[str, ...]:
    interval = "" if row.low is None or row.high is None else f"[{row.low:.4g}, {row.high:.4g}]"
    p = row.p if row.adjusted is None else row.adjusted
    n = "" if row.n is None else str(row.n)
    min_effect = "" if row.detectable is None else f"{row.detectable:.3g}"
    p_cell = "" if p is None else f"{p:.4f}"
    what = f"{row.what} {row.mark}".rstrip()
    over = row.over if interval else ""
    return row.name, what, f"{row.value:.4g}", interval, over, p_cell, min_effect, n


def _html_table(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in cells
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
