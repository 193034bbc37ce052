"""Steps of two models: one beside another item by item, and what an edit left to be read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from levelhead.core.errors import LevelheadError
from levelhead.data.held_out import held_out
from levelhead.data.published import any_lexicon
from levelhead.measure.compare import Comparison
from levelhead.measure.readouts import model_key
from levelhead.measure.run import run
from levelhead.mitigate.removed import LEVEL, Removed, removed
from levelhead.mitigate.ruler import gain_by
from levelhead.models.edit_files import seen_by_edits
from levelhead.study.work import told_of

if TYPE_CHECKING:
    from levelhead.core.results import Estimate
    from levelhead.study.schema import Paired, Probing
    from levelhead.study.work import Work


def compared_with(work: Work, row: Paired, name: str) -> Comparison:
    """One measure of two models, second less first."""
    first, second, measure = work.model(row.first), work.model(row.second), work.measure(name)
    models = [model_key(first), model_key(second)]
    return work.kept(
        Comparison,
        {"measure": told_of(measure), "models": models},
        lambda: run(
            second, [measure], against=first, inference=work.inference, context=work.context
        ).comparisons[0],
    )


def probed(work: Work, row: Probing) -> Removed:
    """Removed or hidden: probes on words that the edit never met."""
    edited, source = work.model(row.model), work.plan.models[row.model]
    if source.edit is None:
        raise LevelheadError(f"{row.model} has no edit", mend="give it one, or leave this out")
    seen = seen_by_edits(source.edit)
    if seen is None:
        raise LevelheadError(
            f"{source.edit} does not say which words it was fitted on",
            mend="ask by `levelhead removed --seen`",
        )
    lm, edits = replace(edited, edits=()), edited.edits
    ruler = None if row.ruler is None else work.measure(row.ruler)
    told = {
        "model": model_key(edited),
        "row": row.model_dump(),
        "lexicon": any_lexicon(row.lexicon).sha256,
        "seen": list(seen),
        "ruler": None if ruler is None else told_of(ruler),
    }

    def make() -> Removed:
        gain: Estimate | None = None
        if ruler is not None:
            gain = gain_by(ruler, lm, edits, inference=work.inference, context=work.context)
        pairs = held_out(row.lexicon, seen=seen).pairs
        return removed(
            lm,
            edits,
            pairs,
            seen=seen,
            ruler=gain,
            gain_by=None if ruler is None else ruler.ruler(lm),
            # One-sided bounds of 0.95 are the ends of an interval of 0.9.
            inference=replace(work.inference, level=LEVEL),
        )

    return work.kept(Removed, told, make)
