"""The attention of a target on an attribute, made comparable between heads and sentences.

Yang et al. 2025, section 5.2 and footnote 12: row = the target, column = the attribute, min-max
normalised, without special tokens and punctuation. Where the paper is silent: the normalisation is
of the target's row; a word of several subwords is one column, the sum of theirs, and as a row the
mean of theirs (Clark et al. 2019, section 4.1); under a causal model the row ends with the target,
for what comes later has no attention at all.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import torch

from levelhead.data.tokenize import WORD
from levelhead.models.inputs.tokenizer import NotReadable
from levelhead.stats.degenerate import ROUNDING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from levelhead.explain.attention.pairs import Question
    from levelhead.models.inputs.tokenizer import Encoded
    from levelhead.models.lm import LM

CHUNK = 256
"""Texts whose rows are held at a time."""
FLAT = "a head attends alike to all of its words"


class Columns(NamedTuple):
    """The words of a text that a row is normalised over."""

    words: tuple[str, ...]
    tokens: tuple[tuple[int, ...], ...]
    """The positions of each word's tokens."""
    attribute: int
    target: int


def columns(lm: LM, question: Question) -> Columns:
    """The columns of a text: every word of it, up to the target if the model is causal.

    A word is a run as in `data.tokenize`; the attribute and the target are columns of their
    own even where something hangs on them ("man's"). Tokens without a letter or digit are
    punctuation.
    """
    text = question.text
    (encoded,) = lm.tokens.encode([text])
    attribute, target = (lm.tokens.at(encoded, span, text) for span in question[1:])
    if set(attribute) & set(target):
        raise NotReadable(
            f"attribute and target share a token of {text!r:.80}", mend="leave the pair out"
        )
    found: dict[object, list[int]] = {}
    for i in encoded.words():
        if lm.is_causal and i > target[-1]:
            break
        name = _word(encoded, i, text)
        key = "attribute" if i in attribute else "target" if i in target else name
        if key is not None:
            found.setdefault(key, []).append(i)
    ends = [(encoded.offsets[own[0]][0], encoded.offsets[own[-1]][1]) for own in found.values()]
    keys = list(found)
    if "attribute" not in keys:
        raise NotReadable(
            f"the attribute stands behind the target in {text!r:.80}",
            mend="leave the pair out: a causal model does not see it from there",
        )
    return Columns(
        tuple(text[begin:end].strip() for begin, end in ends),
        tuple(map(tuple, found.values())),
        keys.index("attribute"),
        keys.index("target"),
    )


def _word(encoded: Encoded, i: int, text: str) -> int | None:
    """Where the word begins that a token belongs to; None for punctuation."""
    low, high = encoded.offsets[i]
    if not re.search(r"\w", text[low:high]):
        return None
    holding = (match for match in WORD.finditer(text) if match.start() < high and match.end() > low)
    return next((match.start() for match in holding), low)


def normalised(row: torch.Tensor, over: Columns) -> torch.Tensor:
    """`[..., words]` of `[..., tokens]`: (a - min) / (max - min) of every row, in float64.

    Rows without any spread give NaN.
    """
    summed = torch.stack([row[..., list(own)].double().sum(-1) for own in over.tokens], dim=-1)
    low, high = summed.amin(-1, keepdim=True), summed.amax(-1, keepdim=True)
    spread = high - low
    flat = spread <= ROUNDING * high
    return torch.where(flat, torch.nan, (summed - low) / spread.masked_fill(flat, 1.0))


def on_attribute(
    lm: LM,
    questions: Sequence[Question],
    *,
    progress: Callable[[int, int], None] | None = None,
) -> list[torch.Tensor | str]:
    """`[2, layers, heads]` of each text, attention raw and value-weighted; or why it has none."""
    found: list[torch.Tensor | str] = []
    for start in range(0, len(questions), CHUNK):
        found += _chunk(lm, questions[start : start + CHUNK])
        if progress is not None:
            progress(min(start + CHUNK, len(questions)), len(questions))
    return found


def _chunk(lm: LM, questions: Sequence[Question]) -> list[torch.Tensor | str]:
    over: list[Columns | str] = []
    for question in questions:
        try:
            over.append(columns(lm, question))
        except NotReadable as error:
            over.append(error.what)
    asked = [one for one, own in zip(questions, over, strict=True) if not isinstance(own, str)]
    rows = iter(
        lm.attention_row([one.text for one in asked], [one.target for one in asked], weighted=True)
        if asked
        else ()
    )
    return [own if isinstance(own, str) else _on(next(rows), own) for own in over]


def _on(row: torch.Tensor, over: Columns) -> torch.Tensor | str:
    value = normalised(row, over)[..., over.attribute]
    return FLAT if value.isnan().any() else value
