"""How long questions take on this machine, and what part of them fits into the time there is.

A few questions of each kind are asked and timed, once; the rest follows by counting. Parts are
halves of halves, so that a little more or less speed asks the same questions.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, NamedTuple, final

from threadpoolctl import threadpool_limits

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError
from levelhead.measures.responses import questioned
from levelhead.measures.subsample import part_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.measures.base import Measure
    from levelhead.measures.items import Ask, Asked
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


@final
class Paces:
    """Seconds a question, by kind of question; each kind is timed once, when it is first needed."""

    def __init__(self, lm: LM, *, threads: int, is_timed: bool = True) -> None:
        self.lm = lm
        self.threads = threads
        self.is_timed = is_timed
        """If not, time does not matter: a question takes none."""
        self.known: dict[str, float] = {}

    def pace(self, asked: Sequence[Asked], *, kind: str = "") -> float:
        """Seconds a question.

        Args:
            asked: what a measure asks.
            kind: what its texts are, where their length makes them a kind apart.
        """
        took = number = 0.0
        for part in asked:
            count = sum(len(item.asks) for item in part.items)
            took += self._each(part, f"{part.verb} {kind}".rstrip()) * count
            number += count
        return took / number if number else 0.0

    def _each(self, asked: Asked, kind: str) -> float:
        if not self.is_timed:
            return 0.0
        if kind not in self.known and (rows := _some(asked)):
            with threadpool_limits(self.threads):
                self.known[kind] = _timed(self.lm, asked, rows)
        return self.known.get(kind, 0.0)


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
