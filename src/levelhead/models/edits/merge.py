"""Fold edits into plain weights, where the algebra is exact.

y = W x + b with an edit M y + c behind it is (M W) x + (M b + c); with M x + c before it, (W M) x +
(b + W c). So whatever stands directly before or behind a linear map can be folded: heads, queries,
keys, values, the feed-forward's output, and what the classifier is given. What cannot is refused by
name; so is a constant c where the model has no bias that could carry it.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

import torch

from levelhead.core.errors import LevelheadError
from levelhead.models.architectures.model_layout import Anatomy, is_linear, is_transposed
from levelhead.models.sites import BY_HEAD, Site, Stream

if TYPE_CHECKING:
    from levelhead.models.edits.base import Edit

WAY_OUT = (
    "save the base and the edit together, with the lines of PyTorch that apply it: "
    "save_pretrained(folder, with_edit_file=True), or `levelhead bake --with-edit-file`; or save "
    "it with save_edits(edits, folder) and apply it with levelhead.load(model, edit=folder)"
)


class NotBakeable(LevelheadError):
    """An edit that no plain weights can carry."""

    def __init__(self, edit: Edit, site: Site, why: str) -> None:
        super().__init__(
            f"the {edit.kind} at {site} cannot become plain weights: {why}", mend=WAY_OUT
        )


class _Fold(NamedTuple):
    path: str
    side: Literal["input", "output"]
    columns: torch.Tensor
    map: _Map


class _Map(NamedTuple):
    """All that acts at one place as one map, M x + c over the whole stream, in float64."""

    matrix: torch.Tensor
    offset: torch.Tensor

    @classmethod
    def identity(cls, size: int) -> _Map:
        return cls(torch.eye(size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64))

    def then(self, edit: Edit, site: Site, part: slice = slice(None)) -> _Map:
        """Followed by an edit of some of the columns."""
        matrix, offset = self.matrix.clone(), self.offset.clone()
        width = len(offset[part])
        after, constant = edit.matrix(site, width), edit.offset(site, width)
        if after is None:
            raise NotBakeable(edit, site, "it does not treat all tokens alike")
        matrix[part], offset[part] = after @ matrix[part], after @ offset[part]
        if constant is not None:
            offset[part] += constant
        return _Map(matrix, offset)

    def is_close(self, other: _Map) -> bool:
        return all(
            torch.allclose(mine, theirs, atol=0, rtol=1e-12)
            for mine, theirs in zip(self, other, strict=True)
        )


Where = tuple[Stream, int]


def baked(anatomy: Anatomy, edits: tuple[Edit, ...]) -> Anatomy:
    """A copy of a model with edits folded into its weights; NotBakeable if one cannot be."""
    refuse_offloaded(anatomy)
    acting: dict[Where, list[tuple[Edit, Site]]] = defaultdict(list)
    for edit in edits:
        for site in edit.at:
            acting[site.stream, site.layer].append((edit, site))
    for where in acting:
        _check_shared(anatomy, where, acting)
    folds = {}
    for where, here in acting.items():
        fold = _fold(anatomy, where, here)
        folds[fold.path, fold.side, where[0]] = fold  # calls of a shared layer fold once
    copied = copy.deepcopy(anatomy.model)
    # Where one map reads the pooled vector and, for want of a pooler, the first token: W P M x.
    order = sorted(folds, key=lambda own: own[2] != "pooled")
    with torch.no_grad():
        for own in order:
            _apply(copied.get_submodule(folds[own].path), folds[own])
    return Anatomy.of(copied, anatomy.cls)


def into_readers(anatomy: Anatomy, edits: tuple[Edit, ...]) -> list[Site]:
    """The sites whose edits go into the map that reads them, and leave what it reads as it was."""
    every = [site for edit in edits for site in edit.at]
    return [
        site
        for site in every
        if site.stream == "block_out" or anatomy.place(site.stream, site.layer).side == "input"
    ]


def refuse_offloaded(anatomy: Anatomy) -> None:
    """Raise if some weights are not here to be changed or written."""
    if any(parameter.is_meta for parameter in anatomy.model.parameters()):
        raise LevelheadError(
            "some weights are offloaded by device_map", mend="load the model without device_map"
        )


def _check_shared(
    anatomy: Anatomy, where: Where, acting: dict[Where, list[tuple[Edit, Site]]]
) -> None:
    """Shared weights carry an edit only if it is the same at every call."""
    stream, layer = where
    if stream in ("embeddings", "block_out", "pooled") or not anatomy.is_shared(layer):
        return
    size = anatomy.size(Site(stream, layer))
    mine = _together(anatomy, acting[where], size)
    for other, block in enumerate(anatomy.blocks):
        if block is not anatomy.blocks[layer]:
            continue
        if not mine.is_close(_together(anatomy, acting.get((stream, other), []), size)):
            edit, site = acting[where][0]
            raise NotBakeable(
                edit, site, f"layer {other} runs the same weights and is edited differently"
            )


def _fold(anatomy: Anatomy, where: Where, here: list[tuple[Edit, Site]]) -> _Fold:
    stream, layer = where
    if stream in ("block_out", "embeddings"):
        return _fold_first_token(anatomy, where, here)
    module, side, _ = anatomy.place(stream, layer)
    if stream in anatomy.family.positions_too and anatomy.model.config.share_att_key:
        raise NotBakeable(*here[0], "the same weights are applied to position embeddings")
    if not (is_linear(module) or stream == "pooled"):
        raise NotBakeable(*here[0], "a norm stands between the weights and this place")
    if stream == "pooled" and side == "output":
        raise NotBakeable(*here[0], "no linear map follows the pooler")
    size = anatomy.size(Site(stream, layer))
    columns = anatomy.columns(stream, layer)
    flat = torch.arange(size) if columns is None else columns.flatten()
    fold = _Fold(path_of(anatomy, module), side, flat, _together(anatomy, here, size))
    return _with_bias(anatomy, fold, here)


def _fold_first_token(anatomy: Anatomy, where: Where, here: list[tuple[Edit, Site]]) -> _Fold:
    """The last layer at the first token: into the map that alone reads it.

    What is baked is what the classifier or the next-sentence head is given. Scores over the
    vocabulary at other tokens are not edited by such an edit either; the last hidden state of the
    first token itself, read directly, is the one thing that plain weights leave as it was.
    """
    stream, layer = where
    edit, site = here[0]
    if stream == "embeddings" or layer != anatomy.layers - 1:
        raise NotBakeable(edit, site, "the residual stream passes here beside every weight")
    if not anatomy.cls.reads_first:
        raise NotBakeable(edit, site, f"{anatomy.cls.name} has no map that reads the first token")
    for other, at in here:
        if other.settings.get("tokens") != "first":
            raise NotBakeable(other, at, "it acts on all tokens, and the first alone is pooled")
    whole = _Map.identity(anatomy.width)
    for other, _ in here:
        whole = whole.then(other, Site("pooled"))  # it is read as a pooled vector is: one a text
    fold = _Fold(_first_reader(anatomy), "input", torch.arange(anatomy.width), whole)
    return _with_bias(anatomy, fold, here)


def _first_reader(anatomy: Anatomy) -> str:
    """The map that alone reads the first token; the head itself if there is no layer to pool."""
    path, _, last = anatomy.cls.reads_first.rpartition(".")
    if hasattr(anatomy.model.get_submodule(path), last):
        return anatomy.cls.reads_first
    return anatomy.cls.classifier or anatomy.cls.next_sentence  # MobileBERT as it was published


def _with_bias(anatomy: Anatomy, fold: _Fold, here: list[tuple[Edit, Site]]) -> _Fold:
    """The fold, if its linear map has a bias or needs none."""
    linear = anatomy.model.get_submodule(fold.path)
    if getattr(linear, "bias", None) is None and bool(fold.map.offset.any()):
        edit, site = next(pair for pair in here if pair[0].offset(Site("pooled"), 0) is not None)
        raise NotBakeable(edit, site, "it adds a constant, and the weights here have no bias")
    return fold


def _together(anatomy: Anatomy, here: list[tuple[Edit, Site]], size: int) -> _Map:
    """All edits at one place, in their order."""
    whole = _Map.identity(size)
    for edit, site in here:
        part = slice(None)
        if site.head is not None and site.stream in BY_HEAD:
            part = slice(site.head * anatomy.head_dim, (site.head + 1) * anatomy.head_dim)
        whole = whole.then(edit, site, part)
    return whole


def _apply(linear: torch.nn.Module, fold: _Fold) -> None:
    weight = cast("torch.nn.Parameter", linear.weight)
    wide = weight.detach().double()
    by_output = wide.T.clone() if is_transposed(linear) else wide.clone()  # [out, in]
    columns = fold.columns.to(wide.device)
    matrix, offset = (tensor.to(wide.device) for tensor in fold.map)
    bias = cast("torch.nn.Parameter | None", linear.bias)
    added = None if bias is None else bias.detach().double()
    if fold.side == "output":
        by_output[columns] = matrix @ by_output[columns]
        if added is not None:
            added[columns] = matrix @ added[columns] + offset
    else:
        if added is not None:
            added += by_output[:, columns] @ offset
        by_output[:, columns] = by_output[:, columns] @ matrix
    weight.copy_(by_output.T if is_transposed(linear) else by_output)
    if bias is not None and added is not None:
        bias.copy_(added)


def path_of(anatomy: Anatomy, module: torch.nn.Module) -> str:
    """A module's name in its model."""
    names = {other: name for name, other in anatomy.model.named_modules()}
    return str(names[module])
