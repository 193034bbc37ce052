"""Is it mitigation? What an edit gains, beside what placebo edits gain.

Almost any edit moves almost any measure, and a paired test on enough items finds that it does. So
an edit counts as mitigation only if it gains more than 95 of 100 edits that take out as much of
the same sites along directions that have nothing to do with the groups (placebo_edits.py).

That is a test of the edit only where there is something to mitigate and the placebos are many: on a
model that shows no bias by the measure, or beside placebos that are all the same edit, the outcome
is "untestable", and never "not shown".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

import numpy as np
from pydantic import Field

from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.results import Dropped, Estimate, PValue, Record
from levelhead.core.run_context import Inference
from levelhead.locate.effects import Effects
from levelhead.mitigate.controls.effective_placebos import effective_number, needed_placebos
from levelhead.mitigate.evaluation.gain import bias_of, redrawn, shared, sided_of
from levelhead.stats.degenerate import ROUNDING
from levelhead.stats.intervals import proportion_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from levelhead.measures.base import Measure
    from levelhead.measures.metric import Aspect
    from levelhead.measures.responses import Readouts
    from levelhead.mitigate.evaluation.gain import By, Redrawn

LEAST = 200
"""Placebos, unless fewer are asked for."""
SAME = 0.95
"""A correlation, item by item, from which placebos do what the edit does."""
NO_EFFECT: Final = "untestable: base shows no effect"
DEPENDENT: Final = "untestable: placebos not independent"
TOO_FEW: Final = "untestable: too few placebos"
TURNED = "the bias is turned to the other side, at least as far: no reduction"
Outcome = Literal[
    "mitigates",
    "not shown to mitigate",
    "untestable: base shows no effect",
    "untestable: placebos not independent",
    "untestable: too few placebos",
]


class Judged(Record):
    """What an edit gains by one measure, and whether placebo edits gain as much."""

    measure: str
    gain: Estimate
    """By how much the measure comes nearer to its parity (mitigate/evaluation/gain.py), paired."""
    change: Estimate | None = None
    """Edited less base of the value itself; None if it does not change."""
    placebos: Annotated[tuple[float, ...], Field(min_length=1)]
    """The gain of every placebo."""
    quantile: float
    """The least gain of a placebo that 95% of them (the level of the inference) do not exceed."""
    p: PValue
    """That a placebo gains as much: (b + 1) / (m + 1), one-sided. Of a setting that is the best of
    several it is adjusted, by an upper bound: that many times as large (Bonferroni)."""
    base: Estimate | None = None
    """The signed distance of the model itself from parity, tested two-sided; None of measures
    without another side, and of results of earlier versions."""
    effective: Annotated[float, Field(ge=1)] | None = None
    """How many independent placebos they amount to (effective_placebos.py); None of results of
    earlier versions."""
    turned: bool = False
    """The edited model lies on the other side of parity, at least as far: no reduction."""
    beyond_placebos: bool
    alike: float
    """The median correlation, item by item, of what a placebo changes with what the edit does."""
    mitigates: bool
    """Testable, beyond the placebos, which do not do the same; the interval of the gain lies above
    0, and the bias is not turned to the other side."""
    significant: Estimate
    """The share of placebos that an ordinary paired test calls an effect, either way."""
    significant_gains: Estimate
    """The share that it calls a gain."""
    dropped: tuple[Dropped, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """What the comparison shows, or why it can show nothing."""
        alpha = 1 - self.gain.interval.level
        if self.base is not None and not _is_shown(self.base):
            return NO_EFFECT
        if len(self.placebos) < needed_placebos(alpha, self.p.family or 1):
            return TOO_FEW
        if self.effective is not None and self.effective < needed_placebos(alpha):
            return DEPENDENT
        return "mitigates" if self.mitigates else "not shown to mitigate"

    @property
    def is_testable(self) -> bool:
        """Whether this model and these placebos could show mitigation at all."""
        return not self.outcome.startswith("untestable")

    @property
    def verdict(self) -> str:
        """In words."""
        count, alpha = len(self.placebos), 1 - self.gain.interval.level
        amount = (
            ""
            if self.effective is None
            else f" that amount to {self.effective:.3g} independent ones"
        )
        told = f"{count} placebos{amount}, {_p_told(self.p)}"
        if self.outcome == NO_EFFECT:
            return f"{NO_EFFECT} ({self.base}); mitigation cannot be tested on this model"
        if self.outcome == TOO_FEW:
            needed = needed_placebos(alpha, self.p.family or 1)
            of = f" of the best of {self.p.family} settings" if self.p.family else ""
            return f"{TOO_FEW} ({count}; a p of {alpha:.2g}{of} needs {needed})"
        if self.outcome == DEPENDENT:
            return (
                f"{DEPENDENT} ({count} amount to {self.effective:.3g} over {self.gain.n} items, "
                f"{needed_placebos(alpha)} are needed); mitigation cannot be tested on this model"
            )
        if self.turned:
            return f"not shown to mitigate: {TURNED} ({told})"
        if self.mitigates:
            return f"mitigates: gains more than placebos do ({told})"
        if self.beyond_placebos and self.alike >= SAME:
            same = f"correlation {self.alike:.2f}, item by item"
            return f"not shown to mitigate: placebos do what the edit does ({same}; {told})"
        if self.beyond_placebos:
            return f"gains more than placebos do ({told}), and not shown for other items than these"
        return f"not shown to mitigate: placebos gain as much ({told})"


def refuse_few(placebos: int, least: int) -> None:
    """Refuse to judge by fewer placebos than were wanted."""
    if placebos < max(least, 1):
        raise LevelheadError(
            f"{placebos} placebos say little: chance is judged by them",
            mend=f"give at least {max(least, 1)}, or fewer by least=",
        )


def judged(
    measure: Measure,
    base: Readouts,
    edited: Readouts,
    placebos: Sequence[Readouts],
    *,
    inference: Inference = Inference(),
    aspect: str | None = None,
    by: By = "parity",
    least: int = LEAST,
    among: int = 1,
    draws: int | None = None,
) -> Judged:
    """Judge an edit by its placebos. No model is run.

    Args:
        measure: of bias.
        base: what the model said.
        edited: what the edited model said.
        placebos: what the model said with each placebo edit.
        inference: seed and level.
        aspect: another formula of the measure than its headline, such as SEAT's "difference of
            means", which has a scale.
        by: what a gain is: nearer to parity, or a smaller value (mitigate/evaluation/gain.py).
        least: placebos below which nothing is judged.
        among: of how many settings the edit was chosen as the best, on other items. Its placebos
            had no such choice, so p is corrected.
        draws: of the units; by default those of `inference`, at most 999.
    """
    refuse_few(len(placebos), least)
    formula = measure.headline if aspect is None else measure.aspect(aspect)
    readouts, dropped = shared([base, edited, *placebos])
    found = redrawn(
        measure, readouts, bias_of(formula, by), aspect=formula, inference=inference, draws=draws
    )
    plain = redrawn(
        measure, readouts[:2], formula.over, aspect=formula, inference=inference, draws=draws
    )
    gain = one(found.effects([0]), f"gain of {formula.name}", formula.unit)
    gains = found.effects(range(1, len(placebos) + 1))
    p = placebo_p(gain.value, gains.values, among=among)
    quantile = float(np.quantile(gains.values, inference.level, method="higher"))
    tested = p.value if p.adjusted is None else p.adjusted
    beyond = gain.value > max(quantile, 0.0) and tested <= 1 - inference.level + 1e-12
    shares, notes = _called(gains, inference.level)
    changes = _changes([formula.per_item(each).detach().numpy() for each in readouts])
    alike = _alike(changes)
    base_bias, turned = _sides(measure, readouts[:2], formula, inference, draws)
    drafted = Judged(
        measure=measure.name,
        gain=gain,
        change=_change(plain.effects([0], way=-1), formula.name, formula.unit),
        placebos=tuple(gains.values.tolist()),
        quantile=quantile,
        p=p,
        base=base_bias,
        effective=effective_number(changes[1:]),
        turned=turned,
        beyond_placebos=beyond,
        alike=alike,
        mitigates=beyond and alike < SAME and gain.interval.low > 0 and not turned,
        significant=shares[0],
        significant_gains=shares[1],
        dropped=dropped,
        notes=notes,
    )
    # What cannot be tested mitigates nothing, whatever the numbers are.
    return drafted if drafted.is_testable else drafted.model_copy(update={"mitigates": False})


def _base_effect(found: Redrawn, name: str, unit: str) -> Estimate:
    """The signed distance of a model from parity, redrawn, with its two-sided test.

    Args:
        found: the signed formula of the model (first), of units redrawn.
        name: of the measure.
        unit: of the value.
    """
    alone = Effects(
        values=found.whole[:1],
        draws=found.draws[:, :1],
        base=found.draws[:, 0],
        design=found.design,
        level=found.level,
        items=found.items,
    )
    if not alone.errors[0] > 0:
        raise NotMeasurable(
            f"{name} of the model has no spread: whether it is biased cannot be tested",
            mend="give items that differ",
        )
    (estimate,) = alone.estimates([f"{name} of the base, from parity"], unit=unit)
    assert estimate is not None  # noqa: S101  # its error is above 0
    return estimate


def estimate_base_effect(
    measure: Measure, base: Readouts, *, inference: Inference
) -> Estimate | None:
    """The signed distance of a model from parity, tested two-sided.

    None of a measure without another side: prices, and values that cannot be below their parity.

    Args:
        measure: of bias.
        base: what the model said.
        inference: seed and level.
    """
    head = measure.headline
    sided = sided_of(head)
    if sided is None:
        return None
    found = redrawn(measure, [base], sided, aspect=head, inference=inference)
    return _base_effect(found, head.name, head.unit)


def has_no_effect(base: Estimate | None) -> bool:
    """Whether a model that was tested shows no bias: then no mitigation can be tested on it."""
    return base is not None and not _is_shown(base)


def _is_shown(base: Estimate) -> bool:
    # Two-sided: a bias to either side is one that an edit may reduce.
    return base.p is not None and base.p.value <= 1 - base.interval.level + 1e-12


def _sides(
    measure: Measure,
    readouts: Sequence[Readouts],
    formula: Aspect,
    inference: Inference,
    draws: int | None,
) -> tuple[Estimate | None, bool]:
    """The base's signed distance from parity, and whether the edit turns it to the other side.

    By the sign even where a gain is a smaller value: a smaller Strength of a model that leans the
    other way as far is no reduction.
    """
    sided = sided_of(formula)
    if sided is None:
        return None, False
    found = redrawn(measure, readouts, sided, aspect=formula, inference=inference, draws=draws)
    return _base_effect(found, formula.name, formula.unit), is_turned(measure, readouts, formula)


def is_turned(measure: Measure, readouts: Sequence[Readouts], formula: Aspect) -> bool:
    """Whether an edited model lies on the other side of parity, at least as far as its base.

    Args:
        measure: of bias.
        readouts: what the model and the edited model said to the same items.
        formula: of the measure.
    """
    sided = sided_of(formula)
    if sided is None:
        return False
    design = measure.design(readouts[0], formula)
    before, after = (float(sided(formula.per_item(own).detach(), design.whole)) for own in readouts)
    return before * after < 0 and abs(after) >= abs(before)


def _p_told(p: PValue) -> str:
    if p.adjusted is None:
        return f"p {p.value:.3g}"
    return f"p at most {p.adjusted:.3g} for the best of {p.family} settings ({p.value:.3g} for one)"


def one(found: Effects, name: str, unit: str) -> Estimate:
    """The estimate of a single effect; refused where an edit changes nothing."""
    if not found.errors[0] > 0:
        raise NotMeasurable(
            f"{name}: the edit changes nothing, or all items alike",
            mend="check the edit: one without effect is no edit",
        )
    (estimate,) = found.estimates([name], unit=unit)
    if estimate is None:
        raise NotMeasurable(f"{name}: no spread", mend="give more items")
    return estimate


def placebo_p(
    value: float, placebos: Sequence[float] | NDArray[np.float64], *, among: int = 1
) -> PValue:
    """The one-sided p-value of a gain among those of placebos; one that gains as much counts.

    One-sided by design: the claim is a gain, that is a smaller distance from parity, and an edit
    that gains less than its placebos is not shown to mitigate.

    Args:
        value: what the edit gains.
        placebos: what each of them gains.
        among: of how many settings the edit was chosen as the best on other items. If no setting
            does more than a placebo, the p of each is uniform, and that of the chosen one is at
            least the smallest of them: times their number it is an upper bound.

    >>> placebo_p(3.0, [1.0, 3.0, 4.0]).value
    0.75
    >>> placebo_p(3.0, [1.0] * 199, among=4).adjusted
    0.02
    """
    reached = int((np.asarray(placebos) >= value - ROUNDING * abs(value)).sum())
    p = (reached + 1) / (len(placebos) + 1)
    told = {
        "adjusted": min(1.0, among * p),
        "correction": "bonferroni over the settings chosen among",
        "family": among,
    }
    return PValue(
        value=p,
        method="placebo edits, one-sided for a gain",
        alternative="greater",
        draws=len(placebos),
        **(told if among > 1 else {}),  # type: ignore[arg-type]
    )


def _changes(items: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """`[1 + placebos, items]`: what the edit, first, and each placebo change of every item."""
    base, *edited = (own.reshape(len(own), -1).mean(axis=1) for own in items)
    return np.stack([own - base for own in edited])


def _alike(changes: NDArray[np.float64]) -> float:
    """How far placebos change the same items in the same way as the edit."""
    moved = changes[1:][changes[1:].std(axis=1) > 0]
    if not len(moved) or not changes[0].std() > 0:
        return 0.0
    return float(np.median([np.corrcoef(changes[0], own)[0, 1] for own in moved]))


def _change(found: Effects, name: str, unit: str) -> Estimate | None:
    return one(found, f"change of {name}", unit) if found.errors[0] > 0 else None


def _called(gains: Effects, level: float) -> tuple[tuple[Estimate, Estimate], tuple[str, ...]]:
    """The shares of placebos that a paired test calls an effect, and a gain."""
    count = len(gains.values)
    idle = int((gains.errors == 0).sum())
    if idle == count:
        raise NotMeasurable(
            "no placebo changes the measure: they are no control",
            mend="check the placebo edits, and that they act on the sites of the edit",
        )
    tests = [each for each in gains.estimates([""] * count) if each is not None and each.p]
    alpha = 1 - level + 1e-12
    hits = [each for each in tests if each.p is not None and each.p.value <= alpha]

    def share(name: str, number: int) -> Estimate:
        interval = proportion_interval(number, count, level=level)
        return Estimate(name=name, value=number / count, interval=interval, n=count)

    told = (f"{idle} of {count} placebos change nothing; they count as not significant",)
    return (
        share("placebos that a paired test calls an effect", len(hits)),
        share("placebos that a paired test calls a gain", sum(each.value > 0 for each in hits)),
    ), (told if idle else ())
