import hashlib
import os
import re
import subprocess
import sys
import uuid

import pytest

from levelhead.core import files
from levelhead.core.errors import LevelheadError, MissingExtraError


@pytest.fixture(params=["path", "file", "memory"])
def folder(request, tmp_path):
    return {
        "path": str(tmp_path),
        "file": tmp_path.as_uri(),
        "memory": f"memory://{uuid.uuid4()}",
    }[request.param]


def test_bytes_come_back_and_are_replaced(folder):
    url = files.join_url(folder, "deep", "er", "file.bin")
    with pytest.raises(FileNotFoundError):
        files.read_bytes(url)
    for data in (b"first", b"", b"second" * 1000):
        files.write_atomic(url, data)
        assert files.read_bytes(url) == data
        assert files.file_hash(url) == hashlib.sha256(data).hexdigest()


def test_a_file_that_cannot_be_written_is_refused_before(tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    files.check_writable(tmp_path / "new" / "er" / "file")
    files.check_writable(tmp_path / "file")
    files.check_writable("memory://a/b")
    for place, responses in (
        (tmp_path, "is a folder"),
        (tmp_path / "file" / "x", "file is a file"),
    ):
        with pytest.raises(LevelheadError, match=responses):
            files.check_writable(place)
    assert os.listdir(tmp_path) == ["file"]


def test_a_folder_of_others_is_refused_before(tmp_path):
    tmp_path.chmod(0o500)
    child = os.fork()
    if child == 0:  # root may write everywhere, so another user asks
        try:
            if os.geteuid() == 0:
                os.setuid(65534)
            files.check_writable(tmp_path / "x")
        except LevelheadError as error:
            os._exit(0 if "is not writable" in error.problem else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_path_is_a_path_whatever_it_is_called(tmp_path):
    for name in ("a::b", "with space", "100%20", "ü"):
        files.write_atomic(tmp_path / name / "file", b"x")
        assert (tmp_path / name / "file").read_bytes() == b"x"
        assert files.read_bytes((tmp_path / name / "file").as_uri()) == b"x"
        assert files.read_bytes(str(tmp_path / name / "file")) == b"x"


@pytest.mark.parametrize(
    ("url", "below"),
    [
        ("memory://", "memory://x"),
        ("memory://a/b/", "memory://a/b/x"),
        ("s3://bucket/", "s3://bucket/x"),
        ("/srv/a/", "/srv/a/x"),
    ],
)
def test_joining_keeps_the_protocol(url, below):
    assert files.join_url(url, "x") == below


def test_absolute_urls_survive_a_change_of_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert files.absolute_url("a/b/") == str(tmp_path / "a" / "b")
    assert files.absolute_url("memory://") == "memory://"
    assert files.absolute_url("memory://a/") == "memory://a"


def test_unknown_protocols_say_the_mend():
    with pytest.raises(LevelheadError, match="cannot open a URL of the protocol 'nosuch'") as error:
        files.open_filesystem("nosuch://x")
    assert "use a path, or one of" in error.value.hint
    assert "s3" in error.value.hint


def test_a_protocol_of_an_extra_names_it(monkeypatch):
    def no_package(url):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(files, "url_to_fs", no_package)
    with pytest.raises(MissingExtraError, match=r"pip install 'levelhead\[s3\]'"):
        files.open_filesystem("s3://bucket/x")
    with pytest.raises(LevelheadError, match="cannot open gcs://x: Install s3fs"):
        files.open_filesystem("gcs://x")


def test_only_real_disks_are_local(tmp_path):
    assert files.is_local(tmp_path)
    assert files.is_local(tmp_path.as_uri())
    assert not files.is_local("memory://x")


def test_a_write_that_fails_leaves_the_old_bytes_and_no_rubbish(tmp_path, monkeypatch):
    place = tmp_path / "file"
    files.write_atomic(place, b"old")

    def full(descriptor):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        files.write_atomic(place, b"new")
    assert place.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_write_removes_what_a_killed_writer_of_the_file_left(tmp_path):
    """Not what living processes, other machines or writers of other files have there."""
    write = (
        "import os, sys; from levelhead.core import files; os.replace = lambda *a: os._exit(9); "
    )
    write += "files.write_atomic(sys.argv[1], b'half')"
    for name in ("a.png", "b.png"):
        path = str(tmp_path / name)
        assert subprocess.run([sys.executable, "-c", write, path], check=False).returncode == 9
    (left,) = tmp_path.glob(".a.png.*.tmp")
    living = re.sub(r"-\d+-", f"-{os.getpid()}-", left.name)
    elsewhere = re.sub(r"\.[0-9a-f]{8}-", ".ffffffff-", left.name)
    for name in (living, elsewhere):
        (tmp_path / name).write_bytes(b"half")
    files.write_atomic(tmp_path / "a.png", b"whole")
    (other,) = tmp_path.glob(".b.png.*.tmp")
    kept = {"a.png", living, elsewhere, other.name}
    assert {path.name for path in tmp_path.iterdir()} == kept
    assert (tmp_path / "a.png").read_bytes() == b"whole"


def test_the_final_name_never_shows_a_part(tmp_path, monkeypatch):
    place, seen = tmp_path / "file", []
    files.write_atomic(place, b"old")
    replace = os.replace
    monkeypatch.setattr(
        os, "replace", lambda a, b: (seen.append(place.read_bytes()), replace(a, b))
    )
    files.write_atomic(place, b"new")
    assert seen == [b"old"]
    assert place.read_bytes() == b"new"


def test_unfinished_files_lie_in_the_scratch_folder(tmp_path, monkeypatch):
    seen = []
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: (seen.append(a), replace(a, b)))
    files.write_atomic(tmp_path / "units" / "a", b"x", scratch=tmp_path / "tmp")
    assert os.path.dirname(seen[0]) == str(tmp_path / "tmp")


def test_files_have_the_permissions_the_user_chose(tmp_path):
    before = os.umask(0o027)
    try:
        files.write_atomic(tmp_path / "file", b"x")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640
