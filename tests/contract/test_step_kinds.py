"""A kind of step is one file and one row: everything else about it follows from these."""

from pkgutil import resolve_name
from typing import get_args

import pytest

from levelhead.core.errors import UnknownNameError
from levelhead.core.results import StepFailure
from levelhead.study.config import StudyConfig
from levelhead.study.results_dir import RESULT_CLASSES
from levelhead.study.steps.config import StudyConfigBase
from levelhead.study.steps.kinds import STEP_KINDS
from levelhead.study.table import result_to_rows

HEAD = {"format": "levelhead-study-2", "name": "made-up", "models": {"tiny": {"path": "tiny"}}}
UNKNOWN = {
    "continued_pretraining": {"base": "x", "method": "dropout", "corpus": ["a.txt"]},
    "classifiers": {"base": "x", "task": "snli"},
    "measurements": {"models": ["tiny"], "measures": ["x"]},
    "comparisons": {"first": "tiny", "second": "x", "measures": ["seat"]},
    "probing": {"model": "tiny", "measure": "x"},
    "head_maps": {"model": "tiny", "measure": "seat", "quick_measure": "x"},
    "masking": {"map": "x", "utility_measures": ["seat"]},
    "mitigations": {"model": "tiny", "measures": ["x"], "system_prompt": "y"},
    "methods": {"model": "tiny", "measure": "x"},
    "masking_curves": {"map": "x", "measures": ["seat"]},
    "amplify": {"map": "x", "utility_measure": "seat"},
    "counterstereotypes": {"map": "x"},
    "knowledge": {"model": "x"},
    "map_comparisons": {"maps": ["x"]},
    "projection_sweeps": {
        "model": "tiny",
        "measures": ["seat"],
        "bias_measure": "seat",
        "test_measure": "x",
    },
    "downstream": {
        "sweep": "x",
        "intrinsic": ["seat"],
        "models": ["tiny"],
        "extrinsic": ["seat"],
        "utility_measure": "seat",
    },
    "glue": {"map": "x", "tasks": ["sst2"]},
}
"""A row of every table that names something the study does not have."""


def test_every_kind_has_a_table_of_its_rows():
    tables = {kind.config_table: kind.definition.config for kind in STEP_KINDS}
    assert list(StudyConfig.model_fields) == [*StudyConfigBase.model_fields, *tables]
    for table, config in tables.items():
        assert get_args(StudyConfig.model_fields[table].annotation)[1] is config
        assert StudyConfig.model_validate(HEAD | {"measures": {}}).rows(config) == {}


def test_every_result_of_a_kind_has_rows():
    every = {result for kind in STEP_KINDS for result in kind.definition.table_rows}
    assert {resolve_name(f"levelhead.{home}") for home in RESULT_CLASSES.values()} == every
    assert len(RESULT_CLASSES) == sum(len(kind.results) for kind in STEP_KINDS)
    assert result_to_rows("cell.x", StepFailure(problem="no", hint="none")) == []


@pytest.mark.parametrize("table", [kind.config_table for kind in STEP_KINDS])
def test_names_that_the_study_does_not_have_are_refused(table):
    row = UNKNOWN[table]
    plan = StudyConfig.model_validate(HEAD | {"measures": {"seat": "seat"}, table: {"own": row}})
    with pytest.raises(UnknownNameError, match="of the study named 'x'"):
        plan.check()
