"""A kind of step is one file and one row: everything else about it follows from these."""

from pkgutil import resolve_name
from typing import get_args

import pytest

from levelhead.core.errors import UnknownName
from levelhead.core.results import Inconclusive
from levelhead.study.config import Plan
from levelhead.study.results_dir import KINDS
from levelhead.study.steps.config import PlanBase
from levelhead.study.steps.kinds import STEP_KINDS
from levelhead.study.table import rows

HEAD = {"format": "levelhead-study-1", "name": "made-up", "models": {"tiny": {"path": "tiny"}}}
UNKNOWN = {
    "children": {"of": "x", "how": "dropout", "corpus": ["a.txt"]},
    "tuned": {"of": "x", "task": "snli"},
    "cells": {"models": ["tiny"], "measures": ["x"]},
    "against": {"first": "tiny", "second": "x", "measures": ["seat"]},
    "removed": {"model": "tiny", "ruler": "x"},
    "maps": {"model": "tiny", "measure": "seat", "quick": "x"},
    "masking": {"map": "x", "prices": ["seat"]},
    "lines": {"map": "x", "measures": ["seat"]},
    "amplify": {"map": "x", "price": "seat"},
    "explain": {"map": "x"},
    "knowledge": {"model": "x"},
    "compare": {"maps": ["x"]},
    "sweeps": {"model": "tiny", "measures": ["seat"], "gain": "seat", "test": "x"},
    "downstream": {
        "sweep": "x",
        "inside": ["seat"],
        "models": ["tiny"],
        "outside": ["seat"],
        "price": "seat",
    },
    "glue": {"map": "x", "tasks": ["sst2"]},
}
"""A row of every table that names something the study does not have."""


def test_every_kind_has_a_table_of_its_rows():
    tables = {kind.table: kind.definition.config for kind in STEP_KINDS}
    assert list(Plan.model_fields) == [*PlanBase.model_fields, *tables]
    for table, config in tables.items():
        assert get_args(Plan.model_fields[table].annotation)[1] is config
        assert Plan.model_validate(HEAD | {"measures": {}}).rows(config) == {}


def test_every_result_of_a_kind_has_rows():
    every = {result for kind in STEP_KINDS for result in kind.definition.rows}
    assert {resolve_name(f"levelhead.{home}") for home in KINDS.values()} == every
    assert len(KINDS) == sum(len(kind.results) for kind in STEP_KINDS)
    assert rows("cell.x", Inconclusive(what="no", mend="none")) == []


@pytest.mark.parametrize("table", [kind.table for kind in STEP_KINDS])
def test_names_that_the_study_does_not_have_are_refused(table):
    row = UNKNOWN[table]
    plan = Plan.model_validate(HEAD | {"measures": {"seat": "seat"}, table: {"own": row}})
    with pytest.raises(UnknownName, match="of the study named 'x'"):
        plan.check()
