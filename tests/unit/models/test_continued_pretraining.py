"""Models trained further: they learn, come out the same twice, and go on after a kill."""

import json
import random
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
import zoo

from levelhead.core.errors import LevelheadError
from levelhead.core.files import file_hash
from levelhead.models.architectures.families import FAMILIES
from levelhead.models.edits.base import HeadScale
from levelhead.models.loading.checkpoints import Checkpoint, MissingHeadError
from levelhead.models.loading.load import load
from levelhead.models.sites import Site
from levelhead.models.training.continued_pretraining import (
    ContinuedPretrainingConfig,
    continue_pretraining,
    read_pretraining_record,
)
from levelhead.models.training.trainee import make_trainee

TEXTS = [
    f"the {who} {what}."
    for who in ("nurse", "doctor", "man", "woman", "house", "river")
    for what in ("is here", "was tired and quick", "said that he was there", "works in a house")
]
SHORT = ContinuedPretrainingConfig(
    steps=6, batch_size=8, learning_rate=1e-3, save_steps=2, threads=1
)
MODELS = {"masked": ("bert", "BertForPreTraining"), "causal": ("gpt2", "GPT2LMHeadModel")}


def weights(folder):
    return file_hash(folder / "model.safetensors")


class Stopped(Exception):
    """What a test stops a training with."""


def stop_at(step):
    def progress(done, total):
        if done == step:
            raise Stopped

    return progress


@pytest.mark.parametrize("kind", MODELS)
def test_the_same_twice_and_after_an_interruption(kind, tmp_path):
    base = zoo.folder(*MODELS[kind])
    assert continue_pretraining(base, TEXTS, tmp_path / "whole", config=SHORT) == tmp_path / "whole"
    torch.manual_seed(99), np.random.seed(99), random.seed(99)  # noqa: NPY002
    sample = torch.random.get_rng_state().clone()
    continue_pretraining(load(base), TEXTS, tmp_path / "again", config=SHORT)
    assert torch.equal(torch.random.get_rng_state(), sample)  # nobody else's chance is touched
    # Stopped within step 5 of 6: the checkpoint of step 4 is there.
    with pytest.raises(Stopped):
        continue_pretraining(base, TEXTS, tmp_path / "cut", config=SHORT, progress=stop_at(5))
    assert not (tmp_path / "cut").exists()
    unfinished = tmp_path / "cut.unfinished"
    assert {path.name for path in unfinished.glob("checkpoint-*")} == {
        "checkpoint-2",
        "checkpoint-4",
    }
    steps = []
    continue_pretraining(base, TEXTS, tmp_path / "cut", config=replace(SHORT, save_steps=3),
              progress=lambda *output: steps.append(output))  # fmt: skip
    assert steps == [(5, 6), (6, 6)]
    assert not unfinished.exists()
    assert weights(tmp_path / "whole") == weights(tmp_path / "again") == weights(tmp_path / "cut")
    single, two = (Checkpoint.inspect(tmp_path / name).hash for name in ("whole", "cut"))
    assert single == two  # the record, too
    continue_pretraining(base, TEXTS, tmp_path / "other", config=replace(SHORT, seed=1))
    assert weights(tmp_path / "other") != weights(tmp_path / "whole")


SCRIPT = """
import os, signal, sys
from pathlib import Path
from levelhead.models.training.continued_pretraining import (
    ContinuedPretrainingConfig,
    continue_pretraining,
)
base, folder, *texts = sys.argv[1:]
def progress(done, total):
    if done == 5:
        os.kill(os.getpid(), signal.SIGKILL)
continue_pretraining(base, texts, folder, progress=progress,
    config=ContinuedPretrainingConfig(
        steps=6, batch_size=8, learning_rate=1e-3, save_steps=2, threads=1, dropout=(0.3, 0.2)))
"""


# What is killed is another process, which has to import torch. The fast tier interrupts training
# in this process, above; test_finetune.py kills one that writes checkpoints by the same code.
@pytest.mark.full
def test_killed_with_dropout_and_half_a_checkpoint(tmp_path):
    base, schooling = zoo.folder(*MODELS["masked"]), replace(SHORT, dropout=(0.3, 0.2))
    continue_pretraining(base, TEXTS, tmp_path / "whole", config=schooling)
    killed = subprocess.run(
        [sys.executable, "-c", SCRIPT, base, tmp_path / "cut", *TEXTS], check=False
    )
    assert killed.returncode == -signal.SIGKILL
    half = tmp_path / "cut.unfinished" / "checkpoint-6"  # killed while it was written
    half.mkdir()
    (half / "trainer_state.json").write_text("{")
    continue_pretraining(base, TEXTS, tmp_path / "cut", config=schooling)
    assert weights(tmp_path / "whole") == weights(tmp_path / "cut")
    continue_pretraining(base, TEXTS, tmp_path / "dry", config=SHORT)
    assert weights(tmp_path / "whole") != weights(tmp_path / "dry")  # dropout was there


def test_a_plain_folder_of_the_same_class_with_the_bases_dropout(tmp_path):
    base = zoo.folder(*MODELS["masked"])
    schooling = replace(SHORT, dropout=(0.3, 0.2))
    continue_pretraining(base, [*TEXTS, "", "the " * 70], tmp_path / "child", config=schooling,
              metadata={"how": "by hand"})  # fmt: skip
    child = transformers.BertForPreTraining.from_pretrained(tmp_path / "child")
    before = transformers.BertForPreTraining.from_pretrained(base)
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "use_cache"):
        assert getattr(child.config, name) == getattr(before.config, name)
    assert child.config.architectures == ["BertForPreTraining"]
    now, was = child.state_dict(), before.state_dict()
    same = {name for name in now if torch.equal(now[name], was[name])}
    # Nothing was asked of the next-sentence head: it and its pooler are the base's own.
    assert {name for name in same if "position_ids" not in name} == {
        "bert.pooler.dense.weight",
        "bert.pooler.dense.bias",
        "cls.seq_relationship.weight",
        "cls.seq_relationship.bias",
    }
    record = json.loads((tmp_path / "child" / "levelhead.json").read_text())
    assert record == read_pretraining_record(tmp_path / "child")
    assert record["base"] == base.name
    assert record["base_sha256"] == Checkpoint.inspect(base).hash
    assert record["left_out"] == {"more than 64 tokens": 1, "no tokens": 1}
    assert (record["texts"], record["shown"]) == (len(TEXTS) + 2, 48)
    assert record["config"]["dropout"] == [0.3, 0.2]
    assert record["metadata"] == {"how": "by hand"}
    assert record["weights"] == {"model.safetensors": weights(tmp_path / "child")}
    assert load(tmp_path / "child").heads == {"masked", "next_sentence"}
    assert not load(tmp_path / "child").layout.model.training


@pytest.mark.parametrize("kind", MODELS)
def test_it_learns_what_it_is_shown(kind, tmp_path):
    base = load(zoo.folder(*MODELS[kind]))
    texts = ["the nurse was tired.", "the doctor was quick."]
    schooling = ContinuedPretrainingConfig(
        steps=200, batch_size=8, learning_rate=3e-3, save_steps=1000, threads=1
    )
    child = load(continue_pretraining(base, texts, tmp_path / "child", config=schooling))
    others = ["the nurse was quick.", "the doctor was tired."]
    gain = child.log_prob(texts).value - base.log_prob(texts).value
    elsewhere = child.log_prob(others).value - base.log_prob(others).value
    assert (gain > 3).all()
    assert gain.sum() > elsewhere.sum() + 2


def test_one_step_is_adam_on_the_mean_surprise(tmp_path):
    """By plain torch and transformers' own loss: one causal step from the base's weights."""
    base = zoo.folder(*MODELS["causal"], resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    schooling = ContinuedPretrainingConfig(steps=1, batch_size=2, learning_rate=1e-3, threads=1)
    texts = ["the nurse is here", "a man was there"]
    continue_pretraining(base, texts, tmp_path / "child", config=schooling)
    model = transformers.GPT2LMHeadModel.from_pretrained(base).train()
    ids = zoo.tokenizer(decoder=True)(texts, return_tensors="pt").input_ids
    model(input_ids=ids, labels=ids).loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    child = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "child")
    for name, subset in model.named_parameters():
        # After one step of Adam: rate x (gradient / (|gradient| + 1e-8) + decay x weight).
        decay = 0.01 if subset.dim() > 1 else 0.0
        expected = subset * (1 - 1e-3 * decay) - 1e-3 * subset.grad / (subset.grad.abs() + 1e-8)
        large = subset.grad.abs() > 1e-5  # below, the last bits of a gradient decide
        assert large.any()
        torch.testing.assert_close(
            child.get_parameter(name)[large], expected[large].detach(), atol=2e-6, rtol=0
        )


def test_a_finished_folder_is_returned_and_another_training_is_refused(tmp_path):
    base, folder = zoo.folder(*MODELS["masked"]), tmp_path / "child"
    continue_pretraining(base, TEXTS, folder, config=SHORT)
    output = []
    continue_pretraining(base, TEXTS, folder, config=SHORT, progress=lambda *at: output.append(at))
    assert output == []
    with pytest.raises(LevelheadError, match="is not empty"):
        continue_pretraining(base, TEXTS[1:], folder, config=SHORT)
    (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(LevelheadError, match="is not empty"):
        continue_pretraining(base, TEXTS, folder, config=SHORT)
    with pytest.raises(LevelheadError, match="no model from continued pretraining"):
        read_pretraining_record(base)
    with pytest.raises(Stopped):
        continue_pretraining(base, TEXTS, tmp_path / "cut", config=SHORT, progress=stop_at(3))
    with pytest.raises(LevelheadError, match="another base, other texts or settings") as error:
        continue_pretraining(base, TEXTS, tmp_path / "cut", config=replace(SHORT, seed=1))
    assert "remove it" in error.value.hint


def test_weights_equal_to_the_base_are_an_error(tmp_path):
    base = zoo.folder(*MODELS["masked"])
    with pytest.raises(LevelheadError, match="training changed nothing") as error:
        continue_pretraining(
            base, TEXTS, tmp_path / "child", config=replace(SHORT, learning_rate=1e-30)
        )
    assert error.value.hint == "give a higher rate or more steps"
    with pytest.raises(LevelheadError, match="NaN or infinity"):
        continue_pretraining(
            base, TEXTS, tmp_path / "child", config=replace(SHORT, learning_rate=1e38)
        )
    assert list(tmp_path.iterdir()) == []


def test_what_is_refused(tmp_path):
    path = zoo.folder(*MODELS["masked"])
    lm = load(path)
    edit = HeadScale([Site("head_out", 1, 1)], 0)
    for edited in (lm.edited(edit), lm.edited(edit).merged()):
        with pytest.raises(LevelheadError, match="is edited, but its checkpoint is not"):
            continue_pretraining(edited, TEXTS, tmp_path / "child")
    with pytest.raises(MissingHeadError, match="no vocabulary head"):
        continue_pretraining(zoo.folder("bert", "BertModel"), TEXTS, tmp_path / "child")
    with pytest.raises(
        LevelheadError, match="none of 2 texts can be used: no tokens, no token that"
    ):
        continue_pretraining(lm, ["", "zebra"], tmp_path / "child")
    with pytest.raises(LevelheadError, match="none of 0 texts can be used: the list is empty"):
        continue_pretraining(lm, [], tmp_path / "child")
    low = replace(SHORT, dropout=(0.1, 0.05))
    with pytest.raises(LevelheadError, match="not higher than the base's"):
        continue_pretraining(lm, TEXTS, tmp_path / "child", config=low)
    llama = zoo.folder("llama", "LlamaForCausalLM")
    with pytest.raises(LevelheadError, match="llama has no dropout of hidden states") as error:
        continue_pretraining(
            llama, TEXTS, tmp_path / "child", config=replace(SHORT, dropout=(0.2, 0.1))
        )
    assert error.value.hint == "give hidden=0"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "output"),
    [
        ({"steps": 0}, "no model can be trained"),
        ({"save_steps": 0}, "no model can be trained"),
        ({"max_tokens": 3}, "no model can be trained"),
        ({"seed": -1}, "no model can be trained"),
        ({"learning_rate": 0.0}, "a learning rate of 0.0"),
        ({"learning_rate": float("nan")}, "a learning rate of nan"),
        ({"mask_fraction": 1.0}, "a mask fraction of 1.0"),
        ({"dropout": (0.1, 1.0)}, "a dropout of"),
    ],
)
def test_schooling_that_teaches_nothing(changes, output):
    with pytest.raises(LevelheadError, match=output):
        ContinuedPretrainingConfig(**changes)


ONLY_ATTENTION = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text")


@pytest.mark.parametrize("family", zoo.CONFIGS)
def test_dropout_reaches_every_family(family):
    """In training two forwards differ under either kind of dropout, and agree without."""
    lm = load(zoo.folder(family, vocabulary_class(family)))
    batch = {"input_ids": torch.tensor([[1, 5, 7, 12, 15, 2]] * 2)}

    def moved(dropout):
        pupil = make_trainee(lm, dropout)
        pupil.model.train()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            single, two = (pupil.backbone(**batch).last_hidden_state for _ in range(2))
        return not torch.equal(single, two)

    hidden = 0.0 if family in ONLY_ATTENTION else 0.5
    if hidden:
        assert moved((0.5, 0.0))
    assert moved((0.0, 0.5))
    pupil = make_trainee(lm, (hidden, 0.5)).model.eval()
    with torch.no_grad():
        subset = lm.layout.backbone(**batch).last_hidden_state
        assert torch.equal(pupil.base_model(**batch).last_hidden_state, subset)


def vocabulary_class(family):
    return next(row.name for row in FAMILIES[family].classes if row.vocabulary)
