"""What knowledge before a prompt does to whom the model puts into it (Zhang 2023).

The paper compares bars by eye. Here every kind of knowledge is a contrast: the change of the
female-male margin against the same occupation's base prompt, between occupations that either group
dominates, with occupations (and background occupations) redrawn, corrected over the kinds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from pydantic import Field

from levelhead.core.errors import NotMeasurable, UnknownName
from levelhead.core.results import Dropped, Estimate, Provenance, Record
from levelhead.core.run_context import Inference, RunContext
from levelhead.data.prompts.counteracts import factorial
from levelhead.explain.prompting.contrasts import Contrast, Top, at_95, between, contrasts, tops_of
from levelhead.explain.prompting.factorial import Factorial, factorial_effects
from levelhead.explain.prompting.labour_statistics import Labour, labour
from levelhead.explain.prompting.paper_claims import Finding, findings
from levelhead.explain.prompting.verbalizer import prevalence
from levelhead.measures.cloze.battery import Battery
from levelhead.measures.cloze.cloze import Cloze
from levelhead.measures.cloze.margins import margin_of, mean_of
from levelhead.measures.cloze.prompts_base import BASE

if TYPE_CHECKING:
    from levelhead.data.prompts.counteracts import Set
    from levelhead.measures.cloze.battery import Answers
    from levelhead.models.lm import LM

Verbalizer = Literal["lexicon", "prevalence"]
COUNTERS = ("target_counter_syntactic_similar", "target_counter_semantic_similar")


class Knowledge(Record):
    """A model's base preference, and what nine kinds of knowledge do to it."""

    base: Estimate
    """Half the difference of the female-male margin between occupations that women and that men
    dominate, without knowledge; log-odds."""
    preference: Estimate
    """The mean of the margin: a preference for one group everywhere."""
    mass: Estimate
    """How much of the probability the verbalizer's words hold in base prompts."""
    tops: tuple[Top, ...]
    """The paper's numbers without knowledge."""
    contrasts: tuple[Contrast, ...]
    factorial: Factorial | None = None
    """What a counterexample owes to its word, its order and its verb; None without that part."""
    labour: Labour | None = None
    """The base margin against the share of women in each occupation."""
    findings: tuple[Finding, ...]
    """The claims of the paper's Results."""
    groups: tuple[str, str]
    n: Annotated[int, Field(ge=2)]
    """Prompts that were read."""
    occupations: Annotated[int, Field(ge=2)]
    dropped: tuple[Dropped, ...]
    notes: tuple[str, ...] = ()
    provenance: Provenance

    def contrast(self, kind: str) -> Contrast | None:
        """The contrast of one kind of knowledge, if it was made."""
        return next((one for one in self.contrasts if one.kind == kind), None)

    def __str__(self) -> str:
        told = Counter(one.verdict for one in self.contrasts)
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in told.most_common())
        return f"base {self.base.value:.3g} {self.base.interval}; knowledge: {verdicts}"


def knowledge(
    lm: LM,
    cloze: Cloze | None = None,
    *,
    verbalizer: Verbalizer = "lexicon",
    parts: bool = True,
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> Knowledge:
    """Run the battery on a model.

    Args:
        lm: a masked or causal model, edited or not.
        cloze: prompts, verbalizer, form and separator; by default the 2,680 prompts.
        verbalizer: the lexicon's words, or with "prevalence" those of the model's own output as
            well, read off half of the occupations, which are left out (`explain.prevalence`).
        parts: ask the 2 x 2 x 2 counterexamples as well (`data.prompts.factorial`); only for the
            published prompts.
        inference: seed, resamples and level.
        context: store, threads, progress and cancellation.
    """
    cloze = cloze or Cloze()
    if verbalizer not in get_args(Verbalizer):
        raise UnknownName("verbalizer", verbalizer, get_args(Verbalizer))
    notes: tuple[str, ...] = ()
    which = cloze.prompts if isinstance(cloze.prompts, str) else None
    if verbalizer == "prevalence":
        cloze, told = prevalence(lm, cloze)
        notes = (told,)
    asked = with_parts(cloze, which) if parts and which else cloze
    answers = Battery(asked).read(lm, context=context)
    found = explained(lm, asked, answers, inference=inference, threads=context.threads)
    return found.model_copy(update={"notes": (*notes, *found.notes)})


def with_parts(cloze: Cloze, which: Set) -> Cloze:
    """The same with the factorial's prompts, of the same occupations, behind its own."""
    own = cloze.items
    named = {one.occupation for one in own}
    more = tuple(one for one in factorial(which) if one.kind != BASE and one.occupation in named)
    return replace(cloze, prompts=(*own, *more), backgrounds=None)


def explained(
    lm: LM, cloze: Cloze, answers: Answers, *, inference: Inference, threads: int = 1
) -> Knowledge:
    """All numbers of what a model said. No forward is run."""
    notes = [*answers.readouts.notes]
    effects = shares = None
    try:
        effects = factorial_effects(answers, inference)
    except NotMeasurable as error:
        notes.append(f"factorial: {error.what}")
    try:
        shares = labour(answers, inference)
    except NotMeasurable as error:
        notes.append(f"labour: {error.what}")
    base, own = margin_of(answers, BASE, inference), contrasts(answers, inference)
    sure = at_95(inference)
    claimed = own if sure == inference else contrasts(answers, sure)
    found = findings(
        margin_of(answers, BASE, sure),
        claimed,
        syntax=between(answers, *COUNTERS, sure),
        causal=lm.is_causal,
    )
    model = {name: value for name, value in lm.settings.items() if name != "batch_shrunk_to"}
    return Knowledge(
        base=base,
        preference=mean_of(answers, "preference", BASE, answers.margin, inference, "log-odds"),
        mass=mean_of(answers, "mass", BASE, answers.mass, inference, "probability"),
        tops=tops_of(answers, BASE, inference),
        contrasts=own,
        factorial=effects,
        labour=shares,
        findings=found,
        groups=answers.groups,
        n=len(answers.items),
        occupations=len(answers.base),
        dropped=answers.dropped,
        notes=tuple(notes),
        provenance=Provenance.of(
            lm.identity.name,
            lm.content_hash,
            revision=lm.identity.revision,
            edits=tuple(edit.content_hash for edit in lm.edits),
            data=cloze.data,
            equation="Zhang 2023, Table 2, Eq. 1",
            seed=inference.seed,
            settings={
                "prompts": cloze.settings,
                "asked": answers.readouts.facts,
                "model": model | {"batch_shrunk_to": answers.readouts.shrunk_to},
                "threads": threads,
                "resamples": inference.resamples,
                "level": inference.level,
            },
        ),
    )
