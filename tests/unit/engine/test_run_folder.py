import uuid

import pytest

from levelhead.core.files import join, write_atomic
from levelhead.engine.run_dir import MARKER, is_own, own
from levelhead.engine.store import ForeignFolder

WRITES = ("results", "table.csv")


@pytest.fixture(params=["path", "memory"])
def url(request, tmp_path):
    return str(tmp_path / "run") if request.param == "path" else f"memory://{uuid.uuid4()}"


def test_a_new_folder_becomes_a_runs_and_stays_one(url):
    assert not is_own(url)
    own(url, WRITES)
    assert is_own(url)
    write_atomic(join(url, "table.csv"), b"ours")
    own(url, WRITES)


def test_other_files_may_lie_beside(url):
    write_atomic(join(url, "study.toml"), b"theirs")
    own(url, WRITES)
    assert is_own(url)


@pytest.mark.parametrize("name", ["table.csv", "results/seat.json"])
def test_what_a_run_would_write_over_is_refused(url, name):
    write_atomic(join(url, name), b"theirs")
    with pytest.raises(ForeignFolder, match="and is not the folder of a run") as error:
        own(url, WRITES)
    assert repr(name.partition("/")[0]) in error.value.what
    assert "nothing was written" in error.value.mend
    assert not is_own(url)


def test_an_empty_folder_is_nobodys(tmp_path):
    (tmp_path / "results").mkdir()
    own(tmp_path, WRITES)
    assert (tmp_path / MARKER).is_file()
