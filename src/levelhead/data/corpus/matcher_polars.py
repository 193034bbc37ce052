"""Matching of many texts with Polars (the `mine` extra), with the same rows as `matcher`.

One regular expression selects the texts that may contain a word; it may select too many texts but
never too few. Plain texts (ASCII and a few signs that are never part of a word) are processed by
columns: in them, word boundaries by the rules of ASCII and of Unicode are equal. `matcher`
processes all other texts one by one. Only hashing and encoding remain in Python.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections import Counter
from functools import lru_cache
from heapq import nsmallest
from itertools import chain
from json.encoder import encode_basestring
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from levelhead.data.corpus.collect import PAIR_KEY, keep_lowest_ranked
from levelhead.data.corpus.matcher import (
    MAX_SENTENCE_CHARS,
    WORD_RUN,
    KeyedSentence,
    RowsByWord,
    SentenceMatcher,
    WordMatch,
    is_whole_word,
    match_texts,
)
from levelhead.data.corpus.reader import split_text_sentences

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

KELVIN_SIGN = "\u212a"
NON_ASCII = r"[^\x00-\x7F]"
PLAIN_SIGNS = "\u2018\u2019\u201c\u201d\u2013\u2014\u2026\u00a0\u00ab\u00bb\u2022\u00a3\u20ac\u00b0"
"""Non-ASCII signs that are no word characters and that NFC neither creates nor changes."""
NON_PLAIN = rf"[^\x00-\x7F{PLAIN_SIGNS}]"
WHITE_SPACE = "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \u00a0"
"""White space characters of Python that can occur in plain texts."""
MANY_WORDS = 1_000
"""Number of words from which all words of a text are looked up in a table: the time of a regular
expression grows with its alternatives, and Rust refuses one of several thousand."""
SENTENCE_END = rf"[.!?][\"'\u201d\u2019)\]]*[{WHITE_SPACE}]"
"""Pattern of a possible end of a sentence inside a text."""


def match_texts_columnar(
    polars: Any,
    texts: Sequence[str],
    matcher: SentenceMatcher,
    quota: int,
    rank_limits: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Counter[str], RowsByWord]:
    """Match texts like `match_texts`, but by columns.

    Args:
        polars: the module.
        texts: any texts.
        matcher: words of the lexicon.
        quota: largest number of contexts per word.
        rank_limits: for words whose quota is reached, the largest stored key; contexts with larger
            keys are left out.
    """
    try:
        column = polars.Series("text", texts, dtype=polars.String)
        candidates = column.filter(column.str.contains(build_text_pattern(matcher.vocabulary)))
    except (UnicodeEncodeError, polars.exceptions.ComputeError):
        # A text with a lone surrogate, or more words than a regular expression may have.
        return match_texts(texts, matcher, quota)
    is_odd = candidates.str.contains(NON_PLAIN)
    odd_texts = candidates.filter(is_odd).to_list()
    plain_texts = candidates.filter(~is_odd)
    # Most texts are one sentence: only the others are split in Python.
    has_several = plain_texts.str.contains(SENTENCE_END)
    parts = chain.from_iterable(
        map(split_text_sentences, plain_texts.filter(has_several).to_list())
    )
    sentences = plain_texts.filter(~has_several).str.strip_chars(WHITE_SPACE)
    # The order differs from that of the texts, but rows are sorted by hash later.
    sentences = polars.concat([sentences, polars.Series("text", list(parts), dtype=polars.String)])
    # Very long sentences are also left to the reference, which counts them as too long.
    is_long = sentences.str.len_chars() > MAX_SENTENCE_CHARS
    odd_texts += sentences.filter(is_long).to_list()
    sentences = sentences.filter(~is_long)
    counts, rows = match_texts(odd_texts, matcher, quota)
    plain_counts, plain_rows = _match_plain_sentences(
        polars, sentences, matcher, quota, rank_limits
    )
    merged_rows = {
        word: rows.get(word, {}) | plain_rows.get(word, {})
        for word in rows.keys() | plain_rows.keys()
    }
    return counts + plain_counts, {
        word: keep_lowest_ranked(word, word_rows, quota) for word, word_rows in merged_rows.items()
    }


def _match_plain_sentences(
    polars: Any, texts: Any, matcher: SentenceMatcher, quota: int, rank_limits: Mapping[str, str]
) -> tuple[Counter[str], RowsByWord]:
    """Match plain sentences: return the counts of outcomes and the stored rows."""
    table = _word_table(polars, matcher)
    titles = list(matcher.titles.values())
    occurrences = (
        texts.to_frame()
        .with_row_index("place")
        .lazy()
        .with_columns(
            polars.col("text")
            .str.extract_all(build_ascii_pattern(matcher.vocabulary))
            .alias("said")
        )
        .explode("said")
        .with_columns(polars.col("said").str.to_lowercase().alias("word"))
        .filter(~polars.col("word").is_in(list(matcher.titles)) | polars.col("said").is_in(titles))
        .select("place", "word")
        # The join drops runs that match a word only by another case rule.
        .join(table.lazy(), on="word", maintain_order="left")
        # Consecutive numbers of the sentences that still have a word.
        .with_columns(polars.col("place").rle_id().alias("row"))
        .collect()
    )
    by_row = occurrences.group_by("row", maintain_order=True).agg(
        polars.col("place").first(),
        (polars.col("mark") > 0).sum().alias("marks"),
        polars.col("mark").max().alias("group"),
        polars.col("leans").bitwise_or().alias("leans"),
    )
    counts: Counter[str] = Counter({"sentences": len(by_row)})
    single_mark = by_row.filter(polars.col("marks") == 1)
    counts["no group word"] = int((by_row["marks"] == 0).sum())
    counts["several group words"] = len(by_row) - len(single_mark) - counts["no group word"]
    stereotyped = single_mark.filter((polars.col("group") & polars.col("leans")) > 0).join(
        occurrences.group_by("row").agg("word"), on="row", maintain_order="left"
    )
    counts["no target of its group"] = len(single_mark) - len(stereotyped)
    # The rest is by row, because hashes and JSON are computed in Python.
    sentences = texts.gather(by_row["place"]).to_list()
    keys = [hashlib.sha256(text.encode()).hexdigest() for text in sentences]
    rows: RowsByWord = {}
    for number, words in stereotyped.select("row", "word").iter_rows():
        row, outcome = matcher.make_pair(
            sentences[number], _locate_matches(sentences[number], words, matcher)
        )
        counts[outcome] += 1
        if row is not None:
            rows.setdefault(PAIR_KEY, {})[keys[number]] = _encode_pair(keys[number], row)
    for word, row_numbers in occurrences.group_by("word").agg("row").iter_rows():
        ranked_keys = _lowest_ranked(word, row_numbers, keys, rank_limits.get(word), quota)
        rows[word] = {
            key: KeyedSentence(keys[number], sentences[number]) for key, number in ranked_keys
        }
    # Unary plus drops outcomes with a count of 0, as `match_texts` never adds them.
    return +counts, rows


def _lowest_ranked(
    word: str, numbers: Iterable[int], keys: Sequence[str], limit: str | None, quota: int
) -> Iterator[tuple[str, int]]:
    """Yield the smallest rank hashes of a word, with the rows they belong to."""
    begin = f"{word} "
    ranked = {
        hashlib.sha256((begin + keys[number]).encode()).digest(): number for number in numbers
    }
    # Digests as bytes sort like hexadecimal text and compare faster.
    limit_key = bytes.fromhex(limit) if limit else b""
    for key in nsmallest(
        quota, (key for key in ranked if key < limit_key) if limit_key else ranked
    ):
        yield key.hex(), ranked[key]


def _locate_matches(text: str, words: Iterable[str], matcher: SentenceMatcher) -> list[WordMatch]:
    """Locate known words in their order, with the result of `SentenceMatcher.find_matches`."""
    matches, end, lowered = [], 0, text.lower()
    for word in words:
        title = matcher.titles.get(word)
        while True:
            start = text.index(title, end) if title else lowered.index(word, end)
            end = start + len(word)
            if is_whole_word(text, start, end):
                break
        matches.append((word, start, end))
    return matches


def _encode_pair(key: str, row: dict[str, Any]) -> bytes:
    """Encode a pair like `encode_pair`, but faster."""
    word, start, end = row["attribute"]
    targets = ",".join(f'["{target}",{first},{last}]' for target, first, last in row["targets"])
    text, twin = encode_basestring(row["text"]), encode_basestring(row["twin"])
    return (
        f'{{"attribute":["{word}",{start},{end}],"group":"{row["group"]}","id":"{key}",'
        f'"targets":[{targets}],"text":{text},"twin":{twin}}}'
    ).encode()


@lru_cache(maxsize=8)
def build_text_pattern(words: frozenset[str]) -> str:
    """Build a regular expression (Rust syntax) that every text with a word must match.

    With a long list of words it matches every text.

    If a text contains a complete ASCII word by Unicode's rules after NFC, it contains the complete
    word by ASCII's rules before NFC: composition removes no letter, and the Kelvin sign is the only
    sign that NFC turns into an ASCII letter. Texts with this sign always match. A non-ASCII letter
    of a word matches any non-ASCII characters, with or without its ASCII base letter.

    Args:
        words: folded words; only single runs of word characters are used.
    """
    if len(words) > MANY_WORDS:
        return ""
    ascii_words, accented_words = (
        _ascii_word_runs(words),
        [word for word in _word_runs(words) if not word.isascii()],
    )
    parts = [rf"(?-u:\b)(?i:{'|'.join(ascii_words)})(?-u:\b)"] if ascii_words else []
    parts += [f"(?i:{''.join(map(_spelling_pattern, word))})" for word in accented_words]
    return "|".join([*parts, KELVIN_SIGN])


def _spelling_pattern(letter: str) -> str:
    """Return a pattern for all spellings of a letter before NFC (and some others)."""
    first = unicodedata.normalize("NFD", letter)[0]
    return (
        letter
        if letter.isascii()
        else f"{first if first.isascii() else ''}?{NON_ASCII}+".lstrip("?")
    )


@lru_cache(maxsize=8)
def build_ascii_pattern(words: frozenset[str]) -> str:
    """Build a regular expression for words in plain texts, by ASCII boundaries and case.

    It finds every word of a long list; the table of words then drops the others.

    Args:
        words: folded words.
    """
    if len(words) > MANY_WORDS:
        return r"(?-u:\w+)"
    ascii_words = _ascii_word_runs(words)
    # The last alternative matches nothing: an empty pattern would match everywhere.
    return rf"(?-u:\b)(?i-u:{'|'.join(ascii_words)})(?-u:\b)" if ascii_words else r"[^\s\S]"


@lru_cache(maxsize=8)
def _word_runs(words: frozenset[str]) -> list[str]:
    return sorted(word for word in words if WORD_RUN.fullmatch(word))


@lru_cache(maxsize=8)
def _ascii_word_runs(words: frozenset[str]) -> list[str]:
    return [word for word in _word_runs(words) if word.isascii()]


def _word_table(polars: Any, matcher: SentenceMatcher) -> Any:
    """Build the table of words: bit of the marked group, and bits of the stereotyped groups."""
    # Groups as bits, so that a column operation can test several groups at once.
    bit = {group: 1 << position for position, group in enumerate(matcher.groups)}
    words = sorted(matcher.vocabulary)
    marks = [bit.get(matcher.attributes.get(word, ""), 0) for word in words]
    leans = [sum(bit[group] for group in matcher.targets.get(word, ())) for word in words]
    return polars.DataFrame(
        {"word": words, "mark": marks, "leans": leans},
        schema={"word": polars.String, "mark": polars.UInt8, "leans": polars.UInt8},
    )
