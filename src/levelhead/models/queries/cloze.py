"""Words in the blank of a text: which rows are run, and which tokens of them are read.

A word is put into the text, so that its tokens are those it has there (capital letters, the space
before it); then they are masked again. Words of one token share a row; those of several do, too, in
causal models whose rows may branch.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple, cast

from levelhead.core.errors import LevelheadError
from levelhead.models.inputs.token_tree import longest, tree
from levelhead.models.inputs.tokenizer import MASK, NotReadable, Row, TooLong, listed
from levelhead.models.queries.query import LogProbs, Probs, Reading, Target, TopWords, WordsAndBest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.models.inputs.tokenizer import Span, Tokens
    from levelhead.models.lm import LM


class Placed(NamedTuple):
    """A text with one word in its blank: the row, and the positions of the word's tokens."""

    row: Row
    places: range


def filling(
    lm: LM,
    texts: Sequence[str],
    words: Sequence[str],
    hidden: Sequence[Span | None] | None = None,
    *,
    before_hidden: bool = False,
    best: int = 0,
) -> Reading:
    """Each word in the blank of each text; `[texts, words + 2 best + 1]`, the last to be left out.

    Args:
        lm: a masked or causal model.
        texts: each with one blank.
        words: what may stand there.
        hidden: characters of each text that are masked, too: a prior for the blank without them.
        before_hidden: the published code of Kurita et al. 2019 reads this prior by mistake at the
            token before what is hidden.
        best: how many of the likeliest tokens are read beside, as `likeliest` gives them.
    """
    listed(texts)
    if isinstance(words, str) or not words or not all(word.strip() for word in words):
        raise LevelheadError(
            f"no list of words to fill in: {words!r:.60}", mend="give at least one word, in a list"
        )
    causal = lm.anatomy.cls.causal
    if causal:
        for text in texts:
            _open_end(str(text))
    if causal and any(hidden or ()):
        raise LevelheadError("a causal model cannot hide words", mend="use a masked model")
    one = _causal if causal else _masked
    rows: list[Row] = []
    targets: list[tuple[Target, ...]] = []
    items: list[int] = []
    for item, placed in enumerate(_placed(lm, [str(text) for text in texts], words)):
        span, at = hidden[item] if hidden else None, 0
        if span:
            placed, at = _hidden(lm.tokens, str(texts[item]), words[0], span, placed)
        if span and before_hidden and any(len(places) > 1 for _, places in placed):
            raise NotReadable(
                "the published prior is of words of one token", mend="leave out kurita_compat"
            )
        for row, target in one(lm, placed):
            rows.append(row)
            early = tuple(each._replace(position=at - 1) for each in target)
            targets.append(early if span and before_hidden else target)
            items.append(item)
    spare = len(words)
    blank = _blank_rows(lm, texts, best, rows, targets, items, spare) if best else ()
    # A batch is one rectangle: rows that read fewer words repeat one into a spare column.
    most = max(len(target.ids) for row in targets for target in row)
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
    read = LogProbs(level, columns=spare + 1)
    return Reading(tuple(rows), WordsAndBest(read, blank, best) if best else read, tuple(items))


def _blank_rows(
    lm: LM,
    texts: Sequence[str],
    best: int,
    rows: list[Row],
    targets: list[tuple[Target, ...]],
    items: list[int],
    spare: int,
) -> tuple[int | None, ...]:
    """Where the blank of a text is, in the row that shows it as it is; rows that lack are added.

    That row is there if a word has one token, or the model is causal.
    """
    reading = likeliest(lm, texts, best)
    readout = cast("TopWords", reading.readout)
    causal = lm.anatomy.cls.causal

    def shown(row: Row, place: int) -> object:
        """What the model sees of a row at a place that no branch comes before."""
        return row.ids[: place + 1] if causal else row

    own = {
        (item, shown(row, target.position), target.position): i
        for i, (item, row) in enumerate(zip(items, rows, strict=True))
        for target in targets[i]
        if row.after[: target.position + 1] in ((), tuple(range(-1, target.position)))
    }
    found: dict[int, int] = {}
    for item, (row, place) in enumerate(zip(reading.rows, readout.positions, strict=True)):
        at = own.get((item, shown(row, place), place))
        if at is None:
            at = len(rows)
            rows.append(row)
            targets.append((Target(place, (row.ids[place],), (spare,)),))
            items.append(item)
        found[at] = place
    return tuple(found.get(i) for i in range(len(rows)))


def putting(lm: LM, texts: Sequence[str], words: Sequence[str]) -> tuple[Reading, list[int]]:
    """One word in the blank of each text, as Nadeem et al. 2021 do; and how many tokens each has.

    From left to right, a word's earlier tokens shown and later ones absent: the model is not told
    how long the word is. Probabilities are added up, not their logarithms.
    """
    rows, targets, items, counts = [], [], [], []
    pairs = [(str(text), word) for text, word in zip(listed(texts), words, strict=True)]
    for item, (row, places) in enumerate(_whole(lm.tokens, pairs)):
        end = places[-1] + 1
        counts.append(len(places))
        for place in places:
            ids = (*row.ids[:place], lm.tokens.mask, *row.ids[end:])
            rows.append(Row(ids, row.types and row.types[: place + 1] + row.types[end:]))
            targets.append(Target(place, (row.ids[place],), (0,)))
            items.append(item)
    return Reading(tuple(rows), Probs(tuple(targets)), tuple(items)), counts


def likeliest(lm: LM, texts: Sequence[str], k: int) -> Reading:
    """The likeliest tokens for the blank of each text."""
    size = int(lm.anatomy.model.config.vocab_size)
    if not 0 < k <= size:
        raise LevelheadError(f"the {k} likeliest of {size} words", mend=f"ask for 1 to {size}")
    if lm.anatomy.cls.causal:
        encoded = lm.tokens.encode([_open_end(str(text)) for text in listed(texts)])
        rows = tuple(one.row for one in encoded)
        return Reading(rows, TopWords(tuple(len(row.ids) - 1 for row in rows), k))
    mask = str(lm.tokens.tokenizer.mask_token)
    marked = [mask.join(_blank(str(text))) for text in listed(texts)]
    rows = tuple(one.row for one in lm.tokens.encode(marked, blanks=1))
    return Reading(rows, TopWords(tuple(row.ids.index(lm.tokens.mask) for row in rows), k))


def _placed(lm: LM, texts: Sequence[str], words: Sequence[str]) -> list[list[Placed]]:
    """Every word in every text.

    Where a tokenizer cuts texts at blanks before anything else, a word's tokens depend on what it
    touches alone: they are found out once, and each text is tokenized once, not for every word.
    """
    tokens = lm.tokens
    cutter = tokens.tokenizer.backend_tokenizer.pre_tokenizer
    if cutter is None or len(cutter.pre_tokenize_str("a b")) < 2:  # some only mark the blanks
        return [_whole(tokens, [(text, word) for word in words]) for text in texts]
    alike: dict[tuple[str, str, bool], list[int]] = defaultdict(list)
    for i, text in enumerate(texts):
        alike[_touching(text)].append(i)
    found: dict[int, list[Placed]] = {}
    for first, *others in alike.values():
        found[first] = _whole(tokens, [(texts[first], word) for word in words])
        pieces = [row.ids[places[0] : places[-1] + 1] for row, places in found[first]]
        frames = _whole(tokens, [(texts[i], words[0]) for i in others]) if others else []
        for i, frame in zip(others, frames, strict=True):
            found[i] = [_put(tokens, frame, piece) for piece in pieces]
    return [found[i] for i in range(len(texts))]


def _touching(text: str) -> tuple[str, str, bool]:
    """What a word in the blank touches: its run on either side, the space before, a beginning."""
    before, after = _blank(text)
    run = before[len(before.rstrip()) :]
    left, right = before.split()[-1:], after.split()[:1]
    return (
        "".join(left if not run else ()) + run,
        after[0] if after[:1].isspace() else "".join(right),
        not before.strip(),
    )


def _whole(tokens: Tokens, pairs: Sequence[tuple[str, str]]) -> list[Placed]:
    """Texts with a word in the blank, all of it tokenized.

    A token that is only the space before the word belongs to it: without it, words whose first
    letter starts a token of its own would be too likely.
    """
    cut = [_blank(text) for text, _ in pairs]
    whole = [before + word + after for (before, after), (_, word) in zip(cut, pairs, strict=True)]
    found = []
    for (before, _), (_, word), full, one in zip(
        cut, pairs, whole, tokens.encode(whole), strict=True
    ):
        span = (len(before.rstrip()), len(before) + len(word))
        places = tokens.of_word(one, span, full)
        found.append(Placed(one.row, range(places[0], places[-1] + 1)))
    return found


def _put(tokens: Tokens, frame: Placed, piece: tuple[int, ...]) -> Placed:
    """Another word's tokens in the place of the frame's."""
    (ids, types, _), begin, end = frame.row, frame.places[0], frame.places[-1] + 1
    whole = ids[:begin] + piece + ids[end:]
    if len(whole) > tokens.limit:
        raise TooLong(
            f"a text with its word has {len(whole)} tokens, the model reads {tokens.limit}",
            mend="shorten it, or leave it out and count it as dropped",
        )
    if types is not None:
        types = types[:begin] + types[begin : begin + 1] * len(piece) + types[end:]
    return Placed(Row(whole, types), range(begin, begin + len(piece)))


def _hidden(
    tokens: Tokens, text: str, word: str, span: Span, placed: Sequence[Placed]
) -> tuple[list[Placed], int]:
    """The same rows with the characters of a span masked, and where these begin.

    `word` is the first of those placed: what lies behind the blank moves with their lengths.
    """
    before, after = _blank(text)
    start, end = span
    if end > len(before) and start < len(before) + len(MASK):
        raise LevelheadError("the blank itself is hidden", mend="give the span of another word")
    moved = len(word) - len(MASK) if start > len(before) else 0
    full = before + word + after
    (encoded,) = tokens.encode([full])
    places = tokens.at(encoded, (start + moved, end + moved), full)
    first = placed[0].places
    found = []
    for row, own in placed:
        shift = len(own) - len(first) if places[0] > first[-1] else 0
        ids = list(row.ids)
        for place in places:
            ids[place + shift] = tokens.mask
        found.append(Placed(row._replace(ids=tuple(ids)), own))
    return found, places[0]


def _masked(lm: LM, words: Sequence[Placed]) -> list[tuple[Row, tuple[Target, ...]]]:
    """A word's tokens from left to right, the rest of it masked; words share rows that are alike.

    All words of as many tokens share the row in which all of these are masked.
    """
    asked: dict[tuple[Row, int], list[tuple[int, int]]] = defaultdict(list)
    for column, (row, places) in enumerate(words):
        for n, place in enumerate(places):
            asked[_with_mask(lm, row, places[n:]), place].append((row.ids[place], column))
    return [
        (row, (Target(place, *zip(*pairs, strict=True)),)) for (row, place), pairs in asked.items()
    ]


def _causal(lm: LM, words: Sequence[Placed]) -> list[tuple[Row, tuple[Target, ...]]]:
    """First tokens are read where the text before the blank ends; the others behind it.

    A causal model's scores at a token do not depend on what follows, so all first tokens share one
    row; all others do, too, where rows may have branches.
    """
    stems: dict[tuple[int, ...], list[tuple[int, tuple[int, ...]]]] = {}
    for column, (row, places) in enumerate(words):
        begin = places[0]
        if begin == 0:
            raise NotReadable(
                "nothing stands before the blank of a text",
                mend="write a text before [MASK], or load the model with bos='always'",
            )
        stems.setdefault(row.ids[:begin], []).append((column, row.ids[begin : places[-1] + 1]))
    most, found = longest(lm), []
    for stem, own in stems.items():
        columns, pieces = zip(*own, strict=True)
        shared, at = tree(stem, pieces)
        if len(shared.ids) == len(stem) or len(shared.ids) <= most:
            found.append((shared, _targets(columns, pieces, at)))
        else:
            found += _rows_apart(stem, columns, pieces)
    return found


def _rows_apart(
    stem: tuple[int, ...], columns: Sequence[int], pieces: Sequence[tuple[int, ...]]
) -> list[tuple[Row, tuple[Target, ...]]]:
    """The same where rows have no branches: every word of several tokens has one of its own."""
    end = len(stem) - 1
    firsts = _targets(columns, [own[:1] for own in pieces], [(end,)] * len(pieces))
    found = [(Row(stem, None), firsts)]
    for column, piece in zip(columns, pieces, strict=True):
        if len(piece) > 1:
            later = tuple(Target(end + n, (piece[n],), (column,)) for n in range(1, len(piece)))
            found.append((Row((*stem, *piece[:-1]), None), later))
    return found


def _targets(
    columns: Sequence[int],
    pieces: Sequence[tuple[int, ...]],
    places: Sequence[tuple[int, ...]],
) -> tuple[Target, ...]:
    """What is read at each place of a row."""
    asked: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for column, piece, at in zip(columns, pieces, places, strict=True):
        for place, token in zip(at, piece, strict=True):
            asked[place].append((token, column))
    return tuple(Target(place, *zip(*pairs, strict=True)) for place, pairs in asked.items())


def _with_mask(lm: LM, row: Row, places: range) -> Row:
    mask = (lm.tokens.mask,) * len(places)
    return row._replace(ids=row.ids[: places[0]] + mask + row.ids[places[-1] + 1 :])


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
