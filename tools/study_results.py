"""What studies found on real weights, as tables of a page: docs/real-heads.md, docs/projections.md.

    python tools/study_results.py PAGE RUN [RUN ...] [--write]

Every RUN is a folder that `levelhead study run STUDY.toml -o RUN` wrote. --write writes the tables
into the page, below its marker; what stands above is written by hand, and sections of runs that are
not given stay as they are.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from levelhead.core.calibration import with_mark
from levelhead.core.files import write_atomic
from levelhead.core.results import StepFailure
from levelhead.locate.head_map import HeadMap
from levelhead.study.table import group_by_interval
from levelhead.study.table_row import TableRow

ROUGH = ", top "
"""Of knowledge: numbers at the paper's three k, which its picture shows."""
MARK = "<!-- tools/study_results.py writes below this line -->\n"


def number(text: str) -> str:
    """Four digits, or nothing."""
    return f"{float(text):.4g}" if text else ""


def tables(rows: list[dict]) -> str:
    """Rows of a study's table as Markdown, intervals of different kinds in different tables."""
    parted = group_by_interval(TableRow(**typed(row)) for row in rows)
    kinds = {over: {(row.name, row.what) for row in subset} for over, subset in parted}
    return "\n".join(
        (f"Intervals over {over}, not over items:\n\n" if over else "")
        + table([row for row in rows if (row["name"], row["what"]) in kind])
        for over, kind in kinds.items()
    )


def typed(row: dict) -> dict:
    """What `blocks` looks at, of a row read back from CSV."""
    return {key: row[key] for key in ("step", "name", "what")} | {
        "value": float(row["value"]),
        "over": row.get("over", ""),
    }


def table(rows: list[dict], *, named: bool = True) -> str:
    """Rows of a study's table as Markdown."""
    head = "| | number | value | interval | over | p | minimum detectable effect | n |"
    lines = [head, "|" + "---|" * 8]
    for row in rows:
        ends = f"[{number(row['low'])}, {number(row['high'])}]" if row["low"] else ""
        p = row["adjusted"] or row["p"]
        what = f"{row['what']} {row.get('mark', '')}".rstrip()
        cells = [row["name"] if named else "", what, number(row["value"]), ends]
        cells.append(row.get("over", "") if ends else "")
        cells += [f"{float(p):.4f}" if p else "", number(row["detectable"]), row["n"]]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def map_text(heads: HeadMap) -> str:
    """A map in words and its first heads."""
    halves, model = heads.split, Path(heads.provenance.model).name
    result = [f"{halves.discovery.value:.3g} {halves.discovery.interval} on the find half"]
    if halves.confirmation:
        result.append(
            f"{halves.confirmation.value:.3g} {halves.confirmation.interval} on the confirm half"
        )
    output = [
        f"{with_mark(heads.measure, heads.measured_by)} on {model}: {', '.join(result)}.",
        f"Sign {heads.bias_sign.sign:+d} ({heads.bias_sign.reason}). {halves.claim}.",
        f"{sum(head.score > 0 for head in heads.heads)} of {len(heads.heads)} scores are positive; "
        f"{heads.verdict}.",
    ]
    both = (heads.agreement, heads.replication)
    output += [
        f"{item.name}: {item.value:.2f} {item.interval}." for item in both if item is not None
    ]
    lines = [
        " ".join(output),
        "",
        "| head | score | effect | interval | adjusted p | minimum detectable effect |",
    ]
    lines.append("|" + "---|" * 6)
    ranked = heads.ranked_heads
    for item in (*ranked[:5], *ranked[-3:]):
        p = "" if item.p is None or item.p.adjusted is None else f"{item.p.adjusted:.3f}"
        effect = "" if item.effect is None else f"{item.effect:.3g}"
        least = "" if item.detectable is None else f"{item.detectable:.3g}"
        ends = "" if item.interval is None else str(item.interval)
        lines.append(f"| {item.label} | {item.score:.3g} | {effect} | {ends} | {p} | {least} |")
    return "\n".join(lines) + "\n"


def run_text(folder: Path) -> str:
    """Everything of one run."""
    with (folder / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    parts = []
    for path in sorted((folder / "results").iterdir()):
        step = path.stem
        text = path.read_text()
        if text.startswith('{"hint"'):
            output = StepFailure.from_json(text)
            parts.append(f"### {step}\n\nInconclusive: {output.problem}.\n")
            continue
        if step.startswith("map."):
            parts.append(f"### {step}\n\n{map_text(HeadMap.from_json(text))}")
            continue
        subset = [row for row in rows if row["step"] == step]
        if not step.startswith("glue."):
            subset = [row for row in subset if ROUGH not in row["name"]]
        if not subset:  # a picture
            continue
        parts.append(f"### {step}\n\n{tables(subset)}")
    return "\n".join(parts)


def main() -> None:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=Path)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    texts = {folder.name: f"{folder.name}\n\n{run_text(folder)}" for folder in given.runs}
    if given.write:
        head, mark, tail = given.page.read_text().partition(MARK)
        if not mark:
            parser.error(f"{given.page} has no line {MARK.strip()}")
        _, *before = tail.split("\n## ")
        texts = {item.split("\n")[0]: item.rstrip("\n") + "\n" for item in before} | texts
    sections = "".join(f"\n## {text}" for text in texts.values())
    if given.write:
        write_atomic(str(given.page), (head + MARK + sections).encode())
    else:
        print(sections)


if __name__ == "__main__":
    main()
