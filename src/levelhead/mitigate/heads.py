"""Masking and scaling heads: the simplest edits, and exactly bakeable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.models.edits import HeadScale

if TYPE_CHECKING:
    from collections.abc import Iterable

    from levelhead.models.sites import Site


def mask(sites: Iterable[Site]) -> HeadScale:
    """Heads that hand nothing on (Yang et al. 2025, Eq. 2 with m = 0; Targeted-Debias).

    >>> from levelhead.models.sites import Site
    >>> mask([Site.paper("9-12")]).factor
    0.0
    """
    return HeadScale(sites, 0.0)


def scale(sites: Iterable[Site], factor: float) -> HeadScale:
    """Heads that hand on more or less: above 1 amplifies, which the paper leaves open.

    >>> from levelhead.models.sites import Site
    >>> scale([Site.paper("9-12")], 2).factor
    2.0
    """
    return HeadScale(sites, factor)
