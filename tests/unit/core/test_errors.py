import pickle

import pytest

from levelhead.core.errors import (
    LevelheadError,
    MissingExtraError,
    NotMeasurableError,
    UnknownNameError,
    require_option,
)
from levelhead.engine.events import TaskFailed
from levelhead.engine.executors.base import RunCancelledError
from levelhead.engine.scheduler import TasksFailedError


def test_an_error_says_what_and_a_hint():
    error = LevelheadError("the list is empty", hint="give at least one word")
    assert str(error) == "the list is empty\n  hint: give at least one word"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("saet", "did you mean 'seat'? known: crows, seat, strength"),
        ("SEAT", "did you mean 'seat'? known: crows, seat, strength"),
        ("zzz", "known: crows, seat, strength"),
        ("streat", "did you mean 'seat' or 'strength'? known: crows, seat, strength"),
    ],
)
def test_an_unknown_name_suggests_the_closest(name, hint):
    error = UnknownNameError("measure", name, ["strength", "seat", "crows"])
    assert error.problem == f"there is no measure named {name!r}"
    assert error.hint == hint


def test_an_option_is_itself_or_an_unknown_name():
    assert require_option("unit", "words", ("texts", "words")) == "words"
    with pytest.raises(UnknownNameError, match="there is no unit named 'word'"):
        require_option("unit", "word", ("texts", "words"))
    with pytest.raises(UnknownNameError, match="there is no unit named 'None'"):
        require_option("unit", None, ("texts", "words"))


def test_an_empty_table_says_so():
    assert UnknownNameError("measure", "seat", []).hint == "known: none"


def test_a_missing_extra_says_how_to_install_it():
    error = MissingExtraError("the report", "report")
    assert error.problem == "the report needs packages that are not installed"
    assert error.hint == "pip install 'levelhead[report]', or pip install '.[report]' in a clone"


@pytest.mark.parametrize(
    "error",
    [
        LevelheadError("problem", hint="hint"),
        UnknownNameError("measure", "saet", ["seat"]),
        MissingExtraError("the report", "report"),
        NotMeasurableError("problem", hint="hint"),
        RunCancelledError(),
        TasksFailedError([TaskFailed("ab" * 32, "why")], 3),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_cross_process_boundaries(error):
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own bytes
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.__dict__ == error.__dict__
