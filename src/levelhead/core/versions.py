"""Installed versions that results depend on, read from package metadata without imports."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from levelhead._version import __version__
from levelhead.core.frozen import FrozenDict

TRACKED_PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "scipy", "scikit-learn")
"""Distributions whose release can change a score in its last bits or more."""


# Every key and provenance needs them, and installed packages do not change in a process.
@cache
def installed_versions() -> FrozenDict:
    """Versions of levelhead, Python and every installed distribution that can change a score."""
    versions = {"levelhead": __version__, "python": platform.python_version()}
    for name in TRACKED_PACKAGES:
        # core and data work without torch; an absent package cannot change a result.
        if (installed := package_version(name)) is not None:
            versions[name] = installed
    return FrozenDict(versions)


def package_version(name: str) -> str | None:
    """Installed version of a distribution; None if there is none."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
