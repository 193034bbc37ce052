import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelhead.core.errors import LevelheadError, NotMeasurableError, UnknownNameError
from levelhead.stats.designs import (
    Resample,
    clustered_design,
    crossed_design,
    grouped_design,
    intersect_factors,
)


def draw(design, *samples, permuted=False):
    return Resample(design, tuple(np.array(sample) for sample in samples), permuted)


def lists(arrays):
    return [array.tolist() for array in arrays]


def test_the_whole_is_every_item_once():
    for design in (
        grouped_design(3, 2),
        clustered_design(["x", "y", "x", "z"]),
        crossed_design({"a": [0, 0, 1, 1], "b": [0, 1, 0, 1]}),
        crossed_design(
            {"a": [0, 0, 1, 1, 2, 3], "b": [0, 1, 0, 1, 0, 1]}, within=[0, 0, 1, 1, 0, 1]
        ),
    ):
        assert sorted(design.full_sample.items.tolist()) == list(range(design.n_items))


def test_groups_are_redrawn_within_themselves():
    design = grouped_design(3, 2)
    assert lists(design.samples) == [[0, 1, 2], [3, 4]]
    resample = draw(design, [2, 0, 2], [4, 4])
    assert lists(resample.groups) == [[0, 2, 2], [4, 4]]
    assert resample.items.tolist() == [0, 2, 2, 4, 4]


def test_a_jackknife_leaves_items_out_of_their_own_group():
    assert lists(draw(grouped_design(3, 2), [1, 2], [3, 4]).groups) == [[1, 2], [3, 4]]


def test_a_permutation_deals_units_to_groups():
    assert lists(draw(grouped_design(3, 2), [4, 0, 3], [1, 2], permuted=True).groups) == [
        [0, 3, 4],
        [1, 2],
    ]
    words = clustered_design(["a", "a", "b", "c", "d"], within=["f", "f", "f", "m", "m"])
    assert lists(draw(words, [3, 1], [0, 2], permuted=True).groups) == [[2, 4], [0, 1, 3]]


def test_clusters_are_drawn_whole():
    design = clustered_design(["x", "y", "x", "z"])
    assert draw(design, [0, 0, 2]).items.tolist() == [0, 0, 2, 2, 3]


@given(st.integers(2, 5), st.integers(2, 5), st.randoms(use_true_random=False))
def test_crossed_factors_are_the_pigeonhole_bootstrap(rows, columns, random):
    cells = [(r, c) for r in range(rows) for c in range(columns)]
    random.shuffle(cells)
    design = crossed_design({"rows": [r for r, _ in cells], "columns": [c for _, c in cells]})
    drawn_rows = [random.randrange(rows) for _ in range(rows)]
    drawn_columns = [random.randrange(columns) for _ in range(columns)]
    # Literally: every drawn row meets every drawn column. Units are numbered as they appear.
    row_order = list(dict.fromkeys(r for r, _ in cells))
    column_order = list(dict.fromkeys(c for _, c in cells))
    literal = sorted(
        cells.index((row_order[r], column_order[c])) for r in drawn_rows for c in drawn_columns
    )
    resample = draw(design, drawn_rows, drawn_columns)
    assert resample.items.tolist() == literal
    # Copies are told apart: every copy of a row meets every copy of a column exactly once.
    meetings = list(
        zip(resample.unit_numbers("rows"), resample.unit_numbers("columns"), strict=True)
    )
    assert sorted(meetings) == [(r, c) for r in range(rows) for c in range(columns)]
    # And each copy of a row is a copy of one row.
    for copy in range(rows):
        mine = {cells[item][0] for item in resample.items[resample.unit_numbers("rows") == copy]}
        assert len(mine) == 1


def test_a_statistic_over_units_can_tell_copies_apart():
    """The mean of cluster means, where the first of three clusters was drawn twice."""
    design = clustered_design([0, 0, 1, 1, 2, 2])
    x = np.array([1.0, 3.0, 10.0, 10.0, 100.0, 100.0])
    resample = draw(design, [0, 0, 1])
    units = resample.unit_numbers("clusters")
    means = [x[resample.items[units == unit]].mean() for unit in np.unique(units)]
    assert sorted(means) == [2.0, 2.0, 10.0]
    with pytest.raises(UnknownNameError, match="did you mean 'clusters'"):
        resample.unit_numbers("cluster")


def test_units_are_redrawn_within_their_group_and_other_factors_across():
    words, sides = ["she", "she", "he", "her", "his"], ["f", "f", "m", "f", "m"]
    design = crossed_design({"words": words, "contexts": [1, 2, 1, 2, 1]}, within=sides)
    assert lists(design.samples) == [[0, 2], [1, 3], [0, 1]]
    assert str(design) == "2+2 words x 2 contexts"
    resample = draw(design, [0, 0], [1, 3], [0, 0])
    assert lists(resample.groups) == [[0, 0, 0, 0], [2, 2, 4, 4]]


def test_degrees_of_freedom_are_units_less_strata():
    design = crossed_design({"words": list(range(42)) * 2, "contexts": [0] * 42 + [1] * 42})
    assert (design.limiting_factor.name, design.limiting_factor.df) == ("contexts", 1)
    lopsided = clustered_design(range(42), within=[0] * 40 + [1] * 2)
    assert lopsided.limiting_factor.df == 40


def test_factors_meet_in_cells_and_keep_the_groups():
    labels = {"words": ["a", "a", "b", "b", "b"], "contexts": [1, 2, 1, 2, 2]}
    design = crossed_design(labels)
    (cells,) = intersect_factors(design, design.factors).factors
    assert cells.unit_of_item.tolist() == [0, 1, 2, 3, 3]
    assert str(intersect_factors(design, design.factors)) == "4 words-contexts"
    design = crossed_design({"words": list("abcd"), "contexts": [1, 2, 1, 2]}, within=list("ffmm"))
    by_context = intersect_factors(design, design.factors[1:])
    assert lists(draw(by_context, [0, 0]).groups) == [[0, 0], [2, 2]]


def test_a_stratum_of_one_cell_is_redrawn_with_others():
    # A factor's strata need two units each; where factors meet there may be fewer cells.
    design = crossed_design(
        {"words": list("aabbcd"), "contexts": [1, 2, 1, 2, 1, 1]}, within=list("ffffmm")
    )
    other = crossed_design({"words": list("aabbcc"), "contexts": [1, 2, 1, 2, 1, 2]})
    for each in (design, other):
        assert intersect_factors(each, each.factors).n_items == 6


def test_a_design_says_what_it_is():
    assert str(grouped_design(84, 84, name="words")) == "84+84 words"
    assert str(crossed_design({"occupations": [1, 1, 2, 2], "templates": [1, 2, 1, 2]})) == (
        "2 occupations x 2 templates"
    )


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: grouped_design(), "0 items: fewer than two give"),
        (lambda: grouped_design(84, 1, name="words"), "1 words: fewer than two give"),
        (lambda: clustered_design(["a", "a"]), "1 clusters: fewer than two give"),
        (lambda: clustered_design([]), "0 clusters: fewer than two give"),
    ],
)
def test_one_unit_is_refused(make, what):
    with pytest.raises(NotMeasurableError, match=what):
        make()


@pytest.mark.parametrize(
    ("labels", "within"),
    [
        ({"words": ["a", "b"], "contexts": [1]}, None),
        ({"words": ["a", "b"]}, ["f"]),
        ({}, None),
    ],
)
def test_columns_that_do_not_fit_are_refused(labels, within):
    with pytest.raises(LevelheadError, match="do not fit together"):
        crossed_design(labels, within=within)


def test_a_unit_in_two_groups_is_refused():
    with pytest.raises(LevelheadError, match="some words belong to more than one group"):
        clustered_design(["a", "a", "b", "c"], name="words", within=["f", "m", "f", "m"])
