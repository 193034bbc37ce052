"""Where the time of a test run goes, and whether it keeps to its budget.

`--time-report N` prints the slowest N tests and the seconds of every folder of tests;
`--time-budget MINUTES` lets a run that took longer fail. With several workers (xdist) the process
that starts them receives all their reports: it prints and judges, the workers do not.
"""

import time
from collections import Counter
from pathlib import PurePath

import pytest

DOCTESTS = "doctests of the package"
MEND = (
    "make the slowest tests listed above faster, or mark them `full` and keep a fast counterpart "
    "that can fail (CONTRIBUTING.md, Two tiers of tests)"
)


def add_options(parser):
    """Add the two options to pytest's own."""
    group = parser.getgroup("time", "where the time goes")
    group.addoption("--time-report", type=int, metavar="N", help="print the N slowest tests")
    group.addoption("--time-budget", type=float, metavar="MINUTES", help="fail above it")


def folder_of(nodeid):
    """The folder a test is counted under: tests/unit is split by package, doctests are together."""
    parts = PurePath(nodeid.partition("::")[0]).parts
    if parts[0] != "tests":
        return DOCTESTS
    return "/".join(parts[: 3 if parts[1:2] == ("unit",) else 2])


class TimeReport:
    """A pytest plugin: adds up what every test took, its setup and teardown included."""

    def __init__(self, slowest=None, budget=None):
        self.slowest, self.budget = slowest, budget
        self.seconds = Counter()
        self.began = time.monotonic()
        self.minutes = 0.0

    @property
    def is_over(self):
        """Whether the run took longer than its budget."""
        return self.budget is not None and self.minutes > self.budget

    def pytest_runtest_logreport(self, report):
        self.seconds[report.nodeid] += report.duration

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session):
        self.minutes = (time.monotonic() - self.began) / 60
        if self.is_over and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        write = terminalreporter.write_line
        if self.slowest:
            folders = Counter()
            for nodeid, seconds in self.seconds.items():
                folders[folder_of(nodeid)] += seconds
            for title, rows in (
                (f"slowest {self.slowest} tests", self.seconds.most_common(self.slowest)),
                ("seconds per folder, of all workers", folders.most_common()),
            ):
                terminalreporter.write_sep("=", title)
                for name, seconds in rows:
                    write(f"{seconds:8.1f}  {name}")
            write(f"{folders.total():8.1f}  in all")
        if self.is_over:
            write(f"over budget: {self.minutes:.1f} minutes, {self.budget:g} allowed; {MEND}")


def register(config):
    """Take part in a run that asked for it, in the process that starts the workers."""
    queries = config.getoption("--time-report"), config.getoption("--time-budget")
    if any(item is not None for item in queries) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(TimeReport(*queries), "time-report")
