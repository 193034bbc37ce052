import json
import os
import re
import resource
import subprocess
import sys

import pytest
from command import levelhead

from levelhead import __version__
from levelhead.core.canonical_json import content_hash
from levelhead.core.frozen import FrozenDict
from levelhead.engine.run_dir import mark_owned
from levelhead.engine.scheduler import Job, TasksFailedError, run_job
from levelhead.engine.store import open_store
from levelhead.engine.tasks import Task


def test_help_costs_at_most_half_a_cpu_second(record_property):
    """In a fresh interpreter, which is a child of this process: others' time is not counted."""
    seconds = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert levelhead("--help", env=os.environ).returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    record_property("cpu_seconds", min(seconds))
    assert min(seconds) <= 0.5


def test_the_version_is_shown():
    assert levelhead("--version").stdout == f"levelhead {__version__}\n"


def test_the_commands_are_sixteen():
    listed = levelhead("--help").stdout.partition("Commands:")[2]
    assert sorted(re.findall(r"^  (\w+)  ", listed, re.MULTILINE)) == sorted(
        "audit measure locate explain mitigate probe export finetune study leaderboard report gate "
        "data calibrate doctor demo".split()
    )


@pytest.mark.parametrize(
    ("args", "responses"),
    [
        (["stduy"], "Did you mean 'study'"),
        (["study", "check"], "Missing argument"),
        (["study", "check", "--colour", "x"], "No such option"),
    ],
)
def test_a_wrong_command_line_is_an_error_not_an_inconclusive_gate(args, responses):
    result = levelhead(*args)
    assert result.returncode == 3
    assert responses in result.stderr
    assert result.stdout == ""


def test_errors_go_to_stderr_with_their_mend(tmp_path):
    result = levelhead("study", "check", str(tmp_path))
    assert result.returncode == 3
    assert result.stdout == ""
    assert result.stderr == (
        f"levelhead: {tmp_path} is no levelhead store\n  hint: name a run's folder\n"
    )


@pytest.mark.parametrize(
    ("verb", "responses"),
    [
        (["measure", "-m", "strength", "-o"], "is a folder"),
        (["locate", "-o"], "is a folder"),
        (["locate", "--chart"], "there is no kind of picture named ''"),
        (["mitigate", "select", "--report"], "is a folder"),
        (["demo", "-o"], "is a folder"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_the_model_is_read(
    verb, responses, tmp_path
):
    result = levelhead(*verb, str(tmp_path), *(["no-such-model"] if verb[0] != "demo" else []))
    assert result.returncode == 3
    assert responses in result.stderr
    assert "hint:" in result.stderr
    assert "Traceback" not in result.stderr


def test_store_counts_what_is_whole_and_names_what_is_not(tmp_path):
    store, keys = open_store(tmp_path / "run"), [content_hash(i) for i in range(3)]
    for key in keys:
        store.put(key, b"12345")
    result = levelhead("study", "check", str(tmp_path / "run"))
    responses = "3 results, 15 bytes, 0 damaged, 0 unfinished\n"
    assert (result.returncode, result.stdout) == (0, responses)
    place = tmp_path / "run" / "units" / keys[0][:2] / keys[0]
    place.write_bytes(place.read_bytes()[:-1])
    result = levelhead("study", "check", str(tmp_path / "run"))
    responses = "2 results, 10 bytes, 1 damaged, 0 unfinished\n"
    assert (result.returncode, result.stdout) == (3, responses)
    result = levelhead("study", "check", str(tmp_path / "run"), "--json")
    counts = {"results": 2, "bytes": 10, "damaged": 1, "unfinished": 0}
    assert (result.returncode, json.loads(result.stdout)) == (3, counts)
    assert f"{place} is damaged" in result.stderr


def test_a_runs_folder_is_its_stores(tmp_path):
    mark_owned(tmp_path / "run", ())
    open_store(tmp_path / "run" / "store").put(content_hash(0), b"12345")
    result = levelhead("study", "check", str(tmp_path / "run"))
    responses = "1 results, 5 bytes, 0 damaged, 0 unfinished\n"
    assert (result.returncode, result.stdout) == (0, responses)


def test_a_run_that_did_not_finish_is_not_whole(tmp_path):
    works, fails = (
        Task(f"synthetic:{name}", FrozenDict({"i": 0})) for name in ("digest", "refuse")
    )
    job = Job("half", (works, fails))
    with pytest.raises(TasksFailedError):
        run_job(job, tmp_path / "run")
    result = levelhead("study", "check", str(tmp_path / "run"))
    assert (result.returncode, result.stdout) == (
        3,
        "1 results, 32 bytes, 0 damaged, 1 unfinished\n",
    )
    assert f"the job {job.key[:12]} is not finished: run it again" in result.stderr
    run_job(Job("whole", (works,)), tmp_path / "whole")
    assert levelhead("study", "check", str(tmp_path / "whole")).returncode == 0


@pytest.mark.parametrize("folder", ["file", "nosuch://x", "file/below"])
def test_whatever_is_wrong_with_the_folder_is_an_error(tmp_path, folder):
    (tmp_path / "file").write_bytes(b"x")
    result = levelhead("study", "check", folder, cwd=tmp_path)
    assert result.returncode == 3
    assert "hint:" in result.stderr


@pytest.mark.parametrize(
    ("raises", "code"),
    [
        ("ZeroDivisionError", 3),  # never 1, which says that a gate failed
        ("EOFError", 3),
        ("KeyboardInterrupt", 130),
        ("SystemExit(7)", 3),
        ("ExitWithCode(INCONCLUSIVE)", 2),
        ("ExitWithCode(FAIL)", 1),
    ],
)
def test_exit_codes_mean_what_they_say(raises, code):
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys\n"
            "from levelhead.cli import app, main\n"
            "from levelhead.cli.shared.exit_codes import *\n"
            "@app.command()\n"
            f"def odd(): raise {raises}\n"
            "sys.argv = ['levelhead', 'odd']\n"
            "main()",
        ],
        capture_output=True,
        check=False,
    )
    assert result.returncode == code


@pytest.mark.parametrize(
    ("command_class", "text"),
    [
        ("Command", "levelhead: interrupted\n"),
        ("ResumableCommand", "levelhead: interrupted; run the same command again to resume\n"),
        ("CachingCommand", "levelhead: interrupted; run the same command again: stored responses"),
    ],
)
def test_an_interrupted_command_says_how_to_resume(command_class, text):
    result = run_odd_command("raise KeyboardInterrupt", command_class)
    assert result.returncode == 130
    assert text in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("name", "hint"), [("ENOSPC", "free some space"), ("EACCES", "a path that you may read")]
)
def test_a_full_disk_is_no_traceback(name, hint):
    code = f"import errno; raise OSError(errno.{name}, 'No room', '/data/x')"
    result = run_odd_command(code)
    assert result.returncode == 3
    assert "levelhead: No room: /data/x\n  hint: " in result.stderr
    assert hint in result.stderr
    assert "Traceback" not in result.stderr


def test_another_error_of_the_system_is_a_bug_with_a_traceback():
    result = run_odd_command("raise IsADirectoryError(21, 'odd')")
    assert result.returncode == 3
    assert "Traceback" in result.stderr


def run_odd_command(code, command_class="Command"):
    program = (
        "import sys\n"
        "from levelhead.cli import app, main\n"
        "from levelhead.cli.shared.help_pages import *\n"
        f"def odd(): {code}\n"
        f"add_command(app, 'odd', odd, 'levelhead odd', command_class={command_class})\n"
        "sys.argv = ['levelhead', 'odd']\n"
        "main()"
    )
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, text=True
    )


@pytest.mark.parametrize(
    "args",
    [
        ["measure", "gpt2", "-m", "crowz"],
        ["locate", "gpt2", "-m", "crowz"],
        ["probe", "gpt2", "--edit", "edit", "-m", "crowz"],
        ["leaderboard", "gpt2", "-m", "crowz", "-o", "board"],
        ["measure", "./no/such/folder", "-m", "crows"],
        ["doctor", "./no/such/folder"],
    ],
)
def test_a_wrong_name_is_refused_before_torch_is_imported(args):
    program = (
        "import sys\n"
        "from levelhead.cli import main\n"
        f"sys.argv = ['levelhead', *{args!r}]\n"
        "try: main()\n"
        "finally: print('torch' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, text=True
    )
    assert result.returncode == 3
    named = "did you mean 'crows'" if "crowz" in args else "no folder or file ./no/such/folder"
    assert named in result.stderr
    assert result.stdout == "False\n"


def test_help_has_no_colour_codes_when_piped():
    assert "\x1b" not in levelhead("--help", env=os.environ | {"FORCE_COLOR": "1"}).stdout
