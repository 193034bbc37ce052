"""What an audit may ask beyond its core suite, and by which measure it locates heads.

One row a measure, with the ways in which it is asked when there is less time.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal, NamedTuple

from levelhead.core.calibration import calibrated
from levelhead.core.errors import LevelheadError
from levelhead.core.results import Record
from levelhead.data.catalog.datasets import NotHere
from levelhead.measures.registry import MEASURES, parsed
from levelhead.measures.utility.perplexity import Fluency
from levelhead.models.loading.checkpoints import NoHead
from levelhead.study.audit.core_suite import role_of
from levelhead.study.audit.time_budget import Thrift, questions, units

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from levelhead.measures.base import Measure
    from levelhead.measures.items import Asked
    from levelhead.models.lm import LM
    from levelhead.study.audit.core_suite import Role
    from levelhead.study.audit.time_budget import Paces

Reason = Literal["data missing", "time budget", "does not fit this model", "error"]


class Ruler(NamedTuple):
    """A measure that an audit may add, and how it is asked with less time."""

    name: str
    text: str
    """As the command line names it."""
    thrifts: tuple[Thrift, ...]

    @property
    def role(self) -> Role:
        """As its headline says."""
        return role_of(self.text)


SHARES = tuple(Thrift("share", 0.5**i) for i in range(1, 7))
QUOTAS = tuple(Thrift("quota", n) for n in (5, 3, 2, 1))
LIMITS = tuple(Thrift("limit", n) for n in (100, 50, 20))
RULERS: tuple[Ruler, ...] = (
    Ruler("seat", "seat:lexicon=kaneko,targets=stereotypes,quota=10", QUOTAS),
    Ruler("seat-occupations", "seat:quota=30", QUOTAS),
    Ruler("strength", "strength", SHARES),
    Ruler("distance", "distance", SHARES),
    Ruler("contrast", "contrast", SHARES),
    Ruler("cloze", "cloze:backgrounds=1", SHARES),
    Ruler("stereotype", "stereoset", SHARES),
    Ruler("crows", "crows", SHARES),
    Ruler("nli-fairness", "nli", SHARES),
    Ruler("nli-coal", "nli_coal", SHARES),
    Ruler("pppl", "pppl:limit=200", LIMITS),
    Ruler("ppl", "ppl:limit=200", LIMITS),
    # Not GAP: its passages alone take a quarter of a minute to be found.
    Ruler("agreement", "pronoun_agreement:sources=winogender+winobias", SHARES),
    Ruler("snli", "snli", SHARES),
)
"""One row a measure, in the order in which they are asked: what the core suite lacks, and larger
samples of what it has."""
LARGER = "-larger"
"""Ends the name of a larger sample of a measure of the core suite."""
LOCATORS: tuple[Ruler, ...] = (
    Ruler("cloze", "cloze:backgrounds=1", SHARES),
    Ruler("contrast", "contrast", SHARES),
    Ruler("crows_margin", "crows:metric=crows_margin", SHARES),
    Ruler("stereotype_margin", "stereoset:metric=stereotype_margin", SHARES),
    Ruler("seat", "seat:lexicon=kaneko,targets=stereotypes,quota=10", QUOTAS),
    Ruler("seat-occupations", "seat:quota=30", QUOTAS),
    Ruler("strength", "strength", SHARES),
)
"""Smooth measures that heads can be located by; among those calibrated alike, the first."""
FLUENCY = tuple(name for name, make in MEASURES.items() if issubclass(make, Fluency))
"""Measures whose texts are long: a question takes longer than another measure's."""
FEWEST = 20
"""Words, pairs or occupations: of fewer, a part of a measure is not asked."""


class LeftOut(Record):
    """Something the audit does not say, and why."""

    what: str
    why: str
    reason: Reason = "does not fit this model"


class Fitting(NamedTuple):
    """A measure that a model can be asked by, and how long that takes."""

    ruler: Ruler
    measure: Measure
    asked: Sequence[Asked]
    whole: int
    pace: float
    """Seconds a question; 0 if time does not matter."""
    more_than: int = 0
    """Questions of the core suite's version: a part that is no larger adds nothing."""

    @property
    def ways(self) -> list[Thrift | None]:
        """Whole, and in parts that are not too small."""
        return [
            way
            for way in (None, *self.ruler.thrifts)
            if way is None
            or (
                (way.option != "share" or units(self.asked[0], self.measure, way) >= FEWEST)
                and (
                    not self.more_than or questions(self.asked, self.measure, way) > self.more_than
                )
            )
        ]

    @property
    def least(self) -> Thrift | None:
        """The smallest part of it that is asked."""
        return self.ways[-1]

    def seconds(self, thrift: Thrift | None = None) -> float:
        """How long it takes, with some thrift."""
        return self.pace * questions(self.asked, self.measure, thrift)


def fitted(lm: LM, ruler: Ruler, paces: Paces) -> Fitting:
    """A measure with what it asks of a model; an error where it cannot be asked."""
    measure = parsed(ruler.text)
    measure.check(lm)
    asked = measure.asked(lm)
    kind = measure.name if measure.name in FLUENCY else ""
    return Fitting(ruler, measure, asked, questions(asked, measure), paces.pace(asked, kind=kind))


def extensions(
    lm: LM,
    core: Mapping[str, str],
    paces: Paces,
    *,
    until: float | None = None,
    on_step: Callable[[str, int, int], None] = lambda what, done, of: None,
) -> tuple[list[Fitting], list[LeftOut]]:
    """The measures that could be added to a core suite, and why others could not.

    Args:
        lm: the model.
        core: the suite: measures by name, as the command line has them.
        paces: how long questions take.
        until: when no further measure is looked at, by `time.monotonic`.
        on_step: is told what is looked at, how many were, and of how many.
    """
    fits: list[Fitting] = []
    left_out: list[LeftOut] = []
    rows = [ruler for ruler in RULERS if core.get(ruler.name) != ruler.text]
    for number, ruler in enumerate(rows):
        on_step(f"planning {ruler.name}", number, len(rows))
        name = ruler.name + LARGER * (ruler.name in core)
        try:
            measure = parsed(ruler.text)
            measure.check(lm)
            if until is not None and time.monotonic() > until:
                left_out.append(no_time(name))
                continue
            more_than = 0
            if ruler.name in core:
                small = parsed(core[ruler.name])
                more_than = questions(small.asked(lm), small)
            found = fitted(lm, ruler._replace(name=name), paces)
        except LevelheadError as error:
            left_out.append(left_out_by(name, error))
            continue
        if found.whole > more_than:
            fits.append(found._replace(more_than=more_than))
    on_step("planned", len(rows), len(rows))
    return fits, left_out


def locators(lm: LM) -> tuple[list[Ruler], list[str]]:
    """The measures that may locate a model's heads, the best calibrated first; and why not others.

    A measure that failed validation on models with planted bias says nothing about heads either. Of
    the others, the one that detects the smallest planted dose comes first, then the one that ranks
    doses best. A step function has no gradient.
    """
    ranked: list[tuple[bool, float, float, int]] = []
    refused: list[str] = []
    for number, ruler in enumerate(LOCATORS):
        measure = parsed(ruler.text)
        try:
            measure.check(lm)
        except LevelheadError:
            continue
        if measure.headline.is_step:
            continue
        key = measure.ruler(lm)
        known = None if key is None else calibrated(key)
        if known is not None and known.verdict == "misses":
            refused.append(f"{ruler.name} failed validation on models with planted bias")
            continue
        is_judged = known is not None and known.verdict != "not judged"
        dose = known.smallest if known is not None else None
        rank = known.rank if known is not None else None
        ranked.append((not is_judged, 2.0 if dose is None else dose, -(rank or 0.0), number))
    return [LOCATORS[number] for *_, number in sorted(ranked)], refused


def no_time(what: str) -> LeftOut:
    """Something that is skipped for lack of time."""
    return LeftOut(what=what, why="time budget", reason="time budget")


def left_out_by(what: str, error: LevelheadError) -> LeftOut:
    """Something that an error left out."""
    reason: Reason = "error"
    if isinstance(error, NotHere):
        reason = "data missing"
    elif isinstance(error, NoHead):
        reason = "does not fit this model"
    return LeftOut(what=what, why=error.what, reason=reason)
