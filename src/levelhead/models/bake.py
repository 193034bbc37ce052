"""Fold edits into plain weights, where the algebra is exact.

y = W x + b with an edit M behind it is (M W) x + M b; with M before it, (W M) x + b. So whatever
stands directly before or behind a linear map can be folded: heads, queries, keys, values, the
feed-forward's output, and what the classifier is given. What cannot is refused by name.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

import torch

from levelhead.core.errors import LevelheadError
from levelhead.models.anatomy import Anatomy, is_linear, is_transposed
from levelhead.models.sites import BY_HEAD, Site, Stream

if TYPE_CHECKING:
    from levelhead.models.edits import Edit

WAY_OUT = (
    "save it with save_edits(edits, folder) and apply it with levelhead.load(model, edit=folder)"
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
    matrix: torch.Tensor


Where = tuple[Stream, int]


def baked(anatomy: Anatomy, edits: tuple[Edit, ...]) -> Anatomy:
    """A copy of a model with edits folded into its weights; NotBakeable if one cannot be."""
    if any(parameter.is_meta for parameter in anatomy.model.parameters()):
        raise LevelheadError(
            "some weights are offloaded by device_map", mend="load the model without device_map"
        )
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
    with torch.no_grad():
        for fold in folds.values():
            _apply(copied.get_submodule(fold.path), fold)
    return Anatomy.of(copied, anatomy.cls)


def _check_shared(
    anatomy: Anatomy, where: Where, acting: dict[Where, list[tuple[Edit, Site]]]
) -> None:
    """Shared weights carry an edit only if it is the same at every call."""
    stream, layer = where
    if stream in ("embeddings", "block_out", "pooled") or not anatomy.is_shared(layer):
        return
    size = anatomy.size(Site(stream, layer))
    mine = _matrix(anatomy, where, acting[where], size)
    for other, block in enumerate(anatomy.blocks):
        if block is not anatomy.blocks[layer]:
            continue
        theirs = _matrix(anatomy, (stream, other), acting.get((stream, other), []), size)
        if not torch.allclose(mine, theirs, atol=0, rtol=1e-12):
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
    matrix = _matrix(anatomy, where, here, size)
    columns = anatomy.columns(stream, layer)
    flat = torch.arange(size) if columns is None else columns.flatten()
    return _Fold(_path(anatomy, module), side, flat, matrix)


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
    eye = torch.eye(anatomy.width, dtype=torch.float64)
    for other, at in here:
        matrix = other.matrix(at._replace(stream="pooled"), anatomy.width)
        eye = cast("torch.Tensor", matrix) @ eye
    return _Fold(anatomy.cls.reads_first, "input", torch.arange(anatomy.width), eye)


def _matrix(
    anatomy: Anatomy, where: Where, here: list[tuple[Edit, Site]], size: int
) -> torch.Tensor:
    """All edits at one place, in their order, as one matrix over the whole stream."""
    whole = torch.eye(size, dtype=torch.float64)
    for edit, site in here:
        part = slice(None)
        if site.head is not None and site.stream in BY_HEAD:
            part = slice(site.head * anatomy.head_dim, (site.head + 1) * anatomy.head_dim)
        matrix = edit.matrix(site, len(range(size)[part]))
        if matrix is None:
            raise NotBakeable(edit, site, "it does not treat all tokens alike")
        whole[part] = matrix @ whole[part]
    return whole


def _apply(linear: torch.nn.Module, fold: _Fold) -> None:
    weight = cast("torch.nn.Parameter", linear.weight)
    wide = weight.detach().double()
    by_output = wide.T.clone() if is_transposed(linear) else wide.clone()  # [out, in]
    matrix, columns = fold.matrix.to(wide.device), fold.columns.to(wide.device)
    if fold.side == "output":
        by_output[columns] = matrix @ by_output[columns]
        bias = cast("torch.nn.Parameter | None", linear.bias)
        if bias is not None:
            changed = bias.detach().double()
            changed[columns] = matrix @ changed[columns]
            bias.copy_(changed)
    else:
        by_output[:, columns] = by_output[:, columns] @ matrix
    weight.copy_(by_output.T if is_transposed(linear) else by_output)


def _path(anatomy: Anatomy, module: torch.nn.Module) -> str:
    names = {other: name for name, other in anatomy.model.named_modules()}
    return str(names[module])
