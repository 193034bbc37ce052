"""Two models, or a model and its edit: the same items asked of both, and the difference paired."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from levelhead.core.calibration import mark_of
from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.results import Estimate, Measurement, Record
from levelhead.measures.inference import corrected, estimate
from levelhead.measures.metric import jackknife, refuse_nothing
from levelhead.measures.reductions import of_columns
from levelhead.stats.power import ALPHA

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.core.run_context import Inference
    from levelhead.measures.base import Measure
    from levelhead.measures.metric import Aspect
    from levelhead.measures.responses import Readouts


VOCABULARY = "one vocabulary"
"""In what may be compared: sums over tokens, which two tokenizers cut differently."""
NEARER, FARTHER, SIDES = "nearer to parity", "farther from parity", "changed sides"
UNSHOWN = "no difference shown"


class Comparison(Record):
    """How a second model differs from a first by one measure, item by item."""

    measure: str
    first: Measurement
    second: Measurement
    difference: Estimate
    """Second less first, on the items that both could read."""
    beside: tuple[Estimate, ...] = ()
    """The same for the other aspects."""
    distance: Estimate | None = None
    """The second's distance from parity less the first's, paired: below 0, the second is nearer.
    None where the measure has no parity."""
    verdict: str
    """Nearer to parity or farther from it, for a difference may be either; of a price, higher or
    lower."""
    notes: tuple[str, ...] = ()

    @property
    def mark(self) -> str:
        """Of a ruler that failed on either model's kind."""
        return mark_of(self.first) or mark_of(self.second)

    def __str__(self) -> str:
        measure = f"{self.measure} {self.mark}".rstrip()
        return (
            f"{measure}: {self.first.value:.4g} -> {self.second.value:.4g}, difference "
            f"{self.difference.value:.4g} {self.difference.interval}: {self.verdict}"
        )


def compared(
    measure: Measure,
    first: Sequence[Readouts],
    second: Sequence[Readouts],
    measurements: tuple[Measurement, Measurement],
    *,
    inference: Inference,
) -> Comparison:
    """Pair two models' readouts of one measure by item. No forward is run."""
    one, other = measurements
    _refuse_unlike(one, other)
    if _alike(first, second):
        raise NotMeasurable(
            "the two models gave the same answer to every question, bit for bit",
            mend="check that the edit changes something: an edit without effect is no comparison",
        )
    shared = {item.id for item in first[0].items} & {item.id for item in second[0].items}
    if not shared:
        raise NotMeasurable(
            "no item could be read by both models", mend="look at what each dropped, and why"
        )
    alone = len(first[0]) + len(second[0]) - 2 * len(shared)
    notes = [f"{alone} items that only one of the models could read are left out"] if alone else []
    pair = tuple(found[0].some(lambda item: item.id in shared) for found in (first, second))
    head, *others = measure.aspects
    has_parity = one.parity is not None and other.parity is not None
    distance = _distance(measure, first, second, pair, inference) if has_parity else None
    differences = [_of_headline(measure, head, pair, inference)]
    for aspect in others:
        try:
            differences.append(_difference(measure, aspect, pair, inference))
        except LevelheadError as error:
            notes.append(f"{aspect.name}: {error.what}")
    return Comparison(
        measure=measure.name,
        first=one,
        second=other,
        difference=differences[0],
        beside=tuple(differences[1:]),
        distance=distance,
        verdict=_verdict(
            measure, differences, distance, changed_sides=has_changed_sides(one, other)
        ),
        notes=tuple(notes),
    )


def _refuse_unlike(one: Measurement, other: Measurement) -> None:
    """Refuse two numbers that do not measure the same."""
    if one.comparable == other.comparable and one.measure == other.measure:
        return
    options = [each.provenance.settings["measure"] for each in (one, other)]
    if one.measure == other.measure and options[0] == options[1]:
        raise LevelheadError(
            f"the two models were not asked the same by {one.measure}: other words, prompts or "
            "another protocol fit them",
            mend="give words that both know, or one protocol and form for both",
        )
    raise LevelheadError(
        f"{one.measure} ({one.comparable}) and {other.measure} ({other.comparable}) are "
        "different measures",
        mend="compare the same measure with the same options",
    )


def _of_headline(
    measure: Measure, head: Aspect, pair: tuple[Readouts, ...], inference: Inference
) -> Estimate:
    try:
        return _difference(measure, head, pair, inference)
    except NotMeasurable as error:
        if not head.is_step:
            raise
        raise NotMeasurable(
            f"{head.name}, a step function, differs for no item or all alike: {error.what}",
            mend=f"compare {head.companion}, its smooth companion",
        ) from None


def _difference(
    measure: Measure, aspect: Aspect, pair: tuple[Readouts, ...], inference: Inference
) -> Estimate:
    """An aspect of the second less that of the first, both of the same items in every resample."""
    if VOCABULARY in aspect.comparable and not _cut_alike(pair):
        raise LevelheadError(
            f"{aspect.name} adds up over tokens, and the two models cut the texts differently",
            mend="compare models of one tokenizer, such as a model and its edit",
        )
    values = [aspect.per_item(readouts) for readouts in pair]
    for one in values:
        refuse_nothing(one)
    both = torch.stack(values, dim=1)
    paired = replace(
        aspect,
        over=of_columns(aspect.over, 1, 0),
        low=-float("inf"),
        high=float("inf"),
        parity=0.0,
        null=None,
        lean=None,
        alternative="two-sided",
        method=None if aspect.method == "bca" else aspect.method,
        closed=None,
    )
    return estimate(
        inference,
        paired,
        both,
        measure.design(pair[0], aspect),
        name=f"difference of {aspect.name}",
        among=jackknife(
            [
                after - before
                for before, after in zip(
                    *(measure.left_out(one, aspect) for one in pair), strict=True
                )
            ]
        ),
    )


def _distance(
    measure: Measure,
    first: Sequence[Readouts],
    second: Sequence[Readouts],
    pair: tuple[Readouts, ...],
    inference: Inference,
) -> Estimate | None:
    """|value - parity| of the second less that of the first, the same items in every resample.

    Where parity is estimated, it is estimated anew in every resample: the distance is that of the
    lean, or of the excess over the control.
    """
    head = measure.headline
    values, aspect, design = [head.per_item(one) for one in pair], head, None
    over, parity = head.lean or head.over, head.parity or 0.0
    if measure.controlled:
        try:
            tests = [measure.tested(found) for found in _both_read(first, second)]
        except NotMeasurable:
            return None
        values, aspect, design = [one.values for one in tests], tests[0].aspect, tests[0].design
        over, parity = aspect.over, aspect.parity or 0.0
    try:
        return estimate(
            inference,
            replace(
                aspect,
                over=lambda both, draw: (
                    (over(both[:, 1], draw) - parity).abs()
                    - (over(both[:, 0], draw) - parity).abs()
                ),
                low=-float("inf"),
                high=float("inf"),
                parity=0.0,
                null=None,
                lean=None,
                # An absolute value near 0 has no BCa interval: resamples lie on one side of it.
                method="expanded",
                closed=None,
            ),
            torch.stack(values, dim=1),
            design or measure.design(pair[0], head),
            name="change of the distance from parity",
        )
    except NotMeasurable:
        return None  # it is as far off in every resample


def _both_read(
    first: Sequence[Readouts], second: Sequence[Readouts]
) -> tuple[list[Readouts], list[Readouts]]:
    """A measure's readouts, its control's too, of the items that both models could read."""
    parts = (*first, *second)
    shared = set.intersection(*({item.id for item in one.items} for one in parts))
    kept = [one.some(lambda item: item.id in shared) for one in parts]
    return kept[: len(first)], kept[len(first) :]


def has_changed_sides(first: Measurement, second: Measurement) -> bool:
    """Whether two models are shown to lie on different sides of parity."""
    effects = first.effect, second.effect
    if effects[0] is None or effects[1] is None:
        return False
    low, high = sorted(effects, key=lambda effect: effect[0] if effect else 0.0)
    # By both intervals: of two values near parity, the sides are chance.
    return low is not None and high is not None and low[2] < 0 < high[1]


def _verdict(
    measure: Measure,
    differences: Sequence[Estimate],
    distance: Estimate | None,
    *,
    changed_sides: bool = False,
) -> str:
    main, head = differences[0], measure.headline
    if 0 in main.interval:
        return _unshown(main)
    way = "higher" if main.value > 0 else "lower"
    if head.confirmed_by is not None:
        plain = next((one for one in differences if one.name.endswith(head.confirmed_by)), None)
        if plain is None or 0 in plain.interval or (plain.value > 0) != (main.value > 0):
            return f"{head.name} {way}; the {head.confirmed_by} does not show the same: no claim"
        told = f", and the {head.confirmed_by} is {way} too"
    else:
        told = ""
    return _side(measure, way, distance, changed_sides=changed_sides) + told


def _side(measure: Measure, way: str, distance: Estimate | None, *, changed_sides: bool) -> str:
    """Which way of parity a difference leads, as far as the interval of the distance shows it."""
    if distance is None:
        if measure.is_utility or measure.controlled:
            return way
        is_more_bias = way == measure.headline.worse
        return f"{way}: {'more' if is_more_bias else 'less'} bias by this measure"
    if 0 in distance.interval:
        told = f"{way}; not shown to be nearer to parity or farther from it"
    else:
        told = f"{NEARER if distance.value < 0 else FARTHER} ({way})"
    return f"{SIDES}: {told}" if changed_sides else told


def _unshown(difference: Estimate) -> str:
    least = difference.detectable
    p = difference.p
    among = "" if p is None or p.family is None else f" among {p.family} measures"
    if least is None:
        return f"{UNSHOWN}{among}"
    return f"{UNSHOWN}{among} (one of {least:.3g} would have been)"


def corrected_comparisons(comparisons: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """Comparisons by several measures: p of the differences corrected by Holm, verdicts with it."""
    differences = corrected([one.difference for one in comparisons])
    found = []
    for one, difference in zip(comparisons, differences, strict=True):
        update: dict[str, object] = {"difference": difference}
        is_gone = difference.p is not None and (difference.p.adjusted or 0.0) > ALPHA
        if one.verdict.startswith(UNSHOWN) or is_gone:
            update["verdict"] = _unshown(difference)
        found.append(one.model_copy(update=update))
    return tuple(found)


def _alike(first: Sequence[Readouts], second: Sequence[Readouts]) -> bool:
    return all(
        one.items == other.items and bool(torch.equal(one.values, other.values))
        for one, other in zip(first, second, strict=True)
    )


def _cut_alike(pair: Sequence[Readouts]) -> bool:
    """Whether both models cut every text into as many tokens; a next-sentence head counts none."""
    if all(one.facts.get("protocol") == "follows" for one in pair):
        return True
    return bool(torch.equal(*(one.values[..., 1] for one in pair)))
