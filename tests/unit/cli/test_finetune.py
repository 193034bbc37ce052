"""`levelhead finetune` on a tiny model and files of one's own."""

import inspect
from dataclasses import fields

import pytest
import zoo
from command import levelhead
from typer.testing import CliRunner

from levelhead.cli import app
from levelhead.cli.finetune import finetune_command
from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.data.tasks import TASKS
from levelhead.measures.utility.glue_task import GlueTask, finetune_on_task
from levelhead.models.edits.base import HeadScale
from levelhead.models.edits.files import save_edits
from levelhead.models.loading.load import load
from levelhead.models.sites import Site
from levelhead.models.training.finetune import FinetuneConfig, read_finetune_record

THINGS = ("nurse", "doctor", "man", "woman", "house", "river", "quick", "lazy")


def rows(header, label):
    made = [
        f"the {a} is here.,the {b} was there.,{label(i, j)}\n"
        for i, a in enumerate(THINGS)
        for j, b in enumerate(THINGS)
    ]
    return header + "".join(made)


@pytest.fixture
def files(tmp_path):
    train, dev = tmp_path / "train.csv", tmp_path / "dev.csv"
    train.write_text(rows("sentence1,sentence2,label\n", lambda i, j: int(i == j)))
    stored = rows("sentence1,sentence2,label\n", lambda i, j: int((i + j) % 3 > 0)).splitlines()
    dev.write_text("\n".join([*stored[:40], "the man is here and there.,a woman.,1"]))
    return "--train", str(train), "--dev", str(dev)


def invoke(*args):
    base = zoo.folder("bert", "BertForPreTraining")
    return CliRunner().invoke(app, ["finetune", str(base), *map(str, args)])


QUICK = ("--epochs", 1, "--batch-size", 16, "--learning-rate", 1e-3, "--threads", 1)


def test_it_ends_with_the_tasks_metric_and_its_interval(tmp_path, files):
    out = tmp_path / "out"
    result = invoke("--task", "rte", *files, *QUICK, "-o", out)
    assert result.exit_code == 0, result.output
    finetune_record = read_finetune_record(out)
    assert finetune_record["metadata"]["task"] == "rte"
    assert list(finetune_record["metadata"]["data"]) == ["file train.csv"]
    lm = load(out)
    assert lm.labels == ("entailment", "not_entailment")
    outcome = GlueTask(task="rte", file=files[3])(lm)
    lines = result.stdout.splitlines()
    assert lines[0] == f"{out}: {finetune_record['base']} fine-tuned on rte"
    assert lines[1] == "  64 texts; 1 epochs, 16 texts per step, learning rate 0.001, seed 0"
    assert lines[2] == (
        f"  dev: accuracy {outcome.value:.4g} {outcome.interval} (% of texts; n {outcome.n})"
    )
    assert "always not_entailment" in result.stdout
    assert "39 of the dev texts are also in the training part" in result.stdout
    again = invoke("--task", "rte", *files, *QUICK, "-o", out)
    assert again.stdout == result.stdout  # done: nothing is trained again


def test_masked_heads_and_scores(tmp_path):
    mask = HeadScale([Site("head_out", 1, 2)], 0)
    save_edits([mask], tmp_path / "edit")
    text = rows("sentence1,sentence2,score\n", lambda i, j: (3 * i + j) % 6)
    (tmp_path / "own.csv").write_text(text)
    given = ("--train", tmp_path / "own.csv", "--dev", tmp_path / "own.csv")
    out = tmp_path / "out"
    result = invoke("--task", "stsb", *given, *QUICK, "--edit", tmp_path / "edit", "-o", out)
    assert result.exit_code == 0, result.output
    assert "masked while training: head_out 1.2" in result.stdout
    assert "  dev: Pearson " in result.stdout
    assert "  dev: Spearman " in result.stdout
    assert load(out).identity.merged_edits == (mask.content_hash,)


def test_what_cannot_be_had_is_said_before_anything_is_trained(tmp_path, files):
    out = tmp_path / "out"
    result = invoke("--task", "sst2", "-o", out)
    assert isinstance(result.exception, LevelheadError)
    assert not out.exists()
    result = invoke("--task", "ret", *files, "-o", out)
    assert isinstance(result.exception, UnknownNameError)
    assert "did you mean 'rte'" in result.exception.hint
    result = invoke("--task", "rte", "--train", files[1], "--dev", "none.csv", "-o", out)
    assert "cannot read none.csv" in str(result.exception)
    result = invoke("--task", "rte", *files, "--learning-rate", 0, "-o", out)
    assert "a learning rate of 0.0" in str(result.exception)
    assert not out.exists()


def test_names_and_defaults_are_those_of_python():
    subset = inspect.signature(finetune_command).parameters
    python = {
        *inspect.signature(finetune_on_task).parameters,
        *(field.name for field in fields(FinetuneConfig)),
    }
    renamed = {"base": "model", "folder": "output", "edits": "edit"}
    python = {renamed.get(name, name) for name in python} - {"config", "progress", "save_steps"}
    assert python <= set(subset)
    for field in fields(FinetuneConfig):
        if field.name in subset and field.name != "epochs":
            assert subset[field.name].default == field.default
    words = str(subset["task"].annotation).replace("'", " ")
    assert all(name in words for name in TASKS)


def test_a_wrong_command_line_is_an_error():
    result = levelhead("finetune", "model")
    assert result.returncode == 3
    assert "Missing option" in result.stderr
