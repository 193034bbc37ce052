"""Commands that are killed at random moments and run again: the same files, and no process left.

A hundred kills, in the full tier. The undisturbed run is a cold start, with its own seed of hashes;
those that are killed are forked from a process that has imported what they need (`warm_start`). In
the fast tier `test_resume_after_kill`, `test_processes`, `test_interrupted_audits` and the tests of
each command kill single jobs.
"""

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import biased_classifier
import metric_cases
import pytest
import studies
import zoo
from faulty_server import faulty_server, generated, reply
from warm_start import WarmStart

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="finds processes by /proc"
)
WORK = Path(__file__).parents[1] / "work"
FEW = ("--resamples", "99", "--permutations", "99")
ORPHAN_SECONDS = 5
"""Time within which every process of a killed command must have ended."""
IN_A_ROW = (2, 6)
"""Kills of a run before it may end."""
VOLATILE = ("lock", "costs.csv", "cost.json")
"""Files that are no results: a lock, and measured seconds."""
ENDS = (0, 2)
"""Exit codes of a run that ended: an audit of an untrained model is inconclusive."""
PLAN = ("audit.json", "study.json", "levelhead-run.json")
"""Files of an audit that was planned and not begun."""
AUDIT_WITH_BUDGET = "audit with a budget"
CHAT_MEASURE = "decision:generated_answers=true,subsample_fraction=0.3"


def answer(number, body):
    """What the chat server says: yes or no by a request's own content, after a moment."""
    time.sleep(0.02)
    words = json.dumps(body["messages"]).encode()
    content = ("Yes.", "No.")[hashlib.sha256(words).digest()[0] % 2]
    return reply(generated(message={"content": content}))


class Commands:
    """Arguments of commands on tiny models; each writes into the folder `out`.

    The folder is relative, because a report names the command that repeats it.
    """

    def __init__(self, inputs, server):
        self.inputs = inputs
        self.server = f"{server}/v1#small"
        self.lexicon = studies.lexicon(inputs)
        self.models = [str(zoo.folder("bert", "BertForPreTraining", seed=seed)) for seed in (0, 1)]
        self.measure_text = (
            f"seat:lexicon={self.lexicon},targets=things,corpus={metric_cases.corpus()}"
        )
        self.corpus = inputs / "corpus"
        self.corpus.mkdir()
        for number in range(40):
            lines = [
                f"The nurse {number}-{i} saw her in the hall. He is a pilot." for i in range(2000)
            ]
            (self.corpus / f"{number:02}.txt").write_text("\n".join(lines))
        self.study_file = studies.study(inputs, studies.STUDY)
        self.texts = inputs / "texts.txt"
        words = (*studies.FEMALE, *studies.MALE)
        lines = [line for word in words for line in metric_cases.sentences(word)]
        self.texts.write_text("\n".join(lines * 10))
        rows = [
            f"the {a} is here.,the {b} was there.,{int(a < b)}"
            for a in metric_cases.THINGS
            for b in metric_cases.THINGS
        ]
        self.pairs = inputs / "pairs.csv"
        self.pairs.write_text("\n".join(["sentence1,sentence2,label", *rows]))
        self.own = inputs / "own.toml"
        self.own.write_text(biased_classifier.TOML)
        for part in ("dev", "test"):
            biased_classifier.write(inputs / f"{part}.csv", biased_classifier.texts(part))

    def arguments(self, name):
        """The command for `warm_start`."""
        if name == "calibrate":
            return ["tiny calibration", *self.verb(name)]
        if name.startswith("audit"):
            return ["tiny audit", str(self.inputs / "suite"), *self.verb(name)]
        return ["levelhead", *self.verb(name)]

    def cold_arguments(self, name):
        """The same as the arguments of a new Python."""
        if name == "calibrate":
            return [str(WORK / "tiny_calibration.py"), *self.verb(name)]
        if name.startswith("audit"):
            return [str(WORK / "tiny_audits.py"), str(self.inputs / "suite"), *self.verb(name)]
        return ["-m", "levelhead", *self.verb(name)]

    def verb(self, name):
        """The command of levelhead and its options."""
        model, *_ = self.models
        audit = ("audit", model, "-o", "out", "--threads", "1", *FEW, "--quiet")
        by_name = {
            "measure": [
                *("measure", model, "-m", self.measure_text, *FEW, "--store", "out/store"),
                *("-o", "out/result.json"),
            ],
            "locate": [
                *("locate", model, "-m", self.measure_text, "--store", "out/store"),
                *("-o", "out/heads.json"),
            ],
            "mine": ["data", "mine", f"{self.corpus}/*.txt", "-o", "out", "--workers", "2"],
            "leaderboard": [
                *("leaderboard", *self.models, "-m", self.measure_text, *FEW, "-o", "out"),
                *("--workers", "2"),
            ],
            "study": ["study", "run", self.study_file, "-o", "out", "--workers", "2"],
            "study on ray": [
                *("study", "run", self.study_file, "-o", "out", "--workers", "2"),
                *("--executor", "ray"),
            ],
            "cda": [
                *("mitigate", "cda", model, "--corpus", self.texts, "-o", "out/trained"),
                *("--lexicon", self.lexicon, "--steps", "20"),
            ],
            "dropout": [
                *("mitigate", "dropout", model, "--corpus", self.texts, "-o", "out/trained"),
                *("--steps", "20", "--threads", "1"),
            ],
            "calibrate": ["calibrate", "--quick", "-o", "out", "--quiet"],
            "chat server": [
                *("measure", self.server, "-m", CHAT_MEASURE, *FEW, "--store", "out/store"),
                *("-o", "out/result.json"),
            ],
            "finetune": [
                *("finetune", model, "--task", "rte", "--train", self.pairs, "--dev", self.pairs),
                *("--epochs", "2", "--batch-size", "16", "--threads", "1", "-o", "out/trained"),
            ],
            "select": [
                *("mitigate", "select", biased_classifier.checkpoint(0.5), "--pair-source", "dev"),
                *("--lexicon", self.own, "--min-utility-kept", "0.9", "--resamples", "199"),
                *("--dev", self.inputs / "dev.csv", "--test", self.inputs / "test.csv"),
                *("--store", "out/store", "--report", "out/why.json"),
            ],
            "audit": [*audit, "--budget", "none"],
            AUDIT_WITH_BUDGET: [*audit, "--budget", "10m", "--workers", "2"],
        }
        return [str(argument) for argument in by_name[name]]


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    with faulty_server(answer) as (server, _):
        yield Commands(tmp_path_factory.mktemp("inputs"), server)


def environment():
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.fixture(scope="module")
def warm():
    started = WarmStart(environment())
    yield started
    started.close()


def run_cold(commands, name, place):
    """Run a command to its end, in a Python of its own."""
    place.mkdir()
    command = [sys.executable, *commands.cold_arguments(name)]
    done = subprocess.run(
        command, cwd=place, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode in ENDS, done.stderr[-2000:]


def finish(warm, arguments, place):
    """Run to the end; the seconds it took."""
    began = time.monotonic()
    log = place.with_suffix(".log")
    assert warm.wait(warm.start(arguments, place, log), 600) in ENDS, log.read_text()[-2000:]
    return time.monotonic() - began


class Process(NamedTuple):
    """A running process; with its start, as numbers are given again."""

    pid: int
    name: str
    began: int
    parent: int
    session: int


def processes():
    """All processes that are no zombies."""
    result = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, fields = stat.read_text().rpartition(")")
        except OSError:
            continue
        state, parent, _, session, *rest = fields.split()
        if state != "Z":
            pid, _, name = head.partition(" (")
            result.append(Process(int(pid), name, int(rest[15]), int(parent), int(session)))
    return result


def family(pid):
    """Processes of a command: of its session, and all that they started."""
    everyone = processes()
    members = {process.pid for process in everyone if process.session == pid} | {pid}
    while more := {process.pid for process in everyone if process.parent in members} - members:
        members |= more
    return {process for process in everyone if process.pid in members}


def remaining(pid, before):
    """Processes that are left of a killed command after the time they have to end."""
    known = {(process.pid, process.began) for process in before}
    deadline = time.monotonic() + ORPHAN_SECONDS
    while True:
        # Orphans have another parent now, and clusters start sessions of their own.
        left = [
            process
            for process in processes()
            if process.session == pid or (process.pid, process.began) in known
        ]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)


def kill_after(warm, arguments, seconds, place):
    """Start a command and kill it after so many seconds; whether it was still running."""
    log = place.with_suffix(".log")
    pid = warm.start(arguments, place, log)
    code = warm.wait(pid, seconds)
    if code is not None:
        assert code in ENDS, log.read_text()[-2000:]
        return False
    before = family(pid)
    os.kill(pid, signal.SIGKILL)
    assert remaining(pid, before) == []
    return True


def tree(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file() and path.name not in VOLATILE
    }


def prepare(name, whole, place):
    """Make the folder of a run that equals another run."""
    place.mkdir()
    if name == AUDIT_WITH_BUDGET:
        # What fits into a budget depends on the machine's load: both have the same plan.
        (place / "out").mkdir()
        for file in PLAN:
            shutil.copy(whole / "out" / file, place / "out" / file)


def assert_same(place, expected):
    result = tree(place)
    assert result.keys() == expected.keys()
    assert [path for path in expected if result[path] != expected[path]] == []


def check_kills(commands, warm, name, kills, tmp_path):
    """Kill a command so many times, from its first moment to its last, and compare the files.

    After a few kills a run may end. What it leaves must be what an undisturbed run leaves.
    """
    rng = random.Random(name)
    arguments = commands.arguments(name)
    whole = tmp_path / "undisturbed"
    run_cold(commands, name, whole)
    expected = tree(whole)
    assert expected
    prepare(name, whole, tmp_path / "warm")
    seconds = finish(warm, arguments, tmp_path / "warm")
    assert_same(tmp_path / "warm", expected)
    killed = runs = 0
    while killed < kills:
        place = tmp_path / f"killed-{runs}"
        prepare(name, whole, place)
        for _ in range(min(rng.randint(*IN_A_ROW), kills - killed)):
            killed += kill_after(warm, arguments, rng.uniform(0, 0.9) * seconds, place)
        finish(warm, arguments, place)
        assert_same(place, expected)
        shutil.rmtree(place)
        runs += 1


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("name", "kills"),
    [
        ("measure", 10),
        ("locate", 10),
        ("mine", 10),
        ("leaderboard", 10),
        ("study", 10),
        ("study on ray", 8),
        ("cda", 10),
        ("dropout", 8),
        ("calibrate", 10),
        ("chat server", 10),
        ("finetune", 8),
        ("select", 8),
        ("audit", 12),
        (AUDIT_WITH_BUDGET, 10),
    ],
)
def test_commands_that_are_killed_often_continue(commands, warm, name, kills, tmp_path):
    check_kills(commands, warm, name, kills, tmp_path)
