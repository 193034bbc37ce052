"""Run the last layer only for the tokens that are read: the first, for a pooler or a classifier.

Only those tokens need a query, but keys and values are needed of all tokens. If these are linear in
the layer's input (`ModelFamily.keys_linear_in_input`), a projection h' = h - sum_i w_i <h, g_i> g_i
before the layer changes them by K(h') = K(h) - sum_i w_i <h, g_i> (W_K g_i). All models that differ
only in such projections share one matrix product, and each needs only a few vectors more.
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
from levelhead.models.forward.patching import patched_forward

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from levelhead.models.architectures.model_layout import ModelLayout
    from levelhead.models.edits.base import Edit
    from levelhead.models.inputs.batching import Batch
    from levelhead.models.queries.query import Query
    from levelhead.models.sites import Site

TOKENS_ATTENTION = "levelhead_read_tokens"
MAX_TOKEN_SHARE = 0.5
"""Share of tokens above which the layer runs for all tokens: selecting them would cost as much."""
KeysAndValues = tuple[torch.Tensor, torch.Tensor]

_thread_state = threading.local()
"""`pair`: keys and values `[batch, heads, token, width]` of the layer that this thread runs."""


def can_restrict_tokens(layout: ModelLayout, query: Query) -> bool:
    """Whether the last layer can run only for the tokens that are read, because these are few."""
    readout = query.readout
    if readout.output_stage == "hidden":
        read_positions = readout.read_positions
        has_few_tokens = (
            read_positions is not None and _token_share(query, read_positions) <= MAX_TOKEN_SHARE
        )
    else:
        has_few_tokens = bool(layout.model_class.first_position_reader)
    return (
        has_few_tokens
        and not readout.capture_sites
        and layout.family.keys_linear_in_input
        and layout.model.config._attn_implementation == "sdpa"
        # Offloaded weights are in memory only while their module runs.
        and not any(parameter.is_meta for parameter in layout.blocks[-1].parameters())
    )


def _token_share(query: Query, tokens: Sequence[Sequence[int]]) -> float:
    """Return the share of tokens that are read, padded to the row where most are read."""
    max_tokens = max(map(len, tokens))
    return max_tokens * len(tokens) / sum(len(row.ids) for row in query.rows)


def tokens_read(query: Query, batch: Batch) -> torch.Tensor | None:
    """Return `[batch, n]` positions that are read, some repeated; None: only the first token."""
    if query.readout.output_stage != "hidden" or query.readout.read_positions is None:
        return None
    positions_by_row = [query.readout.read_positions[i] or (0,) for i in batch.indices]
    # A batch is a rectangle: rows that read fewer tokens repeat their first.
    max_positions = max(map(len, positions_by_row))
    rows = [
        [*positions, *[positions[0]] * (max_positions - len(positions))]
        for positions in positions_by_row
    ]
    return torch.tensor(rows, device=batch.inputs["input_ids"].device)


@dataclass
class LastLayerCache:
    """Keys and values of the most recent unedited input of the last layer."""

    tokens: torch.Tensor | None = None
    """Positions that are read, `[batch, n]`; None: the output holds only the first token."""
    products: dict[str, KeysAndValues] = field(default_factory=dict, repr=False)
    """W_K g_i and W_V g_i by the hash of the edit; equal for all batches."""
    source: torch.Tensor | None = field(default=None, repr=False)
    keys_and_values: KeysAndValues | None = field(default=None, repr=False)

    def keys_and_values_after(
        self, layout: ModelLayout, hidden: torch.Tensor, site_edits: Sequence[tuple[Edit, Site]]
    ) -> KeysAndValues:
        """Compute keys and values `[batch, token, width]` of an input after edits.

        Args:
            layout: Model.
            hidden: Input of the last layer, without these edits.
            site_edits: Edits of this input, in order.
        """
        # The shortcut holds only for projections of all tokens.
        if not all(isinstance(edit, Projection) and edit.tokens == "all" for edit, _ in site_edits):
            for edit, site in site_edits:
                hidden = edit(hidden, site)
            return compute_keys_and_values(layout, hidden)
        # The same tensor object means the same batch: comparing values would cost as much.
        if self.source is not hidden or self.keys_and_values is None:
            self.source, self.keys_and_values = hidden, compute_keys_and_values(layout, hidden)
        keys, values = self.keys_and_values
        for number, (edit, site) in enumerate(site_edits, 1):
            basis, coefficients = cast("Projection", edit).directions_and_coefficients(hidden)
            key, value = self._project_directions(layout, edit, basis)
            keys, values = (
                _subtract_projection(keys, coefficients, key),
                _subtract_projection(values, coefficients, value),
            )
            # The coefficients of the next edit are those of the edited input.
            if number < len(site_edits):
                hidden = edit(hidden, site)
        return keys, values

    def _project_directions(
        self, layout: ModelLayout, edit: Edit, basis: torch.Tensor
    ) -> KeysAndValues:
        """Apply the key and value projections, without bias, to directions: `[k, width]` each."""
        edit_hash = edit.content_hash
        if edit_hash not in self.products:
            key, value = (
                cast("torch.Tensor", projection.weight)
                for projection in _key_value_projections(layout)
            )
            self.products[edit_hash] = basis @ key.T, basis @ value.T
        return self.products[edit_hash]


def compute_keys_and_values(layout: ModelLayout, hidden: torch.Tensor) -> KeysAndValues:
    """Apply the last layer's key and value projections to an input."""
    key, value = _key_value_projections(layout)
    # `forward` runs no hooks: the edits of a shared layer are for its other calls.
    return key.forward(hidden), value.forward(hidden)


def _key_value_projections(layout: ModelLayout) -> tuple[torch.nn.Module, torch.nn.Module]:
    """Return the last layer's key and value projections."""
    last = layout.layers - 1
    return layout.hook_point("key", last).module, layout.hook_point("value", last).module


@contextmanager
def last_layer_for_tokens(
    layout: ModelLayout,
    tokens: torch.Tensor | None,
    get_keys_and_values: Callable[[torch.Tensor], KeysAndValues],
) -> Iterator[None]:
    """During one forward pass, run the last layer only for the tokens that are read.

    Args:
        layout: Model.
        tokens: `[batch, n]` positions; all others are 0 in the layer's output. None: the output
            holds only the first token.
        get_keys_and_values: Computes keys and values `[batch, token, width]` of the layer's input.
    """
    block = layout.blocks[-1]
    original = block.forward
    calls, all_calls = 0, sum(layer is block for layer in layout.blocks)

    def forward(hidden: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        # The module of a shared layer is the last layer only in its last call.
        if calls < all_calls:
            return original(hidden, *args, **kwargs)
        with _replace_keys_and_values(layout, get_keys_and_values(hidden)):
            if tokens is None:
                # Contiguous: with strides, a linear map would run many small products.
                return original(hidden[:, :1].contiguous(), *args, **kwargs)
            rows = torch.arange(len(hidden), device=hidden.device)[:, None]
            output = original(hidden[rows, tokens], *args, **kwargs)
            token_states = output[0] if isinstance(output, tuple) else output
            states = token_states.new_zeros(hidden.shape).index_put((rows, tokens), token_states)
            return (states, *output[1:]) if isinstance(output, tuple) else states

    with patched_forward(block, forward):
        yield


@contextmanager
def _replace_keys_and_values(layout: ModelLayout, keys_and_values: KeysAndValues) -> Iterator[None]:
    shape = (layout.kv_heads, layout.head_dim)
    config = layout.model.config
    previous = config._attn_implementation
    _thread_state.pair = tuple(
        states.unflatten(-1, shape).transpose(1, 2) for states in keys_and_values
    )
    try:
        config._attn_implementation = TOKENS_ATTENTION
        with ExitStack() as stack:
            for module, states in zip(_key_value_projections(layout), keys_and_values, strict=True):
                # Keys and values exist already: the projections return any tensor of this shape,
                # which `_attention` ignores.
                stack.enter_context(
                    patched_forward(module, lambda x, states=states: states[:, : x.shape[1]])
                )
            yield
    finally:
        config._attn_implementation = previous
        del _thread_state.pair


def _attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Compute sdpa for the queries that are read, with the keys and values of all tokens."""
    key, value = _thread_state.pair
    # In an encoder the mask is equal for all queries.
    mask = None if attention_mask is None else attention_mask[:, :, :1]
    return sdpa_attention_forward(module, query, key, value, mask, **kwargs)


def _subtract_projection(
    x: torch.Tensor, coefficients: torch.Tensor, directions: torch.Tensor
) -> torch.Tensor:
    """Compute x - coefficients @ directions, in one pass over x."""
    flat = torch.addmm(x.flatten(0, -2), coefficients.flatten(0, -2), directions, alpha=-1)
    return flat.view_as(x)


AttentionInterface.register(TOKENS_ATTENTION, _attention)
