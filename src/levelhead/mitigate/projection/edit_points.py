"""Projections at the levels of a model of any depth (Dawkins et al. 2024, section 4).

The sites of a level depend on the model. The paper's layers 12 and 11 are the last layer and the
one before it. If the model's head reads only the first token, the edit of the last layer acts on
that token. A vocabulary head and a decoder read every token, so every token is edited there. The
classifier's input is `sent`, with a pooler before it (BERT) or without (RoBERTa, DistilBERT).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, get_args

from levelhead.core.errors import LevelheadError, UnknownNameError, require_option
from levelhead.mitigate.projection.config_grid import (
    ALL_STEPS,
    EDIT_POINTS,
    POOLED_STEPS,
    EditPoint,
    ProjectionConfig,
)
from levelhead.mitigate.projection.subspace import Subspace, fit_site_subspaces
from levelhead.models.sites import QKV_STREAMS, Site

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.data.counterfactuals.contrast_pairs import ContrastPair
    from levelhead.mitigate.projection.config_grid import SiteGroup
    from levelhead.mitigate.projection.subspace import ActivationPooling
    from levelhead.models.edits.base import Projection, TokenSelection
    from levelhead.models.lm import LM

FitOn = Literal["base", "cumulative"]
DEEPEST_EDIT_POINT: EditPoint = "penultimate+attn"
CONFIG_PATTERN = r"\s*(?P<edit_point>.*?[^\s(])[\s(]+(?P<marks>[01]([\s,]+\d)*)\)?\s*"
"""A setting by its name: a level, then a digit for every choice, which `ProjectionConfig`
checks."""


def has_pooled(lm: LM) -> bool:
    """Whether the model has a pooled vector; without it, its levels start at `last`."""
    try:
        lm.layout.require_site(Site("pooled"))
    except LevelheadError:
        return False
    return True


def list_edit_points(lm: LM) -> tuple[EditPoint, ...]:
    """The levels of a model, the deepest last."""
    outer: tuple[EditPoint, ...] = ("sent", "last") if has_pooled(lm) else ("last",)
    return (*outer, "penultimate", DEEPEST_EDIT_POINT) if lm.layout.layers > 1 else outer


def resolve_edit_point(lm: LM, name: str) -> EditPoint:
    """A level by its name, or by the paper's name in a model of its depth.

    With 12 layers, layer12 is last, layer11 penultimate and layer11+attn penultimate+attn.
    """
    depth = lm.layout.layers
    aliases: dict[str, EditPoint] = {f"layer{depth}": "last"}
    if depth > 1:
        aliases |= {
            f"layer{depth - 1}": "penultimate",
            f"layer{depth - 1}+attn": DEEPEST_EDIT_POINT,
        }
    normalised = re.sub(r"[\s\[\]]", "", name).lower()
    edit_point = aliases.get(normalised, normalised)
    if edit_point not in EDIT_POINTS:
        if re.fullmatch(r"layer\d+(\+attn)?", normalised):
            raise LevelheadError(
                f"there is no level {name!r}: this model has {depth} layers",
                hint=f"use {', '.join(aliases)}, or the names {', '.join(EDIT_POINTS)}",
            )
        raise UnknownNameError("level", name, [*EDIT_POINTS, *aliases])
    if edit_point == "sent" and not has_pooled(lm):
        raise LevelheadError(
            f"{lm.layout.model_class.name} has no pooled vector, so its levels start at last",
            hint="use last, or a checkpoint with a classifier or a next-sentence head",
        )
    if edit_point in ("penultimate", DEEPEST_EDIT_POINT) and depth < 2:
        raise LevelheadError("this model has one layer, and none before it", hint="use last")
    return edit_point


def edit_point_sites(lm: LM, edit_point: str | None = None) -> dict[SiteGroup, tuple[Site, ...]]:
    """The sites of a level by part, in the order of a forward pass.

    By default the sites of the deepest level that the model has.
    """
    layout = lm.layout
    groups = EDIT_POINTS[resolve_edit_point(lm, edit_point or list_edit_points(lm)[-1])]
    last = layout.layers - 1
    sites: dict[SiteGroup, tuple[Site, ...]] = {
        # Of the layer before the last: the paper's Q, K and V of layer 11 of 12, one subspace per
        # head.
        "attn": tuple(
            Site(stream, last - 1, head)
            for stream in QKV_STREAMS
            # With grouped queries, keys and values have fewer heads than queries.
            for head in range(layout.head_count(stream))
        ),
        "penultimate": (Site("block_out", last - 1),),
        "last": (Site("block_out", last),),
        "sent": (Site("pooled"),),
    }
    return {group: sites[group] for group in groups if group != "sent" or has_pooled(lm)}


def select_tokens(lm: LM, group: SiteGroup) -> TokenSelection:
    """The edited tokens: at the last layer the first, if the head reads no other."""
    return "first" if group == "last" and lm.layout.model_class.first_position_reader else "all"


def resolve_config(
    lm: LM,
    edit_point: str | ProjectionConfig,
    *,
    weighted: bool | None = None,
    n_components: int | None = None,
) -> ProjectionConfig:
    """A setting: given, by its name ("last 0,1,1"), or with one rule for all parts of a level.

    Args:
        lm: The model.
        edit_point: A level, a setting, or its name.
        weighted: By default True; a setting states it for every part.
        n_components: Number of directions of last and penultimate, 1 by default; a setting states
            it for every part.
    """
    if isinstance(edit_point, str) and (match := re.fullmatch(CONFIG_PATTERN, edit_point)):
        edit_point = ProjectionConfig.from_name(
            f"{resolve_edit_point(lm, match['edit_point'])} {match['marks']}"
        )
    if isinstance(edit_point, ProjectionConfig):
        if weighted is not None or n_components is not None:
            raise LevelheadError(
                f"{edit_point} says itself what is weighted, and in how many dimensions",
                hint="leave out weighted and n_components, or name a level alone",
            )
        return edit_point
    # None is the default, which is weighted: section 5 finds that a hard projection at sent costs
    # accuracy.
    weighted, n_components = weighted is not False, 1 if n_components is None else n_components
    if n_components not in (1, 2):
        raise LevelheadError(f"{n_components} dimensions", hint="take 1 or 2")
    resolved_point, step = (
        resolve_edit_point(lm, edit_point),
        # The index is 2 n + c, with the paper's c one less than the number of dimensions.
        ALL_STEPS[2 * weighted + n_components - 1],
    )
    if resolved_point == "sent" and n_components > 1:
        raise LevelheadError("sent has one dimension", hint="leave out n_components, or go deeper")
    groups = EDIT_POINTS[resolved_point]
    return ProjectionConfig(
        edit_point=resolved_point,
        penultimate=step if "penultimate" in groups else None,
        last=step if "last" in groups else None,
        pooled=POOLED_STEPS[weighted] if has_pooled(lm) else None,
    )


def fit_subspaces(
    lm: LM,
    pairs: Sequence[ContrastPair],
    *,
    edit_point: str | None = None,
    n_components: int = 2,
    pooling: ActivationPooling | None = None,
    centered: bool = False,
) -> dict[Site, Subspace]:
    """The subspaces of all sites of a level and those after it, in one pass over the pairs.

    Every setting of the grid is made of these: "fed forward through the model once".

    Args:
        lm: The unedited model.
        pairs: Pairs of texts that differ in the contrast.
        edit_point: The deepest level; by default the deepest that the model has.
        n_components: Maximum number of directions; sent and the attention have one.
        pooling: Tokens at which the texts are read; by default those that are edited.
        centered: See `fit_subspace`.
    """
    # One fit serves the whole grid: the leading directions of a fit with two are those of a fit
    # with one.
    components_by_site = {
        site: 1 if group in ("sent", "attn") else n_components
        for group, sites in edit_point_sites(lm, edit_point).items()
        for site in sites
    }
    return fit_site_subspaces(
        lm,
        pairs,
        components_by_site,
        n_components=components_by_site,
        pooling=pooling,
        centered=centered,
    )


def build_edits(
    lm: LM, config: ProjectionConfig, subspaces: Mapping[Site, Subspace]
) -> tuple[Projection, ...]:
    """The edits of a setting, from fitted subspaces."""
    sites = edit_point_sites(lm, config.edit_point)
    _require_matching_groups(lm, config, sites)
    missing = [
        site for group in config.site_groups for site in sites[group] if site not in subspaces
    ]
    if missing:
        raise LevelheadError(
            f"no subspace was fitted at {missing[0]}",
            hint=f"fit them with fit_subspaces(lm, pairs, edit_point={config.edit_point!r})",
        )
    return tuple(
        subspaces[site].to_projection(
            weighted=config.step(group).weighted,
            n_components=config.step(group).n_components,
            tokens=select_tokens(lm, group),
        )
        for group in config.site_groups
        for site in sites[group]
    )


def project(
    lm: LM,
    edit_point: str | ProjectionConfig,
    pairs: Sequence[ContrastPair],
    *,
    weighted: bool | None = None,
    n_components: int | None = None,
    fit_on: FitOn = "base",
    pooling: ActivationPooling | None = None,
    centered: bool = False,
) -> tuple[Projection, ...]:
    """Projections at a level and at all later levels (Dawkins et al. 2024, Eq. 5).

    Args:
        lm: The model; `lm.edited(*project(...))` is the edited model.
        edit_point: sent, last, penultimate, penultimate+attn, the paper's name of it (layer11+attn
            of 12 layers), a setting's name ("last 0,1,1") or a `ProjectionConfig`, which state
            `weighted` and `n_components` themselves.
        pairs: Pairs of texts that differ in the contrast, such as `contrast_pairs("gender-en")`.
        weighted: Whether to remove each direction by the share of variance it explains, which is
            the default; False: completely.
        n_components: 1 (by default) or 2 directions; sent and the attention have one.
        fit_on: Activations of the unedited model, all in one pass (`base`), or for each site those
            after the edits before it (`cumulative`).
        pooling: Tokens at which the texts are read; by default those that are edited.
        centered: See `fit_subspace`.
    """
    require_option("way of fitting", fit_on, get_args(FitOn))
    config = resolve_config(lm, edit_point, weighted=weighted, n_components=n_components)
    if fit_on == "base":
        # Principal directions are nested: one fit with the most directions serves every group.
        max_components = max(config.step(group).n_components for group in config.site_groups)
        subspaces = fit_subspaces(
            lm,
            pairs,
            edit_point=config.edit_point,
            n_components=max_components,
            pooling=pooling,
            centered=centered,
        )
        return build_edits(lm, config, subspaces)
    sites = edit_point_sites(lm, config.edit_point)
    _require_matching_groups(lm, config, sites)
    edits: tuple[Projection, ...] = ()
    for group in config.site_groups:
        step = config.step(group)
        site_subspaces = fit_site_subspaces(
            # Activations here are those that the edits before this group have already changed.
            lm.edited(*edits),
            pairs,
            sites[group],
            n_components=step.n_components,
            pooling=pooling,
            centered=centered,
        )
        edits += tuple(
            subspace.to_projection(
                weighted=step.weighted,
                n_components=step.n_components,
                tokens=select_tokens(lm, group),
            )
            for subspace in site_subspaces.values()
        )
    return edits


def _require_matching_groups(
    lm: LM, config: ProjectionConfig, sites: Mapping[SiteGroup, object]
) -> None:
    if (config.pooled is None) == ("sent" in sites):
        has = "has a" if "sent" in sites else "has no"
        raise LevelheadError(
            f"the setting {config} does not fit: {lm.layout.model_class.name} {has} pooled vector",
            hint=f"take one of projection_grid(pooled={'sent' in sites})",
        )
