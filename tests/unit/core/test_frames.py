"""Data frames of results, with whichever library is installed."""

import sys

import pytest

from levelhead.core import frames
from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.core.frames import choose_backend, make_frame
from levelhead.core.item_records import ItemDetail, ItemValue, QueryDetail, make_item_rows

ROWS = [{"name": "a", "value": 1.5, "n": 3}, {"name": "b", "value": 2.5, "p": 0.25}]
COLUMNS = {"name": ["a", "b"], "value": [1.5, 2.5], "n": [3, None], "p": [None, 0.25]}


@pytest.fixture
def only(monkeypatch):
    """Pretend that only these libraries are installed."""

    def hide(*installed):
        monkeypatch.setattr(frames, "_is_installed", lambda name: name in installed)

    return hide


def test_pandas_is_the_first_choice():
    frame = make_frame(ROWS)
    assert type(frame).__module__.startswith("pandas")
    assert list(frame) == list(COLUMNS)
    assert frame["value"].sum() == 4.0
    assert frame["p"].isna().tolist() == [True, False]


def test_polars_is_the_second(only):
    only("polars")
    frame = make_frame(ROWS)
    assert type(frame).__module__.startswith("polars")
    assert frame.to_dict(as_series=False) == COLUMNS
    assert make_frame(ROWS, "polars").equals(frame)


def test_without_either_the_columns_are_a_dictionary(only, monkeypatch):
    only()
    for name in ("pandas", "polars", "narwhals"):
        monkeypatch.setitem(sys.modules, name, None)  # an import would fail
    assert make_frame(ROWS) == make_frame(ROWS, "dict") == COLUMNS
    assert make_frame([]) == {}


def test_no_rows_are_a_frame_without_rows():
    assert len(make_frame([], "pandas")) == len(make_frame([], "polars")) == 0


def test_a_library_that_is_not_there_is_named(only):
    only("polars")
    with pytest.raises(LevelheadError, match="pandas is not installed") as error:
        choose_backend("pandas")
    assert error.value.hint.startswith("pip install pandas, or backend='dict'")
    with pytest.raises(UnknownNameError, match="no library of data frames named 'panda'"):
        choose_backend("panda")


PAIR = ItemDetail(
    "b", "race", (QueryDetail("X.", (("log-probability", -1.0),)), QueryDetail("Y.", ()))
)


def test_queries_of_an_item_are_numbered_columns():
    rows = make_item_rows([ItemValue("a", 0.5), ItemValue("b", -0.5)], [PAIR])
    assert rows == [
        {"item": "a", "group": None, "value": 0.5},
        {
            "item": "b",
            "group": "race",
            "value": -0.5,
            "text_1": "X.",
            "response_log-probability_1": -1.0,
            "text_2": "Y.",
        },
    ]
    assert make_item_rows([ItemValue("a", 0.5)], []) == rows[:1]
