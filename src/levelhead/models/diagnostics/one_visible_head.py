"""A model in which one head alone can see some words: ground truth for whoever locates heads.

In training and in use every attention head of every layer is forbidden to attend to the hidden
words' positions, but for one. What the model makes of those words at other positions it owes to
that head, wholly: with the head scaled to 0, exchanging a hidden word changes nothing at any other
position. (What a causal model foretells right behind a hidden word, it foretells at that word.)

Two further constructions. No head may see them (`head` is None): moreover, attention adds nothing
at a hidden word, so that what is predicted there comes of its embedding and of MLPs, wholly.
Several heads may (`also`): while such a model is trained, it is drawn for every batch whether the
first of them works, or the others, or all, and the rest is scaled to 0: each learns to do alone.

Weights cannot say this, so config.json does, and `levelhead.load` reads it there. In plain
transformers the same weights are another model.
"""

from __future__ import annotations

import inspect
import threading
from dataclasses import asdict, dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Self, final

import torch

from levelhead.core.errors import LevelheadError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from transformers import PretrainedConfig

KEY = "levelhead_known_head"
"""Of config.json."""
PROJECTIONS = ("self_attn.o_proj", "attn.c_proj", "attention.output.dense", "attention.dense")
"""Where the layers of models put their heads together: LLaMA's, GPT-2's, BERT's, ALBERT's."""


@final
@dataclass(frozen=True)
class KnownHead:
    """The one head that sees the hidden words; counted from 0."""

    layer: int | None
    head: int | None
    """None, as the layer: no head sees them."""
    hidden: tuple[int, ...]
    """Token ids of the hidden words."""
    also: tuple[tuple[int, int], ...] = ()
    """(layer, head) of others that see them, each of which suffices."""

    @classmethod
    def of(cls, config: PretrainedConfig) -> Self | None:
        """What a model's config says, if it says anything."""
        told = getattr(config, KEY, None)
        return None if told is None else cls._parsed(told)

    @classmethod
    def _parsed(cls, told: Any) -> Self:
        try:
            layer, head, hidden = (told[name] for name in ("layer", "head", "hidden"))
            also = tuple((first, second) for first, second in told.get("also", ()))
            numbers = [*hidden, *(number for site in also for number in site)]
            if (layer, head) == (None, None):
                is_whole = not also
            else:
                is_whole, numbers = True, [layer, head, *numbers]
            if not hidden or not is_whole or any(type(n) is not int or n < 0 for n in numbers):
                raise ValueError
            return cls(layer, head, tuple(hidden), also)
        except (TypeError, KeyError, ValueError, AttributeError):
            raise LevelheadError(
                f"{KEY} in config.json is damaged: {told!r:.80}", mend="grow the model again"
            ) from None

    def told(self, config: PretrainedConfig) -> None:
        """Write it into a config."""
        setattr(config, KEY, self.plain)

    @property
    def plain(self) -> dict[str, Any]:
        """As config.json has it; without `also` where there is one head, as it was at first."""
        found = asdict(self) | {"hidden": list(self.hidden), "also": [list(a) for a in self.also]}
        return {name: value for name, value in found.items() if name != "also" or value}

    @property
    def sites(self) -> tuple[tuple[int, int], ...]:
        """(layer, head) of every head that sees the hidden words."""
        if self.layer is None or self.head is None:
            return ()
        return ((self.layer, self.head), *self.also)

    def install(self, backbone: torch.nn.Module, blocks: Sequence[torch.nn.Module]) -> None:
        """Hide the words from all other heads, in every forward from now on.

        Args:
            backbone: the model that is given token ids.
            blocks: its layers in the order of their calls; one may be there several times.
        """
        heads = int(backbone.config.num_attention_heads)  # type: ignore[arg-type, union-attr]
        for layer, head in self.sites:
            if not (0 <= layer < len(blocks) and 0 <= head < heads):
                raise LevelheadError(
                    f"the known head {layer}.{head} is none of {len(blocks)} x {heads}",
                    mend="grow the model again",
                )
        _Blinders(self, heads).on(backbone, blocks)


class _Blinders:
    """The hooks of one model, and the batch they are in."""

    def __init__(self, known: KnownHead, heads: int) -> None:
        self.known, self.heads = known, heads
        self.now = _Now()

    def __deepcopy__(self, memo: object) -> _Blinders:
        return _Blinders(self.known, self.heads)

    def on(self, backbone: torch.nn.Module, blocks: Sequence[torch.nn.Module]) -> None:
        backbone.register_forward_pre_hook(self.begin, with_kwargs=True)
        for block in {id(block): block for block in blocks}.values():
            block.register_forward_pre_hook(self.layer, with_kwargs=True)
            if not self.known.sites:
                _projection(block).register_forward_hook(self.silence)
            if self.known.also:
                _projection(block).register_forward_pre_hook(self.drop)

    def drop(
        self, module: torch.nn.Module, args: tuple[torch.Tensor]
    ) -> tuple[torch.Tensor] | None:
        """Scale the heads to 0 that are left out of this training batch."""
        left_out = [
            head
            for layer, head in self.known.sites
            if layer == self.now.layer and (layer, head) not in self.now.sites
        ]
        if not left_out:
            return None
        put = args[0].unflatten(-1, (self.heads, -1)).clone()
        put[..., left_out, :] = 0.0
        return (put.flatten(-2),)

    def silence(
        self, module: torch.nn.Module, args: tuple[Any, ...], output: torch.Tensor
    ) -> torch.Tensor:
        """Let attention add nothing at hidden words."""
        return output.masked_fill(self.now.hidden[..., None], 0.0)

    def begin(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Remember where the hidden words of this batch stand."""
        given = _given(module, args, kwargs)
        ids, past = given.get("input_ids"), given.get("past_key_values")
        if ids is None or (past is not None and past.get_seq_length() > 0):
            raise LevelheadError(
                "a model with a known head must be given the token ids of the whole text",
                mend="give input_ids, and use_cache=False when generating",
            )
        hidden = torch.tensor(self.known.hidden, device=ids.device)
        self.now.hidden, self.now.calls = torch.isin(ids, hidden), count()
        self.now.sites = self.seeing(is_training=module.training)

    def seeing(self, *, is_training: bool) -> tuple[tuple[int, int], ...]:
        """The heads that see hidden words in this forward; one, the others or all, in training."""
        sites = self.known.sites
        if not (is_training and self.known.also):
            return sites
        # Of the trainer's seeded generator: the same training gives the same weights.
        return (sites[:1], sites[1:], sites)[int(torch.randint(3, ()))]

    def layer(
        self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Give a layer the mask of each of its heads."""
        given = _given(module, args, kwargs)
        seen = ~self.now.hidden[:, None, None, :].expand(-1, self.heads, -1, -1)
        number = self.now.layer = next(self.now.calls)
        heads = [head for layer, head in self.now.sites if layer == number]
        if heads:
            seen = seen.clone()
            seen[:, heads] = True
        own, dtype = given.get("attention_mask"), given["hidden_states"].dtype
        mask = _joined(own, seen, dtype, causal=_is_causal(module))
        if "attention_mask" in kwargs:
            return args, kwargs | {"attention_mask": mask}
        place = list(_signature(module).parameters).index("attention_mask") - 1  # without self
        return (*args[:place], mask, *args[place + 1 :]), kwargs


class _Now(threading.local):
    """Two threads may each be in a forward of two copies of a model."""

    hidden: torch.Tensor
    calls: Iterator[int]
    sites: tuple[tuple[int, int], ...]
    layer: int


def _given(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    return _signature(module).bind_partial(module, *args, **kwargs).arguments


def _signature(module: torch.nn.Module) -> inspect.Signature:
    """Of the class: a resumed forward puts another, nameless one on the instance."""
    return inspect.signature(type(module).forward)


def _projection(block: torch.nn.Module) -> torch.nn.Module:
    """What the heads of a layer are put together by."""
    for name in PROJECTIONS:
        try:
            return block.get_submodule(name)
        except AttributeError:
            continue
    raise LevelheadError(
        f"where {type(block).__name__} puts its heads together is not known",
        mend=f"use a model whose layers have one of {', '.join(PROJECTIONS)}",
    )


def _is_causal(block: torch.nn.Module) -> bool:
    return any(bool(getattr(part, "is_causal", False)) for part in block.modules())


def _joined(
    mask: torch.Tensor | None, seen: torch.Tensor, dtype: torch.dtype, *, causal: bool
) -> torch.Tensor:
    """The model's own mask, and what each head may see: `[batch, heads, query, key]`, to be added.

    Added, because that is what every implementation of attention understands alike.
    """
    tokens, least = seen.shape[-1], torch.finfo(dtype).min
    if mask is None:
        all_seen = torch.ones(tokens, tokens, dtype=torch.bool, device=seen.device)
        mask = (all_seen.tril() if causal else all_seen)[None, None]
    if mask.dim() != 4 or mask.shape[-1] != tokens:
        raise LevelheadError(
            f"a mask of shape {tuple(mask.shape)} for {tokens} tokens: the hidden words' places "
            "are not known in it",
            mend="use sdpa or eager attention",
        )
    if mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, least)
    return mask.masked_fill(~seen, least)
