import pickle

import pytest

from levelhead.core.errors import LevelheadError
from levelhead.core.frozen import FrozenDict
from levelhead.engine import tasks as units
from levelhead.engine.tasks import Task


def unit(work="synthetic:digest", revision=1, threads=1, **spec):
    return Task(work, FrozenDict(spec), revision, threads)


def test_the_key_is_that_of_everything_the_result_depends_on():
    keys = {
        unit(i=1).key,
        unit(i=2).key,
        unit(i=1, revision=2).key,
        unit("synthetic:refuse", i=1).key,
        unit(i=1, threads=2).key,
    }
    assert len(keys) == 5
    assert unit(i=1, seconds=0).key == unit(seconds=0, i=1).key
    assert pickle.loads(pickle.dumps(unit(i=1))) == unit(i=1)  # noqa: S301  # our own bytes


def test_other_versions_are_another_key(monkeypatch):
    before = unit(i=1).key
    newer = FrozenDict(dict(units.installed_versions()) | {"torch": "99.0"})
    monkeypatch.setattr(units, "installed_versions", lambda: newer)
    assert unit(i=1).key != before


def test_a_specification_that_could_change_is_refused():
    with pytest.raises(LevelheadError, match="could change after it was hashed"):
        Task("synthetic:digest", {"i": 1})


@pytest.mark.parametrize(
    ("work", "what"),
    [
        ("synthetic:nothing", "no function 'synthetic:nothing' can be imported"),
        ("no_such_module:f", "No module named 'no_such_module'"),
        ("synthetic", "no function 'synthetic' can be imported"),
        ("", "no function '' can be imported"),
        ("synthetic:not_bytes", "synthetic:not_bytes returned str, not bytes"),
    ],
)
def test_work_that_cannot_be_done_says_why(work, what):
    with pytest.raises(LevelheadError, match=what):
        unit(work, i=1).compute()
