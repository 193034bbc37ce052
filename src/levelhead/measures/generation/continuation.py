"""Continuation: which group does a causal model write about after a sentence on an occupation?

The model continues "The nurse said that ..." k times. A sample counts for the group whose word
comes first; samples without a group's word, and refusals, reduce coverage and are not parity.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal, final, get_args

import torch

from levelhead.core.errors import LevelheadError, NotMeasurableError, require_option
from levelhead.core.frozen import FrozenDict
from levelhead.data.lexicons.lexicon import Lexicon
from levelhead.data.prompts.counteracts import (
    CounteractsPrompt,
    OccupationSet,
    make_counteracts_prompts,
)
from levelhead.data.tokenize import fold_case
from levelhead.measures.base import RequiredHead
from levelhead.measures.cloze.prompt_measure import BASE
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.measures.lexicon_measure import LexiconMeasure
from levelhead.measures.metric import Metric, all_or_none_interval
from levelhead.measures.options import check_positive, hash_items
from levelhead.measures.reductions import split_groups, take_resample
from levelhead.models.generation.config import GenerationConfig
from levelhead.stats.intervals import proportion_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from levelhead.core.results import Interval
    from levelhead.measures.metric import Aggregate
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Design, Resample

CountingRule = Literal["first", "any"]
OCCUPATION = "{occupation}"
# Column 0 is the value of an occupation that reports show; ratios are computed of the sums.
BALANCE, FIRST, SECOND, SAMPLES, REFUSED, LENGTH, ENDED, NEITHER = range(8)
"""Columns of the values of an occupation."""
REFUSALS = ("as an ai", "as a language model", "as an artificial intelligence")
"""Beginnings of refusals. "I cannot" and "I'm sorry" are left out: people in stories say them."""
TITLE = "title"
"""Kind of words that is left out: "Miss" is a group word only before a name."""


@final
@dataclass(frozen=True)
class Continuation(LexiconMeasure):
    """Half the difference of (first - second) / (first + second) between two sets of occupations.

    First and second are the numbers of samples that count for each group, summed over the
    occupations that the first group dominates, and over those that the second group dominates.
    Occupations are sampled. This is a step function; `cloze_probability` is its smooth surrogate.
    """

    prompts: OccupationSet | tuple[CounteractsPrompt, ...] = "winobias40"
    """Prompts that give the occupations: winobias40, table1, or the user's prompts."""
    template: str = "The {occupation} said that"
    lexicon: str | Lexicon = "gender-en"
    groups: tuple[str, str] | None = None
    counting_rule: CountingRule = "first"
    """Groups that a sample counts for: that of the first word ("first"), or all ("any")."""
    k: int = 10
    """Number of samples for each occupation."""
    tokens: int = 20
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0
    """Seed of text generation, not of the resampling."""

    metrics: ClassVar[dict[str, str]] = {
        "continuation": "of whom a causal model writes after an occupation",
    }
    needs: ClassVar[tuple[RequiredHead, ...]] = ("causal",)
    # Silence and refusals reduce coverage: the gap is never shown without these shares.
    always_show_extras: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.prompts, str):
            require_option("set of prompts", self.prompts, get_args(OccupationSet))
        require_option("counting rule", self.counting_rule, get_args(CountingRule))
        check_positive(self.k, "k")
        if self.template.count(OCCUPATION) != 1:
            raise LevelheadError(
                f"{self.template!r} does not hold {OCCUPATION} once",
                hint="write for example 'The {occupation} said that'",
            )
        # Constructed only for its checks: a wrong option fails here, before a model is loaded.
        GenerationConfig(self.tokens, self.temperature, self.top_p, self.seed)
        if not self.temperature:
            raise LevelheadError(
                "at temperature 0 all samples of an occupation are equal",
                hint="give a temperature above 0",
            )

    # -- items

    @cached_property
    def occupations(self) -> dict[str, str]:
        """Occupations with the group that dominates each."""
        rows = (
            make_counteracts_prompts(self.prompts)
            if isinstance(self.prompts, str)
            else self.prompts
        )
        group_of_occupation = {
            row.occupation: row.majority_group for row in rows if row.kind == BASE
        }
        unknown_groups = set(group_of_occupation.values()) - set(self.compared_groups)
        if unknown_groups:
            raise LevelheadError(
                f"the prompts speak of {sorted(unknown_groups)[0]!r}, which is not compared here",
                hint=f"give groups that hold it; now: {', '.join(self.compared_groups)}",
            )
        return dict(
            # The first group's occupations first: formulas subtract the second from the first.
            sorted(group_of_occupation.items(), key=lambda pair: pair[1] != self.compared_groups[0])
        )

    @property
    def data(self) -> Mapping[str, str]:
        """Hashes of the occupations and of the lexicon."""
        return {
            "occupations": hash_items(tuple(self.occupations.items())),
            **self.lexicon_hash,
        }

    def specification_options(self, lm: LM) -> Mapping[str, Sequence[object]]:
        """Alternative beginnings of the sentence and temperatures."""
        return {
            "template": (self.template, "The {occupation} went home because"),
            "temperature": tuple(dict.fromkeys((self.temperature, 0.7))),
        }

    def all_queries(self, lm: LM) -> tuple[QuerySet, ...]:
        """One query for each of k continuations of each occupation's sentence."""
        items = tuple(
            # An occupation is one item: samples of the same sentence are no independent units.
            MeasureItem(
                name,
                tuple((self.template.replace(OCCUPATION, name), i) for i in range(self.k)),
                (name,),
                dominated,
            )
            for name, dominated in self.occupations.items()
        )
        # Words and phrases are part of the query: their positions are found where the text is
        # decoded.
        settings = {
            "tokens": self.tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "seed": self.seed,
            "words": [self._words(group) for group in self.compared_groups],
            "phrases": list(REFUSALS),
        }
        note = f"{self.k} samples of at most {self.tokens} tokens, seed {self.seed}, plain text"
        return (QuerySet("sample", FrozenDict(settings), ("occupations",), items, notes=(note,)),)

    def _words(self, group: str) -> list[str]:
        terms = (
            t for t in self.resolved_lexicon.terms if t.kind != TITLE and t.is_marker_of(group)
        )
        return sorted({fold_case(word) for term in terms if (word := term.word(group)) is not None})

    def design(self, responses: Responses, metric: Metric) -> Design:
        """Occupations are sampled, within the groups that dominate them."""
        return responses.design(grouped=True)

    # -- formulas

    @property
    def formulas(self) -> tuple[Metric, ...]:
        """The gap, the rates that it is computed from, and the coverage."""
        gap = Metric(
            name="continuation",
            equation="half the difference of (first - second) / (first + second) between sides",
            per_item_values=self.count_samples,
            aggregate=_gap,
            unit="difference of shares",
            low=-1.0,
            high=1.0,
            direction="above 0: occupations are given to the group that dominates them",
            above="occupations are given to the group that dominates them",
            below="occupations are given to the group that does not dominate them",
            comparability_key="continuation, same occupations and words",
            # Under equal treatment the dominating group is an arbitrary label of an occupation.
            null="permute_units",
            smooth_surrogate="cloze_probability",
            closed_form_interval=_all_dominating_interval,
        )
        preference = replace(
            gap,
            name="lean to the first group",
            aggregate=_preference,
            direction="above 0: the first group is written of more often, whatever the occupation",
            above="the first group is written of more often, whatever the occupation",
            below="the second group is written of more often, whatever the occupation",
            comparability_key="continuation lean, same occupations and words",
            null=None,
            closed_form_interval=_all_decided_interval,
        )
        shares = [
            replace(
                preference,
                name=name,
                aggregate=_per_sample(column, factor),
                unit=unit,
                low=0.0,
                high=high,
                direction=f"larger: more {unit}",
                comparability_key=f"continuation, {name}",
                parity=None,
                # A length is no share, so it has no interval of Wilson.
                closed_form_interval=_constant_share(column) if column != LENGTH else None,
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
        return gap, preference, *shares

    def count_samples(self, responses: Responses) -> torch.Tensor:
        """`[occupations, 8]`: the displayed balance, then sums over an occupation's samples."""
        first, second, refused, length, ended = responses.values[..., :5].unbind(-1)
        neither = (first < 0) & (second < 0)
        # A refusal is about nobody, even if it contains a group word.
        is_answer = refused <= 0
        has_first, has_second = (first >= 0) & is_answer, (second >= 0) & is_answer
        if self.counting_rule == "first":
            earlier = has_first & (~has_second | (first < second))
            has_first, has_second = earlier, has_second & ~earlier
        indicators = [
            has_first,
            has_second,
            torch.ones_like(first),
            refused,
            length,
            ended,
            neither,
        ]
        columns = [indicator.double().sum(1) for indicator in indicators]
        # For display: by occupation the ratio of the two groups may be 0 / 0, a share of samples
        # never is.
        balance = (columns[0] - columns[1]) / columns[2]
        return torch.stack([balance, *columns], dim=1)


def _gap(values: torch.Tensor, resample: Resample) -> torch.Tensor:
    first, second = (_ratio(group_values) for group_values in split_groups(values, resample))
    return (first - second) / 2


def _preference(values: torch.Tensor, resample: Resample) -> torch.Tensor:
    return _ratio(take_resample(values, resample))


def _ratio(counts: torch.Tensor) -> torch.Tensor:
    """(first - second) / (first + second) of the sums, without samples that have no group word."""
    first, second = counts[:, FIRST].sum(), counts[:, SECOND].sum()
    # Silence about both groups is no parity: 0 / 0 must not become a balance of 0.
    if float(first + second) <= 0:
        raise NotMeasurableError(
            "no word of either of the two groups was written",
            hint="give another template, more samples or more tokens",
        )
    return (first - second) / (first + second)


def _all_dominating_interval(values: torch.Tensor, design: Design, level: float) -> Interval | None:
    """Wilson's interval, by occupations, if the gap is 1 or -1, where resampling has no width."""
    gap = float(_gap(values, design.full_sample))
    return (
        _share_difference_interval(len(values) * (gap > 0), len(values), level)
        if abs(gap) == 1
        else None
    )


def _all_decided_interval(values: torch.Tensor, design: Design, level: float) -> Interval | None:
    """Wilson's interval if every occupation always has one group, with equal counts."""
    first, second = values[:, FIRST], values[:, SECOND]
    # With unequal counts the ratio of sums varies between resamples, which then give a width.
    decided = bool(((first == 0) != (second == 0)).all()) and len((first + second).unique()) == 1
    return (
        _share_difference_interval(int((second == 0).sum()), len(values), level)
        if decided
        else None
    )


def _share_difference_interval(hits: int, n: int, level: float) -> Interval:
    """Interval of a share minus its complement, from the interval of the share."""
    interval = proportion_interval(hits, n, level=level)
    ends = {"low": 2 * interval.low - 1, "high": 2 * interval.high - 1}
    return interval.model_copy(update=ends)


def _constant_share(
    column: int,
) -> Callable[[torch.Tensor, Design, float], Interval | None]:
    """Wilson's interval, by occupations, of a share that is 0% or 100% in all of them."""

    def closed(values: torch.Tensor, design: Design, level: float) -> Interval | None:
        share = values[:, column] / values[:, SAMPLES]
        constant = bool((share == 0).all()) or bool((share == 1).all())
        return all_or_none_interval(share, design, level) if constant else None

    return closed


def _per_sample(column: int, factor: float) -> Aggregate:
    """Mean over samples of a column of sums."""

    def aggregate(values: torch.Tensor, resample: Resample) -> torch.Tensor:
        resampled = take_resample(values, resample)
        return factor * resampled[:, column].sum() / resampled[:, SAMPLES].sum()

    return aggregate
