"""What charts of removed, hidden and tuned say in words."""

import pytest
from sweeps import removed_or_hidden, tuned_edit

from levelhead.core.errors import LevelheadError
from levelhead.report.charts.edits.probing import edit_selection_chart, probing_chart


def words(drawn):
    return str(drawn.to_dict())


def test_verdicts_are_written_beside_the_colours():
    told = words(probing_chart(removed_or_hidden(), subject="a model"))
    for said in ("Removed or hidden? hidden", "pooled: removed", "layer 6: hidden", "a model"):
        assert said in told
    assert "1 pairs were left out" in told
    assert "bias reduction: 0.3 [0.2, 0.4]" in told
    bare = words(probing_chart(removed_or_hidden(ruler=False)))
    assert "bias reduction" not in bare
    assert "the measure" not in bare


def test_the_chosen_candidate_and_what_became_of_it():
    told = words(edit_selection_chart(tuned_edit()))
    assert "Tuned: last 0" in told
    assert "confirmed; loss none" in told
    assert "4 candidates with lower bounds are not shown" in told
    told = words(edit_selection_chart(tuned_edit(recommended=False, candidates=3)))
    assert "nothing is recommended" in told
    assert "not confirmed; loss none" in told
    assert "not shown" not in told
    nothing = tuned_edit().model_copy(update={"candidates": ()})
    with pytest.raises(LevelheadError, match="no candidate changes anything"):
        edit_selection_chart(nothing)
