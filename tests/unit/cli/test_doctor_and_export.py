"""`doctor` and `export` on the command line."""

import inspect
import json

import pytest
import torch
import typer
import zoo
from command import levelhead

from levelhead.cli import app
from levelhead.models.edits.base import HeadScale, Projection
from levelhead.models.edits.files import read_fitted_words, save_edits
from levelhead.models.lm import LM
from levelhead.models.loading.load import load
from levelhead.models.sites import Site


def test_a_healthy_model_exits_0():
    result = levelhead("doctor", zoo.folder("gpt2", "GPT2LMHeadModel"))
    assert result.returncode == 0, result.stderr
    assert "GPT2LMHeadModel, 3 layers x 4 heads; causal" in result.stdout
    assert result.stdout.count("\u2713") == 9
    assert result.stdout.endswith("9 checks passed, 0 failed\n")


def test_a_sick_model_exits_3_and_says_the_mend(tmp_path):
    model = zoo.built("bert", "BertForPreTraining")
    with torch.no_grad():
        model.bert.encoder.layer[2].output.dense.bias[0] = 1e38  # a square of it is infinite
    model.save_pretrained(tmp_path)
    zoo.tokenizer().save_pretrained(tmp_path)
    result = levelhead("doctor", tmp_path)
    assert result.returncode == 3
    assert "\u2717" in result.stdout
    assert "hint: " in result.stdout


def test_the_report_of_the_doctor_as_json():
    result = levelhead("doctor", zoo.folder("gpt2", "GPT2LMHeadModel"), "--json")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert "GPT2LMHeadModel" in document["model"]
    assert [check["holds"] for check in document["checks"]] == [True] * 9
    assert {"check", "holds", "message", "hint"} == set(document["checks"][0])


def test_marks_are_plain_where_the_terminal_is(monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    result = levelhead("doctor", zoo.folder("gpt2", "GPT2LMHeadModel"))
    assert result.returncode == 0
    assert result.stdout.count("   ok ") == 9


def test_bake_writes_the_edited_model(tmp_path):
    path = zoo.folder("bert", "BertForPreTraining")
    edit = HeadScale([Site("head_out", 1, 1)], 0)
    save_edits([edit], tmp_path / "edit")
    result = levelhead("export", path, "--edit", tmp_path / "edit", "-o", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    assert "scale at head 2-2\n" in result.stdout  # as `levelhead locate` counts
    texts = ["the nurse works"]
    torch.testing.assert_close(
        load(tmp_path / "out").embed(texts), load(path).edited(edit).embed(texts)
    )


def test_bake_writes_the_edit_beside_the_model_where_no_weights_can_carry_it(tmp_path):
    path = zoo.folder("bert", "BertForPreTraining")
    edit = Projection(Site("block_out", 1), torch.eye(24, dtype=torch.float64)[:1])
    save_edits([edit], tmp_path / "edit", fitted_words=["he", "she"])
    args = ("export", path, "--edit", tmp_path / "edit", "-o", tmp_path / "out")
    result = levelhead(*args)
    assert result.returncode == 3
    assert "the projection at block_out 1 cannot be merged into plain weights" in result.stderr
    assert "--with-edit-file" in result.stderr
    assert "levelhead.load(model, edit=folder)" in result.stderr
    assert not (tmp_path / "out").exists()
    result = levelhead(*args, "--with-edit-file")
    assert result.returncode == 0, result.stderr
    assert "1 edit(s) next to the base's weights" in result.stdout
    assert "AutoModel\n  alone loads the base" in result.stdout
    assert "```python" in (tmp_path / "out" / "README.md").read_text()
    assert load(tmp_path / "out", edit=tmp_path / "out").edits == (edit,)
    assert read_fitted_words(tmp_path / "out") == ("he", "she")


@pytest.mark.parametrize(
    ("args", "responses"),
    [
        (["doctor", "nowhere/at/all/nothing"], "neither a local folder nor a Hub id"),
        (["export", "x", "-o", "y"], "Missing option '--edit'"),
    ],
)
def test_errors_exit_3(args, responses):
    result = levelhead(*args)
    assert result.returncode == 3
    assert responses in result.stderr


def test_options_are_named_as_in_python():
    keywords = set(inspect.signature(load).parameters) | {"model", "output"}
    keywords |= set(inspect.signature(LM.save_pretrained).parameters)
    commands = typer.main.get_command(app).commands
    for verb in ("doctor", "export"):
        names = {option.name for option in commands[verb].params}
        assert names - {"help", "json"} <= keywords
