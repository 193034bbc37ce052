"""Cost estimates by arithmetic, for runs that cannot be timed on this machine."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field

from levelhead.core.errors import LevelheadError
from levelhead.core.results import Record

BYTES = {"float32": 4, "float64": 8, "bfloat16": 2, "float16": 2}
FORWARD, GRADIENT = 2, 6
"""Operations per parameter and token: of a forward pass; of a first pass and a second pass with its
backward pass and frozen weights (2 + 4, Yang et al. 2025, Eq. 4, in two passes)."""
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "B": 10**9, "T": 10**12}


class LargeScaleEstimate(Record):
    """Always true: the estimate is not measured."""

    hours: Annotated[float, Field(ge=0)]
    """Wall-clock hours."""
    device_hours: Annotated[float, Field(ge=0)]
    memory_gb: float | None = None
    """Memory of the weights per device; activations need more."""
    assumptions: tuple[str, ...]


def parse_number(text: str) -> float:
    """Parse a number with an optional unit suffix.

    >>> parse_number("70B"), parse_number("44TB"), parse_number("1.44M")
    (70000000000.0, 44000000000000.0, 1440000.0)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?(?:e\d+)?)([KMGBT]?)B?", text)
    if match is None:
        raise LevelheadError(f"{text!r} is not a number", hint="write 70B, 44TB, 1.5M or 1e9")
    return float(match[1]) * _UNITS[match[2]]


def estimate_large_model(
    parameters: float,
    tokens: float,
    *,
    devices: int,
    teraflops: float = 990.0,
    utilization: float = 0.3,
    dtype: str = "bfloat16",
    heads: int = 0,
) -> LargeScaleEstimate:
    """Estimate the gradient scores of all heads of a large model, and the ablation of `heads`.

    Args:
        parameters: number of the model's parameters.
        tokens: number of tokens in the queries.
        devices: number of GPUs that share the model.
        teraflops: peak TFLOP/s of one GPU in this dtype.
        utilization: fraction of the peak that is reached.
        dtype: dtype of the weights.
        heads: number of exactly ablated heads; each costs half a forward pass on average, because
            the layers below are not run again.
    """
    session = parameters * tokens * (GRADIENT + FORWARD / 2 * heads)
    hours = session / (devices * teraflops * 1e12 * utilization) / 3600
    return LargeScaleEstimate(
        hours=hours,
        device_hours=hours * devices,
        memory_gb=parameters * BYTES[dtype] / devices / 1e9,
        assumptions=(
            f"{teraflops:g} TFLOP/s per device, {utilization:.0%} of them reached",
            f"{GRADIENT} operations per parameter and token, {heads} heads ablated",
            "loading and synchronisation are not included",
        ),
    )


def estimate_distributed_mining(
    parallel_seconds: float,
    driver_seconds: float,
    sample_bytes: float,
    total_bytes: float,
    *,
    workers: int,
) -> LargeScaleEstimate:
    """Estimate the mining of a corpus from the timing of a sample in one process.

    Args:
        parallel_seconds: seconds of the work that workers share.
        driver_seconds: seconds of the driver, which reads and hashes every file and gathers.
        sample_bytes: bytes of the timed sample.
        total_bytes: bytes of the corpus.
        workers: number of cores.
    """
    times = total_bytes / sample_bytes / 3600
    return LargeScaleEstimate(
        hours=times * (driver_seconds + parallel_seconds / workers),
        device_hours=times * (driver_seconds + parallel_seconds),
        assumptions=(
            (
                f"{sample_bytes / max(parallel_seconds, 1e-9) / 2**20:.0f} MB per second and "
                "core, as in your sample"
            ),
            (
                f"{times * driver_seconds:.1f} hours of them one driver reads, hashes and "
                "gathers alone"
            ),
            f"{workers} workers, without waits for the network or the disk",
        ),
    )
