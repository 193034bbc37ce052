"""How long questions take on this machine, and what part of them fits into the time there is.

A few questions of each measure are asked and timed; the rest follows by counting. Parts are halves
of halves, so that a little more or less speed asks the same questions.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, NamedTuple

from threadpoolctl import threadpool_limits

from levelhead.core.canonical import content_hash
from levelhead.core.errors import LevelheadError
from levelhead.measure.readouts import questioned
from levelhead.measure.share import part_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.measure.asked import Ask, Asked
    from levelhead.measure.measure import Measure
    from levelhead.models.lm import LM

LONG_ENOUGH = 0.2
"""Seconds of a timing."""
FIRST, MOST = 2, 64
"""Questions of the first timing, which is not counted, and of the last."""
_UNITS = {"s": 1, "m": 60, "h": 3600}


def seconds(text: str) -> float:
    """A time as people write it.

    >>> seconds("30s"), seconds("5m"), seconds("1h30m")
    (30.0, 300.0, 5400.0)
    """
    if not re.fullmatch(r"(\d+(\.\d+)?[smh])+", text):
        raise LevelheadError(f"{text!r} is no time", mend="write 30s, 10m, 1h30m, or none")
    return sum(
        float(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+(?:\.\d+)?)([smh])", text)
    )


class Thrift(NamedTuple):
    """One way to ask less: an option of a measure and its value."""

    option: str
    value: float


def questions(asked: Sequence[Asked], samples: Measure, thrift: Thrift | None = None) -> int:
    """How many questions there are, with some thrift."""
    found = 0
    for one in asked:
        part, most = one, None
        if thrift is not None and thrift.option == "share":
            part = part_of(one, thrift.value, samples.samples)
        if thrift is not None and thrift.option == "quota":
            most = int(thrift.value)
        own = sum(len(item.asks[:most]) for item in part.items)
        found += min(own, int(thrift.value)) if thrift and thrift.option == "limit" else own
    return found


def units(asked: Asked, samples: Measure, thrift: Thrift | None = None) -> int:
    """How many words, pairs or occupations are asked about: of the factor that has most."""
    if thrift is not None and thrift.option == "share":
        asked = part_of(asked, thrift.value, samples.samples)
    own = [item.units for item in asked.items if samples.samples(item)]
    return max((len(set(names)) for names in zip(*own, strict=True)), default=0)


def pace(lm: LM, asked: Sequence[Asked], *, threads: int) -> float:
    """Seconds a question, by asking a few; more of them until they take long enough to tell."""
    took = number = 0.0
    with threadpool_limits(threads):
        for one in asked:
            rows = _some(one)
            if not rows:
                continue
            each = _timed(lm, one, rows)
            own = sum(len(item.asks) for item in one.items)
            took, number = took + each * own, number + own
    return took / number if number else 0.0


def _some(asked: Asked) -> list[Ask]:
    """A few questions, by hash: of all lengths."""
    rows = {content_hash(ask): ask for item in asked.items for ask in item.asks[:1]}
    return [rows[key] for key in sorted(rows)[:MOST]]


def _timed(lm: LM, asked: Asked, rows: Sequence[Ask]) -> float:
    """Seconds a question, once the model is warm; more of them until it takes long enough."""
    number, spent = min(FIRST, len(rows)), 0.0
    while True:
        began = time.perf_counter()
        question, _ = questioned(lm, asked.verb, rows[:number], asked.settings)
        if question is not None:
            question.answered(lm)
        warm, spent = spent > 0, time.perf_counter() - began
        if warm and (spent >= LONG_ENOUGH or number == len(rows)):
            return spent / number
        number = min((4 if warm else 8) * number, len(rows))


def shared_out(costs: Mapping[str, float], total: float) -> dict[str, float]:
    """The time for each of several things: as much to all, what one does not need to the others.

    >>> shared_out({"cheap": 1, "dear": 10, "dearer": 20}, 13)
    {'cheap': 1, 'dear': 6.0, 'dearer': 6.0}
    """
    left, given = total, {}
    for number, name in enumerate(sorted(costs, key=lambda name: costs[name])):
        given[name] = min(costs[name], left / (len(costs) - number))
        left -= given[name]
    return {name: given[name] for name in costs}
