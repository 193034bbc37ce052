import uuid

import pytest

from levelhead.core.files import join_url, write_atomic
from levelhead.engine.run_dir import MARKER, is_owned, mark_owned
from levelhead.engine.store import ForeignFolderError

WRITES = ("results", "table.csv")


@pytest.fixture(params=["path", "memory"])
def url(request, tmp_path):
    return str(tmp_path / "run") if request.param == "path" else f"memory://{uuid.uuid4()}"


def test_a_new_folder_becomes_a_runs_and_stays_one(url):
    assert not is_owned(url)
    mark_owned(url, WRITES)
    assert is_owned(url)
    write_atomic(join_url(url, "table.csv"), b"ours")
    mark_owned(url, WRITES)


def test_other_files_may_lie_beside(url):
    write_atomic(join_url(url, "study.toml"), b"theirs")
    mark_owned(url, WRITES)
    assert is_owned(url)


@pytest.mark.parametrize("name", ["table.csv", "results/seat.json"])
def test_what_a_run_would_write_over_is_refused(url, name):
    write_atomic(join_url(url, name), b"theirs")
    with pytest.raises(ForeignFolderError, match="and is not the folder of a run") as error:
        mark_owned(url, WRITES)
    assert repr(name.partition("/")[0]) in error.value.problem
    assert "nothing was written" in error.value.hint
    assert not is_owned(url)


def test_an_empty_folder_is_nobodys(tmp_path):
    (tmp_path / "results").mkdir()
    mark_owned(tmp_path, WRITES)
    assert (tmp_path / MARKER).is_file()
