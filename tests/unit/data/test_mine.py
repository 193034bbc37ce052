"""Mining: exact matching, and the same bytes whatever the order, the cut, the workers or a kill."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import unicodedata
from importlib.resources import files

import polars
import pytest
from command import levelhead
from hypothesis import given
from hypothesis import strategies as st

from levelhead.core.errors import LevelheadError, MissingExtraError
from levelhead.data.corpus import reader as corpus
from levelhead.data.corpus.matcher import SentenceMatcher
from levelhead.data.corpus.mine import mine_corpus
from levelhead.data.corpus.reader import (
    expand_sources,
    iter_sentences,
    split_corpus,
    split_sentences,
)
from levelhead.data.lexicons.lexicon import lexicon

GENDER = lexicon("gender-en")
KERNEL = SentenceMatcher(GENDER, ("female", "male"))
OUTPUT = ("pairs.jsonl", "contexts.jsonl", "manifest.json")
TEXTS = [
    "The nurse saw her yesterday.",
    "She is a nurse and he is a pilot.",
    "The engineer lost his keys.",
    "The engineer lost her keys.",
    "A gentle woman sang.",
    "Nothing to see here.",
    "The mechanic said that he was strong. The man was bold.",
]


def written(folder):
    return {name: (folder / name).read_bytes() for name in OUTPUT}


def rows(folder, name="pairs.jsonl"):
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def conformance():
    path = files("levelhead.data").joinpath("conformance.tsv")  # it ships, for other kernels
    for line in path.read_text(encoding="utf-8").splitlines()[1:]:
        yield line.split("\t")


@pytest.mark.parametrize(("text", "words"), conformance())
def test_words_are_whole_and_exact(text, words):
    result = KERNEL.find_matches(unicodedata.normalize("NFC", text))
    assert [word for word, _, _ in result if word in KERNEL.attributes] == words.split()


def test_pairs_hold_one_group_word_and_its_target(tmp_path):
    (tmp_path / "c.txt").write_text("\n".join(TEXTS))
    output = mine_corpus([tmp_path / "c.txt"], tmp_path / "out")
    stored = {row["text"]: row for row in rows(tmp_path / "out")}
    assert set(stored) == {
        "The nurse saw her yesterday.",
        "The engineer lost his keys.",
        "A gentle woman sang.",
        "The mechanic said that he was strong.",
        "The man was bold.",
    }
    pair = stored["The engineer lost his keys."]
    assert pair["twin"] == "The engineer lost her keys."
    assert pair["group"] == "male"
    assert pair["attribute"] == ["his", 18, 21]
    assert pair["targets"] == [["engineer", 4, 12]]
    assert (output["counts"]["sentences"], output["counts"]["texts"]) == (7, 7)
    assert output["counts"]["several group words"] == 1
    assert output["counts"]["no target of its group"] == 1
    contexts = rows(tmp_path / "out", "contexts.jsonl")
    assert {row["word"] for row in contexts} >= {"nurse", "engineer", "she", "her", "gentle"}
    for row in contexts:
        assert row["text"][row["start"] : row["end"]].lower() == row["word"]


def test_order_cut_format_and_duplicates_change_nothing(tmp_path, monkeypatch):
    texts = [f"{text} Number {i}." for i in range(40) for text in TEXTS]
    (tmp_path / "c.txt").write_text("\n".join(texts))
    mine_corpus([tmp_path / "c.txt"], tmp_path / "one", quota=7)
    shuffled = texts + texts[:50]
    random.Random(1).shuffle(shuffled)
    (tmp_path / "c.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in shuffled))
    monkeypatch.setattr(corpus.split_corpus, "__kwdefaults__", {"size": 999})
    assert len(split_corpus([tmp_path / "c.jsonl"])) > 5
    mine_corpus([tmp_path / "c.jsonl"], tmp_path / "two", quota=7)
    for name in OUTPUT[:2]:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@given(
    st.lists(st.text(st.characters(exclude_categories=("Cs",)), max_size=20)), st.integers(1, 50)
)
def test_every_line_is_in_one_piece(tmp_path_factory, texts, size):
    path = tmp_path_factory.mktemp("corpus") / "c.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    full = [s for piece in split_corpus([path], size=10**9) for s in iter_sentences(piece)]
    cut = [s for piece in split_corpus([path], size=size) for s in iter_sentences(piece)]
    assert cut == full


@given(st.text())
def test_splitting_loses_nothing_but_blanks(text):
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())


PIECES = st.sampled_from(
    [*("Mr.", "A.", "Prof.", "xGen.", "No", "B.!", "end.", "He", "(Dr.", '"'), " ", "  ", "\n", "("]
)


@given(st.lists(PIECES, max_size=40).map("".join))
def test_the_end_of_an_abbreviation_is_enough(text):
    """A sentence is split as if everything before its end were searched for an abbreviation."""
    literal, begin = [], 0
    for match in corpus._SENTENCE_END.finditer(text):
        if not corpus._ABBREVIATION.search(text[begin : match.start()]):
            literal.append(text[begin : match.start() + len(match[0].rstrip())])
            begin = match.end()
    literal.append(text[begin:])
    assert list(split_sentences(text)) == [part.strip() for part in literal if part.strip()]


@pytest.mark.parametrize(
    ("name", "data", "responses"),
    [
        ("c.jsonl", b"{\n", "does not fit its format"),
        ("c.jsonl", b'{"x": 1}\n', "does not fit its format"),
        ("c.jsonl", b'{"text": 1}\n', "is no string"),
        ("c.txt", b"\xff\n", "does not fit its format"),
        ("c.tsv", b"no tab\n", "does not fit its format"),
        ("c.csv", b"x\n", "is none of"),
    ],
)
def test_files_that_do_not_fit_are_errors(tmp_path, name, data, responses):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(LevelheadError, match=responses):
        mine_corpus([tmp_path / name], tmp_path / "out")


def test_parquet_is_read_with_the_extra(tmp_path, monkeypatch):
    polars.DataFrame({"text": [*TEXTS, None], "n": range(8)}).write_parquet(tmp_path / "c.parquet")
    (tmp_path / "c.txt").write_text("\n".join(TEXTS))
    monkeypatch.setattr(corpus, "PIECE_ROWS", 3)
    for name in ("parquet", "txt"):
        mine_corpus([tmp_path / f"c.{name}"], tmp_path / name)
    assert rows(tmp_path / "parquet") == rows(tmp_path / "txt") != []
    polars.DataFrame({"n": [1]}).write_parquet(tmp_path / "other.parquet")
    with pytest.raises(LevelheadError, match="has no column of text"):
        mine_corpus([tmp_path / "other.parquet"], tmp_path / "no")
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(MissingExtraError, match=r"levelhead\[mine\]"):
        mine_corpus([tmp_path / "c.parquet"], tmp_path / "without")


def test_a_corpus_that_changes_is_refused(tmp_path):
    (tmp_path / "c.txt").write_text("She is a nurse.\n")
    (piece,) = split_corpus([tmp_path / "c.txt"])
    (tmp_path / "c.txt").write_text("She is a pilot.\n")
    with pytest.raises(LevelheadError, match="changed during the run"):
        list(iter_sentences(piece))
    with pytest.raises(LevelheadError, match="a quota of 0"):
        mine_corpus([tmp_path / "c.txt"], tmp_path / "out", quota=0)


def test_a_parquet_file_that_changes_is_refused(tmp_path):
    path = tmp_path / "c.parquet"
    polars.DataFrame({"text": ["She is a nurse."]}).write_parquet(path)
    (piece,) = split_corpus([path])
    assert list(iter_sentences(piece)) == ["She is a nurse."]
    polars.DataFrame({"text": ["She is a pilot."]}).write_parquet(path)
    os.utime(path, (1, 1))
    with pytest.raises(LevelheadError, match="changed during the run"):
        list(iter_sentences(piece))


def test_a_pattern_without_files_is_an_error(tmp_path):
    with pytest.raises(LevelheadError, match="there is no file"):
        split_corpus([tmp_path / "*.txt"])
    with pytest.raises(LevelheadError, match="there is no corpus"):
        split_corpus([])


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    folder = tmp_path_factory.mktemp("big")
    for n in range(96):  # six units
        texts = [f"{text} Case {n} of {i}." for i in range(50) for text in TEXTS]
        (folder / f"c{n}.txt").write_text("\n".join(texts))
    return folder


# More than 5 s: every kill is of a process of its own, at another moment.
@pytest.mark.parametrize("wanted", [4, pytest.param(20, marks=pytest.mark.full)])
def test_killed_at_any_moment_it_ends_with_the_same_bytes(big, tmp_path, wanted):
    mine_corpus([f"{big}/*.txt"], tmp_path / "calm")
    command = [
        *(sys.executable, "-m", "levelhead", "data", "mine", f"{big}/*.txt"),
        *("-o", str(tmp_path / "killed"), "--workers", "2"),
    ]
    rng = random.Random(0)
    kills = 0
    for _ in range(3 * wanted):
        if kills == wanted:
            break
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        time.sleep(rng.uniform(0.3, 1.3))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            kills += 1
        else:  # it was done before it could be killed: from the beginning
            shutil.rmtree(tmp_path / "killed")
        process.wait()
    assert kills == wanted
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert written(tmp_path / "killed") == written(tmp_path / "calm")


def test_the_command_line(tmp_path):
    (tmp_path / "c.txt").write_text("\n".join(TEXTS))
    result = levelhead("data", "mine", tmp_path / "c.txt", "-o", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    assert "5 pairs and contexts of" in result.stdout
    assert "not kept as a pair: 1 (several group words)" in result.stdout


def test_a_file_that_is_there_is_no_pattern(tmp_path):
    folder = tmp_path / "[old] runs"
    folder.mkdir()
    for name in ("news1.txt", "news[12].txt"):
        (folder / name).write_text("a line\n")
        assert expand_sources([folder / name]) == [str(folder / name)]
