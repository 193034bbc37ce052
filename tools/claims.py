"""The page of claims: what the papers claim, and the row of a data file that decides it.

    python tools/claims.py [--write]

Reads docs/results/claims.toml and the data files of the studies (docs/results/data/studies),
computes every verdict from an interval, and writes docs/results/claims.md and data/claims.csv.
"""

from __future__ import annotations

import argparse
import csv
import io
import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from levelhead.core.files import write_atomic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

RESULTS = Path(__file__).parents[1] / "docs" / "results"
SOURCE, PAGE = RESULTS / "claims.toml", RESULTS / "claims.md"
TABLE = RESULTS / "data" / "claims.csv"
STUDIES = RESULTS / "data" / "studies"
HOLDS, FAILS, UNDECIDED, UNTESTABLE = "holds", "does not hold", "undecided", "untestable"
OF_STUDY = {"yes": HOLDS, "no": FAILS, "undecided": UNDECIDED}
"""Verdicts as studies of knowledge write them, before the claim."""
COLUMNS = ("claim", "model", "verdict", "effect [interval]", "testable here?", "how to repeat")


class Verdict(NamedTuple):
    """A claim on a model."""

    paper: str
    claim: str
    model: str
    verdict: str
    effect: str
    testable: str
    repeat: str


@cache
def study_rows(name: str) -> tuple[dict[str, str], ...]:
    """The rows of a data file."""
    with (STUDIES / f"{name}.csv").open() as file:
        return tuple(csv.DictReader(file))


def find_row(data: str, step: str, name: str, number: str) -> dict[str, str]:
    """The one row that a claim names; an error if there is none, or several."""
    (row,) = (
        row
        for row in study_rows(data)
        if (row["step"], row["name"], row["number"]) == (step, name, number)
    )
    return row


def decide(rule: str, row: Mapping[str, str], limit: float = 0.0, sign: int = 1) -> str:
    """The verdict of a rule on a row."""
    if rule == "none":
        return UNTESTABLE
    if rule == "any":
        return HOLDS if int(row["n"]) else FAILS
    low, high = sorted(sign * float(row[end]) for end in ("low", "high"))
    if rule == "zero":
        return UNDECIDED if low <= 0 <= high else FAILS
    if rule == "above":
        low, high = -high, -low
    if high <= limit if limit else high < 0:
        return HOLDS
    return FAILS if low > limit else UNDECIDED


def number(text: str) -> str:
    """Three digits."""
    value = float(text)
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def show_effect(row: Mapping[str, str], before: str = "") -> str:
    """Value and interval, and the value before."""
    if not row["low"]:
        return row["n"]
    text = f"{number(row['value'])} [{number(row['low'])}, {number(row['high'])}]"
    return f"{text} of {number(before)}" if before else text


def show_testable(claim: Mapping[str, Any], row: Mapping[str, str], verdict: str) -> str:
    """Whether the models here can decide the claim, and what would be detected."""
    if claim["rule"] == "none":
        return f"no: {claim['why']}"
    detectable = (
        f"detects {number(row['detectable'])}" if verdict == UNDECIDED and row["detectable"] else ""
    )
    weak = claim.get("weak", row["mark"])
    return "; ".join(filter(None, (f"weakly: {weak}" if weak else "yes", detectable)))


def list_verdicts(source: Mapping[str, Any]) -> Iterator[Verdict]:
    """Every claim on every model."""
    papers = {paper["name"]: paper for paper in source["papers"]}

    def repeat(paper: str, data: str, step: str) -> str:
        file = papers[paper]["repeat"][data].removesuffix(".toml")
        return f"`{file}:{step}`"

    for claim in source["claims"]:
        befores = claim.get("before", [None] * len(claim["rows"]))
        for (model, data, *key), before in zip(claim["rows"], befores, strict=True):
            row = find_row(data, *key)
            value = find_row(*before)["value"] if before else ""
            limit = source["words"]["share"] * float(value) if before else 0.0
            verdict = decide(claim["rule"], row, limit, claim.get("sign", 1))
            join = " " if claim["rule"] == "any" else "; "
            note = f"{join}{claim['note']}" if "note" in claim else ""
            yield Verdict(
                claim["paper"],
                f"{claim['claim']} ({claim['place']})",
                f"{model} {row['mark']}".rstrip(),
                verdict,
                show_effect(row, value) + note,
                show_testable(claim, row, verdict),
                repeat(claim["paper"], data, key[0]),
            )
    for study in source["from_knowledge"]:
        yield from knowledge_verdicts(study, repeat)


def knowledge_verdicts(study: Mapping[str, Any], repeat: Any) -> Iterator[Verdict]:
    """The verdicts that a study of knowledge writes itself, claim by claim."""
    steps = {f"knowledge.{name}": model for name, model in study["models"].items()}
    found = [
        (claim, row)
        for row in study_rows(study["data"])
        for prefix, colon, claim in (row["name"].partition(": "),)
        if row["step"] in steps and colon and prefix in OF_STUDY
    ]
    for claim in dict.fromkeys(claim for claim, _ in found):
        for step, model in steps.items():
            for row in (row for name, row in found if name == claim and row["step"] == step):
                verdict = OF_STUDY[row["name"].partition(":")[0]]
                yield Verdict(
                    study["paper"],
                    study["renamed"].get(claim, claim),
                    model,
                    verdict,
                    show_effect(row),
                    show_testable({"rule": ""}, row, verdict),
                    repeat(study["paper"], study["data"], step),
                )


def count(verdicts: Sequence[Verdict]) -> str:
    """How many verdicts there are of each kind."""
    names = (HOLDS, FAILS, UNDECIDED, UNTESTABLE)
    counts = [(sum(row.verdict == name for row in verdicts), name) for name in names]
    return ", ".join(f"{name} {number}" for number, name in counts if number)


def page(source: Mapping[str, Any], verdicts: Sequence[Verdict]) -> str:
    """The page: for each paper a paragraph and a table."""
    crossed = {study["paper"] for study in source["from_knowledge"]}
    parts = [source["words"]["header"].format(share=source["words"]["share"])]
    for paper in source["papers"]:
        rows = [row for row in verdicts if row.paper == paper["name"]]
        lines = list(crossed_lines(rows) if paper["name"] in crossed else lines_of(rows))
        parts.append(
            f"## {paper['title']}\n\n{paper['text'].strip()} [More]({paper['page']}).\n\n"
            f"{count(rows)}, of {len(rows)} tests; study files: `papers/{paper['name']}`.\n\n"
            + "\n".join(lines)
            + "\n"
        )
    return "\n".join(parts)


def lines_of(rows: Sequence[Verdict]) -> Iterator[str]:
    """A line for each claim and model."""
    yield from (f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS))
    above = ""
    for row in rows:
        shown = row._replace(claim="" if row.claim == above else row.claim)
        yield f"|{'|'.join(shown[1:])}|"
        above = row.claim


def crossed_lines(rows: Sequence[Verdict]) -> Iterator[str]:
    """A line for each claim, with a column for each model and its step."""
    steps = dict.fromkeys((row.model, row.repeat) for row in rows)
    names = [f"{model} ({repeat})" for model, repeat in steps]
    yield from (f"| claim | {' | '.join(names)} |", "|" + "---|" * (len(names) + 1))
    for claim in dict.fromkeys(row.claim for row in rows):
        by_model = {row.model: f"{row.verdict}: {row.effect}" for row in rows if row.claim == claim}
        cells = [by_model.get(model, "not of this kind") for model, _ in steps]
        yield f"|{'|'.join((claim, *cells))}|"


def table(verdicts: Sequence[Verdict]) -> str:
    """The same as CSV."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(Verdict._fields)
    writer.writerows(verdicts)
    return file.getvalue()


def main() -> None:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    source = tomllib.loads(SOURCE.read_text())
    verdicts = list(list_verdicts(source))
    if not given.write:
        print(page(source, verdicts))
        return
    write_atomic(str(PAGE), page(source, verdicts).encode())
    write_atomic(str(TABLE), table(verdicts).encode())


if __name__ == "__main__":
    main()
