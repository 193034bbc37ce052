"""What charts of removed, hidden and tuned say in words."""

import pytest
from sweeps import removed_or_hidden, tuned_edit

from levelhead.core.errors import LevelheadError
from levelhead.report.charts.edits.probing import edit_selection_chart, probing_chart


def words(sample):
    return str(sample.to_dict())


def test_verdicts_are_written_beside_the_colours():
    output = words(probing_chart(removed_or_hidden(), subject="a model"))
    for responses in ("Removed or hidden? hidden", "pooled: removed", "layer 6: hidden", "a model"):
        assert responses in output
    assert "1 pairs were left out" in output
    assert "bias reduction: 0.3 [0.2, 0.4]" in output
    bare = words(probing_chart(removed_or_hidden(measure=False)))
    assert "bias reduction" not in bare
    assert "the measure" not in bare


def test_the_chosen_candidate_and_what_became_of_it():
    output = words(edit_selection_chart(tuned_edit()))
    assert "Tuned: last 0" in output
    assert "confirmed; loss none" in output
    assert "4 candidates with lower bounds are not shown" in output
    output = words(edit_selection_chart(tuned_edit(recommended=False, candidates=3)))
    assert "nothing is recommended" in output
    assert "not confirmed; loss none" in output
    assert "not shown" not in output
    nothing = tuned_edit().model_copy(update={"candidates": ()})
    with pytest.raises(LevelheadError, match="no candidate changes anything"):
        edit_selection_chart(nothing)
