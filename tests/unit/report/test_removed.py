"""What charts of removed, hidden and tuned say in words."""

import pytest
from sweeps import removed_or_hidden, tuned_edit

from levelhead.core.errors import LevelheadError
from levelhead.report.charts.edits.probing import left_behind, tuned_to


def words(drawn):
    return str(drawn.to_dict())


def test_verdicts_are_written_beside_the_colours():
    told = words(left_behind(removed_or_hidden(), of="a model"))
    for said in ("Removed or hidden? hidden", "pooled: removed", "layer 6: hidden", "a model"):
        assert said in told
    assert "1 pairs were left out" in told
    assert "ruler" in told
    assert "ruler" not in words(left_behind(removed_or_hidden(ruler=False)))


def test_the_chosen_candidate_and_what_became_of_it():
    told = words(tuned_to(tuned_edit()))
    assert "Tuned: last 0" in told
    assert "confirmed; loss none" in told
    assert "4 candidates with lower bounds are not drawn" in told
    told = words(tuned_to(tuned_edit(recommended=False, candidates=3)))
    assert "nothing is recommended" in told
    assert "not confirmed; loss none" in told
    assert "not drawn" not in told
    nothing = tuned_edit().model_copy(update={"tried": ()})
    with pytest.raises(LevelheadError, match="no candidate changes anything"):
        tuned_to(nothing)
