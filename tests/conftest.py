"""Hypothesis looks for new cases on a developer's machine and repeats the same ones in CI.

With several workers a file goes to one of them, in the order in which files are collected: those
that take minutes come first, so that no worker is left alone with one at the end.
"""

import os

import pytest
from hypothesis import settings

settings.register_profile("here", deadline=None)  # shared machines are slow at odd moments
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")

LONGEST = ("test_documents.py", "test_calibrate.py", "real/test_locate.py", "test_projecting.py")


def pytest_collection_modifyitems(items):
    """Files that take longest first."""
    items.sort(key=lambda item: not item.path.as_posix().endswith(LONGEST))


@pytest.fixture(scope="session")
def every_step(tmp_path_factory):
    """A finished study of every kind of step; copy its folder before writing to it."""
    import studies  # imports torch: only where it is asked for

    return studies.finished(tmp_path_factory)
