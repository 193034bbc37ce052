"""The statistics page holds what its script writes: every row, enough data, within the bounds."""

import csv
import importlib.util
import math
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def benchmark():
    spec = importlib.util.spec_from_file_location("intervals", ROOT / "benchmarks" / "intervals.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["intervals"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def rows(name):
    path = ROOT / "docs" / "development" / "data" / f"{name}.csv"
    with path.open() as file:
        return list(csv.DictReader(file))


def test_every_row_is_there():
    module = benchmark()
    assert [(row["data"], row["interval"]) for row in rows("coverage")] == [
        (row.data, row.how) for row in module.INTERVALS
    ]
    assert [(row["data"], row["test"]) for row in rows("levels")] == [
        (row.data, row.how) for row in module.TESTS
    ]


def test_the_page_says_what_the_files_show():
    folder = ROOT / "docs" / "development"
    texts = {name: (folder / "data" / f"{name}.csv").read_text() for name in ("coverage", "levels")}
    assert benchmark().summary(texts) in (folder / "statistics.md").read_text()


def test_chosen_intervals_cover_and_tests_keep_their_level():
    for row in rows("coverage"):
        assert int(row["sets"]) >= 2000
        if row["chosen"] == "yes":
            assert 92 <= float(row["covers"]) <= 98, row
    for row in rows("levels"):
        sets = int(row["sets"])
        assert sets >= 2000
        for alpha in (0.01, 0.05, 0.10):
            limit = alpha + 3 * math.sqrt(alpha * (1 - alpha) / sets)
            assert float(row[f"share of p <= {alpha:.2f}"]) <= limit, (row, alpha)


def test_crossed_factors_need_both():
    """The point of its rows: with both factors, one-way intervals miss and multiway do not."""
    strong = [r for r in rows("coverage") if "variance of rows 0.3, of columns 0.2" in r["data"]]
    covers = {row["interval"]: float(row["covers"]) for row in strong if "mean over" in row["data"]}
    assert covers["multiway"] >= 92
    assert max(covers["one-way over rows"], covers["one-way over columns"]) < 92
