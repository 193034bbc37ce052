import os
import resource
import subprocess
import sys

import pytest

from levelhead import __version__
from levelhead.core.canonical import content_hash
from levelhead.engine.store import open_store


def levelhead(*args, **options):
    return subprocess.run(
        [sys.executable, "-m", "levelhead", *args],
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


def test_help_costs_at_most_half_a_cpu_second(record_property):
    seconds = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert levelhead("--help").returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    record_property("cpu_seconds", min(seconds))
    assert min(seconds) <= 0.5


def test_the_version_is_shown():
    assert levelhead("--version").stdout == f"levelhead {__version__}\n"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["stroe"], "Did you mean 'store'?"),
        (["store"], "Missing argument"),
        (["store", "--colour", "x"], "No such option"),
    ],
)
def test_a_wrong_command_line_is_an_error_not_an_inconclusive_gate(args, said):
    result = levelhead(*args)
    assert result.returncode == 3
    assert said in result.stderr
    assert result.stdout == ""


def test_errors_go_to_stderr_with_their_mend(tmp_path):
    result = levelhead("store", str(tmp_path))
    assert result.returncode == 3
    assert result.stdout == ""
    assert result.stderr == (
        f"levelhead: {tmp_path} is no levelhead store\n  mend: name a run's folder\n"
    )


def test_store_counts_what_is_whole_and_names_what_is_not(tmp_path):
    store, keys = open_store(tmp_path / "run"), [content_hash(i) for i in range(3)]
    for key in keys:
        store.put(key, b"12345")
    result = levelhead("store", str(tmp_path / "run"))
    assert (result.returncode, result.stdout) == (0, "3 results, 15 bytes, 0 damaged files\n")
    place = tmp_path / "run" / "units" / keys[0][:2] / keys[0]
    place.write_bytes(place.read_bytes()[:-1])
    result = levelhead("store", str(tmp_path / "run"))
    assert (result.returncode, result.stdout) == (3, "2 results, 10 bytes, 1 damaged files\n")
    assert f"{place} is damaged" in result.stderr


def test_help_has_no_colour_codes_when_piped():
    assert "\x1b" not in levelhead("--help", env=os.environ | {"FORCE_COLOR": "1"}).stdout
