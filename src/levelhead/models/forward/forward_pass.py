"""One forward through a model, with hooks that live exactly as long as it does.

`instrumented` installs everything: edits, gates (head masks with a gradient), captures, and the
skipped layers of a resumed forward. When it ends, after an exception too, the model is as before,
and whatever was to be touched and was not is an error: an edit that did nothing must not read as an
edit without effect.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from itertools import count, groupby
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch

from levelhead.core.errors import LevelheadError, UnknownName
from levelhead.models.forward.activation_checkpointing import recomputed
from levelhead.models.forward.last_layer_cache import Memory, keys_and_values, read_alone
from levelhead.models.forward.patching import replaced
from levelhead.models.sites import BY_HEAD, STREAMS, WITHOUT_LAYER, Site, Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set

    from levelhead.models.architectures.model_layout import Anatomy
    from levelhead.models.edits.base import Edit

Where = tuple[Stream, int]


class NothingTouched(LevelheadError):
    """An edit, a mask or a capture did not meet the activation it is for."""


class Origin(NamedTuple):
    """What a stored layer input was made of: it fits no forward that differs below that layer."""

    model: int
    """Which model in memory."""
    rows: tuple[tuple[int, ...], ...]
    types: tuple[tuple[int, ...] | None, ...]
    after: tuple[tuple[int, ...], ...]
    edits: tuple[str, ...]
    """Hashes of the edits that acted below, in order."""
    alone: bool
    """Whether only the output of the tokens that are read is there."""


class Prefix(NamedTuple):
    """What the layers below `layer` returned for one batch: a forward can go on from here.

    One layer more than the model has: what its classifier is given.

    Edits of the last skipped layer's output act when the forward goes on, so that models which
    differ in nothing else share all layers.
    """

    layer: int
    output: Any
    """The last skipped layer's own output, in the shape the model hands it on."""
    origin: Origin
    embedded: Any = None
    """What the embeddings returned, where they are one module: they need not be run again."""


@dataclass
class Passage:
    """What one forward is to do, and what it has seen."""

    anatomy: Anatomy
    rows: tuple[tuple[int, ...], ...]
    """The token ids of the batch, without padding."""
    types: tuple[tuple[int, ...] | None, ...] = ()
    """Their token types, where the model has any."""
    after: tuple[tuple[int, ...], ...] = ()
    """Which token each goes on from, where rows have branches."""
    edits: tuple[Edit, ...] = ()
    gates: Mapping[Stream, torch.Tensor] = field(default_factory=dict)
    """Factors `[layers, heads]`, or `[batch, layers, heads]`, for a stream; after the edits."""
    watch: frozenset[Where] = frozenset()
    keep: frozenset[int] = frozenset()
    """Layers whose input a later forward shall be resumed from."""
    start: Prefix | None = None
    memory: Memory | None = None
    """If given, the last layer is run for the tokens alone that are read."""
    recompute: bool = False
    """Whether layers forget their inside until a gradient wants it."""
    seen: dict[Where, torch.Tensor] = field(default_factory=dict)
    """Captured activations, after edits and gates; `[batch, token, heads, width]` by heads."""
    prefixes: dict[int, Prefix] = field(default_factory=dict)
    embedded: Any = None
    _met: set[Where] = field(default_factory=set)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and tokens of the batch."""
        return len(self.rows), max(map(len, self.rows))

    @property
    def first(self) -> int:
        """The first layer that is really run."""
        return self.start.layer if self.start else 0

    def origin(self, layer: int) -> Origin:
        """What a layer's input is made of in this forward."""
        return Origin(
            id(self.anatomy.model),
            self.rows,
            self.types,
            self.after,
            acting_below(self.edits, layer),
            self.memory is not None and layer >= self.anatomy.layers,
        )

    @cached_property
    def wanted(self) -> dict[Where, list[tuple[Edit, Site]]]:
        """Every place to be touched in this forward, with the edits that act there in order."""
        places: dict[Where, list[tuple[Edit, Site]]] = {where: [] for where in self.watch}
        for stream, gate in self.gates.items():
            for layer in range(gate.shape[-2]):
                places.setdefault((stream, layer), [])
        for edit in self.edits:
            for site in edit.at:
                places.setdefault((site.stream, site.layer), []).append((edit, site))
        return {
            (stream, layer): acting
            for (stream, layer), acting in places.items()
            if not (self.start and is_below(Site(stream, layer), self.first))
        }

    def act(self, where: Where, x: torch.Tensor) -> torch.Tensor:
        """Edit, gate and capture one activation."""
        stream, layer = where
        acting = self.wanted[where]
        flat = x.dim() == 2 and stream != "pooled"
        if self.memory and self.memory.tokens is None and where == self._before_last:
            # Keys and values are had from what was stored, and of no other token a query is needed.
            x = x[:, :1].contiguous()
        if flat:  # OPT puts all tokens of all rows in one line for its feed-forward
            x = x.unflatten(0, self.shape)
        columns = self.anatomy.columns(stream, layer)
        view = x if columns is None else _split(x, columns)
        view = _edited(view, acting)
        if stream in self.gates:
            gate = self.gates[stream]
            if columns is not None:
                gate = gate[..., self.anatomy.ranks.own(gate.shape[-1])]
            view = view * _gate(gate, layer, view)
        self._met.add(where)
        if where in self.watch:
            self.seen[where] = view
        if acting or stream in self.gates:
            x = view if columns is None else _joined(x, columns, view)
        return x.flatten(0, 1) if flat else x

    @property
    def _before_last(self) -> Where:
        return "block_out", self.anatomy.layers - 2

    def last_keys_and_values(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Of the last layer, for all tokens."""
        last = self.anatomy.layers - 1
        start = self.start if self.start and self.start.layer == last else self.prefixes.get(last)
        assert self.memory is not None  # noqa: S101
        if start is None:  # a model of one layer
            return keys_and_values(self.anatomy, hidden)
        plain = start.output[0] if isinstance(start.output, tuple) else start.output
        return self.memory.after(self.anatomy, plain, self.wanted.get(self._before_last, []))

    def check(self) -> None:
        """Raise unless everything that was to be touched was."""
        for stream, layer in sorted(self.wanted.keys() - self._met):
            acting = self.wanted[stream, layer]
            if stream == "pooled" and acting and self._some_edit_acted():
                continue  # this forward ends before the classifier; what acts below has acted
            raise NothingTouched(
                f"this forward never passes {Site(stream, layer)}"
                + (f", where {acting[0][0].kind} was to act" if acting else ""),
                mend="run `levelhead doctor` on this model; an edit of `pooled` alone changes only "
                "next_sentence, classify and what is read there",
            )

    def _some_edit_acted(self) -> bool:
        return any(self.wanted[where] for where in self._met)


def is_below(site: Site, layer: int) -> bool:
    """Whether a site is passed before a forward that is resumed at a layer goes on."""
    if site.stream in WITHOUT_LAYER:
        return site.stream == "embeddings"
    return site.layer < (layer - 1 if site.stream == "block_out" else layer)


@lru_cache(maxsize=4096)
def acting_below(edits: tuple[Edit, ...], layer: int) -> tuple[str, ...]:
    """Hashes of the edits, in order, that a forward resumed at a layer has behind it."""
    return tuple(
        edit.content_hash for edit in edits if any(is_below(site, layer) for site in edit.at)
    )


@contextmanager
def instrumented(passage: Passage) -> Iterator[Passage]:
    """Install the hooks of a passage for one forward, and remove them whatever happens."""
    if passage.anatomy.model.training:
        raise LevelheadError(
            "the model is in training mode: its dropout would change every answer",
            mend="call .eval() on it first",
        )
    _check_gates(passage)
    _check_start(passage)
    _check_ranks(passage)
    with ExitStack() as stack:
        stack.enter_context(passage.anatomy.alone())
        if passage.start and passage.first <= passage.anatomy.layers:
            stack.enter_context(_skipping(passage.anatomy, passage.start))
        if passage.memory and passage.first < passage.anatomy.layers:
            alone = read_alone(passage.anatomy, passage.memory.tokens, passage.last_keys_and_values)
            stack.enter_context(alone)
        inside: dict[int, list[Where]] = {}
        if passage.recompute:
            inside = _inside(passage)
            within = partial(_acting_within, passage, inside)
            stack.enter_context(recomputed(passage.anatomy, within))
        for hook in _hooks(passage, {where for own in inside.values() for where in own}):
            stack.callback(hook.remove)
        yield passage
        passage.check()


def _check_gates(passage: Passage) -> None:
    """A gate of another shape would be stretched to fit, and mean something else."""
    anatomy = passage.anatomy
    for stream, gate in passage.gates.items():
        if stream not in STREAMS:
            raise UnknownName("stream", str(stream), STREAMS)
        layers = 1 if stream in WITHOUT_LAYER else anatomy.layers
        heads = anatomy.heads_of(stream) if stream in BY_HEAD else 1
        if tuple(gate.shape) not in {(layers, heads), (len(passage.rows), layers, heads)}:
            raise LevelheadError(
                f"gates of shape {tuple(gate.shape)} for {stream} and {len(passage.rows)} rows",
                mend=f"give [{layers}, {heads}], or [rows, {layers}, {heads}]",
            )


def _check_ranks(passage: Passage) -> None:
    touched = {stream for stream, _ in passage.watch}
    touched |= {site.stream for edit in passage.edits for site in edit.at}
    if touched & set(BY_HEAD) or passage.memory is not None:
        passage.anatomy.ranks.refuse_heads("edits or activations of single heads")


def _check_start(passage: Passage) -> None:
    start, layers = passage.start, passage.anatomy.highest
    if out := sorted(layer for layer in passage.keep if not 0 < layer <= layers):
        raise LevelheadError(
            f"the input of layer {out[0]} cannot be kept", mend=f"keep layers 1 to {layers}"
        )
    if passage.recompute and (start or passage.keep or passage.memory):
        raise LevelheadError(
            "layers that are computed again go neither on from others nor into others",
            mend="resume and keep in a forward without recompute",
        )
    if passage.keep and passage.gates:
        raise LevelheadError(
            "a layer input is not kept from a gated forward", mend="keep it in one without gates"
        )
    if start is None:
        return
    if passage.origin(start.layer) != start.origin:
        raise LevelheadError(
            f"the stored input of layer {start.layer} was made by another model, of other rows or "
            "with other edits below that layer",
            mend="resume the same rows, at or below the first layer that the edits differ in",
        )
    watched = [(stream, layer) for stream, layer in passage.watch]
    gated = [(stream, 0) for stream in passage.gates]
    for stream, layer in watched + gated:
        if is_below(Site(stream, layer), start.layer):
            raise LevelheadError(
                f"{Site(stream, layer)} is passed before layer {start.layer}, where this forward "
                "is resumed: a gate there would have a gradient of 0",
                mend="read and gate in a whole forward",
            )


def _inside(passage: Passage) -> dict[int, list[Where]]:
    """What is touched inside layers, by layer."""
    found: dict[int, list[Where]] = defaultdict(list)
    blocks = set(map(id, passage.anatomy.blocks))
    for stream, layer in sorted(passage.wanted):
        module = passage.anatomy.place(stream, layer).module
        if stream not in WITHOUT_LAYER and id(module) not in blocks:
            found[layer].append((stream, layer))
    return found


def _acting_within(
    passage: Passage, inside: Mapping[int, list[Where]], layer: int
) -> Iterator[torch.utils.hooks.RemovableHandle]:
    """Hooks for one run of one layer."""
    block = passage.anatomy.blocks[layer]
    before = sum(other is block for other in passage.anatomy.blocks[:layer])
    yield from _acting(passage, inside.get(layer, ()), lambda where: before)


def _hooks(passage: Passage, elsewhere: Set[Where]) -> Iterator[torch.utils.hooks.RemovableHandle]:
    """Hooks for the whole of a forward; not for what acts elsewhere."""
    anatomy, blocks = passage.anatomy, set(map(id, passage.anatomy.blocks))
    if anatomy.layers + 1 in passage.keep:
        yield anatomy.place("pooled", 0).module.register_forward_pre_hook(_pooled_keeper(passage))
    if passage.keep and anatomy.embedder is not None:
        yield anatomy.embedder.register_forward_hook(_embedding_keeper(passage))
    # First, so that it sees a layer's output before the edits.
    for module in {id(block): block for block in anatomy.blocks}.values():
        layers = [i for i, block in enumerate(anatomy.blocks) if block is module]
        if passage.keep & {layer + 1 for layer in layers}:
            yield module.register_forward_hook(_keeper(passage, layers))

    def behind(where: Where) -> int:
        stream, layer = where
        if passage.start is None or stream in WITHOUT_LAYER:
            return 0
        # Layers are called while they are skipped; the modules inside them are not.
        block = anatomy.blocks[layer]
        if id(anatomy.place(*where).module) in blocks:
            return 0
        return sum(other is block for other in anatomy.blocks[: passage.first])

    yield from _acting(passage, sorted(passage.wanted.keys() - elsewhere), behind)


def _acting(
    passage: Passage, places: Iterable[Where], behind: Callable[[Where], int]
) -> Iterator[torch.utils.hooks.RemovableHandle]:
    """Hooks of some places; so many calls of their modules are not seen by them."""
    anatomy = passage.anatomy
    again = {
        module for stream in anatomy.family.positions_too for module in anatomy.modules(stream)
    }
    inputs: dict[torch.nn.Module, dict[int, list[Where]]] = defaultdict(dict)
    outputs: dict[torch.nn.Module, dict[int, list[Where]]] = defaultdict(dict)
    for where in places:
        module, side, call = anatomy.place(*where)
        calls = inputs if side == "input" else outputs
        calls[module].setdefault(call - behind(where), []).append(where)
    for module, own in inputs.items():
        turns = _turns(passage, module, free=module in again)
        yield module.register_forward_pre_hook(_input_hook(passage, own, turns), with_kwargs=True)
    for module, own in outputs.items():
        turns = _turns(passage, module, free=module in again)
        yield module.register_forward_hook(_output_hook(passage, own, turns))


def _turns(passage: Passage, module: torch.nn.Module, *, free: bool) -> Iterator[int]:
    """0, 1, 2 ...: a module's calls in one forward; an error where there are more than layers.

    A feed-forward worked off in chunks, say: an edit would act on the first chunk only.
    """
    expected = passage.anatomy.calls[module]
    for turn in count():
        if not free and turn >= max(expected, 1):
            raise NothingTouched(
                f"{type(module).__name__} is called more often than the model has layers",
                mend="run `levelhead doctor` on this model: its parts are not where they were",
            )
        yield turn


def _input_hook(
    passage: Passage, calls: Mapping[int, list[Where]], turns: Iterator[int]
) -> Callable[..., Any]:
    def hook(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for where in (places := calls.get(next(turns), ())):
            if args:
                args = (passage.act(where, args[0]), *args[1:])
            else:
                kwargs = kwargs | {"hidden_states": passage.act(where, kwargs["hidden_states"])}
        return (args, kwargs) if places else None

    return hook


def _output_hook(
    passage: Passage, calls: Mapping[int, list[Where]], turns: Iterator[int]
) -> Callable[..., Any]:
    def hook(module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        for where in (places := calls.get(next(turns), ())):
            if isinstance(output, tuple):  # gpt_neo, bloom, deberta-v2: (hidden, attention)
                output = (passage.act(where, output[0]), *output[1:])
            else:
                output = passage.act(where, output)
        return output if places else None

    return hook


def _keeper(passage: Passage, layers: Sequence[int]) -> Callable[..., None]:
    turns = count()

    def hook(module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> None:
        after = layers[next(turns)] + 1
        if after not in passage.keep or after < passage.first:
            return
        # What else a layer returns is attention: large, and never handed to the next layer.
        kept = (output[0], *(None for _ in output[1:])) if isinstance(output, tuple) else output
        origin = passage.origin(after)
        passage.prefixes[after] = Prefix(after, kept, origin, passage.embedded)

    return hook


def _pooled_keeper(passage: Passage) -> Callable[..., None]:
    after = passage.anatomy.layers + 1

    def hook(module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        passage.prefixes[after] = Prefix(after, args[0], passage.origin(after))

    return hook


def _embedding_keeper(passage: Passage) -> Callable[..., None]:
    def hook(module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> None:
        passage.embedded = output

    return hook


@contextmanager
def _skipping(anatomy: Anatomy, start: Prefix) -> Iterator[None]:
    """Let the embeddings and the first layers return what they returned before, at no cost.

    The model's own forward runs, so masks, positions, final norms and whatever a release adds
    between layers stay its own business.
    """
    calls = 0

    def stub(real: Any) -> Any:
        def forward(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            return start.output if calls <= start.layer else real(*args, **kwargs)

        return forward

    with ExitStack() as stack:
        stubs = {block: stub(block.forward) for block in anatomy.blocks[: start.layer]}
        if start.embedded is not None and anatomy.embedder is not None:
            stubs[anatomy.embedder] = lambda *args, **kwargs: start.embedded
        for module, forward in stubs.items():
            stack.enter_context(replaced(module, forward))
        yield


def _split(x: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    if columns.numel() == x.shape[-1]:
        return x.view(*x.shape[:-1], *columns.shape)
    return x[..., columns.to(x.device)]


def _joined(x: torch.Tensor, columns: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
    flat = view.flatten(-2)
    if columns.numel() == x.shape[-1]:
        return flat
    return x.index_copy(-1, columns.flatten().to(x.device), flat)


def _edited(view: torch.Tensor, acting: Sequence[tuple[Edit, Site]]) -> torch.Tensor:
    """Edits in their order; neighbours that act on single heads take the view apart only once."""
    for on_heads, group in groupby(acting, key=lambda pair: pair[1].head is not None):
        if on_heads:
            parts = list(view.unbind(-2))
            for edit, site in group:
                head = cast("int", site.head)
                parts[head] = edit(parts[head], site)
            view = torch.stack(parts, dim=-2)
        else:
            for edit, site in group:
                whole = view.flatten(-2) if site.stream in BY_HEAD else view
                view = edit(whole, site).view_as(view)
    return view


def _gate(gate: torch.Tensor, layer: int, view: torch.Tensor) -> torch.Tensor:
    """Of a layer, shaped to multiply `[batch, token, heads, width]` or `[batch, token, width]`."""
    factors = gate[..., layer, :].to(view.device, view.dtype)
    per_item = factors[:, None] if gate.dim() == 3 else factors
    if view.dim() == 4:
        return per_item[..., None]
    return per_item
