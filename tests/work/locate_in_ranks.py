"""Run under torchrun: locate heads with a model that several processes share, and say what came.

python -m torch.distributed.run --nproc-per-node N locate_in_ranks.py MODEL MEASURE tensor|rows
python locate_in_ranks.py MODEL MEASURE forked

The second says what a single process and two say, sharing either way. They are forks of one that
has imported torch: a fraction of the CPU time of torchrun, which imports it in each of them.
"""

import json
import os
import socket
import sys
import tempfile
import traceback
from dataclasses import replace

import fsspec
import torch
from torch import distributed

from levelhead.core.errors import LevelheadError
from levelhead.locate.attribution.gradient import compute_gradient
from levelhead.measures.registry import parse_measure
from levelhead.models.edits.base import HeadScale
from levelhead.models.loading.load import load
from levelhead.models.sites import Site


def compute_scores(lm, bias_measure):
    """Scores of heads and feed-forwards, and the value they come from."""
    measure = parse_measure(bias_measure)
    readouts = measure.read(lm)[0]
    result = compute_gradient(lm, measure, readouts, components=("heads", "mlp"))
    fsspec.filesystem("memory").rm("/levelhead-readouts", recursive=True)  # nothing is found there
    again = compute_gradient(
        replace(lm, recompute=True), measure, readouts, components=("heads", "mlp")
    )
    return {
        "again": again.total("heads").tolist(),
        "value": float(measure.reduce(readouts)),
        "heads": result.total("heads").tolist(),
        "mlp": result.total("mlp").tolist(),
    }


def locate_or_refuse(model, measure, parallel):
    """On every rank the same."""
    try:
        lm = load(model, parallel=None if parallel == "alone" else parallel, batch_size=50)
        result = compute_scores(lm, measure)
        try:
            site = Site("head_out", 0, 0)
            lm.edited(HeadScale([site], 0)).embed(["He is a pilot."])
            result["edited"] = "yes"
        except LevelheadError as error:
            result["edited"] = str(error)
    except LevelheadError as error:
        result = {"refused": str(error)}
    return result


def forked(model, measure, parallel):
    """What the first of two forks says, or the only one; every fork has to end well."""
    size = 1 if parallel == "alone" else 2
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.NamedTemporaryFile("w+") as file:
        children = []
        for rank in range(size):
            child = os.fork()
            if not child:
                _forked(rank, size, port, (model, measure, parallel), file.name)
            children.append(child)
        failed = [os.waitpid(child, 0)[1] for child in children]
        if any(failed):
            raise SystemExit(f"{parallel}: the processes ended with {failed}")
        return json.load(file)


def _forked(rank, size, port, args, file):
    """A fork's work; it does not return."""
    status = 1
    try:
        if size > 1:
            shared = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_PORT": port}
            os.environ.update({name: str(value) for name, value in shared.items()})
            os.environ["MASTER_ADDR"] = "127.0.0.1"
        result = locate_or_refuse(*args)
        if rank == 0:
            with open(file, "w") as told_here:
                json.dump(result, told_here)
        if distributed.is_initialized():
            distributed.destroy_process_group()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def main():
    """The first rank speaks."""
    model, measure, parallel = sys.argv[1:]
    if parallel == "forked":
        ways = ("alone", "tensor", "rows")
        result = {way: forked(model, measure, way) for way in ways}
    else:
        result = locate_or_refuse(model, measure, parallel)
    if not distributed.is_initialized() or distributed.get_rank() == 0:
        sys.stdout.write(json.dumps(result) + "\n")
    if distributed.is_initialized():
        distributed.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
