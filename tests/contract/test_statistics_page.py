"""The statistics page holds what its script writes: every row, enough data, within the bounds."""

import importlib.util
import math
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def benchmark():
    spec = importlib.util.spec_from_file_location("intervals", ROOT / "benchmarks" / "intervals.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["intervals"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def page():
    text = (ROOT / "docs" / "development" / "statistics.md").read_text()
    return text.partition("<!-- tables: begin -->")[2].partition("<!-- tables: end -->")[0]


def rows(cells):
    split = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in page().splitlines()
        if line.startswith("| ")
    ]
    return [row for row in split if len(row) == cells and row[0] not in {"data", "true null"}]


def test_every_row_is_there():
    module = benchmark()
    assert [(row[0], row[1].strip("*")) for row in rows(6)] == [
        (row.data, row.how) for row in module.INTERVALS
    ]
    assert [tuple(row[:2]) for row in rows(5)] == [(row.data, row.how) for row in module.TESTS]


def test_chosen_intervals_cover_and_tests_keep_their_level():
    sets = int(re.search(r"([\d,]+) data sets a row", page())[1].replace(",", ""))
    assert sets >= 2000
    for data, how, covers, *_ in rows(6):
        if not how.startswith("*"):
            assert 92 <= float(covers.strip("*%")) <= 98, (data, how)
    for data, how, *rates in rows(5):
        for alpha, rate in zip((0.01, 0.05, 0.10), rates, strict=True):
            limit = alpha + 3 * math.sqrt(alpha * (1 - alpha) / sets)
            assert float(rate) <= limit, (data, how, alpha)


def test_crossed_factors_need_both():
    """The table's point: with both factors at work, one-way intervals miss and multiway do not."""
    strong = [row for row in rows(6) if "variance of rows 0.3, of columns 0.2" in row[0]]
    covers = {row[1].strip("*"): float(row[2].strip("*%")) for row in strong}
    assert covers["multiway"] >= 92
    assert max(covers["one-way over rows"], covers["one-way over columns"]) < 92
