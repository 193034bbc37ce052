"""What fits into a time, by counting and by a few questions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metric_cases import made, model

from levelhead.core.errors import LevelheadError
from levelhead.study.audit.time_budget import (
    CheaperOption,
    QueryTimer,
    count_queries,
    parse_duration,
    split_time,
)


@pytest.mark.parametrize("text", ["", "10", "m", "10 m", "-5s", "1d", "5mm5"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(LevelheadError, match="is not a duration"):
        parse_duration(text)


@given(
    costs=st.dictionaries(st.text(max_size=3), st.floats(0, 1e6), min_size=1, max_size=9),
    total=st.floats(0, 1e6),
)
def test_time_is_shared_out_whole_and_to_nobody_more_than_it_needs(costs, total):
    given_to = split_time(costs, total)
    assert all(given_to[name] <= costs[name] for name in costs)
    assert sum(given_to.values()) == pytest.approx(min(total, sum(costs.values())), abs=1e-6)
    cut = [given_to[name] for name in costs if given_to[name] < costs[name]]
    assert all(item == pytest.approx(max(cut)) for item in cut)


def test_questions_are_counted_with_and_without_thrift():
    lm, measure = model("seat"), made("seat")
    query_set = measure.queries(lm)
    full = count_queries(query_set, measure)
    assert full == sum(len(item.queries) for entry in query_set for item in entry.items)
    words = sum(len(item.items) for item in query_set)
    assert count_queries(query_set, measure, CheaperOption("contexts_per_word", 1)) <= words
    assert 0 < count_queries(query_set, measure, CheaperOption("subsample_fraction", 0.5)) < full
    assert count_queries(query_set, measure, CheaperOption("limit", 3)) == 3


def test_a_question_takes_time():
    lm, measure = model("seat"), made("seat")
    paces = QueryTimer(lm, threads=1)
    assert 0 < paces.seconds_per_query(measure.queries(lm)) < 5
    assert set(paces.seconds_by_kind) == {"embed"}
    assert QueryTimer(lm, threads=1, is_timed=False).seconds_per_query(measure.queries(lm)) == 0
