"""The versions a number can depend on, read from installed metadata without importing anything."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from levelhead import __version__
from levelhead.core.frozen import Frozen

MATTER = ("torch", "transformers", "tokenizers", "numpy", "scipy", "scikit-learn")
"""Distributions whose release can move a score."""


@cache
def installed_versions() -> Frozen:
    """Ours, Python's and that of every installed distribution that can move a score."""
    found = {"levelhead": __version__, "python": platform.python_version()}
    for name in MATTER:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue  # core and data work without torch; what is absent moved nothing
    return Frozen(found)
