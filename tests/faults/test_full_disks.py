"""A disk that is full, as a real file system: a clear error, and whole files or none.

A small tmpfs, which root alone may mount. Commands are forked from a process that has imported what
they need: each disk is filled and then made larger.
"""

import os
import subprocess
import sys

import metric_cases
import pytest
import studies
import zoo
from warm_start import WarmStart

from levelhead.models.edits.base import HeadScale
from levelhead.models.edits.files import save_edits
from levelhead.models.sites import Site

ERROR, ENDS = 3, (0, 2)
FEW = ("--resamples", "99", "--permutations", "99", "--quiet")
VOLATILE = ("lock", "costs.csv", "cost.json", ".lock")
BLOCK = 4096
SHARES = (0.02, 0.4, 0.8)
"""Sizes of the disks, as shares of what the run writes."""


@pytest.fixture(scope="module")
def warm():
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    started = WarmStart(environment)
    yield started
    started.close()


def mount_tmpfs(folder, size, *options):
    """Mount a tmpfs, or change its size."""
    words = ("mount", "-t", "tmpfs", "-o", ",".join((f"size={size}", *options)), "tmpfs", folder)
    done = subprocess.run([str(word) for word in words], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("this machine lets nobody mount a tmpfs here")


@pytest.fixture
def disks(tmp_path):
    """A function that mounts a disk of a size in a new folder."""
    mounted = []

    def make(name, size):
        folder = tmp_path / name
        folder.mkdir()
        mount_tmpfs(folder, size)
        mounted.append(folder)
        return folder

    yield make
    for folder in mounted:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """Commands on tiny models, each of which writes into the folder `out`."""
    inputs = tmp_path_factory.mktemp("inputs")
    model = str(zoo.folder("bert", "BertForPreTraining"))
    seat = f"seat:lexicon={studies.lexicon(inputs)},targets=things,corpus={metric_cases.corpus()}"
    save_edits([HeadScale([Site("head_out", 1, 1)], 0)], inputs / "edit")
    return {
        "measure": [
            *("levelhead", "measure", model, "-m", seat, *FEW, "--store", "out/store"),
            *("-o", "out/result.json"),
        ],
        "export": ["levelhead", "export", model, "--edit", str(inputs / "edit"), "-o", "out/model"],
    }


def run(warm, arguments, place, log):
    """Exit code and output of a command."""
    code = warm.wait(warm.start(arguments, place, log), 300)
    return code, log.read_text(errors="replace")


def tree(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in VOLATILE
    }


def blocks(files):
    return sum(-(-len(content) // BLOCK) * BLOCK for content in files.values())


def check_disk(warm, arguments, whole, share, disks, tmp_path):
    """Run on a disk that is too small, then on the same disk after it has grown."""
    disk = disks(f"disk-{share}", max(BLOCK, int(blocks(whole) * share) // BLOCK * BLOCK))
    code, text = run(warm, arguments, disk, tmp_path / f"{share}.log")
    assert code == ERROR, text[-2000:]
    assert "No space left" in text
    assert "hint:" in text
    assert "Traceback" not in text
    left = {name: content for name, content in tree(disk).items() if ".unfinished" not in name}
    # What has the name of a result is the result, and nothing half-written remains.
    partial = [name for name, content in left.items() if whole.get(name) not in (content, None)]
    assert partial == []
    assert [name for name in left if name.endswith(".tmp")] == []
    mount_tmpfs(disk, "64m", "remount")
    code, text = run(warm, arguments, disk, tmp_path / f"{share}-again.log")
    assert code in ENDS, text[-2000:]
    again = tree(disk)
    assert again.keys() == whole.keys()
    assert [name for name in whole if again[name] != whole[name]] == []


@pytest.mark.parametrize(
    ("name", "shares"),
    [
        pytest.param("measure", SHARES, marks=pytest.mark.full),
        ("export", SHARES[1:2]),
        pytest.param("export", SHARES, marks=pytest.mark.full),
    ],
)
def test_a_full_disk_leaves_whole_files(name, shares, commands, warm, disks, tmp_path):
    sound = disks("sound", "64m")
    code, text = run(warm, commands[name], sound, tmp_path / "sound.log")
    assert code in ENDS, text[-2000:]
    whole = tree(sound)
    for share in shares:
        check_disk(warm, commands[name], whole, share, disks, tmp_path)
