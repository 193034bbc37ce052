"""Word order: the skill that every likelihood measure needs, a preference for the original order.

For a unigram model a text and its shuffled words are equally likely, for an untrained model nearly
so. The check uses word order, not grammar or knowledge, because every text can be shuffled: of any
data, any language, and of languages generated for calibration.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import torch

from levelhead.core.frozen import FrozenDict
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.measures.skills.checks import SkillCheck, score_margins, text_digest
from levelhead.models.inputs.tokenizer import MASK, UnreadableTextError
from levelhead.models.serving.served_model import ServedModel

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM

ORDER = "prefers texts to their words in another order"
ORDER_THRESHOLD = 75.0
"""Word order has a higher threshold, because templated items are not independent: an untrained
model may prefer a complete template at random. Real models reach 98 to 100, untrained ones 50."""
MARGIN = 0.5
"""Nats for each moved word; orders that differ by less are a tie. Real models have medians of 4.3
to 6.1; no untrained model exceeds 0.3."""
SAMPLED, SAMPLED_REMOTE = 48, 12
"""Number of texts, selected by hash and so reproducible: with 48, guessing reaches 75% once in
three thousand times. Fewer for a server, which gets a separate request for every token."""
# The best of several tries: the most moved words among shuffles that keep the tokens.
N_SHUFFLES = 20
MIN_MOVED = 2
"""Minimum number of words that change places."""


def make_word_order_check(
    lm: LM | ServedModel, items: Iterable[MeasureItem], words: Sequence[str] = ()
) -> SkillCheck | None:
    """Check that texts of a measure's items are preferred to their words in shuffled order.

    The first word and the closing punctuation stay in place, and both texts have the same tokens,
    so that they are equally likely for a unigram model.

    Args:
        lm: The model.
        items: Items of the measure.
        words: Group words that fill the blanks.
    """
    texts: dict[str, int] = {}
    for item in items:
        for turn, text in enumerate(_fill_blanks(item, words)):
            texts[text] = min(turn, texts.get(text, turn))
    limit = SAMPLED_REMOTE if isinstance(lm, ServedModel) else SAMPLED
    pairs: list[MeasureItem] = []
    # One text of every item before a second text of any, because texts of one item are similar.
    for text in sorted(texts, key=lambda text: (texts[text], text_digest(text))):
        if len(pairs) == limit:
            break
        pair = _reorder(lm, text)
        if pair is not None:
            queries = tuple((version, None) for version in pair)
            pairs.append(MeasureItem(f"order {text_digest(text)[:16]}", queries, (text,)))
    if not pairs:
        return None
    query_set = QuerySet("score", FrozenDict({}), ("texts",), tuple(pairs), may_be_empty=True)
    return SkillCheck(ORDER, _score_order, query_set, threshold=ORDER_THRESHOLD)


def _fill_blanks(item: MeasureItem, words: Sequence[str]) -> list[str]:
    """Fill the blanks of an item's texts with group words; a hash selects words and order."""
    texts = []
    for text in sorted({str(query[0]) for query in item.queries}, key=text_digest):
        word = words[int(text_digest(text)[:8], 16) % len(words)] if words else MASK
        texts.append(text.replace(MASK, word))
    return texts


def _reorder(lm: LM | ServedModel, text: str) -> tuple[str, str] | None:
    """Return a text and its shuffled version; None if too few words can be moved.

    Characters are moved if the script does not separate words.
    """
    body = text.rstrip("".join(char for char in text if not char.isalnum()))
    tail = text[len(body) :]
    glue, parts = " ", body.split()
    if len(parts) <= MIN_MOVED:
        glue, parts = "", list(body)
    # Seeded by the text: the same text is always shuffled in the same way. The first word stays,
    # because capitalisation would give the order away.
    middle, chance = parts[1:], random.Random(text)  # noqa: S311  # no secret
    if len(middle) < MIN_MOVED:
        return None
    original = glue.join(parts) + tail
    best: tuple[int, str] | None = None
    for _ in range(N_SHUFFLES):
        shuffled = chance.sample(middle, len(middle))
        moved = sum(a != b for a, b in zip(shuffled, middle, strict=True))
        candidate = glue.join([parts[0], *shuffled]) + tail
        # Different tokens would let a unigram model prefer one of the texts.
        if moved > (best[0] if best else MIN_MOVED - 1) and _have_same_tokens(
            lm, original, candidate
        ):
            best = moved, candidate
    return None if best is None else (original, best[1])


def _have_same_tokens(lm: LM | ServedModel, first: str, second: str) -> bool:
    # A server's tokenizer is unknown; words separated by spaces keep their tokens.
    if isinstance(lm, ServedModel):
        return True
    try:
        first_encoding, second_encoding = lm.tokens.encode([first, second])
    except UnreadableTextError:
        return False
    return sorted(first_encoding.row.ids) == sorted(second_encoding.row.ids)


def _score_order(responses: Responses) -> torch.Tensor:
    if not len(responses):
        return torch.zeros(0)
    scores = responses.values[..., 0]
    moved = torch.tensor([_count_moved(*item.queries) for item in responses.items])
    return score_margins((scores[:, 0] - scores[:, 1]) / moved, MARGIN)


def _count_moved(first: Sequence[object], second: Sequence[object]) -> int:
    """Number of words (or characters, if words are not separated) that changed places."""
    before, after = str(first[0]), str(second[0])
    is_spaced = len(before.split()) > MIN_MOVED
    pair = (before.split(), after.split()) if is_spaced else (list(before), list(after))
    return max(1, sum(a != b for a, b in zip(*pair, strict=False)))
