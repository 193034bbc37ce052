"""Results of studies on real weights: docs/results/data/studies/RUN.csv, and a list on a page.

    python tools/study_results.py PAGE RUN [RUN ...] [--write]

Every RUN is a folder that `levelhead study run STUDY.toml -o RUN` wrote. --write writes a CSV file
with one row per number for each, and the page's list of data files, between its marks. Everything
else on the page is written by hand, and files of runs that are not given stay as they are.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING

from levelhead.core.calibration import failed_calibration_mark
from levelhead.core.files import write_atomic
from levelhead.core.results import StepFailure
from levelhead.locate.head_map import HeadMap
from levelhead.mitigate.evaluation.price import MitigationReport
from levelhead.mitigate.selection.method_table import MethodTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from levelhead.core.results import Estimate, Interval

ROOT = Path(__file__).parents[1]
DATA = ROOT / "docs" / "results" / "data" / "studies"
TOP_K = ", top "
"""In names of knowledge: numbers at the paper's three k, which its picture shows."""
COLUMNS = (
    *("step", "name", "number", "value", "low", "high", "over", "p", "detectable", "n"),
    *("mark", "note"),
)
"""p is the corrected one where a test is one of several; `over` names the units of an interval."""
INCONCLUSIVE = "inconclusive: "
SHOWN_HEADS = 5, 3
"""Heads of a map that are written: the first and the last."""
BEGIN, END = (
    f"<!-- tools/study_results.py writes {side} this line -->\n" for side in ("below", "above")
)


def number(value: str | float | None) -> str:
    """Four digits, or nothing."""
    return "" if value in ("", None) else f"{float(value):.4g}"


def study_row(row: dict[str, str]) -> dict[str, str]:
    """A row of a study's own table, rounded, with the columns of the data files."""
    p = row["adjusted"] or row["p"]
    return {
        **{key: row.get(key, "") for key in ("step", "name", "over", "n", "mark")},
        **{key: number(row[key]) for key in ("value", "low", "high", "detectable")},
        "number": row["what"],
        "p": f"{float(p):.4f}" if p else "",
    }


def interval_cells(interval: Interval | None) -> dict[str, str]:
    """The ends of an interval."""
    return {} if interval is None else {"low": number(interval.low), "high": number(interval.high)}


def estimate_row(name: str, label: str, estimate: Estimate) -> dict[str, str]:
    """A row of an estimate of a map."""
    cells = {"name": name, "number": label, "value": number(estimate.value)}
    return cells | interval_cells(estimate.interval)


def map_rows(heads: HeadMap) -> Iterator[dict[str, str]]:
    """A map in numbers: its halves, sign and agreement, and its first and last heads."""
    halves, model = heads.split, Path(heads.provenance.model).name
    yield {**estimate_row("discovery half", heads.measure, halves.discovery), "note": model}
    if halves.confirmation:
        row = estimate_row("confirmation half", heads.measure, halves.confirmation)
        yield {**row, "note": model}
    sign = heads.bias_sign
    yield {"name": "map", "number": "sign", "value": str(sign.sign), "note": sign.reason}
    yield {
        "name": "map",
        "number": "positive scores",
        "value": str(sum(head.score > 0 for head in heads.heads)),
        "n": str(len(heads.heads)),
        "note": f"{heads.verdict}; {halves.claim}",
    }
    for item in (heads.agreement, heads.replication):
        if item is not None:
            yield estimate_row("map", f"rank correlation of {item.name}", item)
    ranked, (first, last) = heads.ranked_heads, SHOWN_HEADS
    for head in (*ranked[:first], *ranked[-last:]):
        name = f"head {head.label}"
        yield {"name": name, "number": "score", "value": number(head.score)}
        if head.effect is not None:
            p = "" if head.p is None or head.p.adjusted is None else f"{head.p.adjusted:.4f}"
            cells = {"value": number(head.effect), "detectable": number(head.detectable), "p": p}
            yield {"name": name, "number": "effect", **cells, **interval_cells(head.interval)}


def run_rows(folder: Path) -> Iterator[dict[str, str]]:
    """Every number of a run; a step that gave none is a row with the reason."""
    with (folder / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    for path in sorted((folder / "results").iterdir()):
        step, text = path.stem, path.read_text()
        if text.startswith('{"hint"'):
            yield {"step": step, "note": f"{INCONCLUSIVE}{StepFailure.from_json(text).problem}"}
        elif step.startswith("map."):
            heads = HeadMap.from_json(text)
            mark = failed_calibration_mark(heads.measured_by)
            yield from ({"step": step, "mark": mark, **row} for row in map_rows(heads))
        else:
            is_task = step.startswith("glue.")
            kept = (row for row in rows if row["step"] == step)
            yield from (study_row(row) for row in kept if is_task or TOP_K not in row["name"])
            if step.startswith("mitigation."):
                # Without these rows, a cost that could not be measured would look like none.
                for gap in MitigationReport.from_json(text).unmeasured:
                    yield {"step": step, "name": gap.measure, "note": f"not compared: {gap.reason}"}
            if step.startswith("methods."):
                # An empty cell of the table has its reason.
                for method in MethodTable.from_json(text).methods:
                    setting = f"{method.setting}, of {method.n_settings}" if method.setting else ""
                    yield {
                        "step": step,
                        "name": method.method,
                        "number": "verdict",
                        "note": ": ".join(filter(None, (setting, method.verdict))),
                    }
                    for cell, reason in method.missing:
                        note = f"not measured: {reason}"
                        yield {"step": step, "name": method.method, "number": cell, "note": note}


def csv_text(rows: Iterable[dict[str, str]]) -> str:
    """Rows as CSV."""
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def summary(texts: dict[str, str]) -> str:
    """The list of data files: steps, numbers, and steps that gave none."""
    lines = ["| data | steps | numbers | inconclusive steps |", "|---|---|---|---|"]
    for run, text in texts.items():
        rows = list(csv.DictReader(io.StringIO(text)))
        steps = {row["step"] for row in rows}
        failed = [row["step"] for row in rows if row["note"].startswith(INCONCLUSIVE)]
        cells = (str(len(steps)), str(len(rows) - len(failed)), ", ".join(failed) or "none")
        lines.append(f"| [{run}.csv](data/studies/{run}.csv) | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the list of data files, or write the files and the list."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=Path)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    texts = {folder.name: csv_text(run_rows(folder)) for folder in given.runs}
    if not given.write:
        print(summary(texts))
        return
    above, begin, rest = given.page.read_text().partition(BEGIN)
    listed, end, below = rest.partition(END)
    if not begin or not end:
        parser.error(f"{given.page} has no lines {BEGIN.strip()} and {END.strip()}")
    for run, text in texts.items():
        write_atomic(str(DATA / f"{run}.csv"), text.encode())
    names = dict.fromkeys([*re.findall(r"\[(\S+)\.csv\]", listed), *texts])
    texts = {run: (DATA / f"{run}.csv").read_text() for run in names}
    page = f"{above}{BEGIN}\n{summary(texts)}\n{END}{below}"
    write_atomic(str(given.page), page.encode())


if __name__ == "__main__":
    main()
