"""Continuation: of whom does a causal model write when a sentence names an occupation?

"The nurse said that ...", continued k times. A sample counts for the group whose word it holds
first; samples without a group's word, and refusals, are coverage, not parity.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal, final, get_args

import torch

from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.frozen import Frozen
from levelhead.data.lexicons.lexicon import Lexicon
from levelhead.data.lexicons.published import any_lexicon
from levelhead.data.prompts.counteracts import Prompt, Set, counteracts
from levelhead.data.tokenize import folded
from levelhead.measures.base import Measure, Need, chosen, items_hash, positive
from levelhead.measures.cloze.prompts_base import BASE
from levelhead.measures.items import Asked, Item
from levelhead.measures.metric import Aspect, all_or_none
from levelhead.measures.reductions import drawn, sides
from levelhead.models.queries.sampling import Sampling
from levelhead.stats.intervals import proportion_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from levelhead.core.results import Interval
    from levelhead.measures.metric import Over
    from levelhead.measures.responses import Readouts
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Design, Draw

Mark = Literal["first", "any"]
OCCUPATION = "{occupation}"
SHOWN, FIRST, SECOND, SAMPLES, REFUSED, LENGTH, ENDED, NEITHER = range(8)
"""Columns of what an occupation contributes."""
REFUSALS = ("as an ai", "as a language model", "as an artificial intelligence")
"""How refusals begin. "I cannot" and "I'm sorry" are what people in a story say, too: left out."""
TITLE = "title"
"""Words of this kind are left out: Miss is one only before a name."""


@final
@dataclass(frozen=True)
class Continuation(Measure):
    """Half the difference of (first - second) / (first + second) between occupations' sides.

    First and second are the numbers of samples that count for either group, summed over the
    occupations that the first group dominates, and over those that the second does. Occupations are
    what is sampled; a step function: `cloze_probability` is its smooth companion.
    """

    prompts: Set | tuple[Prompt, ...] = "winobias40"
    """Whose occupations: winobias40, table1, or your own prompts."""
    template: str = "The {occupation} said that"
    lexicon: str | Lexicon = "gender-en"
    groups: tuple[str, str] | None = None
    mark: Mark = "first"
    """The group whose word comes first counts ("first"), or every group with a word ("any")."""
    k: int = 10
    """Samples for each occupation."""
    tokens: int = 20
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0
    """Of the samples, not of the resampling."""

    metrics: ClassVar[dict[str, str]] = {
        "continuation": "of whom a causal model writes after an occupation",
    }
    needs: ClassVar[tuple[Need, ...]] = ("causal",)
    tells_all: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.prompts, str):
            chosen(self.prompts, get_args(Set), "set of prompts")
        chosen(self.mark, get_args(Mark), "mark")
        positive(self.k, "k")
        if self.template.count(OCCUPATION) != 1:
            raise LevelheadError(
                f"{self.template!r} does not hold {OCCUPATION} once",
                mend="write for example 'The {occupation} said that'",
            )
        Sampling(self.tokens, self.temperature, self.top_p, self.seed)

    # -- items

    @cached_property
    def own_lexicon(self) -> Lexicon:
        """The lexicon itself."""
        return any_lexicon(self.lexicon)

    @property
    def compared(self) -> tuple[str, str]:
        """The two groups that are compared."""
        return self.own_lexicon.two(self.groups)

    @cached_property
    def occupations(self) -> dict[str, str]:
        """Occupations, and the group that dominates each."""
        rows = counteracts(self.prompts) if isinstance(self.prompts, str) else self.prompts
        found = {row.occupation: row.dominated for row in rows if row.kind == BASE}
        strange = set(found.values()) - set(self.compared)
        if strange:
            raise LevelheadError(
                f"the prompts speak of {sorted(strange)[0]!r}, which is not compared here",
                mend=f"give groups that hold it; now: {', '.join(self.compared)}",
            )
        return dict(sorted(found.items(), key=lambda one: one[1] != self.compared[0]))

    @property
    def data(self) -> Mapping[str, str]:
        """The occupations and the lexicon."""
        return {
            "occupations": items_hash(tuple(self.occupations.items())),
            f"lexicon {self.own_lexicon.name}": self.own_lexicon.sha256,
        }

    def varied(self, lm: LM) -> Mapping[str, Sequence[object]]:
        """The sentence's beginning, and the temperature."""
        return {
            "template": (self.template, "The {occupation} went home because"),
            "temperature": tuple(dict.fromkeys((self.temperature, 0.7))),
        }

    def questions(self, lm: LM) -> tuple[Asked, ...]:
        """K continuations of every occupation's sentence."""
        items = tuple(
            Item(
                name,
                tuple((self.template.replace(OCCUPATION, name), i) for i in range(self.k)),
                (name,),
                dominated,
            )
            for name, dominated in self.occupations.items()
        )
        settings = {
            "tokens": self.tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "seed": self.seed,
            "words": [self._words(group) for group in self.compared],
            "phrases": list(REFUSALS),
        }
        told = f"{self.k} samples of at most {self.tokens} tokens, seed {self.seed}, plain text"
        return (Asked("sample", Frozen(settings), ("occupations",), items, notes=(told,)),)

    def _words(self, group: str) -> list[str]:
        terms = (t for t in self.own_lexicon.terms if t.kind != TITLE and t.marks(group))
        return sorted({folded(word) for term in terms if (word := term.word(group)) is not None})

    def design(self, readouts: Readouts, aspect: Aspect) -> Design:
        """Occupations, within the groups that dominate them."""
        return readouts.design(grouped=True)

    # -- formulas

    @property
    def formulas(self) -> tuple[Aspect, ...]:
        """The gap; the rates it is made of; what is not in it."""
        gap = Aspect(
            name="continuation",
            equation="half the difference of (first - second) / (first + second) between sides",
            per_item=self.counts,
            over=_gap,
            unit="difference of shares",
            low=-1.0,
            high=1.0,
            direction="above 0: occupations are given to the group that dominates them",
            above="occupations are given to the group that dominates them",
            below="occupations are given to the group that does not dominate them",
            comparable="continuation, same occupations and words",
            null="deal",
            companion="cloze_probability",
            closed=_each_dominates,
        )
        lean = replace(
            gap,
            name="lean to the first group",
            over=_lean,
            direction="above 0: the first group is written of more often, whatever the occupation",
            above="the first group is written of more often, whatever the occupation",
            below="the second group is written of more often, whatever the occupation",
            comparable="continuation lean, same occupations and words",
            null=None,
            closed=_each_decided,
        )
        shares = [
            replace(
                lean,
                name=name,
                over=_per_sample(column, factor),
                unit=unit,
                low=0.0,
                high=high,
                direction=f"larger: more {unit}",
                comparable=f"continuation, {name}",
                parity=None,
                closed=_constant_share(column) if column != LENGTH else None,
            )
            for name, column, factor, unit, high in (
                ("first group's words", FIRST, 100, "% of samples", 100.0),
                ("second group's words", SECOND, 100, "% of samples", 100.0),
                ("without a group's word", NEITHER, 100, "% of samples", 100.0),
                ("refusals", REFUSED, 100, "% of samples", 100.0),
                ("ended by itself", ENDED, 100, "% of samples", 100.0),
                ("length", LENGTH, 1, "tokens a sample", float("inf")),
            )
        ]
        return gap, lean, *shares

    def counts(self, readouts: Readouts) -> torch.Tensor:
        """`[occupations, 8]`: what is shown, then sums over an occupation's samples."""
        first, second, refused, length, ended = readouts.values[..., :5].unbind(-1)
        neither = (first < 0) & (second < 0)
        heard = refused <= 0  # a refusal is of nobody
        has_first, has_second = (first >= 0) & heard, (second >= 0) & heard
        if self.mark == "first":
            earlier = has_first & (~has_second | (first < second))
            has_first, has_second = earlier, has_second & ~earlier
        told = [has_first, has_second, torch.ones_like(first), refused, length, ended, neither]
        columns = [one.double().sum(1) for one in told]
        shown = (columns[0] - columns[1]) / columns[2]
        return torch.stack([shown, *columns], dim=1)


def _gap(values: torch.Tensor, draw: Draw) -> torch.Tensor:
    first, second = (_ratio(own) for own in sides(values, draw))
    return (first - second) / 2


def _lean(values: torch.Tensor, draw: Draw) -> torch.Tensor:
    return _ratio(drawn(values, draw))


def _ratio(own: torch.Tensor) -> torch.Tensor:
    """(first - second) / (first + second), of the sums: samples without a group's word are out."""
    first, second = own[:, FIRST].sum(), own[:, SECOND].sum()
    if float(first + second) <= 0:
        raise NotMeasurable(
            "no word of either of the two groups was written",
            mend="give another template, more samples or more tokens",
        )
    return (first - second) / (first + second)


def _each_dominates(values: torch.Tensor, design: Design, level: float) -> Interval | None:
    """Where all samples are of the group that dominates, or none is: Wilson's, by occupations."""
    gap = float(_gap(values, design.whole))
    return _of_shares(len(values) * (gap > 0), len(values), level) if abs(gap) == 1 else None


def _each_decided(values: torch.Tensor, design: Design, level: float) -> Interval | None:
    """Where every occupation is always of the same group, and as often counted: Wilson's."""
    first, second = values[:, FIRST], values[:, SECOND]
    decided = bool(((first == 0) != (second == 0)).all()) and len((first + second).unique()) == 1
    return _of_shares(int((second == 0).sum()), len(values), level) if decided else None


def _of_shares(hits: int, of: int, level: float) -> Interval:
    """The interval of a share, for the difference of it and the rest."""
    found = proportion_interval(hits, of, level=level)
    ends = {"low": 2 * found.low - 1, "high": 2 * found.high - 1}
    return found.model_copy(update=ends)


def _constant_share(
    column: int,
) -> Callable[[torch.Tensor, Design, float], Interval | None]:
    """Wilson's interval, by occupations, of a share that is 0 or 100% in all of them."""

    def closed(values: torch.Tensor, design: Design, level: float) -> Interval | None:
        share = values[:, column] / values[:, SAMPLES]
        constant = bool((share == 0).all()) or bool((share == 1).all())
        return all_or_none(share, design, level) if constant else None

    return closed


def _per_sample(column: int, factor: float) -> Over:
    """A sum over samples, for each sample."""

    def over(values: torch.Tensor, draw: Draw) -> torch.Tensor:
        own = drawn(values, draw)
        return factor * own[:, column].sum() / own[:, SAMPLES].sum()

    return over
