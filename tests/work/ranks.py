"""Run under torchrun: locate heads with a model that several processes share, and say what came.

python -m torch.distributed.run --nproc-per-node N ranks.py MODEL RULER tensor|rows
"""

import json
import sys
from dataclasses import replace

import fsspec
import torch
from torch import distributed

from levelhead.core.errors import LevelheadError
from levelhead.locate.gradient import gradient
from levelhead.measure.table import parsed
from levelhead.models.edits import HeadScale
from levelhead.models.load import load
from levelhead.models.sites import Site


def told(lm, ruler):
    """Scores of heads and feed-forwards, and the value they come from."""
    measure = parsed(ruler)
    readouts = measure.read(lm)[0]
    found = gradient(lm, measure, readouts, parts=("heads", "mlp"))
    fsspec.filesystem("memory").rm("/levelhead-readouts", recursive=True)  # nothing is found there
    again = gradient(replace(lm, recompute=True), measure, readouts, parts=("heads", "mlp"))
    return {
        "again": again.total("heads").tolist(),
        "value": float(measure.reduce(readouts)),
        "heads": found.total("heads").tolist(),
        "mlp": found.total("mlp").tolist(),
    }


def main():
    """On every rank the same; the first one speaks."""
    model, ruler, parallel = sys.argv[1:]
    try:
        lm = load(model, parallel=None if parallel == "alone" else parallel, batch_size=50)
        found = told(lm, ruler)
        try:
            site = Site("head_out", 0, 0)
            lm.edited(HeadScale([site], 0)).embed(["He is a pilot."])
            found["edited"] = "yes"
        except LevelheadError as error:
            found["edited"] = str(error)
    except LevelheadError as error:
        found = {"refused": str(error)}
    if parallel == "alone" or distributed.get_rank() == 0:
        sys.stdout.write(json.dumps(found) + "\n")
    if distributed.is_initialized():
        distributed.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
