"""From texts to Readings: which rows are run for a verb, and which tokens of them are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.core.errors import LevelheadError, UnknownName
from levelhead.models.readings import (
    AttentionRows,
    Classes,
    LogProbs,
    Reading,
    States,
    Target,
    TopWords,
)
from levelhead.models.tokens import MASK, Row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.models.lm import LM, Pooling
    from levelhead.models.readings import Part
    from levelhead.models.sites import Site
    from levelhead.models.tokens import Encoded, Span

Summed = tuple[Reading, list[int], int]
"""A reading, the item each of its rows belongs to, and how many items there are."""


def embedding(
    lm: LM, texts: Sequence[str], spans: Sequence[Span] | None, pooling: Pooling | None
) -> Reading:
    """Last hidden states of words or sentences."""
    return states(lm, texts, (), spans, pooling)


def states(
    lm: LM,
    texts: Sequence[str],
    sites: Sequence[Site],
    spans: Sequence[Span] | None,
    pooling: Pooling | None,
) -> Reading:
    """Activations at sites (none: the last hidden state) of words or sentences."""
    encoded = lm.tokens.encode(texts)
    if spans is None:
        tokens = tuple(_pooled(lm, one, pooling) for one in encoded)
    else:
        tokens = _at_spans(lm, encoded, texts, spans)
    part: Part = "hidden"
    if any(site.stream == "pooled" for site in sites):
        row = lm.anatomy.cls
        part = "classifier" if row.classifier else "next_sentence" if row.next_sentence else part
    return Reading(_rows(encoded), States(tokens, tuple(sites), part))


def attention(lm: LM, texts: Sequence[str], spans: Sequence[Span]) -> Reading:
    """The attention of a word of each text on all tokens."""
    encoded = lm.tokens.encode(texts)
    return Reading(_rows(encoded), AttentionRows(_at_spans(lm, encoded, texts, spans)))


def follows(lm: LM, pairs: Sequence[tuple[str, str]]) -> Reading:
    """Whether one text follows another."""
    return Reading(
        _rows(lm.tokens.encode([(first, second) for first, second in pairs])),
        Classes("next_sentence"),
    )


def classes(lm: LM, texts: Sequence[str | tuple[str, str]]) -> Reading:
    """The classifier's classes."""
    return Reading(_rows(lm.tokens.encode(texts)), Classes("classifier"))


def continuing(
    lm: LM, texts: Sequence[str], spans: Sequence[Sequence[Span]] | None
) -> tuple[Reading, list[int], list[int]]:
    """A causal model's log-probability: every token is read at the position before it."""
    encoded = lm.tokens.encode(texts)
    wanted = [[i for i in one if i > 0] for one in _scored(lm, encoded, texts, spans)]
    _check_scored(wanted, texts)
    targets = tuple(
        tuple(Target(i - 1, (one.row.ids[i],), (0,)) for i in positions)
        for one, positions in zip(encoded, wanted, strict=True)
    )
    reading = Reading(_rows(encoded), LogProbs(targets, columns=1))
    return reading, list(range(len(texts))), [len(positions) for positions in wanted]


def masking(
    lm: LM, texts: Sequence[str], spans: Sequence[Sequence[Span]] | None
) -> tuple[Reading, list[int], list[int]]:
    """A masked model's pseudo log-likelihood: a row for every token, with that token masked."""
    encoded = lm.tokens.encode(texts)
    wanted = _scored(lm, encoded, texts, spans)
    _check_scored(wanted, texts)
    rows, targets, items = [], [], []
    for item, (one, positions) in enumerate(zip(encoded, wanted, strict=True)):
        for i in positions:
            rows.append(_with(one.row, {i: lm.tokens.mask}))
            targets.append((Target(i, (one.row.ids[i],), (0,)),))
            items.append(item)
    reading = Reading(tuple(rows), LogProbs(tuple(targets), columns=1))
    return reading, items, [len(positions) for positions in wanted]


def filling(lm: LM, texts: Sequence[str], words: Sequence[str]) -> Summed:
    """Each word in the blank of each text.

    The word is put into the text, so that its tokens are those it has there (capital letters, the
    blank before it); then they are masked again. Words of one token share a row.
    """
    if not words:
        raise LevelheadError("there is no word to fill in", mend="give at least one word")
    one = _filling_causal if lm.anatomy.cls.causal else _filling_masked
    rows: list[Row] = []
    targets: list[tuple[Target, ...]] = []
    items: list[int] = []
    for item, text in enumerate(texts):
        for row, target in one(lm, text, words):
            rows.append(row)
            targets.append(target)
            items.append(item)
    # A batch is one rectangle: rows that read fewer words repeat one into a spare column.
    most = max(len(target.ids) for row in targets for target in row)
    spare = len(words)
    level = tuple(
        tuple(
            Target(
                position,
                ids + ids[-1:] * (most - len(ids)),
                columns + (spare,) * (most - len(ids)),
            )
            for position, ids, columns in row
        )
        for row in targets
    )
    reading = Reading(tuple(rows), LogProbs(level, columns=spare + 1))
    return reading, items, len(texts)


def likeliest(lm: LM, texts: Sequence[str], k: int) -> Reading:
    """The likeliest tokens for the blank of each text."""
    if lm.anatomy.cls.causal:
        encoded = lm.tokens.encode([_open_end(text) for text in texts])
        return Reading(_rows(encoded), TopWords(tuple(len(one.row.ids) - 1 for one in encoded), k))
    marked = [_blank(text) for text in texts]
    mask = str(lm.tokens.tokenizer.mask_token)
    encoded = lm.tokens.encode([before + mask + after for before, after in marked])
    positions = [one.row.ids.index(lm.tokens.mask) for one in encoded]
    return Reading(_rows(encoded), TopWords(tuple(positions), k))


def _filling_masked(
    lm: LM, text: str, words: Sequence[str]
) -> list[tuple[Row, tuple[Target, ...]]]:
    before, after = _blank(text)
    single: dict[Row, dict[int, list[tuple[int, int]]]] = {}
    several = []
    span = [(len(before), len(before) + len(word)) for word in words]
    for column, one in enumerate(lm.tokens.encode([before + word + after for word in words])):
        places = lm.tokens.at(one, span[column], before + words[column] + after)
        if len(places) == 1:
            row = _with(one.row, {places[0]: lm.tokens.mask})
            single.setdefault(row, {}).setdefault(places[0], []).append(
                (one.row.ids[places[0]], column)
            )
            continue
        for n, place in enumerate(places):
            row = _with(one.row, dict.fromkeys(places[n:], lm.tokens.mask))
            several.append((row, (Target(place, (one.row.ids[place],), (column,)),)))
    together = [
        (row, tuple(Target(place, *zip(*pairs, strict=True)) for place, pairs in places.items()))
        for row, places in single.items()
    ]
    return together + several


def _filling_causal(
    lm: LM, text: str, words: Sequence[str]
) -> list[tuple[Row, tuple[Target, ...]]]:
    before = _open_end(text)
    start = len(text.partition(MASK)[0])
    found = []
    for column, one in enumerate(lm.tokens.encode([text.replace(MASK, word) for word in words])):
        places = lm.tokens.at(one, (start, start + len(words[column])), before)
        targets = tuple(Target(i - 1, (one.row.ids[i],), (column,)) for i in places)
        if places[0] == 0:
            raise LevelheadError(
                f"nothing stands before the blank of {text!r:.60}",
                mend="write a text before [MASK], or load the model with bos='always'",
            )
        found.append((one.row, targets))
    return found


def _blank(text: str) -> tuple[str, str]:
    if text.count(MASK) != 1:
        raise LevelheadError(
            f"{text!r:.80} has {text.count(MASK)} blanks",
            mend=f"write {MASK} exactly once, whatever the model's own mask token is",
        )
    before, _, after = text.partition(MASK)
    return before, after


def _open_end(text: str) -> str:
    before, after = _blank(text)
    if after.strip():
        raise LevelheadError(
            f"a causal model cannot fill a blank inside a text: {text!r:.80}",
            mend=f"end the text with {MASK}, or score whole texts with log_prob",
        )
    return before.rstrip()


def _rows(encoded: Sequence[Encoded]) -> tuple[Row, ...]:
    return tuple(one.row for one in encoded)


def _with(row: Row, changes: dict[int, int]) -> Row:
    return row._replace(ids=tuple(changes.get(i, token) for i, token in enumerate(row.ids)))


def _pooled(lm: LM, encoded: Encoded, pooling: Pooling | None) -> tuple[int, ...]:
    words = encoded.words()
    ways = {
        "mean": words,
        "first": (0,),
        "last": (len(encoded.row.ids) - 1,),
    }
    default = "last" if lm.is_decoder else "first"
    if (chosen := pooling or default) not in ways:
        raise UnknownName("pooling", str(chosen), ways)
    return ways[chosen]


def _at_spans(
    lm: LM, encoded: Sequence[Encoded], texts: Sequence[str], spans: Sequence[Span]
) -> tuple[tuple[int, ...], ...]:
    _same_length(texts, spans)
    return tuple(
        lm.tokens.at(one, span, text) for one, span, text in zip(encoded, spans, texts, strict=True)
    )


def _scored(
    lm: LM,
    encoded: Sequence[Encoded],
    texts: Sequence[str],
    spans: Sequence[Sequence[Span]] | None,
) -> list[list[int]]:
    if spans is None:
        return [list(one.words()) for one in encoded]
    _same_length(texts, spans)
    return [
        sorted({i for span in own for i in lm.tokens.at(one, span, text)})
        for one, own, text in zip(encoded, spans, texts, strict=True)
    ]


def _check_scored(wanted: Sequence[Sequence[int]], texts: Sequence[str]) -> None:
    for i, positions in enumerate(wanted):
        if not positions:
            raise LevelheadError(
                f"no token of text {i} can be scored: {texts[i]!r:.60}",
                mend="leave it out, or load a causal model with bos='always'",
            )


def _same_length(texts: Sequence[str], spans: Sequence[object]) -> None:
    if len(texts) != len(spans):
        raise LevelheadError(
            f"{len(texts)} texts and {len(spans)} spans", mend="give one for each text"
        )
