"""The battery of Counteracts (Zhang 2023): base prompts and knowledge before them, read once.

Every prompt is one forward: the exact probability of every word of the verbalizer, and the
likeliest tokens, from which the paper's numbers at k = 3, 5 and 10 are taken.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, cast, final

import torch

from levelhead.core.errors import NotMeasurable
from levelhead.core.frozen import Frozen
from levelhead.core.results import Dropped
from levelhead.core.run_context import RunContext
from levelhead.measures.cloze.cloze import Cloze, masses
from levelhead.measures.cloze.prompts_base import BASE, crossed_factors
from levelhead.measures.responses import read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.measures.items import Asked, Item
    from levelhead.measures.responses import Readouts
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Design

BEST = 10
"""The most of the paper's k."""


@final
@dataclass(frozen=True)
class Battery:
    """Prompts, a verbalizer and a way to put them: the fields of `Cloze`."""

    cloze: Cloze = field(default_factory=Cloze)

    def asked(self, lm: LM) -> Asked:
        """Every prompt, with all words and the likeliest tokens."""
        (asked,) = self.cloze.asked(lm)
        first, second, _ = self.cloze.verbalizer(lm)
        pieces = [lm.pieces(word) for word in (*first, *second)]
        sides = (pieces[: len(first)], pieces[len(first) :])
        tokens = [sorted({own[0] for own in side if len(own) == 1}) for side in sides]
        own = {"best": BEST, "tokens": tokens, "counted": counted(lm, pieces)}
        return asked._replace(
            settings=Frozen({**asked.settings, "best": BEST}),
            facts=Frozen({**asked.facts, **own}),
        )

    def read(self, lm: LM, *, context: RunContext = RunContext()) -> Answers:
        """Ask a model, or find stored what it said."""
        self.cloze.check(lm)
        (found,) = read(lm, [self.asked(lm)], context=context)
        return Answers(found)


def counted(lm: LM, pieces: Sequence[tuple[int, ...]]) -> list[int]:
    """Words whose probabilities may be added up to a share of the whole.

    A causal model's "woman" holds "womanhood" already; a masked model is asked for words of several
    tokens in blanks of another length, which is another distribution.
    """
    if not lm.is_causal:
        return [i for i, own in enumerate(pieces) if len(own) == 1]
    return [
        i
        for i, own in enumerate(pieces)
        if not any(own[: len(other)] == other for other in pieces if len(other) < len(own))
    ]


class Shared(NamedTuple):
    """Words of the verbalizer among the k likeliest both with knowledge and without (Eq. 1)."""

    log_ratio: float
    """log p(w | knowledge) - log p(w | base)."""
    dominating: bool
    """Whether the word is one of the group that dominates the occupation."""


@final
@dataclass(frozen=True, eq=False)
class Answers:
    """What a model said to a battery, prompt by prompt."""

    readouts: Readouts

    def __post_init__(self) -> None:
        bases = [item.units[0] for item in self.readouts.items if item.kind == BASE]
        if len(set(bases)) < len(bases):
            raise NotMeasurable(
                "an occupation has several base prompts: what is its knowledge compared with?",
                mend="give one base prompt an occupation",
            )
        if missing := {item.units[0] for item in self.readouts.items} - set(self.base):
            raise NotMeasurable(
                f"the base prompt of {sorted(missing)[0]!r} could not be read",
                mend="knowledge is compared with it: see why it was dropped",
            )

    @property
    def items(self) -> tuple[Item, ...]:
        """The prompts that were read."""
        return self.readouts.items

    @cached_property
    def base(self) -> dict[str, int]:
        """Where each occupation's base prompt is."""
        return {item.units[0]: i for i, item in enumerate(self.items) if item.kind == BASE}

    @property
    def groups(self) -> tuple[str, str]:
        """The two groups that are compared."""
        return cast("tuple[str, str]", self.readouts.facts["sides"])

    @cached_property
    def masses(self) -> torch.Tensor:
        """`[n, 2]` log of the summed probabilities of the two groups' words."""
        return masses(self.readouts)

    @property
    def mass(self) -> torch.Tensor:
        """`[n]` how much of the probability the words hold, none of it counted twice."""
        own = cast("Sequence[int]", self.readouts.facts["counted"])
        return self.readouts.values[:, 0, torch.tensor(own, dtype=torch.long)].exp().sum(1)

    @cached_property
    def margin(self) -> torch.Tensor:
        """`[n]` log P(first group's words) - log P(second's): the female-male margin."""
        return self.masses[:, 0] - self.masses[:, 1]

    @cached_property
    def before(self) -> torch.Tensor:
        """`[n]` the margin of the same occupation's base prompt."""
        return self.margin[torch.tensor([self.base[item.units[0]] for item in self.items])]

    @property
    def change(self) -> torch.Tensor:
        """`[n]` the margin less that of the same occupation's base prompt."""
        return self.margin - self.before

    @cached_property
    def dominating(self) -> torch.Tensor:
        """`[n]` whether the first group dominates the occupation."""
        return torch.tensor([item.group == self.groups[0] for item in self.items])

    def where(self, kind: str) -> torch.Tensor:
        """The prompts of one kind."""
        return torch.tensor([i for i, item in enumerate(self.items) if item.kind == kind])

    def design(self, kind: str, *, grouped: bool = True) -> Design:
        """What was sampled: occupations, crossed with backgrounds where a kind has them."""
        part = self.readouts.some(lambda item: item.kind == kind)
        return part.design(crossed_factors(part), grouped=grouped)

    def top(self, k: int) -> torch.Tensor:
        """`[n, 2]` probability of each group's words among the k likeliest tokens."""
        ids, p = self._best
        sides = [torch.isin(ids[:, :k], side) for side in self._tokens]
        return torch.stack([(p[:, :k].exp() * own).sum(1) for own in sides], dim=1)

    def shared(self, k: int, kind: str) -> dict[str, tuple[Shared, ...]]:
        """Per occupation, Eq. 1 of each word that is among the k likeliest twice."""
        ids, p = self._best
        found: dict[str, list[Shared]] = {}
        for i, item in enumerate(self.items):
            if item.kind != kind:
                continue
            at = self.base[item.units[0]]
            own = found.setdefault(item.units[0], [])
            before = dict(zip(ids[at, :k].tolist(), p[at, :k].tolist(), strict=True))
            for token, value in zip(ids[i, :k].tolist(), p[i, :k].tolist(), strict=True):
                for side, tokens in enumerate(self._tokens):
                    if token in before and bool((tokens == token).any()):
                        own.append(
                            Shared(value - before[token], bool(self.dominating[i]) == (side == 0))
                        )
        return {name: tuple(own) for name, own in found.items()}

    @cached_property
    def _best(self) -> tuple[torch.Tensor, torch.Tensor]:
        """`[n, BEST]` ids and log-probabilities of the likeliest tokens."""
        found = self.readouts.values[:, 0, -2 * BEST :]
        return found[:, :BEST].long(), found[:, BEST:]

    @cached_property
    def _tokens(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Words of one token: no other can be among the likeliest."""
        first, second = cast("Sequence[Sequence[int]]", self.readouts.facts["tokens"])
        return torch.tensor(first, dtype=torch.long), torch.tensor(second, dtype=torch.long)

    @property
    def dropped(self) -> tuple[Dropped, ...]:
        """Prompts that could not be read, and why."""
        return tuple(Dropped(item.id, why) for item, why in self.readouts.dropped)
