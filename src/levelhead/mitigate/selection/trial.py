"""Candidates judged: on dev all of them together, on test the one that was chosen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from levelhead.measures.classification.controlled_difference import Excess
from levelhead.measures.inference import estimate
from levelhead.mitigate.controls.placebo_test import one as estimate_of
from levelhead.mitigate.evaluation.gain import redrawn, shared
from levelhead.mitigate.evaluation.sweep import said
from levelhead.mitigate.evaluation.variant_responses import Said, biases
from levelhead.mitigate.selection.selection_report import OnTest, Tried
from levelhead.mitigate.selection.simultaneous_bounds import loss, lower_bounds, measurable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from levelhead.core.results import Dropped, Estimate
    from levelhead.core.run_context import Inference, RunContext
    from levelhead.measures.base import Measure
    from levelhead.measures.metric import Worse
    from levelhead.mitigate.selection.candidates import Candidates
    from levelhead.models.forward.edit_sweep import Edits
    from levelhead.models.lm import LM

Losses = tuple[tuple[str, tuple["Dropped", ...]], ...]
"""What was dropped, by what it was dropped from."""


class Told(NamedTuple):
    """What a measure was told, and the candidates it could not use."""

    said: Said
    without: dict[str, str]


class Trial(NamedTuple):
    """How chance is judged, and what may be paid."""

    inference: Inference
    worse: Worse | None
    keep: float | None
    most: float | None

    def read(
        self, lm: LM, measure: Measure, edits: Mapping[str, Edits], context: RunContext
    ) -> Told:
        """The model and the candidates, asked together."""
        found = said(lm, measure, edits, context=context)
        kept, without = measurable(found)
        reason = "acts behind all that is read"
        return Told(kept, without | dict.fromkeys(found.behind, reason))

    def of_base(self, own: Said) -> Estimate:
        """A measure of the model as it is."""
        head = own.measure.headline
        values = head.per_item(own.base)
        return estimate(
            self.inference, head, values, own.measure.design(own.base, head), tested=False
        )

    def allowed(self, price: Said) -> float:
        """The largest loss that may be paid, of the price of these items."""
        if self.most is not None or self.keep is None:
            return self.most or 0.0
        return (1 - self.keep) * abs(self.of_base(price).value)

    def on_dev(
        self, tried: Candidates, gained: Told, paid: Told
    ) -> tuple[tuple[Tried, ...], Losses]:
        """Every candidate's gain, bound and loss; and what was dropped."""
        names = [name for name in gained.said.settings if name in paid.said.settings]
        gains: dict[str, tuple[Estimate | None, float]] = {}
        lost: tuple[Dropped, ...] = ()
        if names:
            found, lost = biases(gained.said, names, self.inference, None)
            effects = found.effects()
            head = gained.said.measure.headline
            several = (
                effects.estimates([f"gain of {own}" for own in names], unit=head.unit)
                if (effects.errors > 0).any()
                else (None,) * len(names)
            )
            bounds = np.minimum(lower_bounds(effects), self._falls(gained.said, names)).tolist()
            gains = dict(zip(names, zip(several, bounds, strict=True), strict=True))
        most = self.allowed(paid.said)
        rows = []
        for one in tried.some:
            about = {"name": one.name, "kind": one.kind, "about": one.about}
            why = gained.without.get(one.name) or paid.without.get(one.name)
            if why is not None:
                rows.append(Tried(why_not=f"not measurable: {why}", **about))  # type: ignore[arg-type]
                continue
            gain, low = gains[one.name]
            cost = loss(paid.said, one.name, worse=self.worse, inference=self.inference)
            rows.append(
                Tried(
                    gain=gain,
                    low=low if gain is not None and math.isfinite(low) else None,
                    loss=cost,
                    why_not=_against(gain, low, cost, most),
                    **about,  # type: ignore[arg-type]
                )
            )
        return tuple(rows), (
            ("dev", lost or _dropped(gained.said)),
            ("price on dev", _dropped(paid.said)),
        )

    def on_test(self, name: str, gained: Told, paid: Told) -> tuple[OnTest, Losses]:
        """The chosen candidate, once."""
        gain = cost = None
        most = self.allowed(paid.said)
        gains = keeps = False
        lost = _dropped(gained.said)
        if name in gained.said.settings:
            found, lost = biases(gained.said, [name], self.inference, None)
            effects = found.effects()
            if effects.errors[0] > 0:
                gain = estimate_of(
                    effects, f"gain of {name} on test", gained.said.measure.headline.unit
                )
                falls = float(self._falls(gained.said, [name])[0])
                gains = gain.interval.low > 0 and falls > 0
        if name in paid.said.settings:
            cost = loss(paid.said, name, worse=self.worse, inference=self.inference)
            keeps = cost is None or cost.interval.high <= most
        told = OnTest(gain=gain, loss=cost, most=most, gains=gains, keeps=keeps)
        return told, (("test", lost), ("price on test", _dropped(paid.said)))

    def _falls(self, own: Said, names: Sequence[str]) -> NDArray[np.float64]:
        """`[k]` lower bounds of what a difference's first part falls by; inf without a part.

        A difference also shrinks where its second part grows: that is no gain.
        """
        if not isinstance(own.measure, Excess):
            return np.full(len(names), np.inf)
        part = own.measure.part
        readouts, _ = shared([own.base, *(own.settings[name] for name in names)])
        found = redrawn(own.measure, readouts, part.over, aspect=part, inference=self.inference)
        return lower_bounds(found.effects())


def _dropped(own: Said) -> tuple[Dropped, ...]:
    return shared([own.base, *own.settings.values()])[1]


def _against(gain: Estimate | None, low: float, cost: Estimate | None, most: float) -> str:
    """Why a candidate may not be chosen."""
    reasons = []
    if gain is None:
        reasons.append("changes nothing")
    elif low == -math.inf:
        reasons.append("no gain shown: what the bias is made of does not change")
    elif low <= 0:
        reasons.append(f"no gain shown: the lower bound is {low:.4g}")
    if cost is not None and cost.interval.high > most:
        reasons.append(f"may cost {cost.interval.high:.4g}, and {most:.4g} may be paid")
    return "; ".join(reasons)
