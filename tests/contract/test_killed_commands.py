"""Commands that are killed at random moments and run again: the same files, and no process left.

A hundred kills, in the full tier: each is a cold start. In the fast tier `test_resume_after_kill`,
`test_processes` and the tests of each command kill jobs that are already imported.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import metric_cases
import pytest
import studies
import zoo

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="finds processes by /proc"
)
FEW = ("--resamples", "99", "--permutations", "99")
ORPHAN_SECONDS = 5
"""Time within which every process of a killed command must have ended."""
VOLATILE = ("lock",)
"""Files that are no results."""


class Commands:
    """Arguments of commands on tiny models; each writes into a folder."""

    def __init__(self, inputs):
        lexicon = studies.lexicon(inputs)
        self.models = [str(zoo.folder("bert", "BertForPreTraining", seed=seed)) for seed in (0, 1)]
        self.measure_text = f"seat:lexicon={lexicon},targets=things,corpus={metric_cases.corpus()}"
        self.corpus = inputs / "corpus"
        self.corpus.mkdir()
        for number in range(40):
            lines = [
                f"The nurse {number}-{i} saw her in the hall. He is a pilot." for i in range(2000)
            ]
            (self.corpus / f"{number:02}.txt").write_text("\n".join(lines))
        self.study_file = studies.study(inputs, studies.STUDY)
        self.texts = inputs / "texts.txt"
        self.texts.write_text("\n".join(metric_cases.sentences() * 20))

    def arguments(self, name, folder):
        model = self.models[0]
        by_name = {
            "measure": [
                *("measure", model, "-m", self.measure_text, *FEW, "--store", f"{folder}/store"),
                *("-o", f"{folder}/result.json"),
            ],
            "locate": [
                *("locate", model, "-m", self.measure_text, "--store", f"{folder}/store"),
                *("-o", f"{folder}/heads.json"),
            ],
            "mine": ["data", "mine", f"{self.corpus}/*.txt", "-o", folder, "--workers", "2"],
            "leaderboard": [
                *("leaderboard", *self.models, "-m", self.measure_text, *FEW, "-o", folder),
                *("--workers", "2"),
            ],
            "study": ["study", "run", self.study_file, "-o", folder, "--workers", "2"],
            "study on ray": [
                *("study", "run", self.study_file, "-o", folder, "--workers", "2"),
                *("--executor", "ray"),
            ],
            "cda": [
                *("mitigate", "cda", model, "--corpus", self.texts, "-o", f"{folder}/trained"),
                *("--lexicon", self.study_file.parent / "tiny.toml", "--steps", "20"),
            ],
        }
        return [str(argument) for argument in by_name[name]]


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    return Commands(tmp_path_factory.mktemp("inputs"))


def start(arguments, log):
    return subprocess.Popen(
        [sys.executable, "-m", "levelhead", *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.DEVNULL,
        stderr=log,
        start_new_session=True,
    )


def finish(arguments, log_path):
    """Run to the end; the seconds it took."""
    began = time.monotonic()
    with log_path.open("wb") as log:
        process = start(arguments, log)
        assert process.wait(timeout=600) == 0, log_path.read_text()[-2000:]
    return time.monotonic() - began


def session_of(pid):
    """Processes of the session of a command that are no zombies, whoever their parent is now."""
    members = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session, *_ = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(session) == pid and state != "Z":
            members.append(int(stat.parent.name))
    return members


def remaining(pid):
    """Processes that are left of a killed command after the time they have to end."""
    deadline = time.monotonic() + ORPHAN_SECONDS
    while (members := session_of(pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return [Path(f"/proc/{member}/cmdline").read_bytes() for member in members]


def kill_after(arguments, seconds, log_path):
    """Start a command and kill it after so many seconds; whether it was still running."""
    with log_path.open("wb") as log:
        process = start(arguments, log)
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            assert remaining(process.pid) == []
            return True
    assert process.returncode == 0, log_path.read_text()[-2000:]
    return False


def tree(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file() and path.name not in VOLATILE
    }


def check_kills(commands, name, kills, tmp_path):
    """Kill a command so many times, from its first second to its last, and compare the files."""
    rng = random.Random(name)
    log = tmp_path / "log"
    whole = tmp_path / "undisturbed"
    seconds = finish(commands.arguments(name, whole), log)
    expected = tree(whole)
    killed, folder = 0, tmp_path / "killed"
    while killed < kills:
        is_killed = kill_after(
            commands.arguments(name, folder), rng.uniform(0.2, 0.9) * seconds, log
        )
        killed += is_killed
        # Half of the kills hit a run that continues, half a run from the beginning.
        if killed < kills and (killed % 2 == 0 or not is_killed):
            shutil.rmtree(folder, ignore_errors=True)
    finish(commands.arguments(name, folder), log)
    result = tree(folder)
    assert result.keys() == expected.keys()
    assert [path for path in expected if result[path] != expected[path]] == []


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("name", "kills"),
    [
        ("measure", 15),
        ("locate", 15),
        ("mine", 15),
        ("leaderboard", 15),
        ("study", 15),
        ("study on ray", 10),
        ("cda", 15),
    ],
)
def test_commands_that_are_killed_often_continue(commands, name, kills, tmp_path):
    check_kills(commands, name, kills, tmp_path)
