"""SEAT: are some words nearer to one group's words than others are, in a model's space?

May et al. 2019; Yang et al. 2025, Eq. 3, with words in corpus contexts. The effect size has no
scale: it can stay at 1 while all associations shrink to nothing. So the difference of the means and
the spread are always shown beside it, and no comparison is made by the effect size alone.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, cast, final, get_args

import numpy as np
import torch

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.frozen import Frozen
from levelhead.core.run_context import Inference
from levelhead.data.catalog.datasets import dataset
from levelhead.data.corpus.contexts import Context, Contexts, contexts
from levelhead.data.corpus.matcher import RUN
from levelhead.data.counterfactuals.swap import swap
from levelhead.data.lexicons.lexicon import Lexicon
from levelhead.data.lexicons.published import (
    ROLES,
    WEATS,
    any_lexicon,
    seat_sentences,
    seat_test,
    weat_sentences,
)
from levelhead.data.tokenize import folded
from levelhead.measures.base import Beside, Measure, Need, chosen, positive, refuse_idle
from levelhead.measures.inference import estimate
from levelhead.measures.items import Asked, Item
from levelhead.measures.metric import Aspect, jackknife, short_lists
from levelhead.measures.reductions import (
    absolute,
    drawn,
    effect_size,
    group_effect_size,
    refuse_no_spread,
    sides,
)
from levelhead.measures.skills.skills import SkillCheck, groups_apart
from levelhead.models.lm import Pooling

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.core.canonical_json import Json
    from levelhead.core.results import Estimate, Interval
    from levelhead.measures.items import Ask
    from levelhead.measures.responses import Readouts
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Design, Draw

    Kept = np.ndarray[tuple[int], np.dtype[np.bool_]]
    """Which of the contexts are used."""

X, Y, A, B = "X", "Y", "A", "B"
"""Two lists of target words and two of attribute words, as in the papers."""
Own = Literal["own", "matched"]
CURVE = (1, 3, 10, 30, 100)
BLOCKS = 20
"""Into how many parts contexts are cut, by hash, to see what their choice does."""


def associations(targets: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """s(w, A, B) = mean cos(w, a) - mean cos(w, b) of every target word (Caliskan et al. 2017)."""
    unit = torch.nn.functional.normalize
    for words in (targets, a, b):
        if not bool((words.norm(dim=1) > 0).all()):
            raise NotMeasurable(
                "a word's vector is zero: it has no direction",
                mend="check the model and its edits; drop such words by name",
            )
    pull = unit(a, dim=1).mean(0) - unit(b, dim=1).mean(0)
    return unit(targets, dim=1) @ pull


def seat_of(x: torch.Tensor, y: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> float:
    """The SEAT effect size of given vectors, float64, ddof 1.

    (mean_X s - mean_Y s) / std over X and Y of s; Yang et al. 2025 take its absolute value. Two
    dimensions, X along A and Y along B: s = 1, 1, -1, -1, so 2 / std = 2 / (2 / sqrt 3).

    >>> east, north = torch.tensor([[1.0, 0.0]] * 2), torch.tensor([[0.0, 1.0]] * 2)
    >>> round(seat_of(east, north, east, north), 5)
    1.73205
    """
    s = associations(torch.cat([x, y]).double(), a.double(), b.double())
    return float(effect_size(s[: len(x)], s[len(x) :]))


class Words(NamedTuple):
    """The words of the four lists; an attribute's group is the lexicon's, a target's is none."""

    of: dict[str, tuple[str, ...]]
    groups: tuple[str, str]


@final
@dataclass(frozen=True)
class Seat(Measure):
    """The SEAT effect size (Yang et al. 2025, Eq. 3, signed; May et al. 2019).

    Words in contexts from a corpus (default), a published test of sentences (`test`), or WEAT's
    words in short sentences of ours (`weat`).
    """

    lexicon: str | Lexicon = "gender-en"
    """Attributes A and B are the words of its first two groups."""
    targets: str = "occupations"
    """The lexicon's family of targets: X is its first side, Y its second."""
    groups: tuple[str, str] | None = None
    corpus: str | tuple[str, ...] = ("news-commentary", "wikinews", "leipzig-news")
    """Data sets, files, or folders of `levelhead mine`."""
    contexts: Own = "own"
    """"matched": each attribute's context is used with its counterpart in the other group too.

    With own contexts SEAT also measures what the corpus says around the words.
    """
    quota: int = 100
    """The most contexts for a word."""
    test: str | None = None
    """A published test of May et al. 2019, such as sent-weat6: sentences, no corpus."""
    weat: str | None = None
    """weat1 to weat10: the words of Caliskan et al. 2017 in our own short sentences, no corpus."""
    pooling: Pooling | None = None
    """How a sentence of such a test becomes a vector; by default as in `LM.embed`."""
    layer: int | None = None
    """The layer whose output is read, counted from 0; by default the last, after its norm."""

    metrics: ClassVar[dict[str, str]] = {
        "seat": "association of words with groups in the model's space",
    }
    needs: ClassVar[tuple[Need, ...]] = ("embeddings",)

    def __post_init__(self) -> None:
        super().__post_init__()
        chosen(self.contexts, get_args(Own), "contexts")
        positive(self.quota, "quota")
        if self.pooling is not None:
            chosen(self.pooling, get_args(Pooling), "pooling")
        if self.weat is not None:
            chosen(self.weat, tuple(WEATS), "WEAT test")
        if not self.of_sentences and self.pooling is not None:
            raise LevelheadError("pooling is of sentences", mend="give test or weat, too")
        if self.test is not None and self.weat is not None:
            raise LevelheadError("two tests at once", mend="give test or weat")
        if self.of_sentences:
            idle = ("lexicon", "targets", "groups", "corpus", "contexts", "quota")
            refuse_idle(self, idle, "a published test")

    @property
    def of_sentences(self) -> bool:
        """Whether whole sentences are compared rather than words in a corpus's contexts."""
        return self.test is not None or self.weat is not None

    @property
    def compared(self) -> tuple[str, ...]:
        """The groups of the attributes; a published test has none that one may choose."""
        return () if self.of_sentences else self.own_lexicon.two(self.groups)

    # -- items

    @cached_property
    def own_lexicon(self) -> Lexicon:
        """The lexicon itself."""
        return any_lexicon(self.lexicon)

    @cached_property
    def words(self) -> Words:
        """The four lists."""
        words = self.own_lexicon
        first, second = self.compared
        family = words.targets(self.targets)
        if len(family.sides) != 2:
            raise LevelheadError(
                f"{self.targets} of {words.name} has {len(family.sides)} sides",
                mend="SEAT compares two: choose another family of targets",
            )
        x, y = (dict.fromkeys(side.words) for side in family.sides)
        a, b = words.words(first), words.words(second)
        return Words({X: tuple(x), Y: tuple(y), A: a, B: b}, (first, second))

    @property
    def data(self) -> Mapping[str, str]:
        """The lexicon and the corpus, or the published test."""
        if self.test is not None:
            file = dataset("seat").file(self.test)
            return {f"seat/{file.path}": file.sha256}
        if self.weat is not None:
            frames = content_hash(weat_sentences(self.weat))
            return {f"weat/{file.path}": file.sha256 for file in dataset("weat").files} | {
                f"{self.weat} in sentences": frames
            }
        return {
            f"lexicon {self.own_lexicon.name}": self.own_lexicon.sha256,
            **{
                f"corpus {i}: {name}": digest
                for i, (name, digest) in enumerate(self._found.sources, 1)
            },
        }

    @cached_property
    def _found(self) -> Contexts:
        lists, (first, second) = self.words
        marks = {word: group for side, group in ((A, first), (B, second)) for word in lists[side]}
        plain = {word: "" for side in (X, Y) for word in lists[side] if word not in marks}
        return contexts(plain | marks, self.corpus, quota=self.quota)

    def varied(self, lm: LM) -> Mapping[str, Sequence[object]]:
        """The layer; how contexts are chosen and how many; how sentences are pooled."""
        layers = {"layer": (None, lm.anatomy.layers // 2)}
        if self.of_sentences:
            return layers | {"pooling": ("mean", "first", "last")}
        fewer = tuple(dict.fromkeys((self.quota, max(1, self.quota // 10))))
        return layers | {"contexts": get_args(Own), "quota": fewer}

    def questions(self, lm: LM) -> tuple[Asked, ...]:
        """The vector of every word in its contexts, or of every sentence of a test."""
        if self.of_sentences:
            return (self._sentences(),)
        notes: Counter[str] = Counter()
        found = self._matched(notes) if self.contexts == "matched" else dict(self._found.of)
        items = []
        for side, words in self.words.of.items():
            for word in words:
                kept = [one for one in found.get(word, ()) if not (lm.is_causal and _first(one))]
                notes["first words of a text, which a causal model reads without context"] += len(
                    found.get(word, ())
                ) - len(kept)
                name = f"{side}: {word}"
                cannot = "" if kept else _why_none(word, found.get(word, ()))
                items.append(Item(name, tuple(kept), (name,), side, cannot=cannot))
        left_out = tuple(f"contexts left out: {n} ({why})" for why, n in notes.items() if n)
        asks = sum(len(item.asks) for item in items)
        told = f"{asks} contexts of {sum(bool(item.asks) for item in items)} words"
        return (
            Asked(
                "embed",
                Frozen({"pooling": None, **self._where}),
                ("words",),
                tuple(items),
                averaged=True,
                notes=(told, *left_out),
            ),
        )

    def _sentences(self) -> Asked:
        """Every sentence an item, its word the unit: sentences of one word are not independent."""
        found = seat_sentences(str(self.test)) if self.weat is None else weat_sentences(self.weat)
        items = tuple(
            Item(f"{side}: {text}", ((text,),), (f"{side}: {word}",), side)
            for side, role in zip((X, Y, A, B), ROLES, strict=True)
            for text, word in dict(found[role]).items()
        )
        settings = Frozen({"pooling": self.pooling, **self._where})
        return Asked("embed", settings, ("words",), items, averaged=True)

    @property
    def _where(self) -> dict[str, Json]:
        return {} if self.layer is None else {"layer": self.layer}

    def _matched(self, notes: Counter[str]) -> dict[str, tuple[Context, ...]]:
        """Each context of an attribute with its counterpart too; the rest as they are."""
        lists, groups = self.words
        names = {folded(word): word for side in (A, B) for word in lists[side]}
        found: dict[str, list[Context]] = {word: [] for word in names.values()}
        for word in tuple(found):
            for one in self._found.of[word]:
                twin = swap(one.text, self.own_lexicon, groups=groups)
                change = (
                    twin.changes[0] if twin.twin is not None and len(twin.changes) == 1 else None
                )
                if change is None or change.start != one.start or folded(change.new) not in names:
                    notes["without a counterpart in the other group"] += 1
                    continue
                found[word].append(one)
                other = Context(twin.text, change.new_start, change.new_end)
                found[names[folded(change.new)]].append(other)
        rest = {word: kept for word, kept in self._found.of.items() if word not in found}
        # By what stands around the word, so that both members of a pair keep the same.
        ordered = {
            word: sorted(dict.fromkeys(kept), key=lambda one: around(one))
            for word, kept in found.items()
        }
        return rest | {word: tuple(kept[: self.quota]) for word, kept in ordered.items()}

    def worded(self) -> tuple[str, str]:
        """With the names of the lists: a lexicon's targets and groups, or those of a test."""
        if self.test is not None:
            lists = seat_test(self.test)
            x, y, a, b = (f'"{lists[role][0]}"' for role in ROLES)
        elif self.weat is not None:
            x, y, a, b = (f'"{name}"' for name, _ in WEATS[self.weat])
        else:
            family = self.own_lexicon.targets(self.targets)
            x, y = (
                f"{family.name} {side.name}"
                if side.leans is None
                else f"{family.name} stereotyped as {side.leans}"
                for side in family.sides
            )
            a, b = (f"{group} words" for group in self.compared)
        said = "{} sit closer to {} than to {}, compared with {}"
        return said.format(x, a, b, y), said.format(y, a, b, x)

    # -- formulas

    @property
    def formulas(self) -> tuple[Aspect, ...]:
        """The effect size; what it hides: difference, spread; its absolute value (Yang)."""
        seat = Aspect(
            name="seat",
            equation="May et al. 2019, section 2; Yang et al. 2025, Eq. 3, signed",
            per_item=_associations,
            over=group_effect_size,
            unit="standard deviations",
            low=-math.inf,  # within 2 for lists of equal length
            high=math.inf,
            direction="above 0: X is nearer to A than Y is, in units of the spread",
            above="X sits closer to A than Y does",
            below="Y sits closer to A than X does",
            comparable="seat, same words",
            null="deal",
            # An effect size has no scale: it can fall while the association grows.
            confirmed_by="difference of means",
            closed=_short_lists,
        )
        difference = replace(
            seat,
            confirmed_by=None,
            name="difference of means",
            over=_difference,
            unit="cosine",
            direction="above 0: X is nearer to A than Y is",
            comparable="seat difference, same words",
            closed=None,
        )
        spread = replace(
            seat,
            name="spread",
            over=_spread,
            unit="cosine",
            low=0.0,
            direction="larger: the words' associations differ more from each other",
            comparable="seat spread, same words",
            parity=None,
            null=None,
            closed=None,
        )
        unsigned = replace(
            seat,
            name="|seat|",
            equation="Yang et al. 2025, Eq. 3",
            over=absolute(group_effect_size),
            low=0.0,
            direction="larger: X and Y are joined with different attributes, whichever way",
            comparable="|seat|, same words",
            parity=None,
            alternative="greater",
            method="expanded",
            closed=None,
        )
        return seat, difference, spread, unsigned

    def samples(self, item: Item) -> bool:
        """Target words are drawn; attributes define what is asked."""
        return item.group in (X, Y)

    def design(self, readouts: Readouts, aspect: Aspect) -> Design:
        """The words of X and of Y."""
        return self.sampled(readouts).design(grouped=True)

    def skill_check(self, lm: LM, readouts: Readouts) -> SkillCheck:
        """That the attributes of the two groups lie apart."""
        return groups_apart((A, B))

    def left_out(self, readouts: Readouts, aspect: Aspect) -> list[float]:
        """The value without each of twenty blocks of contexts.

        Their variance is added whole to that between words, which holds the target words' own part
        of it already: rather too wide than too narrow.
        """
        if self.of_sentences:
            return []
        return self._without(readouts, aspect, np.ones(len(readouts.owner), dtype=np.bool_))

    def _without(self, readouts: Readouts, aspect: Aspect, keep: Kept) -> list[float]:
        block = np.array([_block(ask) for ask in readouts.asks])
        whole = self.design(readouts, aspect)
        return [
            float(aspect.value(_averaged(readouts, keep & (block != left_out)), whole))
            for left_out in range(BLOCKS)
        ]

    def counterparts(self, readouts: Readouts) -> Sequence[tuple[str, str]]:
        """The lexicon's pairs; a published test has lists, no pairs."""
        if self.of_sentences:
            return ()
        first, second = self.words.groups
        words = [(term.word(first), term.word(second)) for term in self.own_lexicon.terms]
        return [(f"{A}: {a}", f"{B}: {b}") for a, b in words if a is not None and b is not None]

    def beside(self, found: Sequence[Readouts], inference: Inference) -> Beside:
        """The value against the number of contexts a word."""
        readouts = found[0]
        if self.of_sentences:
            return Beside()
        order = _order(readouts.owner)
        curve: list[Estimate] = []
        for count in CURVE:
            if count <= order.max() + 1:
                fewer = _averaged(readouts, order < count)
                curve.append(
                    estimate(
                        inference,
                        self.headline,
                        self.headline.per_item(fewer),
                        self.design(fewer, self.headline),
                        name=f"seat at {count} context{'s' * (count > 1)} a word",
                        among=jackknife(self._without(readouts, self.headline, order < count)),
                        tested=False,
                    )
                )
        single = sum(n < 2 for n in Counter(readouts.owner).values())
        told = f"{single} words have one context: what its choice does is not in the interval"
        return Beside(tuple(curve), (told,) if single else ())


def _associations(readouts: Readouts) -> torch.Tensor:
    targets = torch.tensor([item.group in (X, Y) for item in readouts.items])
    return associations(readouts.values[targets], readouts.group(A), readouts.group(B))


def _difference(values: torch.Tensor, draw: Draw) -> torch.Tensor:
    x, y = sides(values, draw)
    refuse_no_spread(torch.cat([x, y]))
    return x.mean() - y.mean()


def _spread(values: torch.Tensor, draw: Draw) -> torch.Tensor:
    refuse_no_spread(drawn(values, draw))
    return drawn(values, draw).std(correction=1)


def _short_lists(values: torch.Tensor, design: Design, level: float) -> Interval | None:
    """By formula for fewer than 30 words a side, of the words' means."""
    (words,) = design.factors
    unit = torch.from_numpy(words.unit)
    means = torch.zeros(words.units, dtype=values.dtype).index_add(0, unit, values)
    means /= unit.bincount()
    x, y = (means[torch.from_numpy(stratum)] for stratum in words.strata)
    return short_lists(x, y, values, level)


def _averaged(readouts: Readouts, keep: Kept) -> Readouts:
    """Words averaged over some of their contexts; a word that has none of these keeps all."""
    owner = torch.tensor(readouts.owner)
    weight = torch.from_numpy(keep).double()
    count = torch.zeros(len(readouts), dtype=torch.float64).index_add(0, owner, weight)
    weight = torch.where(count[owner] > 0, weight, 1.0)
    count = torch.zeros_like(count).index_add(0, owner, weight)
    total = torch.zeros_like(readouts.values).index_add(
        0, owner, readouts.answers * weight[:, None]
    )
    return replace(readouts, values=total / count[:, None])


def _order(owner: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Of every context, how many of the same word stand before it."""
    seen: Counter[int] = Counter()
    found = []
    for own in owner:
        found.append(seen[own])
        seen[own] += 1
    return np.array(found)


def _block(ask: Ask) -> int:
    """A context's block, by what stands around the word: matched contexts stay together."""
    return int(around(ask)[:8], 16) % BLOCKS


def around(ask: Ask) -> str:
    """The hash of what stands around the word."""
    text, start, end = cast("tuple[str, int, int]", ask)
    return hashlib.sha256((text[:start] + text[end:]).encode()).hexdigest()


def _why_none(word: str, found: Sequence[Context]) -> str:
    if found:
        return "it stands only at the beginning of texts, where a causal model has no context"
    if not RUN.fullmatch(word):
        return "it is not one run of letters, and is not looked for"
    return "no context in the corpus"


def _first(context: Context) -> bool:
    return not context.text[: context.start].strip()
