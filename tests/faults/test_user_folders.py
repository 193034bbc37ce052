"""Folders of users that were added lately: languages, steering edits, Parquet, mitigations."""

import json
import os

import polars
import pytest
import torch
import zoo
from faults import invoke
from metric_cases import made, model

from levelhead.core.errors import LevelheadError
from levelhead.data.corpus.reader import read_texts, split_corpus
from levelhead.data.languages.language import language
from levelhead.locate.patching.mediation import mediate
from levelhead.models.edits.conditional_shift import ConditionalShift
from levelhead.models.edits.files import load_edits, save_edits
from levelhead.models.edits.shift import Shift
from levelhead.models.loading.load import load
from levelhead.models.sites import Site
from levelhead.study.config import read_study_config

BERT = ("bert", "BertForPreTraining")

# -- languages

ROW = {"code": "xx", "name": "X", "grammatical_gender": "none", "cannot": "Nothing.", "data": {}}
PERSONS = """description = "a {adjective} person"
templates = ["The {person} is [MASK]."]
[targets.t]
about = "t"
[targets.t.sides.a]
words = ["kind"]
[targets.t.sides.b]
words = ["cold"]
"""


def write_language(folder, *, change=("", ""), **row):
    """A folder of a language, with a text of its sentences replaced."""
    lines = [
        f"{key} = {{{', '.join(f'{k} = {json.dumps(v)}' for k, v in value.items())}}}"
        if isinstance(value, dict)
        else f"{key} = {json.dumps(value)}"
        for key, value in (ROW | row).items()
    ]
    (folder / "language.toml").write_text("\n".join(lines))
    (folder / "persons.toml").write_text(PERSONS.replace(*change))
    return str(folder)


def test_a_sound_language_is_read(tmp_path):
    assert language(write_language(tmp_path)).persons.templates == ("The {person} is [MASK].",)


ROWS = {
    "a number as text": {"cannot": 3},
    "a list as data": {"data": ["a"]},
    "a number as a data set": {"data": {"crows": 3}},
    "a path as code": {"code": "../../etc"},
    "markup as code": {"code": "<script>"},
    "a truth value as gender": {"grammatical_gender": False},
    "no name": {"name": ""},
}


@pytest.mark.parametrize("fault", ROWS)
def test_rows_of_languages(fault, tmp_path):
    with pytest.raises(LevelheadError) as error:
        language(write_language(tmp_path, **ROWS[fault]))
    assert "format" in error.value.hint


SENTENCES = {
    "templates that are a text": ('["The {person} is [MASK]."]', '"The {person} is [MASK]."'),
    "templates that are numbers": ('["The {person} is [MASK]."]', "[1, 2]"),
    "no templates": ('["The {person} is [MASK]."]', "[]"),
    "words that are a text": ('["kind"]', '"kind"'),
    "words that are numbers": ('["kind"]', "[1]"),
    "no words": ('["kind"]', "[]"),
    "a number as topic": ('about = "t"', "about = 3"),
    "an attribute in the description": ("{adjective}", "{adjective.__class__}"),
    "a number as description": ('"a {adjective} person"', "3"),
    "brackets without end": (PERSONS, "a = " + "[" * 100_000),
    "a number of 5,000 digits": (PERSONS, "a = " + "9" * 5000),
}


@pytest.mark.parametrize("fault", SENTENCES)
def test_sentences_of_languages(fault, tmp_path):
    """A text in the place of a list would be read as a list of letters."""
    entry = language(write_language(tmp_path, change=SENTENCES[fault]))
    with pytest.raises(LevelheadError) as error:
        _ = entry.persons
    assert error.value.hint


# -- steering edits


HUGE = {
    "a shift of 1e200": lambda n: Shift(
        Site("mlp_out", 0), torch.full((n,), 1e200, dtype=torch.float64)
    ),
    "a shift of 1e38": lambda n: Shift(Site("mlp_out", 0), torch.full((n,), 1e38)),
    "a conditional shift of 1e38": lambda n: ConditionalShift(
        Site("mlp_out", 0),
        weights=torch.ones(1, n),
        biases=torch.full((1,), 1e9),
        vectors=torch.full((1, n), 1e38),
    ),
}


@pytest.mark.parametrize("fault", HUGE)
def test_an_edit_that_leaves_no_number_is_an_error(fault, tmp_path):
    """Finite in a file, and not in the model: with the hashes that an attacker would compute."""
    lm = load(zoo.folder(*BERT))
    save_edits([HUGE[fault](lm.layout.width)], tmp_path / "edit")
    edited = load(zoo.folder(*BERT), edit=str(tmp_path / "edit"))
    with pytest.raises(LevelheadError, match="NaN or infinity"):
        edited.embed(["the nurse is here."])


@pytest.mark.parametrize("name", ["edits.json", "edits.safetensors"])
def test_a_pipe_in_the_place_of_a_file_does_not_wait(name, tmp_path):
    save_edits([Shift(Site("mlp_out", 0), torch.ones(4))], tmp_path / "edit")
    (tmp_path / "edit" / name).unlink()
    os.mkfifo(tmp_path / "edit" / name)
    with pytest.raises(LevelheadError, match=r"no |cannot read"):
        load_edits(tmp_path / "edit")


# -- Parquet


def read_column(path):
    return [text for piece in split_corpus([str(path)]) for text in read_texts(piece)]


COLUMNS = {
    "integers": polars.Series("text", [1, 2]),
    "numbers": polars.Series("text", [1.5]),
    "truth values": polars.Series("text", [True]),
    "structures": polars.Series("text", [{"a": 1}]),
    "lists": polars.Series("text", [["a"]]),
    "bytes that are no text": polars.Series("text", [b"\xff\xfe"]),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_columns_that_hold_no_text(kind, tmp_path):
    polars.DataFrame([COLUMNS[kind]]).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(LevelheadError, match="text") as error:
        read_column(tmp_path / "a.parquet")
    assert error.value.hint


def test_a_name_with_the_signs_of_a_pattern_is_a_name(tmp_path):
    """x[1].parquet would be taken for x1.parquet, which lies beside it."""
    for name, text in (("x[1].parquet", "he works"), ("x1.parquet", "another file")):
        polars.DataFrame({"text": [text]}).write_parquet(tmp_path / name)
    (piece,) = split_corpus([str(tmp_path / "x[[]1].parquet")])
    assert list(read_texts(piece)) == ["he works"]


# -- mitigations of a study

STUDY = (
    'format = "levelhead-study-2"\nname = "x"\n[models.m]\npath = "m"\n[measures]\nseat = "seat"\n'
    '[mitigations.a]\nmodel = "m"\nmeasures = ["seat"]\n'
)
MITIGATIONS = {
    "a negative margin": 'system_prompt = "x"\nknowledge_margin = -5',
    "a margin of zero": 'system_prompt = "x"\nknowledge_margin = 0',
    "a margin that keeps everything": 'system_prompt = "x"\nknowledge_margin = 1000',
    "a margin of infinity": 'system_prompt = "x"\nknowledge_margin = inf',
    "a prompt of spaces": 'system_prompt = "  "',
    "a setting too many": 'system_prompt = "x"\ncode = "import os"',
}


@pytest.mark.parametrize("fault", MITIGATIONS)
def test_mitigations_of_a_study(fault, tmp_path):
    (tmp_path / "study.toml").write_text(STUDY + MITIGATIONS[fault])
    with pytest.raises(LevelheadError) as error:
        read_study_config(tmp_path / "study.toml").check()
    assert error.value.hint


# -- mediation

TWINS = {
    "5,000 digits as a number of parts": ("--patch-top", "9" * 5000),
    "a number of parts below zero": ("--patch-top=-1",),
    "another script's number of parts": ("--patch-top", "\u00b2"),
    "a pair without words": ("--twins", "="),
    "a device as a lexicon": ("--twins", "/dev/zero"),
    "control characters as a choice": ("--tokens", "x\x1b[2J"),
}


def test_a_word_without_letters_has_no_twin():
    with pytest.raises(LevelheadError, match="no word to exchange"):
        mediate(model("crows_margin"), made("crows_margin"), twins={"nurse": ""})


@pytest.mark.parametrize("fault", TWINS)
def test_options_of_mediation(fault):
    result = invoke("explain", "mediation", zoo.folder(*BERT), *TWINS[fault], "--quiet")
    assert isinstance(result.exception, LevelheadError | SystemExit)
    assert "\x1b" not in result.output
