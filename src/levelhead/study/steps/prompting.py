"""The battery of Counteracts (Zhang 2023) on a model."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

from levelhead.explain.prompting.knowledge import Knowledge, knowledge
from levelhead.measures.cloze.cloze import Cloze
from levelhead.measures.cloze.formatting import Form, Separator
from levelhead.measures.responses import model_key
from levelhead.study.row import RowCells, estimate_cells
from levelhead.study.session import Step, Work, told_of
from levelhead.study.steps.config import Count, Reference, Strict, any_model
from levelhead.study.steps.kinds import StepDefinition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from levelhead.explain.prompting.contrasts import Top


class Prompting(Strict):
    """The battery of Counteracts (Zhang 2023) on one model."""

    model: str
    prompts: Literal["winobias40", "table1"] = "winobias40"
    backgrounds: Count | None = None
    form: Form = "auto"
    separator: Separator = "native"
    lexicon: str = "gender-en"
    parts: bool = True
    """Ask the 2 x 2 x 2 counterexamples as well."""

    def references(self) -> Iterator[Reference]:
        """The names that it takes from elsewhere in the study."""
        yield any_model(self.model)


def prompting_steps(work: Work) -> Iterator[Step]:
    """A step for every model."""
    for name, row in work.plan.rows(Prompting).items():
        yield Step(f"knowledge.{name}", partial(knowledge_of, work, name), work.makers(row.model))


def knowledge_of(work: Work, name: str) -> Knowledge:
    """The battery of Counteracts."""
    row = work.plan.rows(Prompting)[name]
    lm = work.model(row.model)
    cloze = Cloze(
        prompts=row.prompts,
        backgrounds=row.backgrounds,
        form=row.form,
        separator=row.separator,
        lexicon=row.lexicon,
    )
    told = {"model": model_key(lm), "measure": told_of(cloze), "parts": row.parts}
    return work.kept(
        Knowledge,
        told,
        lambda: knowledge(
            lm, cloze, parts=row.parts, inference=work.inference, context=work.context
        ),
    )


def knowledge_rows(one: Knowledge) -> Iterator[RowCells]:
    """The numbers of a result, for the table of a study."""
    for estimate in (one.base, one.preference, one.mass):
        yield estimate_cells("base", estimate)
    if one.labour is not None:
        for estimate in (one.labour.slope, one.labour.at_half, one.labour.correlation):
            yield estimate_cells(f"labour: {one.labour.verdict}", estimate)
    for own in one.contrasts:
        for estimate in (own.margin, own.change, own.shift, own.flipped):
            yield estimate_cells(f"{own.kind}: {own.verdict}", estimate)
    for cell in one.factorial.cells if one.factorial else ():
        yield estimate_cells(", ".join(cell.levels), cell.change)
    for effect in one.factorial.effects if one.factorial else ():
        yield estimate_cells("main effect", effect)
    yield from _top_rows("base", one.tops)
    for own in one.contrasts:
        yield from _top_rows(own.kind, own.tops)
    for found in one.findings:
        yield estimate_cells(f"{found.holds}: {found.claim}", found.number)


def _top_rows(kind: str, tops: Iterable[Top]) -> Iterator[RowCells]:
    """The paper's numbers at its three k."""
    for top in tops:
        name = f"{kind}, top {top.k}"
        for estimate in (top.first, top.second, top.margin, top.ratio, top.other_ratio):
            if estimate is not None:
                yield estimate_cells(name, estimate)
        if top.words is not None:
            yield {"name": name, "what": "words of Eq. 1", "value": top.words}


PROMPTING = StepDefinition(Prompting, prompting_steps, {Knowledge: knowledge_rows})
