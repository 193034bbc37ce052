"""Less bias, or less confidence? The base at the temperature that makes it as unsure as the edit.

An edit that makes a classifier unsure of everything lowers every difference of probabilities, bias
among them. So the base's log-odds are divided by the temperature at which their mean size equals
the edited model's (Guo et al. 2017, section 4.2, used here as a control); mitigation beyond that is
what the edit gains over the tempered base.

A temperature knows no offset: a classifier that says much the same of everything, and says it with
confidence, is no less sure than before, and shows as little of a difference. So the edit must gain
over a second base, too: the one with its log-odds shifted and scaled to the edited model's mean
and spread.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import torch
from pydantic import Field

from levelhead.core.errors import NotMeasurable
from levelhead.core.results import Dropped, Estimate, PValue, Record
from levelhead.core.run_context import Inference
from levelhead.mitigate.controls.placebo_test import one, placebo_p
from levelhead.mitigate.evaluation.gain import bias_of, redrawn, shared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.measures.base import Measure
    from levelhead.measures.metric import Aspect
    from levelhead.measures.responses import Readouts

SUMS_TO_ONE = 1e-3
"""By how much the probabilities of the two classes may miss 1."""


class Collapse(Record):
    """What of a gain is lost confidence, and what is left beyond it."""

    measure: str
    confidence: tuple[float, float]
    """The mean |log-odds| of the base and of the edited model."""
    temperature: Annotated[float, Field(gt=0)]
    """Above 1: the edited model is less sure. Found on all items, held when they are redrawn."""
    of_tempering: Estimate | None = None
    """What the base gains by the temperature alone; None: nothing."""
    gain: Estimate | None = None
    """What the edit gains over the tempered base, paired; None: it answers as that does."""
    over_alike: Estimate | None = None
    """What it gains over the base shifted and scaled to its mean and spread; None: nothing."""
    p: PValue | None = None
    """That a placebo gains as much over its own tempered base; None without placebos."""
    beyond: bool
    """The intervals of both gains lie above 0 and, where there are placebos, p says the same."""
    dropped: tuple[Dropped, ...] = ()

    @property
    def verdict(self) -> str:
        """In words."""
        told = f"temperature {self.temperature:.3g}"
        if self.beyond:
            return f"mitigates beyond lost confidence ({told})"
        if not _above(self.over_alike) and _above(self.gain):
            return "no mitigation shown beyond a shift and a scale of all log-odds"
        return f"no mitigation shown beyond lost confidence ({told})"


def temperature(base: Readouts, edited: Readouts) -> float:
    """The T at which mean |log-odds / T| of the base is mean |log-odds| of the edited model.

    A ratio of the two means, since a temperature divides every log-odds alike.
    """
    before, after = (float(_log_odds(own).abs().mean()) for own in (base, edited))
    if not after > 0 or not before > 0:
        raise NotMeasurable(
            f"the mean |log-odds| is {before:.3g} before and {after:.3g} after the edit: a model "
            "that decides nothing has no temperature",
            mend="check the edit; a classifier that says the same of everything shows no parity",
        )
    return before / after


def at_temperature(readouts: Readouts, degree: float) -> Readouts:
    """The readouts with every log-odds divided by a temperature."""
    return _with(readouts, _log_odds(readouts) / degree)


def made_alike(base: Readouts, edited: Readouts) -> Readouts:
    """The base with its log-odds shifted and scaled to the edited model's mean and spread."""
    before, after = _log_odds(base), _log_odds(edited)
    spread = before.std(correction=0)
    scale = after.std(correction=0) / spread if spread > 0 else 0.0
    return _with(base, (before - before.mean()) * scale + after.mean())


def tempered(
    measure: Measure,
    base: Readouts,
    edited: Readouts,
    placebos: Sequence[Readouts] = (),
    *,
    inference: Inference = Inference(),
    aspect: str | None = None,
    draws: int | None = None,
) -> Collapse:
    """What an edit gains beyond lost confidence. No model is run.

    Args:
        measure: of bias, from log-probabilities of two classes.
        base: what the model said.
        edited: what the edited model said.
        placebos: what the model said with placebo edits, each of which is compared with the base
            at a temperature of its own.
        inference: seed and level.
        aspect: another formula of the measure than its headline.
        draws: of the units; by default those of `inference`, at most 999.
    """
    formula = measure.headline if aspect is None else measure.aspect(aspect)
    readouts, dropped = shared([base, edited, *placebos])
    before, after, *others = readouts
    degree = temperature(before, after)
    cooled = at_temperature(before, degree)
    found = redrawn(
        measure,
        [cooled, after, before],
        bias_of(formula),
        aspect=formula,
        inference=inference,
        draws=draws,
    )
    moved = found.effects().errors > 0
    gain = one(found.effects([0]), "gain beyond confidence", formula.unit) if moved[0] else None
    alone = found.effects([1], way=-1)
    alike = [made_alike(before, after), after]
    over = redrawn(
        measure, alike, bias_of(formula), aspect=formula, inference=inference, draws=draws
    ).effects()
    over_alike = None
    if over.errors[0] > 0:
        over_alike = one(over, "gain over a base shifted and scaled", formula.unit)
    p = None
    if others:
        value = 0.0 if gain is None else gain.value
        p = placebo_p(value, [_beyond(measure, formula, before, each) for each in others])
    return Collapse(
        measure=measure.name,
        confidence=tuple(float(_log_odds(own).abs().mean()) for own in (before, after)),  # type: ignore[arg-type]
        temperature=degree,
        of_tempering=one(alone, "gain of tempering", formula.unit) if moved[1] else None,
        gain=gain,
        over_alike=over_alike,
        p=p,
        beyond=_above(gain)
        and _above(over_alike)
        and (p is None or p.value <= 1 - inference.level + 1e-12),
        dropped=dropped,
    )


def _beyond(measure: Measure, formula: Aspect, base: Readouts, edited: Readouts) -> float:
    """What one edit gains over the base at its temperature."""
    design, over = measure.design(base, formula), bias_of(formula)
    cooled = at_temperature(base, temperature(base, edited))
    before, after = (float(over(formula.per_item(own), design.whole)) for own in (cooled, edited))
    return before - after


def of_two_classes(readouts: Readouts) -> bool:
    """Whether readouts are log-probabilities of two classes: others have no temperature."""
    values = readouts.values.detach()
    if values.dim() != 3 or values.shape[2] != 2:
        return False
    miss = (torch.logsumexp(values, dim=2).exp() - 1).abs().max()
    return float(miss) <= SUMS_TO_ONE


def _above(gain: Estimate | None) -> bool:
    """Whether a gain's interval lies above 0."""
    return gain is not None and gain.interval.low > 0


def _with(readouts: Readouts, odds: torch.Tensor) -> Readouts:
    """The readouts with other log-odds of their first class."""
    values = torch.nn.functional.logsigmoid(torch.stack([odds, -odds], dim=-1))
    return replace(readouts, values=values)


def _log_odds(readouts: Readouts) -> torch.Tensor:
    """`[items, asks]` of the first class; anything but two classes is refused."""
    values = readouts.values.detach()
    if of_two_classes(readouts):
        return values[..., 0] - values[..., 1]
    raise NotMeasurable(
        f"readouts of shape {list(values.shape)} are no log-probabilities of two classes",
        mend="a temperature needs a measure that asks whether sentences follow, such as strength "
        "or distance, or a classifier of two classes",
    )
