"""Masking and scaling heads: the simplest edits, which merge exactly into the weights."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, NamedTuple

from levelhead.locate.head_map import head_label
from levelhead.models.edits.base import HeadScale

if TYPE_CHECKING:
    from collections.abc import Iterable

    from levelhead.locate.head_map import HeadMap
    from levelhead.models.sites import Site


class UnconfirmedHeadsWarning(UserWarning):
    """An edit uses heads of a map that ablation on held-out items has not confirmed."""


class HeadConfirmation(NamedTuple):
    """Number of confirmed heads among the chosen heads of a map."""

    confirmed: tuple[str, ...]
    """<layer>-<head>, counted from 1."""
    n_chosen: int
    n_untested: int
    """Chosen heads that were not ablated."""
    has_held_out: bool
    """Whether heads were tested on other items than those they were chosen on."""

    @property
    def is_complete(self) -> bool:
        """Whether every chosen head is confirmed."""
        return len(self.confirmed) == self.n_chosen

    def __str__(self) -> str:
        count = f"{len(self.confirmed)} of {self.n_chosen} chosen heads"
        text = f"{count} are confirmed by ablation on held-out items"
        if self.confirmed and not self.is_complete:
            text += f" ({', '.join(self.confirmed)})"
        if not self.has_held_out:
            return f"{text}: they were found and tested on the same items"
        return f"{text}; {self.n_untested} were not ablated" if self.n_untested else text


def confirm_heads(head_map: HeadMap, sites: Iterable[Site]) -> HeadConfirmation:
    """Check which chosen heads ablation on held-out items confirms.

    A head is confirmed if its effect there differs from 0 after correction for all heads, in the
    direction of its score: it adds to the bias, or reduces it.

    Args:
        head_map: The map.
        sites: The chosen heads.
    """
    chosen_sites = set(sites)
    heads = [head for head in head_map.heads if head.site in chosen_sites]
    held_out = head_map.split.split_by != "none"
    return HeadConfirmation(
        confirmed=tuple(
            head_label(head.site)
            for head in heads
            # A significant effect against the sign of the score contradicts the choice, not
            # confirms it.
            if held_out and head.is_significant and (head.effect or 0.0) * head.score > 0
        ),
        n_chosen=len(chosen_sites),
        n_untested=sum(head.effect is None for head in heads),
        has_held_out=held_out,
    )


def mask_heads(sites: Iterable[Site], *, head_map: HeadMap | None = None) -> HeadScale:
    """Mask heads: their output is zero (Yang et al. 2025, Eq. 2 with m = 0; Targeted-Debias).

    Args:
        sites: The heads.
        head_map: The map that they were chosen from. The function warns (`UnconfirmedHeadsWarning`)
            unless ablation on held-out items confirms all of them.

    >>> from levelhead.models.sites import Site
    >>> mask_heads([Site.from_paper_label("9-12")]).factor
    0.0
    """
    return scale_heads(sites, 0.0, head_map=head_map)


def scale_heads(
    sites: Iterable[Site], factor: float, *, head_map: HeadMap | None = None
) -> HeadScale:
    """Scale the output of heads; a factor above 1 amplifies them, which the paper does not do.

    Args:
        sites: The heads.
        factor: 0 masks, 1 changes nothing.
        head_map: The map that they were chosen from, as in `mask_heads`.

    >>> from levelhead.models.sites import Site
    >>> scale_heads([Site.from_paper_label("9-12")], 2).factor
    2.0
    """
    heads = tuple(sites)
    if head_map is not None:
        confirmation = confirm_heads(head_map, heads)
        if not confirmation.is_complete:
            warnings.warn(str(confirmation), UnconfirmedHeadsWarning, stacklevel=2)
    return HeadScale(heads, factor)
