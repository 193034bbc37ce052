"""The attention of a target on an attribute, made comparable between heads and sentences.

Yang et al. 2025, section 5.2 and footnote 12: row = the target, column = the attribute, min-max
normalised, without special tokens and punctuation. The paper leaves some choices open. Here, the
normalisation is of the target's row. A word of several subwords is one column, the sum of their
columns, and one row, the mean of their rows (Clark et al. 2019, section 4.1). In a causal model the
row ends with the target, because later words have no attention at all.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import torch

from levelhead.data.tokenize import WORD
from levelhead.models.inputs.tokenizer import UnreadableTextError
from levelhead.stats.degenerate import ROUNDING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from levelhead.explain.attention.pairs import AnnotatedSentence
    from levelhead.models.inputs.tokenizer import EncodedText
    from levelhead.models.lm import LM

# Attention rows of all layers and heads are large; a chunk bounds memory and shows progress.
CHUNK_SIZE = 256
"""Number of texts whose rows are in memory at a time."""
FLAT_ROW_REASON = "a head attends alike to all of its words"


class WordColumns(NamedTuple):
    """The words of a text over which a row is normalised."""

    words: tuple[str, ...]
    tokens: tuple[tuple[int, ...], ...]
    """Positions of the tokens of each word."""
    attribute: int
    target: int


def find_word_columns(lm: LM, sentence: AnnotatedSentence) -> WordColumns:
    """Columns of a text: all words, or those up to the target if the model is causal.

    A word is a run as in `data.tokenize`. The attribute and the target have separate columns even
    if a suffix is attached to them ("man's"). Tokens without a letter or digit are punctuation.
    """
    text = sentence.text
    (encoded,) = lm.tokens.encode([text])
    attribute, target = (lm.tokens.positions_of_word(encoded, span, text) for span in sentence[1:])
    # One column cannot be both: its attention would be that of the target on itself.
    if set(attribute) & set(target):
        raise UnreadableTextError(
            f"attribute and target share a token of {text!r:.80}", hint="leave the pair out"
        )
    positions_of_word: dict[object, list[int]] = {}
    for i in encoded.word_positions():
        # The causal mask gives later words an attention of 0: as columns, they would make 0 the
        # minimum of every row.
        if lm.is_causal and i > target[-1]:
            break
        name = _word_start(encoded, i, text)
        key = "attribute" if i in attribute else "target" if i in target else name
        if key is not None:
            positions_of_word.setdefault(key, []).append(i)
    ends = [
        (encoded.offsets[positions[0]][0], encoded.offsets[positions[-1]][1])
        for positions in positions_of_word.values()
    ]
    keys = list(positions_of_word)
    if "attribute" not in keys:
        raise UnreadableTextError(
            f"the attribute stands behind the target in {text!r:.80}",
            hint="leave the pair out: a causal model does not see it from there",
        )
    return WordColumns(
        tuple(text[begin:end].strip() for begin, end in ends),
        tuple(map(tuple, positions_of_word.values())),
        keys.index("attribute"),
        keys.index("target"),
    )


def _word_start(encoded: EncodedText, i: int, text: str) -> int | None:
    """Start of the word that a token belongs to; None for punctuation."""
    low, high = encoded.offsets[i]
    if not re.search(r"\w", text[low:high]):
        return None
    # A token may begin with the space before its word, so overlap counts, not the first character.
    matches = (match for match in WORD.finditer(text) if match.start() < high and match.end() > low)
    return next((match.start() for match in matches), low)


def normalise_attention(row: torch.Tensor, word_columns: WordColumns) -> torch.Tensor:
    """`[..., words]` from `[..., tokens]`: (a - min) / (max - min) of every row, in float64.

    Rows without any spread give NaN.
    """
    word_sums = torch.stack(
        [row[..., list(positions)].double().sum(-1) for positions in word_columns.tokens], dim=-1
    )
    low, high = word_sums.amin(-1, keepdim=True), word_sums.amax(-1, keepdim=True)
    spread = high - low
    # A head that attends alike to all words has only rounding as its spread, and division by it
    # would turn noise into scores.
    is_flat = spread <= ROUNDING * high
    return torch.where(is_flat, torch.nan, (word_sums - low) / spread.masked_fill(is_flat, 1.0))


def read_attribute_attention(
    lm: LM,
    sentences: Sequence[AnnotatedSentence],
    *,
    progress: Callable[[int, int], None] | None = None,
) -> list[torch.Tensor | str]:
    """`[2, layers, heads]` attention of each text, raw and value-weighted; or why there is none."""
    values: list[torch.Tensor | str] = []
    for start in range(0, len(sentences), CHUNK_SIZE):
        values += _read_chunk(lm, sentences[start : start + CHUNK_SIZE])
        if progress is not None:
            progress(min(start + CHUNK_SIZE, len(sentences)), len(sentences))
    return values


def _read_chunk(lm: LM, sentences: Sequence[AnnotatedSentence]) -> list[torch.Tensor | str]:
    # A text without values keeps its place, with the reason, so that pairs stay aligned.
    columns_or_reasons: list[WordColumns | str] = []
    for sentence in sentences:
        try:
            columns_or_reasons.append(find_word_columns(lm, sentence))
        except UnreadableTextError as error:
            columns_or_reasons.append(error.problem)
    readable = [
        sentence
        for sentence, word_columns in zip(sentences, columns_or_reasons, strict=True)
        if not isinstance(word_columns, str)
    ]
    # Value-weighted attention comes with it (Kobayashi et al. 2020): a large weight on a small
    # value moves little.
    rows = iter(
        lm.attention_row(
            [sentence.text for sentence in readable],
            [sentence.target for sentence in readable],
            weighted=True,
        )
        if readable
        else ()
    )
    return [
        word_columns
        if isinstance(word_columns, str)
        else _attribute_attention(next(rows), word_columns)
        for word_columns in columns_or_reasons
    ]


def _attribute_attention(row: torch.Tensor, word_columns: WordColumns) -> torch.Tensor | str:
    value = normalise_attention(row, word_columns)[..., word_columns.attribute]
    return FLAT_ROW_REASON if value.isnan().any() else value
