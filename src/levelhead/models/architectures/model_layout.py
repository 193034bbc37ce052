"""One model's parts, found by its family's row: modules, sizes, and the columns of every head."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

import torch

from levelhead.core.errors import LevelheadError
from levelhead.models.architectures.families import Family, ModelClass, family
from levelhead.models.architectures.tensor_parallel import ALONE, Ranks
from levelhead.models.sites import BY_HEAD, QKV, Site, Stream, checked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from transformers import PreTrainedModel


class Place(NamedTuple):
    """Where a stream of a layer is to be had: the input or the output of a module's n-th call."""

    module: torch.nn.Module
    side: Literal["input", "output"]
    call: int
    """Counted in one whole forward. 0 unless the module is shared by several layers."""


@dataclass(frozen=True, eq=False)
class Anatomy:
    """The parts of one loaded model. `of` finds them."""

    model: PreTrainedModel
    family: Family
    cls: ModelClass
    backbone: PreTrainedModel
    blocks: tuple[torch.nn.Module, ...]
    """The layers in the order they are called; a shared one appears once a call."""
    heads: int
    kv_heads: int
    head_dim: int
    """From the width of the output projection: hidden size / heads is wrong for some families."""
    ranks: Ranks = ALONE
    """Which of the heads are in this process, if others share the model."""
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    holder: list[int] = field(default_factory=list, repr=False)
    """The thread whose forward is under way."""
    _places: dict[tuple[Stream, int], Place] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, model: PreTrainedModel, model_class: ModelClass, ranks: Ranks = ALONE) -> Anatomy:
        """Find the parts of a model loaded as one of its family's classes."""
        row = family(model.config.model_type)
        backbone = cast("PreTrainedModel", model.base_model)
        blocks = layers_of(model)
        if not blocks:
            raise LevelheadError("the model has no layers", mend="use a model with at least one")
        heads = int(model.config.num_attention_heads)
        if heads < 1:
            raise LevelheadError(
                f"the model has {heads} heads", mend="correct num_attention_heads in config.json"
            )
        kv_heads = int(getattr(model.config, "num_key_value_heads", None) or heads)
        width = weight_shape(blocks[0].get_submodule(row.out))[1]
        if width % heads or heads % kv_heads:
            raise LevelheadError(
                f"{heads} heads ({kv_heads} for keys) do not divide the width {width}",
                mend="correct num_attention_heads in the model's config.json",
            )
        ranks.check(heads, kv_heads, fused=bool(row.fused))
        sizes = heads, kv_heads, width // heads
        return cls(model, row, model_class, backbone, blocks, *sizes, ranks=ranks)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the model for one forward: hooks of two threads would mix and give wrong numbers."""
        if self.holder and self.holder[-1] == threading.get_ident():
            raise LevelheadError(
                "the model is asked again from inside one of its own forwards",
                mend="finish the forward first, or load the model a second time",
            )
        with self.lock:
            self.holder.append(threading.get_ident())
            try:
                yield
            finally:
                self.holder.pop()

    def modules(self, stream: Stream) -> set[torch.nn.Module]:
        """The modules a stream is found at, over all layers."""
        return {self.place(stream, layer).module for layer in range(self.layers)}

    @property
    def layers(self) -> int:
        """How many layers are run in a forward."""
        return len(self.blocks)

    @cached_property
    def highest(self) -> int:
        """The last layer that a forward can be resumed at; one more: before the classifier."""
        return self.layers + bool(self.cls.classifier or self.cls.next_sentence)

    @cached_property
    def width(self) -> int:
        """Of the residual stream: what a layer returns."""
        return int(self.model.config.hidden_size)

    def is_shared(self, layer: int) -> bool:
        """Whether other layers run the same weights."""
        return Counter(map(id, self.blocks))[id(self.blocks[layer])] > 1

    @cached_property
    def calls(self) -> Counter[torch.nn.Module]:
        """How often every module inside the layers is called in a forward."""
        return Counter(module for block in self.blocks for module in block.modules())

    @cached_property
    def embedder(self) -> torch.nn.Module | None:
        """The module that makes the embeddings, where it is one."""
        path = self.family.embedder
        return self.backbone.get_submodule(path) if path else None

    def place(self, stream: Stream, layer: int) -> Place:
        """The module, side and call at which a stream of a layer is found."""
        if (stream, layer) not in self._places:
            self._places[stream, layer] = self._find(stream, layer)
        return self._places[stream, layer]

    def _find(self, stream: Stream, layer: int) -> Place:
        if stream == "pooled":
            return self._pooled()
        block = self.blocks[layer]
        call = sum(other is block for other in self.blocks[:layer])
        if stream == "embeddings":
            return Place(block, "input", 0)
        if stream == "block_out":
            return Place(block, "output", call)
        if stream == "head_out":
            return Place(block.get_submodule(self.family.out), "input", call)
        if stream == "mlp_out":
            return Place(block.get_submodule(self.family.mlp), "output", call)
        # Queries, keys and values: three projections, or one that is fused.
        path = self.family.qkv[QKV.index(stream) % len(self.family.qkv)]
        return Place(block.get_submodule(path), "output", call)

    def _pooled(self) -> Place:
        if last := self.cls.classifier or self.cls.next_sentence:
            return Place(self.model.get_submodule(last), "input", 0)
        if self.cls.pooler and getattr(self.backbone, "pooler", None) is not None:
            return Place(self.backbone.get_submodule(self.cls.pooler), "output", 0)
        raise LevelheadError(
            f"{self.cls.name} has no pooled vector: this checkpoint holds no pooler that is used",
            mend="use a checkpoint with a classifier, a next-sentence head or a pooler",
        )

    def heads_of(self, stream: Stream) -> int:
        """How many heads a stream is split into."""
        return self.kv_heads if stream in ("key", "value") else self.heads

    def columns(self, stream: Stream, layer: int) -> torch.Tensor | None:
        """`[heads, head_dim]` columns of the module's activation; None where it is one piece.

        Of the heads in this process, where several share the model.
        """
        if stream not in BY_HEAD:
            return None
        own = self.ranks.own(self.heads_of(stream))
        count, size = own.stop - own.start, self.head_dim
        if stream == "head_out" or not self.family.fused:
            return torch.arange(count * size).view(count, size)
        part = QKV.index(stream)
        if self.family.fused == "by head":
            return torch.arange(self.heads * 3 * size).view(self.heads, 3, size)[:, part]
        begin = (0, self.heads * size, (self.heads + self.kv_heads) * size)[part]
        return torch.arange(begin, begin + count * size).view(count, size)

    def size(self, site: Site) -> int:
        """How wide the activation at a site is."""
        if site.stream in BY_HEAD:
            return self.head_dim * (self.heads_of(site.stream) if site.head is None else 1)
        place = self.place(site.stream, site.layer)
        if site.stream == "mlp_out" and is_linear(place.module):
            return weight_shape(place.module)[0]
        if site.stream == "pooled" and place.side == "input":
            return weight_shape(place.module)[1]
        return self.width

    def find(self, site: Site) -> Site:
        """The site, if this model has it."""
        checked(site)
        if site.layer >= self.layers:
            raise LevelheadError(
                f"there is no {site}: the model has {self.layers} layers",
                mend=f"layers are counted from 0: use 0 to {self.layers - 1}",
            )
        if site.head is not None and site.head >= (count := self.heads_of(site.stream)):
            raise LevelheadError(
                f"there is no {site}: {site.stream} has {count} heads",
                mend=f"heads are counted from 0: use 0 to {count - 1}",
            )
        self.place(site.stream, site.layer)
        return site


def layers_of(model: PreTrainedModel) -> tuple[torch.nn.Module, ...]:
    """The layers in the order they are called; a shared one appears once a call."""
    backbone, row = cast("PreTrainedModel", model.base_model), family(model.config.model_type)
    layers = cast("torch.nn.ModuleList", backbone.get_submodule(row.layers))
    if not row.shared:
        return tuple(layers)
    # ALBERT: `layers` are the groups; every pass runs all inner layers of the pass's group.
    passes, groups = int(backbone.config.num_hidden_layers), len(layers)
    return tuple(
        inner
        for i in range(passes)
        for inner in cast("torch.nn.ModuleList", layers[int(i / (passes / groups))].albert_layers)
    )


def weight_shape(linear: torch.nn.Module) -> tuple[int, int]:
    """(out, in) of a linear map, whichever way round it keeps its weight."""
    rows, columns = cast("torch.Tensor", linear.weight).shape
    return (columns, rows) if is_transposed(linear) else (rows, columns)


def is_linear(module: torch.nn.Module) -> bool:
    """Whether a module is a linear map with a weight matrix."""
    weight = getattr(module, "weight", None)
    return isinstance(weight, torch.Tensor) and weight.dim() == 2


def is_transposed(linear: torch.nn.Module) -> bool:
    """GPT-2's Conv1D keeps its weight as (in, out)."""
    return type(linear).__name__ == "Conv1D"
