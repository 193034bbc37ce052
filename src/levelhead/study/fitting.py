"""What a model can be asked by: the rulers of an audit, tried and timed.

One row a ruler, with the ways in which it is asked when there is less time.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal, NamedTuple

from levelhead.core.errors import LevelheadError
from levelhead.core.results import Record
from levelhead.measure.table import parsed
from levelhead.study.budget import Thrift, pace, questions, units

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from levelhead.measure.asked import Asked
    from levelhead.measure.measure import Measure
    from levelhead.models.lm import LM

Role = Literal["bias", "price"]


class Ruler(NamedTuple):
    """A measure of the audit, and how it is asked with less time."""

    name: str
    text: str
    """As the command line names it."""
    role: Role
    thrifts: tuple[Thrift, ...]


SHARES = tuple(Thrift("share", 0.5**i) for i in range(1, 7))
QUOTAS = tuple(Thrift("quota", n) for n in (5, 3, 2, 1))
LIMITS = tuple(Thrift("limit", n) for n in (100, 50, 20))
RULERS: tuple[Ruler, ...] = (
    Ruler("seat", "seat:lexicon=kaneko,targets=stereotypes,quota=10", "bias", QUOTAS),
    Ruler("seat-occupations", "seat:quota=30", "bias", QUOTAS),
    Ruler("strength", "strength", "bias", SHARES),
    Ruler("distance", "distance", "bias", SHARES),
    Ruler("contrast", "contrast", "bias", SHARES),
    Ruler("cloze", "cloze:backgrounds=1", "bias", SHARES),
    Ruler("stereotype", "stereotype_score", "bias", SHARES),
    Ruler("crows", "crows", "bias", SHARES),
    Ruler("nli-fairness", "nli_fairness", "bias", SHARES),
    Ruler("nli-coal", "nli_coal", "bias", SHARES),
    Ruler("pppl", "pppl:limit=200", "price", LIMITS),
    Ruler("ppl", "ppl:limit=200", "price", LIMITS),
    # Not GAP: its passages alone take a quarter of a minute to be found.
    Ruler("agreement", "pronoun_agreement:sources=winogender+winobias", "price", SHARES),
    Ruler("snli", "snli", "price", SHARES),
)
"""One row a ruler, in the order in which they are asked."""
FEWEST = 20
"""Words, pairs or occupations: of fewer, a part of a ruler is not asked."""


class LeftOut(Record):
    """Something the audit does not say, and why."""

    what: str
    why: str


class Fitting(NamedTuple):
    """A ruler that a model can be asked by, and how long that takes."""

    ruler: Ruler
    measure: Measure
    asked: Sequence[Asked]
    whole: int
    pace: float
    """Seconds a question; 0 if time does not matter."""

    @property
    def ways(self) -> list[Thrift | None]:
        """Whole, and in parts that are not too small."""
        return [
            way
            for way in (None, *self.ruler.thrifts)
            if way is None
            or way.option != "share"
            or units(self.asked[0], self.measure, way) >= FEWEST
        ]

    @property
    def least(self) -> Thrift | None:
        """The smallest part of it that is asked."""
        return self.ways[-1]

    def seconds(self, thrift: Thrift | None = None) -> float:
        """How long it takes, with some thrift."""
        return self.pace * questions(self.asked, self.measure, thrift)


def fitting(
    lm: LM, until: float | None, *, threads: int, on_step: Callable[[str, int, int], None]
) -> tuple[list[Fitting], list[LeftOut]]:
    """The rulers that a model can be asked by, and why it cannot by others."""
    found: list[Fitting] = []
    left_out: list[LeftOut] = []
    for number, ruler in enumerate(RULERS):
        on_step(f"trying {ruler.name}", number, len(RULERS))
        try:
            measure = parsed(ruler.text)
            measure.check(lm)
            if found and until is not None and time.monotonic() > until:
                raise LevelheadError("there is no time to try it", mend="give a larger budget")
            asked = measure.asked(lm)
            each = 0.0 if until is None else pace(lm, asked, threads=threads)
        except LevelheadError as error:
            left_out.append(LeftOut(what=ruler.name, why=error.what))
            continue
        found.append(Fitting(ruler, measure, asked, questions(asked, measure), each))
    on_step("tried", len(RULERS), len(RULERS))
    return found, left_out
