"""The grid of Dawkins et al. 2024 as data."""

from collections import Counter
from itertools import pairwise

import pytest
from pydantic import ValidationError

from levelhead.core.errors import LevelheadError, UnknownName
from levelhead.mitigate.projection.config_grid import LEVELS, Setting, Step, grid

HARD, SOFT = Step(weighted=False, dims=1), Step(weighted=True, dims=2)


def test_there_are_74_distinct_settings():
    settings = grid()
    counts = Counter(setting.level for setting in settings)
    assert counts == {"sent": 2, "last": 8, "penultimate": 32, "penultimate+attn": 32}
    assert len(set(settings)) == len({str(setting) for setting in settings}) == 74
    assert len({setting.content_hash for setting in settings}) == 74


def test_without_sent_there_are_36():
    counts = Counter(setting.level for setting in grid(sent=False))
    assert counts == {"last": 4, "penultimate": 16, "penultimate+attn": 16}
    assert all(setting.sent is None for setting in grid(sent=False))


def test_names_are_the_papers_tuples():
    # (n11, c11, n12, c12, np), in the order in which the paper's Table 7 counts.
    for level, marks in (("sent", 1), ("last", 3), ("penultimate", 5), ("penultimate+attn", 5)):
        names = [str(setting) for setting in grid() if setting.level == level]
        tuples = [",".join(f"{i:0{marks}b}") for i in range(2**marks)]
        assert names == [f"{level} {one}" for one in tuples]


@pytest.mark.parametrize("setting", [*grid(), *grid(sent=False)], ids=str)
def test_a_name_is_read_back(setting):
    assert Setting.named(setting.name) == setting
    assert Setting.from_json(setting.to_json()) == setting


def test_what_the_marks_mean():
    setting = Setting.named("penultimate (0, 0, 1, 1, 0)")
    assert (setting.penultimate, setting.last, setting.sent) == (HARD, SOFT, HARD)
    assert setting.parts == ("penultimate", "last", "sent")
    assert Setting.named("penultimate+attn 1,1,1,1,1").step("attn") == HARD
    with pytest.raises(UnknownName, match="there is no part of penultimate 0,0,1,1,0 named 'attn'"):
        setting.step("attn")


def test_levels_are_nested():
    parts = list(LEVELS.values())
    for earlier, later in pairwise(parts):
        assert later[-len(earlier) :] == earlier
        assert len(later) == len(earlier) + 1


@pytest.mark.parametrize("name", ["last 0,1,1,1", "last", "sent 2", "penultimate 1,1", "last a,1"])
def test_wrong_marks_are_refused(name):
    with pytest.raises(LevelheadError, match="write n,c of penultimate"):
        Setting.named(name)


def test_wrong_settings_are_refused():
    with pytest.raises(UnknownName, match="did you mean 'penultimate'"):
        Setting.named("penultimat 1")
    for wrong, said in (
        ({"level": "sent"}, "level sent edits sent"),
        ({"level": "last", "sent": HARD}, "level last edits last, sent, and nothing else"),
        ({"level": "sent", "last": HARD, "sent": HARD}, "level sent edits sent, and nothing else"),
        ({"level": "last", "last": HARD, "sent": SOFT}, "sent has one dimension"),
    ):
        with pytest.raises(ValidationError, match=said):
            Setting(**wrong)
