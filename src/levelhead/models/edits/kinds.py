"""The kinds of edits: what saving, loading, exporting and the model card know, they know from here.

A kind is one row: its class says how it is made of its parts, what it does in words, and which
lines of PyTorch do it. An edit without a row can be measured and merged, but not saved as an edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.core.errors import LevelheadError
from levelhead.models.edits.base import HeadScale, Projection
from levelhead.models.edits.erasure import Erasure

if TYPE_CHECKING:
    from levelhead.models.edits.base import Edit

EDIT_KINDS: dict[str, type[Edit]] = {
    HeadScale.kind: HeadScale,
    Projection.kind: Projection,
    Erasure.kind: Erasure,
}
"""By the name that stands in files. A user's kind is a row too: EDIT_KINDS[MyEdit.kind] = MyEdit"""


def refuse_unregistered(edit: Edit) -> None:
    """Raise if an edit is of a kind that nobody could load again."""
    if EDIT_KINDS.get(edit.kind) is not type(edit):
        name = type(edit).__name__
        raise LevelheadError(
            f"{name}, an edit of kind {edit.kind!r}, is not registered: nobody could load it again",
            mend=f"write levelhead.models.edits.kinds.EDIT_KINDS[{edit.kind!r}] = {name}, here and "
            "where it is loaded",
        )
