"""Several measures of one model, or of two: what they ask alike is asked once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from levelhead.core.errors import LevelheadError
from levelhead.core.run_context import Inference, RunContext
from levelhead.measures.compare import Comparison, compared, corrected_comparisons
from levelhead.measures.inference import corrected
from levelhead.measures.responses import Readouts, read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.core.results import Measurement
    from levelhead.measures.base import Measure
    from levelhead.models.lm import LM


class Measured(NamedTuple):
    """The measurements, and the comparisons with a second model if there is one."""

    measurements: tuple[Measurement, ...]
    comparisons: tuple[Comparison, ...] = ()


def compare(
    measure: Measure,
    first: LM,
    second: LM,
    *,
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> Comparison:
    """How a second model, or an edit of the first, differs by one measure, item by item."""
    found = run(second, [measure], against=first, inference=inference, context=context)
    return found.comparisons[0]


def run(
    lm: LM,
    measures: Sequence[Measure],
    *,
    against: LM | None = None,
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> Measured:
    """Measure a model by several rulers; p-values of the headlines are corrected together (Holm).

    Skills are checked of a model by itself. Beside `against` they are not: a difference between two
    models needs none to be one, and sweeps compare many (`with_skills` adds them).

    Args:
        lm: the model, edited or not.
        measures: what to measure it by.
        against: another model, or the same with other edits; differences are second less first,
            `against` being the first.
        inference: seed, resamples and level.
        context: store, threads, progress and cancellation.
    """
    if not measures:
        raise LevelheadError("there is no measure", mend="name at least one")

    def asked(model: LM) -> list[list[Readouts]]:
        parts = [measure.asked(model) for measure in measures]
        flat = [one for part in parts for one in part]
        found = iter(read(model, flat, context=context))
        return [[next(found) for _ in part] for part in parts]

    def measured(model: LM, found: list[list[Readouts]]) -> tuple[Measurement, ...]:
        rows = zip(measures, found, strict=True)
        return corrected(
            [
                m.measured(model, one, inference=inference, threads=context.threads)
                for m, one in rows
            ]
        )

    if against is not None and against.content_hash == lm.content_hash:
        raise LevelheadError(
            "the two models are the same: every difference would be 0",
            mend="give another model, or the same with an edit",
        )
    for measure in measures:
        for model in (lm, *((against,) if against is not None else ())):
            measure.check(model)  # before anything is read
    found = asked(lm)
    own = measured(lm, found)
    if against is None:
        firsts = [readouts[0] for readouts in found]
        return Measured(with_skills(lm, measures, own, firsts, context=context))
    base = asked(against)
    theirs = measured(against, base)
    pairs = zip(measures, base, found, zip(theirs, own, strict=True), strict=True)
    comparisons = [compared(m, one, two, both, inference=inference) for m, one, two, both in pairs]
    return Measured(own, corrected_comparisons(comparisons))


def with_skills(
    lm: LM,
    measures: Sequence[Measure],
    measurements: Sequence[Measurement],
    readouts: Sequence[Readouts] | None = None,
    *,
    context: RunContext = RunContext(),
) -> tuple[Measurement, ...]:
    """Measurements with what shows that the model can do what each measure needs.

    Args:
        lm: the model that was measured.
        measures: by which.
        measurements: one for each of them.
        readouts: what each is computed from; by default it is read, or found stored.
        context: store, threads, progress and cancellation.
    """
    own: Sequence[Readouts | None] = readouts or [None] * len(measures)
    return tuple(
        measured.model_copy(update={"skill": measure.skill(lm, said, context=context)})
        for measure, measured, said in zip(measures, measurements, own, strict=True)
    )
