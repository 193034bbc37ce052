"""Build queries of words in the blank of a text.

A word is first put into the text, so that it gets the tokens that it has there (capital letters,
the space before it); then these tokens are masked. Words of one token share a row. In causal models
whose rows may branch, words of several tokens share a row as well.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple, cast

from levelhead.core.errors import LevelheadError
from levelhead.models.inputs.token_tree import build_token_tree, max_tree_length
from levelhead.models.inputs.tokenizer import (
    MASK,
    TextTooLongError,
    TokenRow,
    UnreadableTextError,
    validate_texts,
)
from levelhead.models.queries.query import (
    LogProbs,
    Query,
    ScoredPosition,
    TokenProbs,
    TopKTokens,
    WordsAndTopK,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.models.editable_model import EditableModel
    from levelhead.models.inputs.tokenizer import Span, Tokens


class WordPlacement(NamedTuple):
    """A text with one word in its blank: the row, and the positions of the word's tokens."""

    row: TokenRow
    positions: range


def build_lm_fill_words_query(
    lm: EditableModel,
    texts: Sequence[str],
    words: Sequence[str],
    masked_spans: Sequence[Span | None] | None = None,
    *,
    use_kurita_position: bool = False,
    top_k: int = 0,
) -> Query:
    """Build a query of each word in the blank of each text.

    It gives `[texts, words + 2 * top_k + 1]`; the last column is spare and has no meaning.

    Args:
        lm: Masked or causal model.
        texts: Texts, each with one blank.
        words: Words to score in the blank.
        masked_spans: Characters of each text that are masked as well, which gives a prior for the
            blank without them.
        use_kurita_position: Read this prior at the token before the masked span, as the published
            code of Kurita et al. 2019 does by mistake.
        top_k: Number of likeliest tokens to read in addition, as `build_lm_top_k_query` does.
    """
    validate_texts(texts)
    if isinstance(words, str) or not words or not all(word.strip() for word in words):
        raise LevelheadError(
            f"words must be a non-empty list: {words!r:.60}",
            hint="give at least one word, in a list",
        )
    causal = lm.layout.model_class.causal
    if causal:
        # Raises if a text goes on after its blank.
        for text in texts:
            _text_before_blank(str(text))
    # A prior needs a mask token, which causal models do not have.
    if causal and any(masked_spans or ()):
        raise LevelheadError("a causal model cannot mask words", hint="use a masked model")
    build_rows = build_causal_rows if causal else _masked_rows
    rows: list[TokenRow] = []
    targets: list[tuple[ScoredPosition, ...]] = []
    items: list[int] = []
    for item, placements in enumerate(
        _place_words(lm.tokens, [str(text) for text in texts], words)
    ):
        span, masked_start = masked_spans[item] if masked_spans else None, 0
        if span:
            placements, masked_start = _mask_span(
                lm.tokens, str(texts[item]), words[0], span, placements
            )
        if span and use_kurita_position and any(len(positions) > 1 for _, positions in placements):
            raise UnreadableTextError(
                "the published prior is defined only for words of one token",
                hint="leave out kurita_compat",
            )
        for row, row_targets in build_rows(lm, placements):
            rows.append(row)
            shifted = tuple(target._replace(position=masked_start - 1) for target in row_targets)
            targets.append(shifted if span and use_kurita_position else row_targets)
            items.append(item)
    # Values that serve only as padding are added to a column after those of the words.
    spare = len(words)
    blank_positions = (
        _add_blank_rows(lm, texts, top_k, rows, targets, items, spare) if top_k else ()
    )
    readout = LogProbs(pad_targets(targets, spare), columns=spare + 1)
    return Query(
        tuple(rows),
        WordsAndTopK(readout, blank_positions, top_k) if top_k else readout,
        tuple(items),
    )


def pad_targets(
    targets: Sequence[tuple[ScoredPosition, ...]], spare: int
) -> tuple[tuple[ScoredPosition, ...], ...]:
    """Let all positions score equally many tokens, as a batch is a rectangle.

    Rows that read fewer words repeat one of them into the spare column.
    """
    max_ids = max(len(target.ids) for row in targets for target in row)
    return tuple(
        tuple(
            ScoredPosition(
                position,
                ids + ids[-1:] * (max_ids - len(ids)),
                columns + (spare,) * (max_ids - len(ids)),
            )
            for position, ids, columns in row
        )
        for row in targets
    )


def _add_blank_rows(
    lm: EditableModel,
    texts: Sequence[str],
    top_k: int,
    rows: list[TokenRow],
    targets: list[tuple[ScoredPosition, ...]],
    items: list[int],
    spare: int,
) -> tuple[int | None, ...]:
    """Find the row with the original blank of each text; missing rows are added.

    The row exists if a word has one token, or if the model is causal.

    Returns:
        For every row, the position of the blank, or None if the row does not show it.
    """
    query = build_lm_top_k_query(lm, texts, top_k)
    readout = cast("TopKTokens", query.readout)
    causal = lm.layout.model_class.causal

    def visible_part(row: TokenRow, position: int) -> object:
        """Return what a position depends on, in a row without branches before it."""
        return row.ids[: position + 1] if causal else row

    row_of = {
        (item, visible_part(row, target.position), target.position): i
        for i, (item, row) in enumerate(zip(items, rows, strict=True))
        for target in targets[i]
        if row.parents[: target.position + 1] in ((), tuple(range(-1, target.position)))
    }
    blank_of_row: dict[int, int] = {}
    for item, (row, position) in enumerate(zip(query.rows, readout.positions, strict=True)):
        row_index = row_of.get((item, visible_part(row, position), position))
        if row_index is None:
            row_index = len(rows)
            rows.append(row)
            targets.append((ScoredPosition(position, (row.ids[position],), (spare,)),))
            items.append(item)
        blank_of_row[row_index] = position
    return tuple(blank_of_row.get(i) for i in range(len(rows)))


def build_lm_score_word_query(
    lm: EditableModel, texts: Sequence[str], words: Sequence[str]
) -> tuple[Query, list[int]]:
    """Build a query of one word in the blank of each text, as Nadeem et al. 2021.

    Tokens are scored from left to right: the earlier tokens of the word are present, the later ones
    are absent, so the model does not know how long the word is. Probabilities are summed, not their
    logarithms.

    Args:
        lm: Masked model.
        texts: Texts, each with one blank.
        words: One word for each text.

    Returns:
        The query, and the number of tokens of each word.
    """
    rows, targets, items, counts = [], [], [], []
    pairs = [(str(text), word) for text, word in zip(validate_texts(texts), words, strict=True)]
    for item, (row, positions) in enumerate(_tokenize_with_words(lm.tokens, pairs)):
        end = positions[-1] + 1
        counts.append(len(positions))
        for position in positions:
            # One mask for the current token, and none for later ones.
            ids = (*row.ids[:position], lm.tokens.mask, *row.ids[end:])
            rows.append(
                TokenRow(
                    ids, row.token_types and row.token_types[: position + 1] + row.token_types[end:]
                )
            )
            targets.append(ScoredPosition(position, (row.ids[position],), (0,)))
            items.append(item)
    return Query(tuple(rows), TokenProbs(tuple(targets)), tuple(items)), counts


def build_lm_top_k_query(lm: EditableModel, texts: Sequence[str], k: int) -> Query:
    """Build a query of the k likeliest tokens for the blank of each text."""
    size = int(lm.layout.model.config.vocab_size)
    if not 0 < k <= size:
        raise LevelheadError(
            f"the vocabulary has {size} tokens, not {k}", hint=f"give a k from 1 to {size}"
        )
    if lm.layout.model_class.causal:
        encoded = lm.tokens.encode(
            [_text_before_blank(str(text)) for text in validate_texts(texts)]
        )
        rows = tuple(encoded_text.row for encoded_text in encoded)
        return Query(rows, TopKTokens(tuple(len(row.ids) - 1 for row in rows), k))
    mask = str(lm.tokens.tokenizer.mask_token)
    masked_texts = [mask.join(_split_at_blank(str(text))) for text in validate_texts(texts)]
    rows = tuple(encoded_text.row for encoded_text in lm.tokens.encode(masked_texts, blanks=1))
    return Query(rows, TopKTokens(tuple(row.ids.index(lm.tokens.mask) for row in rows), k))


def _place_words(
    tokens: Tokens, texts: Sequence[str], words: Sequence[str]
) -> list[list[WordPlacement]]:
    """Put every word into every text.

    If a tokenizer first splits texts at spaces, a word's tokens depend only on the characters that
    it touches: words are tokenized once for each such context, and each text once instead of once
    for every word.
    """
    pre_tokenizer = tokens.tokenizer.backend_tokenizer.pre_tokenizer
    # Some pre-tokenizers mark spaces without splitting there.
    if pre_tokenizer is None or len(pre_tokenizer.pre_tokenize_str("a b")) < 2:
        return [_tokenize_with_words(tokens, [(text, word) for word in words]) for text in texts]
    texts_by_context: dict[tuple[str, str, bool], list[int]] = defaultdict(list)
    for i, text in enumerate(texts):
        texts_by_context[_blank_context(text)].append(i)
    placements: dict[int, list[WordPlacement]] = {}
    for first, *rest in texts_by_context.values():
        placements[first] = _tokenize_with_words(tokens, [(texts[first], word) for word in words])
        pieces = [row.ids[positions[0] : positions[-1] + 1] for row, positions in placements[first]]
        frames = _tokenize_with_words(tokens, [(texts[i], words[0]) for i in rest]) if rest else []
        for i, frame in zip(rest, frames, strict=True):
            placements[i] = [_replace_word(tokens, frame, piece) for piece in pieces]
    return [placements[i] for i in range(len(texts))]


def _blank_context(text: str) -> tuple[str, str, bool]:
    """Return what a word in the blank touches: characters on both sides, space, start of text."""
    before, after = _split_at_blank(text)
    spaces = before[len(before.rstrip()) :]
    left, right = before.split()[-1:], after.split()[:1]
    return (
        "".join(left if not spaces else ()) + spaces,
        after[0] if after[:1].isspace() else "".join(right),
        not before.strip(),
    )


def _tokenize_with_words(tokens: Tokens, pairs: Sequence[tuple[str, str]]) -> list[WordPlacement]:
    """Tokenize texts with a word in the blank.

    A token that is only the space before the word belongs to the word: without it, words whose
    first letter starts a new token would be too likely.
    """
    contexts = [_split_at_blank(text) for text, _ in pairs]
    full_texts = [
        before + word + after for (before, after), (_, word) in zip(contexts, pairs, strict=True)
    ]
    placements = []
    for (before, _), (_, word), full, encoded_text in zip(
        contexts, pairs, full_texts, tokens.encode(full_texts), strict=True
    ):
        # From the end of the text before, so that the space before the word is included.
        span = (len(before.rstrip()), len(before) + len(word))
        positions = tokens.positions_of_span(encoded_text, span, full)
        placements.append(WordPlacement(encoded_text.row, range(positions[0], positions[-1] + 1)))
    return placements


def _replace_word(tokens: Tokens, frame: WordPlacement, piece: tuple[int, ...]) -> WordPlacement:
    """Replace the word's tokens in a row by those of another word."""
    (ids, token_types, _), begin, end = frame.row, frame.positions[0], frame.positions[-1] + 1
    new_ids = ids[:begin] + piece + ids[end:]
    # `encode` checked the length with another word; this word may have more tokens.
    if len(new_ids) > tokens.max_length:
        raise TextTooLongError(
            f"a text with its word has {len(new_ids)} tokens, but the model accepts at most "
            f"{tokens.max_length}",
            hint="shorten it, or leave it out and count it as dropped",
        )
    if token_types is not None:
        token_types = (
            token_types[:begin] + token_types[begin : begin + 1] * len(piece) + token_types[end:]
        )
    return WordPlacement(TokenRow(new_ids, token_types), range(begin, begin + len(piece)))


def _mask_span(
    tokens: Tokens, text: str, word: str, span: Span, placements: Sequence[WordPlacement]
) -> tuple[list[WordPlacement], int]:
    """Mask the characters of a span in rows with words; returns the rows and the span's start.

    `word` is the first of the placed words: positions after the blank shift with a word's length.
    """
    before, after = _split_at_blank(text)
    start, end = span
    if end > len(before) and start < len(before) + len(MASK):
        raise LevelheadError(
            "the masked span contains the blank", hint="give the span of another word"
        )
    # The span counts characters of the text with the blank, which the word replaces.
    offset = len(word) - len(MASK) if start > len(before) else 0
    full = before + word + after
    (encoded,) = tokens.encode([full])
    positions = tokens.positions_of_word(encoded, (start + offset, end + offset), full)
    first = placements[0].positions
    masked_placements = []
    for row, word_positions in placements:
        shift = len(word_positions) - len(first) if positions[0] > first[-1] else 0
        ids = list(row.ids)
        for position in positions:
            ids[position + shift] = tokens.mask
        masked_placements.append(WordPlacement(row._replace(ids=tuple(ids)), word_positions))
    return masked_placements, positions[0]


def _masked_rows(
    lm: EditableModel, words: Sequence[WordPlacement]
) -> list[tuple[TokenRow, tuple[ScoredPosition, ...]]]:
    """Build rows that score a word's tokens from left to right, its later tokens masked.

    Equal rows are shared: all words with the same number of tokens share the row where all of them
    are masked.
    """
    targets_of_row: dict[tuple[TokenRow, int], list[tuple[int, int]]] = defaultdict(list)
    for column, (row, positions) in enumerate(words):
        for n, position in enumerate(positions):
            targets_of_row[_mask_word(lm.tokens, row, positions[n:]), position].append(
                (row.ids[position], column)
            )
    return [
        (row, (ScoredPosition(position, *zip(*pairs, strict=True)),))
        for (row, position), pairs in targets_of_row.items()
    ]


def build_causal_rows(
    lm: EditableModel, words: Sequence[WordPlacement]
) -> list[tuple[TokenRow, tuple[ScoredPosition, ...]]]:
    """Build rows that read first tokens at the end of the text before the blank, others after it.

    In a causal model, scores at a token do not depend on later tokens, so all first tokens share
    one row; the other tokens share it too if rows may have branches.
    """
    words_of_stem: dict[tuple[int, ...], list[tuple[int, tuple[int, ...]]]] = {}
    for column, (row, positions) in enumerate(words):
        begin = positions[0]
        if begin == 0:
            raise UnreadableTextError(
                "there is no token before the blank of a text",
                hint="write a text before [MASK], or load the model with bos='always'",
            )
        words_of_stem.setdefault(row.ids[:begin], []).append(
            (column, row.ids[begin : positions[-1] + 1])
        )
    max_length, rows = max_tree_length(lm.layout, lm.tokens), []
    for stem, stem_words in words_of_stem.items():
        columns, pieces = zip(*stem_words, strict=True)
        tree_row, target_positions = build_token_tree(stem, pieces)
        # A row without further tokens needs no branches, so any model can run it.
        if len(tree_row.ids) == len(stem) or len(tree_row.ids) <= max_length:
            rows.append((tree_row, _make_targets(columns, pieces, target_positions)))
        else:
            rows += _separate_rows(stem, columns, pieces)
    return rows


def _separate_rows(
    stem: tuple[int, ...], columns: Sequence[int], pieces: Sequence[tuple[int, ...]]
) -> list[tuple[TokenRow, tuple[ScoredPosition, ...]]]:
    """Build rows without branches: each word of several tokens has a separate row."""
    end = len(stem) - 1
    first_targets = _make_targets(columns, [piece[:1] for piece in pieces], [(end,)] * len(pieces))
    rows = [(TokenRow(stem, None), first_targets)]
    for column, piece in zip(columns, pieces, strict=True):
        if len(piece) > 1:
            later = tuple(
                ScoredPosition(end + n, (piece[n],), (column,)) for n in range(1, len(piece))
            )
            rows.append((TokenRow((*stem, *piece[:-1]), None), later))
    return rows


def _make_targets(
    columns: Sequence[int],
    pieces: Sequence[tuple[int, ...]],
    positions: Sequence[tuple[int, ...]],
) -> tuple[ScoredPosition, ...]:
    """Group tokens and columns by the position of a row where they are scored."""
    tokens_at_position: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for column, piece, word_positions in zip(columns, pieces, positions, strict=True):
        for position, token in zip(word_positions, piece, strict=True):
            tokens_at_position[position].append((token, column))
    return tuple(
        ScoredPosition(position, *zip(*pairs, strict=True))
        for position, pairs in tokens_at_position.items()
    )


def _mask_word(tokens: Tokens, row: TokenRow, positions: range) -> TokenRow:
    mask = (tokens.mask,) * len(positions)
    return row._replace(ids=row.ids[: positions[0]] + mask + row.ids[positions[-1] + 1 :])


def _split_at_blank(text: str) -> tuple[str, str]:
    if text.count(MASK) != 1:
        raise LevelheadError(
            f"{text!r:.80} has {text.count(MASK)} blanks",
            hint=f"write {MASK} exactly once, also if the model has another mask token",
        )
    before, _, after = text.partition(MASK)
    return before, after


def _text_before_blank(text: str) -> str:
    before, after = _split_at_blank(text)
    if after.strip():
        raise LevelheadError(
            f"a causal model cannot fill a blank inside a text: {text!r:.80}",
            hint=f"end the text with {MASK}, or score complete texts with log_prob",
        )
    # Without the space before the blank: it belongs to the token of the word.
    return before.rstrip()
