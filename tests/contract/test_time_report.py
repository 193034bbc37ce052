"""CI says where its time goes, and a run over its budget fails."""

import re
from pathlib import Path

import pytest
from time_report import DOCTESTS, folder_of

pytest_plugins = ("pytester",)  # pytest's own fixture for tests of plugins
ROOT = Path(__file__).parents[2]
CONFTEST = """import time_report

pytest_addoption = time_report.add_options
pytest_configure = time_report.register
"""
SLEEPS = "import time\ndef test_long(): time.sleep(0.3)\ndef test_short(): pass\n"
ORDINARY = "def test_other(): pass\n"


@pytest.fixture
def run(pytester, monkeypatch):
    """A project of four tests that reports as this one does; returns how pytest runs it."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeconftest(CONFTEST)
    pytester.makeini(f"[pytest]\npythonpath = {ROOT / 'tests' / 'work'}\n")
    for place, code in (("unit/stats", SLEEPS), ("unit/core", ORDINARY), ("real", ORDINARY)):
        folder = pytester.path / "tests" / place
        folder.mkdir(parents=True)
        (folder / f"test_{folder.name}.py").write_text(code)

    def pytest_in_it(*more):
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", *more)

    return pytest_in_it


def rows(lines, title):
    """Names and seconds below a title, up to the next one."""
    begin = next(i for i, line in enumerate(lines) if title in line)
    result = [re.fullmatch(r" *([\d.]+)  (\S.*)", line) for line in lines[begin + 1 :]]
    end = result.index(None)
    return [(match[2], float(match[1])) for match in result[:end]]


# Two workers are two more processes that import pytest: a second or two.
@pytest.mark.parametrize("workers", ["0", "2"])
def test_the_slowest_tests_and_every_folder_are_listed(run, workers):
    # 60 ms are allowed, and a test sleeps for 300.
    result = run("-n", workers, "--time-report", "2", "--time-budget", "0.001")
    result.assert_outcomes(passed=4)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    slowest = rows(result.outlines, "slowest 2 tests")
    assert len(slowest) == 2
    assert slowest[0][0] == "tests/unit/stats/test_stats.py::test_long"
    assert slowest[0][1] >= 0.3
    folders = dict(rows(result.outlines, "seconds per folder"))
    assert set(folders) == {"tests/unit/stats", "tests/unit/core", "tests/real", "in all"}
    assert folders["tests/unit/stats"] >= 0.3
    # Three folders and their sum, each rounded to a tenth of a second.
    parts = sum(folders.values()) - folders["in all"]
    assert folders["in all"] == pytest.approx(parts, abs=0.21)
    # The process that starts the workers prints and judges; they do not.
    assert sum("seconds per folder" in line for line in result.outlines) == 1
    (output,) = [line for line in result.outlines if "over budget" in line]
    assert "minutes, 0.001 allowed; make the slowest tests listed above faster" in output


def test_a_run_within_its_budget_passes(run):
    result = run("--time-budget", "5")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.no_fnmatch_line("*over budget*")
    result.stdout.no_fnmatch_line("*slowest*")


def test_a_failure_is_told_apart_from_the_budget(run):
    Path("tests/real/test_real.py").write_text("assert 1 == 2\n")
    assert run("--time-budget", "0.001").ret == pytest.ExitCode.INTERRUPTED  # as without a budget


def test_without_its_options_nothing_is_printed(run):
    result = run()
    assert result.ret == pytest.ExitCode.OK
    result.stdout.no_fnmatch_line("*budget*")
    result.stdout.no_fnmatch_line("*seconds per folder*")


def test_doctests_are_counted_together():
    assert folder_of("../tmp/site/levelhead/core/files.py::levelhead.core.files") == DOCTESTS
    assert folder_of("src/levelhead/core/files.py::levelhead.core.files") == DOCTESTS
    assert folder_of("tests/contract/test_layers.py::test_them") == "tests/contract"
    assert folder_of("tests/unit/core/test_files.py::test_them[a::b]") == "tests/unit/core"


def test_ci_asks_for_the_report_and_sets_the_budget():
    lines = (ROOT / ".ci" / "run").read_text()
    (minutes,) = re.findall(r"^TEST_MINUTES=(\d+)\b", lines, flags=re.MULTILINE)
    assert int(minutes) <= 30
    assert f"It has {minutes} minutes" in (ROOT / "CONTRIBUTING.md").read_text()
    assert '--time-report 15 --time-budget "$TEST_MINUTES"' in lines
