import pickle

import pytest

from levelhead.core.errors import LevelheadError, MissingExtra, NotMeasurable, UnknownName
from levelhead.engine.events import Failed
from levelhead.engine.executors.base import Cancelled
from levelhead.engine.scheduler import UnitsFailed


def test_an_error_says_what_and_the_mend():
    error = LevelheadError("the list is empty", mend="give at least one word")
    assert str(error) == "the list is empty\n  mend: give at least one word"


@pytest.mark.parametrize(
    ("name", "mend"),
    [
        ("saet", "did you mean 'seat'? known: crows, seat, strength"),
        ("SEAT", "did you mean 'seat'? known: crows, seat, strength"),
        ("zzz", "known: crows, seat, strength"),
        ("streat", "did you mean 'seat' or 'strength'? known: crows, seat, strength"),
    ],
)
def test_an_unknown_name_suggests_the_closest(name, mend):
    error = UnknownName("measure", name, ["strength", "seat", "crows"])
    assert error.what == f"there is no measure named {name!r}"
    assert error.mend == mend


def test_an_empty_table_says_so():
    assert UnknownName("measure", "seat", []).mend == "known: none"


def test_a_missing_extra_says_how_to_install_it():
    error = MissingExtra("the report", "report")
    assert error.what == "the report needs packages that are not installed"
    assert error.mend == "pip install 'levelhead[report]'"


@pytest.mark.parametrize(
    "error",
    [
        LevelheadError("what", mend="mend"),
        UnknownName("measure", "saet", ["seat"]),
        MissingExtra("the report", "report"),
        NotMeasurable("what", mend="mend"),
        Cancelled(),
        UnitsFailed([Failed("ab" * 32, "why")], 3),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_cross_process_boundaries(error):
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own bytes
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.__dict__ == error.__dict__
