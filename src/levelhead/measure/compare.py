"""Two models, or a model and its edit: the same items asked of both, and the difference paired."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from levelhead.core.calibration import mark_of
from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.results import Estimate, Measurement, Record
from levelhead.measure.aspects import jackknife, refuse_nothing
from levelhead.measure.reductions import of_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.measure.aspects import Aspect, Judge
    from levelhead.measure.measure import Measure
    from levelhead.measure.readouts import Readouts


VOCABULARY = "one vocabulary"
"""In what may be compared: sums over tokens, which two tokenizers cut differently."""


class Comparison(Record):
    """How a second model differs from a first by one measure, item by item."""

    measure: str
    first: Measurement
    second: Measurement
    difference: Estimate
    """Second less first, on the items that both could read."""
    beside: tuple[Estimate, ...] = ()
    """The same for the other aspects."""
    verdict: str
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
    judge: Judge,
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
    differences = [_of_headline(measure, head, pair, judge)]
    for aspect in others:
        try:
            differences.append(_difference(measure, aspect, pair, judge))
        except LevelheadError as error:
            notes.append(f"{aspect.name}: {error.what}")
    return Comparison(
        measure=measure.name,
        first=one,
        second=other,
        difference=differences[0],
        beside=tuple(differences[1:]),
        verdict=_verdict(measure, differences),
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
    measure: Measure, head: Aspect, pair: tuple[Readouts, ...], judge: Judge
) -> Estimate:
    try:
        return _difference(measure, head, pair, judge)
    except NotMeasurable as error:
        if not head.is_step:
            raise
        raise NotMeasurable(
            f"{head.name}, a step function, differs for no item or all alike: {error.what}",
            mend=f"compare {head.companion}, its smooth companion",
        ) from None


def _difference(
    measure: Measure, aspect: Aspect, pair: tuple[Readouts, ...], judge: Judge
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
    return judge.estimate(
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


def _verdict(measure: Measure, differences: Sequence[Estimate]) -> str:
    main = differences[0]
    if 0 in main.interval:
        return f"no difference shown (one of {main.detectable:.3g} would have been)"
    way = "higher" if main.value > 0 else "lower"
    other = measure.headline.confirmed_by
    if other is None:
        return way
    plain = next((one for one in differences if one.name.endswith(other)), None)
    if plain is None or 0 in plain.interval or (plain.value > 0) != (main.value > 0):
        return f"{measure.headline.name} {way}; the {other} does not show the same: no claim"
    return f"{way}, and so is the {other}"


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
