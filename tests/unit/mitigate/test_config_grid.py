"""The grid of Dawkins et al. 2024 as data."""

from collections import Counter
from itertools import pairwise

import pytest
from pydantic import ValidationError

from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.mitigate.projection.config_grid import (
    EDIT_POINTS,
    ProjectionConfig,
    ProjectionRule,
    projection_grid,
)

HARD, SOFT = (
    ProjectionRule(weighted=False, n_components=1),
    ProjectionRule(weighted=True, n_components=2),
)


def test_there_are_74_distinct_settings():
    settings = projection_grid()
    counts = Counter(setting.edit_point for setting in settings)
    assert counts == {"sent": 2, "last": 8, "penultimate": 32, "penultimate+attn": 32}
    assert len(set(settings)) == len({str(setting) for setting in settings}) == 74
    assert len({setting.content_hash for setting in settings}) == 74


def test_without_sent_there_are_36():
    counts = Counter(setting.edit_point for setting in projection_grid(pooled=False))
    assert counts == {"last": 4, "penultimate": 16, "penultimate+attn": 16}
    assert all(setting.pooled is None for setting in projection_grid(pooled=False))


def test_names_are_the_papers_tuples():
    # (n11, c11, n12, c12, np), in the order in which the paper's Table 7 counts.
    for level, marks in (("sent", 1), ("last", 3), ("penultimate", 5), ("penultimate+attn", 5)):
        names = [str(setting) for setting in projection_grid() if setting.edit_point == level]
        steps = [",".join(f"{i:0{marks}b}") for i in range(2**marks)]
        assert names == [f"{level} {step}" for step in steps]


@pytest.mark.parametrize("setting", [*projection_grid(), *projection_grid(pooled=False)], ids=str)
def test_a_name_is_read_back(setting):
    assert ProjectionConfig.from_name(setting.name) == setting
    assert ProjectionConfig.from_json(setting.to_json()) == setting


def test_what_the_marks_mean():
    setting = ProjectionConfig.from_name("penultimate (0, 0, 1, 1, 0)")
    assert (setting.penultimate, setting.last, setting.pooled) == (HARD, SOFT, HARD)
    assert setting.site_groups == ("penultimate", "last", "sent")
    assert ProjectionConfig.from_name("penultimate+attn 1,1,1,1,1").step("attn") == HARD
    with pytest.raises(
        UnknownNameError, match="there is no part of penultimate 0,0,1,1,0 named 'attn'"
    ):
        setting.step("attn")


def test_levels_are_nested():
    parts = list(EDIT_POINTS.values())
    for earlier, later in pairwise(parts):
        assert later[-len(earlier) :] == earlier
        assert len(later) == len(earlier) + 1


@pytest.mark.parametrize("name", ["last 0,1,1,1", "last", "sent 2", "penultimate 1,1", "last a,1"])
def test_wrong_marks_are_refused(name):
    with pytest.raises(LevelheadError, match="write n,c of penultimate"):
        ProjectionConfig.from_name(name)


def test_wrong_settings_are_refused():
    with pytest.raises(UnknownNameError, match="did you mean 'penultimate'"):
        ProjectionConfig.from_name("penultimat 1")
    for wrong, responses in (
        ({"edit_point": "sent"}, "level sent edits sent"),
        ({"edit_point": "last", "pooled": HARD}, "level last edits last, sent, and nothing else"),
        (
            {"edit_point": "sent", "last": HARD, "pooled": HARD},
            "level sent edits sent, and nothing else",
        ),
        ({"edit_point": "last", "last": HARD, "pooled": SOFT}, "sent has one dimension"),
    ):
        with pytest.raises(ValidationError, match=responses):
            ProjectionConfig(**wrong)
