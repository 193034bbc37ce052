"""The figures of a study, and its tables beside those that a paper prints."""

from __future__ import annotations

import html
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator, Field, ValidationError

from levelhead.core.calibration import MISSED, mark_of
from levelhead.core.errors import LevelheadError
from levelhead.core.files import write_atomic
from levelhead.core.results import Inconclusive, Record
from levelhead.locate.compare_maps import MapComparison
from levelhead.locate.head_map import HeadMap
from levelhead.mitigate.heads.mask_top_heads import Lines
from levelhead.mitigate.selection.select_on_dev import Choice
from levelhead.report.charts.edits.selection import drawable
from levelhead.report.charts.registry import (
    CHARTS,
    chart,
    distribution,
    distributions,
    lined,
    ranked,
)
from levelhead.report.save import save
from levelhead.study.table import blocks, rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from altair.typing import ChartType

    from levelhead.study.row import Row

FIGURES = "figures"
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #111; background: #fff }
table { border-collapse: collapse; margin: 1rem 0 } th, td { padding: .2rem .7rem; text-align: left;
  border-bottom: 1px solid #ccc; font-variant-numeric: tabular-nums }
figure { margin: 1.5rem 0 } img { max-width: 100% } figcaption { color: #444 }
"""


def _tuples(value: object) -> object:
    """Lists of TOML, at every depth, as tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


class Printed(Record):
    """A table as a paper prints it, and which part of the study is ours."""

    title: str
    note: str = ""
    columns: Annotated[tuple[str, ...], BeforeValidator(_tuples), Field(min_length=1)]
    rows: Annotated[tuple[tuple[str, ...], ...], BeforeValidator(_tuples)]
    ours: str
    """A step of the study."""
    what: Annotated[tuple[str, ...], BeforeValidator(_tuples)] = ()
    """Which of its numbers; all by default."""


class Paper(Record):
    """What a paper prints."""

    source: str
    tables: Annotated[tuple[Printed, ...], BeforeValidator(_tuples)]


def read_printed(path: str | Path) -> Paper:
    """A file of tables that a paper prints."""
    try:
        return Paper.model_validate(tomllib.loads(Path(path).read_text(encoding="utf-8")))
    except (OSError, tomllib.TOMLDecodeError, ValidationError) as error:
        raise LevelheadError(f"cannot read {path}: {error}", mend="mend that file") from None


def draw(results: Mapping[str, Record], folder: str | Path) -> tuple[str, ...]:
    """Write the figures of every result that has a chart, as SVG and PNG; their names."""
    place = Path(folder) / FIGURES
    place.mkdir(parents=True, exist_ok=True)
    drawn: dict[str, ChartType] = {}
    for name, result in results.items():
        if type(result) not in CHARTS or not _has_picture(result):
            continue
        drawn[name] = _drawn(result)
        if isinstance(result, HeadMap) and result.heads:
            drawn[f"{name}.distribution"] = distribution(result)
            drawn[f"{name}.ranked"] = ranked(result)
            if result.direction.sign:
                drawn[f"{name}.as-printed"] = chart(result, clip_negative=True)
        if isinstance(result, MapComparison):
            maps = [(result.name, result.base), *((one.name, one.map) for one in result.children)]
            drawn[f"{name}.distributions"] = distributions(maps)
    for name, figure in drawn.items():
        for kind in ("svg", "png"):
            save(figure, str(place / f"{name}.{kind}"))
    return tuple(drawn)


def _has_picture(result: Record) -> bool:
    """A choice of nothing, without a price, has none; the page tells it in words."""
    return not isinstance(result, Choice) or drawable(result)


def _drawn(result: Record) -> ChartType:
    """The chart of a result; a curve's axis says what it is of."""
    if isinstance(result, Lines):
        return lined(result, measure=result.measure)
    return chart(result)


def beside(
    results: Mapping[str, Record],
    paper: Paper | None,
    folder: str | Path,
    *,
    title: str,
    figures: Sequence[str] = (),
) -> Path:
    """Write `index.html`: a paper's tables beside ours, then every figure."""
    parts = [f"<h1>{html.escape(title)}</h1>"]
    shown: set[str] = set()
    unsure = {name: one for name, one in results.items() if isinstance(one, Inconclusive)}
    if unsure:
        told = (f"{html.escape(name)}: {html.escape(one.what)}" for name, one in unsure.items())
        parts.append("<h2>Inconclusive</h2><ul><li>" + "</li><li>".join(told) + "</li></ul>")
    if paper is not None:
        parts.append(f"<p>Printed figures: {html.escape(paper.source)}.</p>")
        for table in paper.tables:
            if table.ours in results:
                parts += _beside(table, results)
                shown.add(table.ours)
    for name, one in results.items():
        if name not in shown and not isinstance(one, HeadMap | Inconclusive) and rows(name, one):
            parts += [f"<h2>{html.escape(name)}</h2>", _numbers(rows(name, one))]
        elif isinstance(one, HeadMap):
            notes = [one.direction.why, one.halves.claim, one.verdict, *one.notes]
            notes += [f"{one.measure} {MISSED}"] if mark_of(one.measured_by) else []
            parts += [f"<h2>{html.escape(name)}</h2>", f"<p>{html.escape('; '.join(notes))}.</p>"]
    for name in figures:
        where = html.escape(f"{FIGURES}/{name}.svg", quote=True)
        parts.append(
            f'<figure><img src="{where}" alt="{html.escape(name, quote=True)}">'
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


def _beside(table: Printed, results: Mapping[str, Record]) -> list[str]:
    parts = [f"<h2>{html.escape(table.title)}</h2>"]
    if table.note:
        parts.append(f"<p>{html.escape(table.note)}</p>")
    parts += ["<h3>As printed</h3>", _table(table.columns, table.rows), "<h3>Here</h3>"]
    found = rows(table.ours, results[table.ours])
    parts.append(_numbers([row for row in found if not table.what or row.what in table.what]))
    return parts


def _numbers(found: Sequence[Row]) -> str:
    columns = ("", "number", "value", "interval", "over", "p, corrected if of a family")
    told = "".join(
        (f"<p>Intervals over {html.escape(over)}, not over items:</p>" if over else "")
        + _table((*columns, "least effect found", "n"), [_cells(row) for row in own])
        for over, own in blocks(found)
    )
    return told + (f"<p>{MISSED}</p>" if any(row.mark for row in found) else "")


def _cells(row: Row) -> tuple[str, ...]:
    interval = "" if row.low is None or row.high is None else f"[{row.low:.4g}, {row.high:.4g}]"
    p = row.p if row.adjusted is None else row.adjusted
    n = "" if row.n is None else str(row.n)
    least = "" if row.detectable is None else f"{row.detectable:.3g}"
    told = "" if p is None else f"{p:.4f}"
    what = f"{row.what} {row.mark}".rstrip()
    over = row.over if interval else ""
    return row.name, what, f"{row.value:.4g}", interval, over, told, least, n


def _table(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in cells
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
