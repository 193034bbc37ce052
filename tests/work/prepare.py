"""What several tests need and takes long to get, made while other stages of CI run.

    python tests/work/prepare.py

A worker that waits for a download or for a model that is grown does nothing else; types are checked
on one core. A test that needs one of these first waits for its lock.
"""

from contextlib import suppress

import assets
import pytest

from levelhead.calibrate.demo import RHOS, VISIBLE_HEAD
from levelhead.calibrate.organisms.organism import make_organism
from levelhead.models.loading.load import load

NOT_HERE = pytest.skip.Exception  # the tests that need it say why


def main():
    """One after the other: the other core is in use."""
    with suppress(NOT_HERE):
        assets.junit_schema()
    with suppress(NOT_HERE):
        load(assets.smollm2())  # converted once, into the cache: most of a minute
    for rho in RHOS:
        make_organism("bert", rho, quick=True).grow()
    make_organism("gpt2", 1.0, visible_head=VISIBLE_HEAD, quick=True).grow()


if __name__ == "__main__":
    main()
