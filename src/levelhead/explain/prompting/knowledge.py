"""Effects of knowledge before a prompt on the group that the model prefers in it (Zhang 2023).

The paper compares bars by eye. Here every kind of knowledge is a contrast: the change of the
female-male margin against the same occupation's base prompt, between occupations that either group
dominates. Occupations (and background occupations) are resampled, and p is corrected over the
kinds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from pydantic import Field

from levelhead.core.errors import NotMeasurableError, require_option
from levelhead.core.results import DroppedItem, Estimate, Provenance, Record
from levelhead.core.run_context import Inference, RunContext
from levelhead.data.prompts.counteracts import make_factorial_prompts
from levelhead.explain.prompting.contrasts import (
    PromptContrast,
    TopKResult,
    compute_change_difference,
    compute_contrasts,
    compute_top_k,
    with_95_level,
)
from levelhead.explain.prompting.factorial import Factorial, compute_factorial_effects
from levelhead.explain.prompting.labour_statistics import LabourRegression, regress_on_labour_shares
from levelhead.explain.prompting.paper_claims import ClaimResult, check_paper_claims
from levelhead.explain.prompting.verbalizer import add_prevalent_words
from levelhead.measures.cloze.battery import Battery
from levelhead.measures.cloze.cloze import Cloze
from levelhead.measures.cloze.margins import estimate_kind_mean, estimate_margin
from levelhead.measures.cloze.prompt_measure import BASE

if TYPE_CHECKING:
    from levelhead.data.prompts.counteracts import OccupationSet
    from levelhead.measures.cloze.battery import BatteryResponses
    from levelhead.models.lm import LM

Verbalizer = Literal["lexicon", "prevalence"]
COUNTEREXAMPLE_KINDS = ("target_counter_syntactic_similar", "target_counter_semantic_similar")


class KnowledgeResult(Record):
    """Base preference of a model, and the effects of nine kinds of knowledge."""

    base: Estimate
    """Half the difference of the female-male margin between occupations that women and that men
    dominate, without knowledge; log-odds."""
    preference: Estimate
    """Mean of the margin: a preference for one group everywhere."""
    mass: Estimate
    """Probability of all words of the verbalizer in base prompts."""
    top_k: tuple[TopKResult, ...]
    """The paper's numbers without knowledge."""
    contrasts: tuple[PromptContrast, ...]
    factorial: Factorial | None = None
    """Effects of the word, the order and the verb of counterexamples; None without the
    factorial."""
    labour: LabourRegression | None = None
    """Base margin against the share of women in each occupation."""
    claims: tuple[ClaimResult, ...]
    """Claims of the paper's Results."""
    groups: tuple[str, str]
    n: Annotated[int, Field(ge=2)]
    """Number of prompts that were read."""
    occupations: Annotated[int, Field(ge=2)]
    dropped: tuple[DroppedItem, ...]
    notes: tuple[str, ...] = ()
    provenance: Provenance

    def find_contrast(self, kind: str) -> PromptContrast | None:
        """Return the contrast of a kind of knowledge, if there is one."""
        return next((contrast for contrast in self.contrasts if contrast.kind == kind), None)

    def __str__(self) -> str:
        counts = Counter(contrast.verdict for contrast in self.contrasts)
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
        return f"base {self.base.value:.3g} {self.base.interval}; knowledge: {verdicts}"


def knowledge(
    lm: LM,
    cloze: Cloze | None = None,
    *,
    verbalizer: Verbalizer = "lexicon",
    with_factorial: bool = True,
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> KnowledgeResult:
    """Run the experiment on a model.

    Args:
        lm: A masked or causal model, edited or not.
        cloze: Prompts, verbalizer, form and separator; by default the 2,680 prompts.
        verbalizer: The lexicon's words, or with "prevalence" also words of the model's output.
            These are read from half of the occupations, which are then left out
            (`explain.prompting.verbalizer`).
        with_factorial: Whether to query the 2 x 2 x 2 counterexamples too
            (`data.prompts.factorial`); only for the published prompts.
        inference: Seed, resamples and level.
        context: Store, threads, progress and cancellation.
    """
    cloze = cloze or Cloze()
    require_option("verbalizer", verbalizer, get_args(Verbalizer))
    notes: tuple[str, ...] = ()
    prompt_set = cloze.prompts if isinstance(cloze.prompts, str) else None
    if verbalizer == "prevalence":
        cloze, note = add_prevalent_words(lm, cloze)
        notes = (note,)
    full_cloze = (
        add_factorial_prompts(cloze, prompt_set) if with_factorial and prompt_set else cloze
    )
    answers = Battery(full_cloze).read(lm, context=context)
    result = compute_knowledge(
        lm, full_cloze, answers, inference=inference, threads=context.threads
    )
    return result.model_copy(update={"notes": (*notes, *result.notes)})


def add_factorial_prompts(cloze: Cloze, prompt_set: OccupationSet) -> Cloze:
    """Add the prompts of the factorial on the same occupations."""
    items = cloze.items
    occupations = {item.occupation for item in items}
    extra = tuple(
        item
        for item in make_factorial_prompts(prompt_set)
        if item.kind != BASE and item.occupation in occupations
    )
    # The backgrounds are sampled already: the option applies to the published sets only.
    return replace(cloze, prompts=(*items, *extra), backgrounds=None)


def compute_knowledge(
    lm: LM, cloze: Cloze, answers: BatteryResponses, *, inference: Inference, threads: int = 1
) -> KnowledgeResult:
    """Compute all results from a model's answers, without a forward pass."""
    notes = [*answers.responses.notes]
    # Both need the published prompts; without them, the other results stand.
    effects = shares = None
    try:
        effects = compute_factorial_effects(answers, inference)
    except NotMeasurableError as error:
        notes.append(f"factorial: {error.problem}")
    try:
        shares = regress_on_labour_shares(answers, inference)
    except NotMeasurableError as error:
        notes.append(f"labour: {error.problem}")
    base, contrasts = (
        estimate_margin(answers, BASE, inference),
        compute_contrasts(answers, inference),
    )
    inference_95 = with_95_level(inference)
    # Claims are decided at 95%, whatever the level of the printed intervals.
    contrasts_95 = (
        contrasts if inference_95 == inference else compute_contrasts(answers, inference_95)
    )
    claims = check_paper_claims(
        estimate_margin(answers, BASE, inference_95),
        contrasts_95,
        syntax=compute_change_difference(answers, *COUNTEREXAMPLE_KINDS, inference_95),
        causal=lm.is_causal,
    )
    model = {name: value for name, value in lm.settings.items() if name != "batch_shrunk_to"}
    return KnowledgeResult(
        base=base,
        preference=estimate_kind_mean(
            answers, "preference", BASE, answers.margin, inference, "log-odds"
        ),
        mass=estimate_kind_mean(answers, "mass", BASE, answers.mass, inference, "probability"),
        top_k=compute_top_k(answers, BASE, inference),
        contrasts=contrasts,
        factorial=effects,
        labour=shares,
        claims=claims,
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
                "asked": answers.responses.metadata,
                "model": model | {"batch_shrunk_to": answers.responses.shrunk_to},
                "threads": threads,
                "resamples": inference.resamples,
                "level": inference.level,
            },
        ),
    )
