"""The command line, as a user runs it."""

import subprocess
import sys


def levelhead(*args, **options):
    """Run a verb in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "levelhead", *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
        **options,
    )
