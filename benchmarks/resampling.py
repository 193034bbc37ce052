"""The vectorised statistics core beside the literal loop, on five shapes of real studies.

    python benchmarks/resampling.py [--quick]

Prints JSON: for every shape the CPU seconds of both forms, how many times faster, and the largest
difference of any number; `linear` and `other` are the least speed-ups of the two kinds of
reductions, `max_diff` the largest difference of all.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from levelhead.measures.reductions import (
    Reduction,
    group_effect_size,
    half_difference,
    make_signed_part,
    make_top_mean,
    mean,
)
from levelhead.stats.designs import Design, clustered_design, grouped_design
from levelhead.stats.paired import resample_statistics

if TYPE_CHECKING:
    from numpy.typing import NDArray

TOP = make_top_mean(0.1, "round")


class Shape(NamedTuple):
    """A study's resampling: what is reduced, of how many items and variants."""

    name: str
    over: Reduction
    design: Design
    variants: int
    is_linear: bool


SHAPES = (
    Shape(
        "SEAT effect sizes, 60+60 words, 15 variants",
        group_effect_size,
        grouped_design(60, 60),
        15,
        False,
    ),
    Shape("144 heads, margins of 1,508 pairs", mean, grouped_design(1508), 144, True),
    Shape(
        "75 settings, Strength of 983 triples on 60 terms",
        make_signed_part(TOP),
        clustered_design([i % 60 for i in range(983)]),
        75,
        False,
    ),
    Shape("9 measures, means of 234 items", mean, grouped_design(234), 9, True),
    Shape(
        "40 occupations of 12 prompts, 15 variants",
        half_difference,
        clustered_design([i % 40 for i in range(480)], within=[i % 2 for i in range(480)]),
        15,
        True,
    ),
)


def timed(shape: Shape, over: object, draws: int) -> tuple[NDArray[np.float64], float]:
    """The resampled values, and the CPU seconds they took."""
    rng = np.random.default_rng(0)
    values = [
        torch.from_numpy(rng.normal(size=shape.design.n_items)) for _ in range(shape.variants)
    ]
    began = time.process_time()
    (result,) = resample_statistics(shape.design, values, (over,), np.random.default_rng(1), draws)  # type: ignore[arg-type]
    return result, time.process_time() - began


def main() -> None:
    """Time both forms."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="fewer resamples")
    draws = 99 if parser.parse_args().quick else 999
    torch.set_num_threads(1)
    rows = []
    for shape in SHAPES:
        timed(shape, shape.over, 20)  # warm
        fast, seconds = timed(shape, shape.over, draws)
        slow, literal = timed(shape, shape.over.literal, draws)
        rows.append(
            {
                "shape": shape.name,
                "is_linear": shape.is_linear,
                "seconds": round(seconds, 4),
                "literal_seconds": round(literal, 4),
                "speedup": round(literal / seconds, 1),
                "max_diff": float(np.abs(fast - slow).max()),
            }
        )
        print(json.dumps(rows[-1]), flush=True)

    def least(is_linear: bool) -> float:
        return min(float(row["speedup"]) for row in rows if row["is_linear"] is is_linear)

    output = {
        "linear": least(True),
        "other": least(False),
        "max_diff": max(float(row["max_diff"]) for row in rows),
    }
    print(json.dumps(output))


if __name__ == "__main__":
    main()
