"""The prompts of Counteracts (Zhang 2023) on a model."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

from levelhead.explain.prompting.knowledge import KnowledgeResult, knowledge
from levelhead.measures.cloze.cloze import Cloze
from levelhead.measures.cloze.formatting import Form, Separator
from levelhead.measures.responses import model_key
from levelhead.study.session import StudySession, StudyStep, measure_inputs
from levelhead.study.steps.config import Count, Reference, StrictConfig, any_model_reference
from levelhead.study.steps.kinds import StepDefinition
from levelhead.study.table_row import RowCells, estimate_cells

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from levelhead.explain.prompting.contrasts import TopKResult


class PromptingStep(StrictConfig):
    """The prompts of Counteracts (Zhang 2023) on one model."""

    model: str
    prompts: Literal["winobias40", "table1"] = "winobias40"
    backgrounds: Count | None = None
    form: Form = "auto"
    separator: Separator = "native"
    lexicon: str = "gender-en"
    factorial: bool = True
    """Whether to query the 2 x 2 x 2 counterexamples as well."""

    def references(self) -> Iterator[Reference]:
        """The names of other tables of the study that this row uses."""
        yield any_model_reference(self.model)


def prompting_steps(session: StudySession) -> Iterator[StudyStep]:
    """Yield one step per model."""
    for name, row in session.config.rows(PromptingStep).items():
        yield StudyStep(
            f"knowledge.{name}",
            partial(run_knowledge_step, session, name),
            session.steps_that_train(row.model),
        )


def run_knowledge_step(session: StudySession, name: str) -> KnowledgeResult:
    """Run the prompts of Counteracts."""
    row = session.config.rows(PromptingStep)[name]
    lm = session.model(row.model)
    cloze = Cloze(
        prompts=row.prompts,
        backgrounds=row.backgrounds,
        form=row.form,
        separator=row.separator,
        lexicon=row.lexicon,
    )
    inputs = {"model": model_key(lm), "measure": measure_inputs(cloze), "parts": row.factorial}
    return session.load_or_compute(
        KnowledgeResult,
        inputs,
        lambda: knowledge(
            lm,
            cloze,
            with_factorial=row.factorial,
            inference=session.inference,
            context=session.context,
        ),
    )


def knowledge_rows(result: KnowledgeResult) -> Iterator[RowCells]:
    """Yield the rows of a result for the study's table."""
    for estimate in (result.base, result.preference, result.mass):
        yield estimate_cells("base", estimate)
    if result.labour is not None:
        for estimate in (result.labour.slope, result.labour.at_half, result.labour.correlation):
            yield estimate_cells(f"labour: {result.labour.verdict}", estimate)
    for contrast in result.contrasts:
        for estimate in (contrast.margin, contrast.change, contrast.shift, contrast.share_flipped):
            yield estimate_cells(f"{contrast.kind}: {contrast.verdict}", estimate)
    for cell in result.factorial.cells if result.factorial else ():
        yield estimate_cells(", ".join(cell.levels), cell.change)
    for effect in result.factorial.effects if result.factorial else ():
        yield estimate_cells("main effect", effect)
    yield from _top_rows("base", result.top_k)
    for contrast in result.contrasts:
        yield from _top_rows(contrast.kind, contrast.top_k)
    for finding in result.claims:
        yield estimate_cells(f"{finding.holds}: {finding.claim}", finding.estimate)


def _top_rows(kind: str, tops: Iterable[TopKResult]) -> Iterator[RowCells]:
    """Yield the paper's numbers at its three k."""
    for top in tops:
        name = f"{kind}, top {top.k}"
        for estimate in (top.first, top.second, top.margin, top.ratio, top.other_ratio):
            if estimate is not None:
                yield estimate_cells(name, estimate)
        if top.words is not None:
            yield {"name": name, "what": "words of Eq. 1", "value": top.words}


PROMPTING = StepDefinition(PromptingStep, prompting_steps, {KnowledgeResult: knowledge_rows})
