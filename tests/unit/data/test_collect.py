"""Gathering on disk is gathering in memory, byte by byte."""

import sys

import duckdb
import hypothesis
import pytest
from hypothesis import strategies as st

from levelhead.core.canonical_json import to_canonical_json
from levelhead.data.corpus.collect import (
    PAIR_KEY,
    MinedRow,
    collect_in_memory,
    collect_on_disk,
    collect_results,
    encode_piece_result,
    rank_hash,
)
from levelhead.data.corpus.mine import mine_corpus

TEXTS = ("a", "b é", '"q" \\ \u2028', "{,}", "\ud7ff", "f" * 50)


def row(word, text):
    key = rank_hash("", text)
    return MinedRow(
        word,
        key if word == PAIR_KEY else rank_hash(word, key),
        to_canonical_json({"id": key, "text": text}),
    )


@st.composite
def pieces(draw):
    """What a piece gives: pairs, and contexts of some words."""
    words = st.sampled_from((PAIR_KEY, "her", "ihr", "\u00e9"))
    result = draw(st.dictionaries(words, st.sets(st.sampled_from(TEXTS), min_size=1)))
    rows = [row(word, text) for word in sorted(result) for text in sorted(result[word])]
    return encode_piece_result({"texts": 10, "kept": len(result.get(PAIR_KEY, ()))}, rows)


def written(gather, results, quota):
    files = {}
    output = gather(results, quota, lambda name, lines: files.update({name: b"".join(lines)}))
    return output, files


@hypothesis.given(st.lists(pieces(), min_size=1, max_size=5), st.integers(1, 4))
def test_on_disk_is_in_memory(results, quota):
    disk = written(lambda *args: collect_on_disk(duckdb, *args), results, quota)
    assert disk == written(collect_in_memory, results, quota)


def test_duplicates_fall_together_and_the_least_hashes_are_kept():
    single = encode_piece_result({"kept": 1}, [row(PAIR_KEY, "a"), row("her", "a")])
    two = encode_piece_result({"kept": 1}, [row(PAIR_KEY, "a"), row("her", "b"), row("her", "a")])
    result, files = written(collect_results, [single, two], 1)
    assert result == ({"kept": 1, "duplicates": 1}, 1, {"her": 1})
    text = min(("a", "b"), key=lambda text: row("her", text).key)
    output = to_canonical_json({"id": rank_hash("", text), "text": text, "word": "her"})
    assert files["contexts.jsonl"] == output + b"\n"


@pytest.mark.parametrize("missing", [(), ("duckdb",), ("polars", "duckdb")])
def test_mining_needs_no_extra(tmp_path, monkeypatch, missing):
    texts = [f"The nurse number {i % 40} lost her keys." for i in range(60)]
    (tmp_path / "c.txt").write_text("\n".join(texts))
    mine_corpus([tmp_path / "c.txt"], tmp_path / "all", quota=7)
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    mine_corpus([tmp_path / "c.txt"], tmp_path / "some", quota=7)
    for name in ("pairs.jsonl", "contexts.jsonl", "manifest.json"):
        assert (tmp_path / "all" / name).read_bytes() == (tmp_path / "some" / name).read_bytes()
    assert len((tmp_path / "all" / "contexts.jsonl").read_text().splitlines()) == 14
