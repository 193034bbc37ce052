"""Results of `levelhead calibrate`, into the package, into data files and onto their page.

    python tools/calibration.py FOLDER [--write]
    python tools/calibration.py FOLDER --measures-only [--quick] [--workers N] [--write]
    python tools/calibration.py FOLDER --matrix [--quick] [--workers N] [--write]
    python tools/calibration.py FOLDER --chat [--only MEASURE ...] [--quick] [--workers N] [--write]

FOLDER is that of a full run. With --write, every table is written to a CSV file of
docs/results/data/calibration, a summary into docs/results/calibration.md, the picture anew, and the
numbers that reports cite (calibration.json of levelhead.core).

--measures-only runs the dose models alone, into FOLDER, and keeps the package's locators, edits and
removals with the versions and the machine that made them. --matrix compares every verdict with the
expected one, writes FOLDER/controls.json, and with --write the matrix; it ends with 1 where an
exception is unexplained. Both continue where they stopped, and share their models in FOLDER.

--chat runs the chat organisms alone, in minutes: the rows of decisions and of generated texts, and
the verdicts on models that give one answer to everything. It ends with 1 where one is parity. With
--only the rows of other measures stay.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING

from levelhead.calibrate.chat_doses import (
    list_constant_models,
    make_constant_table,
    refresh_chat_calibration,
    run_chat_models,
    with_chat_rows,
)
from levelhead.calibrate.run import refresh_calibration
from levelhead.calibrate.tables import EMPTY, TextTable, make_calibration_tables
from levelhead.calibrate.verdict_matrix import (
    VerdictMatrix,
    make_matrix_tables,
    run_verdict_matrix,
)
from levelhead.core.calibration import CALIBRATION_FILE, CHAT_ARCHITECTURE, Calibration
from levelhead.core.files import write_atomic
from levelhead.engine.executors.processes import LocalProcesses
from levelhead.report.charts.dose_response import dose_response_chart
from levelhead.report.save import render_svg

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from levelhead.core.calibration import OrganismHash

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results" / "calibration.md"
DATA = ROOT / "docs" / "results" / "data" / "calibration"
PICTURE = ROOT / "docs" / "pictures" / "dose.svg"
PACKAGE = ROOT / "src" / "levelhead" / "core" / CALIBRATION_FILE
SIDES = ("below", "above")
MARKS, MATRIX_MARKS = (
    tuple(f"<!-- tools/calibration.py{what} writes {side} this line -->\n" for side in SIDES)
    for what in ("", " --matrix")
)
FILES = {
    "Did the models learn": "skills",
    "Measures: ": "measures",
    "Utilities and Distance": "measures-without-a-dose",
    "Confounders": "confounders",
    "Locators: ": "known-heads",
    "Locators on ordinary models": "ordinary-models",
    "Edits: ": "edits",
    "Removed or hidden": "removals",
    "Controls: ": "controls",
    "Expected and actual verdicts": "verdicts",
    "Exceptions": "exceptions",
    "False alarms": "false-alarms",
    "Heads of controls": "control-heads",
    "One answer": "one-answer",
}
"""The data file of a table, by the first words of its title."""
NUMBER = r"-?\d[\d.]*(?:e[+-]?\d+)?"
CELL = re.compile(
    rf"(?:(?P<note>[a-z ]+): )?(?P<value>{NUMBER})(?: of (?P<of>\d+))?"
    rf"(?: \[(?P<low>{NUMBER})(?P<percent>%)?, (?P<high>{NUMBER})%?\])?(?:, n (?P<n>\d+))?"
)
"""A number, a count of a total, or an estimate with its interval, as tables show them."""


def csv_text(table: TextTable) -> str:
    """A table as CSV: numbers, totals and ends of intervals in columns of their own."""
    columns: dict[str, list[str]] = {}
    for index, title in enumerate(table.columns):
        columns |= _split_column(title, [row[index] for row in table.rows])
    file = io.StringIO()
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(columns)
    rows.writerows(zip(*columns.values(), strict=True))
    return file.getvalue()


def _split_column(title: str, cells: list[str]) -> dict[str, list[str]]:
    """The parts of a column, by name; text stays one column, beside numbers it is a note."""
    texts = ["" if cell == EMPTY else cell for cell in cells]
    matches = [CELL.fullmatch(text) for text in texts]
    if not any(match and (match["low"] or match["of"]) for match in matches):
        return {title: texts}
    parts: dict[str, list[str]] = {}
    for part in ("value", "of", "low", "high", "n", "note"):
        values = [
            _part(match, part) if match else text * (part == "note")
            for match, text in zip(matches, texts, strict=True)
        ]
        if part == "value" or any(values):
            parts[title if part == "value" else f"{title}: {part}"] = values
    return parts


def _part(match: re.Match[str], part: str) -> str:
    text = match[part] or ""
    if match["percent"] and part in ("low", "high"):
        return f"{float(text) / 100:.4g}"
    return text


def write_tables(tables: Iterable[TextTable]) -> None:
    """Every table into its file; tables of one kind, one per family, into one."""
    files: dict[str, list[TextTable]] = {}
    for table in tables:
        name = next(file for words, file in FILES.items() if table.title.startswith(words))
        files.setdefault(name, []).append(_with_family(table))
    for name, parts in files.items():
        rows = tuple(row for table in parts for row in table.rows)
        text = csv_text(TextTable(name, parts[0].columns, rows))
        write_atomic(str(DATA / f"{name}.csv"), text.encode())


def _with_family(table: TextTable) -> TextTable:
    """The family of a table of one family as a column."""
    family = re.search(r", (\w+)-like models$", table.title)
    if family is None:
        return table
    rows = tuple((family[1], *row) for row in table.rows)
    return TextTable(table.title, ("family", *table.columns), rows)


def page(result: Calibration) -> str:
    """The runs that made the calibration; their tables are data files."""
    output = [_made("Made", result.command, result.versions, result.machine, result.models)]
    for later in result.refreshed:
        parts = " and ".join(later.parts)
        output.append(
            _made(
                f"Made anew ({parts})", later.command, later.versions, later.machine, later.models
            )
        )
    output.append(f"Hashes of texts and weights: `{CALIBRATION_FILE}` of `levelhead.core`.\n")
    return "\n".join(filter(None, output))


def matrix_page(matrix: VerdictMatrix) -> str:
    """The agreement of the matrix, and the run that made it."""
    made = _made("Made", matrix.command, matrix.versions, matrix.machine, matrix.models)
    return f"{matrix.summary}\n\n{made}"


def _made(
    what: str,
    command: str,
    versions: Mapping[str, object],
    machine: str,
    models: Sequence[OrganismHash],
) -> str:
    shown = ", ".join(f"{name} {versions[name]}" for name in ("levelhead", "torch", "transformers"))
    return f"{what} by `{command}` from {len(models)} models; {shown}; {machine}.\n"


def write(result: Calibration, picture: bytes) -> None:
    """The data files, the page between its marks, the picture, and the file of the package."""
    write_tables(table for table in make_calibration_tables(result) if table.rows)
    _write_between(MARKS, page(result))
    write_atomic(str(PICTURE), picture)
    write_atomic(str(PACKAGE), result.to_json().encode() + b"\n")


def write_matrix(matrix: VerdictMatrix) -> None:
    """The data files of the matrix, and the page between its marks."""
    write_tables(table for table in make_matrix_tables(matrix) if table.rows)
    _write_between(MATRIX_MARKS, matrix_page(matrix))


def _write_between(marks: Sequence[str], text: str) -> None:
    begin, end = marks
    above, _, rest = PAGE.read_text().partition(begin)
    _, _, below = rest.partition(end)
    write_atomic(str(PAGE), f"{above}{begin}\n{text}\n{end}{below}".encode())


def check_constant_models(
    store: str, runner: LocalProcesses | None, given: argparse.Namespace
) -> None:
    """End with 1 where a measure reads a model with one answer as anything but inconclusive."""
    models = list_constant_models(quick=given.quick)
    table, n_read = make_constant_table(run_chat_models(models, store, executor=runner))
    print(f"{n_read} of {len(table.rows)} measures of models with one answer are not inconclusive")
    if given.write:
        write_tables([table])
    if n_read:
        raise SystemExit(1)


def main() -> None:
    """Print the summary, or write everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--measures-only", action="store_true")
    what.add_argument("--matrix", action="store_true")
    what.add_argument("--chat", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--workers", type=int, default=0)
    given = parser.parse_args()
    if given.only and not given.chat:
        parser.error("--only names measures of --chat")
    if given.write and given.quick:
        parser.error("a quick run shows that it works, not what is true: give a full one")
    given.folder.mkdir(parents=True, exist_ok=True)
    store = f"{given.folder}/store"
    runner = LocalProcesses(given.workers) if given.workers else None
    if given.matrix:
        matrix = run_verdict_matrix(store, quick=given.quick, executor=runner)
        write_atomic(str(given.folder / "controls.json"), matrix.to_json().encode() + b"\n")
        print(matrix_page(matrix))
        if given.write:
            write_matrix(matrix)
        if matrix.unexplained:
            parser.exit(1, f"{len(matrix.unexplained)} exceptions are unexplained\n")
        return
    past = Calibration.from_json(PACKAGE.read_bytes())
    if given.chat:
        result = refresh_chat_calibration(
            store, past, quick=given.quick, only=tuple(given.only), executor=runner
        )
        picture = PICTURE.read_bytes()  # of the trained organisms only
        check_constant_models(store, runner, given)
    elif given.measures_only:
        result = refresh_calibration(store, past, quick=given.quick, executor=runner)
        trained = [row for row in result.measures if row.architecture != CHAT_ARCHITECTURE]
        picture = render_svg(dose_response_chart(trained)) if given.write else b""
    else:
        result = Calibration.from_json((given.folder / CALIBRATION_FILE).read_bytes())
        result = with_chat_rows(result, past)
        if given.write and "--quick" in result.command:
            parser.error("a quick run shows that it works, not what is true: give a full one")
        picture = (given.folder / "dose.svg").read_bytes() if given.write else b""
    print(page(result))
    if given.write:
        write(result, picture)


if __name__ == "__main__":
    main()
