import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.statistics.designs import clusters, crossed, groups, meet


def test_groups_keep_their_sizes_and_places():
    design = groups(3, 2)
    assert [sample.tolist() for sample in design.samples] == [[0, 1, 2], [3, 4]]
    drawn = design.drawn(np.array([2, 0, 2]), np.array([4, 4]))
    assert drawn.tolist() == [0, 2, 2, 4, 4]
    assert (design.items, design.smallest) == (5, 2)


def test_clusters_are_drawn_whole():
    design = clusters(["x", "y", "x", "z"])
    assert design.drawn(np.array([0, 0, 2])).tolist() == [0, 0, 2, 2, 3]
    assert (design.items, design.smallest) == (4, 3)


@given(st.integers(2, 5), st.integers(2, 5), st.randoms(use_true_random=False))
def test_crossed_factors_are_the_pigeonhole_bootstrap(rows, columns, random):
    cells = [(r, c) for r in range(rows) for c in range(columns)]
    random.shuffle(cells)
    design = crossed({"rows": [r for r, _ in cells], "columns": [c for _, c in cells]})
    drawn_rows = [random.randrange(rows) for _ in range(rows)]
    drawn_columns = [random.randrange(columns) for _ in range(columns)]
    # Literally: every drawn row meets every drawn column. Units are numbered as they appear.
    row_order = list(dict.fromkeys(r for r, _ in cells))
    column_order = list(dict.fromkeys(c for _, c in cells))
    literal = sorted(
        cells.index((row_order[r], column_order[c])) for r in drawn_rows for c in drawn_columns
    )
    assert design.drawn(np.array(drawn_rows), np.array(drawn_columns)).tolist() == literal


def test_a_design_says_what_it_is():
    assert str(groups(84, 84, name="words")) == "84+84 words"
    assert str(crossed({"occupations": [1, 1, 2, 2], "templates": [1, 2, 1, 2]})) == (
        "2 occupations x 2 templates"
    )


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: groups(), "0 items: chance cannot be told from effect"),
        (lambda: groups(84, 1, name="words"), "1 words: chance cannot be told from effect"),
        (lambda: clusters(["a", "a"]), "1 clusters: chance cannot be told from effect"),
        (lambda: clusters([]), "0 clusters: chance cannot be told from effect"),
    ],
)
def test_one_unit_is_refused(make, what):
    with pytest.raises(NotMeasurable, match=what):
        make()


def test_units_are_redrawn_within_their_stratum():
    words, sides = ["she", "she", "he", "her", "his"], ["f", "f", "m", "f", "m"]
    design = crossed({"words": words, "contexts": [1, 2, 1, 2, 1]}, strata={"words": sides})
    assert [sample.tolist() for sample in design.samples] == [[0, 2], [1, 3], [0, 1]]
    assert str(design) == "2+2 words x 2 contexts"


def test_factors_meet_in_cells():
    design = crossed({"words": ["a", "a", "b", "b", "b"], "contexts": [1, 2, 1, 2, 2]})
    (cells,) = meet(design.factors).factors
    assert cells.unit.tolist() == [0, 1, 2, 3, 3]
    assert str(meet(design.factors)) == "4 words-contexts"


@pytest.mark.parametrize(
    ("labels", "strata"),
    [
        ({"words": ["a", "b"], "contexts": [1]}, {}),
        ({"words": ["a", "b"]}, {"words": ["f"]}),
        ({"words": ["a", "b"]}, {"contexts": ["f", "m"]}),
        ({}, {}),
    ],
)
def test_columns_that_do_not_fit_are_refused(labels, strata):
    with pytest.raises(LevelheadError, match="do not fit together"):
        crossed(labels, strata=strata)


def test_a_unit_in_two_strata_is_refused():
    with pytest.raises(LevelheadError, match="some words lie in more than one stratum"):
        clusters(["a", "a", "b", "c"], name="words", strata=["f", "m", "f", "m"])
