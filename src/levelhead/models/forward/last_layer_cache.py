"""The last layer for the tokens alone that are read of it: the first, for a pooler or a classifier.

A query is needed of those tokens, keys and values of all. Where these are linear in what the layer
is given (`Family.keys_of_input`), a projection h' = h - sum_i w_i <h, g_i> g_i before it changes
them by as little: K(h') = K(h) - sum_i w_i <h, g_i> (W_K g_i). So one product for all models that
differ in such projections, and a few vectors for each.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from levelhead.models.edits.base import Projection
from levelhead.models.forward.patching import replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from levelhead.models.architectures.model_layout import Anatomy
    from levelhead.models.edits.base import Edit
    from levelhead.models.inputs.batching import Batch
    from levelhead.models.queries.query import Reading
    from levelhead.models.sites import Site

NAME = "levelhead_read_tokens"
MOST = 0.5
"""The share of tokens above which the layer is run for all of them."""
Pair = tuple[torch.Tensor, torch.Tensor]

_now = threading.local()
"""`pair`: keys and values `[batch, heads, token, width]` of the layer that this thread is in."""


def suffices(anatomy: Anatomy, reading: Reading) -> bool:
    """Whether few tokens are all that is read of the last layer, and can be had alone."""
    readout = reading.readout
    if readout.part == "hidden":
        own = readout.reads
        few = own is not None and _share(reading, own) <= MOST
    else:
        few = bool(anatomy.cls.reads_first)
    return (
        few
        and not readout.watch
        and anatomy.family.keys_of_input
        and anatomy.model.config._attn_implementation == "sdpa"
        # Offloaded weights are in memory only while their own module runs.
        and not any(parameter.is_meta for parameter in anatomy.blocks[-1].parameters())
    )


def _share(reading: Reading, tokens: Sequence[Sequence[int]]) -> float:
    """Of all tokens, those that are read; a batch is as wide as its widest row."""
    most = max(map(len, tokens))
    return most * len(tokens) / sum(len(row.ids) for row in reading.rows)


def read_of(reading: Reading, batch: Batch) -> torch.Tensor | None:
    """`[batch, n]` positions that are read of the last layer, some repeated; None: the first."""
    if reading.readout.part != "hidden" or reading.readout.reads is None:
        return None
    own = [reading.readout.reads[i] or (0,) for i in batch.indices]
    most = max(map(len, own))
    rows = [[*positions, *[positions[0]] * (most - len(positions))] for positions in own]
    return torch.tensor(rows, device=batch.inputs["input_ids"].device)


@dataclass
class Memory:
    """Keys and values of the last layer's input as it was before edits; of the last one asked."""

    tokens: torch.Tensor | None = None
    """`[batch, n]`: the positions that are read; None: the first, and the others are not there."""
    products: dict[str, Pair] = field(default_factory=dict, repr=False)
    """W_K g_i and W_V g_i by the edit's hash: the same for all batches."""
    of: torch.Tensor | None = field(default=None, repr=False)
    pair: Pair | None = field(default=None, repr=False)

    def after(
        self, anatomy: Anatomy, hidden: torch.Tensor, acting: Sequence[tuple[Edit, Site]]
    ) -> Pair:
        """Keys and values `[batch, token, width]` of an input once edits have acted on it."""
        if not all(isinstance(edit, Projection) and edit.tokens == "all" for edit, _ in acting):
            for edit, site in acting:
                hidden = edit(hidden, site)
            return keys_and_values(anatomy, hidden)
        if self.of is not hidden or self.pair is None:
            self.of, self.pair = hidden, keys_and_values(anatomy, hidden)
        keys, values = self.pair
        for number, (edit, site) in enumerate(acting, 1):
            basis, along = cast("Projection", edit).along(hidden)
            key, value = self._products(anatomy, edit, basis)
            keys, values = _less(keys, along, key), _less(values, along, value)
            if number < len(acting):
                hidden = edit(hidden, site)
        return keys, values

    def _products(self, anatomy: Anatomy, edit: Edit, basis: torch.Tensor) -> Pair:
        """`[k, width]` each: what the projections, without their bias, make of directions."""
        name = edit.content_hash
        if name not in self.products:
            key, value = (cast("torch.Tensor", maker.weight) for maker in _makers(anatomy))
            self.products[name] = basis @ key.T, basis @ value.T
        return self.products[name]


def keys_and_values(anatomy: Anatomy, hidden: torch.Tensor) -> Pair:
    """What the last layer's projections make of an input."""
    key, value = _makers(anatomy)
    # Past the hooks: a shared layer's edits are meant for its other calls.
    return key.forward(hidden), value.forward(hidden)


def _makers(anatomy: Anatomy) -> tuple[torch.nn.Module, torch.nn.Module]:
    """The last layer's projections of keys and of values."""
    last = anatomy.layers - 1
    return anatomy.place("key", last).module, anatomy.place("value", last).module


@contextmanager
def read_alone(
    anatomy: Anatomy, tokens: torch.Tensor | None, remembered: Callable[[torch.Tensor], Pair]
) -> Iterator[None]:
    """During one forward, run the last layer for the tokens that are read only.

    Args:
        anatomy: the model.
        tokens: `[batch, n]` positions; all others are 0 in what the layer returns. None: the
            first, which is all that it returns.
        remembered: gives the layer's keys and values `[batch, token, width]`, of its input.
    """
    block = anatomy.blocks[-1]
    real = block.forward
    calls, all_calls = 0, sum(other is block for other in anatomy.blocks)

    def forward(hidden: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls < all_calls:
            return real(hidden, *args, **kwargs)
        with _keys_given(anatomy, remembered(hidden)):
            if tokens is None:
                # As it lies in memory, a linear map would take it for many small matrices.
                return real(hidden[:, :1].contiguous(), *args, **kwargs)
            rows = torch.arange(len(hidden), device=hidden.device)[:, None]
            output = real(hidden[rows, tokens], *args, **kwargs)
            few = output[0] if isinstance(output, tuple) else output
            whole = few.new_zeros(hidden.shape).index_put((rows, tokens), few)
            return (whole, *output[1:]) if isinstance(output, tuple) else whole

    with replaced(block, forward):
        yield


@contextmanager
def _keys_given(anatomy: Anatomy, pair: Pair) -> Iterator[None]:
    shape = (anatomy.kv_heads, anatomy.head_dim)
    config = anatomy.model.config
    before = config._attn_implementation
    _now.pair = tuple(own.unflatten(-1, shape).transpose(1, 2) for own in pair)
    try:
        config._attn_implementation = NAME
        with ExitStack() as stack:
            for module, own in zip(_makers(anatomy), pair, strict=True):
                # They are there already: what the layer makes of the few tokens is not looked at.
                stack.enter_context(replaced(module, lambda x, own=own: own[:, : x.shape[1]]))
            yield
    finally:
        config._attn_implementation = before
        del _now.pair


def _attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """The queries that are read, by sdpa, with the keys and values of all tokens."""
    key, value = _now.pair
    # An encoder's: every token sees the same ones.
    mask = None if attention_mask is None else attention_mask[:, :, :1]
    return sdpa_attention_forward(module, query, key, value, mask, **kwargs)


def _less(x: torch.Tensor, along: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """X - along @ rows, in one pass over x."""
    flat = torch.addmm(x.flatten(0, -2), along.flatten(0, -2), rows, alpha=-1)
    return flat.view_as(x)


AttentionInterface.register(NAME, _attention)
