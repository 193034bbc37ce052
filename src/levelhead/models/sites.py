"""Sites: the places in a transformer where activations are read or edited."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, Self, get_args

from levelhead.core.errors import LevelheadError, UnknownNameError

Stream = Literal[
    "head_out", "query", "key", "value", "mlp_out", "block_out", "embeddings", "pooled"
]
"""The named activations.

head_out: output of a head, input of the attention's output projection (Yang et al. 2025, Eq. 2).
query, key, value: outputs of these projections, before any rotary embedding or norm of theirs.
mlp_out: what the feed-forward part adds to the residual stream.
block_out: output of a layer. embeddings: input of the first layer.
pooled: input of the final classifier (the [SENT] of Dawkins et al. 2024).
"""

STREAMS: tuple[Stream, ...] = get_args(Stream)
QKV_STREAMS: tuple[Stream, ...] = ("query", "key", "value")
PER_HEAD_STREAMS: tuple[Stream, ...] = ("head_out", *QKV_STREAMS)
"""Streams that are split into heads. Keys and values have one part per key-value head."""
# These two occur once in a forward pass, so a layer number in their site would be ambiguous.
LAYERLESS_STREAMS: tuple[Stream, ...] = ("embeddings", "pooled")


StreamLayer = tuple[Stream, int]
"""A stream and the layer of one of its activations."""


class Site(NamedTuple):
    """One place in a model: a stream, its layer, and one head or all heads. Counted from 0.

    >>> Site("head_out", 8, 11)
    Site(stream='head_out', layer=8, head=11)
    >>> print(Site.from_paper_label("9-12"))
    head_out 8.11
    """

    stream: Stream
    layer: int = 0
    head: int | None = None

    @classmethod
    def from_paper_label(cls, label: str) -> Self:
        """Convert a paper's 1-based head label, <layer>-<head>, to a site."""
        match = re.fullmatch(r"\s*([1-9]\d*)-([1-9]\d*)\s*", label)
        if match is None:
            raise LevelheadError(
                f"{label!r} is not a head label",
                hint="write <layer>-<head>, counted from 1: '9-12'",
            )
        return cls("head_out", int(match[1]) - 1, int(match[2]) - 1)

    def __str__(self) -> str:
        if self.stream in LAYERLESS_STREAMS:
            return self.stream
        return f"{self.stream} {self.layer}" + ("" if self.head is None else f".{self.head}")


def overlaps(first: Site, second: Site) -> bool:
    """Whether two sites share a head; a site without a head stands for all heads."""
    heads = {first.head, second.head}
    return first[:2] == second[:2] and (len(heads) == 1 or None in heads)


def validate_site(site: Site) -> Site:
    """Return the site if it can exist in some model; raise otherwise.

    Edits by users and edit files can hold arbitrary values.
    """
    if site.stream not in STREAMS:
        raise UnknownNameError("stream", str(site.stream), STREAMS)
    for name, number in (("layer", site.layer), ("head", site.head)):
        # `type` and not `isinstance`: True would count as layer 1.
        if number is not None and (type(number) is not int or number < 0):
            raise LevelheadError(
                f"{name} {number!r} of {site.stream} is not a valid index",
                hint="count layers and heads from 0, in integers",
            )
    if site.head is not None and site.stream not in PER_HEAD_STREAMS:
        raise LevelheadError(
            f"{site.stream} is not split into heads",
            hint=f"leave out the head, or use one of {', '.join(PER_HEAD_STREAMS)}",
        )
    if site.stream in LAYERLESS_STREAMS and site.layer != 0:
        raise LevelheadError(
            f"{site.stream} belongs to no layer", hint=f"write Site({site.stream!r})"
        )
    return site
