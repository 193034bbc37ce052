"""Query: rows of tokens, and a readout that computes numbers from the forward pass.

Every method of an LM runs a query. The same query can run over all rows without a gradient, over
some rows with a gradient, or resume from a cached layer input.
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
from levelhead.models.queries.vocabulary import (
    compute_token_log_probs,
    compute_vocabulary_log_probs,
)
from levelhead.models.sites import PER_HEAD_STREAMS, Site, StreamLayer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from levelhead.models.architectures.model_layout import ModelLayout
    from levelhead.models.inputs.batching import Batch
    from levelhead.models.inputs.tokenizer import TokenRow

OutputStage = Literal["hidden", "next_sentence", "classifier"]
"""How far a forward pass goes."""


class ForwardOutput(NamedTuple):
    """The results of one forward pass."""

    layout: ModelLayout
    batch: Batch
    hidden: torch.Tensor | None
    """`[batch, token, width]`, after the final norm."""
    logits: torch.Tensor | None
    """Logits of the next-sentence head or of the classifier."""
    captured: dict[StreamLayer, torch.Tensor]
    attention: list[torch.Tensor]


@dataclass(frozen=True, eq=False)
class Readout(ABC):
    """Computes `[batch, ...]` numbers from one forward pass. Abstract."""

    @property
    def output_stage(self) -> OutputStage:
        """How far the forward pass must go."""
        return "hidden"

    @property
    def capture_sites(self) -> frozenset[StreamLayer]:
        """The activations that it needs in addition to the last hidden state."""
        return frozenset()

    @property
    def read_positions(self) -> tuple[tuple[int, ...], ...] | None:
        """For every row, the positions of the last hidden state that are read; None: any."""
        return None

    @property
    def can_read_first_token(self) -> bool:
        """Whether the last hidden state of a first token may be read."""
        return self.read_positions is None or any(
            0 in positions for positions in self.read_positions
        )

    @property
    def is_capture_only(self) -> bool:
        """Whether it reads only captured activations, not the last hidden state."""
        return False

    def attention_query_weights(self, batch: Batch) -> torch.Tensor | None:
        """Return `[batch, token]` weights of the tokens whose attention is read; None: no token."""
        return None

    @abstractmethod
    def __call__(self, output: ForwardOutput) -> torch.Tensor:
        """Compute the numbers, one row for each row of the batch."""


@dataclass(frozen=True, eq=False)
class Query:
    """Rows of tokens, and the readout of their forward pass."""

    rows: tuple[TokenRow, ...]
    readout: Readout
    items: tuple[int, ...] | None = None
    """Item of each row, if an item can have several rows, whose values are summed."""

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 of rows, readout and items: equal queries have equal hashes."""
        # Stored responses are found by this hash: its keys and its form must never change.
        return content_hash(
            {
                "rows": [
                    [row.ids, row.token_types, *([row.parents] if row.parents else [])]
                    for row in self.rows
                ],
                "readout": type(self.readout).__name__,
                "asks": {
                    field.name: getattr(self.readout, field.name) for field in fields(self.readout)
                },
                "items": self.items,
            }
        )


@final
@dataclass(frozen=True, eq=False)
class HiddenStates(Readout):
    """Mean activation over some tokens of each row, at the last hidden state or at sites."""

    tokens: tuple[tuple[int, ...], ...]
    """For every row, the positions that are averaged."""
    sites: tuple[Site, ...] = ()
    """Sites, concatenated in the result; empty: the last hidden state."""
    last_stage: OutputStage = "hidden"

    @property
    def output_stage(self) -> OutputStage:
        """Up to the head, if a site is the input of a head."""
        return self.last_stage

    @property
    def capture_sites(self) -> frozenset[StreamLayer]:
        """The activations at the sites."""
        return frozenset((site.stream, site.layer) for site in self.sites)

    @property
    def read_positions(self) -> tuple[tuple[int, ...], ...]:
        """The positions that are averaged."""
        return self.tokens

    @property
    def is_capture_only(self) -> bool:
        """Whether sites are given."""
        return bool(self.sites)

    def __call__(self, output: ForwardOutput) -> torch.Tensor:
        """Compute the means, sites concatenated."""
        weights = token_weights(self.tokens, output.batch)
        if not self.sites:
            assert output.hidden is not None  # noqa: S101  # part="hidden" gives it
            return _mean_over_tokens(output.hidden, weights)
        return torch.cat(
            [
                _mean_over_tokens(_activation_at(output.captured, site), weights)
                for site in self.sites
            ],
            dim=1,
        )


class ScoredPosition(NamedTuple):
    """Tokens whose log-probability is read at one position, and the columns that add them up."""

    position: int
    ids: tuple[int, ...]
    columns: tuple[int, ...]


RowTarget = tuple[int, ScoredPosition]
"""Number of a row in a batch, and a position that is scored in it."""


@final
@dataclass(frozen=True, eq=False)
class LogProbs(Readout):
    """Log-probabilities of given tokens at given positions, summed by column."""

    targets: tuple[tuple[ScoredPosition, ...], ...]
    """Scored positions of every row; all of them have the same number of tokens."""
    columns: int

    @cached_property
    def read_positions(self) -> tuple[tuple[int, ...], ...]:
        """The positions where tokens are scored."""
        return tuple(
            tuple({target.position: None for target in row_targets}) for row_targets in self.targets
        )

    def __call__(self, output: ForwardOutput) -> torch.Tensor:
        """Compute one column for each word or text."""
        return self.sum_by_column(
            output, self.list_row_targets(output.batch), compute_token_log_probs
        )

    def list_row_targets(self, batch: Batch) -> list[RowTarget]:
        """Return the scored positions of a batch, with the number of their row."""
        return [
            (row, target)
            for row, index in enumerate(batch.indices)
            for target in self.targets[index]
        ]

    def sum_by_column(
        self,
        output: ForwardOutput,
        row_targets: Sequence[RowTarget],
        compute_log_probs: Callable[[ModelLayout, torch.Tensor, torch.Tensor], torch.Tensor],
    ) -> torch.Tensor:
        """Sum log-probabilities by column: `[batch, columns]`.

        Args:
            output: Results of the forward pass.
            row_targets: Scored positions, with the number of their row.
            compute_log_probs: Computes them from layout, hidden states `[n, width]` and token ids.
        """
        assert output.hidden is not None  # noqa: S101
        hidden, device = output.hidden, output.hidden.device
        rows = torch.tensor([row for row, _ in row_targets], device=device)
        positions = torch.tensor([target.position for _, target in row_targets], device=device)
        ids = torch.tensor([target.ids for _, target in row_targets], device=device)
        columns = torch.tensor([target.columns for _, target in row_targets], device=device)
        # Scores only at these positions: a vocabulary has tens of thousands of columns.
        log_probs = compute_log_probs(output.layout, hidden[rows, positions], ids)
        total = torch.zeros(len(hidden), self.columns, dtype=log_probs.dtype, device=device)
        # `index_put` and not an assignment in place: the sum must pass gradients to the scores.
        return total.index_put(
            (rows[:, None].expand_as(columns), columns), log_probs, accumulate=True
        )


@final
@dataclass(frozen=True, eq=False)
class TokenProbs(Readout):
    """The probability of one token of each row: `[batch, 1]`; summed over the rows of an item."""

    targets: tuple[ScoredPosition, ...]

    @property
    def read_positions(self) -> tuple[tuple[int, ...], ...]:
        """The positions where the token is scored."""
        return tuple((target.position,) for target in self.targets)

    def __call__(self, output: ForwardOutput) -> torch.Tensor:
        """Compute the probabilities, not their logarithms."""
        return LogProbs(tuple((target,) for target in self.targets), columns=1)(output).exp()


@final
@dataclass(frozen=True, eq=False)
class TopKTokens(Readout):
    """The likeliest tokens at one position of each row: `[batch, 2, k]`, ids and log-probs."""

    positions: tuple[int, ...]
    k: int

    @property
    def read_positions(self) -> tuple[tuple[int, ...], ...]:
        """The one position."""
        return tuple((position,) for position in self.positions)

    def __call__(self, output: ForwardOutput) -> torch.Tensor:
        """Find the k likeliest tokens."""
        best = compute_vocabulary_log_probs(
            output.layout, _states_at_positions(output, self.positions)
        ).topk(self.k)
        return torch.stack([best.indices.to(best.values), best.values], dim=1)


@final
@dataclass(frozen=True, eq=False)
class WordsAndTopK(Readout):
    """Log-probabilities of words in a blank, and the likeliest tokens there, in one forward pass.

    `[batch, columns + 2k]`: the words, then ids and log-probabilities of the k likeliest tokens (0
    in rows that do not contain the original blank), then the spare last column of `words`.
    """

    words: LogProbs
    blank_positions: tuple[int | None, ...]
    """Position of the blank, in rows that contain the original blank; words are read there too."""
    k: int

    @property
    def read_positions(self) -> tuple[tuple[int, ...], ...]:
        """The positions where words are scored."""
        return self.words.read_positions

    def __call__(self, output: ForwardOutput) -> torch.Tensor:
        """Compute words and likeliest tokens; at the blank, both from the same scores."""
        indices, row_targets = output.batch.indices, self.words.list_row_targets(output.batch)
        at_blank_targets = [
            (row, target)
            for row, target in row_targets
            if target.position == self.blank_positions[indices[row]]
        ]
        other_targets = [
            (row, target)
            for row, target in row_targets
            if target.position != self.blank_positions[indices[row]]
        ]
        # Filled while the words at the blank are scored: the vocabulary scores are computed once.
        top_k: list[torch.Tensor] = []

        def score_blank(
            layout: ModelLayout, hidden: torch.Tensor, ids: torch.Tensor
        ) -> torch.Tensor:
            token_log_probs = compute_vocabulary_log_probs(layout, hidden)
            top = token_log_probs.topk(self.k)
            top_k.append(torch.cat([top.indices.to(token_log_probs), top.values], dim=1))
            return token_log_probs.gather(1, ids)

        parts = [
            self.words.sum_by_column(output, targets, compute_log_probs)
            for targets, compute_log_probs in (
                (at_blank_targets, score_blank),
                (other_targets, compute_token_log_probs),
            )
            if targets
        ]
        # The tokens of one word may be in both parts: their log-probabilities add up.
        values = torch.stack(parts).sum(0)
        top_k_columns = values.new_zeros(len(values), 2 * self.k)
        if top_k:
            top_k_columns[
                torch.tensor([row for row, _ in at_blank_targets], device=values.device)
            ] = top_k[0]
        return torch.cat([values[:, :-1], top_k_columns, values[:, -1:]], dim=1)


@final
@dataclass(frozen=True, eq=False)
class NextTokenLogProbs(Readout):
    """Log-probabilities of every token at one position of each row: `[batch, vocabulary]`."""

    positions: tuple[int, ...]

    @property
    def read_positions(self) -> tuple[tuple[int, ...], ...]:
        """The one position."""
        return tuple((position,) for position in self.positions)

    def __call__(self, output: ForwardOutput) -> torch.Tensor:
        """Compute the log-probabilities of all tokens."""
        return compute_vocabulary_log_probs(
            output.layout, _states_at_positions(output, self.positions)
        )


@final
@dataclass(frozen=True, eq=False)
class ClassLogProbs(Readout):
    """Log-probabilities of the next-sentence head's or the classifier's classes."""

    head: OutputStage

    @property
    def output_stage(self) -> OutputStage:
        """Up to that head."""
        return self.head

    def __call__(self, output: ForwardOutput) -> torch.Tensor:
        """Compute the log-probabilities of the head's classes."""
        assert output.logits is not None  # noqa: S101
        # At least float32: half precision would round differences of probabilities away.
        dtype = torch.float64 if output.logits.dtype == torch.float64 else torch.float32
        return output.logits.log_softmax(-1, dtype=dtype)


@final
@dataclass(frozen=True, eq=False)
class RegressionOutput(Readout):
    """Raw output of the classifier's last map: the score of a regression model."""

    @property
    def output_stage(self) -> OutputStage:
        """Up to the classifier."""
        return "classifier"

    def __call__(self, output: ForwardOutput) -> torch.Tensor:
        """Return one number for each column of the map."""
        assert output.logits is not None  # noqa: S101
        dtype = torch.float64 if output.logits.dtype == torch.float64 else torch.float32
        return output.logits.to(dtype)


@final
@dataclass(frozen=True, eq=False)
class AttentionRows(Readout):
    """Attention `[batch, layers, heads, token]` from some tokens of each row to all its tokens."""

    tokens: tuple[tuple[int, ...], ...]

    def attention_query_weights(self, batch: Batch) -> torch.Tensor:
        """Return equal weights for the tokens."""
        return token_weights(self.tokens, batch)

    def __call__(self, output: ForwardOutput) -> torch.Tensor:
        """Stack the rows of all layers."""
        # With device_map, layers may be on different devices.
        first = output.attention[0].device
        return torch.stack([row.to(first) for row in output.attention], dim=1)


@final
@dataclass(frozen=True, eq=False)
class NormWeightedAttention(Readout):
    """Attention, and attention times the norm of moved values: `[batch, 2, layers, heads, token]`.

    The attention weight of a token says little if the token's value is small. Kobayashi et al. 2020
    ("Attention is not only a weight", section 3) use the norm ||a v W_O^h||: attention a times the
    norm of the token's value v, with its bias, after the head's columns of the output projection,
    without its bias. For several query tokens, it is the mean of their norms. Values are read after
    edits. Edits of a head's output (`head_out`) come later and are not included, nor are norms that
    a family applies after the projection.
    """

    tokens: tuple[tuple[int, ...], ...]
    layers: int
    """Number of layers of the model; the values of all layers are needed."""

    @property
    def capture_sites(self) -> frozenset[StreamLayer]:
        """The values of every layer."""
        return frozenset(("value", layer) for layer in range(self.layers))

    def attention_query_weights(self, batch: Batch) -> torch.Tensor:
        """Return equal weights for the tokens."""
        return token_weights(self.tokens, batch)

    def __call__(self, output: ForwardOutput) -> torch.Tensor:
        """Stack the rows of all layers, unweighted and weighted."""
        rows = AttentionRows(self.tokens)(output)
        norms = torch.stack(
            [
                _value_norms(output.layout, layer, output.captured["value", layer]).to(rows)
                for layer in range(self.layers)
            ],
            dim=1,
        )
        return torch.stack([rows, rows * norms], dim=1)


def _value_norms(layout: ModelLayout, layer: int, values: torch.Tensor) -> torch.Tensor:
    """Compute `[batch, heads, token]` norms of the tokens' values after each head's part of W_O."""
    projection = layout.hook_point("head_out", layer).module
    weight = cast("torch.Tensor", projection.weight)
    if weight.is_meta:
        raise LevelheadError(
            "the output projection's weights are not in memory",
            hint="load the complete model, without offloading, to weight its attention",
        )
    dtype = torch.float64 if values.dtype == torch.float64 else torch.float32
    by_input = (weight if is_transposed(projection) else weight.T).to(dtype)
    head_weights = by_input.unflatten(0, (layout.heads, layout.head_dim))
    group_size = layout.heads // values.shape[2]  # query heads that one value head serves
    # One head at a time: all heads together would hold [batch, token, heads, width] at once.
    norms = [
        (values[:, :, head // group_size].to(dtype) @ head_weight.to(values.device)).norm(dim=-1)
        for head, head_weight in enumerate(head_weights)
    ]
    return torch.stack(norms, dim=1)


def token_weights(tokens: tuple[tuple[int, ...], ...], batch: Batch) -> torch.Tensor:
    """Return `[batch, token]` weights: 1/n at each of a row's n positions, 0 elsewhere."""
    weights = torch.zeros(len(batch.indices), batch.width)
    for row, index in enumerate(batch.indices):
        positions = tokens[index]
        weights[row, list(positions)] = 1 / len(positions)
    return weights.to(batch.inputs["input_ids"].device)


def _states_at_positions(output: ForwardOutput, positions: tuple[int, ...]) -> torch.Tensor:
    """Return one hidden state of each row, `[batch, width]`."""
    assert output.hidden is not None  # noqa: S101  # part="hidden" gives it
    device = output.hidden.device
    row_positions = torch.tensor([positions[i] for i in output.batch.indices], device=device)
    return output.hidden[torch.arange(len(row_positions), device=device), row_positions]


def _mean_over_tokens(states: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Average states over tokens, in float32 or float64."""
    # Half precision would lose digits in the sum, and numpy has no bfloat16.
    activation = states.to(torch.promote_types(states.dtype, torch.float32))
    if activation.dim() == 2:  # pooled: one vector a row
        return activation
    return torch.einsum("btd,bt->bd", activation, weights.to(activation))


def _activation_at(captured: dict[StreamLayer, torch.Tensor], site: Site) -> torch.Tensor:
    activation = captured[site.stream, site.layer]
    if site.stream not in PER_HEAD_STREAMS:
        return activation
    return activation.flatten(-2) if site.head is None else activation[..., site.head, :]
