"""ModelLayout: the modules, sizes and head columns of one loaded model."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

import torch

from levelhead.core.errors import LevelheadError
from levelhead.models.architectures.families import ModelClass, ModelFamily, get_family
from levelhead.models.architectures.tensor_parallel import SINGLE_PROCESS, ModelParallel
from levelhead.models.sites import PER_HEAD_STREAMS, QKV_STREAMS, Site, Stream, validate_site

if TYPE_CHECKING:
    from collections.abc import Iterator

    from transformers import PreTrainedModel


class HookPoint(NamedTuple):
    """The place of a stream of a layer: the input or output of a module's n-th call."""

    module: torch.nn.Module
    side: Literal["input", "output"]
    call: int
    """Number of the call in one complete forward pass; 0 unless layers share the module."""


@dataclass(frozen=True, eq=False)
class ModelLayout:
    """The modules of one loaded model. `from_model` finds them."""

    model: PreTrainedModel
    family: ModelFamily
    model_class: ModelClass
    backbone: PreTrainedModel
    blocks: tuple[torch.nn.Module, ...]
    """Layers in calling order; a shared layer appears once for each call."""
    heads: int
    kv_heads: int
    head_dim: int
    """From the width of the output projection: hidden size / heads is wrong for some families."""
    parallel: ModelParallel = SINGLE_PROCESS
    """Which heads this process has, if several processes share the model."""
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    # A list, because the fields of a frozen dataclass cannot be assigned.
    running_threads: list[int] = field(default_factory=list, repr=False)
    """The thread that is running a forward pass."""
    _hook_points: dict[tuple[Stream, int], HookPoint] = field(default_factory=dict, repr=False)

    @classmethod
    def from_model(
        cls,
        model: PreTrainedModel,
        model_class: ModelClass,
        parallel: ModelParallel = SINGLE_PROCESS,
    ) -> ModelLayout:
        """Find the modules of a model that was loaded as one of its family's classes."""
        row = get_family(model.config.model_type)
        # A class without a head is its own base model.
        backbone = cast("PreTrainedModel", model.base_model)
        blocks = find_layers(model)
        if not blocks:
            raise LevelheadError(
                "the model has no layers", hint="use a model with at least one layer"
            )
        heads = int(model.config.num_attention_heads)
        if heads < 1:
            raise LevelheadError(
                f"the model has {heads} heads", hint="correct num_attention_heads in config.json"
            )
        # Without grouped-query attention, every head has its own keys and values.
        kv_heads = int(getattr(model.config, "num_key_value_heads", None) or heads)
        width = weight_shape(blocks[0].get_submodule(row.attention_output))[1]
        if width % heads or heads % kv_heads:
            raise LevelheadError(
                f"{heads} heads ({kv_heads} for keys) do not divide the width {width}",
                hint="correct num_attention_heads in the model's config.json",
            )
        parallel.check_divisible(heads, kv_heads, fused=bool(row.fused))
        sizes = heads, kv_heads, width // heads
        return cls(model, row, model_class, backbone, blocks, *sizes, parallel=parallel)

    @contextmanager
    def exclusive_forward(self) -> Iterator[None]:
        """Lock the model for one forward pass: hooks of two threads would act in each other's."""
        # The same thread would wait for itself for ever.
        if self.running_threads and self.running_threads[-1] == threading.get_ident():
            raise LevelheadError(
                "a forward pass of this model was started inside another one",
                hint="finish the first forward pass, or load the model a second time",
            )
        with self.lock:
            self.running_threads.append(threading.get_ident())
            try:
                yield
            finally:
                self.running_threads.pop()

    def modules(self, stream: Stream) -> set[torch.nn.Module]:
        """Return the modules of a stream, over all layers."""
        return {self.hook_point(stream, layer).module for layer in range(self.layers)}

    @property
    def layers(self) -> int:
        """Number of layers that run in a forward pass."""
        return len(self.blocks)

    @cached_property
    def last_resumable_layer(self) -> int:
        """The last layer where a forward pass can resume; one more stands for the classifier."""
        return self.layers + bool(self.model_class.classifier or self.model_class.next_sentence)

    @cached_property
    def width(self) -> int:
        """Width of the residual stream, which layers return."""
        return int(self.model.config.hidden_size)

    def is_shared(self, layer: int) -> bool:
        """Whether other layers use the same weights."""
        return Counter(map(id, self.blocks))[id(self.blocks[layer])] > 1

    @cached_property
    def call_counts(self) -> Counter[torch.nn.Module]:
        """How often every module inside the layers is called in a forward pass."""
        return Counter(module for block in self.blocks for module in block.modules())

    @cached_property
    def embedder(self) -> torch.nn.Module | None:
        """The module that computes the embeddings, if it is one module."""
        path = self.family.embedder
        return self.backbone.get_submodule(path) if path else None

    def hook_point(self, stream: Stream, layer: int) -> HookPoint:
        """Return the module, side and call of a stream of a layer."""
        # Every forward pass looks up the hook points of its edits.
        if (stream, layer) not in self._hook_points:
            self._hook_points[stream, layer] = self._find_hook_point(stream, layer)
        return self._hook_points[stream, layer]

    def _find_hook_point(self, stream: Stream, layer: int) -> HookPoint:
        if stream == "pooled":
            return self._find_pooled()
        block = self.blocks[layer]
        # For shared weights (ALBERT), only the number of the call distinguishes layers.
        call = sum(earlier_block is block for earlier_block in self.blocks[:layer])
        # Families compute embeddings in different modules; all of them end in the first layer's
        # input.
        if stream == "embeddings":
            return HookPoint(block, "input", 0)
        if stream == "block_out":
            return HookPoint(block, "output", call)
        # The last place where heads are separate: the projection mixes them.
        if stream == "head_out":
            return HookPoint(block.get_submodule(self.family.attention_output), "input", call)
        if stream == "mlp_out":
            return HookPoint(block.get_submodule(self.family.mlp_output), "output", call)
        # Queries, keys and values: three projections, or one that is fused.
        path = self.family.qkv[QKV_STREAMS.index(stream) % len(self.family.qkv)]
        return HookPoint(block.get_submodule(path), "output", call)

    def _find_pooled(self) -> HookPoint:
        if head_path := self.model_class.classifier or self.model_class.next_sentence:
            return HookPoint(self.model.get_submodule(head_path), "input", 0)
        if self.model_class.pooler and getattr(self.backbone, "pooler", None) is not None:
            return HookPoint(self.backbone.get_submodule(self.model_class.pooler), "output", 0)
        raise LevelheadError(
            f"{self.model_class.name} has no pooled vector: this checkpoint holds no pooler that "
            "is used",
            hint="use a checkpoint with a classifier, a next-sentence head or a pooler",
        )

    def head_count(self, stream: Stream) -> int:
        """Return the number of heads that a stream is split into."""
        return self.kv_heads if stream in ("key", "value") else self.heads

    def head_columns(self, stream: Stream, layer: int) -> torch.Tensor | None:
        """Return the `[heads, head_dim]` columns of the module's activation; None without heads.

        If several processes share the model, only the heads of this process are included.
        """
        if stream not in PER_HEAD_STREAMS:
            return None
        local_heads = self.parallel.local_heads(self.head_count(stream))
        count, size = local_heads.stop - local_heads.start, self.head_dim
        if stream == "head_out" or not self.family.fused:
            return torch.arange(count * size).view(count, size)
        index = QKV_STREAMS.index(stream)
        # `check_divisible` refuses to split fused maps, so this process has all heads.
        if self.family.fused == "by head":
            # Shape [heads, 3, head_dim]: GPT-NeoX and BLOOM store q, k and v of each head in turn.
            return torch.arange(self.heads * 3 * size).view(self.heads, 3, size)[:, index]
        # Stacked: all queries, then all keys, then all values; the last two may have fewer heads.
        begin = (0, self.heads * size, (self.heads + self.kv_heads) * size)[index]
        return torch.arange(begin, begin + count * size).view(count, size)

    def site_width(self, site: Site) -> int:
        """Return the width of the activation at a site."""
        if site.stream in PER_HEAD_STREAMS:
            return self.head_dim * (self.head_count(site.stream) if site.head is None else 1)
        hook_point = self.hook_point(site.stream, site.layer)
        if site.stream == "mlp_out" and is_linear(hook_point.module):
            return weight_shape(hook_point.module)[0]
        if site.stream == "pooled" and hook_point.side == "input":
            return weight_shape(hook_point.module)[1]
        return self.width

    def require_site(self, site: Site) -> Site:
        """Return the site if this model has it; raise otherwise."""
        validate_site(site)
        if site.layer >= self.layers:
            raise LevelheadError(
                f"{site} does not exist: the model has {self.layers} layers",
                hint=f"use layers 0 to {self.layers - 1}, counted from 0",
            )
        if site.head is not None and site.head >= (count := self.head_count(site.stream)):
            raise LevelheadError(
                f"{site} does not exist: {site.stream} has {count} heads",
                hint=f"use heads 0 to {count - 1}, counted from 0",
            )
        # Raises if the checkpoint has no pooled vector.
        self.hook_point(site.stream, site.layer)
        return site


def find_layers(model: PreTrainedModel) -> tuple[torch.nn.Module, ...]:
    """Return the layers in calling order; a shared layer appears once for each call."""
    backbone, row = cast("PreTrainedModel", model.base_model), get_family(model.config.model_type)
    layers = cast("torch.nn.ModuleList", backbone.get_submodule(row.layers))
    if not row.shares_layer_weights:
        return tuple(layers)
    # ALBERT: `layers` are the groups; every pass runs all inner layers of one group, by the same
    # division as in transformers.
    passes, groups = int(backbone.config.num_hidden_layers), len(layers)
    return tuple(
        inner
        for i in range(passes)
        for inner in cast("torch.nn.ModuleList", layers[int(i / (passes / groups))].albert_layers)
    )


def weight_shape(linear: torch.nn.Module) -> tuple[int, int]:
    """Return (out, in) of a linear map, for either orientation of its weight."""
    rows, columns = cast("torch.Tensor", linear.weight).shape
    return (columns, rows) if is_transposed(linear) else (rows, columns)


def is_linear(module: torch.nn.Module) -> bool:
    """Whether a module is a linear map with a weight matrix."""
    weight = getattr(module, "weight", None)
    return isinstance(weight, torch.Tensor) and weight.dim() == 2


def is_transposed(linear: torch.nn.Module) -> bool:
    """Whether the weight is stored as (in, out), as in GPT-2's Conv1D."""
    return type(linear).__name__ == "Conv1D"
