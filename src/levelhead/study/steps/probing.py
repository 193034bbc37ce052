"""What an edit left to be read: removed or hidden."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from levelhead.core.errors import LevelheadError
from levelhead.data.counterfactuals.held_out import held_out
from levelhead.data.lexicons.published import any_lexicon
from levelhead.measures.responses import model_key
from levelhead.mitigate.evaluation.single_edit_gain import gain_by
from levelhead.mitigate.probing.concept_removal import LEVEL, Removed, removed
from levelhead.models.edits.files import seen_by_edits
from levelhead.study.row import RowCells, estimate_cells
from levelhead.study.session import Step, Work, told_of
from levelhead.study.steps.config import Reference, Strict, measure_named
from levelhead.study.steps.kinds import StepDefinition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from levelhead.core.results import Estimate


class Probing(Strict):
    """Whether a model's edit removed a group or hid it; words it was fitted on are left out."""

    model: str
    lexicon: str = "gender-en"
    ruler: str | None = None
    """The measure that the edit is to mitigate."""

    def references(self) -> Iterator[Reference]:
        """The names that it takes from elsewhere in the study."""
        yield Reference("model", ("models",), self.model)
        if self.ruler is not None:
            yield measure_named(self.ruler)


def probing_steps(work: Work) -> Iterator[Step]:
    """A step for every edited model."""
    for name, row in work.plan.rows(Probing).items():
        yield Step(f"removed.{name}", partial(probed, work, row), work.makers(row.model))


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


def probing_rows(one: Removed) -> Iterator[RowCells]:
    """The numbers of a result, for the table of a study."""
    for place in one.places:
        where = " ".join(str(part) for part in place.site if part is not None)
        for when, found in (("before", place.before), ("after", place.after)):
            for estimate in (*(probe.auc for probe in found.probes), found.clusters.accuracy):
                yield estimate_cells(f"{where}, {when}: {one.verdict}", estimate)


PROBING = StepDefinition(Probing, probing_steps, {Removed: probing_rows})
