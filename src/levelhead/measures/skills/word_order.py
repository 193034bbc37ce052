"""Does a model prefer a text to its words in another order? The skill behind every likelihood.

A model that knows only how often words occur finds both equally likely, an untrained one nearly so.
The order of words is asked, and not grammar or knowledge, because any text can be put in another
order: of any data, any language, and of languages made up for calibration.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import torch

from levelhead.core.frozen import Frozen
from levelhead.measures.items import Asked, Item
from levelhead.measures.skills.skills import SkillCheck, digest_of, ties_counted_half
from levelhead.models.inputs.tokenizer import MASK, NotReadable
from levelhead.models.loading.http_model import Remote

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from levelhead.measures.responses import Readouts
    from levelhead.models.lm import LM

ORDER = "prefers texts to their words in another order"
ORDERED = 75.0
"""For word order more is asked, because templated items are not independent of each other: an
untrained model may by accident like a whole template. Real models reach 98 to 100, untrained 50."""
MARGIN = 0.5
"""Nats a moved word below which two orders are a tie. Real models: 4.3 to 6.1 in the median;
untrained ones: none above 0.3."""
SAMPLED, SAMPLED_REMOTE = 48, 12
"""Texts that are asked, by hash, so that they are the same ones every time: with 48, guessing
reaches 75% once in three thousand times. A server is asked for every token apart."""
TRIES = 20
MOVED = 2
"""The least number of words that change places."""


def word_order(
    lm: LM | Remote, items: Iterable[Item], words: Sequence[str] = ()
) -> SkillCheck | None:
    """Texts of a measure's own items against their words in another order.

    The first word and closing punctuation stay, and both texts have the same tokens: to a model
    that knows only how often words occur they are equally likely.

    Args:
        lm: the model.
        items: the measure's items.
        words: of the groups, to put into blanks.
    """
    texts: dict[str, int] = {}
    for item in items:
        for turn, text in enumerate(_filled(item, words)):
            texts[text] = min(turn, texts.get(text, turn))
    most = SAMPLED_REMOTE if isinstance(lm, Remote) else SAMPLED
    pairs: list[Item] = []
    # A text of every item before a second of any: those of one item are much alike.
    for text in sorted(texts, key=lambda text: (texts[text], digest_of(text))):
        if len(pairs) == most:
            break
        both = _reordered(lm, text)
        if both is not None:
            asks = tuple((one, None) for one in both)
            pairs.append(Item(f"order {digest_of(text)[:16]}", asks, (text,)))
    if not pairs:
        return None
    asked = Asked("score", Frozen({}), ("texts",), tuple(pairs), optional=True)
    return SkillCheck(ORDER, _in_order, asked, threshold=ORDERED)


def _filled(item: Item, words: Sequence[str]) -> list[str]:
    """An item's texts, a group's word in their blanks; which, and in which order, by hash."""
    found = []
    for text in sorted({str(ask[0]) for ask in item.asks}, key=digest_of):
        word = words[int(digest_of(text)[:8], 16) % len(words)] if words else MASK
        found.append(text.replace(MASK, word))
    return found


def _reordered(lm: LM | Remote, text: str) -> tuple[str, str] | None:
    """A text and the same with words moved; None where too few can be.

    Where words are not written apart, characters are moved.
    """
    body = text.rstrip("".join(char for char in text if not char.isalnum()))
    tail = text[len(body) :]
    glue, parts = " ", body.split()
    if len(parts) <= MOVED:
        glue, parts = "", list(body)
    middle, chance = parts[1:], random.Random(text)  # noqa: S311  # no secret
    if len(middle) < MOVED:
        return None
    whole = glue.join(parts) + tail
    found: tuple[int, str] | None = None
    for _ in range(TRIES):
        turned = chance.sample(middle, len(middle))
        moved = sum(a != b for a, b in zip(turned, middle, strict=True))
        other = glue.join([parts[0], *turned]) + tail
        if moved > (found[0] if found else MOVED - 1) and _same_tokens(lm, whole, other):
            found = moved, other
    return None if found is None else (whole, found[1])


def _same_tokens(lm: LM | Remote, first: str, second: str) -> bool:
    if isinstance(lm, Remote):  # words that stand apart keep their tokens
        return True
    try:
        one, other = lm.tokens.encode([first, second])
    except NotReadable:
        return False
    return sorted(one.row.ids) == sorted(other.row.ids)


def _in_order(readouts: Readouts) -> torch.Tensor:
    if not len(readouts):
        return torch.zeros(0)
    scores = readouts.values[..., 0]
    moved = torch.tensor([_moved(*item.asks) for item in readouts.items])
    return ties_counted_half((scores[:, 0] - scores[:, 1]) / moved, MARGIN)


def _moved(first: Sequence[object], second: Sequence[object]) -> int:
    """How many words (or characters, where words are not written apart) changed places."""
    before, after = str(first[0]), str(second[0])
    apart = len(before.split()) > MOVED
    both = (before.split(), after.split()) if apart else (list(before), list(after))
    return max(1, sum(a != b for a, b in zip(*both, strict=False)))
