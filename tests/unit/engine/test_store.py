import os
import re
import subprocess
import sys
import threading
import uuid

import pytest

from levelhead.core.canonical_json import content_hash
from levelhead.core.files import join_url, write_atomic
from levelhead.engine import store as store_module
from levelhead.engine.store import (
    MARKER,
    DamagedFileError,
    ForeignFolderError,
    NotStoredError,
    open_existing_store,
    open_store,
)

DEAD = 2**22 + 1  # above the largest number Linux gives to a process
KEY, OTHER = content_hash("a"), content_hash("b")


@pytest.fixture(params=["path", "memory"])
def url(request, tmp_path):
    return str(tmp_path / "store") if request.param == "path" else f"memory://{uuid.uuid4()}"


def test_what_was_put_comes_back(url):
    store = open_store(url)
    assert not store.has(KEY)
    with pytest.raises(NotStoredError, match="nothing is stored under"):
        store.get(KEY)
    for payload in (b"", b"one\ntwo\n", bytes(range(256)) * 50):
        store.put(KEY, payload)
        assert store.get(KEY) == payload
    store.put(OTHER, b"x")
    assert list(open_existing_store(url)) == sorted([KEY, OTHER])


def test_every_flipped_bit_and_every_cut_is_noticed(tmp_path):
    store = open_store(tmp_path / "s")
    store.put(KEY, b"a payload\nof two lines")
    place = tmp_path / "s" / "units" / KEY[:2] / KEY
    full = place.read_bytes()
    changed = [full[:length] for length in range(len(full))]
    changed += [full + b"\n", full.replace(b"payload", b"Payload")]
    for i in range(len(full)):
        for bit in range(8):
            changed.append(full[:i] + bytes([full[i] ^ 1 << bit]) + full[i + 1 :])
    for bytes_ in changed:
        place.write_bytes(bytes_)
        for look in (store.get, store.has):
            with pytest.raises(DamagedFileError) as error:
                look(KEY)
            assert str(place) in error.value.problem
    place.write_bytes(full)
    assert store.get(KEY) == b"a payload\nof two lines"


def test_a_file_under_anothers_name_is_damaged(tmp_path):
    store = open_store(tmp_path / "s")
    store.put(KEY, b"x")
    there = tmp_path / "s" / "units" / OTHER[:2]
    there.mkdir(parents=True)
    (tmp_path / "s" / "units" / KEY[:2] / KEY).rename(there / OTHER)
    with pytest.raises(DamagedFileError):
        store.get(OTHER)


def test_a_foreign_folder_is_refused_and_left_alone(url):
    write_atomic(join_url(url, "thesis.tex"), b"years of work")
    with pytest.raises(
        ForeignFolderError, match=r"is no levelhead store \(the first is 'thesis.tex'\)"
    ):
        open_store(url)
    with pytest.raises(NotStoredError, match="is no levelhead store"):
        open_existing_store(url)


def test_a_store_of_another_format_is_refused(url):
    write_atomic(join_url(url, MARKER), b'{"format":2,"kind":"levelhead store"}\n')
    with pytest.raises(ForeignFolderError, match="is a store of format 2"):
        open_store(url)


@pytest.mark.parametrize("harm", [b"", b'{"format":', b"[]", b"\xff\xfe"])
def test_a_damaged_marker_is_named_with_its_mend(url, harm):
    open_store(url)
    write_atomic(join_url(url, MARKER), harm)
    with pytest.raises(DamagedFileError, match=f"{MARKER} is damaged") as error:
        open_store(url)
    assert '{"format":1,"kind":"levelhead store"}' in error.value.hint


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(NotStoredError, match="is no levelhead store"):
        open_existing_store(tmp_path / "file")
    with pytest.raises(ForeignFolderError):
        open_store(tmp_path / "file")


def test_a_process_killed_while_making_the_store_leaves_it_ours(tmp_path):
    (tmp_path / f".{MARKER}.01234567-{DEAD}-0123456789abcdef.tmp").write_bytes(b"{")
    assert list(open_store(tmp_path)) == []


def test_two_processes_may_make_one_store_at_once(tmp_path):
    code = "import sys; from levelhead.engine.store import open_store; open_store(sys.argv[1])"
    for number in range(4):
        both = [
            subprocess.Popen([sys.executable, "-c", code, str(tmp_path / f"new{number}")])
            for _ in range(2)
        ]
        assert [process.wait() for process in both] == [0, 0]


def test_a_store_made_between_two_looks_is_not_foreign(tmp_path, monkeypatch):
    folder, looks = tmp_path / "new", []

    def look(url):
        if not looks:  # the other process is quicker
            looks.append(url)
            (folder / "units").mkdir(parents=True)
            (folder / MARKER).write_bytes(store_module.FORMAT)
        return ["units"]

    monkeypatch.setattr(store_module, "_foreign_names", look)
    assert list(open_store(folder)) == []


def test_a_store_stays_where_it_is_when_the_process_moves(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = open_store("run")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    store.put(KEY, b"x")
    assert (tmp_path / "run" / "units" / KEY[:2] / KEY).exists()


def test_a_folder_that_cannot_be_listed_is_not_an_empty_one(tmp_path, monkeypatch):
    store = open_store(tmp_path)
    store.put(KEY, b"x")
    scandir = os.scandir

    def forbidden(path):
        if str(path).endswith(KEY[:2]):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", forbidden)
    with pytest.raises(PermissionError):
        list(store)


def test_looking_writes_nothing(tmp_path):
    with pytest.raises(NotStoredError):
        open_existing_store(tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []


def test_sweeping_removes_what_dead_writers_of_this_machine_left(tmp_path, monkeypatch):
    store = open_store(tmp_path)
    store.put(KEY, b"x")
    left = []
    monkeypatch.setattr(os, "replace", lambda a, b: left.append(a))
    store.put(OTHER, b"under way")  # by this process, which lives
    monkeypatch.undo()
    name = os.path.basename(left[0])
    dead = name.replace(f"-{os.getpid()}-", f"-{DEAD}-")
    there = tmp_path / "tmp"
    for other in (dead, "thesis.tex", re.sub(r"\.[0-9a-f]{8}-", ".ffffffff-", dead)):
        (there / other).write_bytes(b"ha")
    (tmp_path / dead).write_bytes(b"an unfinished marker")
    store.remove_abandoned_files()
    assert not (there / dead).exists()
    assert not (tmp_path / dead).exists()
    assert len(list(there.iterdir())) == 3  # a living writer's, a user's, another machine's
    assert store.get(KEY) == b"x"


def test_a_reader_beside_a_writer_sees_whole_files_only(tmp_path):
    store, reader, stop = open_store(tmp_path), open_store(tmp_path), threading.Event()
    payloads = [bytes([i]) * 200_000 for i in range(8)]
    store.put(KEY, payloads[0])

    def write():
        while not stop.is_set():
            for payload in payloads:
                store.put(KEY, payload)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = {reader.get(KEY) for _ in range(300)}
    finally:
        stop.set()
        writer.join()
    assert seen <= set(payloads)
    assert len(seen) > 1  # the test did look while it was written
