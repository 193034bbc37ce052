"""Masking and scaling heads: the simplest edits, and exactly bakeable."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, NamedTuple

from levelhead.locate.head_map import label
from levelhead.models.edits.base import HeadScale

if TYPE_CHECKING:
    from collections.abc import Iterable

    from levelhead.locate.head_map import HeadMap
    from levelhead.models.sites import Site


class UnconfirmedHeads(UserWarning):
    """Heads of a map are edited that ablation on held-out items has not confirmed."""


class Confirmation(NamedTuple):
    """How many chosen heads of a map are confirmed."""

    confirmed: tuple[str, ...]
    """<layer>-<head>, counted from 1."""
    chosen: int
    untested: int
    """Chosen heads that were not ablated at all."""
    has_held_out: bool
    """Whether heads were judged on other items than they were found on."""

    @property
    def is_complete(self) -> bool:
        """Whether every chosen head is confirmed."""
        return len(self.confirmed) == self.chosen

    def __str__(self) -> str:
        count = f"{len(self.confirmed)} of {self.chosen} chosen heads"
        told = f"{count} are confirmed by ablation on held-out items"
        if self.confirmed and not self.is_complete:
            told += f" ({', '.join(self.confirmed)})"
        if not self.has_held_out:
            return f"{told}: they were found and judged on the same items"
        return f"{told}; {self.untested} were not ablated" if self.untested else told


def confirm_heads(heads: HeadMap, sites: Iterable[Site]) -> Confirmation:
    """Which heads of a choice ablation on held-out items confirms.

    A head is confirmed if its effect there differs from 0 after correction for all heads, to the
    side that its score says: one that adds to the bias, or one that takes from it.

    Args:
        heads: the map.
        sites: the heads that were chosen.
    """
    wanted = set(sites)
    chosen = [one for one in heads.heads if one.site in wanted]
    held_out = heads.halves.by != "none"
    return Confirmation(
        confirmed=tuple(
            label(one.site)
            for one in chosen
            if held_out and one.is_significant and (one.effect or 0.0) * one.score > 0
        ),
        chosen=len(wanted),
        untested=sum(one.effect is None for one in chosen),
        has_held_out=held_out,
    )


def mask(sites: Iterable[Site], *, of: HeadMap | None = None) -> HeadScale:
    """Heads that hand nothing on (Yang et al. 2025, Eq. 2 with m = 0; Targeted-Debias).

    Args:
        sites: the heads.
        of: the map that they were chosen from: warns (`UnconfirmedHeads`) unless ablation on
            held-out items confirms all of them.

    >>> from levelhead.models.sites import Site
    >>> mask([Site.paper("9-12")]).factor
    0.0
    """
    return scale(sites, 0.0, of=of)


def scale(sites: Iterable[Site], factor: float, *, of: HeadMap | None = None) -> HeadScale:
    """Heads that hand on more or less: above 1 amplifies, which the paper leaves open.

    Args:
        sites: the heads.
        factor: 0 masks, 1 changes nothing.
        of: the map that they were chosen from, as in `mask`.

    >>> from levelhead.models.sites import Site
    >>> scale([Site.paper("9-12")], 2).factor
    2.0
    """
    chosen = tuple(sites)
    if of is not None:
        confirmation = confirm_heads(of, chosen)
        if not confirmation.is_complete:
            warnings.warn(str(confirmation), UnconfirmedHeads, stacklevel=2)
    return HeadScale(chosen, factor)
