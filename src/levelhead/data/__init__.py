"""Inputs of measures: lexicons, counterfactuals, data sets, prompts and a linter, without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead._lazy import attach

if TYPE_CHECKING:
    from levelhead.data.catalog.datasets import dataset as dataset
    from levelhead.data.counterfactuals.contrast_pairs import contrast_pairs as contrast_pairs
    from levelhead.data.counterfactuals.contrast_pairs import placebo_pairs as placebo_pairs
    from levelhead.data.counterfactuals.contrast_pairs import swapped_pairs as swapped_pairs
    from levelhead.data.counterfactuals.held_out import held_out_pairs as held_out_pairs
    from levelhead.data.counterfactuals.held_out import (
        held_out_pairs_from_texts as held_out_pairs_from_texts,
    )
    from levelhead.data.lexicons.lexicon import lexicon as lexicon

__getattr__, __dir__, __all__ = attach(__name__, __file__)
