"""Whether an edit can change what is read: acting behind it must not pass for having no effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.models.forward.forward_pass import NothingTouched
from levelhead.models.sites import STREAMS, Site

if TYPE_CHECKING:
    from levelhead.models.edits.base import Edit
    from levelhead.models.lm import LM
    from levelhead.models.queries.query import Reading

ORDER = {
    "embeddings": 0,
    "query": 1,
    "key": 1,
    "value": 1,
    "head_out": 2,
    "mlp_out": 3,
    "block_out": 4,
    "pooled": 5,
}
"""Within a layer, what a forward comes to first."""
if set(ORDER) != set(STREAMS):
    raise ImportError("a stream has no place in the order of a layer")


def acting(lm: LM, reading: Reading, edits: tuple[Edit, ...]) -> tuple[Edit, ...]:
    """Those of some edits that can change what is read."""
    return tuple(
        edit for edit in edits if any(_reaches(lm, reading, edit, site) for site in edit.at)
    )


def behind(edits: tuple[Edit, ...]) -> NothingTouched:
    """The refusal of edits none of which can change what is read."""
    return NothingTouched(
        f"{edits[0].kind} at {edits[0].at[0]} acts behind all that is read",
        mend="leave this edit out, or ask something that it can change: `pooled`, and the first "
        "token of the last layer, change next_sentence, classify and what is read there",
    )


def _reaches(lm: LM, reading: Reading, edit: Edit, site: Site) -> bool:
    readout, layers = reading.readout, lm.anatomy.layers
    pooled = readout.part != "hidden" or ("pooled", 0) in readout.watch
    if site.stream == "pooled":
        return pooled
    if readout.watches_only:
        ends = [_depth(Site(*where), layers) for where in readout.watch]
        if _depth(site, layers) > max(ends):
            return False
    at_end = site.stream == "block_out" and site.layer == layers - 1
    if at_end and edit.settings.get("tokens") == "first" and not pooled:
        return readout.reads_first
    return True


def _depth(site: Site, layers: int) -> tuple[int, int]:
    """Where a site comes in a forward."""
    layer = layers if site.stream == "pooled" else site.layer
    return layer, ORDER[site.stream]
