"""Contexts of words in a corpus: matched between two groups, averaged, and left out in blocks."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np
import torch

from levelhead.data.corpus.contexts import WordContext
from levelhead.data.corpus.matcher import WORD_RUN
from levelhead.data.counterfactuals.swap import swap
from levelhead.data.tokenize import fold_case

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.data.lexicons.lexicon import Lexicon
    from levelhead.measures.items import QueryArgs
    from levelhead.measures.responses import Responses

    ContextMask = np.ndarray[tuple[int], np.dtype[np.bool_]]
    """Which of the contexts are used."""

N_BLOCKS = 20
"""Number of blocks of contexts, assigned by hash, for the variance of the choice of contexts."""


def match_contexts(
    by_word: Mapping[str, Sequence[WordContext]],
    attributes: Sequence[str],
    lexicon: Lexicon,
    groups: tuple[str, str],
    *,
    quota: int,
    notes: Counter[str],
) -> dict[str, tuple[WordContext, ...]]:
    """Add to each attribute's context the same context with its counterpart in the other group.

    Contexts of targets are unchanged.

    Args:
        by_word: Contexts of each word.
        attributes: The attribute words of both groups.
        lexicon: Lexicon of the counterparts.
        groups: The two groups.
        quota: Maximum number of contexts for each attribute.
        notes: Counts of contexts that are left out, by reason.
    """
    names = {fold_case(word): word for word in attributes}
    # Each side gets the other's contexts, so that what the corpus says around the words is
    # equal.
    matched: dict[str, list[WordContext]] = {word: [] for word in names.values()}
    for word in tuple(matched):
        for context in by_word[word]:
            twin = swap(context.text, lexicon, groups=groups)
            is_single_change = twin.counterfactual is not None and len(twin.changes) == 1
            change = twin.changes[0] if is_single_change else None
            if (
                # Other changed words would make the two contexts differ in more than the
                # attribute.
                change is None
                or change.start != context.start
                or fold_case(change.new) not in names
            ):
                notes["without a counterpart in the other group"] += 1
                continue
            matched[word].append(context)
            counterpart = WordContext(twin.text, change.new_start, change.new_end)
            matched[names[fold_case(change.new)]].append(counterpart)
    contexts = {word: tuple(contexts) for word, contexts in by_word.items() if word not in matched}
    for word, word_contexts in matched.items():
        # Ordered by the text around the word, so that both members of a pair keep the same
        # contexts when the list is cut.
        ordered = sorted(dict.fromkeys(word_contexts), key=surroundings_hash)
        contexts[word] = tuple(ordered[:quota])
    return contexts


def average_contexts(responses: Responses, mask: ContextMask) -> Responses:
    """Average words over some of their contexts; a word without any of these keeps all."""
    owner = torch.tensor(responses.owner)
    weight = torch.from_numpy(mask).double()
    count = torch.zeros(len(responses), dtype=torch.float64).index_add(0, owner, weight)
    # A word whose contexts are all in the left-out block must not vanish from the design.
    weight = torch.where(count[owner] > 0, weight, 1.0)
    count = torch.zeros_like(count).index_add(0, owner, weight)
    total = torch.zeros_like(responses.values).index_add(
        0, owner, responses.answers * weight[:, None]
    )
    return replace(responses, values=total / count[:, None])


def context_order(owner: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Position of each context among the contexts of the same word."""
    counts: Counter[int] = Counter()
    order = []
    for item_index in owner:
        order.append(counts[item_index])
        counts[item_index] += 1
    return np.array(order)


def block_number(query: QueryArgs) -> int:
    """Block of a context, by the text around the word, so that matched contexts stay together."""
    return int(surroundings_hash(query)[:8], 16) % N_BLOCKS


def surroundings_hash(query: QueryArgs) -> str:
    """Hash of the text around the word."""
    text, start, end = cast("tuple[str, int, int]", query)
    return hashlib.sha256((text[:start] + text[end:]).encode()).hexdigest()


def missing_reason(word: str, word_contexts: Sequence[WordContext]) -> str:
    """Why a word has no context that can be used."""
    if word_contexts:
        return "it stands only at the beginning of texts, where a causal model has no context"
    if not WORD_RUN.fullmatch(word):
        return "it is not one run of letters, and is not looked for"
    return "no context in the corpus"


def is_at_text_start(context: WordContext) -> bool:
    """Whether nothing stands before the word."""
    return not context.text[: context.start].strip()
