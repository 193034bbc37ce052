"""`levelhead mitigate project` on a tiny model."""

import inspect

import pytest
import typer
import zoo
from typer.testing import CliRunner

from levelhead.cli.mitigate.mitigate import app
from levelhead.core.errors import LevelheadError
from levelhead.data.counterfactuals.contrast_pairs import contrast_pairs
from levelhead.mitigate.projection.edit_points import project
from levelhead.models.edits.files import load_edits, read_edit_origin
from levelhead.models.loading.load import load

LIST = """
name = "own"
language = "en"
groups = ["female", "male"]
source = "the tests"
licence = "CC0-1.0"
limits = "says nothing of anybody"
[[terms]]
kind = "person"
rows = [
  { female = "woman", male = "man" },
  { female = "nurse", male = "doctor" },
  { female = "zebra", male = "house" },
]
"""


@pytest.fixture
def subset(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(LIST)
    return path


def invoke(folder, subset, *args):
    given = ["project", str(folder), "--lexicon", str(subset), *map(str, args)]
    return CliRunner().invoke(app, given)


def test_the_edit_is_that_of_python(tmp_path, subset):
    folder, out = zoo.folder("bert", "BertForPreTraining"), tmp_path / "edit"
    result = invoke(
        folder, subset, "--edit-point", "layer2+attn", "--hard", "--n-components", 2,
        "--fit-on", "cumulative", "-o", out,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    lm = load(folder)
    expected = project(
        lm,
        "penultimate+attn",
        contrast_pairs(str(subset))[:12],
        weighted=False,
        n_components=2,
        fit_on="cumulative",
    )
    assert load_edits(out) == expected
    assert "penultimate+attn 0,1,0,1,0 of" in result.stdout
    assert "fitted on 12 pairs of texts (model: cumulative)" in result.stdout
    assert "left out: 6 (the model's vocabulary lacks 'zebra')" in result.stdout
    assert "query 1, every head: 1.000 removed from all tokens" in result.stdout
    assert "block_out 2: 1.000, 1.000 removed from first tokens" in result.stdout
    assert "not known until measured" in result.stdout
    load(folder, edit=str(out))
    origin = read_edit_origin(out)
    assert origin.model == folder.name
    assert origin.checkpoint == lm.identity.checkpoint.hash
    assert origin.how["setting"] == "penultimate+attn 0,1,0,1,0"
    assert origin.how["lexicon"] == subset.name
    assert origin.how["pairs"]["n"] == 12


def test_without_a_folder_nothing_is_written(subset):
    folder = zoo.folder("gpt2", "GPT2LMHeadModel")
    result = invoke(folder, subset, "--edit-point", "last", "--pairs", 12, "--pooling", "word")
    assert result.exit_code == 0, result.output
    assert "not written (give -o): last 1,0 of" in result.stdout
    assert "the model has no pooled vector: the first level is last" in result.stdout


def test_what_is_wrong_is_said_before_the_work(tmp_path, subset):
    folder = zoo.folder("bert", "BertForPreTraining")
    result = invoke(folder, subset, "--edit-point", "layer11")
    assert isinstance(result.exception, LevelheadError)
    assert "this model has 3 layers" in str(result.exception)
    result = invoke(folder, subset, "--edit-point", "last", "-o", tmp_path)
    assert "is not empty" in str(result.exception)


def test_options_are_named_as_in_python():
    command = typer.main.get_command(app).commands["project"]
    shared = {
        "model",
        "output",
        "quiet",
        "batch_size",
        "device",
        "dtype",
        "allow_pickle",
        "revision",
    }
    names = {option.name for option in command.params} - shared
    python = set(inspect.signature(project).parameters)
    # `lexicon` is what `pairs` are made of, with the options of `paired`.
    made = {"lexicon"} | set(inspect.signature(contrast_pairs).parameters)
    assert names <= python | made
    assert python - {"lm", "pairs"} <= names
