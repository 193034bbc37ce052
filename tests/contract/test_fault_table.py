"""The table of faults names tests that exist and run, each case once."""

import ast
import csv
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "docs" / "development" / "data" / "faults.csv"
AREAS = ("verdict safety", "hostile files", "writers", "secrets and network", "platform")
LEAST = 60
"""Cases that the table must have."""


def rows():
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def functions():
    """The tests of the files that the table names, by path and name, with their decorators."""
    found = {}
    for path in {row["test"].partition("::")[0] for row in rows()}:
        for node in ast.walk(ast.parse((ROOT / path).read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                marks = " ".join(ast.unparse(mark) for mark in node.decorator_list)
                found[f"{path}::{node.name}"] = marks
    return found


def test_every_case_names_a_test_that_runs():
    tests, quarantined = functions(), (ROOT / "tests" / "QUARANTINES.md").read_text("utf-8")
    for row in rows():
        name = row["test"].partition("[")[0]
        assert name in tests, row
        marks, short = tests[name], name.rpartition("::")[2]
        assert not re.search("skip|xfail", marks) or f"`{short}`" in quarantined, row
        # A case of one parameter is of a test with parameters.
        assert ("[" in row["test"]) <= bool(re.search("parametrize|hostile|every", marks)), row


def test_no_case_is_listed_twice_and_none_is_empty():
    table = rows()
    keys = [(row["area"], row["case"], row["command"]) for row in table]
    assert len(set(keys)) == len(keys)
    assert len(table) >= LEAST
    assert {row["area"] for row in table} == set(AREAS)
    assert all(all(value.strip() for value in row.values()) for row in table)
    commands = {row["command"] for row in table if row["area"] == "verdict safety"}
    assert commands >= {"measure", "audit", "compare", "gate", "locate", "mitigate select"}


def test_outcomes_are_no_number_near_parity():
    """Of faults in models, data and servers: an error, inconclusive, or the verdict unchanged."""
    outcomes = {row["outcome"] for row in rows() if row["area"] == "verdict safety"}
    assert outcomes <= {
        "error",
        "inconclusive",
        "error or inconclusive",
        "same verdict",
        "no head confirmed",
        "same interval",
        "same bytes",
        "warning",
    }
