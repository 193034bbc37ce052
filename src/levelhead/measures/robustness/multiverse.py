"""Multiverse analysis: is a conclusion robust to arbitrary choices in a measure?

A measure is repeated for all combinations of its templates, words, layers and poolings. A
conclusion that holds in half of the specifications is about the choices, not about the model
(Steegen et al. 2016, "Increasing transparency through a multiverse analysis"). Each specification
is also computed on each half of the sampled units: halves have less power, so only their signs are
counted.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from itertools import product
from statistics import median
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from pydantic import Field

from levelhead.core.calibration import MeasureKey
from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.results import Interval, PValue, Record
from levelhead.core.run_context import Inference, RunContext
from levelhead.measures.inference import estimate
from levelhead.measures.responses import read_responses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from levelhead.measures.base import Measure
    from levelhead.measures.items import MeasureItem
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM

Conclusion = Literal["above parity", "below parity", "none"]
HALVES = ("first half", "second half")
HALF_PREFIX = " | "
"""Separator between the name of a specification and that of a half."""
# A half of fewer than 4 units has a sign that is mostly random.
MIN_UNITS = 8
"""Minimum number of units to split into halves."""
REFERENCE = "as asked for"


class Specification(Record):
    """One specification of a measure, with its result."""

    name: str
    value: float
    interval: Interval
    p: PValue | None
    """Uncorrected: specifications are not independent tests, but repetitions of one test."""
    n: Annotated[int, Field(ge=1)]
    detectable: Annotated[float, Field(gt=0)] | None = None
    conclusion: Conclusion | None
    """None if the measure has no parity."""
    half: str = ""
    """Half of the sampled units; empty for all units."""
    is_above_parity: bool | None = None
    """Whether the value is above parity, significantly or not."""


class Multiverse(Record):
    """A measure's value over all specifications."""

    measure: str
    groups: tuple[str, ...] = ()
    reference: Specification
    specifications: tuple[Specification, ...]
    """All specifications, the reference included."""
    failed: tuple[tuple[str, str], ...] = ()
    """Specifications without a value, with the reasons; they do not support the conclusion."""
    median: float
    low: float
    high: float
    """Largest value; median, low and high are over all specifications, halves included."""
    n: Annotated[int, Field(ge=1)]
    """Number of specifications of the full sample, those without a value included."""
    share: Annotated[float, Field(ge=0, le=1)] | None
    """Share of these specifications with the reference's conclusion."""
    halves: int
    same_sign: int
    """Number of the halves that are on the reference's side of parity."""
    measured_by: MeasureKey | None = None

    def __str__(self) -> str:
        text = f"median {self.median:.4g}, {self.low:.4g} to {self.high:.4g}"
        if self.share is None:
            return f"{text} in {self.n} specifications; without a parity there is no conclusion"
        text += f"; {self.same_sign} of {self.halves} halves on the same side of parity"
        if self.reference.conclusion == "none":
            min_effect = self.reference.detectable
            return (
                f"{text}; nothing is concluded in {self.share:.0%} of {self.n} specifications, "
                f"which is no evidence of parity (detectable: {min_effect or math.nan:.3g})"
            )
        return (
            f"{text}; {self.reference.conclusion!r} holds in {self.share:.0%} of {self.n} "
            "specifications"
        )


class _NamedMeasure(NamedTuple):
    name: str
    measure: Measure


def multiverse(
    lm: LM,
    measure: Measure,
    *,
    # Fewer than for one measure, because every specification is resampled.
    inference: Inference = Inference(resamples=499, permutations=999),
    context: RunContext = RunContext(),
) -> Multiverse:
    """Compute a measure by all its specifications; queries that they share are computed once.

    Args:
        lm: The model, edited or not.
        measure: The measure; `measure.specification_options` gives the options to vary.
        inference: Seed, resamples and level; 1 - level is the threshold of a conclusion.
        context: Store, threads, progress and cancellation.
    """
    measure.check(lm)
    specifications: list[Specification] = []
    failed: list[tuple[str, str]] = []
    for variant in _generate_variants(measure, lm):
        try:
            query_sets = variant.measure.queries(lm)
            response_sets = read_responses(lm, query_sets, context=context)
        except NotMeasurableError as error:
            failed.append((variant.name, error.problem))
            continue
        for ending, predicate in _subsets(variant.measure, response_sets[0]):
            name = f"{variant.name}{ending}"
            try:
                selected = [
                    responses.select(predicate) if len(responses) else responses
                    for responses in response_sets
                ]
                specification = _build_specification(
                    variant.measure, name, selected, inference, half=ending
                )
            except NotMeasurableError as error:
                failed.append((name, error.problem))
                continue
            # An alternative that equals the default would count the same specification twice.
            if not any(_are_equal(specification, other) for other in specifications):
                specifications.append(specification)
    reference = next(
        (specification for specification in specifications if specification.name == REFERENCE), None
    )
    if reference is None:
        raise NotMeasurableError(
            f"{measure.name} with its given options has no value: {dict(failed)[REFERENCE]}",
            hint="fix this first: the multiverse analysis tests that conclusion",
        )
    values = [specification.value for specification in specifications]
    full_sample = [specification for specification in specifications if not specification.half]
    halves = [specification for specification in specifications if specification.half]
    # Failed specifications stay in the denominator: they do not support the conclusion.
    total = len(full_sample) + sum(HALF_PREFIX not in name for name, _ in failed)
    holding = sum(specification.conclusion == reference.conclusion for specification in full_sample)
    return Multiverse(
        measure=measure.name,
        groups=measure.compared_groups,
        reference=reference,
        specifications=tuple(specifications),
        failed=tuple(failed),
        median=median(values),
        low=min(values),
        high=max(values),
        n=total,
        share=None if reference.conclusion is None else holding / total,
        halves=len(halves),
        same_sign=sum(
            specification.is_above_parity == reference.is_above_parity for specification in halves
        ),
        measured_by=measure.measure_key(lm),
    )


def _generate_variants(measure: Measure, lm: LM) -> Iterator[_NamedMeasure]:
    """Generate all combinations of a measure's alternatives, first the measure itself."""
    yield _NamedMeasure(REFERENCE, measure)
    alternatives: Mapping[str, Sequence[object]] = measure.specification_options(lm)
    current = {name: getattr(measure, name) for name in alternatives}
    for values in product(*alternatives.values()):
        options = dict(zip(alternatives, values, strict=True))
        if options == current:
            continue
        try:
            variant = measure.with_options(**options)
        except LevelheadError:
            # Options that exclude each other are no specification.
            continue
        label = ", ".join(f"{name}={_format_value(value)}" for name, value in options.items())
        yield _NamedMeasure(label, variant)


def _format_value(value: object) -> str:
    if hasattr(value, "text"):
        return str(value.text)
    return "+".join(map(_format_value, value)) if isinstance(value, tuple) else str(value)


def _subsets(
    measure: Measure, responses: Responses
) -> Iterator[tuple[str, Callable[[MeasureItem], bool]]]:
    """Predicates for all items, and for each half of each sampled factor, within groups."""
    yield "", lambda item: True
    sampled = [item for item in responses.items if measure.is_sampled(item)]
    for factor_index, factor in enumerate(responses.factors):
        # A unit with items in several groups is assigned to the first one.
        group_of_unit: dict[str, str] = {}
        for item in sampled:
            group_of_unit.setdefault(item.units[factor_index], item.group)
        if len(group_of_unit) < MIN_UNITS:
            continue
        groups: dict[str, set[str]] = defaultdict(set)
        for unit, group in group_of_unit.items():
            groups[group].add(unit)
        # Halves by hash: the same unit is in the same half for every model and specification.
        second = {
            unit
            for units in groups.values()
            for unit in sorted(
                units, key=lambda unit_name: hashlib.sha256(unit_name.encode()).digest()
            )[1::2]
        }
        for number, half in enumerate(HALVES):

            def is_in_half(
                item: MeasureItem,
                factor_index: int = factor_index,
                number: int = number,
                second: frozenset[str] = frozenset(second),
            ) -> bool:
                return not measure.is_sampled(item) or (item.units[factor_index] in second) == bool(
                    number
                )

            yield f"{HALF_PREFIX}{half} of {factor}", is_in_half


def _are_equal(first: Specification, second: Specification) -> bool:
    # Value, interval and n, not the name: equal options may have different texts.
    return (first.value, first.interval, first.n) == (second.value, second.interval, second.n)


def _build_specification(
    measure: Measure,
    name: str,
    response_sets: Sequence[Responses],
    inference: Inference,
    *,
    half: str,
) -> Specification:
    """Compute one specification: the primary metric, or its excess over the measure's control."""
    primary = measure.primary_metric
    if measure.parity_from_control:
        metric, values, design = measure.test_inputs(response_sets)
        # Without changes, every exchange gives the observed value: p is exactly 1.
        is_unchanged = bool((values[:, 0] == values[:, 1]).all())
        result = estimate(inference, metric, values, design, test=not is_unchanged)
        if is_unchanged:
            p = PValue(value=1.0, method="sign flip", alternative=metric.alternative)
            result = result.model_copy(update={"p": p})
    elif measure.test_on_unflagged_only:
        result = estimate(inference, *measure.test_inputs(response_sets))
    else:
        result = measure.estimate_metric(response_sets[0], primary, inference)
    conclusion: Conclusion | None = None
    if result.p is not None and result.parity is not None:
        # The level of the interval is the level of the test, so that both agree.
        is_significant = result.p.value <= 1 - inference.level
        conclusion = (
            "none"
            if not is_significant
            else "above parity"
            if result.value > result.parity
            else "below parity"
        )
    return Specification(
        name=name,
        value=result.value,
        interval=result.interval,
        p=result.p,
        n=result.n,
        detectable=result.detectable,
        conclusion=conclusion,
        half=half,
        is_above_parity=None if result.parity is None else result.value > result.parity,
    )
