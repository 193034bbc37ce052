"""The plan of one forward pass: edits, gates, captures, and cached layer inputs.

A place that should have been reached and was not raises an error: an edit that was never applied
must not look like an edit without effect (decision 0005). `hooks` installs the plan.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch

from levelhead.core.errors import LevelheadError
from levelhead.models.forward.last_layer_cache import (
    LastLayerCache,
    compute_keys_and_values,
)
from levelhead.models.sites import LAYERLESS_STREAMS, PER_HEAD_STREAMS, Site, StreamLayer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.models.architectures.model_layout import ModelLayout
    from levelhead.models.edits.base import Edit
    from levelhead.models.sites import Stream


class EditHadNoEffectError(LevelheadError):
    """An edit, a gate or a capture was not applied, because its activation was never reached."""


class CacheKey(NamedTuple):
    """Everything that a cached layer input depends on.

    It is valid only for forward passes that are equal below that layer.
    """

    model_id: int
    """Id of the model object in memory."""
    rows: tuple[tuple[int, ...], ...]
    token_types: tuple[tuple[int, ...] | None, ...]
    parents: tuple[tuple[int, ...], ...]
    edits: tuple[str, ...]
    """Hashes of the edits below that layer, in order."""
    is_token_restricted: bool
    """Whether the output holds only the tokens that are read."""


class CachedLayerInput(NamedTuple):
    """The output of the layers below `layer` for one batch, from which a pass can resume.

    If `layer` is one more than the model has, it is the input of the classifier.

    Edits of the last skipped layer's output are applied after resuming, so that models which differ
    only in them share all layers.
    """

    layer: int
    output: Any
    """Output of the last skipped layer, unedited, in the form that the layer returned."""
    cache_key: CacheKey
    embeddings: Any = None
    """Output of the embeddings, if they are one module, so that they need not run again."""


@dataclass
class ForwardPass:
    """The plan of one forward pass, and what it captured."""

    layout: ModelLayout
    rows: tuple[tuple[int, ...], ...]
    """The token ids of the batch, without padding."""
    token_types: tuple[tuple[int, ...] | None, ...] = ()
    """Their token types, where the model has any."""
    parents: tuple[tuple[int, ...], ...] = ()
    """Predecessors of the tokens, for rows with branches."""
    edits: tuple[Edit, ...] = ()
    gates: Mapping[Stream, torch.Tensor] = field(default_factory=dict)
    """Factors `[layers, heads]` or `[batch, layers, heads]` by stream; applied after the edits."""
    capture_sites: frozenset[StreamLayer] = frozenset()
    cache_layers: frozenset[int] = frozenset()
    """Layers whose input is cached for later passes."""
    resume_from: CachedLayerInput | None = None
    last_layer_cache: LastLayerCache | None = None
    """If given, the last layer runs only for the tokens that are read."""
    recompute: bool = False
    """Whether activations inside layers are discarded and recomputed for a gradient."""
    captured: dict[StreamLayer, torch.Tensor] = field(default_factory=dict)
    """Captured activations, after edits and gates; `[batch, token, heads, width]` with heads."""
    layer_inputs: dict[int, CachedLayerInput] = field(default_factory=dict)
    embeddings: Any = None
    _touched: set[StreamLayer] = field(default_factory=set)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows, and of tokens in a padded row."""
        return len(self.rows), max(map(len, self.rows))

    @property
    def first_layer(self) -> int:
        """The first layer that is not skipped."""
        return self.resume_from.layer if self.resume_from else 0

    def make_cache_key(self, layer: int) -> CacheKey:
        """Return everything that a layer's input depends on in this pass."""
        return CacheKey(
            id(self.layout.model),
            self.rows,
            self.token_types,
            self.parents,
            edits_below(self.edits, layer),
            self.last_layer_cache is not None and layer >= self.layout.layers,
        )

    @cached_property
    def targets(self) -> dict[StreamLayer, list[tuple[Edit, Site]]]:
        """Every place that this pass must reach, with the edits there, in order."""
        # A place without edits is a capture or a gate.
        edits_by_site: dict[StreamLayer, list[tuple[Edit, Site]]] = {
            stream_layer: [] for stream_layer in self.capture_sites
        }
        for stream, gate in self.gates.items():
            for layer in range(gate.shape[-2]):
                edits_by_site.setdefault((stream, layer), [])
        for edit in self.edits:
            for site in edit.sites:
                edits_by_site.setdefault((site.stream, site.layer), []).append((edit, site))
        return {
            (stream, layer): site_edits
            for (stream, layer), site_edits in edits_by_site.items()
            if not (self.resume_from and precedes(Site(stream, layer), self.first_layer))
        }

    def process_activation(self, stream_layer: StreamLayer, x: torch.Tensor) -> torch.Tensor:
        """Apply edits and gates to one activation, and capture it.

        Args:
            stream_layer: Stream and layer of the activation.
            x: Activation, as the hooked module gets or returns it.
        """
        stream, layer = stream_layer
        site_edits = self.targets[stream_layer]
        flat = x.dim() == 2 and stream != "pooled"
        if (
            self.last_layer_cache
            and self.last_layer_cache.tokens is None
            and stream_layer == self._before_last
        ):
            # Keys and values come from the cache, and only the first token needs a query.
            x = x[:, :1].contiguous()
        # OPT flattens rows and tokens into one dimension for its feed-forward.
        if flat:
            x = x.unflatten(0, self.shape)
        columns = self.layout.head_columns(stream, layer)
        view = x if columns is None else _split_heads(x, columns)
        view = _apply_edits(view, site_edits)
        if stream in self.gates:
            gate = self.gates[stream]
            if columns is not None:
                gate = gate[..., self.layout.parallel.local_heads(gate.shape[-1])]
            view = view * _gate_factors(gate, layer, view)
        self._touched.add(stream_layer)
        if stream_layer in self.capture_sites:
            self.captured[stream_layer] = view
        # A capture alone returns the activation unchanged, without a copy.
        if site_edits or stream in self.gates:
            x = view if columns is None else _join_heads(x, columns, view)
        return x.flatten(0, 1) if flat else x

    @property
    def _before_last(self) -> StreamLayer:
        return "block_out", self.layout.layers - 2

    def last_keys_and_values(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values of the last layer for all tokens.

        Args:
            hidden: Input of the last layer, used if the layer before was not cached.
        """
        last = self.layout.layers - 1
        layer_input = (
            self.resume_from
            if self.resume_from and self.resume_from.layer == last
            else self.layer_inputs.get(last)
        )
        assert self.last_layer_cache is not None  # noqa: S101
        # Nothing is cached below the only layer of a model.
        if layer_input is None:
            return compute_keys_and_values(self.layout, hidden)
        unedited = (
            layer_input.output[0] if isinstance(layer_input.output, tuple) else layer_input.output
        )
        return self.last_layer_cache.keys_and_values_after(
            self.layout, unedited, self.targets.get(self._before_last, [])
        )

    def check_all_touched(self) -> None:
        """Raise if a place that this pass should have reached was not reached."""
        for stream, layer in sorted(self.targets.keys() - self._touched):
            site_edits = self.targets[stream, layer]
            if stream == "pooled" and site_edits and self._has_edit_acted():
                continue  # the pass ends before the classifier, but edits below were applied
            raise EditHadNoEffectError(
                f"this forward pass never reaches {Site(stream, layer)}"
                + (f", so {site_edits[0][0].kind} was not applied" if site_edits else ""),
                hint="run `levelhead doctor` on this model; an edit of only `pooled` changes "
                "next_sentence, classify and readouts of `pooled`",
            )

    def _has_edit_acted(self) -> bool:
        return any(self.targets[stream_layer] for stream_layer in self._touched)


def precedes(site: Site, layer: int) -> bool:
    """Whether a site is in the skipped part of a forward pass that resumes at a layer.

    The output of the last skipped layer is not: its edits are applied after resuming.
    """
    if site.stream in LAYERLESS_STREAMS:
        return site.stream == "embeddings"
    return site.layer < (layer - 1 if site.stream == "block_out" else layer)


# Cached: a sweep compares the same edit sets at every layer, for every batch.
@lru_cache(maxsize=4096)
def edits_below(edits: tuple[Edit, ...], layer: int) -> tuple[str, ...]:
    """Return hashes of the edits, in order, in the skipped part of a pass resumed at a layer."""
    return tuple(
        edit.content_hash for edit in edits if any(precedes(site, layer) for site in edit.sites)
    )


def _split_heads(x: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    # A view without a copy, unless the stream is a part of a fused projection.
    if columns.numel() == x.shape[-1]:
        return x.view(*x.shape[:-1], *columns.shape)
    return x[..., columns.to(x.device)]


def _join_heads(x: torch.Tensor, columns: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
    flat = view.flatten(-2)
    if columns.numel() == x.shape[-1]:
        return flat
    return x.index_copy(-1, columns.flatten().to(x.device), flat)


def _apply_edits(view: torch.Tensor, site_edits: Sequence[tuple[Edit, Site]]) -> torch.Tensor:
    """Apply edits in their order; consecutive edits of single heads split the view only once."""
    for on_heads, group in groupby(site_edits, key=lambda pair: pair[1].head is not None):
        if on_heads:
            head_views = list(view.unbind(-2))
            for edit, site in group:
                head = cast("int", site.head)
                head_views[head] = edit(head_views[head], site)
            view = torch.stack(head_views, dim=-2)
        else:
            for edit, site in group:
                joined = view.flatten(-2) if site.stream in PER_HEAD_STREAMS else view
                view = edit(joined, site).view_as(view)
    return view


def _gate_factors(gate: torch.Tensor, layer: int, view: torch.Tensor) -> torch.Tensor:
    """Return a layer's factors, broadcastable to `[batch, token, heads, width]`."""
    factors = gate[..., layer, :].to(view.device, view.dtype)
    per_item = factors[:, None] if gate.dim() == 3 else factors
    if view.dim() == 4:
        return per_item[..., None]
    return per_item
