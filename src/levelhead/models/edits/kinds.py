"""The registry of edit kinds, used to save, load and export edits and to write model cards.

A kind is one row. Its class defines how an edit is created from its parts, its description, and the
lines of PyTorch that apply it. An edit whose kind has no row can be measured and merged, but not
saved as an edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.core.errors import LevelheadError
from levelhead.models.edits.base import HeadScale, Projection
from levelhead.models.edits.conditional_shift import ConditionalShift
from levelhead.models.edits.erasure import Erasure
from levelhead.models.edits.feature_ablation import FeatureAblation
from levelhead.models.edits.shift import Shift

if TYPE_CHECKING:
    from levelhead.models.edits.base import Edit

EDIT_KINDS: dict[str, type[Edit]] = {
    HeadScale.kind: HeadScale,
    Projection.kind: Projection,
    Erasure.kind: Erasure,
    Shift.kind: Shift,
    ConditionalShift.kind: ConditionalShift,
    FeatureAblation.kind: FeatureAblation,
}
"""Class of each kind, by its name in files. Users add a kind by EDIT_KINDS[MyEdit.kind] = MyEdit"""


def require_registered(edit: Edit) -> None:
    """Raise if the kind of an edit is not registered: the saved edit could not be loaded."""
    # The same class, not only the same name: another class would load another edit.
    if EDIT_KINDS.get(edit.kind) is not type(edit):
        name = type(edit).__name__
        raise LevelheadError(
            f"{name}, an edit of kind {edit.kind!r}, is not registered and could not be loaded",
            hint=f"write levelhead.models.edits.kinds.EDIT_KINDS[{edit.kind!r}] = {name}, here and "
            "where it is loaded",
        )
