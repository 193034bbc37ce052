"""What fits into a time, by counting and by a few questions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rulers import made, model

from levelhead.core.errors import LevelheadError
from levelhead.study.audit.time_budget import Paces, Thrift, questions, seconds, shared_out


@pytest.mark.parametrize("text", ["", "10", "m", "10 m", "-5s", "1d", "5mm5"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(LevelheadError, match="is no time"):
        seconds(text)


@given(
    costs=st.dictionaries(st.text(max_size=3), st.floats(0, 1e6), min_size=1, max_size=9),
    total=st.floats(0, 1e6),
)
def test_time_is_shared_out_whole_and_to_nobody_more_than_it_needs(costs, total):
    given_to = shared_out(costs, total)
    assert all(given_to[name] <= costs[name] for name in costs)
    assert sum(given_to.values()) == pytest.approx(min(total, sum(costs.values())), abs=1e-6)
    cut = [given_to[name] for name in costs if given_to[name] < costs[name]]
    assert all(one == pytest.approx(max(cut)) for one in cut)


def test_questions_are_counted_with_and_without_thrift():
    lm, ruler = model("seat"), made("seat")
    asked = ruler.asked(lm)
    whole = questions(asked, ruler)
    assert whole == sum(len(item.asks) for one in asked for item in one.items)
    words = sum(len(one.items) for one in asked)
    assert questions(asked, ruler, Thrift("quota", 1)) <= words
    assert 0 < questions(asked, ruler, Thrift("share", 0.5)) < whole
    assert questions(asked, ruler, Thrift("limit", 3)) == 3


def test_a_question_takes_time():
    lm, ruler = model("seat"), made("seat")
    paces = Paces(lm, threads=1)
    assert 0 < paces.pace(ruler.asked(lm)) < 5
    assert set(paces.known) == {"embed"}
    assert Paces(lm, threads=1, is_timed=False).pace(ruler.asked(lm)) == 0
