"""What cannot be tried here, by arithmetic: estimates, and called so."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field

from levelhead.core.errors import LevelheadError
from levelhead.core.results import Record

BYTES = {"float32": 4, "float64": 8, "bfloat16": 2, "float16": 2}
FORWARD, GRADIENT = 2, 6
"""Operations a parameter and token: of a forward; of reading, and of the second pass with its
backward, weights frozen (2 + 4, Yang et al. 2025, Eq. 4, in two passes)."""
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "B": 10**9, "T": 10**12}


class Estimated(Record):
    """Never measured."""

    hours: Annotated[float, Field(ge=0)]
    """On the clock."""
    device_hours: Annotated[float, Field(ge=0)]
    memory_gb: float | None = None
    """Of weights, on each device; activations come on top."""
    assumes: tuple[str, ...]


def number(text: str) -> float:
    """A number as people write it.

    >>> number("70B"), number("44TB"), number("1.44M")
    (70000000000.0, 44000000000000.0, 1440000.0)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?(?:e\d+)?)([KMGBT]?)B?", text)
    if match is None:
        raise LevelheadError(f"{text!r} is no number", mend="write 70B, 44TB, 1.5M or 1e9")
    return float(match[1]) * _UNITS[match[2]]


def large(
    parameters: float,
    tokens: float,
    *,
    devices: int,
    teraflops: float = 990.0,
    used: float = 0.3,
    dtype: str = "bfloat16",
    heads: int = 0,
) -> Estimated:
    """Scores of all heads of a large model by their gradient; `heads` of them ablated as well.

    Args:
        parameters: of the model.
        tokens: that are read.
        devices: GPUs that share it.
        teraflops: of one of them, in this dtype.
        used: the part of these that is reached.
        dtype: of the weights.
        heads: ablated exactly, each half a forward on average: layers below are not run again.
    """
    work = parameters * tokens * (GRADIENT + FORWARD / 2 * heads)
    hours = work / (devices * teraflops * 1e12 * used) / 3600
    return Estimated(
        hours=hours,
        device_hours=hours * devices,
        memory_gb=parameters * BYTES[dtype] / devices / 1e9,
        assumes=(
            f"{teraflops:g} TFLOP/s a device, {used:.0%} of them reached",
            f"{GRADIENT} operations a parameter and token, {heads} heads ablated",
            "loading, and waiting for each other, are not in it",
        ),
    )


def spread(shared: float, alone: float, probed: float, whole: float, *, workers: int) -> Estimated:
    """Mining of so many bytes, by the seconds that some of them took in one process.

    Args:
        shared: seconds of what workers share.
        alone: seconds of what the driver does: it reads and hashes every file, and gathers.
        probed: bytes that took so long.
        whole: bytes in all.
        workers: cores.
    """
    times = whole / probed / 3600
    return Estimated(
        hours=times * (alone + shared / workers),
        device_hours=times * (alone + shared),
        assumes=(
            f"{probed / max(shared, 1e-9) / 2**20:.0f} MB a second and core, as in your sample",
            f"{times * alone:.1f} hours of them one driver reads, hashes and gathers alone",
            f"{workers} workers, none of which waits for the network or the disk",
        ),
    )
