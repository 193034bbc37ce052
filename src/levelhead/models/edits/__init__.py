"""Edits of activations: kinds of edits, edit files, and merging edits into weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead._lazy import attach

if TYPE_CHECKING:
    from levelhead.models.edits.base import HeadScale as HeadScale
    from levelhead.models.edits.base import Projection as Projection
    from levelhead.models.edits.conditional_shift import ConditionalShift as ConditionalShift
    from levelhead.models.edits.dictionary import SparseDictionary as SparseDictionary
    from levelhead.models.edits.dictionary_files import load_dictionary as load_dictionary
    from levelhead.models.edits.dictionary_files import save_dictionary as save_dictionary
    from levelhead.models.edits.erasure import Erasure as Erasure
    from levelhead.models.edits.feature_ablation import FeatureAblation as FeatureAblation
    from levelhead.models.edits.shift import Shift as Shift

__getattr__, __dir__, __all__ = attach(__name__, __file__)
