"""What several tests need and takes long to get, made while other stages of CI run.

    python tests/work/prepare.py

A worker that waits for a download or for a model that is grown does nothing else; types are checked
on one core. A test that needs one of these first waits for its lock.
"""

from contextlib import suppress

import assets
import pytest

from levelhead.calibrate.demo import KNOWN_HEAD, RHOS
from levelhead.calibrate.organisms.organism import organism

NOT_HERE = pytest.skip.Exception  # the tests that need it say why


def main():
    """One after the other: the other core is in use."""
    for fetch in (assets.junit_schema, assets.smollm2):
        with suppress(NOT_HERE):
            fetch()
    for rho in RHOS:
        organism("bert", rho).grown()
    organism("gpt2", 1.0, known_head=KNOWN_HEAD).grown()


if __name__ == "__main__":
    main()
