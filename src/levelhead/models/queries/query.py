"""What is read from a forward: rows of tokens, and a readout that makes numbers of the result.

Every verb of an LM is a Reading. The same Reading can be run over all rows without a gradient, or
over some of them with one, or resumed from a stored layer input.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple, cast, final

import torch

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError
from levelhead.models.architectures.model_layout import is_transposed
from levelhead.models.queries.vocabulary import log_probs, log_probs_of
from levelhead.models.sites import BY_HEAD, Site

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from levelhead.models.architectures.model_layout import Anatomy
    from levelhead.models.forward.forward_pass import Where
    from levelhead.models.inputs.batching import Batch
    from levelhead.models.inputs.tokenizer import Row

Part = Literal["hidden", "next_sentence", "classifier"]
"""How far a forward goes."""


class Result(NamedTuple):
    """What one forward gave."""

    anatomy: Anatomy
    batch: Batch
    hidden: torch.Tensor | None
    """`[batch, token, width]`, after the final norm."""
    logits: torch.Tensor | None
    """Of the next-sentence head or the classifier."""
    seen: dict[Where, torch.Tensor]
    attention: list[torch.Tensor]


@dataclass(frozen=True, eq=False)
class Readout(ABC):
    """Makes `[batch, ...]` numbers of one forward. Abstract."""

    @property
    def part(self) -> Part:
        """How far the forward must go."""
        return "hidden"

    @property
    def watch(self) -> frozenset[Where]:
        """The activations it needs beside the last hidden state."""
        return frozenset()

    @property
    def reads(self) -> tuple[tuple[int, ...], ...] | None:
        """Of every row, the positions of the last hidden state that are read; None: any."""
        return None

    @property
    def reads_first(self) -> bool:
        """Whether the last hidden state of a first token may be read."""
        return self.reads is None or any(0 in own for own in self.reads)

    @property
    def watches_only(self) -> bool:
        """Whether it reads nothing but what it watches."""
        return False

    def attends(self, batch: Batch) -> torch.Tensor | None:
        """`[batch, token]` weights of the tokens whose attention is wanted; None if of none."""
        return None

    @abstractmethod
    def __call__(self, result: Result) -> torch.Tensor:
        """The numbers, one row of them for each row of the batch."""


@dataclass(frozen=True, eq=False)
class Reading:
    """Rows to be run, and what is read from them."""

    rows: tuple[Row, ...]
    readout: Readout
    items: tuple[int, ...] | None = None
    """Which item each row belongs to, if an item has several; their values are added up."""

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 of everything that is asked: the same question has the same hash."""
        return content_hash(
            {
                "rows": [
                    [row.ids, row.types, *([row.after] if row.after else [])] for row in self.rows
                ],
                "readout": type(self.readout).__name__,
                "asks": {
                    each.name: getattr(self.readout, each.name) for each in fields(self.readout)
                },
                "items": self.items,
            }
        )


@final
@dataclass(frozen=True, eq=False)
class States(Readout):
    """Mean activation over some tokens of each row, at the last hidden state or at sites."""

    tokens: tuple[tuple[int, ...], ...]
    """Of every row, the positions that are averaged."""
    sites: tuple[Site, ...] = ()
    """Side by side in the result; none: the last hidden state."""
    end: Part = "hidden"

    @property
    def part(self) -> Part:
        """To the head, where a site is what a head is given."""
        return self.end

    @property
    def watch(self) -> frozenset[Where]:
        """The sites' activations."""
        return frozenset((site.stream, site.layer) for site in self.sites)

    @property
    def reads(self) -> tuple[tuple[int, ...], ...]:
        """What is averaged."""
        return self.tokens

    @property
    def watches_only(self) -> bool:
        """Sites, if any are named."""
        return bool(self.sites)

    def __call__(self, result: Result) -> torch.Tensor:
        """The means, sites side by side."""
        weights = token_weights(self.tokens, result.batch)
        if not self.sites:
            assert result.hidden is not None  # noqa: S101  # part="hidden" gives it
            return _mean(result.hidden, weights)
        return torch.cat([_mean(_at(result.seen, site), weights) for site in self.sites], dim=1)


class Target(NamedTuple):
    """Words whose log-probability is read at one position, and the columns they are added to."""

    position: int
    ids: tuple[int, ...]
    columns: tuple[int, ...]


Wanted = tuple[int, Target]
"""A row of a batch, and what is read of it."""


@final
@dataclass(frozen=True, eq=False)
class LogProbs(Readout):
    """Log-probabilities of given tokens at given positions, added up by column."""

    targets: tuple[tuple[Target, ...], ...]
    """Of every row. All targets of a reading name as many words."""
    columns: int

    @cached_property
    def reads(self) -> tuple[tuple[int, ...], ...]:
        """Where tokens are scored."""
        return tuple(tuple({target.position: None for target in own}) for own in self.targets)

    def __call__(self, result: Result) -> torch.Tensor:
        """One column for each word or text."""
        return self.added(result, self.wanted(result.batch), log_probs_of)

    def wanted(self, batch: Batch) -> list[Wanted]:
        """What is read of a batch: in which of its rows, and what."""
        return [
            (row, target)
            for row, index in enumerate(batch.indices)
            for target in self.targets[index]
        ]

    def added(
        self,
        result: Result,
        wanted: Sequence[Wanted],
        of: Callable[[Anatomy, torch.Tensor, torch.Tensor], torch.Tensor],
    ) -> torch.Tensor:
        """`[batch, columns]` sums of what `of` makes of hidden states `[n, width]` and ids."""
        assert result.hidden is not None  # noqa: S101
        hidden, device = result.hidden, result.hidden.device
        rows = torch.tensor([row for row, _ in wanted], device=device)
        positions = torch.tensor([target.position for _, target in wanted], device=device)
        ids = torch.tensor([target.ids for _, target in wanted], device=device)
        columns = torch.tensor([target.columns for _, target in wanted], device=device)
        found = of(result.anatomy, hidden[rows, positions], ids)
        total = torch.zeros(len(hidden), self.columns, dtype=found.dtype, device=device)
        return total.index_put((rows[:, None].expand_as(columns), columns), found, accumulate=True)


@final
@dataclass(frozen=True, eq=False)
class Probs(Readout):
    """The probability of one token of each row: `[batch, 1]`; added up over the rows of an item."""

    targets: tuple[Target, ...]

    @property
    def reads(self) -> tuple[tuple[int, ...], ...]:
        """Where the token is scored."""
        return tuple((target.position,) for target in self.targets)

    def __call__(self, result: Result) -> torch.Tensor:
        """The probabilities themselves, not their logarithms."""
        return LogProbs(tuple((target,) for target in self.targets), columns=1)(result).exp()


@final
@dataclass(frozen=True, eq=False)
class TopWords(Readout):
    """The likeliest tokens at one position of each row: `[batch, 2, k]`, ids and log-probs."""

    positions: tuple[int, ...]
    k: int

    @property
    def reads(self) -> tuple[tuple[int, ...], ...]:
        """The one position."""
        return tuple((position,) for position in self.positions)

    def __call__(self, result: Result) -> torch.Tensor:
        """The k best."""
        best = log_probs(result.anatomy, _at_positions(result, self.positions)).topk(self.k)
        return torch.stack([best.indices.to(best.values), best.values], dim=1)


@final
@dataclass(frozen=True, eq=False)
class WordsAndBest(Readout):
    """Words in a blank and the likeliest tokens there, both of one forward.

    `[batch, columns + 2k]`: the words', then ids and log-probabilities of the k best (0 in rows
    that do not show the blank as it is), then the words' last column, which is a spare one.
    """

    words: LogProbs
    blank: tuple[int | None, ...]
    """Where the blank is, in the rows that show it as it is; words are read there, too."""
    k: int

    @property
    def reads(self) -> tuple[tuple[int, ...], ...]:
        """Where words are scored."""
        return self.words.reads

    def __call__(self, result: Result) -> torch.Tensor:
        """Words, then the k best: at the blank, both of the same scores."""
        indices, wanted = result.batch.indices, self.words.wanted(result.batch)
        here = [(row, one) for row, one in wanted if one.position == self.blank[indices[row]]]
        others = [(row, one) for row, one in wanted if one.position != self.blank[indices[row]]]
        best: list[torch.Tensor] = []

        def at_blank(anatomy: Anatomy, hidden: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
            found = log_probs(anatomy, hidden)
            likeliest = found.topk(self.k)
            best.append(torch.cat([likeliest.indices.to(found), likeliest.values], dim=1))
            return found.gather(1, ids)

        parts = [
            self.words.added(result, asked, of)
            for asked, of in ((here, at_blank), (others, log_probs_of))
            if asked
        ]
        values = torch.stack(parts).sum(0)
        beside = values.new_zeros(len(values), 2 * self.k)
        if best:
            beside[torch.tensor([row for row, _ in here], device=values.device)] = best[0]
        return torch.cat([values[:, :-1], beside, values[:, -1:]], dim=1)


@final
@dataclass(frozen=True, eq=False)
class NextToken(Readout):
    """Log-probabilities of every token at one position of each row: `[batch, vocabulary]`."""

    positions: tuple[int, ...]

    @property
    def reads(self) -> tuple[tuple[int, ...], ...]:
        """The one position."""
        return tuple((position,) for position in self.positions)

    def __call__(self, result: Result) -> torch.Tensor:
        """All of them."""
        return log_probs(result.anatomy, _at_positions(result, self.positions))


@final
@dataclass(frozen=True, eq=False)
class Classes(Readout):
    """Log-probabilities of the next-sentence head's or the classifier's classes."""

    head: Part

    @property
    def part(self) -> Part:
        """To that head."""
        return self.head

    def __call__(self, result: Result) -> torch.Tensor:
        """Whatever classes the head has."""
        assert result.logits is not None  # noqa: S101
        wide = torch.float64 if result.logits.dtype == torch.float64 else torch.float32
        return result.logits.log_softmax(-1, dtype=wide)


@final
@dataclass(frozen=True, eq=False)
class Numbers(Readout):
    """What a classifier's last map gives, as it is: the score of a model trained on scores."""

    @property
    def part(self) -> Part:
        """To the classifier."""
        return "classifier"

    def __call__(self, result: Result) -> torch.Tensor:
        """One number, or as many as the map has columns."""
        assert result.logits is not None  # noqa: S101
        wide = torch.float64 if result.logits.dtype == torch.float64 else torch.float32
        return result.logits.to(wide)


@final
@dataclass(frozen=True, eq=False)
class AttentionRows(Readout):
    """Attention `[batch, layers, heads, token]` of some tokens of each row on all of its tokens."""

    tokens: tuple[tuple[int, ...], ...]

    def attends(self, batch: Batch) -> torch.Tensor:
        """The tokens, all counting alike."""
        return token_weights(self.tokens, batch)

    def __call__(self, result: Result) -> torch.Tensor:
        """All layers' rows."""
        first = result.attention[0].device
        return torch.stack([row.to(first) for row in result.attention], dim=1)


@final
@dataclass(frozen=True, eq=False)
class WeightedRows(Readout):
    """Attention, and beside it attention times what is moved: `[batch, 2, layers, heads, token]`.

    The weight a head gives a token says little if the token's value is small there. Kobayashi et
    al. 2020 ("Attention is not only a weight", section 3) take the norm ||a v W_O^h||: attention a,
    times the norm of the token's value v, with its bias, through the head's columns of the output
    projection, without its bias. Several query tokens: the mean of their norms. Values are as edits
    have left them; edits of what a head returns (`head_out`) come later and are not in it, nor are
    norms that a family puts behind the projection.
    """

    tokens: tuple[tuple[int, ...], ...]
    layers: int
    """How many layers the model runs: the values of all of them are needed."""

    @property
    def watch(self) -> frozenset[Where]:
        """The values of every layer."""
        return frozenset(("value", layer) for layer in range(self.layers))

    def attends(self, batch: Batch) -> torch.Tensor:
        """The tokens, all counting alike."""
        return token_weights(self.tokens, batch)

    def __call__(self, result: Result) -> torch.Tensor:
        """All layers' rows, as they are and weighted."""
        rows = AttentionRows(self.tokens)(result)
        norms = torch.stack(
            [
                _moved(result.anatomy, layer, result.seen["value", layer]).to(rows)
                for layer in range(self.layers)
            ],
            dim=1,
        )
        return torch.stack([rows, rows * norms], dim=1)


def _moved(anatomy: Anatomy, layer: int, values: torch.Tensor) -> torch.Tensor:
    """`[batch, heads, token]` norms of the tokens' values behind each head's part of W_O."""
    out = anatomy.place("head_out", layer).module
    weight = cast("torch.Tensor", out.weight)
    if weight.is_meta:
        raise LevelheadError(
            "the output projection's weights are not in memory",
            mend="load the model whole, without offloading, to weight its attention",
        )
    wide = torch.float64 if values.dtype == torch.float64 else torch.float32
    by_input = (weight if is_transposed(out) else weight.T).to(wide)
    parts = by_input.unflatten(0, (anatomy.heads, anatomy.head_dim))
    shared = anatomy.heads // values.shape[2]  # query heads that one value head serves
    moved = [
        (values[:, :, head // shared].to(wide) @ part.to(values.device)).norm(dim=-1)
        for head, part in enumerate(parts)
    ]
    return torch.stack(moved, dim=1)


def token_weights(tokens: tuple[tuple[int, ...], ...], batch: Batch) -> torch.Tensor:
    """`[batch, token]`: 1/n at each of a row's n positions, 0 elsewhere."""
    weights = torch.zeros(len(batch.indices), batch.width)
    for row, index in enumerate(batch.indices):
        positions = tokens[index]
        weights[row, list(positions)] = 1 / len(positions)
    return weights.to(batch.inputs["input_ids"].device)


def _at_positions(result: Result, positions: tuple[int, ...]) -> torch.Tensor:
    """`[batch, width]`: one hidden state of each row."""
    assert result.hidden is not None  # noqa: S101  # part="hidden" gives it
    device = result.hidden.device
    own = torch.tensor([positions[i] for i in result.batch.indices], device=device)
    return result.hidden[torch.arange(len(own), device=device), own]


def _mean(own: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """In single precision at least: halves are for weights, and numpy has no bfloat16."""
    activation = own.to(torch.promote_types(own.dtype, torch.float32))
    if activation.dim() == 2:  # pooled: one vector a row
        return activation
    return torch.einsum("btd,bt->bd", activation, weights.to(activation))


def _at(seen: dict[Where, torch.Tensor], site: Site) -> torch.Tensor:
    activation = seen[site.stream, site.layer]
    if site.stream not in BY_HEAD:
        return activation
    return activation.flatten(-2) if site.head is None else activation[..., site.head, :]
