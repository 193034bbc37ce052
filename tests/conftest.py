"""Hypothesis looks for new cases on a developer's machine and repeats the same ones in CI."""

import os

import pytest
import time_report
from hypothesis import settings

settings.register_profile("here", deadline=None)  # shared machines are slow at odd moments
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


def pytest_addoption(parser):
    """Where the time goes: `--time-report`, `--time-budget`."""
    time_report.add_options(parser)


def pytest_configure(config):
    """Report times if that was asked for."""
    time_report.register(config)


@pytest.fixture(scope="session")
def every_step(tmp_path_factory):
    """A finished study of every kind of step; copy its folder before writing to it."""
    import studies  # imports torch: only where it is asked for

    return studies.finished(tmp_path_factory)
