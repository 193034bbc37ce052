"""Edit scope: whether an edit can change the result of a query.

An edit that acts after everything that is read must not look like an edit without effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.models.forward.forward_pass import EditHadNoEffectError
from levelhead.models.sites import STREAMS, Site

if TYPE_CHECKING:
    from levelhead.models.architectures.model_layout import ModelLayout
    from levelhead.models.edits.base import Edit
    from levelhead.models.queries.query import Query

STREAM_ORDER = {
    "embeddings": 0,
    "query": 1,
    "key": 1,
    "value": 1,
    "head_out": 2,
    "mlp_out": 3,
    "block_out": 4,
    "pooled": 5,
}
"""Order of the streams within a layer, in a forward pass."""
# A new stream without a place here would count as reachable or not by accident.
if set(STREAM_ORDER) != set(STREAMS):
    raise ImportError("STREAM_ORDER does not cover all streams")


def edits_that_reach(
    layout: ModelLayout, query: Query, edits: tuple[Edit, ...]
) -> tuple[Edit, ...]:
    """Return the edits that can change the result of a query."""
    return tuple(
        edit for edit in edits if any(_reaches(layout, query, edit, site) for site in edit.sites)
    )


def no_effect_error(edits: tuple[Edit, ...]) -> EditHadNoEffectError:
    """Create the error for edits that cannot change the result of a query."""
    return EditHadNoEffectError(
        f"{edits[0].kind} at {edits[0].sites[0]} acts after everything that is read",
        hint="leave this edit out, or use a query that it can change: `pooled`, and the first "
        "token of the last layer, change next_sentence, classify and readouts there",
    )


def _reaches(layout: ModelLayout, query: Query, edit: Edit, site: Site) -> bool:
    readout, layers = query.readout, layout.layers
    reads_pooled = readout.output_stage != "hidden" or ("pooled", 0) in readout.capture_sites
    if site.stream == "pooled":
        return reads_pooled
    # Without captures only, the last hidden state is read, which every layer precedes.
    if readout.is_capture_only:
        depths = [_depth(Site(*stream_layer), layers) for stream_layer in readout.capture_sites]
        if _depth(site, layers) > max(depths):
            return False
    # No layer follows to carry an edit of the first token to other tokens.
    is_last_output = site.stream == "block_out" and site.layer == layers - 1
    if is_last_output and edit.settings.get("tokens") == "first" and not reads_pooled:
        return readout.can_read_first_token
    return True


def _depth(site: Site, layers: int) -> tuple[int, int]:
    """Return the place of a site in the order of a forward pass."""
    layer = layers if site.stream == "pooled" else site.layer
    return layer, STREAM_ORDER[site.stream]
