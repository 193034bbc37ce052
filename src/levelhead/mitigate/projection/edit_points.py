"""Projections at the levels of a model of any depth (Dawkins et al. 2024, section 4).

Which sites a level means in a model: the paper's layers 12 and 11 are the last and the one before
it. Where the model's head reads the first token alone, so does the edit of the last layer; a
vocabulary head and a decoder read every token, so every token is edited there. The classifier's
input is `sent`, with a pooler before it (BERT) or without (RoBERTa, DistilBERT).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, get_args

from levelhead.core.errors import LevelheadError, UnknownName
from levelhead.mitigate.projection.config_grid import LEVELS, SENT_STEPS, STEPS, Level, Setting
from levelhead.mitigate.projection.subspace import Subspace, fit
from levelhead.models.sites import QKV, Site

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.data.counterfactuals.contrast_pairs import TextPair
    from levelhead.mitigate.projection.config_grid import Part
    from levelhead.mitigate.projection.subspace import At
    from levelhead.models.edits.base import Projection, Which
    from levelhead.models.lm import LM

Fitted = Literal["original", "sequential"]
DEEPEST: Level = "penultimate+attn"
MARKED = r"\s*(?P<level>.*?[^\s(])[\s(]+(?P<marks>[01]([\s,]+\d)*)\)?\s*"
"""A setting by its name: a level, then a mark for every choice; `Setting` says if one is wrong."""


def has_sent(lm: LM) -> bool:
    """Whether the model has a pooled vector; without one its levels start at `last`."""
    try:
        lm.anatomy.find(Site("pooled"))
    except LevelheadError:
        return False
    return True


def levels_of(lm: LM) -> tuple[Level, ...]:
    """The levels that a model has, the deepest last."""
    outer: tuple[Level, ...] = ("sent", "last") if has_sent(lm) else ("last",)
    return (*outer, "penultimate", DEEPEST) if lm.anatomy.layers > 1 else outer


def level_of(lm: LM, name: str) -> Level:
    """A level by its name, or by the paper's in a model of its depth.

    With 12 layers, layer12 is last, layer11 penultimate and layer11+attn penultimate+attn.
    """
    depth = lm.anatomy.layers
    aliases: dict[str, Level] = {f"layer{depth}": "last"}
    if depth > 1:
        aliases |= {f"layer{depth - 1}": "penultimate", f"layer{depth - 1}+attn": DEEPEST}
    folded = re.sub(r"[\s\[\]]", "", name).lower()
    level = aliases.get(folded, folded)
    if level not in LEVELS:
        if re.fullmatch(r"layer\d+(\+attn)?", folded):
            raise LevelheadError(
                f"there is no level {name!r}: this model has {depth} layers",
                mend=f"use {', '.join(aliases)}, or the names {', '.join(LEVELS)}",
            )
        raise UnknownName("level", name, [*LEVELS, *aliases])
    if level == "sent" and not has_sent(lm):
        raise LevelheadError(
            f"{lm.anatomy.cls.name} has no pooled vector, so its levels start at last",
            mend="use last, or a checkpoint with a classifier or a next-sentence head",
        )
    if level in ("penultimate", DEEPEST) and depth < 2:
        raise LevelheadError("this model has one layer, and none before it", mend="use last")
    return level


def sites_of(lm: LM, level: str | None = None) -> dict[Part, tuple[Site, ...]]:
    """The sites of a level by part, in the order in which a forward comes to them.

    By default of the deepest level that the model has.
    """
    anatomy = lm.anatomy
    parts = LEVELS[level_of(lm, level or levels_of(lm)[-1])]
    last = anatomy.layers - 1
    sites: dict[Part, tuple[Site, ...]] = {
        "attn": tuple(
            Site(stream, last - 1, head)
            for stream in QKV
            for head in range(anatomy.heads_of(stream))
        ),
        "penultimate": (Site("block_out", last - 1),),
        "last": (Site("block_out", last),),
        "sent": (Site("pooled"),),
    }
    return {part: sites[part] for part in parts if part != "sent" or has_sent(lm)}


def tokens_of(lm: LM, part: Part) -> Which:
    """Which tokens are edited: the first of the last layer if the head reads no other."""
    return "first" if part == "last" and lm.anatomy.cls.reads_first else "all"


def setting_of(
    lm: LM, level: str | Setting, *, weighted: bool | None = None, dims: int | None = None
) -> Setting:
    """A setting: given, by its name ("last 0,1,1"), or one step for all parts of a level.

    Args:
        lm: the model.
        level: or a setting, or its name.
        weighted: by default True; a setting says it of every part itself.
        dims: of last and penultimate, 1 by default; likewise.
    """
    if isinstance(level, str) and (named := re.fullmatch(MARKED, level)):
        level = Setting.named(f"{level_of(lm, named['level'])} {named['marks']}")
    if isinstance(level, Setting):
        if weighted is not None or dims is not None:
            raise LevelheadError(
                f"{level} says itself what is weighted, and in how many dimensions",
                mend="leave out weighted and dims, or name a level alone",
            )
        return level
    weighted, dims = weighted is not False, 1 if dims is None else dims
    if dims not in (1, 2):
        raise LevelheadError(f"{dims} dimensions", mend="take 1 or 2")
    chosen, step = level_of(lm, level), STEPS[2 * weighted + dims - 1]
    if chosen == "sent" and dims > 1:
        raise LevelheadError("sent has one dimension", mend="leave out dims, or go deeper")
    parts = LEVELS[chosen]
    return Setting(
        level=chosen,
        penultimate=step if "penultimate" in parts else None,
        last=step if "last" in parts else None,
        sent=SENT_STEPS[weighted] if has_sent(lm) else None,
    )


def subspaces(
    lm: LM,
    pairs: Sequence[TextPair],
    *,
    level: str | None = None,
    dims: int = 2,
    at: At | None = None,
    centered: bool = False,
) -> dict[Site, Subspace]:
    """The subspaces of all sites of a level and those after it, in one pass over the pairs.

    What every setting of the grid is made of: "fed forward through the model once".

    Args:
        lm: the model as it is.
        pairs: of texts that differ in the contrast.
        level: the deepest that is wanted; by default the deepest that the model has.
        dims: the most that is wanted; sent and the attention have one.
        at: at which tokens the texts are read; by default those that are edited.
        centered: see `subspace`.
    """
    own = {
        site: 1 if part in ("sent", "attn") else dims
        for part, sites in sites_of(lm, level).items()
        for site in sites
    }
    return fit(lm, pairs, own, dims=own, at=at, centered=centered)


def edits_of(
    lm: LM, setting: Setting, subspaces: Mapping[Site, Subspace]
) -> tuple[Projection, ...]:
    """The edits of a setting, from subspaces that were fitted."""
    sites = sites_of(lm, setting.level)
    _refuse_other_parts(lm, setting, sites)
    missing = [site for part in setting.parts for site in sites[part] if site not in subspaces]
    if missing:
        raise LevelheadError(
            f"no subspace was fitted at {missing[0]}",
            mend=f"fit them with subspaces(lm, pairs, level={setting.level!r})",
        )
    return tuple(
        subspaces[site].edit(
            weighted=setting.step(part).weighted,
            dims=setting.step(part).dims,
            tokens=tokens_of(lm, part),
        )
        for part in setting.parts
        for site in sites[part]
    )


def project(
    lm: LM,
    level: str | Setting,
    pairs: Sequence[TextPair],
    *,
    weighted: bool | None = None,
    dims: int | None = None,
    fitted: Fitted = "original",
    at: At | None = None,
    centered: bool = False,
) -> tuple[Projection, ...]:
    """Projections at a level and at all after it (Dawkins et al. 2024, Eq. 5).

    Args:
        lm: the model; `lm.edited(*project(...))` is the edited one.
        level: sent, last, penultimate, penultimate+attn, the paper's name of it (layer11+attn of
            12 layers), a setting's name ("last 0,1,1") or a `Setting`, which say their own
            `weighted` and `dims`.
        pairs: of texts that differ in the contrast, such as `paired("gender-en")`.
        weighted: take each direction out by the share of variance it explains, which is the
            default; False: wholly.
        dims: 1 (by default) or 2 directions; sent and the attention have one.
        fitted: on activations of the model as it is, all in one pass (`original`), or each site
            on those that the edits before it have left (`sequential`).
        at: at which tokens the texts are read; by default those that are edited.
        centered: see `subspace`.
    """
    if fitted not in get_args(Fitted):
        raise UnknownName("way of fitting", str(fitted), get_args(Fitted))
    setting = setting_of(lm, level, weighted=weighted, dims=dims)
    if fitted == "original":
        most = max(setting.step(part).dims for part in setting.parts)
        found = subspaces(lm, pairs, level=setting.level, dims=most, at=at, centered=centered)
        return edits_of(lm, setting, found)
    sites = sites_of(lm, setting.level)
    _refuse_other_parts(lm, setting, sites)
    edits: tuple[Projection, ...] = ()
    for part in setting.parts:
        step = setting.step(part)
        now = fit(lm.edited(*edits), pairs, sites[part], dims=step.dims, at=at, centered=centered)
        edits += tuple(
            one.edit(weighted=step.weighted, dims=step.dims, tokens=tokens_of(lm, part))
            for one in now.values()
        )
    return edits


def _refuse_other_parts(lm: LM, setting: Setting, sites: Mapping[Part, object]) -> None:
    if (setting.sent is None) == ("sent" in sites):
        has = "has a" if "sent" in sites else "has no"
        raise LevelheadError(
            f"the setting {setting} does not fit: {lm.anatomy.cls.name} {has} pooled vector",
            mend=f"take one of grid(sent={'sent' in sites})",
        )
