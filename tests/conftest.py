"""Hypothesis looks for new cases on a developer's machine and repeats the same ones in CI."""

import os

from hypothesis import settings

settings.register_profile("here", deadline=None)  # shared machines are slow at odd moments
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")
