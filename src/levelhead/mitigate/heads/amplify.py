"""Amplify the heads that take from the bias, instead of masking those that add to it.

What Yang et al. 2025 leave open: their anti-bias heads. Which heads and by how much is chosen on
the find half, among settings that cost no more than masking does there; what it does is judged on
the confirm half, beside masking.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from levelhead.core.calibration import Ruler
from levelhead.core.errors import NotMeasurable
from levelhead.core.results import Estimate, Record
from levelhead.core.run_context import Inference, RunContext
from levelhead.locate.attribution.ablation import Variant
from levelhead.locate.attribution.variants import vary
from levelhead.locate.effects import effects
from levelhead.locate.head_map import label
from levelhead.locate.validation.split import halves
from levelhead.mitigate.evaluation.gain import bias_of, paid_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.locate.attribution.variants import Variants
    from levelhead.locate.head_map import HeadMap
    from levelhead.locate.validation.split import Split
    from levelhead.measures.base import Measure
    from levelhead.measures.metric import Aspect, Over
    from levelhead.models.lm import LM


class Setting(Record):
    """Some heads scaled, and what it did on the find half."""

    heads: tuple[str, ...]
    factor: float
    gain: float
    """By how much the measure came nearer to parity, or fell if it has none."""
    price: float
    """By how much the price rose."""


class Amplified(Record):
    """Amplifying beside masking."""

    masking: Setting
    tried: tuple[Setting, ...]
    chosen: Setting | None
    """The largest gain among those that cost no more than masking, on the find half."""
    gain: Estimate | None = None
    """Of the chosen setting, on the confirm half."""
    masking_gain: Estimate
    price: Estimate | None = None
    masking_price: Estimate
    difference: Estimate | None = None
    """Gain of amplifying less gain of masking, on the confirm half."""
    notes: tuple[str, ...] = ()
    measured_by: Ruler | None = None
    """What it is measured by."""


class _Halves(NamedTuple):
    measure: Measure
    formula: Aspect
    """What is to fall."""
    varied: Variants
    cut: Split

    def fall(self, number: int) -> float:
        """By how much it falls on the find half."""
        several = (self.cut.find.varied(self.varied, one) for one in (None, number))
        before, after = (
            float(self.formula.value(own, self.measure.design(own, self.formula)))
            for own in several
        )
        return before - after

    def judged(self, numbers: Sequence[int | None], inference: Inference, name: str) -> Estimate:
        """What the measure loses from the first to the second, on the confirm half."""
        first, second = (self.cut.confirm.varied(self.varied, number) for number in numbers)
        found = effects(
            self.measure,
            first,
            [second],
            sign=1,
            inference=inference,
            name=name,
            aspect=self.formula,
        )
        (estimate,) = found.estimates([name], unit=self.measure.headline.unit)
        if estimate is None:
            raise NotMeasurable(f"{name}: nothing changes", mend="check the heads")
        return estimate


def amplify(
    lm: LM,
    heads: HeadMap,
    measure: Measure,
    price: Measure,
    *,
    k: int = 3,
    ks: Sequence[int] = (1, 3, 5),
    factors: Sequence[float] = (1.5, 2.0, 3.0),
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> Amplified:
    """Choose heads and a factor, and compare with masking the top k.

    Args:
        lm: the model that was located.
        heads: its map.
        measure: the measure of the map.
        price: what an edit costs, such as pppl; its headline says which way is worse.
        k: heads that masking masks.
        ks: how many of the most negative heads are amplified.
        factors: by how much.
        inference: seed, resamples and level.
        context: store, threads, progress and cancellation.
    """
    heads.refuse_other(lm)
    negative = heads.negative()
    grid = [(own, factor) for own, factor in product(ks, factors) if own <= len(negative)]
    variants = [Variant(heads.top(k))]
    variants += [Variant(negative[:own], factor) for own, factor in grid]

    def asked(one: Measure, over: Over, by: str) -> _Halves:
        readouts = one.read(lm, context=context)[0]
        cut = halves(one, readouts, by=by, seed=heads.halves.seed)  # type: ignore[arg-type]
        if one is measure:
            cut.refuse_one()
        varied = vary(
            lm,
            one,
            readouts,
            variants,
            blocks=cut.block,
            context=context,
        )
        return _Halves(one, replace(one.headline, over=over), varied, cut)

    paid = paid_by(price.headline)  # refuses what is no price before anything is asked
    gains = asked(measure, _bias(measure.headline, heads.direction.sign or 1), heads.halves.by)
    prices = asked(price, paid, "auto")
    settings = [
        Setting(
            heads=tuple(map(label, variant.sites)),
            factor=float(variant.factor or 0.0),
            gain=gains.fall(i),
            price=-prices.fall(i),
        )
        for i, variant in enumerate(variants)
    ]
    masking, tried = settings[0], settings[1:]
    cheap = [i for i, one in enumerate(tried, 1) if one.price <= max(masking.price, 0.0)]
    told = {
        "masking": masking,
        "tried": tuple(tried),
        "masking_gain": gains.judged((None, 0), inference, "gain of masking"),
        "masking_price": prices.judged((0, None), inference, "price of masking"),
        "measured_by": measure.ruler(lm),
    }
    if not cheap:
        why = "no amplification costs as little as masking on the find half"
        return Amplified(chosen=None, notes=(why,), **told)  # type: ignore[arg-type]
    best = max(cheap, key=lambda i: settings[i].gain)
    return Amplified(
        chosen=settings[best],
        gain=gains.judged((None, best), inference, "gain of amplifying"),
        price=prices.judged((best, None), inference, "price of amplifying"),
        difference=gains.judged((0, best), inference, "gain of amplifying less that of masking"),
        **told,  # type: ignore[arg-type]
    )


def _bias(head: Aspect, way: int) -> Over:
    """The distance from parity, beyond which it is bias again; without one, the map's way."""
    if head.parity is not None or head.lean is not None:
        return bias_of(head)
    return lambda values, draw: way * head.over(values, draw)
