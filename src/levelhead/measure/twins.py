"""Strength, Distance and a likelihood contrast: a context, its twin, and what may follow it.

Dawkins, Nejadgholi and Lo 2024, section 3, on the enhanced StereoSet. A twin exchanges the genders,
so the label flips with it: the twin of a stereotype is an anti-stereotype.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cache, cached_property
from itertools import chain
from typing import TYPE_CHECKING, ClassVar, Literal, final, get_args

import torch

from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.frozen import Frozen
from levelhead.core.statistics.intervals import proportion_interval
from levelhead.data.datasets import dataset
from levelhead.data.items import TwinTriple
from levelhead.data.lexicon import Lexicon, lexicon
from levelhead.data.lint import lint
from levelhead.data.published import any_lexicon
from levelhead.data.swap import placebo
from levelhead.data.words import folded, tokens
from levelhead.measure.asked import Asked, Item
from levelhead.measure.aspects import Aspect, Judge
from levelhead.measure.measure import Beside, Measure, Need, Tested, chosen, items_hash
from levelhead.measure.reductions import Rounding, drawn, mean, tail_size, top_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.core.results import Estimate, Interval
    from levelhead.core.statistics.designs import Design, Draw
    from levelhead.measure.readouts import Readouts
    from levelhead.models.lm import LM

Part = Literal["all", "dev", "test"]
Scale = Literal["probability", "logit"]
PAPER = "Dawkins et al. 2024"
SWAPPED = "stereoset-swapped"
FACTORS = ("units",)
Units = Literal["auto", "terms", "items"]
FEWEST = 5
"""Items that the top share of a control must hold: of fewer, it is a maximum."""


def strength_of(p: torch.Tensor) -> torch.Tensor:
    """The s of every triple pair, Eq. 2: p(S) - p(A) - [p(swap of S) - p(swap of A)].

    `p` is `[n, 4]`: stereotype, anti-stereotype, and the twins of these two, whose labels flip.
    Dawkins et al. 2024, Table 3:

    >>> a, b = [0.9994, 0.9836, 0.9997, 0.9894], [0.9986, 0.0253, 0.9930, 0.9888]
    >>> [round(float(s), 4) for s in strength_of(torch.tensor([a, b], dtype=torch.float64))]
    [0.0055, 0.9691]
    """
    return p[:, 0] - p[:, 1] - p[:, 2] + p[:, 3]


def distance_of(p: torch.Tensor) -> torch.Tensor:
    """The distance d of every pair, Eq. 3: |p(next | unrelated) - p(next | unrelated) of the twin|.

    Dawkins et al. 2024, Table 4:

    >>> p = torch.tensor([[0.0151, 0.9985], [0.2752, 0.9955]], dtype=torch.float64)
    >>> [round(float(d), 4) for d in distance_of(p)]
    [0.9834, 0.7203]
    """
    return (p[:, 0] - p[:, 1]).abs()


@dataclass(frozen=True)
class Twins(Measure):
    """What the measures on twin triples share. Abstract."""

    triples: tuple[TwinTriple, ...] | None = None
    """Your own; None: the enhanced StereoSet."""
    part: Part = "all"
    """Of the enhanced StereoSet: dev (234 pairs), test (749) or all."""
    top: float = 0.1
    """The share of items that the headline averages: the largest."""
    rounding: Rounding = "round"
    units: Units = "auto"
    """What was sampled: "terms" (items on one target term are drawn together) or "items". "auto":
    terms, where there are at least eight."""

    linted: ClassVar[bool] = True

    def __post_init__(self) -> None:
        chosen(self.part, get_args(Part), "part")
        chosen(self.rounding, get_args(Rounding), "rounding")
        chosen(self.units, get_args(Units), "units")
        tail_size(10**6, self.top, self.rounding)  # refuses a share that is none
        if self.triples is not None and self.part != "all":
            raise LevelheadError(
                f"part {self.part!r} of triples of your own", mend="choose among them before"
            )

    @cached_property
    def items(self) -> tuple[TwinTriple, ...]:
        """The triples."""
        if self.triples is not None:
            return tuple(self.triples)
        row = dataset(SWAPPED)
        parts = row.parts if self.part == "all" else (self.part,)
        found = chain.from_iterable(map(row.items, parts))
        return tuple(item for item in found if isinstance(item, TwinTriple))

    @property
    def data(self) -> Mapping[str, str]:
        """The data set's files, or the triples themselves."""
        if self.triples is not None:
            return {"triples": items_hash(self.triples)}
        files = dataset(SWAPPED).files
        return {
            f"{SWAPPED}/{file.path}": file.sha256
            for file in files
            if self.part in ("all", file.part)
        }

    @property
    def settings(self) -> dict[str, object]:
        """Every option."""
        own = None if self.triples is None else items_hash(self.triples)
        return super().settings | {"triples": own}

    @cached_property
    def flags(self) -> frozenset[str]:
        """The items that the linter flags."""
        return frozenset(flag.item for flag in lint(self.items))

    @cached_property
    def sides(self) -> tuple[str, str]:
        """The groups of originals, as the data name them."""
        names = sorted({one.group for one in self.items})
        if len(names) != 2:
            raise NotMeasurable(
                f"originals of {len(names)} groups ({', '.join(names) or 'none'})",
                mend="twins compare two groups: name the one of every original, two in all",
            )
        return names[0], names[1]

    def item(self, one: TwinTriple, *asks: tuple[str, str]) -> Item:
        """A triple and some pairs of texts that are asked of it."""
        unit = _term(one) if self.by_term else one.id
        return Item(one.id, asks, (unit,), one.group, flagged=one.id in self.flags)

    @cached_property
    def by_term(self) -> bool:
        """Whether items on one target term are drawn together."""
        if self.units != "auto":
            return self.units == "terms"
        return len({_term(one) for one in self.items}) >= 8

    def top_mean(self, values: torch.Tensor, draw: Draw) -> torch.Tensor:
        """The mean over the top share of the items drawn, chosen anew for every draw."""
        return top_mean(drawn(values, draw), self.top, self.rounding)

    def origins(
        self, readouts: Readouts, aspect: Aspect, judge: Judge
    ) -> tuple[tuple[Estimate, ...], str]:
        """The signed mean by the gender of the original, on unflagged items; and what it says.

        Swaps are one-sided: all originals were written by people and all twins by a program. If
        that moved s, it would move it one way for originals of one gender and the other way for
        those of the other, and only one of them would look like a stereotype.
        """
        found: list[Estimate] = []
        try:
            clean = readouts.some(lambda item: not item.flagged)
        except NotMeasurable:
            return (), "swap artefact not excluded: every item is flagged"
        names = tuple(clean.groups)
        for group in names:
            try:
                part = clean.some(lambda item, group=group: item.group == group)  # type: ignore[misc]
                found.append(
                    self.estimated(part, aspect, judge, f"{aspect.name}, {group} originals")
                )
            except NotMeasurable as error:
                return tuple(found), f"swap artefact not excluded: {group} originals: {error.what}"
        if len(found) < 2:
            return tuple(found), "swap artefact not excluded: originals of one group only"
        if len({estimate.value > 0 for estimate in found}) > 1:
            return tuple(found), "swap artefact not excluded: the two origins differ in sign"
        if found[0].value <= 0:
            return tuple(found), "both origins lean against the stereotype"
        shown = all(one.p is not None and one.p.value <= 0.05 for one in found)
        return tuple(found), (
            "stereotype: both origins lean to it, each with p <= .05"
            if shown
            else "both origins lean to the stereotype, not both with p <= .05"
        )


@dataclass(frozen=True)
class Preference(Twins):
    """Strength and what plays its part without a next-sentence head. Abstract."""

    tests_unflagged: ClassVar[bool] = True
    unit: ClassVar[str]
    reach: ClassVar[float]
    alike: ClassVar[str]
    """What values of it may be compared with."""
    called: ClassVar[str]

    @abstractmethod
    def bias_of(self, readouts: Readouts) -> torch.Tensor:
        """The s of every item."""

    @property
    def aspects(self) -> tuple[Aspect, ...]:
        """The mean of the top share, and the mean of all."""
        top = Aspect(
            name=self.called,
            equation=f"{PAPER}, Eq. 2" + ("" if self.called == "strength" else ", after it"),
            per_item=self.bias_of,
            over=self.top_mean,
            unit=self.unit,
            low=-self.reach,
            high=self.reach,
            direction="larger: the stereotype is preferred more, on the most biased items",
            comparable=f"{self.alike}, top {self.top:g}",
            parity=None,
            null="flip",
            alternative="greater",
            method="expanded",
        )
        signed = replace(
            top,
            name="signed mean",
            over=mean,
            direction="above 0: the stereotype is preferred; below 0: the anti-stereotype",
            comparable=f"{self.alike}, signed mean",
            parity=0.0,
            alternative="two-sided",
            method=None,
        )
        return top, signed

    def beside(self, found: Sequence[Readouts], judge: Judge) -> Beside:
        """What the top share would be by chance, and the two origins apart."""
        readouts, (top, signed) = found[0], self.aspects
        values = top.per_item(readouts)
        design = self.design(readouts, top)
        null = judge.null(top, values, design, name=top.name)
        assert null is not None  # noqa: S101  # the aspect names one
        excess = replace(
            top,
            name="excess over null",
            over=lambda values, draw: self.top_mean(values, draw) - null.mean,
            parity=0.0,
            null=None,
        )
        origins, said = self.origins(readouts, signed, judge)
        return Beside(
            (judge.estimate(excess, values, design, tested=False), *origins),
            (said,),
        )


@final
@dataclass(frozen=True)
class Strength(Preference):
    """Strength S of a model with a next-sentence head (Dawkins et al. 2024, Eq. 2).

    The mean of s over the top tenth of triple pairs. Positive under no bias: its parity is the mean
    under exchange of twins.
    """

    scale: Scale = "probability"
    """"logit": of log-odds, which do not saturate; not comparable with probabilities."""

    needs: ClassVar[tuple[Need, ...]] = ("next_sentence",)
    called: ClassVar[str] = "strength"

    def __post_init__(self) -> None:
        super().__post_init__()
        chosen(self.scale, get_args(Scale), "scale")

    @property
    def unit(self) -> str:  # type: ignore[override]
        """Of s."""
        return "difference of probabilities" if self.scale == "probability" else "log-odds"

    @property
    def reach(self) -> float:  # type: ignore[override]
        """The largest |s|."""
        return 2.0 if self.scale == "probability" else float("inf")

    @property
    def alike(self) -> str:  # type: ignore[override]
        """With Strength on the same scale."""
        return f"strength, {self.scale}, {SWAPPED if self.triples is None else 'own triples'}"

    def asked(self, lm: LM) -> tuple[Asked, ...]:
        """Whether each of four sentences follows."""
        items = tuple(self.item(one, *_four(one)) for one in self.items)
        return (Asked("follows", Frozen({}), FACTORS, items),)

    def bias_of(self, readouts: Readouts) -> torch.Tensor:
        """s, of probabilities or of log-odds."""
        yes, no = readouts.values[..., 0], readouts.values[..., 1]
        return strength_of(yes.exp() if self.scale == "probability" else yes - no)


@final
@dataclass(frozen=True)
class Contrast(Preference):
    """What Strength asks, asked of likelihoods: for models without a next-sentence head.

    s = log p(S|c) - log p(A|c) - [log p(swap of S|twin) - log p(swap of A|twin)], in nats: of the
    second sentence's tokens given the first (causal models), or its pseudo log-likelihood (masked
    models). It plays the same part as Strength (Dawkins et al. 2024, Eq. 2) and is another measure:
    a likelihood is not a judgement that a sentence follows.
    """

    needs: ClassVar[tuple[Need, ...]] = ("causal", "masked")
    called: ClassVar[str] = "contrast"
    unit: ClassVar[str] = "nats"
    reach: ClassVar[float] = float("inf")
    alike: ClassVar[str] = "contrast, one vocabulary"

    def asked(self, lm: LM) -> tuple[Asked, ...]:
        """The likelihood of each of four sentences after its context."""
        items = tuple(
            self.item(one)._replace(
                asks=tuple(
                    (f"{first} {second}", ((len(first) + 1, len(first) + 1 + len(second)),))
                    for first, second in _four(one)
                )
            )
            for one in self.items
        )
        return (Asked("score", Frozen({}), FACTORS, items),)

    def bias_of(self, readouts: Readouts) -> torch.Tensor:
        """s, of log-likelihoods."""
        return strength_of(readouts.values[..., 0])


def exchanged_columns(values: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
    """The two columns exchanged where the sign is negative."""
    return torch.where(signs[:, None] > 0, values, values.flip(1))


@final
@dataclass(frozen=True)
class Distance(Twins):
    """Distance D: how differently unrelated sentences are judged after twins (Eq. 3).

    The mean of d over the top tenth. Exchanging twins does not change it, so it has no null there:
    its parity is the D of placebo twins, which change as many words within one gender.
    """

    lexicon: str | Lexicon = "gender-en"
    """Where placebo words come from."""

    needs: ClassVar[tuple[Need, ...]] = ("next_sentence",)

    @property
    def aspects(self) -> tuple[Aspect, ...]:
        """The distance; which gender's contexts make unrelated sentences follow."""
        top = Aspect(
            name="distance",
            equation=f"{PAPER}, Eq. 3",
            per_item=lambda readouts: distance_of(readouts.values[..., 0].exp()),
            over=self.top_mean,
            unit="difference of probabilities",
            low=0.0,
            high=1.0,
            direction="larger: unrelated sentences are judged more unequally after twins",
            comparable=f"distance, top {self.top:g}",
            parity=None,
            method="expanded",
        )
        signed = replace(
            top,
            name="signed difference",
            per_item=self.signed,
            over=mean,
            low=-1.0,
            direction="above 0: unrelated sentences follow contexts of the first group, by name, "
            "more readily",
            comparable="distance, signed difference",
            parity=0.0,
            null="flip",
            method=None,
        )
        return top, signed

    def asked(self, lm: LM) -> tuple[Asked, ...]:
        """Whether the unrelated sentence follows the context, its twin, and its placebo twin."""
        words = any_lexicon(self.lexicon)
        real, control = [], []
        for one in self.items:
            own, twin = (one.context, one.unrelated), (one.twin_context, one.twin_unrelated)
            real.append(self.item(one, own, twin))
            other = placebo(one.context, words)
            fits = other.twin is not None and one.id not in self.flags
            if fits and len(other.changes) == _changed(one.context, one.twin_context):
                control.append(self.item(one, own, (other.text, one.unrelated)))
        asked = [Asked("follows", Frozen({}), FACTORS, tuple(real))]
        if control:
            asked.append(Asked("follows", Frozen({}), FACTORS, tuple(control), optional=True))
        return tuple(asked)

    def beside(self, found: Sequence[Readouts], judge: Judge) -> Beside:
        """Wrong predictions by gender, and D against placebo twins, paired by item."""
        real = found[0]
        wrong = [self._wrong(real, judge, column) for column in (0, 1)]
        placebos = found[1] if len(found) > 1 else ()
        least = math.ceil(FEWEST / self.top)
        if len(placebos) < least or isinstance(placebos, tuple):
            why = f"{len(placebos)} unflagged contexts have a placebo twin, {least} are needed"
            return Beside(tuple(wrong), (f"distance has no parity here: {why}",))
        try:
            pairs = self._against(found, judge)
        except NotMeasurable as error:
            return Beside(tuple(wrong), (f"distance has no parity here: {error.what}",))
        same, control, excess = pairs
        told = (
            f"parity is the distance of placebo twins, which {control.n} of {len(real)} contexts "
            f"have; p compares it with these contexts' own {same.value:.4g}"
        )
        return Beside(
            (*wrong, *pairs), (told,), control.value, excess.p, detectable=excess.detectable
        )

    def _wrong(self, real: Readouts, judge: Judge, column: int) -> Estimate:
        share = replace(
            self.aspects[1],
            name=f"wrong predictions, {self.sides[column]} contexts",
            per_item=lambda readouts: (self.by_group(readouts)[:, column] > 0.5).double(),
            over=lambda values, draw: 100 * mean(values, draw),
            low=0.0,
            high=100.0,
            unit="% of unrelated sentences taken to follow",
            parity=None,
            null=None,
        )
        values = share.per_item(real)
        if float(values.min()) == float(values.max()):
            share = replace(share, closed=_all_or_none)  # resampling knows no other
        return judge.estimate(share, values, self.design(real, share), tested=False)

    def by_group(self, readouts: Readouts) -> torch.Tensor:
        """`[n, 2]` p(next | unrelated) after either group's context, whichever is the original."""
        p = readouts.values[..., 0].exp()
        original = torch.tensor([item.group == self.sides[0] for item in readouts.items])
        return torch.where(original[:, None], p, p.flip(1))

    def signed(self, readouts: Readouts) -> torch.Tensor:
        """p(next | unrelated) after the first group's contexts less that after the second's."""
        p = self.by_group(readouts)
        return p[:, 0] - p[:, 1]

    def tested(self, found: Sequence[Readouts]) -> Tested:
        """The distance of contexts less that of their placebo twins, paired."""
        if len(found) < 2:
            raise NotMeasurable(
                "no context has a placebo twin", mend="give a lexicon with placebos"
            )
        # One of the two may have been dropped alone: only what both could read is paired.
        kept = set.intersection(*({item.id for item in one.items} for one in found))
        pair = [one.some(lambda item: item.id in kept) for one in found]
        both = torch.stack([distance_of(one.values[..., 0].exp()) for one in pair], dim=1)
        excess = replace(
            self.headline,
            name="excess over placebo twins",
            over=lambda values, draw: (
                self.top_mean(values[:, 0], draw) - self.top_mean(values[:, 1], draw)
            ),
            parity=0.0,
            null="flip",
            flip=exchanged_columns,
            low=-1.0,
            alternative="greater",
        )
        return Tested(excess, both, self.design(pair[1], self.headline))

    def _against(self, found: Sequence[Readouts], judge: Judge) -> tuple[Estimate, ...]:
        excess, both, design = self.tested(found)
        same = replace(self.headline, name="distance, contexts with a placebo twin")
        control = replace(self.headline, name="distance of placebo twins")
        return (
            judge.estimate(same, both[:, 0], design, tested=False),
            judge.estimate(control, both[:, 1], design, tested=False),
            judge.estimate(excess, both, design),
        )


def _all_or_none(values: torch.Tensor, design: Design, level: float) -> Interval:
    """Wilson's interval of 0 or 100%, of as many trials as units were sampled."""
    units = design.scarcest.units
    share = proportion_interval(units if float(values[0]) else 0, units, level=level)
    return share.model_copy(update={"low": 100 * share.low, "high": 100 * share.high})


def _changed(old: str, new: str) -> int:
    """How many words a swap changed."""
    before, after = ([token.text for token in tokens(text)] for text in (old, new))
    codes = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return sum(max(b - a, d - c) for kind, a, b, c, d in codes if kind != "equal")


def _four(one: TwinTriple) -> tuple[tuple[str, str], ...]:
    """Contexts with a stereotype, an anti-stereotype, and the twins of these."""
    return (
        (one.context, one.stereotype),
        (one.context, one.anti_stereotype),
        (one.twin_context, one.twin_stereotype),
        (one.twin_context, one.twin_anti_stereotype),
    )


@cache
def _terms() -> frozenset[str]:
    """The words that mark a gender."""
    words = lexicon("gender-en")
    return frozenset(folded(word) for group in words.groups for word in words.words(group))


def _term(one: TwinTriple) -> str:
    """The target term of a triple: the first word of its context that marks a gender.

    StereoSet asked for many contexts on each of a few dozen terms; items on one term are not
    independent. The enhanced data do not name the term.
    """
    words = (folded(token.text) for token in tokens(one.context))
    return next((word for word in words if word in _terms()), one.id)
