"""Locales, interpreters, paths and disks: the same bytes, or a clear error."""

import json
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys

import pytest
from biased_classifier import checkpoint
from faults import invoke, measure_words, outcome, user_data
from maps import measurement
from metric_cases import FAST, made, model

from levelhead.core.errors import LevelheadError
from levelhead.core.files import write_atomic
from levelhead.core.results import StepFailure
from levelhead.core.run_context import RunContext

# Words whose case differs in Turkish, and letters that ASCII and Latin-1 lack.
TEXT = "Ii\u0130\u0131\u015e\u015f \u1e9e \u0645\u0631\u062d\u0628\u0627 \U0001f600"
ENVIRONMENTS = {
    "LC_ALL=C": {"LC_ALL": "C", "LANG": "C"},
    "LC_ALL=C without UTF-8": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "Turkish": {"LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8", "LANGUAGE": "tr"},
    "Turkish, one byte": {"LC_ALL": "tr_TR.ISO-8859-9", "PYTHONUTF8": "0"},
    "ASCII": {"PYTHONIOENCODING": "ascii"},
    "python -OO, hash seed 2": {"PYTHONOPTIMIZE": "2", "PYTHONHASHSEED": "2"},
    "without a home or anything else": None,
}
POLICY = (
    'format = "levelhead-gate-2"\n[[rule]]\nmeasure = "seat"\nat_most = 9.0\n'
    f'purpose = "{TEXT}"\n[[rule]]\nmeasure = "crows"\nat_most = 1.0\n'
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    (folder / "results").mkdir()
    failure = StepFailure(problem=TEXT, hint=TEXT)
    (folder / "results" / "cell.all.m.seat.json").write_text(measurement(1.0).to_json(), "utf-8")
    (folder / "results" / "cell.all.m.crows.json").write_text(failure.to_json(), "utf-8")
    (folder / "policy.toml").write_text(POLICY, "utf-8")
    return folder


def started(environment, *words):
    """A command in an interpreter of its own."""
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return subprocess.run(
        [sys.executable, "-m", "levelhead", *map(str, words)],
        env=kept if environment is None else os.environ | environment,
        capture_output=True,
        check=False,
    )


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_gate_gives_the_same_bytes(name, run, tmp_path):
    """What a table of rules holds, the terminal may be unable to write: then by its number."""
    folder = shutil.copytree(run, tmp_path / "run")
    words = ("gate", folder, "--policy", folder / "policy.toml", "--junit", tmp_path / "j.xml")
    reference = invoke(*words)
    files = [(folder / "gate.json").read_bytes(), (tmp_path / "j.xml").read_bytes()]
    (folder / "gate.json").unlink()
    done = started(ENVIRONMENTS[name], *words)
    assert done.returncode == 2, done.stderr
    assert [(folder / "gate.json").read_bytes(), (tmp_path / "j.xml").read_bytes()] == files
    assert b"Traceback" not in done.stderr
    if not {"PYTHONIOENCODING", "PYTHONUTF8"} & set(ENVIRONMENTS[name] or ()):
        assert done.stdout.decode() == reference.stdout
    else:
        assert len(done.stdout.splitlines()) == len(reference.stdout.splitlines())


# A new interpreter imports torch: about 8 CPU-seconds each.
@pytest.mark.full
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_measurement_gives_the_same_bytes(name, tmp_path):
    data = user_data(tmp_path)
    words = measure_words(checkpoint(0.5), data, tmp_path / "s")
    reference = invoke(*words)
    done = started(ENVIRONMENTS[name], *measure_words(checkpoint(0.5), data, tmp_path / "other"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(reference.stdout)


NAMES = {
    "spaces": "a folder  of mine ",
    "unicode": "mod\u00e8le \u6a21\u578b \U0001f600",
    "a newline": "a\nb",
    "quotes": "a'b\"c`d$(e)",
    "a percent sign": "100%25",
    "a URL": "a::b:c@d",
    "a pattern": "a*b?[c]",
    "a dash": "-o",
    "not composed": "e\u0301 \ufb01",
    "long": "x" * 200,
    "not UTF-8": os.fsdecode(b"\xff\xfe"),
}


@pytest.fixture(scope="module")
def ordinary(tmp_path_factory):
    """Data under a plain name, and what is measured with them."""
    data = user_data(tmp_path_factory.mktemp("plain"))
    return data, invoke(*measure_words(checkpoint(0.5), data, data / "s"))


QUICK_NAMES = ("spaces", "a newline", "not UTF-8")


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK_NAMES else pytest.param(name, marks=pytest.mark.full) for name in NAMES],
)
def test_a_path_changes_no_number(name, ordinary, tmp_path):
    data, first = ordinary
    strange = tmp_path / NAMES[name]
    strange.mkdir()
    shutil.copytree(data, strange / "data")
    shutil.copytree(checkpoint(0.5), strange / "model")
    second = invoke(*measure_words(strange / "model", strange / "data", strange / "s"))
    if outcome(second) == "error":
        # A name that is no text cannot be in results, which are UTF-8.
        assert name == "not UTF-8", second.exception
        return
    rows = [json.loads(result.stdout)["measurements"][0] for result in (first, second)]
    for row in rows:
        del row["provenance"]  # it names the file
    assert rows[0] == rows[1]


# -- disks


def run_as_nobody(function):
    """Run a function in a child without the rights of root; its exit code."""
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            function()
        except PermissionError:
            os._exit(13)
        except LevelheadError:
            os._exit(3)
        except BaseException:
            os._exit(99)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_folder_that_cannot_be_written_leaves_it_as_it_is(tmp_path):
    tmp_path.chmod(0o755)
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o555)
    (folder / "file").write_bytes(b"old")
    assert run_as_nobody(lambda: write_atomic(folder / "file", b"new")) == 13
    assert (folder / "file").read_bytes() == b"old"
    assert [path.name for path in folder.iterdir()] == ["file"]


@pytest.fixture
def small_files():
    """Files of at most 2,000 bytes, as on a disk that is full behind them."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    signal.signal(signal.SIGXFSZ, before)


def test_a_file_that_is_too_large_leaves_the_old_bytes(tmp_path, small_files):
    write_atomic(tmp_path / "file", b"old")
    with pytest.raises(OSError, match="File too large"):
        write_atomic(tmp_path / "file", b"new" * 1000)
    assert (tmp_path / "file").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_run_that_a_full_disk_stopped_ends_with_the_same_bytes(tmp_path):
    measure, lm = made("crows"), model("crows")
    expected = measure(lm, inference=FAST, context=RunContext(store=tmp_path / "whole")).to_json()
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, hard))
        with pytest.raises((OSError, LevelheadError), match="File too large"):
            measure(lm, inference=FAST, context=RunContext(store=tmp_path / "store"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert not list((tmp_path / "store").rglob("*.tmp"))
    context = RunContext(store=tmp_path / "store")
    assert measure(lm, inference=FAST, context=context).to_json() == expected


@pytest.mark.parametrize("name", ["/dev/full", "/dev/null"])
def test_a_device_is_written_to_and_not_replaced(name):
    before = os.stat(name)
    if name == "/dev/full":
        with pytest.raises(OSError, match="No space left"):
            write_atomic(name, b"x")
    else:
        write_atomic(name, b"x")
    assert stat.S_ISCHR(os.stat(name).st_mode)
    assert os.stat(name).st_ino == before.st_ino


def test_a_full_disk_is_said_by_the_command(run):
    done = started({}, "gate", run, "--policy", run / "policy.toml", "--junit", "/dev/full")
    assert done.returncode == 3
    assert b"No space left on device" in done.stderr
    assert b"hint: free some space" in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_limit_of_memory_is_a_clear_error():
    program = (
        "import sys\n"
        "from levelhead.cli import app, main\n"
        "@app.command()\n"
        "def odd(): bytearray(1 << 50)\n"
        "sys.argv = ['levelhead', 'odd']\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 3
    assert b"the memory is not enough\n  hint: " in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_panic_of_a_library_is_no_failed_gate():
    program = (
        "import sys\n"
        "from levelhead.cli import app, main\n"
        "class PanicException(BaseException): pass\n"
        "@app.command()\n"
        "def odd(): raise PanicException('index out of range')\n"
        "sys.argv = ['levelhead', 'odd']\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 3
