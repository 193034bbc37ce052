"""The battery of Counteracts (Zhang 2023): prompts with and without knowledge, read once.

One forward pass of a prompt gives the exact probability of every word of the verbalizer, and the
most likely tokens, which give the paper's values at k = 3, 5 and 10.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, cast, final

import torch

from levelhead.core.errors import NotMeasurableError
from levelhead.core.frozen import FrozenDict
from levelhead.core.results import DroppedItem
from levelhead.core.run_context import RunContext
from levelhead.measures.cloze.cloze import Cloze, group_log_masses
from levelhead.measures.cloze.prompt_measure import BASE, crossed_factors
from levelhead.measures.responses import read_responses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.measures.items import MeasureItem, QuerySet
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Design

MAX_TOP_K = 10
"""Largest k of the paper."""


@final
@dataclass(frozen=True)
class Battery:
    """Prompts, a verbalizer and a prompt format: the options of `Cloze`."""

    cloze: Cloze = field(default_factory=Cloze)

    def build_queries(self, lm: LM) -> QuerySet:
        """One query for each prompt, with all words and the most likely tokens."""
        (query_set,) = self.cloze.queries(lm)
        first, second, _ = self.cloze.verbalizer(lm)
        pieces = [lm.token_ids_of_word(word) for word in (*first, *second)]
        sides = (pieces[: len(first)], pieces[len(first) :])
        # Only words of a single token can be among the top k tokens of a blank.
        tokens = [
            sorted({token_ids[0] for token_ids in side if len(token_ids) == 1}) for side in sides
        ]
        extra_metadata = {
            "best": MAX_TOP_K,
            "tokens": tokens,
            "counted": countable_words(lm, pieces),
        }
        return query_set._replace(
            settings=FrozenDict({**query_set.settings, "best": MAX_TOP_K}),
            metadata=FrozenDict({**query_set.metadata, **extra_metadata}),
        )

    def read(self, lm: LM, *, context: RunContext = RunContext()) -> BatteryResponses:
        """Query a model, or load its stored responses."""
        self.cloze.check(lm)
        (responses,) = read_responses(lm, [self.build_queries(lm)], context=context)
        return BatteryResponses(responses)


def countable_words(lm: LM, pieces: Sequence[tuple[int, ...]]) -> list[int]:
    """Indices of words whose probabilities can be added without counting any twice.

    A causal model's probability of "woman" includes "womanhood"; a masked model scores words of
    several tokens in blanks of another length, which is another distribution.
    """
    if not lm.is_causal:
        return [i for i, token_ids in enumerate(pieces) if len(token_ids) == 1]
    return [
        i
        for i, token_ids in enumerate(pieces)
        if not any(
            token_ids[: len(other)] == other for other in pieces if len(other) < len(token_ids)
        )
    ]


class SharedWord(NamedTuple):
    """A verbalizer word that is in the top k both with and without knowledge (Eq. 1)."""

    log_ratio: float
    """log p(w | knowledge) - log p(w | base)."""
    is_dominating: bool
    """Whether the word belongs to the group that dominates the occupation."""


@final
@dataclass(frozen=True, eq=False)
class BatteryResponses:
    """Responses of a model to a battery, by prompt."""

    responses: Responses

    def __post_init__(self) -> None:
        bases = [item.units[0] for item in self.responses.items if item.kind == BASE]
        # With two base prompts the change by knowledge would depend on which one is subtracted.
        if len(set(bases)) < len(bases):
            raise NotMeasurableError(
                "an occupation has several base prompts: knowledge is compared with one only",
                hint="give one base prompt an occupation",
            )
        if missing := {item.units[0] for item in self.responses.items} - set(self.base):
            raise NotMeasurableError(
                f"the base prompt of {sorted(missing)[0]!r} could not be read",
                hint="knowledge is compared with it: see why it was dropped",
            )

    @property
    def items(self) -> tuple[MeasureItem, ...]:
        """The prompts that were read."""
        return self.responses.items

    @cached_property
    def base(self) -> dict[str, int]:
        """Index of each occupation's base prompt."""
        return {item.units[0]: i for i, item in enumerate(self.items) if item.kind == BASE}

    @property
    def groups(self) -> tuple[str, str]:
        """The two groups that are compared."""
        return cast("tuple[str, str]", self.responses.metadata["sides"])

    @cached_property
    def masses(self) -> torch.Tensor:
        """`[n, 2]` log of the summed probabilities of the two groups' words."""
        return group_log_masses(self.responses)

    @property
    def mass(self) -> torch.Tensor:
        """`[n]` total probability of the words, without counting any twice."""
        indices = cast("Sequence[int]", self.responses.metadata["counted"])
        return self.responses.values[:, 0, torch.tensor(indices, dtype=torch.long)].exp().sum(1)

    @cached_property
    def margin(self) -> torch.Tensor:
        """`[n]` log P(words of group 1) - log P(words of group 2): the female-male margin."""
        return self.masses[:, 0] - self.masses[:, 1]

    @cached_property
    def base_margin(self) -> torch.Tensor:
        """`[n]` the margin of the same occupation's base prompt."""
        return self.margin[torch.tensor([self.base[item.units[0]] for item in self.items])]

    @property
    def change(self) -> torch.Tensor:
        """`[n]` the margin less that of the same occupation's base prompt."""
        # Paired by occupation: the occupation's own association drops out of the difference.
        return self.margin - self.base_margin

    @cached_property
    def dominating(self) -> torch.Tensor:
        """`[n]` whether the first group dominates the occupation."""
        return torch.tensor([item.group == self.groups[0] for item in self.items])

    def rows_of_kind(self, kind: str) -> torch.Tensor:
        """The prompts of one kind."""
        return torch.tensor([i for i, item in enumerate(self.items) if item.kind == kind])

    def design(self, kind: str, *, grouped: bool = True) -> Design:
        """Occupations are sampled, crossed with backgrounds if the kind of prompt has them."""
        part = self.responses.select(lambda item: item.kind == kind)
        return part.design(crossed_factors(part), grouped=grouped)

    def top_masses(self, k: int) -> torch.Tensor:
        """`[n, 2]` probability of each group's words among the top k tokens."""
        ids, p = self._best
        sides = [torch.isin(ids[:, :k], side) for side in self._tokens]
        return torch.stack([(p[:, :k].exp() * is_of_side).sum(1) for is_of_side in sides], dim=1)

    def shared_words(self, k: int, kind: str) -> dict[str, tuple[SharedWord, ...]]:
        """By occupation, Eq. 1 for each word that is in the top k with and without knowledge."""
        ids, p = self._best
        words_by_occupation: dict[str, list[SharedWord]] = {}
        for i, item in enumerate(self.items):
            if item.kind != kind:
                continue
            base_row = self.base[item.units[0]]
            occupation_words = words_by_occupation.setdefault(item.units[0], [])
            # Zhang's Eq. 1 needs the word in both lists: a missing probability has no ratio.
            before = dict(zip(ids[base_row, :k].tolist(), p[base_row, :k].tolist(), strict=True))
            for token, value in zip(ids[i, :k].tolist(), p[i, :k].tolist(), strict=True):
                for side, tokens in enumerate(self._tokens):
                    # A word of both groups' lists would count for each group.
                    if token in before and bool((tokens == token).any()):
                        occupation_words.append(
                            SharedWord(
                                value - before[token], bool(self.dominating[i]) == (side == 0)
                            )
                        )
        return {name: tuple(words) for name, words in words_by_occupation.items()}

    @cached_property
    def _best(self) -> tuple[torch.Tensor, torch.Tensor]:
        """`[n, MAX_TOP_K]` ids and log-probabilities of the most likely tokens."""
        # The query appends ids and log-probabilities after the words; float64 holds ids exactly.
        top = self.responses.values[:, 0, -2 * MAX_TOP_K :]
        return top[:, :MAX_TOP_K].long(), top[:, MAX_TOP_K:]

    @cached_property
    def _tokens(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Token ids of the single-token words of each group; no other word can be in the top k."""
        first, second = cast("Sequence[Sequence[int]]", self.responses.metadata["tokens"])
        return torch.tensor(first, dtype=torch.long), torch.tensor(second, dtype=torch.long)

    @property
    def dropped(self) -> tuple[DroppedItem, ...]:
        """Prompts that could not be read, and why."""
        return tuple(DroppedItem(item.id, reason) for item, reason in self.responses.dropped)
