"""A prefix that is measured to help: Zhang 2023's conclusion as something to use.

Chosen on some occupations, reported once on others: there, in another sentence, and in what the
model writes. If the interval of the gain holds 0, nothing is recommended.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, final

import torch
from pydantic import Field

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import NotMeasurable
from levelhead.core.frozen import Frozen
from levelhead.core.results import Dropped, Estimate, Provenance, Record
from levelhead.core.run_context import Inference, RunContext
from levelhead.measures.cloze.battery import Answers, Battery
from levelhead.measures.cloze.cloze import Cloze
from levelhead.measures.cloze.formatting import wording
from levelhead.measures.cloze.margins import MARGIN, margin_of
from levelhead.measures.cloze.prompts_base import BASE, PAPER
from levelhead.measures.generation.continuation import OCCUPATION, Continuation
from levelhead.measures.inference import estimate
from levelhead.measures.items import Asked, Item
from levelhead.measures.reductions import half_difference, mean
from levelhead.measures.responses import read
from levelhead.mitigate.prompting.prefixes import (
    Prefix,
    after,
    candidates,
    halves,
    otherwise,
    unrelated,
)
from levelhead.stats.designs import clusters, groups

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.data.prompts.counteracts import Prompt, Set
    from levelhead.measures.responses import Readouts
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Draw


class Candidate(Record):
    """One prefix on the occupations that are chosen by."""

    name: str
    text: str
    margin: Estimate
    loss: float
    """What it takes off plain sentences beyond as many unrelated ones; log-probability a token."""
    viable: bool


class PromptChoice(Record):
    """The prefix chosen, what it does on occupations it was not chosen by, and what it costs."""

    prefix: str
    name: str
    recommended: bool
    why: str
    base: Estimate
    """The margin on held-out occupations without a prefix."""
    margin: Estimate
    """With it."""
    gain: Estimate
    """|base| - |with it|: towards parity."""
    control: Estimate
    """The gain by as many unrelated sentences."""
    net: Estimate
    """The gain beyond that: what is recommended must be more than any sentences do."""
    elsewhere: Estimate
    """The gain in another sentence."""
    sampled: Estimate | None = None
    """The gain in what a causal model writes about held-out occupations."""
    loss: Estimate
    """Of the log-probability a token of plain sentences."""
    loss_beyond: Estimate
    """The same beyond that by as many unrelated sentences."""
    candidates: tuple[Candidate, ...]
    train: Annotated[int, Field(ge=2)]
    held: Annotated[int, Field(ge=2)]
    dropped: tuple[Dropped, ...]
    notes: tuple[str, ...] = ()
    provenance: Provenance

    def __str__(self) -> str:
        told = "recommended" if self.recommended else "not recommended"
        return f"{told}: gain {self.gain.value:.3g} {self.gain.interval}, {self.prefix!r}"


def prompt(
    lm: LM,
    prompts: Set = "winobias40",
    *,
    cloze: Cloze | None = None,
    sizes: Sequence[int] = (2, 4),
    each: int = 3,
    limit: float = 0.1,
    samples: int = 10,
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> PromptChoice:
    """Choose a prefix of counterexamples, and report once what it does.

    Args:
        lm: a masked or causal model, edited or not.
        prompts: whose occupations: winobias40 or table1.
        cloze: verbalizer, form and separator; its prompts are replaced.
        sizes: sentences in a prefix.
        each: candidates of each frame and size.
        limit: the most that a candidate may take off plain sentences beyond as many unrelated
            ones, in log-probability a token.
        samples: continuations of each held-out occupation; 0: none.
        inference: seed, resamples and level. The seed also cuts the occupations and draws
            candidates.
        context: store, threads, progress and cancellation.
    """
    cloze = cloze or Cloze()
    how = _How(lm, cloze, inference, context)
    cut = halves(prompts, seed=inference.seed)
    named = [one.occupation for one in cut.train]
    tried = candidates(prompts, named, sizes=sizes, each=each, seed=inference.seed)
    controls = {size: unrelated(size) for size in sizes}
    train = how.read([*cut.train, *(p for one in tried for p in after(one, cut.train))])
    costs = how.costs([*tried, *controls.values()])
    rows = tuple(
        _candidate(one, train, costs, controls[one.sentences], limit, inference) for one in tried
    )
    best = _best(rows)
    chosen = next(one for one in tried if one.name == best.name)
    return _reported(how, cut.held, chosen, controls[chosen.sentences], costs, rows, samples,
                     train=len(cut.train), limit=limit)  # fmt: skip


def plain_sentences() -> tuple[str, ...]:
    """Sentences about no person, which a prefix should leave alone."""
    text = files("levelhead.data").joinpath("plain_sentences.txt").read_text("utf-8")
    return tuple(text.splitlines())


@final
@dataclass(frozen=True, eq=False)
class _How:
    """How everything is asked."""

    lm: LM
    cloze: Cloze
    inference: Inference
    context: RunContext

    def read(self, prompts: Sequence[Prompt]) -> Answers:
        own = replace(self.cloze, prompts=tuple(prompts), backgrounds=None)
        return Battery(own).read(
            self.lm,
            context=self.context,
        )

    def costs(self, prefixes: Sequence[Prefix]) -> dict[str, torch.Tensor]:
        """`[sentences]` log-probability a token of plain sentences behind each prefix, and none.

        Without its first word, which some models cannot score where nothing stands before it.
        """
        sentences = plain_sentences()
        way = wording(self.lm, self.cloze.form, self.cloze.separator)
        items = []
        for name, text in [(BASE, ""), *((one.name, one.text + way.separator) for one in prefixes)]:
            for i, sentence in enumerate(sentences):
                start, end = len(text) + sentence.index(" "), len(text) + len(sentence)
                ask = (f"{text}{sentence}", ((start, end),))
                items.append(Item(f"{name}/{i}", (ask,), (str(i),), kind=name))
        asked = Asked("score", Frozen({}), ("sentences",), tuple(items))
        (found,) = read(
            self.lm,
            [asked],
            context=self.context,
        )
        if found.dropped:
            raise NotMeasurable(
                f"a plain sentence cannot be read: {found.dropped[0][1]}",
                mend="the price is not known without them: use a model whose vocabulary has them",
            )
        each = found.values[:, 0, 0] / found.values[:, 0, 1]
        kinds = dict.fromkeys(item.kind for item in found.items)
        return {
            kind: each[torch.tensor([item.kind == kind for item in found.items])] for kind in kinds
        }

    def priced(self, name: str, change: torch.Tensor) -> Estimate:
        """The mean change over plain sentences."""
        aspect = replace(MARGIN, name=name, over=mean, unit="log-probability a token")
        return estimate(self.inference, aspect, change, groups(len(change), name="sentences"))


def _candidate(
    one: Prefix,
    train: Answers,
    costs: dict[str, torch.Tensor],
    control: Prefix,
    limit: float,
    inference: Inference,
) -> Candidate:
    loss = float((costs[control.name] - costs[one.name]).mean())
    return Candidate(
        name=one.name,
        text=one.text,
        margin=margin_of(train, one.name, inference),
        loss=loss,
        viable=loss <= limit,
    )


def _best(rows: Sequence[Candidate]) -> Candidate:
    """Nearest to parity among those that do not cost too much; the cheapest if all do."""
    viable = [one for one in rows if one.viable]
    if not viable:
        return min(rows, key=lambda one: one.loss)
    return min(viable, key=lambda one: abs(one.margin.value))


def _gain(answers: Answers, prefix: Prefix, inference: Inference, name: str) -> Estimate:
    """|base| - |with it|, both redrawn together."""
    where = answers.where(prefix.name)
    aspect = replace(MARGIN, name=name, over=_nearer)
    both = torch.stack([answers.before[where], answers.margin[where]], dim=1)
    return estimate(inference, aspect, both, answers.design(prefix.name))


def _net(answers: Answers, prefix: Prefix, control: Prefix, inference: Inference) -> Estimate:
    """|margin behind unrelated sentences| - |with it|, both redrawn together."""
    one, other = (
        {answers.items[i].units[0]: i for i in answers.where(own.name).tolist()}
        for own in (control, prefix)
    )
    names = [name for name in one if name in other]
    rows = torch.tensor([[one[name], other[name]] for name in names])
    sides = [answers.items[other[name]].group for name in names]
    design = clusters(names, name="occupations", within=sides)
    aspect = replace(MARGIN, name="gain beyond unrelated sentences", over=_nearer)
    return estimate(inference, aspect, answers.margin[rows], design)


def _nearer(values: torch.Tensor, draw: Draw) -> torch.Tensor:
    before, now = (half_difference(values[:, i], draw) for i in (0, 1))
    return before.abs() - now.abs()


def _reported(
    how: _How,
    held: Sequence[Prompt],
    chosen: Prefix,
    control: Prefix,
    costs: dict[str, torch.Tensor],
    rows: tuple[Candidate, ...],
    samples: int,
    *,
    train: int,
    limit: float,
) -> PromptChoice:
    """Once, on occupations that neither stand in the prefix nor chose it."""
    lm, inference = how.lm, how.inference
    answers = how.read([*held, *after(chosen, held), *after(control, held)])
    other = otherwise(held)
    elsewhere = how.read([*other, *after(chosen, other)])
    gain = _gain(answers, chosen, inference, "gain")
    base = margin_of(answers, BASE, inference)
    best = next(one for one in rows if one.name == chosen.name)
    net = _net(answers, chosen, control, inference)
    why = _why(base, gain, net, best, limit)
    sampled, notes = _sampled(how, held, chosen, samples)
    return PromptChoice(
        prefix=chosen.text,
        name=chosen.name,
        recommended=not why,
        why=why or "the gain on occupations it was not chosen by is told from 0",
        base=base,
        margin=margin_of(answers, chosen.name, inference),
        gain=gain,
        control=_gain(answers, control, inference, "gain by unrelated sentences"),
        net=net,
        elsewhere=_gain(elsewhere, chosen, inference, "gain in another sentence"),
        sampled=sampled,
        loss=how.priced("loss", costs[BASE] - costs[chosen.name]),
        loss_beyond=how.priced("loss beyond", costs[control.name] - costs[chosen.name]),
        candidates=rows,
        train=train,
        held=len(held),
        dropped=answers.dropped,
        notes=(*answers.readouts.notes, *notes),
        provenance=Provenance.of(
            lm.identity.name,
            lm.content_hash,
            revision=lm.identity.revision,
            edits=tuple(edit.content_hash for edit in lm.edits),
            data={
                "prompts": content_hash([list(one) for one in held]),
                "plain sentences": content_hash(list(plain_sentences())),
                f"lexicon {how.cloze.own_lexicon.name}": how.cloze.own_lexicon.sha256,
            },
            equation=PAPER,
            seed=inference.seed,
            settings={
                "cloze": replace(how.cloze, prompts="winobias40").settings | {"prompts": "held"},
                "candidates": [one.name for one in rows],
                "limit": limit,
                "samples": samples,
                "model": {k: v for k, v in lm.settings.items() if k != "batch_shrunk_to"},
                "threads": how.context.threads,
                "resamples": inference.resamples,
                "level": inference.level,
            },
        ),
    )


def _why(base: Estimate, gain: Estimate, net: Estimate, best: Candidate, limit: float) -> str:
    """Why a prefix is not recommended; empty if it is."""
    if not best.viable:
        return f"every candidate takes more than {limit:g} a token off plain sentences"
    if 0 in base.interval:
        return "without a prefix the margin is not told from 0: there is nothing to gain"
    if gain.interval.low <= 0:
        return "the interval of the gain holds no effect"
    if net.interval.low <= 0:
        return "the gain is not told from that by as many unrelated sentences"
    return ""


def _sampled(
    how: _How, held: Sequence[Prompt], chosen: Prefix, samples: int
) -> tuple[Estimate | None, tuple[str, ...]]:
    """What a causal model writes about held-out occupations, with the prefix and without."""
    if not samples or not how.lm.anatomy.cls.causal:
        told = "a masked model writes nothing" if samples else "no continuations were wanted"
        return None, (f"sampled: {told}",)
    plainly = Continuation(prompts=tuple(held), k=samples, seed=how.inference.seed,
                           lexicon=how.cloze.lexicon, groups=how.cloze.groups)  # fmt: skip
    behind = replace(plainly, template=f"{chosen.text} The {OCCUPATION} said that")
    found = [one.read(how.lm, context=how.context)[0] for one in (plainly, behind)]
    try:
        return _written(plainly, found, how.inference), ()
    except NotMeasurable as error:
        return None, (f"sampled: {error.what}",)


def _written(ruler: Continuation, found: Sequence[Readouts], inference: Inference) -> Estimate:
    """The gain in continuations, occupations redrawn together."""
    head = ruler.headline
    if len({tuple(item.id for item in one.items) for one in found}) > 1:
        raise NotMeasurable(
            "some occupations were continued with the prefix only, or without it only",
            mend="see why they were dropped",
        )
    values = [head.per_item(one) for one in found]
    design = ruler.design(found[0], head)
    width = values[0].shape[1]

    def nearer(both: torch.Tensor, draw: Draw) -> torch.Tensor:
        before, now = head.over(both[:, :width], draw), head.over(both[:, width:], draw)
        return before.abs() - now.abs()

    aspect = replace(MARGIN, name="gain in continuations", over=nearer, unit=head.unit)
    return estimate(inference, aspect, torch.cat(values, dim=1), design)
