"""Counterfactuals of texts: every word of a group is replaced by the word of the other group."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from levelhead.data.counterfactuals.replacement import (
    Replacement,
    ReplacementTable,
    entry_key,
    replace_words,
)

if TYPE_CHECKING:
    from levelhead.data.counterfactuals.replacement import SwapResult
    from levelhead.data.lexicons.lexicon import Lexicon


def swap(text: str, lexicon: Lexicon, *, groups: tuple[str, str] | None = None) -> SwapResult:
    """Exchange the words of two groups in a text.

    Args:
        text: any text.
        lexicon: lexicon of the swapped words.
        groups: the two groups; by default the first two of the lexicon.

    >>> from levelhead.data.lexicons.lexicon import lexicon
    >>> swap("Her brother's wife saw her.", lexicon("gender-en")).counterfactual
    "His sister's husband saw him."
    """
    return lexicon.swap(text, groups=groups)


def swap_within_groups(text: str, lexicon: Lexicon) -> SwapResult:
    """Replace words of a group by other words of the same group, as a control.

    >>> from levelhead.data.lexicons.lexicon import lexicon
    >>> swap_within_groups("The women met their mother.", lexicon("gender-en")).counterfactual
    'The ladies met their aunt.'

    Args:
        text: any text.
        lexicon: lexicon with placebo pairs.
    """
    return replace_words(text, _within_group_table(lexicon))


@cache
def _within_group_table(lexicon: Lexicon) -> ReplacementTable:
    return ReplacementTable.from_entries(
        {
            entry_key(old): (Replacement(new, is_title=old[0].isupper()),)
            for _, pairs in lexicon.placebos
            for old, new in pairs
        }
    )
