"""Choose a prefix of counterexamples that is shown to help: an application of Zhang 2023.

It is chosen on some occupations and reported once on others: there, in another sentence, and in
generated text. If the interval of the gain contains 0, nothing is recommended.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, final

import torch
from pydantic import Field

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import NotMeasurableError
from levelhead.core.frozen import FrozenDict
from levelhead.core.results import DroppedItem, Estimate, Provenance, Record
from levelhead.core.run_context import Inference, RunContext
from levelhead.measures.cloze.battery import Battery, BatteryResponses
from levelhead.measures.cloze.cloze import Cloze
from levelhead.measures.cloze.formatting import choose_prompt_format
from levelhead.measures.cloze.margins import MARGIN, estimate_margin
from levelhead.measures.cloze.prompt_measure import BASE, PAPER
from levelhead.measures.generation.continuation import OCCUPATION, Continuation
from levelhead.measures.inference import estimate
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.measures.reductions import half_difference, mean
from levelhead.measures.responses import read_responses
from levelhead.mitigate.prompting.prefixes import (
    OccupationSplit,
    PrefixGrid,
    PromptPrefix,
    make_prefix_candidates,
    reword_prompts,
    split_occupations,
    unrelated_prefix,
    with_prefix,
)
from levelhead.stats.designs import clustered_design, grouped_design

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.data.prompts.counteracts import CounteractsPrompt, OccupationSet
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Resample


class PrefixCandidate(Record):
    """One prefix on the occupations of the choice."""

    name: str
    text: str
    margin: Estimate
    loss: float
    """Decrease of the log-probability a token of plain sentences beyond that by as many
    unrelated ones."""
    is_viable: bool


class PrefixSelection(Record):
    """The chosen prefix, its effect on held-out occupations, and its utility cost."""

    prefix: str
    name: str
    is_recommended: bool
    reason: str
    base: Estimate
    """Margin on held-out occupations without a prefix."""
    margin: Estimate
    """Margin with the prefix."""
    gain: Estimate
    """|base| - |margin with the prefix|: towards parity."""
    control_gain: Estimate
    """Gain by as many unrelated sentences."""
    gain_over_unrelated: Estimate
    """Gain beyond that of unrelated sentences: a recommended prefix must do more than any
    sentences."""
    gain_in_other_wording: Estimate
    """Gain in another sentence."""
    gain_in_continuations: Estimate | None = None
    """Gain in the text that a causal model generates about held-out occupations."""
    loss: Estimate
    """Decrease of the log-probability a token of plain sentences."""
    loss_over_unrelated: Estimate
    """The decrease less that by as many unrelated sentences."""
    candidates: tuple[PrefixCandidate, ...]
    n_train: Annotated[int, Field(ge=2)]
    n_held_out: Annotated[int, Field(ge=2)]
    dropped: tuple[DroppedItem, ...]
    notes: tuple[str, ...] = ()
    provenance: Provenance

    def __str__(self) -> str:
        advice = "recommended" if self.is_recommended else "not recommended"
        return f"{advice}: gain {self.gain.value:.3g} {self.gain.interval}, {self.prefix!r}"


def select_prompt_prefix(
    lm: LM,
    prompts: OccupationSet = "winobias40",
    *,
    cloze: Cloze | None = None,
    grid: PrefixGrid = PrefixGrid(),
    max_loss: float = 0.1,
    samples: int = 10,
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> PrefixSelection:
    """Choose a prefix of counterexamples, and report its effect once.

    Args:
        lm: A masked or causal model, edited or not.
        prompts: Prompts of the occupations: winobias40 or table1.
        cloze: Verbalizer, form and separator; its prompts are replaced.
        grid: Candidate prefixes.
        max_loss: Maximum decrease of the log-probability a token of plain sentences, beyond that by
            as many unrelated sentences.
        samples: Number of continuations of each held-out occupation; 0: none.
        inference: Seed, resamples and level. The seed also splits the occupations and samples
            candidates.
        context: Store, threads, progress and cancellation.
    """
    cloze = cloze or Cloze()
    evaluator = _PrefixEvaluator(lm, cloze, inference, context)
    split = split_occupations(prompts, seed=inference.seed)
    train_occupations = [prompt.occupation for prompt in split.train]
    prefixes = make_prefix_candidates(prompts, train_occupations, grid=grid, seed=inference.seed)
    # One control per size: more text changes more, whatever it says.
    controls = {size: unrelated_prefix(size) for size in grid.prefix_sizes}
    train_answers = evaluator.read(
        [*split.train, *(p for prefix in prefixes for p in with_prefix(prefix, split.train))]
    )
    costs = evaluator.costs([*prefixes, *controls.values()])
    candidates = tuple(
        _evaluate_candidate(
            prefix, train_answers, costs, controls[prefix.n_sentences], max_loss, inference
        )
        for prefix in prefixes
    )
    # Chosen on the training occupations only; the held-out ones see this prefix alone.
    best = _best_candidate(candidates)
    best_prefix = next(prefix for prefix in prefixes if prefix.name == best.name)
    return _report_selection(
        evaluator,
        split,
        best_prefix,
        controls[best_prefix.n_sentences],
        costs,
        candidates,
        samples=samples,
        max_loss=max_loss,
    )


def neutral_sentences() -> tuple[str, ...]:
    """Sentences about no person, which a prefix should leave unchanged."""
    text = files("levelhead.data").joinpath("plain_sentences.txt").read_text("utf-8")
    return tuple(text.splitlines())


@final
@dataclass(frozen=True, eq=False)
class _PrefixEvaluator:
    """The format of all prompts."""

    lm: LM
    cloze: Cloze
    inference: Inference
    context: RunContext

    def read(self, prompts: Sequence[CounteractsPrompt]) -> BatteryResponses:
        cloze = replace(self.cloze, prompts=tuple(prompts), backgrounds=None)
        return Battery(cloze).read(
            self.lm,
            context=self.context,
        )

    def costs(self, prefixes: Sequence[PromptPrefix]) -> dict[str, torch.Tensor]:
        """`[sentences]` log-probability a token of plain sentences after each prefix, and without.

        It leaves out the first word, which some models cannot score without a word before it.
        """
        sentences = neutral_sentences()
        prompt_format = choose_prompt_format(self.lm, self.cloze.form, self.cloze.separator)
        items = []
        for name, text in [
            (BASE, ""),
            *((prefix.name, prefix.text + prompt_format.separator) for prefix in prefixes),
        ]:
            for i, sentence in enumerate(sentences):
                start, end = len(text) + sentence.index(" "), len(text) + len(sentence)
                args = (f"{text}{sentence}", ((start, end),))
                items.append(MeasureItem(f"{name}/{i}", (args,), (str(i),), kind=name))
        queries = QuerySet("score", FrozenDict({}), ("sentences",), tuple(items))
        (responses,) = read_responses(
            self.lm,
            [queries],
            context=self.context,
        )
        # A sentence missing behind one prefix only would make the means differ by their sentences.
        if responses.dropped:
            raise NotMeasurableError(
                f"a plain sentence cannot be read: {responses.dropped[0][1]}",
                hint="without them the utility cost is unknown: use a model that knows their words",
            )
        # By token, so that long sentences do not dominate the mean.
        per_token = responses.values[:, 0, 0] / responses.values[:, 0, 1]
        kinds = dict.fromkeys(item.kind for item in responses.items)
        return {
            kind: per_token[torch.tensor([item.kind == kind for item in responses.items])]
            for kind in kinds
        }

    def estimate_loss(self, name: str, change: torch.Tensor) -> Estimate:
        """Mean change over plain sentences."""
        metric = replace(MARGIN, name=name, aggregate=mean, unit="log-probability a token")
        return estimate(
            self.inference, metric, change, grouped_design(len(change), name="sentences")
        )


def _evaluate_candidate(
    prefix: PromptPrefix,
    train_answers: BatteryResponses,
    costs: dict[str, torch.Tensor],
    control: PromptPrefix,
    max_loss: float,
    inference: Inference,
) -> PrefixCandidate:
    # Against as many unrelated sentences: any text before a sentence changes its probability.
    loss = float((costs[control.name] - costs[prefix.name]).mean())
    return PrefixCandidate(
        name=prefix.name,
        text=prefix.text,
        margin=estimate_margin(train_answers, prefix.name, inference),
        loss=loss,
        is_viable=loss <= max_loss,
    )


def _best_candidate(candidates: Sequence[PrefixCandidate]) -> PrefixCandidate:
    """The candidate nearest to parity within the cost limit; the cheapest if none is within."""
    viable = [candidate for candidate in candidates if candidate.is_viable]
    if not viable:
        return min(candidates, key=lambda candidate: candidate.loss)
    return min(viable, key=lambda candidate: abs(candidate.margin.value))


def _gain(
    answers: BatteryResponses, prefix: PromptPrefix, inference: Inference, name: str
) -> Estimate:
    """|base| - |margin with the prefix|, both resampled together."""
    where = answers.rows_of_kind(prefix.name)
    metric = replace(MARGIN, name=name, aggregate=_parity_gain)
    # `[occupations, 2]`: without the prefix and with it.
    both = torch.stack([answers.base_margin[where], answers.margin[where]], dim=1)
    return estimate(inference, metric, both, answers.design(prefix.name))


def _gain_over_unrelated(
    answers: BatteryResponses, prefix: PromptPrefix, control: PromptPrefix, inference: Inference
) -> Estimate:
    """|margin after unrelated sentences| - |margin with the prefix|, both resampled together."""
    control_rows, prefix_rows = (
        {answers.items[i].units[0]: i for i in answers.rows_of_kind(source.name).tolist()}
        for source in (control, prefix)
    )
    names = [name for name in control_rows if name in prefix_rows]
    # `[occupations, 2]`, as in `_gain`: what is subtracted is the control instead of the base.
    rows = torch.tensor([[control_rows[name], prefix_rows[name]] for name in names])
    sides = [answers.items[prefix_rows[name]].group for name in names]
    design = clustered_design(names, name="occupations", within=sides)
    metric = replace(MARGIN, name="gain beyond unrelated sentences", aggregate=_parity_gain)
    return estimate(inference, metric, answers.margin[rows], design)


def _parity_gain(values: torch.Tensor, resample: Resample) -> torch.Tensor:
    before, now = (half_difference(values[:, i], resample) for i in (0, 1))
    return before.abs() - now.abs()


def _report_selection(
    evaluator: _PrefixEvaluator,
    split: OccupationSplit,
    prefix: PromptPrefix,
    control: PromptPrefix,
    costs: dict[str, torch.Tensor],
    candidates: tuple[PrefixCandidate, ...],
    *,
    samples: int,
    max_loss: float,
) -> PrefixSelection:
    """Evaluate the prefix once, on occupations that neither are in it nor chose it."""
    lm, inference, held_out = evaluator.lm, evaluator.inference, split.held_out
    lexicon = evaluator.cloze.resolved_lexicon
    answers = evaluator.read(
        [*held_out, *with_prefix(prefix, held_out), *with_prefix(control, held_out)]
    )
    # A prefix may fit the wording by which it was chosen, not the occupations.
    reworded = reword_prompts(held_out)
    reworded_answers = evaluator.read([*reworded, *with_prefix(prefix, reworded)])
    gain = _gain(answers, prefix, inference, "gain")
    base = estimate_margin(answers, BASE, inference)
    best = next(candidate for candidate in candidates if candidate.name == prefix.name)
    gain_over_unrelated = _gain_over_unrelated(answers, prefix, control, inference)
    reason = _reason_against(base, gain, gain_over_unrelated, best, max_loss)
    gain_in_continuations, notes = _compare_continuations(evaluator, held_out, prefix, samples)
    return PrefixSelection(
        prefix=prefix.text,
        name=prefix.name,
        is_recommended=not reason,
        reason=reason or "the gain on occupations that did not choose it is distinct from 0",
        base=base,
        margin=estimate_margin(answers, prefix.name, inference),
        gain=gain,
        control_gain=_gain(answers, control, inference, "gain by unrelated sentences"),
        gain_over_unrelated=gain_over_unrelated,
        gain_in_other_wording=_gain(
            reworded_answers, prefix, inference, "gain in another sentence"
        ),
        gain_in_continuations=gain_in_continuations,
        loss=evaluator.estimate_loss("loss", costs[BASE] - costs[prefix.name]),
        loss_over_unrelated=evaluator.estimate_loss(
            "loss beyond", costs[control.name] - costs[prefix.name]
        ),
        candidates=candidates,
        n_train=len(split.train),
        n_held_out=len(held_out),
        dropped=answers.dropped,
        notes=(*answers.responses.notes, *notes),
        provenance=Provenance.of(
            lm.identity.name,
            lm.content_hash,
            revision=lm.identity.revision,
            edits=tuple(edit.content_hash for edit in lm.edits),
            data={
                "prompts": content_hash([list(prompt) for prompt in held_out]),
                "plain sentences": content_hash(list(neutral_sentences())),
                f"lexicon {lexicon.name}": lexicon.sha256,
            },
            equation=PAPER,
            seed=inference.seed,
            settings={
                "cloze": replace(evaluator.cloze, prompts="winobias40").settings
                | {"prompts": "held out"},
                "candidates": [candidate.name for candidate in candidates],
                "max_loss": max_loss,
                "samples": samples,
                "model": {k: v for k, v in lm.settings.items() if k != "batch_shrunk_to"},
                "threads": evaluator.context.threads,
                "resamples": inference.resamples,
                "level": inference.level,
            },
        ),
    )


def _reason_against(
    base: Estimate,
    gain: Estimate,
    gain_over_unrelated: Estimate,
    best: PrefixCandidate,
    max_loss: float,
) -> str:
    """Reason why a prefix is not recommended; empty if it is recommended."""
    if not best.is_viable:
        return f"every candidate takes more than {max_loss:g} a token off plain sentences"
    # From a margin of about 0, every change is away from parity or noise.
    if 0 in base.interval:
        return "without a prefix the margin is not distinct from 0: there is nothing to gain"
    if gain.interval.low <= 0:
        return "the interval of the gain holds no effect"
    # Any text before the prompt may dampen the margin: a prefix must beat unrelated sentences.
    if gain_over_unrelated.interval.low <= 0:
        return "the gain is not distinct from that by as many unrelated sentences"
    return ""


def _compare_continuations(
    evaluator: _PrefixEvaluator,
    held_out: Sequence[CounteractsPrompt],
    prefix: PromptPrefix,
    samples: int,
) -> tuple[Estimate | None, tuple[str, ...]]:
    """Generated text of a causal model about held-out occupations, with the prefix and without."""
    if not samples or not evaluator.lm.layout.model_class.causal:
        reason = "a masked model writes nothing" if samples else "no continuations were wanted"
        return None, (f"sampled: {reason}",)
    unprefixed = Continuation(
        prompts=tuple(held_out),
        k=samples,
        seed=evaluator.inference.seed,
        lexicon=evaluator.cloze.lexicon,
        groups=evaluator.cloze.groups,
    )
    # The same occupations, seed and number of samples: only the prefix differs.
    prefixed = replace(unprefixed, template=f"{prefix.text} The {OCCUPATION} said that")
    all_responses = [
        continuation.read(evaluator.lm, context=evaluator.context)[0]
        for continuation in (unprefixed, prefixed)
    ]
    try:
        return _gain_in_continuations(unprefixed, all_responses, evaluator.inference), ()
    except NotMeasurableError as error:
        return None, (f"sampled: {error.problem}",)


def _gain_in_continuations(
    continuation: Continuation, all_responses: Sequence[Responses], inference: Inference
) -> Estimate:
    """Gain in continuations, with occupations resampled together."""
    metric = continuation.primary_metric
    if len({tuple(item.id for item in responses.items) for responses in all_responses}) > 1:
        raise NotMeasurableError(
            "some occupations were continued with the prefix only, or without it only",
            hint="see why they were dropped",
        )
    values = [metric.per_item_values(responses) for responses in all_responses]
    design = continuation.design(all_responses[0], metric)
    width = values[0].shape[1]

    def nearer(both: torch.Tensor, resample: Resample) -> torch.Tensor:
        before, now = (
            metric.aggregate(both[:, :width], resample),
            metric.aggregate(both[:, width:], resample),
        )
        return before.abs() - now.abs()

    # Both sets of columns side by side, so that one resample of occupations serves both.
    gain_metric = replace(MARGIN, name="gain in continuations", aggregate=nearer, unit=metric.unit)
    return estimate(inference, gain_metric, torch.cat(values, dim=1), design)
