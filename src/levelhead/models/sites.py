"""Where in a transformer something is read or edited."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, Self, get_args

from levelhead.core.errors import LevelheadError, UnknownName

Stream = Literal[
    "head_out", "query", "key", "value", "mlp_out", "block_out", "embeddings", "pooled"
]
"""The activations that have a name.

head_out: what a head hands to the attention's output projection (Yang et al. 2025, Eq. 2).
query, key, value: what their projections return, before any rotation or norm of theirs.
mlp_out: what the feed-forward adds to the residual stream.
block_out: what a layer returns. embeddings: what the first layer is given.
pooled: what the final classifier is given (the [SENT] of Dawkins et al. 2024).
"""

STREAMS: tuple[Stream, ...] = get_args(Stream)
QKV: tuple[Stream, ...] = ("query", "key", "value")
BY_HEAD: tuple[Stream, ...] = ("head_out", *QKV)
"""Streams that are split into heads. Keys and values have as many as the model has kv heads."""
WITHOUT_LAYER: tuple[Stream, ...] = ("embeddings", "pooled")


class Site(NamedTuple):
    """One place: a stream, its layer, and one head of it or all of them. Counted from 0.

    >>> Site("head_out", 8, 11)
    Site(stream='head_out', layer=8, head=11)
    >>> print(Site.paper("9-12"))
    head_out 8.11
    """

    stream: Stream
    layer: int = 0
    head: int | None = None

    @classmethod
    def paper(cls, label: str) -> Self:
        """The head that a paper's 1-based label <layer>-<head> names."""
        match = re.fullmatch(r"\s*([1-9]\d*)-([1-9]\d*)\s*", label)
        if match is None:
            raise LevelheadError(
                f"{label!r} is no head label", mend="write <layer>-<head>, counted from 1: '9-12'"
            )
        return cls("head_out", int(match[1]) - 1, int(match[2]) - 1)

    def __str__(self) -> str:
        if self.stream in WITHOUT_LAYER:
            return self.stream
        return f"{self.stream} {self.layer}" + ("" if self.head is None else f".{self.head}")


def meets(first: Site, second: Site) -> bool:
    """Whether two sites have something in common: the same head, or all heads and any."""
    heads = {first.head, second.head}
    return first[:2] == second[:2] and (len(heads) == 1 or None in heads)


def checked(site: Site) -> Site:
    """The site, if it can exist in any model at all; edits and files bring arbitrary ones."""
    if site.stream not in STREAMS:
        raise UnknownName("stream", str(site.stream), STREAMS)
    for name, number in (("layer", site.layer), ("head", site.head)):
        if number is not None and (type(number) is not int or number < 0):
            raise LevelheadError(
                f"{name} {number!r} of {site.stream} is no position",
                mend="count layers and heads from 0, in whole numbers",
            )
    if site.head is not None and site.stream not in BY_HEAD:
        raise LevelheadError(
            f"{site.stream} is not split into heads",
            mend=f"leave out the head, or use one of {', '.join(BY_HEAD)}",
        )
    if site.stream in WITHOUT_LAYER and site.layer != 0:
        raise LevelheadError(
            f"{site.stream} belongs to no layer", mend=f"write Site({site.stream!r})"
        )
    return site
