"""Hooks that exist only during one forward pass.

`forward_hooks` installs edits, gates (head masks with a gradient), captures, and the skipped layers
of a resumed pass. At its end, also after an exception, the model is as before.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.models.forward.activation_checkpointing import checkpoint_layers
from levelhead.models.forward.forward_pass import (
    CachedLayerInput,
    EditHadNoEffectError,
    precedes,
)
from levelhead.models.forward.last_layer_cache import last_layer_for_tokens
from levelhead.models.forward.patching import patched_forward
from levelhead.models.sites import LAYERLESS_STREAMS, PER_HEAD_STREAMS, STREAMS, Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set

    import torch

    from levelhead.models.architectures.model_layout import ModelLayout
    from levelhead.models.forward.forward_pass import ForwardPass
    from levelhead.models.sites import StreamLayer


@contextmanager
def forward_hooks(forward_pass: ForwardPass) -> Iterator[ForwardPass]:
    """Lock the model and install the hooks of one forward pass; see `hooks_of_locked_model`."""
    with forward_pass.layout.exclusive_forward(), hooks_of_locked_model(forward_pass):
        yield forward_pass


@contextmanager
def hooks_of_locked_model(forward_pass: ForwardPass) -> Iterator[ForwardPass]:
    """Install the hooks of one forward pass, and remove them at its end, also after an error.

    The caller holds the model's lock (`ModelLayout.exclusive_forward`), such as a generation for
    all its forward passes.
    """
    if forward_pass.layout.model.training:
        raise LevelheadError(
            "the model is in training mode: dropout would change every result",
            hint="call .eval() on it first",
        )
    _check_gates(forward_pass)
    _check_resume(forward_pass)
    _check_parallel(forward_pass)
    with ExitStack() as stack:
        # One layer more stands for the classifier, which `LM` calls without any layer.
        if forward_pass.resume_from and forward_pass.first_layer <= forward_pass.layout.layers:
            stack.enter_context(_skip_layers(forward_pass.layout, forward_pass.resume_from))
        if forward_pass.last_layer_cache and forward_pass.first_layer < forward_pass.layout.layers:
            token_restriction = last_layer_for_tokens(
                forward_pass.layout,
                forward_pass.last_layer_cache.tokens,
                forward_pass.last_keys_and_values,
            )
            stack.enter_context(token_restriction)
        targets_in_layer: dict[int, list[StreamLayer]] = {}
        if forward_pass.recompute:
            targets_in_layer = _find_targets_in_layers(forward_pass)
            hooks_in_layer = partial(_register_layer_hooks, forward_pass, targets_in_layer)
            stack.enter_context(checkpoint_layers(forward_pass.layout, hooks_in_layer))
        for hook in _register_hooks(
            forward_pass,
            {
                stream_layer
                for layer_targets in targets_in_layer.values()
                for stream_layer in layer_targets
            },
        ):
            stack.callback(hook.remove)
        yield forward_pass
        forward_pass.check_all_touched()


def _check_gates(forward_pass: ForwardPass) -> None:
    """Raise if a gate has a wrong shape: broadcasting would give it another meaning."""
    layout = forward_pass.layout
    for stream, gate in forward_pass.gates.items():
        if stream not in STREAMS:
            raise UnknownNameError("stream", str(stream), STREAMS)
        layers = 1 if stream in LAYERLESS_STREAMS else layout.layers
        heads = layout.head_count(stream) if stream in PER_HEAD_STREAMS else 1
        if tuple(gate.shape) not in {(layers, heads), (len(forward_pass.rows), layers, heads)}:
            raise LevelheadError(
                f"gates of shape {tuple(gate.shape)} do not fit {stream} and "
                f"{len(forward_pass.rows)} rows",
                hint=f"give [{layers}, {heads}], or [rows, {layers}, {heads}]",
            )


def _check_parallel(forward_pass: ForwardPass) -> None:
    touched = {stream for stream, _ in forward_pass.capture_sites}
    touched |= {site.stream for edit in forward_pass.edits for site in edit.sites}
    if touched & set(PER_HEAD_STREAMS) or forward_pass.last_layer_cache is not None:
        forward_pass.layout.parallel.forbid_split_heads("edits or activations of single heads")


def _check_resume(forward_pass: ForwardPass) -> None:
    resume_from, layers = forward_pass.resume_from, forward_pass.layout.last_resumable_layer
    if invalid_layers := sorted(
        layer for layer in forward_pass.cache_layers if not 0 < layer <= layers
    ):
        raise LevelheadError(
            f"the input of layer {invalid_layers[0]} cannot be cached",
            hint=f"cache layers 1 to {layers}",
        )
    # These options replace forward methods of layers too, or count their calls.
    if forward_pass.recompute and (
        resume_from or forward_pass.cache_layers or forward_pass.last_layer_cache
    ):
        raise LevelheadError(
            "a forward pass with recompute can neither cache layer inputs nor resume from them",
            hint="cache and resume in a forward pass without recompute",
        )
    # The cache key does not contain gates: the cached input would be reused as an ungated one.
    if forward_pass.cache_layers and forward_pass.gates:
        raise LevelheadError(
            "layer inputs cannot be cached in a forward pass with gates",
            hint="cache them in a forward pass without gates",
        )
    if resume_from is None:
        return
    if forward_pass.make_cache_key(resume_from.layer) != resume_from.cache_key:
        raise LevelheadError(
            f"the cached input of layer {resume_from.layer} is of another model, of other rows or "
            "with other edits below that layer",
            hint="resume the same rows, at or below the first layer where the edits differ",
        )
    capture_sites = [(stream, layer) for stream, layer in forward_pass.capture_sites]
    gate_sites = [(stream, 0) for stream in forward_pass.gates]
    for stream, layer in capture_sites + gate_sites:
        if precedes(Site(stream, layer), resume_from.layer):
            raise LevelheadError(
                f"{Site(stream, layer)} comes before layer {resume_from.layer}, where this forward "
                "pass is resumed: a gate there would have a gradient of 0",
                hint="read and gate in a complete forward pass",
            )


def _find_targets_in_layers(forward_pass: ForwardPass) -> dict[int, list[StreamLayer]]:
    """Return the targets inside layers, by layer."""
    # Targets at a layer's own input or output lie outside of what is recomputed.
    targets_in_layer: dict[int, list[StreamLayer]] = defaultdict(list)
    blocks = set(map(id, forward_pass.layout.blocks))
    for stream, layer in sorted(forward_pass.targets):
        module = forward_pass.layout.hook_point(stream, layer).module
        if stream not in LAYERLESS_STREAMS and id(module) not in blocks:
            targets_in_layer[layer].append((stream, layer))
    return targets_in_layer


def _register_layer_hooks(
    forward_pass: ForwardPass, targets_in_layer: Mapping[int, list[StreamLayer]], layer: int
) -> Iterator[torch.utils.hooks.RemovableHandle]:
    """Register the hooks of one run of one layer."""
    block = forward_pass.layout.blocks[layer]
    earlier_calls = sum(earlier is block for earlier in forward_pass.layout.blocks[:layer])
    yield from _register_target_hooks(
        forward_pass, targets_in_layer.get(layer, ()), lambda stream_layer: earlier_calls
    )


def _register_hooks(
    forward_pass: ForwardPass, excluded: Set[StreamLayer]
) -> Iterator[torch.utils.hooks.RemovableHandle]:
    """Register the hooks of a complete forward pass, except for the excluded targets."""
    layout, blocks = forward_pass.layout, set(map(id, forward_pass.layout.blocks))
    if layout.layers + 1 in forward_pass.cache_layers:
        yield layout.hook_point("pooled", 0).module.register_forward_pre_hook(
            _make_pooled_cache_hook(forward_pass)
        )
    if forward_pass.cache_layers and layout.embedder is not None:
        yield layout.embedder.register_forward_hook(_make_embedding_cache_hook(forward_pass))
    # Registered before the edits, so that the cached output is the unedited one.
    for module in {id(block): block for block in layout.blocks}.values():
        layers = [i for i, block in enumerate(layout.blocks) if block is module]
        if forward_pass.cache_layers & {layer + 1 for layer in layers}:
            yield module.register_forward_hook(_make_cache_hook(forward_pass, layers))

    def count_skipped_calls(stream_layer: StreamLayer) -> int:
        stream, layer = stream_layer
        if forward_pass.resume_from is None or stream in LAYERLESS_STREAMS:
            return 0
        # Skipped layers are still called, but the modules inside them are not.
        block = layout.blocks[layer]
        if id(layout.hook_point(*stream_layer).module) in blocks:
            return 0
        return sum(earlier is block for earlier in layout.blocks[: forward_pass.first_layer])

    yield from _register_target_hooks(
        forward_pass, sorted(forward_pass.targets.keys() - excluded), count_skipped_calls
    )


def _register_target_hooks(
    forward_pass: ForwardPass,
    stream_layers: Iterable[StreamLayer],
    count_skipped_calls: Callable[[StreamLayer], int],
) -> Iterator[torch.utils.hooks.RemovableHandle]:
    """Register the hooks of some targets.

    Args:
        forward_pass: The pass.
        stream_layers: Targets.
        count_skipped_calls: Number of calls of a target's module that its hook does not see.
    """
    layout = forward_pass.layout
    # DeBERTa calls these for position embeddings too: more calls than layers are normal there.
    repeated_modules = {
        module
        for stream in layout.family.position_shared_streams
        for module in layout.modules(stream)
    }
    inputs: dict[torch.nn.Module, dict[int, list[StreamLayer]]] = defaultdict(dict)
    outputs: dict[torch.nn.Module, dict[int, list[StreamLayer]]] = defaultdict(dict)
    for stream_layer in stream_layers:
        module, side, call = layout.hook_point(*stream_layer)
        calls = inputs if side == "input" else outputs
        calls[module].setdefault(call - count_skipped_calls(stream_layer), []).append(stream_layer)
    for module, module_calls in inputs.items():
        call_numbers = _count_calls(forward_pass, module, is_unlimited=module in repeated_modules)
        yield module.register_forward_pre_hook(
            _make_input_hook(forward_pass, module_calls, call_numbers), with_kwargs=True
        )
    for module, module_calls in outputs.items():
        call_numbers = _count_calls(forward_pass, module, is_unlimited=module in repeated_modules)
        yield module.register_forward_hook(
            _make_output_hook(forward_pass, module_calls, call_numbers)
        )


def _count_calls(
    forward_pass: ForwardPass, module: torch.nn.Module, *, is_unlimited: bool
) -> Iterator[int]:
    """Count a module's calls in one forward pass; raise if there are more calls than layers.

    If a feed-forward ran in chunks, for example, an edit would act only on the first chunk.
    """
    expected = forward_pass.layout.call_counts[module]
    for call in count():
        if not is_unlimited and call >= max(expected, 1):
            raise EditHadNoEffectError(
                f"{type(module).__name__} is called more often than the model has layers",
                hint="run `levelhead doctor` on this model: its modules have changed",
            )
        yield call


def _make_input_hook(
    forward_pass: ForwardPass, calls: Mapping[int, list[StreamLayer]], call_numbers: Iterator[int]
) -> Callable[..., Any]:
    def hook(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for stream_layer in (stream_layers := calls.get(next(call_numbers), ())):
            if args:
                args = (forward_pass.process_activation(stream_layer, args[0]), *args[1:])
            else:
                kwargs = kwargs | {
                    "hidden_states": forward_pass.process_activation(
                        stream_layer, kwargs["hidden_states"]
                    )
                }
        return (args, kwargs) if stream_layers else None

    return hook


def _make_output_hook(
    forward_pass: ForwardPass, calls: Mapping[int, list[StreamLayer]], call_numbers: Iterator[int]
) -> Callable[..., Any]:
    def hook(module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        for stream_layer in (stream_layers := calls.get(next(call_numbers), ())):
            if isinstance(output, tuple):  # gpt_neo, bloom, deberta-v2: (hidden, attention)
                output = (forward_pass.process_activation(stream_layer, output[0]), *output[1:])
            else:
                output = forward_pass.process_activation(stream_layer, output)
        return output if stream_layers else None

    return hook


def _make_cache_hook(forward_pass: ForwardPass, layers: Sequence[int]) -> Callable[..., None]:
    call_numbers = count()

    def hook(module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> None:
        next_layer = layers[next(call_numbers)] + 1
        if next_layer not in forward_pass.cache_layers or next_layer < forward_pass.first_layer:
            return
        # The other outputs of a layer are attention: large, and not an input of the next layer.
        cached_output = (
            (output[0], *(None for _ in output[1:])) if isinstance(output, tuple) else output
        )
        cache_key = forward_pass.make_cache_key(next_layer)
        forward_pass.layer_inputs[next_layer] = CachedLayerInput(
            next_layer, cached_output, cache_key, forward_pass.embeddings
        )

    return hook


def _make_pooled_cache_hook(forward_pass: ForwardPass) -> Callable[..., None]:
    layer = forward_pass.layout.layers + 1

    def hook(module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        forward_pass.layer_inputs[layer] = CachedLayerInput(
            layer, args[0], forward_pass.make_cache_key(layer)
        )

    return hook


def _make_embedding_cache_hook(forward_pass: ForwardPass) -> Callable[..., None]:
    def hook(module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> None:
        forward_pass.embeddings = output

    return hook


@contextmanager
def _skip_layers(layout: ModelLayout, resume_from: CachedLayerInput) -> Iterator[None]:
    """Let the embeddings and the first layers return their cached outputs.

    The model's forward method still runs, so that masks, positions, final norms and whatever a
    release adds between layers remain the model's code (decision 0005).
    """
    calls = 0

    def make_stub(original: Any) -> Any:
        def forward(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            # A shared module is skipped only in its first calls.
            return resume_from.output if calls <= resume_from.layer else original(*args, **kwargs)

        return forward

    with ExitStack() as stack:
        stubs = {block: make_stub(block.forward) for block in layout.blocks[: resume_from.layer]}
        if resume_from.embeddings is not None and layout.embedder is not None:
            stubs[layout.embedder] = lambda *args, **kwargs: resume_from.embeddings
        for module, forward in stubs.items():
            stack.enter_context(patched_forward(module, forward))
        yield
