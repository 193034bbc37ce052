"""Choose among many settings, honestly: on dev; reported once, on items it was not chosen on.

The best of 74 settings looks good on the items it was chosen on even if none does anything: the
choice uses the noise. So three numbers stand side by side: the gain on dev as it looks; what the
best of as many gains on dev items that the choice did not see (in every resample the best by the
items drawn, judged by those left out; Efron and Tibshirani 1997, "Improvements on
cross-validation", leave-one-out bootstrap); and the gain of the one chosen on test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field
from scipy import stats

from levelhead.core.calibration import Ruler
from levelhead.core.errors import LevelheadError
from levelhead.core.results import Dropped, Estimate, Interval, Probability, Provenance, Record
from levelhead.core.run_context import Inference
from levelhead.mitigate.controls.placebo_test import (
    NO_EFFECT,
    TURNED,
    estimate_base_effect,
    has_no_effect,
    is_turned,
    one,
)
from levelhead.mitigate.evaluation.gain import By, redrawn, shared
from levelhead.mitigate.evaluation.pareto import Front, front
from levelhead.mitigate.evaluation.rank_stability import Agreement, agreement
from levelhead.mitigate.evaluation.variant_responses import (
    biases,
    first_best,
    names_of,
    prices,
    within,
)
from levelhead.stats.power import minimum_detectable_effect

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from levelhead.measures.metric import Worse
    from levelhead.mitigate.evaluation.gain import Redrawn
    from levelhead.mitigate.evaluation.variant_responses import Said


class Choice(Record):
    """A setting chosen on dev, and what it does elsewhere."""

    by: By = "parity"
    """What a gain is: nearer to parity, or a smaller value."""
    chosen: str | None
    """The largest gain on dev among those within the price; None: none of them gains."""
    settings: Annotated[int, Field(ge=1)]
    considered: Annotated[int, Field(ge=0)]
    """Within the price."""
    picked: Probability | None = None
    """The share of resamples of dev in which the same setting is the best."""
    on_dev: Estimate | None = None
    """Its gain on the items it was chosen on: too good."""
    corrected: Estimate | None = None
    """What the best of as many settings gains on items that it was not chosen on, from dev."""
    optimism: float | None = None
    """By how much the gain on dev is larger than that."""
    base: Estimate | None = None
    """The model itself on test, from parity, tested two-sided; None of measures without another
    side. Without an effect of its own no gain is mitigation."""
    on_test: Estimate | None = None
    """Its gain on test: the number to report."""
    change: Estimate | None = None
    """Edited less base of the value itself, on test; None if it does not change."""
    price: Estimate | None = None
    """By how much the price rises; above 0 is worse."""
    agreement: tuple[Agreement, ...] = ()
    """Of all settings on dev and test, where test holds them all."""
    front: Front | None = None
    """Gain on dev against price."""
    unpriced: tuple[str, ...] = ()
    """Settings that act behind all that the price reads: not on the front, nor within a limit."""
    dropped_dev: tuple[Dropped, ...] = ()
    dropped_test: tuple[Dropped, ...] = ()
    notes: tuple[str, ...] = ()
    measured_by: Ruler | None = None
    """What it is measured by."""
    provenance: tuple[Provenance, ...] = ()
    """Of what was asked on dev, on test, and of the prices."""


def choose(
    dev: Said,
    test: Said,
    *,
    price: Said | None = None,
    price_test: Said | None = None,
    most: float | None = None,
    worse: Worse | None = None,
    inference: Inference = Inference(),
    draws: int | None = None,
) -> Choice:
    """Choose on dev, report on test. No model is run.

    Args:
        dev: a measure of bias, of all settings.
        test: the same measure on other items, of the setting that `best` names or of all.
        price: what settings cost.
        price_test: the same on other items; by default it is told of those it was chosen on.
        most: by how much the price may rise; by default by any amount.
        worse: which way the price is worse, where its name does not tell.
        inference: seed and level.
        draws: of the units; by default those of `inference`, at most 999.
    """
    names = names_of(dev)
    known = _refuse_same(dev, test)
    base = estimate_base_effect(test.measure, test.base, inference=inference)
    if has_no_effect(base):
        known = (*known, f"{NO_EFFECT} on test ({base}): no gain can be shown to be mitigation")
    cheap = within(names, price, most, worse)
    found, dropped = biases(dev, names, inference, draws, left=True)
    gains = found.effects()
    told: dict[str, object] = {
        "by": dev.by,
        "settings": len(names),
        "considered": int(cheap.sum()),
        "base": base,
        "dropped_dev": dropped,
        "measured_by": dev.measured_by,
        "provenance": tuple(
            own.judged_by(inference)
            for own in (dev, test, price, price_test)
            if own is not None and own.asked_of is not None
        ),
    }
    if price is not None:
        told["unpriced"] = tuple(name for name in names if name in price.behind)
        told["front"] = _front(dev, price, found, worse, inference, draws)
    name = first_best(names, gains.values, cheap)
    if name is None:
        why = "no setting within the price gains anything on dev"
        return Choice(chosen=None, notes=(why, *known), **told)  # type: ignore[arg-type]
    place = names.index(name)
    unit = dev.measure.headline.unit
    on_dev = one(found.effects([place]), f"gain of {name} on dev", unit)
    corrected, picked = _corrected(found, cheap, place, unit)
    if name in test.settings and is_turned(
        test.measure, shared([test.base, test.settings[name]])[0], test.measure.headline
    ):
        # By value it may look like a gain: a smaller Strength of a model that leans the other way.
        known = (*known, TURNED)
    return Choice(
        chosen=name,
        picked=picked,
        on_dev=on_dev,
        corrected=corrected,
        optimism=on_dev.value - corrected.value,
        **_on_test(dev, test, name, found, inference, draws),  # type: ignore[arg-type]
        **_paid(price, price_test, name, worse, inference, draws, known),  # type: ignore[arg-type]
        **told,  # type: ignore[arg-type]
    )


def _front(
    dev: Said,
    price: Said,
    found: Redrawn,
    worse: Worse | None,
    inference: Inference,
    draws: int | None,
) -> Front | None:
    """Gain against price, of the settings that the price sees."""
    places = [i for i, name in enumerate(dev.settings) if name not in price.behind]
    if not places:
        return None
    names = [tuple(dev.settings)[i] for i in places]
    paid = prices(price, names, worse, inference, draws).effects(way=-1)
    units = (dev.measure.headline.unit, price.measure.headline.unit)
    return front(names, found.effects(places), paid, units=units)


def _on_test(
    dev: Said, test: Said, name: str, found: Redrawn, inference: Inference, draws: int | None
) -> dict[str, object]:
    """The gain on test of the chosen setting, and how far all settings rank alike."""
    if name not in test.settings:
        raise LevelheadError(
            f"test does not hold {name!r}, which dev chooses",
            mend="ask best(dev) which it is, and read that setting on test",
        )
    head = test.measure.headline
    every = all(own in test.settings for own in dev.settings)
    # The number to report must not depend on what the other settings could read.
    alone, dropped = biases(test, [name], inference, draws)
    (base, own), _ = shared([test.base, test.settings[name]])
    plain = redrawn(
        test.measure, [base, own], head.over, aspect=head, inference=inference, draws=draws
    ).effects(way=-1)
    told: dict[str, object] = {
        "on_test": one(alone.effects(), f"gain of {name} on test", head.unit),
        "change": one(plain, f"change of {head.name}", head.unit) if plain.errors[0] > 0 else None,
        "dropped_test": dropped,
    }
    if every and len(dev.settings) > 1:
        both, _ = biases(test, tuple(dev.settings), inference, draws)
        told["agreement"] = agreement(found.effects(), both.effects())
    return told


def _paid(
    price: Said | None,
    price_test: Said | None,
    name: str,
    worse: Worse | None,
    inference: Inference,
    draws: int | None,
    known: tuple[str, ...],
) -> dict[str, object]:
    """What the chosen setting costs, and of which items that is."""
    told = price_test or price
    if told is None:
        return {"notes": (*known, "no price was asked: what the edit costs is not known")}
    if name in told.behind:
        why = f"{name} acts behind all that the price reads: what it costs is not known"
        return {"notes": (*known, why)}
    if name not in told.settings:
        raise LevelheadError(f"the price of {name!r} was not read", mend="read it for the chosen")
    paid = prices(told, [name], worse, inference, draws).effects(way=-1)
    own = () if price_test else ("the price is of the items on which settings were chosen",)
    notes = (*known, *own)
    unit = told.measure.headline.unit
    if not paid.errors[0] > 0:
        return {"notes": (*notes, "the price does not change at all")}
    return {"price": one(paid, f"price of {name}", unit), "notes": notes}


def _corrected(
    found: Redrawn, cheap: NDArray[np.bool_], place: int, unit: str
) -> tuple[Estimate, float]:
    """The mean gain, on units left out, of the best by the units drawn; how often it is `place`.

    Its standard error is taken as the mean of those of the settings picked: as if they all moved
    together, which is wide rather than narrow. On the units left out a distance from parity has
    the side that the units drawn found (`Redrawn.left`), so that noise adds to neither.
    """
    effects = found.effects()
    # The base, last, gains nothing: it is picked where nothing gains, as by the whole choice.
    drawn = np.where(cheap, effects.draws, -np.inf)
    picked = np.where(drawn.max(axis=1) > 0, drawn.argmax(axis=1), -1)
    rows = np.arange(len(picked))
    left = found.left[rows, 0] - found.left[rows, 1 + picked]
    (factor,) = found.design.factors
    value, error = float(left.mean()), float(effects.errors[picked[picked >= 0]].mean())
    reach = float(stats.t.ppf((1 + found.level) / 2, factor.df)) * error
    estimate = Estimate(
        name=f"gain of the best of {int(cheap.sum())} on items left out",
        value=value,
        interval=Interval(
            low=value - reach,
            high=value + reach,
            level=found.level,
            method=f"out of bag, t, {effects.told}",
        ),
        parity=0.0,
        n=found.design.items,
        unit=unit,
        detectable=minimum_detectable_effect(error, factor.df),
    )
    return estimate, float((picked == place).mean())


def _refuse_same(dev: Said, test: Said) -> tuple[str, ...]:
    """Refuse to report on items that the choice has seen; tell of units that it has."""
    if (dev.measure.name, dev.by) != (test.measure.name, test.by):
        raise LevelheadError(
            f"chosen by {dev.measure.name} and reported by {test.measure.name}",
            mend="give one measure and one kind of gain, on dev and on test",
        )
    first, second = dev.measure.sampled(dev.base), test.measure.sampled(test.base)
    seen = {item.id for item in first.items}
    again = [item.id for item in second.items if item.id in seen]
    if again:
        raise LevelheadError(
            f"{len(again)} items of test are in dev ({again[0]}): a choice is not to be reported "
            "on items it has seen",
            mend="split the items before choosing",
        )
    notes = []
    for i, name in enumerate(second.factors):
        own = {item.units[i] for item in second.items}
        both = own & {item.units[i] for item in first.items}
        if both:
            notes.append(
                f"{len(both)} of {len(own)} {name} of test are in dev too, with other items: the "
                "report is not all of new ones"
            )
    return tuple(notes)
