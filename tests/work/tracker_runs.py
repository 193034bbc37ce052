"""Log a measurement with a tracker's real client, in an environment of its own."""

import json
import sys

import levelhead as lh
from levelhead.core.results import Provenance, StepFailure


def measurement():
    """A measurement with every kind of entry."""
    return lh.Measurement(
        measure="crows",
        value=54.0,
        interval=lh.Interval(low=50.5, high=58.0, level=0.95, method="bca, 50 items"),
        parity=50.0,
        p=lh.PValue(value=0.03, method="sign flip", alternative="two-sided"),
        n=50,
        unit="% of pairs",
        dropped=(),
        provenance=Provenance.of(
            "bert-base-uncased",
            "a" * 64,
            edits=("c" * 64,),
            data={"crows": "b" * 64},
            equation="Nangia et al. 2020",
            seed=0,
            settings={"batch": {"size": 32}},
        ),
    )


def failure():
    """A step without a number."""
    return StepFailure(problem="no next-sentence head", hint="use another checkpoint")


if __name__ == "__main__":
    results = {"measurement.crows": measurement(), "measurement.nsp": failure()}
    run = lh.log(results, sys.argv[1], name="a run", files=tuple(sys.argv[2:]))
    sys.stdout.write(json.dumps(run._asdict()))
