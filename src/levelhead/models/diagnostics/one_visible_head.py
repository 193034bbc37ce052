"""Models in which only one head can attend to some words: ground truth for locating heads.

In training and in use, no attention head except one may attend to the positions of the hidden
words. At other positions, all information about these words passes through that head: with the head
scaled to 0, exchanging a hidden word changes nothing at any other position. (A causal model makes
its prediction of the next token after a hidden word at the position of that word.)

There are two further constructions. If no head may attend to them (`head` is None), attention also
adds nothing at a hidden word, so that a prediction there depends only on its embedding and on MLPs.
If several heads may (`also`), each training batch selects at random the first of them, the others,
or all, and scales the rest to 0, so that each part learns to work without the other.

Weights cannot express this, so config.json contains it and `levelhead.load` reads it. In plain
transformers, the same weights are another model.
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

CONFIG_KEY = "levelhead_known_head"
"""Key in config.json."""
PROJECTIONS = ("self_attn.o_proj", "attn.c_proj", "attention.output.dense", "attention.dense")
"""Paths of the attention output projection in a layer: LLaMA, GPT-2, BERT, ALBERT."""


@final
@dataclass(frozen=True)
class OneVisibleHead:
    """The only head that can attend to the hidden words; counted from 0."""

    layer: int | None
    head: int | None
    """None, like the layer: no head can attend to them."""
    hidden: tuple[int, ...]
    """Token ids of the hidden words."""
    also: tuple[tuple[int, int], ...] = ()
    """(layer, head) of other heads that can attend to them; the first or the others suffice."""

    @classmethod
    def from_config(cls, config: PretrainedConfig) -> Self | None:
        """Read it from a model's config; None if the config does not contain it."""
        fields = getattr(config, CONFIG_KEY, None)
        return None if fields is None else cls._from_json(fields)

    @classmethod
    def _from_json(cls, fields: Any) -> Self:
        try:
            layer, head, hidden = (fields[name] for name in ("layer", "head", "hidden"))
            also = tuple((first, second) for first, second in fields.get("also", ()))
            numbers = [*hidden, *(index for site in also for index in site)]
            if (layer, head) == (None, None):
                is_valid = not also
            else:
                is_valid, numbers = True, [layer, head, *numbers]
            if (
                not hidden
                or not is_valid
                or any(type(index) is not int or index < 0 for index in numbers)
            ):
                raise ValueError
            return cls(layer, head, tuple(hidden), also)
        except (TypeError, KeyError, ValueError, AttributeError):
            raise LevelheadError(
                f"{CONFIG_KEY} in config.json is damaged: {fields!r:.80}",
                hint="train the model again",
            ) from None

    def write_to(self, config: PretrainedConfig) -> None:
        """Write it into a model's config."""
        setattr(config, CONFIG_KEY, self.as_json)

    @property
    def as_json(self) -> dict[str, Any]:
        """Its form in config.json; `also` is left out if empty, as in older files."""
        fields = asdict(self) | {
            "hidden": list(self.hidden),
            "also": [list(position) for position in self.also],
        }
        return {name: value for name, value in fields.items() if name != "also" or value}

    @property
    def positions(self) -> tuple[tuple[int, int], ...]:
        """(layer, head) of every head that can attend to the hidden words."""
        if self.layer is None or self.head is None:
            return ()
        return ((self.layer, self.head), *self.also)

    def install(self, backbone: torch.nn.Module, blocks: Sequence[torch.nn.Module]) -> None:
        """Hide the words from all other heads in every later forward pass.

        Args:
            backbone: Model whose input are token ids.
            blocks: Its layers in calling order; a shared layer occurs several times.
        """
        heads = int(backbone.config.num_attention_heads)  # type: ignore[arg-type, union-attr]
        for layer, head in self.positions:
            if not (0 <= layer < len(blocks) and 0 <= head < heads):
                raise LevelheadError(
                    f"the known head {layer}.{head} is not one of {len(blocks)} x {heads} heads",
                    hint="train the model again",
                )
        _VisibilityHooks(self, heads).register(backbone, blocks)


class _VisibilityHooks:
    """The hooks of one model, and the state of the current batch."""

    def __init__(self, visible_head: OneVisibleHead, heads: int) -> None:
        self.visible_head, self.heads = visible_head, heads
        self.batch = _BatchState()

    def __deepcopy__(self, memo: object) -> _VisibilityHooks:
        # A copied model must not share the state of a batch with the original.
        return _VisibilityHooks(self.visible_head, self.heads)

    def register(self, backbone: torch.nn.Module, blocks: Sequence[torch.nn.Module]) -> None:
        backbone.register_forward_pre_hook(self.start_batch, with_kwargs=True)
        # Each module once: a shared layer is several layers, and the hook counts its calls.
        for block in {id(block): block for block in blocks}.values():
            block.register_forward_pre_hook(self.mask_layer, with_kwargs=True)
            if not self.visible_head.positions:
                _find_output_projection(block).register_forward_hook(self.silence_hidden)
            if self.visible_head.also:
                _find_output_projection(block).register_forward_pre_hook(self.drop_heads)

    def drop_heads(
        self, module: torch.nn.Module, args: tuple[torch.Tensor]
    ) -> tuple[torch.Tensor] | None:
        """Scale the heads to 0 that were not selected for this training batch."""
        dropped = [
            head
            for layer, head in self.visible_head.positions
            if layer == self.batch.layer and (layer, head) not in self.batch.positions
        ]
        if not dropped:
            return None
        # A copy: the backward pass of attention may need its output unchanged.
        head_outputs = args[0].unflatten(-1, (self.heads, -1)).clone()
        head_outputs[..., dropped, :] = 0.0
        return (head_outputs.flatten(-2),)

    def silence_hidden(
        self, module: torch.nn.Module, args: tuple[Any, ...], output: torch.Tensor
    ) -> torch.Tensor:
        """Set the attention output at hidden words to 0."""
        return output.masked_fill(self.batch.hidden[..., None], 0.0)

    def start_batch(
        self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Find the positions of the hidden words in this batch."""
        arguments = _bind_arguments(module, args, kwargs)
        ids, past = arguments.get("input_ids"), arguments.get("past_key_values")
        # With cached keys, earlier hidden words are not in `input_ids`: they would be visible.
        if ids is None or (past is not None and past.get_seq_length() > 0):
            raise LevelheadError(
                "a model with a known head needs the token ids of the complete text",
                hint="pass input_ids, and use_cache=False when generating",
            )
        hidden = torch.tensor(self.visible_head.hidden, device=ids.device)
        # A new count: the calls in this pass distinguish the layers of a shared module.
        self.batch.hidden, self.batch.calls = torch.isin(ids, hidden), count()
        self.batch.positions = self.choose_heads(is_training=module.training)

    def choose_heads(self, *, is_training: bool) -> tuple[tuple[int, int], ...]:
        """Select the heads that attend to hidden words in this forward pass.

        In training: at random the first, the others, or all.
        """
        sites = self.visible_head.positions
        if not (is_training and self.visible_head.also):
            return sites
        # From the trainer's seeded generator: the same training gives the same weights.
        return (sites[:1], sites[1:], sites)[int(torch.randint(3, ()))]

    def mask_layer(
        self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Pass an attention mask with one part per head to a layer."""
        arguments = _bind_arguments(module, args, kwargs)
        visible = ~self.batch.hidden[:, None, None, :].expand(-1, self.heads, -1, -1)
        layer_index = self.batch.layer = next(self.batch.calls)
        heads = [head for layer, head in self.batch.positions if layer == layer_index]
        if heads:
            # A copy: `expand` makes all heads share one memory, and a write would reach them all.
            visible = visible.clone()
            visible[:, heads] = True
        model_mask, dtype = arguments.get("attention_mask"), arguments["hidden_states"].dtype
        mask = _combine_masks(model_mask, visible, dtype, causal=_is_causal(module))
        # Families pass the mask by name or by position.
        if "attention_mask" in kwargs:
            return args, kwargs | {"attention_mask": mask}
        position = list(_signature(module).parameters).index("attention_mask") - 1  # without self
        return (*args[:position], mask, *args[position + 1 :]), kwargs


class _BatchState(threading.local):
    """State of a batch, for each thread: threads may run forward passes at the same time."""

    hidden: torch.Tensor
    calls: Iterator[int]
    positions: tuple[tuple[int, int], ...]
    layer: int


def _bind_arguments(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    return _signature(module).bind_partial(module, *args, **kwargs).arguments


def _signature(module: torch.nn.Module) -> inspect.Signature:
    """Return the signature of the class's forward method.

    A resumed forward pass replaces the method of the instance by one without named parameters.
    """
    return inspect.signature(type(module).forward)


def _find_output_projection(block: torch.nn.Module) -> torch.nn.Module:
    """Return the attention output projection of a layer."""
    for name in PROJECTIONS:
        try:
            return block.get_submodule(name)
        except AttributeError:
            continue
    raise LevelheadError(
        f"the attention output projection of {type(block).__name__} is not known",
        hint=f"use a model whose layers have one of {', '.join(PROJECTIONS)}",
    )


def _is_causal(block: torch.nn.Module) -> bool:
    return any(bool(getattr(module, "is_causal", False)) for module in block.modules())


def _combine_masks(
    mask: torch.Tensor | None, visible: torch.Tensor, dtype: torch.dtype, *, causal: bool
) -> torch.Tensor:
    """Combine the model's mask with what each head may attend to.

    Args:
        mask: The model's mask, if any.
        visible: `[batch, heads, query, key]`, whether a head may attend to a token.
        dtype: Type of the result.
        causal: Whether tokens attend only to earlier ones, if there is no mask.

    Returns:
        `[batch, heads, query, key]`, an additive mask, which all attention implementations accept.
    """
    tokens, minimum = visible.shape[-1], torch.finfo(dtype).min
    if mask is None:
        # Without a mask, transformers lets sdpa build the causal one (is_causal).
        all_visible = torch.ones(tokens, tokens, dtype=torch.bool, device=visible.device)
        mask = (all_visible.tril() if causal else all_visible)[None, None]
    if mask.dim() != 4 or mask.shape[-1] != tokens:
        raise LevelheadError(
            f"a mask of shape {tuple(mask.shape)} for {tokens} tokens: the positions of the hidden "
            "words in it are not known",
            hint="use sdpa or eager attention",
        )
    if mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, minimum)
    # The minimum, not minus infinity: a row without any visible token would become NaN.
    return mask.masked_fill(~visible, minimum)
