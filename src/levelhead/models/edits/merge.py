"""Merge edits into plain weights, where this is exact.

An edit M y + c after y = W x + b gives (M W) x + (M b + c); an edit M x + c before it gives
(W M) x + (b + W c). Edits directly before or after a linear map can therefore be merged: at heads,
queries, keys, values, the feed-forward output, and the classifier's input. Every other edit raises
NotMergeableError; so does a constant c if the linear map has no bias.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

import torch

from levelhead.core.errors import LevelheadError
from levelhead.models.architectures.model_layout import ModelLayout, is_linear, is_transposed
from levelhead.models.sites import PER_HEAD_STREAMS, Site, Stream

if TYPE_CHECKING:
    from levelhead.models.edits.base import Edit

ALTERNATIVES_HINT = (
    "save the base and the edit together, with the PyTorch code that applies it: "
    "save_pretrained(folder, with_edit_file=True), or `levelhead export --with-edit-file`; or save "
    "it with save_edits(edits, folder) and apply it with levelhead.load(model, edit=folder)"
)


class NotMergeableError(LevelheadError):
    """An edit that cannot be expressed by plain weights."""

    def __init__(self, edit: Edit, site: Site, reason: str) -> None:
        super().__init__(
            f"the {edit.kind} at {site} cannot be merged into plain weights: {reason}",
            hint=ALTERNATIVES_HINT,
        )


class WeightUpdate(NamedTuple):
    """An affine map that all edits at one place add before or after one linear map."""

    path: str
    side: Literal["input", "output"]
    columns: torch.Tensor
    affine_map: AffineMap


class AffineMap(NamedTuple):
    """All edits at one place as one map, M x + c over the full stream, in float64."""

    matrix: torch.Tensor
    offset: torch.Tensor

    @classmethod
    def identity(cls, size: int) -> AffineMap:
        """Return the map that changes nothing."""
        return cls(torch.eye(size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64))

    def then(self, edit: Edit, site: Site, columns: slice = slice(None)) -> AffineMap:
        """Return this map followed by an edit of some of the columns."""
        matrix, offset = self.matrix.clone(), self.offset.clone()
        width = len(offset[columns])
        edit_matrix, edit_offset = edit.matrix(site, width), edit.offset(site, width)
        if edit_matrix is None:
            raise NotMergeableError(edit, site, "it is not one affine map of all tokens")
        matrix[columns], offset[columns] = (
            edit_matrix @ matrix[columns],
            edit_matrix @ offset[columns],
        )
        if edit_offset is not None:
            offset[columns] += edit_offset
        return AffineMap(matrix, offset)

    def is_close(self, other: AffineMap) -> bool:
        """Whether two maps are the same."""
        # 1e-12 allows only for rounding in float64: the order of products may differ.
        return all(
            torch.allclose(mine, theirs, atol=0, rtol=1e-12)
            for mine, theirs in zip(self, other, strict=True)
        )


StreamLayer = tuple[Stream, int]


def merge_edits(layout: ModelLayout, edits: tuple[Edit, ...]) -> ModelLayout:
    """Return a copy of a model with edits merged into its weights.

    Raises NotMergeableError if plain weights cannot express an edit.
    """
    updates = plan_updates(layout, edits)
    copied = copy.deepcopy(layout.model)
    with torch.no_grad():
        for update in updates:
            _apply_update(copied.get_submodule(update.path), update)
    return ModelLayout.from_model(copied, layout.model_class)


def plan_updates(
    layout: ModelLayout, edits: tuple[Edit, ...], *, requires_bias: bool = True
) -> list[WeightUpdate]:
    """Return the updates that merge edits into linear maps, in the order of merging.

    Args:
        layout: Model.
        edits: Edits, in their order.
        requires_bias: Refuse an edit that adds a constant to a map without a bias, because plain
            weights have no place for it.

    Raises:
        NotMergeableError: An edit is not an affine map before or after a linear map.
    """
    forbid_offloaded(layout)
    # Several edits at one place are merged as one map: their order matters.
    edits_by_stream_layer: dict[StreamLayer, list[tuple[Edit, Site]]] = defaultdict(list)
    for edit in edits:
        for site in edit.sites:
            edits_by_stream_layer[site.stream, site.layer].append((edit, site))
    for stream_layer in edits_by_stream_layer:
        _check_shared_weights(layout, stream_layer, edits_by_stream_layer)
    updates = {}
    for stream_layer, edits_here in edits_by_stream_layer.items():
        update = _make_update(layout, stream_layer, edits_here)
        if requires_bias:
            _require_bias(layout, update, edits_here)
        # The calls of a shared layer have the same key: its weights are updated once.
        updates[update.path, update.side, stream_layer[0]] = update
    # Without a pooler, one map W may read both the edited first token M x and the edited pooled
    # vector P x. The result is W P M x, so the pooled vector's P is merged first.
    return [updates[key] for key in sorted(updates, key=lambda key: key[2] != "pooled")]


def find_sites_merged_into_readers(layout: ModelLayout, edits: tuple[Edit, ...]) -> list[Site]:
    """Return the sites whose edits are merged into the map that reads them.

    After merging, the activation at these sites is still the base's.
    """
    sites = [site for edit in edits for site in edit.sites]
    return [
        site
        for site in sites
        if site.stream == "block_out" or layout.hook_point(site.stream, site.layer).side == "input"
    ]


def forbid_offloaded(layout: ModelLayout) -> None:
    """Raise if some weights are offloaded, and cannot be changed or written."""
    # accelerate leaves offloaded weights on the meta device, without values.
    if any(parameter.is_meta for parameter in layout.model.parameters()):
        raise LevelheadError(
            "some weights are offloaded by device_map", hint="load the model without device_map"
        )


def _check_shared_weights(
    layout: ModelLayout,
    stream_layer: StreamLayer,
    edits_by_stream_layer: dict[StreamLayer, list[tuple[Edit, Site]]],
) -> None:
    """Raise if a layer's weights are shared and its calls are edited differently."""
    stream, layer = stream_layer
    # These are merged into a map after the layers, which no layer shares.
    if stream in ("embeddings", "block_out", "pooled") or not layout.is_shared(layer):
        return
    size = layout.site_width(Site(stream, layer))
    combined = _combine(layout, edits_by_stream_layer[stream_layer], size)
    for other_layer, block in enumerate(layout.blocks):
        if block is not layout.blocks[layer]:
            continue
        if not combined.is_close(
            _combine(layout, edits_by_stream_layer.get((stream, other_layer), []), size)
        ):
            edit, site = edits_by_stream_layer[stream_layer][0]
            raise NotMergeableError(
                edit, site, f"layer {other_layer} uses the same weights and is edited differently"
            )


def _make_update(
    layout: ModelLayout, stream_layer: StreamLayer, edits_here: list[tuple[Edit, Site]]
) -> WeightUpdate:
    stream, layer = stream_layer
    if stream in ("block_out", "embeddings"):
        return _make_first_token_update(layout, stream_layer, edits_here)
    module, side, _ = layout.hook_point(stream, layer)
    # DeBERTa projects position embeddings with these weights too, which the hook does not edit.
    if stream in layout.family.position_shared_streams and layout.model.config.share_att_key:
        raise NotMergeableError(
            *edits_here[0], "the same weights are applied to position embeddings"
        )
    if not (is_linear(module) or stream == "pooled"):
        raise NotMergeableError(*edits_here[0], "a norm lies between the weights and this site")
    # Without a head, the pooled vector is the model's last output.
    if stream == "pooled" and side == "output":
        raise NotMergeableError(*edits_here[0], "no linear map follows the pooler")
    size = layout.site_width(Site(stream, layer))
    columns = layout.head_columns(stream, layer)
    flat = torch.arange(size) if columns is None else columns.flatten()
    return WeightUpdate(
        find_module_path(layout, module), side, flat, _combine(layout, edits_here, size)
    )


def _make_first_token_update(
    layout: ModelLayout, stream_layer: StreamLayer, edits_here: list[tuple[Edit, Site]]
) -> WeightUpdate:
    """Merge an edit of the first token in the last layer into the only map that reads it.

    This edits the input of the classifier or of the next-sentence head. The edit as a hook does not
    change vocabulary scores at other tokens either. The only difference: the last hidden state of
    the first token, read directly, stays the base's.
    """
    stream, layer = stream_layer
    edit, site = edits_here[0]
    if stream == "embeddings" or layer != layout.layers - 1:
        raise NotMergeableError(edit, site, "the residual stream bypasses all weights here")
    if not layout.model_class.first_position_reader:
        raise NotMergeableError(
            edit, site, f"{layout.model_class.name} has no map that reads the first token"
        )
    for next_edit, next_site in edits_here:
        if next_edit.settings.get("tokens") != "first":
            raise NotMergeableError(
                next_edit, next_site, "it acts on all tokens, but only the first is pooled"
            )
    combined = AffineMap.identity(layout.width)
    for next_edit, _ in edits_here:
        # At "pooled" an edit of the first token gives its matrix: a text has one such vector.
        combined = combined.then(next_edit, Site("pooled"))
    return WeightUpdate(
        _find_first_position_reader(layout), "input", torch.arange(layout.width), combined
    )


def _find_first_position_reader(layout: ModelLayout) -> str:
    """Return the path of the only map that reads the first token; the head if none pools it."""
    path, _, last = layout.model_class.first_position_reader.rpartition(".")
    if hasattr(layout.model.get_submodule(path), last):
        return layout.model_class.first_position_reader
    # The published MobileBERT has no dense pooler: its head reads the first token directly.
    return layout.model_class.classifier or layout.model_class.next_sentence


def _require_bias(
    layout: ModelLayout, update: WeightUpdate, edits_here: list[tuple[Edit, Site]]
) -> None:
    """Raise if an update adds a constant and its linear map has no bias."""
    linear = layout.model.get_submodule(update.path)
    if getattr(linear, "bias", None) is None and bool(update.affine_map.offset.any()):
        edit, site = next(
            pair for pair in edits_here if pair[0].offset(Site("pooled"), 0) is not None
        )
        raise NotMergeableError(edit, site, "it adds a constant, but the weights have no bias")


def _combine(layout: ModelLayout, edits_here: list[tuple[Edit, Site]], size: int) -> AffineMap:
    """Combine all edits at one place, in their order."""
    combined = AffineMap.identity(size)
    for edit, site in edits_here:
        columns = slice(None)
        if site.head is not None and site.stream in PER_HEAD_STREAMS:
            columns = slice(site.head * layout.head_dim, (site.head + 1) * layout.head_dim)
        combined = combined.then(edit, site, columns)
    return combined


def _apply_update(linear: torch.nn.Module, update: WeightUpdate) -> None:
    weight = cast("torch.nn.Parameter", linear.weight)
    # In float64: the weights are rounded once, at the end.
    by_output = read_weight(linear)
    columns = update.columns.to(by_output.device)
    matrix, offset = (tensor.to(by_output.device) for tensor in update.affine_map)
    bias = cast("torch.nn.Parameter | None", linear.bias)
    double_bias = None if bias is None else bias.detach().double()
    if update.side == "output":
        by_output[columns] = matrix @ by_output[columns]
        if double_bias is not None:
            double_bias[columns] = matrix @ double_bias[columns] + offset
    else:
        # The bias first: it needs the weights before they are multiplied.
        if double_bias is not None:
            double_bias += by_output[:, columns] @ offset
        by_output[:, columns] = by_output[:, columns] @ matrix
    weight.copy_(by_output.T if is_transposed(linear) else by_output)
    if bias is not None and double_bias is not None:
        bias.copy_(double_bias)


def read_weight(linear: torch.nn.Module) -> torch.Tensor:
    """Return a copy of a linear map's weight, `[out, in]` in float64 for either orientation."""
    weight = cast("torch.nn.Parameter", linear.weight).detach().double()
    return weight.T.clone() if is_transposed(linear) else weight.clone()


def find_module_path(layout: ModelLayout, module: torch.nn.Module) -> str:
    """Return a module's name in its model."""
    names = {other: name for name, other in layout.model.named_modules()}
    return str(names[module])
