"""Settings of a model that are chosen among: what each said, what it gains and what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from levelhead.core.errors import LevelheadError, NotMeasurable, UnknownName
from levelhead.core.frozen import Frozen
from levelhead.mitigate.evaluation.gain import bias_of, paid_by, redrawn, shared, sided_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from levelhead.core.calibration import Ruler
    from levelhead.core.results import Dropped, Provenance
    from levelhead.core.run_context import Inference
    from levelhead.measures.base import Measure
    from levelhead.measures.metric import Over, Worse
    from levelhead.measures.responses import Readouts
    from levelhead.mitigate.evaluation.gain import By, Redrawn


@final
@dataclass(frozen=True, eq=False)
class Said:
    """What a model and its settings said to the items of one measure."""

    measure: Measure
    base: Readouts
    settings: Mapping[str, Readouts]
    """By name, in an order that breaks ties."""
    by: By = "parity"
    """What a gain is (mitigate/evaluation/gain.py)."""
    measured_by: Ruler | None = None
    """The measure, asked of such a model."""
    behind: tuple[str, ...] = ()
    """Settings that act behind all that it reads: it says nothing of them."""
    asked_of: Provenance | None = None
    """The model, the measure and its items, and the edits of the settings."""

    def judged_by(self, inference: Inference) -> Provenance | None:
        """What a number that is inferred from it depends on."""
        if self.asked_of is None:
            return None
        own = {"by": self.by, "resamples": inference.resamples, "level": inference.level}
        settings = Frozen({**self.asked_of.settings, **own})
        return self.asked_of.model_copy(update={"seed": inference.seed, "settings": settings})


def best(
    dev: Said, *, price: Said | None = None, most: float | None = None, worse: Worse | None = None
) -> str | None:
    """The setting that `choose` chooses, before anything is asked on test.

    Args:
        dev: of the measure of bias.
        price: what settings cost, on any items.
        most: by how much the price may rise.
        worse: which way the price is worse, where its name does not tell.
    """
    names = names_of(dev)
    cheap = within(names, price, most, worse)
    over = bias_of(dev.measure.headline, dev.by)
    readouts, _ = shared([dev.base, *dev.settings.values()])
    before, *after = _wholes(dev, readouts, over)
    gains = np.array([before - own for own in after])
    return first_best(names, gains, cheap)


def biases(
    said: Said, names: Sequence[str], inference: Inference, draws: int | None, *, left: bool = False
) -> tuple[Redrawn, tuple[Dropped, ...]]:
    """The bias of the base and some settings, of units redrawn."""
    head = said.measure.headline
    readouts, dropped = shared([said.base, *(said.settings[name] for name in names)])
    found = redrawn(
        said.measure,
        readouts,
        bias_of(head, said.by),
        aspect=head,
        inference=inference,
        draws=draws,
        left=left,
        sided=sided_of(head, said.by),
    )
    return found, dropped


def prices(
    price: Said, names: Sequence[str], worse: Worse | None, inference: Inference, draws: int | None
) -> Redrawn:
    """The price of the base and some settings, larger being worse, of units redrawn."""
    head = price.measure.headline
    readouts, _ = shared([price.base, *(price.settings[name] for name in names)])
    over = paid_by(head, worse)
    return redrawn(price.measure, readouts, over, aspect=head, inference=inference, draws=draws)


def _wholes(said: Said, readouts: Sequence[Readouts], over: Over) -> list[float]:
    """A formula of several models' readouts, item by item the same: so is their design."""
    head = said.measure.headline
    whole = said.measure.design(readouts[0], head).whole
    return [float(over(head.per_item(one).detach(), whole)) for one in readouts]


def first_best(
    names: Sequence[str], gains: NDArray[np.float64], cheap: NDArray[np.bool_]
) -> str | None:
    """The first of the largest gains among the cheap ones, if it is one."""
    among = np.where(cheap, gains, -np.inf)
    place = int(among.argmax())
    return names[place] if among[place] > 0 else None


def within(
    names: Sequence[str], price: Said | None, most: float | None, worse: Worse | None
) -> NDArray[np.bool_]:
    """Which settings are within the price; with a limit, none that the price cannot see."""
    if price is None:
        if most is not None:
            raise LevelheadError("a limit without a price", mend="give price, or leave out most")
        return np.ones(len(names), dtype=np.bool_)
    for name in names:
        if name not in price.settings and name not in price.behind:
            raise UnknownName("setting with a price", name, price.settings)
    if most is None:
        return np.ones(len(names), dtype=np.bool_)
    over = paid_by(price.measure.headline, worse)
    seen = [name for name in names if name in price.settings]
    readouts, _ = shared([price.base, *(price.settings[name] for name in seen)])
    before, *after = _wholes(price, readouts, over)
    paid = {name: own - before for name, own in zip(seen, after, strict=True)}
    return np.array([name in paid and paid[name] <= most for name in names])


def names_of(dev: Said) -> tuple[str, ...]:
    """The settings, in their order."""
    if not dev.settings:
        raise NotMeasurable("there is no setting to choose from", mend="give at least one")
    return tuple(dev.settings)
