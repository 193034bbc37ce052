"""The multiverse: does a conclusion survive the choices that could have been made otherwise?

A measure is repeated with its templates, words, layers and ways of pooling varied, all with all. A
conclusion that holds in half of the specifications is about the choices, not about the model
(Steegen et al. 2016, "Increasing transparency through a multiverse analysis"). Each is computed for
either half of what was sampled, too: halves have less power, so only their signs are counted.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from dataclasses import replace
from itertools import product
from statistics import median
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from pydantic import Field

from levelhead.core.calibration import Ruler
from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.results import Interval, PValue, Record
from levelhead.core.run_context import Inference, RunContext
from levelhead.measures.inference import estimate
from levelhead.measures.responses import read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from levelhead.measures.base import Measure
    from levelhead.measures.items import Item
    from levelhead.measures.responses import Readouts
    from levelhead.models.lm import LM

Conclusion = Literal["above parity", "below parity", "none"]
HALVES = ("first half", "second half")
HALF = " | "
"""Stands before the name of a half."""
FEWEST = 8
"""Units of which fewer are not cut in halves."""
REFERENCE = "as asked for"


class Specification(Record):
    """One way of measuring, and what it gave."""

    name: str
    value: float
    interval: Interval
    p: PValue | None
    """Uncorrected: specifications are not independent tests, but one conclusion asked again."""
    n: Annotated[int, Field(ge=1)]
    detectable: Annotated[float, Field(gt=0)] | None = None
    conclusion: Conclusion | None
    """None where the measure has no parity."""
    half: str = ""
    """Which half of what was sampled it is of; empty: of all."""
    above: bool | None = None
    """Whether the value lies above parity, significantly or not."""


class Multiverse(Record):
    """A measure's value over all specifications."""

    measure: str
    groups: tuple[str, ...] = ()
    reference: Specification
    specifications: tuple[Specification, ...]
    """The reference among them."""
    failed: tuple[tuple[str, str], ...] = ()
    """Specifications that gave no number, and why; they do not hold the conclusion."""
    median: float
    low: float
    high: float
    """Over all specifications, halves included."""
    n: Annotated[int, Field(ge=1)]
    """Specifications of the whole sample, those without a number included."""
    share: Annotated[float, Field(ge=0, le=1)] | None
    """Of these, those with the reference's conclusion."""
    halves: int
    same_sign: int
    """How many halves there are, and how many lie on the reference's side of parity."""
    measured_by: Ruler | None = None

    def __str__(self) -> str:
        told = f"median {self.median:.4g}, {self.low:.4g} to {self.high:.4g}"
        if self.share is None:
            return f"{told} in {self.n} specifications; without a parity there is no conclusion"
        told += f"; {self.same_sign} of {self.halves} halves on the same side of parity"
        if self.reference.conclusion == "none":
            least = self.reference.detectable
            return (
                f"{told}; nothing is concluded in {self.share:.0%} of {self.n} specifications, "
                f"which is no evidence of parity (detectable: {least or math.nan:.3g})"
            )
        return (
            f"{told}; {self.reference.conclusion!r} holds in {self.share:.0%} of {self.n} "
            "specifications"
        )


class _Made(NamedTuple):
    name: str
    measure: Measure


def multiverse(
    lm: LM,
    measure: Measure,
    *,
    inference: Inference = Inference(resamples=499, permutations=999),
    context: RunContext = RunContext(),
) -> Multiverse:
    """A measure by all its specifications; what they ask alike is asked once.

    Args:
        lm: the model, edited or not.
        measure: as it would be used; what it varies is `measure.varied`.
        inference: seed, resamples and level; 1 - level is the threshold of a conclusion.
        context: store, threads, progress and cancellation.
    """
    measure.check(lm)
    specifications: list[Specification] = []
    failed: list[tuple[str, str]] = []
    for one in _specifications(measure, lm):
        try:
            asked = one.measure.asked(lm)
            readouts = read(lm, asked, context=context)
        except NotMeasurable as error:
            failed.append((one.name, error.what))
            continue
        for ending, keep in _subsets(one.measure, readouts[0]):
            name = f"{one.name}{ending}"
            try:
                some = [part.some(keep) if len(part) else part for part in readouts]
                found = _specified(one.measure, name, some, inference, half=ending)
            except NotMeasurable as error:
                failed.append((name, error.what))
                continue
            # A choice that is the default under another name is no second witness.
            if not any(_same(found, other) for other in specifications):
                specifications.append(found)
    reference = next((one for one in specifications if one.name == REFERENCE), None)
    if reference is None:
        raise NotMeasurable(
            f"{measure.name} as it was asked for gives no number: {dict(failed)[REFERENCE]}",
            mend="mend this first: the multiverse is about that conclusion",
        )
    values = [one.value for one in specifications]
    whole = [one for one in specifications if not one.half]
    halves = [one for one in specifications if one.half]
    total = len(whole) + sum(HALF not in name for name, _ in failed)
    holding = sum(one.conclusion == reference.conclusion for one in whole)
    return Multiverse(
        measure=measure.name,
        groups=measure.compared,
        reference=reference,
        specifications=tuple(specifications),
        failed=tuple(failed),
        median=median(values),
        low=min(values),
        high=max(values),
        n=total,
        share=None if reference.conclusion is None else holding / total,
        halves=len(halves),
        same_sign=sum(one.above == reference.above for one in halves),
        measured_by=measure.ruler(lm),
    )


def _specifications(measure: Measure, lm: LM) -> Iterator[_Made]:
    """Every combination of what a measure varies; first the measure as it is."""
    yield _Made(REFERENCE, measure)
    ways: Mapping[str, Sequence[object]] = measure.varied(lm)
    own = {name: getattr(measure, name) for name in ways}
    for values in product(*ways.values()):
        options = dict(zip(ways, values, strict=True))
        if options == own:
            continue
        try:
            other = replace(measure, **options)  # type: ignore[arg-type]  # its own options
        except LevelheadError:
            continue  # options that exclude each other are no specification
        told = ", ".join(f"{name}={_shown(value)}" for name, value in options.items())
        yield _Made(told, other)


def _shown(value: object) -> str:
    if hasattr(value, "text"):
        return str(value.text)
    return "+".join(map(_shown, value)) if isinstance(value, tuple) else str(value)


def _subsets(measure: Measure, readouts: Readouts) -> Iterator[tuple[str, Callable[[Item], bool]]]:
    """All; and for every factor that was sampled, either half of its units, within their groups."""
    yield "", lambda item: True
    own = [item for item in readouts.items if measure.samples(item)]
    for place, factor in enumerate(readouts.factors):
        home: dict[str, str] = {}  # a unit may have items in several groups
        for item in own:
            home.setdefault(item.units[place], item.group)
        if len(home) < FEWEST:
            continue
        groups: dict[str, set[str]] = defaultdict(set)
        for unit, group in home.items():
            groups[group].add(unit)
        second = {
            unit
            for units in groups.values()
            for unit in sorted(units, key=lambda one: hashlib.sha256(one.encode()).digest())[1::2]
        }
        for number, half in enumerate(HALVES):

            def kept(
                item: Item,
                place: int = place,
                number: int = number,
                second: frozenset[str] = frozenset(second),
            ) -> bool:
                return not measure.samples(item) or (item.units[place] in second) == bool(number)

            yield f"{HALF}{half} of {factor}", kept


def _same(one: Specification, other: Specification) -> bool:
    return (one.value, one.interval, one.n) == (other.value, other.interval, other.n)


def _specified(
    measure: Measure, name: str, readouts: Sequence[Readouts], inference: Inference, *, half: str
) -> Specification:
    """What is tested, of some readouts: the headline, or its excess over a control of its own."""
    head = measure.headline
    if measure.controlled:
        aspect, values, design = measure.tested(readouts)
        alike = bool((values[:, 0] == values[:, 1]).all())  # then every rearrangement is this one
        found = estimate(inference, aspect, values, design, tested=not alike)
        if alike:
            p = PValue(value=1.0, method="sign flip", alternative=aspect.alternative)
            found = found.model_copy(update={"p": p})
    elif measure.tests_unflagged:
        found = estimate(inference, *measure.tested(readouts))
    else:
        found = measure.estimated(readouts[0], head, inference)
    conclusion: Conclusion | None = None
    if found.p is not None and found.parity is not None:
        away = found.p.value <= 1 - inference.level
        conclusion = (
            "none" if not away else "above parity" if found.value > found.parity else "below parity"
        )
    return Specification(
        name=name,
        value=found.value,
        interval=found.interval,
        p=found.p,
        n=found.n,
        detectable=found.detectable,
        conclusion=conclusion,
        half=half,
        above=None if found.parity is None else found.value > found.parity,
    )
