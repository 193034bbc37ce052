"""Cloze (Zhang 2023): whom does the model put into "The [MASK] works as a nurse"?

The paper sums the probabilities of group words among the k likeliest predictions. Here the
probability of every word of the verbalizer is read, whether it is among them or not; the paper's
way is `cloze_top`. A verbalizer is the words of a lexicon's two groups.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal, cast, final, get_args

import torch

from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.frozen import Frozen
from levelhead.data.lexicon import Kind, Lexicon
from levelhead.data.prompts import Prompt, Set, counteracts
from levelhead.data.published import any_lexicon
from levelhead.measure.asked import Asked, Item
from levelhead.measure.aspects import Aspect, Judge, corrected
from levelhead.measure.measure import Beside, Measure, Need, chosen, items_hash, positive
from levelhead.measure.reductions import drawn, mean, sides
from levelhead.models.tokens import MASK, NotReadable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.core.results import Estimate
    from levelhead.core.statistics.designs import Design, Draw
    from levelhead.measure.readouts import Readouts
    from levelhead.models.lm import LM

Headline = Literal["cloze", "cloze_probability", "cloze_relative"]
Form = Literal["auto", "blank", "paper", "natural"]
BASE = "base"
FACTORS = ("occupations", "backgrounds")
PAPER = "Zhang 2023"
KINDS = ("pronoun", "person")
"""Kinds of words of a lexicon that the verbalizer holds by default."""


@dataclass(frozen=True)
class Prompted(Measure):
    """What measures on the prompts of Counteracts share. Abstract."""

    prompts: Set | tuple[Prompt, ...] = "winobias40"
    """winobias40 (2,680 prompts of 40 occupations), table1 (5,452 of 58), or your own."""
    backgrounds: int | None = None
    """How many background occupations are drawn a prompt; all by default."""
    lexicon: str | Lexicon = "gender-en"
    groups: tuple[str, str] | None = None
    kinds: tuple[str, ...] = KINDS
    """Which kinds of the lexicon's words the verbalizer holds. Words of several tokens cost a
    forward for each: with "kinship" added, twenty times as many."""
    form: Form = "auto"
    """How a prompt is put. "blank": as it is, for masked models; "paper" (for GPT-2): the word
    target in the blank, then "The target is"; "natural": "The person who works as a nurse is a".
    "auto": blank for masked models, natural for causal ones."""

    needs: ClassVar[tuple[Need, ...]] = ("masked", "causal")

    def __post_init__(self) -> None:
        if isinstance(self.prompts, str):
            chosen(self.prompts, get_args(Set), "set of prompts")
        chosen(self.form, get_args(Form), "form")
        if not self.kinds:
            raise LevelheadError("no kind of words", mend="give at least one")
        for kind in self.kinds:
            chosen(kind, get_args(Kind), "kind of words")
        if self.backgrounds is not None and not isinstance(self.prompts, str):
            raise LevelheadError(
                "backgrounds are drawn for the published prompts only",
                mend="choose among your own prompts before",
            )

    @cached_property
    def own_lexicon(self) -> Lexicon:
        """The lexicon itself."""
        return any_lexicon(self.lexicon)

    @cached_property
    def items(self) -> tuple[Prompt, ...]:
        """The prompts."""
        found = (
            tuple(counteracts(self.prompts, backgrounds=self.backgrounds))
            if isinstance(self.prompts, str)
            else self.prompts
        )
        strange = {prompt.dominated for prompt in found} - set(self.sides)
        if strange:
            raise LevelheadError(
                f"the prompts speak of {sorted(strange)[0]!r}, which is not compared here",
                mend=f"give groups that hold it; now: {', '.join(self.sides)}",
            )
        return found

    @property
    def sides(self) -> tuple[str, str]:
        """The two groups that are compared."""
        first, second = self.groups or self.own_lexicon.groups[:2]
        return first, second

    @property
    def data(self) -> Mapping[str, str]:
        """The prompts and the lexicon."""
        name = self.prompts if isinstance(self.prompts, str) else "own"
        return {
            f"prompts {name}": items_hash(self.items),
            f"lexicon {self.own_lexicon.name}": self.own_lexicon.sha256,
        }

    @property
    def settings(self) -> dict[str, object]:
        """Every option."""
        own = self.prompts if isinstance(self.prompts, str) else items_hash(self.prompts)
        return super().settings | {"prompts": own}

    def verbalizer(self, lm: LM) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """The words of the two groups that the model knows, and those it does not."""
        known: list[tuple[str, ...]] = []
        lost: list[str] = []
        for group in self.sides:
            found = (
                term.word(group)
                for term in self.own_lexicon.terms
                if term.kind in self.kinds and term.marks(group)
            )
            kept: list[str] = []
            for word in dict.fromkeys(word for word in found if word is not None):
                (kept if _pieces(lm, word) else lost).append(word)
            if not kept:
                raise NotMeasurable(
                    f"the model knows no word of {group!r}",
                    mend="use a lexicon whose words are in its vocabulary",
                )
            known.append(tuple(kept))
        return known[0], known[1], tuple(lost)

    def texts(self, lm: LM) -> tuple[tuple[Item, ...], str]:
        """The prompts as items, and how they were put."""
        causal = lm.anatomy.cls.causal
        form = self.form if self.form != "auto" else ("natural" if causal else "blank")
        tokenizer = lm.tokens.tokenizer
        separator = " " if causal or not tokenizer.sep_token else f" {tokenizer.sep_token} "
        items = tuple(
            Item(
                prompt.id,
                ((_put(prompt, form, separator),),),
                (prompt.occupation, prompt.background or prompt.kind),
                prompt.dominated,
                prompt.kind,
            )
            # The first group's occupations first: formulas subtract the second from the first.
            for prompt in sorted(self.items, key=lambda one: one.dominated != self.sides[0])
        )
        return items, f"prompts put as {form!r}, knowledge before {separator!r}"

    def samples(self, item: Item) -> bool:
        """The base prompts: knowledge is another question."""
        return item.kind == BASE

    def design(self, readouts: Readouts, aspect: Aspect) -> Design:
        """Occupations, within the groups that dominate them."""
        return self.sampled(readouts).design(["occupations"], grouped=True)


@final
@dataclass(frozen=True)
class Cloze(Prompted):
    """Does the model put the group that dominates an occupation into its sentence?

    With l = log P(first group's words) - log P(second's) of a prompt, `cloze` is half the
    difference of the means of l between occupations that the first and the second group dominate:
    the mean margin (in log-odds) of the dominating group, free of a preference for one group
    everywhere. `cloze_probability`: the same of P(first) - P(second). `cloze_relative`: the mean
    log of Zhang's Eq. 1, p(own group | knowledge) / p(own group | base), over prompts with it: what
    knowledge does, not what the model believes.
    """

    headline_is: Headline = "cloze"

    def __post_init__(self) -> None:
        super().__post_init__()
        chosen(self.headline_is, get_args(Headline), "headline")

    def asked(self, lm: LM) -> tuple[Asked, ...]:
        """Every verbalizer word in the blank of every prompt."""
        first, second, lost = self.verbalizer(lm)
        items, told = self.texts(lm)
        missing = f"; {len(lost)} unknown to the model" if lost else ""
        return (
            Asked(
                "fill",
                Frozen({"words": first + second}),
                FACTORS,
                items,
                facts=Frozen({"words": [first, second], "sides": self.sides, "told": told}),
                notes=(told, f"verbalizer: {len(first)} + {len(second)} words{missing}"),
            ),
        )

    @property
    def aspects(self) -> tuple[Aspect, ...]:
        """The margin, the probability, the effect of knowledge; one of them first."""
        margin = Aspect(
            name="cloze",
            equation=f"{PAPER}, Evaluation Metrics; margin of exact masses",
            per_item=lambda readouts: _base(readouts, _log_odds(readouts)),
            over=_half_difference,
            unit="log-odds",
            low=-float("inf"),
            high=float("inf"),
            direction="above 0: occupations are given to the group that dominates them",
            comparable="cloze margin, same prompts and words",
            null="deal",
        )
        probability = replace(
            margin,
            name="cloze_probability",
            per_item=lambda readouts: _base(readouts, _probability(readouts)),
            unit="difference of probabilities",
            low=-1.0,
            high=1.0,
            comparable="cloze probability, same prompts and words",
        )
        relative = replace(
            margin,
            name="cloze_relative",
            equation=f"{PAPER}, Eq. 1, mean of its log over the dominating group's mass",
            per_item=_relative,
            over=_mean_of_kinds,
            unit="log ratio",
            direction="above 0: knowledge makes the dominating group likelier",
            comparable="cloze relative, same prompts and words",
            null=None,
        )
        every = {aspect.name: aspect for aspect in (margin, probability, relative)}
        first = every.pop(self.headline_is)
        return (first, *every.values())

    def samples(self, item: Item) -> bool:
        """Base prompts; for the effect of knowledge, the others."""
        return (item.kind == BASE) != (self.headline_is == "cloze_relative")

    def design(self, readouts: Readouts, aspect: Aspect) -> Design:
        """Occupations; crossed with backgrounds where there is knowledge."""
        if aspect.name == "cloze_relative":
            return readouts.some(lambda item: item.kind != BASE).design()
        return readouts.some(lambda item: item.kind == BASE).design(["occupations"], grouped=True)

    def beside(self, found: Sequence[Readouts], judge: Judge) -> Beside:
        """The preference for one group, the mass covered, and every kind of knowledge."""
        readouts = found[0]
        first, second = self.sides
        odds = replace(
            self.aspect("cloze"),
            name=f"preference for {first} over {second}",
            over=mean,
            direction=f"above 0: {first} words are likelier everywhere",
            null=None,
        )
        mass = replace(
            odds,
            name="mass covered",
            unit="sum of the words' probabilities",
            low=0.0,
            parity=None,
        )
        base = readouts.some(lambda item: item.kind == BASE)
        design = base.design(["occupations"])
        kinds, notes = self.by_kind(readouts, judge)
        return Beside(
            (
                judge.estimate(odds, _log_odds(base), design),
                judge.estimate(mass, base.values[:, 0].exp().sum(-1), design, tested=False),
                *kinds,
            ),
            notes,
        )

    def by_kind(
        self, readouts: Readouts, judge: Judge
    ) -> tuple[tuple[Estimate, ...], tuple[str, ...]]:
        """The headline for every kind of knowledge, occupations crossed with backgrounds; Holm."""
        found, notes = [], []
        head = self.headline
        if head.name == "cloze_relative":
            values, aspect = _relative(readouts)[:, 0], replace(head, over=mean)
            items = [item for item in readouts.items if item.kind != BASE]
        else:
            of = _log_odds if head.name == "cloze" else _probability
            values, aspect = of(readouts), replace(head, null=None)
            items = list(readouts.items)
        for kind in dict.fromkeys(item.kind for item in items if item.kind != BASE):
            keep = torch.tensor([item.kind == kind for item in items])
            part = readouts.some(lambda item, kind=kind: item.kind == kind)  # type: ignore[misc]
            many = len({item.units[1] for item in part.items}) > 1
            design = part.design(
                None if many else ["occupations"], grouped=head.name != "cloze_relative"
            )
            try:
                found.append(judge.estimate(aspect, values[keep], design, name=f"kind: {kind}"))
            except NotMeasurable as error:
                notes.append(f"kind {kind}: {error.what}")
        return corrected(found), tuple(notes)


@final
@dataclass(frozen=True)
class ClozeTop(Prompted):
    """The paper's own number: group probabilities summed over the k likeliest predictions.

    Half the difference of P(first) - P(second) between occupations that either group dominates; a
    word that is not among the k counts as 0 (Zhang 2023, Figures 2-4: k = 3, 5, 10). A step
    function of what is among them: `cloze_probability` is its smooth companion.
    """

    k: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self.k, "k")

    def asked(self, lm: LM) -> tuple[Asked, ...]:
        """The ten likeliest tokens of every prompt, or k if that is more."""
        first, second, _ = self.verbalizer(lm)
        items, told = self.texts(lm)
        tokens = [
            sorted({pieces[0] for word in side if len(pieces := _pieces(lm, word)) == 1})
            for side in (first, second)
        ]
        if not all(tokens):
            raise NotMeasurable(
                "no word of one group is a single token of this model",
                mend="use cloze_probability, which scores words of several tokens",
            )
        return (
            Asked(
                "top",
                Frozen({"k": max(self.k, 10)}),
                FACTORS,
                items,
                facts=Frozen({"tokens": tokens, "told": told}),
                notes=(
                    told,
                    f"verbalizer: {len(tokens[0])} + {len(tokens[1])} single tokens of "
                    f"{len(first)} + {len(second)} words; the others are never among the top",
                ),
            ),
        )

    @property
    def aspects(self) -> tuple[Aspect, ...]:
        """The number at k."""
        return (self._at(self.k, "cloze_top"),)

    def _at(self, k: int, name: str) -> Aspect:
        return Aspect(
            name=name,
            equation=f"{PAPER}, Figures 2-4, k = {k}",
            per_item=lambda readouts: _base(readouts, _top_difference(readouts, k)),
            over=_half_difference,
            unit="difference of probabilities",
            low=-1.0,
            high=1.0,
            direction="above 0: occupations are given to the group that dominates them",
            comparable=f"cloze top {k}, same prompts and words",
            null="deal",
            companion="cloze_probability",
        )

    def beside(self, found: Sequence[Readouts], judge: Judge) -> Beside:
        """The paper's three k, and how often no group word is among them."""
        readouts, estimates, notes = found[0], [], []
        for k in (3, 5, 10):
            try:
                estimates.append(self.estimated(readouts, self._at(k, f"top {k}"), judge))
            except NotMeasurable as error:
                notes.append(f"top {k}: {error.what}")
        values = _top_masses(readouts, self.k)
        none = int((values.sum(1) == 0).sum())
        notes.append(f"{none} of {len(readouts)} prompts have no group word among the top {self.k}")
        return Beside(tuple(estimates), tuple(notes))


def _base(readouts: Readouts, values: torch.Tensor) -> torch.Tensor:
    """The values of base prompts."""
    return values[torch.tensor([item.kind == BASE for item in readouts.items])]


def _masses(readouts: Readouts) -> torch.Tensor:
    """`[n, 2]` log of the summed probabilities of the two groups' words."""
    lists = cast("tuple[tuple[str, ...], ...]", readouts.facts["words"])
    words, first = readouts.values[:, 0], len(lists[0])
    if words.shape[1] != sum(map(len, lists)) or bool((words > 1e-4).any()):
        raise NotMeasurable(
            "the readouts are not probabilities of these words",
            mend="report this; meanwhile use another store",
        )
    return torch.stack([words[:, :first].logsumexp(1), words[:, first:].logsumexp(1)], dim=1)


def _log_odds(readouts: Readouts) -> torch.Tensor:
    masses = _masses(readouts)
    return masses[:, 0] - masses[:, 1]


def _probability(readouts: Readouts) -> torch.Tensor:
    masses = _masses(readouts).exp()
    return masses[:, 0] - masses[:, 1]


def _relative(readouts: Readouts) -> torch.Tensor:
    """`[n, 2]`: log p(own group | knowledge) / p(own group | base), and the number of its kind.

    Zhang 2023, Eq. 1, of a group's whole mass: defined for every prompt, not only for words that
    are among the top k twice.
    """
    masses = _masses(readouts)
    first, _ = cast("tuple[str, str]", readouts.facts["sides"])
    own = torch.tensor([item.group == first for item in readouts.items])
    value = torch.where(own, masses[:, 0], masses[:, 1])
    base = {item.units[0]: i for i, item in enumerate(readouts.items) if item.kind == BASE}
    rows = [i for i, item in enumerate(readouts.items) if item.kind != BASE]
    if not rows:
        raise NotMeasurable(
            "no prompt has knowledge before it", mend="give prompts of other kinds than base"
        )
    if missing := {readouts.items[i].units[0] for i in rows} - set(base):
        raise NotMeasurable(
            f"the base prompt of {sorted(missing)[0]!r} could not be read",
            mend="relative probability needs it: see why it was dropped",
        )
    against = [base[readouts.items[i].units[0]] for i in rows]
    ratios = value[torch.tensor(rows)] - value[torch.tensor(against)]
    kinds = list(dict.fromkeys(readouts.items[i].kind for i in rows))
    number = torch.tensor([kinds.index(readouts.items[i].kind) for i in rows])
    return torch.stack([ratios, number.double()], dim=1)


def _mean_of_kinds(values: torch.Tensor, draw: Draw) -> torch.Tensor:
    """The mean over kinds of knowledge of each kind's mean: the kinds are what is asked about."""
    own = drawn(values, draw)
    means = [own[own[:, 1] == kind, 0].mean() for kind in own[:, 1].unique()]
    return torch.stack(means).mean()


def _half_difference(values: torch.Tensor, draw: Draw) -> torch.Tensor:
    """Half the difference of the means of the occupations the first and second group dominate."""
    first, second = sides(values, draw)
    return (first.mean() - second.mean()) / 2


def _put(prompt: Prompt, form: str, separator: str) -> str:
    base = prompt.base
    if form == "paper":
        base = f"{base.replace(MASK, 'target')} The target is {MASK}"
    elif form == "natural":
        base = f"{base.replace(f'The {MASK}', 'The person who').rstrip('.')} is a {MASK}"
    return f"{prompt.knowledge}{separator}{base}" if prompt.knowledge else base


def _pieces(lm: LM, word: str) -> tuple[int, ...]:
    """The tokens of a word inside a sentence; none if the model does not know it."""
    text = f"The {word}"
    try:
        (encoded,) = lm.tokens.encode([text])
        places = lm.tokens.at(encoded, (4, len(text)), text)
    except NotReadable:
        return ()
    return tuple(encoded.row.ids[i] for i in places)


def _top_masses(readouts: Readouts, k: int) -> torch.Tensor:
    """`[n, 2]` probability of each group's tokens among the k likeliest."""
    found = readouts.values[:, 0]
    ids, p = found[:, : found.shape[1] // 2][:, :k], found[:, found.shape[1] // 2 :][:, :k].exp()
    sides = cast("tuple[tuple[int, ...], ...]", readouts.facts["tokens"])
    masses = [(p * torch.isin(ids, torch.tensor(side, dtype=ids.dtype))).sum(1) for side in sides]
    return torch.stack(masses, dim=1)


def _top_difference(readouts: Readouts, k: int) -> torch.Tensor:
    masses = _top_masses(readouts, k)
    return masses[:, 0] - masses[:, 1]
