"""Processes that share a model, on loopback."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent / "locate_in_ranks.py"


def ran(count, *args):
    """What `locate_in_ranks.py` says in so many processes of torchrun; alone in one."""
    start = [sys.executable]
    if count > 1:
        start += ["-m", "torch.distributed.run", "--nproc-per-node", str(count)]
        start += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
    done = subprocess.run(
        [*start, str(SCRIPT), *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
        timeout=540,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
