"""The table of data sets, and getting files over HTTP: whole, checked, or not at all."""

import dataclasses
import hashlib

import pytest
from command import levelhead
from hypothesis import given
from hypothesis import strategies as st
from serving import serving

from levelhead.core.errors import LevelheadError
from levelhead.data.catalog import datasets as module
from levelhead.data.catalog.datasets import (
    ChecksumError,
    Dataset,
    DatasetFile,
    DatasetMissingError,
    dataset,
    datasets,
)
from levelhead.data.catalog.readers import READERS, BadRowError, detokenize, read_items
from levelhead.data.lexicons.lexicon import list_shipped_lexicons

TEXT = b"one\ntwo\nthree\n"
SHA = hashlib.sha256(TEXT).hexdigest()


@pytest.fixture
def mine(monkeypatch, tmp_path):
    """A data set of three lines, with an empty cache of its own."""
    row = Dataset(
        name="mine",
        folder="mine",
        about="three lines",
        cannot="anything",
        licence="CC0-1.0",
        serves="tests",
        reader="lines",
        get="download",
        files=(DatasetFile("a/b.txt", "all", 3, len(TEXT), SHA, "http://127.0.0.1:9/a/b.txt"),),
    )
    monkeypatch.setenv("LEVELHEAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LEVELHEAD_DATA", raising=False)
    monkeypatch.setattr(module, "datasets", lambda: {"mine": row})
    return row


@pytest.fixture
def served(tmp_path):
    (tmp_path / "served" / "mine" / "a").mkdir(parents=True)
    (tmp_path / "served" / "mine" / "a" / "b.txt").write_bytes(TEXT)
    return tmp_path / "served"


def left(tmp_path):
    return sorted(path for path in (tmp_path / "cache").rglob("*") if path.is_file())


def test_every_row_says_what_it_is_and_cannot_tell():
    assert len(datasets()) >= 20
    for name, row in datasets().items():
        assert name == row.name
        assert row.reader in READERS
        assert len(row.about) > 20
        assert len(row.cannot) > 10
        assert row.licence
        assert row.serves
        assert row.files
        assert len(set(row.parts)) == len(row.parts)
        for file in row.files:
            assert (len(file.sha256) == 64 and file.bytes) or name == "theredpill"
            assert bool(file.url) == (row.get == "download")
            assert file.url.startswith("https://") or not file.url
            assert not file.path.startswith(("/", ".."))
        if row.get == "own copy":
            assert row.note


def test_pinned_means_a_commit():
    for row in datasets().values():
        for file in row.files:
            if file.url:
                parts = file.url.split("/")
                assert any(
                    len(part) == 40 and set(part) <= set("0123456789abcdef") for part in parts
                )


def test_names_suggest():
    with pytest.raises(LevelheadError, match="no data set named 'crows'") as error:
        dataset("crows")
    assert "crows-pairs" in error.value.hint
    with pytest.raises(LevelheadError, match="no part of crows-pairs named 'dev'"):
        dataset("crows-pairs").file("dev")


def test_it_is_fetched_once_and_checked(mine, served, tmp_path, monkeypatch):
    with serving(served) as (address, queries):
        monkeypatch.setenv("LEVELHEAD_MIRROR", address)
        assert [item.text for item in mine.items("all")] == ["one", "two", "three"]
        assert [item.id for item in mine.items("all")] == ["all-0", "all-1", "all-2"]
    assert queries == ["mine/a/b.txt"]
    assert mine.path("all") == tmp_path / "cache" / "data" / "mine" / "a" / "b.txt"


def test_an_interrupted_download_leaves_nothing_and_is_done_again(
    mine, served, tmp_path, monkeypatch
):
    with serving(served, fault=lambda path, data: data[:5]) as (address, _):
        monkeypatch.setenv("LEVELHEAD_MIRROR", address)
        with pytest.raises((DatasetMissingError, ChecksumError)):
            mine.ensure_local("all")
    assert left(tmp_path) == []
    with serving(served) as (address, _):
        monkeypatch.setenv("LEVELHEAD_MIRROR", address)
        assert mine.ensure_local("all").read_bytes() == TEXT


def test_other_bytes_are_refused(mine, served, tmp_path, monkeypatch):
    with serving(served, fault=lambda path, data: data.replace(b"two", b"TWO")) as (address, _):
        monkeypatch.setenv("LEVELHEAD_MIRROR", address)
        with pytest.raises(ChecksumError, match="has another SHA-256 than the catalog"):
            mine.ensure_local("all")
    assert left(tmp_path) == []


def test_a_changed_file_is_refused_wherever_it_lies(mine, tmp_path, monkeypatch):
    for place in (tmp_path / "cache" / "data", tmp_path / "own"):
        monkeypatch.setenv("LEVELHEAD_DATA", str(tmp_path / "own"))
        (place / "mine" / "a").mkdir(parents=True)
        (place / "mine" / "a" / "b.txt").write_bytes(b"other")
        with pytest.raises(ChecksumError, match="is not the file of the catalog") as error:
            list(mine.items("all"))
        assert "download it again" in error.value.hint
        (place / "mine" / "a" / "b.txt").unlink()


def test_offline_says_exactly_what_to_put_where(mine, tmp_path, monkeypatch):
    with pytest.raises(DatasetMissingError, match="could not be downloaded") as error:
        mine.ensure_local("all")
    assert error.value.hint == (
        "levelhead data get mine, or put http://127.0.0.1:9/a/b.txt at "
        f"{tmp_path / 'cache' / 'data' / 'mine' / 'a' / 'b.txt'}"
    )
    subset = dataclasses.replace(mine, get="own copy", note="from nobody")
    with pytest.raises(DatasetMissingError, match="is not on this machine") as error:
        subset.ensure_local("all")
    assert error.value.hint.endswith("b.txt (from nobody)")


def test_a_number_of_items_that_is_not_the_tables_is_an_error(mine, served, monkeypatch):
    wrong = dataclasses.replace(mine, files=(mine.files[0]._replace(items=4),))
    monkeypatch.setenv("LEVELHEAD_DATA", str(served))
    with pytest.raises(LevelheadError, match="gave 3 items, not 4"):
        list(wrong.items("all"))


def test_the_command_line(served, tmp_path, monkeypatch):
    monkeypatch.setenv("LEVELHEAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LEVELHEAD_DATA", raising=False)
    listed = levelhead("data", "list")
    assert listed.returncode == 0
    assert listed.stdout.count("Limitations:") == len(datasets())
    assert "stereoset-swapped  [download]" in listed.stdout
    gone = levelhead("data", "path", "snli", "--part", "test")
    assert gone.returncode == 3
    assert "put a copy at" in gone.stderr
    assert levelhead("data", "lexicon", "list").stdout.count("Limitations:") == len(
        list_shipped_lexicons()
    )
    assert levelhead("data", "lexicon", "check", "gender-en").returncode == 0


def test_a_list_with_faults_exits_1(tmp_path):
    (tmp_path / "mine.toml").write_text(
        """
name = "mine"
language = "en"
groups = ["a", "b", "c"]
source = "here"
licence = "CC0-1.0"
limits = "all"
[[terms]]
kind = "person"
rows = [
  { a = "one", b = "two" }, { a = "one", b = "two" }, { a = "three", c = "four" },
  { a = "two", b = "five six" },
]
[targets.t]
about = "x"
[targets.t.sides.left]
words = ["one", "up"]
[targets.t.sides.right]
words = ["up"]
"""
    )
    result = levelhead("data", "lexicon", "check", tmp_path / "mine.toml")
    assert result.returncode == 1
    for line in (
        "unpaired    three, four: b has no word for it",
        "duplicate   one, two: occurs in 2 rows",
        "ambiguous   two: marks both a and b",
        "duplicate   up: occurs 2 times in t",
        "both        one: is a target of t and marks a",
        "multi-word  five six: cannot be used by measures of single words",
    ):
        assert line in result.stdout


GAP = "ID\tText\tPronoun\tPronoun-offset\tA\tB\tA-coref\tB-coref\n"
TWINS = (
    "context_id,label,gender,context,next_sentence,"
    "gender_swapped_context,gender_swapped_next_sentence\n"
)

COAL = '{"sentence1": "a cook sat", "sentence2": "%s", "label": "%s", "occ_word": "cook"}\n'


@pytest.mark.parametrize(
    ("reader", "text", "responses"),
    [
        ("stereoset", '{"type": "x"}\n', "'bias_type' is missing"),
        ("stereoset", "{\n", "no JSON"),
        ("twins", TWINS + "1,stereotype,F,a,b,c,d\n", "context 1 has the labels"),
        ("twins", TWINS + "1,unrelated,F,a,b,c,d\n" * 2, "a second row labelled unrelated"),
        ("twins", TWINS + "1,unrelated,F,a,b,,d\n", "'gender_swapped_context' is missing"),
        ("crows", "a,b\n1\n", "1 cells under 2 headings"),
        ("winobias", "1 no brackets\n", "not a numbered sentence"),
        ("winogender", "sentid\tsentence\na.b\tx\n", "not an id of four parts"),
        ("nli_tsv", "premise\thypothesis\tlabel\na\tb\t-1\n", "the label is '-1'"),
        ("glue_cola", "a\tb\n", "2 cells"),
        ("sentences", "no tab\n", "no tab between"),
        ("seat", "{}", "there is no targ1"),
        ("seat", "[]", "no JSON object"),
        ("gap", "", "the file is empty"),
        ("gap", GAP + "x\ta b\tb\t2\ta\tb\tmaybe\tTRUE\n", "'A-coref' is 'MAYBE'"),
        ("nli_coal", COAL % ("a cook sat", "zzz"), "label is 'zzz'"),
        ("nli_coal", COAL % ("a cat stood", "neutral"), "differ in more than 'cook'"),
        ("weat", '{"a": "xyz"}', "'a' is no list of words"),
    ],
)
def test_rows_that_do_not_fit_are_errors(reader, text, responses):
    with pytest.raises(BadRowError, match=responses):
        list(READERS[reader](text, "all"))


@given(st.sampled_from(sorted(READERS)), st.text(max_size=80))
def test_any_text_gives_items_or_an_error(reader, text):
    try:
        result = list(read_items(reader, text, "all"))
    except BadRowError:
        return
    if reader == "lines":
        assert len(result) == text.count("\n") + (not text.endswith("\n") and text != "")


@pytest.mark.parametrize(
    ("apart", "joined"),
    [
        ("He did n't , did he ?", "He didn't, did he?"),
        (
            "The city 's mayor ( 52 ) said : \u201c No . \u201d",
            "The city's mayor (52) said: \u201cNo.\u201d",
        ),
        ("It costs $ 5 .", "It costs $5."),
    ],
)
def test_signs_are_joined_as_people_write_them(apart, joined):
    assert detokenize(apart) == joined
