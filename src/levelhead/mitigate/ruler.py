"""Did the ruler fall? One edit's gain by one measure of bias, item by item."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.core.errors import LevelheadError
from levelhead.measure.aspects import Judge
from levelhead.mitigate.said import biases
from levelhead.mitigate.swept import said

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from levelhead.core.files import Url
    from levelhead.core.results import Estimate
    from levelhead.engine.events import Event
    from levelhead.measure.measure import Measure
    from levelhead.models.edits import Edit
    from levelhead.models.lm import LM

EDIT = "edit"


def gain_by(
    measure: Measure,
    lm: LM,
    edits: Sequence[Edit],
    *,
    judge: Judge | None = None,
    store: Url | None = None,
    threads: int = 1,
    on_event: Callable[[Event], None] = lambda event: None,
) -> Estimate:
    """By how much edits bring a measure nearer to its parity, with an interval over its units.

    Args:
        measure: of bias.
        lm: the model as it is.
        edits: judged together.
        judge: seed, resamples and level.
        store: a folder that keeps readouts; memory by default.
        threads: of numpy and torch.
        on_event: is told how far it is.
    """
    measure.check(lm)
    found = said(lm, measure, {EDIT: tuple(edits)}, store=store, threads=threads, on_event=on_event)
    if found.behind:
        raise LevelheadError(
            f"the edit acts behind all that {measure.name} reads: it cannot change it",
            mend="give a measure that reads what the edit changes",
        )
    redrawn, _ = biases(found, (EDIT,), judge or Judge(), None)
    (gain,) = redrawn.effects().estimates([f"gain of {measure.name}"], unit=measure.headline.unit)
    assert gain is not None  # noqa: S101  # without any change `estimates` has raised
    return gain
