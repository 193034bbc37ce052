"""Many texts at once give what they give one by one, whatever stands in them."""

import json
import random
import sys
import unicodedata
from importlib.resources import files

import polars
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from levelhead.core.canonical_json import to_canonical_json
from levelhead.data.corpus.collect import PAIR_KEY, keep_lowest_ranked
from levelhead.data.corpus.matcher import (
    MAX_SENTENCE_CHARS,
    WORD_RUN,
    KeyedSentence,
    SentenceMatcher,
    encode_context,
    match_texts,
)
from levelhead.data.corpus.matcher_polars import (
    MANY_WORDS,
    PLAIN_SIGNS,
    WHITE_SPACE,
    build_ascii_pattern,
    build_text_pattern,
    match_texts_columnar,
)
from levelhead.data.corpus.mine import mine_corpus
from levelhead.data.corpus.reader import (
    CorpusPiece,
    read_matching_texts,
    split_sentences,
    split_text_sentences,
)
from levelhead.data.lexicons.lexicon import lexicon

KERNEL = SentenceMatcher(lexicon("gender-en"), ("female", "male"))
PARTS = (
    *("her", "His", "KING", "\u212aing", "nur\u017fe", "nurse", "pilot", "Miss", "miss", "MISS"),
    *("\u0130", "fianc\u00e9e", "fiance\u0301e", "\u738b", "\u0301", "\u200d", "_", "2", "'s", "-"),
    *(" ", " ", " ", ". ", "\ufeff", "\n", "\x1c", "x", "\u00f1", "\u2019s", "\u201c", "\u00a0"),
    *("\u00b2", ".", "?) The ", "Mr. ", "\u2014", "\u0308", "a nurse saw her"),
)
MANY = frozenset(
    "".join(random.Random(n).choices("abcdefghijklmnopqrstuvwxyz", k=12)) for n in range(20_000)
)
"""More words than a regular expression of Rust may have."""
TEXT = st.lists(st.sampled_from(PARTS), max_size=10).map("".join) | st.text(max_size=30)


@given(st.lists(TEXT, max_size=6), st.integers(1, 3))
@example(["He was a nurse. \x1cMiss Ray saw him ."], 1)
def test_all_at_once_gives_what_one_by_one_gives(texts, quota):
    assert match_texts_columnar(polars, texts, KERNEL, quota) == match_texts(texts, KERNEL, quota)


@given(st.lists(TEXT, max_size=6), st.lists(TEXT, max_size=6), st.integers(1, 3))
def test_what_cannot_be_kept_is_left_out(texts, more, quota):
    _, before = match_texts(texts, KERNEL, quota)
    full = {
        word: max(subset)
        for word, subset in before.items()
        if len(subset) == quota and word != PAIR_KEY
    }
    _, rows = match_texts_columnar(polars, more, KERNEL, quota, full)
    words = before.keys() | rows.keys()
    both = {
        word: keep_lowest_ranked(word, before.get(word, {}) | rows.get(word, {}), quota)
        for word in words
    }
    assert both == match_texts([*texts, *more], KERNEL, quota)[1]


@pytest.mark.parametrize("more", [{"fianc\u00e9e"}, {"mother-in-law"}])
@given(texts=st.lists(TEXT, max_size=6))
def test_words_beyond_ascii_and_words_that_are_no_runs(more, texts):
    kernel = SentenceMatcher(lexicon("gender-en"), ("female", "male"))
    kernel.vocabulary |= more
    kernel.attributes |= dict.fromkeys(more, "female")
    assert match_texts_columnar(polars, texts, kernel, 3) == match_texts(texts, kernel, 3)


def test_what_is_longer_than_any_sentence_is_counted_and_left_out(tmp_path):
    long = "The nurse saw her " + "and then " * (MAX_SENTENCE_CHARS // 9) + "went home"
    texts = [long, "The nurse saw her.", f"The pilot saw her. {long.capitalize()}. He is a pilot."]
    counts, rows = match_texts_columnar(polars, texts, KERNEL, 3)
    assert (counts, rows) == match_texts(texts, KERNEL, 3)
    assert counts["too long"] == 2
    assert {seen.text for seen in rows["nurse"].values()} == {texts[1]}
    assert {seen.text for seen in rows["pilot"].values()} == {
        "The pilot saw her.",
        "He is a pilot.",
    }
    (tmp_path / "c.txt").write_text("\n".join(texts))
    assert mine_corpus([tmp_path / "c.txt"], tmp_path / "mined")["counts"]["too long"] == 2


def test_the_traps_of_other_kernels():
    path = files("levelhead.data").joinpath("conformance.tsv")
    texts = [line.split("\t")[0] for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    counts, rows = match_texts_columnar(polars, texts, KERNEL, 100)
    assert (counts, rows) == match_texts(texts, KERNEL, 100)
    assert rows


def test_plain_signs_are_no_letters_and_stay_as_they_are():
    others = {chr(i) for i in (*range(0xD800), *range(0xE000, 0x110000))} - set(PLAIN_SIGNS)
    made = {sign for other in others for sign in unicodedata.normalize("NFC", other)}
    for sign in PLAIN_SIGNS:
        assert not WORD_RUN.match(sign)
        for extra in ("", "a", "\u0301"):
            assert unicodedata.is_normalized("NFC", sign + extra) or extra == "\u0301"
            assert unicodedata.normalize("NFC", sign + extra)[0] == sign
        assert sign not in made
    held = [*map(chr, range(128)), *PLAIN_SIGNS]
    assert set(WHITE_SPACE) == {sign for sign in held if sign.isspace()}
    assert not any(
        list(split_sentences(f"a.{sign}B")) == ["a.", "B"] for sign in set(held) - set(WHITE_SPACE)
    )


def test_most_texts_without_a_word_go_at_first_sight():
    texts = polars.Series(["The weather was there.", "This is a sheet.", "Others theorise."])
    assert not texts.str.contains(build_text_pattern(KERNEL.vocabulary)).any()
    assert "law" not in build_text_pattern(frozenset({"mother-in-law", "her"}))
    assert not texts.str.contains(build_ascii_pattern(frozenset({"mother-in-law"}))).any()


@given(st.text(st.characters(exclude_categories=("Cs",))), st.integers(0, 9), st.integers(0, 9))
def test_a_context_is_written_as_canonical_json(text, start, end):
    row = {"id": "ab", "text": text, "start": start, "end": end}
    assert encode_context(KeyedSentence("ab", text), start, end) == to_canonical_json(row)


@given(TEXT)
def test_the_last_place_of_a_word(texts):
    for text in split_text_sentences(texts):
        last = {word: place for word, *place in KERNEL.find_matches(text)}
        assert {word: [*KERNEL.last_position(word, text)] for word in last} == last


def test_what_polars_cannot_take_is_looked_at_one_by_one():
    texts = ["half a pair: \ud83d", "The nurse saw her."]
    assert match_texts_columnar(polars, texts, KERNEL, 3) == match_texts(texts, KERNEL, 3)
    kernel = SentenceMatcher(lexicon("gender-en"), ("female", "male"))
    kernel.vocabulary |= MANY
    with pytest.raises(polars.exceptions.ComputeError):
        polars.Series(texts[1:]).str.contains(f"(?i:{'|'.join(kernel.vocabulary)})")
    assert match_texts_columnar(polars, texts[1:], kernel, 3) == match_texts(texts[1:], kernel, 3)


@settings(max_examples=30)
@given(texts=st.lists(TEXT, max_size=6), quota=st.integers(1, 3))
def test_a_long_list_of_words_is_looked_up(texts, quota):
    """Its words are found as by the regular expression of a short list."""
    kernel = SentenceMatcher(lexicon("gender-en"), ("female", "male"))
    short = match_texts_columnar(polars, texts, kernel, quota)
    kernel.vocabulary |= MANY
    assert len(kernel.vocabulary) > MANY_WORDS
    assert match_texts_columnar(polars, texts, kernel, quota) == short
    assert short == match_texts(texts, kernel, quota)


def test_of_parquet_only_what_can_hold_a_word_is_read(tmp_path):
    path = str(tmp_path / "c.parquet")
    texts = [None, "The weather was there.", "The nurse saw her.", "Others theorise."]
    polars.DataFrame({"text": texts * 2}).write_parquet(path)
    piece = CorpusPiece(path, "", 1, 7)
    count, read = read_matching_texts(piece, build_text_pattern(KERNEL.vocabulary))
    assert (count, list(read)) == (5, [texts[2]] * 2)
    count, read = read_matching_texts(piece, build_text_pattern(MANY))
    assert (count, len(read)) == (5, 5)


@pytest.mark.parametrize("ending", ["txt", "jsonl"])
def test_mining_is_the_same_without_the_extra(tmp_path, monkeypatch, ending):
    rng = random.Random(0)
    texts = ["".join(rng.choices(PARTS, k=6)).replace("\n", " ") for _ in range(3000)]
    texts += ["The nurse lost her keys. The pilot saw his wife\u2019s car!"] * 2
    if ending == "jsonl":
        texts = [json.dumps({"text": text}) for text in texts]
    (tmp_path / f"c.{ending}").write_text("\n".join(texts), encoding="utf-8")
    mine_corpus([tmp_path / f"c.{ending}"], tmp_path / "one", quota=20)
    monkeypatch.setitem(sys.modules, "polars", None)
    mine_corpus([tmp_path / f"c.{ending}"], tmp_path / "two", quota=20)
    for name in ("pairs.jsonl", "contexts.jsonl", "manifest.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert (tmp_path / "one" / "pairs.jsonl").stat().st_size > 1000
