"""The tables of docs/measures that come from the source: metrics, options and validation.

    python tools/measure_pages.py [--write]     without --write: ends with 1 if a page is outdated

A table stands between `<!-- options: begin -->` and `<!-- options: end -->`, and so on. The metrics
and options are those of the classes; the validation is what `levelhead calibrate` found, from
src/levelhead/core/calibration.json.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import sys
import textwrap
import types
import typing
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from levelhead.calibrate.suite import EXCLUDED
from levelhead.core.calibration import MIN_NULLS_FOR_RATE, MeasureCalibration, load_calibration
from levelhead.measures.decisions.choice_measure import ChoiceMeasure
from levelhead.measures.generation.scored_texts import ScoredTextMeasure
from levelhead.measures.registry import MEASURES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from levelhead.measures.base import Measure
    from levelhead.measures.metric import Metric

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "measures"
COMMON = {
    "labels": "Names of the model's classes, in their order; by default those of its config.",
    "pairs": "Your own pairs instead of the data set.",
    "triples": "Your own triples instead of the data set.",
    "texts": "Your texts: a file, or objects.",
    "part": "Which part of the data set.",
    "rounding": "How the number of items in the top share is rounded.",
    "top": "The share of items with the largest values that is averaged.",
    "limit": "Maximum number of texts.",
    "k": "Number of most probable tokens that are read: 3, 5 and 10 in the paper.",
    "kind": "Within one sentence, or between two.",
    "template": "The beginning that is continued.",
    "tokens": "Length of a sample.",
    "temperature": "Sampling temperature.",
    "top_p": "Nucleus sampling: the probability mass that is sampled from.",
    "sources": "Data sets of the sentences.",
}
"""Meaning of options whose class does not describe them."""
SHARED = ("subsample_fraction", "metric")
"""Options of every measure: the catalogue describes them once."""
USUAL = ("lexicon", "groups")
"""Options with the same meaning in most measures: likewise, unless a class describes its own."""
SHOWN_PARTS = 4
"""A default with more parts is shown by its first two and their number."""
DECISIONS = ("style", "system", "thinking", "answer_start", "per_token", "generated_answers")
"""Options of every measure of decisions: likewise."""
SCORED = ("scorer", "calibration", "refusal_phrases", "top_p", "seed", "system")
"""Options of every measure of scored texts: the page of generations describes them."""


def page_names(text: str) -> list[str]:
    """The measures of a page, from its third line."""
    named = re.findall(r"`(\w+)(?:[:\w=]*)`", text.split("\n")[2])
    return list(dict.fromkeys(named))


def updated(text: str) -> str:
    """A page with its tables as the source has them now."""
    for kind, table in TABLES.items():
        begin, end = (f"<!-- {kind}: {edge} -->" for edge in ("begin", "end"))
        if begin in text:
            head, _, rest = text.partition(begin)
            body = "\n\n".join(table(name) for name in page_names(text))
            text = f"{head}{begin}\n\n{body}\n\n{end}{rest.partition(end)[2]}"
    return text


def metrics_table(name: str) -> str:
    """What a measure reports: unit, range, parity, and the smooth metric that can locate heads."""
    rows = []
    for number, metric in enumerate(MEASURES[name].metrics):
        formula = _formula(MEASURES[name], metric)
        spec = f"{name}:metric={metric}" if number else name
        smooth = "itself" if formula.smooth_surrogate is None else f"`{formula.smooth_surrogate}`"
        low, high = (f"{edge:g}".replace("inf", "∞") for edge in (formula.low, formula.high))
        parity = _parity(formula, MEASURES[name])
        rows.append((f"`{spec}`", f"{formula.unit}, {low} to {high}", parity, smooth))
    return _table(("metric", "unit and range", "parity", "smooth metric for heads"), rows)


def options_table(name: str) -> str:
    """Options with default, values and meaning."""
    cls = MEASURES[name]
    hints, texts = typing.get_type_hints(cls), _attribute_texts(cls)
    rows = [
        (
            f"`{field.name}`",
            f"`{_shown(field.default)}`",
            _values(hints[field.name]),
            texts.get(field.name) or COMMON.get(field.name, ""),
        )
        for field in fields(cls)
        if field.name not in (*SHARED, *described_elsewhere(cls))
        and (field.name not in USUAL or texts.get(field.name))
    ]
    return _table(("option", "default", "values", "meaning"), rows)


def described_elsewhere(cls: type[Measure]) -> tuple[str, ...]:
    """Options that another page describes."""
    if issubclass(cls, ChoiceMeasure):
        return DECISIONS
    is_first = cls is MEASURES["generation"]
    return SCORED if issubclass(cls, ScoredTextMeasure) and not is_first else ()


def validation_table(name: str) -> str:
    """What calibration on models with planted bias found."""
    calibration = load_calibration()
    if calibration is None:
        raise SystemExit("the package has no calibration")
    metrics = MEASURES[name].metrics
    found = [row for row in calibration.measures if row.measure in metrics]
    if not found:
        return f"`{name}` was not validated: {EXCLUDED[name]}."
    # Families with the same result share a row.
    grouped: dict[tuple[str, ...], list[str]] = {}
    for metric in metrics:
        for row in found:
            if row.measure == metric:
                grouped.setdefault((f"`{metric}`", *_validation_cells(row)), []).append(
                    row.architecture
                )
    rows = [(cells[0], ", ".join(names), *cells[1:]) for cells, names in grouped.items()]
    head = ("metric", "families", "models", "verdict", "correlation with the dose")
    text = _table((*head, "smallest dose detected", "false alarms"), rows)
    tried = {row.measure for row in found}
    missing = [metric for metric in metrics if metric in EXCLUDED and metric not in tried]
    return "\n\n".join([text, *(f"`{metric}`: {EXCLUDED[metric]}." for metric in missing)])


TABLES = {"metrics": metrics_table, "options": options_table, "validation": validation_table}


def _validation_cells(row: MeasureCalibration) -> tuple[str, ...]:
    rank, interval = row.rank, row.rank_interval
    correlation = "not computed" if rank is None else f"{rank:.2f}"
    if interval is not None:
        correlation += f" [{interval.low:.2f}, {interval.high:.2f}]"
    verdict = "**failed**" if row.verdict == "misses" else row.verdict
    reasons = f": {'; '.join(row.reasons)}" if row.reasons else ""
    return (
        str(len(row.points)),
        verdict + reasons,
        correlation,
        "none" if row.smallest is None else f"{row.smallest:g}",
        _false_alarms(row),
    )


def _false_alarms(row: MeasureCalibration) -> str:
    if not row.nulls:
        return "no test"
    if row.nulls < MIN_NULLS_FOR_RATE:
        return f"{row.null_alarms} of {row.nulls} models without bias"
    if row.alarms is None or row.alarms_interval is None:
        return f"{row.null_alarms} of {row.nulls} models without bias"
    low, high = row.alarms_interval.low, row.alarms_interval.high
    return f"{row.alarms:.1%} [{low:.1%}, {high:.1%}], {row.nulls} models"


def _parity(formula: Metric, cls: type[Measure]) -> str:
    if formula.parity is not None:
        return f"{formula.parity:g}"
    is_estimated = cls.parity_from_control or formula.null is not None
    return "estimated from the items" if is_estimated else "none"


def _formula(cls: type[Measure], metric: str) -> Metric:
    return next(item for item in cls(metric=metric).formulas if item.name == metric)


def _attribute_texts(cls: type) -> dict[str, str]:
    """First sentence of the text below every field, of the class and its bases."""
    result: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        if not base.__module__.startswith("levelhead"):
            continue
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        body = typing.cast("ast.ClassDef", node).body
        for field, below in pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                text = below.value if isinstance(below, ast.Expr) else None
                if isinstance(text, ast.Constant) and isinstance(text.value, str):
                    result[field.target.id] = " ".join(text.value.split("\n\n")[0].split())
    return result


def _values(hint: Any) -> str:
    return ", ".join(dict.fromkeys(_value_names(hint)))


def _value_names(hint: Any) -> Iterator[str]:
    """In words; objects of the package can be passed in Python only."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        for arg in args:
            yield from _value_names(arg)
    elif origin is Literal:
        yield from (f"`{arg}`" for arg in args)
    elif origin is tuple:
        for inner in _value_names(args[0]):
            yield inner if inner.endswith(("`", "(several)")) else f"{inner} (several)"
    elif hint is type(None):
        yield "`none`"
    elif getattr(hint, "__module__", "").startswith("levelhead"):
        yield f"{hint.__name__} (Python)"
    else:
        yield {str: "text", int: "number", float: "number", bool: "`true`, `false`"}[hint]


def _shown(default: object) -> str:
    if isinstance(default, tuple):
        shown = "+".join(map(str, default[:2] if len(default) > SHOWN_PARTS else default))
        # A long list is in the source; a page says how long it is.
        return f"{shown}+… ({len(default)})" if len(default) > SHOWN_PARTS else shown or "none"
    if isinstance(default, bool):
        return str(default).lower()
    return "none" if default in (None, "") else textwrap.shorten(str(default), 60, placeholder=" …")


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    cells = ([cell.replace("|", r"\|") for cell in line] for line in lines)
    return "\n".join(f"|{'|'.join(line)}|" for line in cells)


def main() -> None:
    """Check or write the pages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    outdated = []
    for path in sorted(PAGES.glob("*.md")):
        if path.name == "index.md":
            continue
        text = path.read_text()
        new = updated(text)
        if new != text:
            outdated.append(path.name)
            if write:
                path.write_text(new)
    if outdated and not write:
        sys.exit(f"outdated: {', '.join(outdated)}; run python tools/measure_pages.py --write")


if __name__ == "__main__":
    main()
