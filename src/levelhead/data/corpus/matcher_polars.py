"""Many texts at once, by Polars (the `mine` extra): the same rows as `kernel` gives.

One regular expression tells which texts can hold a word at all; what it keeps may be too many and
is never too few. Of these, plain ones (ASCII and a few signs that are part of no word, in whatever
form) are looked at by columns, where a word's boundary by ASCII's rules is one by Unicode's; all
others one by one, by the kernel itself. Python is left with what is hashed or kept.
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

from levelhead.data.corpus.collect import PAIR, least
from levelhead.data.corpus.matcher import LONGEST, RUN, Kernel, Match, Rows, Seen, is_whole, literal
from levelhead.data.corpus.reader import sentences_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

KELVIN = "\u212a"
OTHER = r"[^\x00-\x7F]"
PLAIN = "\u2018\u2019\u201c\u201d\u2013\u2014\u2026\u00a0\u00ab\u00bb\u2022\u00a3\u20ac\u00b0"
"""Signs beyond ASCII that are no word characters, and that NFC neither makes nor changes."""
ODD = rf"[^\x00-\x7F{PLAIN}]"
WHITE = "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \u00a0"
"""Python's white space, as far as plain texts have it."""
END = rf"[.!?][\"'\u201d\u2019)\]]*[{WHITE}]"
"""Where a sentence may end before another one."""


def scanned(
    polars: Any,
    texts: Sequence[str],
    kernel: Kernel,
    quota: int,
    full: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Counter[str], Rows]:
    """As `kernel.literal`.

    Args:
        polars: the module.
        texts: any texts.
        kernel: what is looked for.
        quota: contexts kept for each word.
        full: the largest key of words that have as many contexts already: larger ones are left out.
    """
    try:
        column = polars.Series("text", texts, dtype=polars.String)
        held = column.filter(column.str.contains(pattern(kernel.known)))
    except (UnicodeEncodeError, polars.exceptions.ComputeError):
        # Half a surrogate pair in a text, or more words than an expression may have.
        return literal(texts, kernel, quota)
    odd = held.str.contains(ODD) | (held.str.len_bytes() > LONGEST)
    others = held.filter(odd).to_list()
    plain = held.filter(~odd)
    several = plain.str.contains(END)
    parts = chain.from_iterable(map(sentences_of, plain.filter(several).to_list()))
    sentences = plain.filter(~several).str.strip_chars(WHITE)
    sentences = polars.concat([sentences, polars.Series("text", list(parts), dtype=polars.String)])
    counts, rows = literal(others, kernel, quota)
    more, own = _columns(polars, sentences, kernel, quota, full)
    both = {word: rows.get(word, {}) | own.get(word, {}) for word in rows.keys() | own.keys()}
    return counts + more, {word: least(word, one, quota) for word, one in both.items()}


def _columns(
    polars: Any, texts: Any, kernel: Kernel, quota: int, full: Mapping[str, str]
) -> tuple[Counter[str], Rows]:
    """What plain sentences give."""
    table = _table(polars, kernel)
    titles = list(kernel.titles.values())
    found = (
        texts.to_frame()
        .with_row_index("place")
        .lazy()
        .with_columns(polars.col("text").str.extract_all(exact(kernel.known)).alias("said"))
        .explode("said")
        .with_columns(polars.col("said").str.to_lowercase().alias("word"))
        .filter(~polars.col("word").is_in(list(kernel.titles)) | polars.col("said").is_in(titles))
        .select("place", "word")
        .join(table.lazy(), on="word", maintain_order="left")
        .with_columns(polars.col("place").rle_id().alias("row"))
        .collect()
    )
    by_row = found.group_by("row", maintain_order=True).agg(
        polars.col("place").first(),
        (polars.col("mark") > 0).sum().alias("marks"),
        polars.col("mark").max().alias("group"),
        polars.col("leans").bitwise_or().alias("leans"),
    )
    counts: Counter[str] = Counter({"sentences": len(by_row)})
    one = by_row.filter(polars.col("marks") == 1)
    counts["no group word"] = int((by_row["marks"] == 0).sum())
    counts["several group words"] = len(by_row) - len(one) - counts["no group word"]
    wanted = one.filter((polars.col("group") & polars.col("leans")) > 0).join(
        found.group_by("row").agg("word"), on="row", maintain_order="left"
    )
    counts["no target of its group"] = len(one) - len(wanted)
    # From here on by row: what is hashed, and what is kept.
    held = texts.gather(by_row["place"]).to_list()
    keys = [hashlib.sha256(text.encode()).hexdigest() for text in held]
    rows: Rows = {}
    for number, words in wanted.select("row", "word").iter_rows():
        row, why = kernel.pair(held[number], _matches(held[number], words, kernel))
        counts[why] += 1
        if row is not None:
            rows.setdefault(PAIR, {})[keys[number]] = _pair_row(keys[number], row)
    for word, own in found.group_by("word").agg("row").iter_rows():
        kept = _ranked(word, own, keys, full.get(word), quota)
        rows[word] = {key: Seen(keys[number], held[number]) for key, number in kept}
    return +counts, rows


def _ranked(
    word: str, numbers: Iterable[int], keys: Sequence[str], most: str | None, quota: int
) -> Iterator[tuple[str, int]]:
    """The hashes that decide for a word, the least of them, and the rows they are of."""
    begin = f"{word} "
    ranked = {hashlib.sha256((begin + keys[one]).encode()).digest(): one for one in numbers}
    least = bytes.fromhex(most) if most else b""
    for key in nsmallest(quota, (key for key in ranked if key < least) if least else ranked):
        yield key.hex(), ranked[key]


def _matches(text: str, words: Iterable[str], kernel: Kernel) -> list[Match]:
    """As `kernel.matches`, where it is known which words stand there, in their order."""
    found, end, low = [], 0, text.lower()
    for word in words:
        title = kernel.titles.get(word)
        while True:
            start = text.index(title, end) if title else low.index(word, end)
            end = start + len(word)
            if is_whole(text, start, end):
                break
        found.append((word, start, end))
    return found


def _pair_row(key: str, row: dict[str, Any]) -> bytes:
    """As `kernel.pair_row`, without looking at every value."""
    word, start, end = row["attribute"]
    targets = ",".join(f'["{target}",{first},{last}]' for target, first, last in row["targets"])
    text, twin = encode_basestring(row["text"]), encode_basestring(row["twin"])
    return (
        f'{{"attribute":["{word}",{start},{end}],"group":"{row["group"]}","id":"{key}",'
        f'"targets":[{targets}],"text":{text},"twin":{twin}}}'
    ).encode()


@lru_cache(maxsize=8)
def pattern(words: frozenset[str]) -> str:
    """What a text must hold, in the dialect of Rust's regex; of words that are runs.

    A text that holds a word of ASCII letters, whole by Unicode's rules and after NFC, holds it
    whole by ASCII's rules before: composing takes no letter away, and of all signs that NFC makes a
    letter of ASCII there is one, the Kelvin sign. Texts with it are kept. Another letter of a word
    was written as anything beyond ASCII, with or without the letter that it is composed of.
    """
    plain, others = _plain(words), [word for word in _runs(words) if not word.isascii()]
    parts = [rf"(?-u:\b)(?i:{'|'.join(plain)})(?-u:\b)"] if plain else []
    parts += [f"(?i:{''.join(map(_written, word))})" for word in others]
    return "|".join([*parts, KELVIN])


def _written(letter: str) -> str:
    """However a letter may be written before NFC, and more."""
    first = unicodedata.normalize("NFD", letter)[0]
    return (
        letter if letter.isascii() else f"{first if first.isascii() else ''}?{OTHER}+".lstrip("?")
    )


@lru_cache(maxsize=8)
def exact(words: frozenset[str]) -> str:
    """The words of a plain text: ASCII's boundaries and ASCII's cases are the right ones there."""
    plain = _plain(words)
    return rf"(?-u:\b)(?i-u:{'|'.join(plain)})(?-u:\b)" if plain else r"[^\s\S]"


@lru_cache(maxsize=8)
def _runs(words: frozenset[str]) -> list[str]:
    return sorted(word for word in words if RUN.fullmatch(word))


@lru_cache(maxsize=8)
def _plain(words: frozenset[str]) -> list[str]:
    return [word for word in _runs(words) if word.isascii()]


def _table(polars: Any, kernel: Kernel) -> Any:
    """Every word: which group it marks (1, 2, or 0 for none), and whom it leans to (1 + 2)."""
    bit = {group: 1 << place for place, group in enumerate(kernel.groups)}
    words = sorted(kernel.known)
    marks = [bit.get(kernel.attributes.get(word, ""), 0) for word in words]
    leans = [sum(bit[one] for one in kernel.targets.get(word, ())) for word in words]
    return polars.DataFrame(
        {"word": words, "mark": marks, "leans": leans},
        schema={"word": polars.String, "mark": polars.UInt8, "leans": polars.UInt8},
    )
