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

from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.core.files import file_hash
from levelhead.models.edits.base import HeadScale
from levelhead.models.loading.checkpoints import Checkpoint, MissingHeadError
from levelhead.models.loading.load import load
from levelhead.models.sites import Site
from levelhead.models.training.classifier_trainer import make_batch_order
from levelhead.models.training.finetune import FinetuneConfig, finetune, read_finetune_record

THINGS = ("nurse", "doctor", "man", "woman", "house", "river")
ROWS = [
    ((f"the {a} is here.", f"the {b} was there."), "same" if a == b else "other")
    for a in THINGS
    for b in THINGS
]
SCORES = [(text, 4.0 if "nurse" in text[0] else 1.0) for text, _ in ROWS]
LABELS = ("other", "same")
TUNING = FinetuneConfig(epochs=2, batch_size=8, learning_rate=1e-3, threads=1)
MASK = HeadScale([Site("head_out", 0, 1), Site("head_out", 2, 3)], 0)


@pytest.fixture(scope="module")
def base():
    return zoo.folder("bert", "BertForPreTraining")


def weights(folder):
    return file_hash(folder / "model.safetensors")


def test_a_pretrained_encoder_becomes_a_classifier_with_named_classes(base, tmp_path):
    steps = []
    finetune(base, ROWS, LABELS, tmp_path / "a", config=TUNING,
             progress=lambda *output: steps.append(output))  # fmt: skip
    lm = load(tmp_path / "a")
    assert lm.labels == LABELS
    assert lm.heads == {"classifier"}
    assert steps[-1] == (10, 10)
    before, after = load(base).layout, lm.layout
    assert not torch.equal(  # all weights are trained, not the head alone
        before.blocks[0].attention.self.query.weight, after.blocks[0].attention.self.query.weight
    )
    torch.manual_seed(99), np.random.seed(99), random.seed(99)  # noqa: NPY002
    sample = torch.random.get_rng_state().clone()
    assert finetune(load(base), ROWS, LABELS, tmp_path / "b", config=TUNING) == tmp_path / "b"
    assert torch.equal(torch.random.get_rng_state(), sample)  # nobody else's chance is touched
    assert weights(tmp_path / "a") == weights(tmp_path / "b")
    single, two = (Checkpoint.inspect(tmp_path / name).hash for name in "ab")
    assert single == two  # the record, too
    finetune(base, ROWS, LABELS, tmp_path / "c", config=replace(TUNING, seed=1))
    assert weights(tmp_path / "a") != weights(tmp_path / "c")
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b", "c"}  # nothing is left behind


SCRIPT = """
import json, os, signal, sys
from levelhead.models.training.finetune import FinetuneConfig, finetune
base, folder, rows = sys.argv[1:]
def progress(done, total):
    if done == 8:
        os.kill(os.getpid(), signal.SIGKILL)
rows = [(tuple(text), label) for text, label in json.loads(rows)]
finetune(base, rows, ("other", "same"), folder, progress=progress,
         config=FinetuneConfig(
             epochs=2, batch_size=8, learning_rate=1e-3, threads=1, save_steps=3))
"""


# More than 5 s: what is killed is another process, which has to import torch.
def test_killed_with_half_a_checkpoint_it_ends_with_the_same_bits(base, tmp_path):
    """Stopped in the second epoch; dropout is on."""
    assert load(base).layout.model.config.hidden_dropout_prob > 0
    finetune(base, ROWS, LABELS, tmp_path / "whole", config=TUNING)
    command = [sys.executable, "-c", SCRIPT, base, tmp_path / "cut", json.dumps(ROWS)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert not (tmp_path / "cut").exists()
    unfinished = tmp_path / "cut.unfinished"
    stored = {path.name for path in unfinished.glob("checkpoint-*")}
    assert stored == {"checkpoint-3", "checkpoint-6"}
    half = unfinished / "checkpoint-9"  # killed while it was written
    half.mkdir()
    (half / "trainer_state.json").write_text("{")
    steps = []
    finetune(base, ROWS, LABELS, tmp_path / "cut", config=replace(TUNING, save_steps=5),
             progress=lambda *output: steps.append(output))  # fmt: skip
    assert steps == [(7, 10), (8, 10), (9, 10), (10, 10)]
    assert weights(tmp_path / "whole") == weights(tmp_path / "cut")
    assert read_finetune_record(tmp_path / "whole") == read_finetune_record(tmp_path / "cut")
    assert not unfinished.exists()


def test_a_score_has_one_column_and_is_approached(base, tmp_path):
    tuning = replace(TUNING, epochs=20, learning_rate=3e-3)
    finetune(base, SCORES, (), tmp_path / "a", config=tuning)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "a").eval()
    assert model.config.problem_type == "regression"
    assert model.config.id2label == {0: "score"}
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "a")
    shown = tokenizer(
        *zip(*(text for text, _ in SCORES), strict=True),
        return_token_type_ids=True,
        return_tensors="pt",
    )
    with torch.no_grad():
        responses = model(**shown).logits[:, 0]
    wanted = torch.tensor([score for _, score in SCORES])
    assert responses.shape == (36,)
    assert ((responses - wanted) ** 2).mean() < (wanted**2).mean() / 2  # a new head says 0
    with pytest.raises(
        MissingHeadError, match="no mutually exclusive classes: 1 outputs, regression"
    ):
        load(tmp_path / "a").labels  # noqa: B018


@pytest.mark.parametrize("labels", [LABELS, ()])
def test_one_step_is_adam_on_the_mean_loss(labels, tmp_path):
    """By plain torch and transformers' own loss: one step from the base's weights."""
    path = zoo.folder(
        "bert", "BertForMaskedLM", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    rows = [(ROWS if labels else SCORES)[i] for i in (0, 1, 7)]
    finetune(path, rows, labels, tmp_path / "a",
             config=replace(TUNING, epochs=1, max_tokens=64))  # fmt: skip
    kind = {"num_labels": 2} if labels else {"num_labels": 1, "problem_type": "regression"}
    torch.manual_seed(TUNING.seed)
    model = transformers.BertForSequenceClassification.from_pretrained(path, **kind).train()
    wanted = torch.tensor([LABELS.index(y) for _, y in rows] if labels else [y for _, y in rows])
    shown = zoo.tokenizer()(
        *zip(*(text for text, _ in rows), strict=True),
        return_token_type_ids=True,  # which text a token is of, as `LM` is read
        return_tensors="pt",
    )
    assert shown["token_type_ids"].any()
    model(**shown, labels=wanted).loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    child = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "a")
    for name, subset in model.named_parameters():
        # After one step of Adam: rate x (gradient / (|gradient| + 1e-8) + decay x weight).
        decay = 0.0 if name.endswith("bias") or "LayerNorm" in name else 0.01
        expected = subset * (1 - 1e-3 * decay) - 1e-3 * subset.grad / (subset.grad.abs() + 1e-8)
        large = subset.grad.abs() > 1e-5  # below, the last bits of a gradient decide
        torch.testing.assert_close(
            child.get_parameter(name)[large], expected[large].detach(), atol=2e-6, rtol=0
        )


def test_without_dropout_nothing_is_dropped(tmp_path):
    """The weights are those of a base that never drops, and the config keeps the base's shares."""
    never = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    drops, keeps = (
        zoo.folder("bert", "BertForMaskedLM"),
        zoo.folder("bert", "BertForMaskedLM", **never),
    )
    off = replace(TUNING, dropout=False)
    for name, path, tuning in (("a", drops, off), ("b", keeps, TUNING), ("c", drops, TUNING)):
        finetune(path, ROWS, LABELS, tmp_path / name, config=tuning)
    assert weights(tmp_path / "a") == weights(tmp_path / "b") != weights(tmp_path / "c")
    assert load(tmp_path / "a").layout.model.config.hidden_dropout_prob > 0
    assert read_finetune_record(tmp_path / "a")["tuning"]["dropout"] is False


def test_masked_heads_stay_masked_while_all_else_is_trained(base, tmp_path):
    finetune(base, ROWS, LABELS, tmp_path / "masked", config=TUNING, edits=[MASK])
    finetune(load(base).edited(MASK), ROWS, LABELS, tmp_path / "edited", config=TUNING)
    assert weights(tmp_path / "masked") == weights(tmp_path / "edited")
    lm = load(tmp_path / "masked")
    texts = [text for text, _ in ROWS]
    assert torch.equal(lm.classify(texts), lm.edited(MASK).classify(texts))
    out = lm.layout.blocks[0].attention.output.dense.weight.view(24, 4, 6)
    assert not out[:, 1].any()
    assert bool((out[:, [0, 2, 3]] != load(base).layout.blocks[0].attention.output.dense.weight
                 .view(24, 4, 6)[:, [0, 2, 3]]).all())  # fmt: skip
    finetune(base, ROWS, LABELS, tmp_path / "free", config=TUNING)
    free = load(tmp_path / "free")
    assert not torch.equal(free.classify(texts), free.edited(MASK).classify(texts))
    assert not torch.allclose(lm.classify(texts), free.edited(MASK).classify(texts))
    finetune_record = read_finetune_record(tmp_path / "masked")
    assert finetune_record["folded"] == [MASK.content_hash]
    assert finetune_record["masked"] == ["head_out 0.1", "head_out 2.3"]
    assert lm.identity.merged_edits == (MASK.content_hash,)


def test_the_record_says_what_the_weights_depend_on(base, tmp_path):
    long = [(("the nurse " * 20, "a man."), "same")]
    finetune(base, ROWS + long, LABELS, tmp_path / "a", config=replace(TUNING, max_tokens=20),
             metadata={"task": "twins"})  # fmt: skip
    finetune_record = read_finetune_record(tmp_path / "a")
    assert finetune_record["base"] == base.name
    assert finetune_record["base_sha256"] == Checkpoint.inspect(base).hash
    assert (finetune_record["rows"], finetune_record["cut"], finetune_record["labels"]) == (
        37,
        1,
        ["other", "same"],
    )
    assert finetune_record["tuning"] == {
        "epochs": 2, "batch_size": 8, "learning_rate": 1e-3, "max_tokens": 20, "dropout": True,
        "seed": 0, "threads": 1,
    }  # fmt: skip
    assert finetune_record["metadata"] == {"task": "twins"}
    assert finetune_record["class"] == "BertForSequenceClassification"
    assert finetune_record["weights"] == {"model.safetensors": weights(tmp_path / "a")}
    assert (
        finetune_record["folded"]
        == finetune_record["masked"]
        == finetune_record["base_folded"]
        == []
    )
    with pytest.raises(LevelheadError, match="holds no fine-tuned model"):
        read_finetune_record(base)


def test_a_finished_folder_is_returned_and_another_training_is_refused(base, tmp_path):
    quick, steps = replace(TUNING, epochs=0.2), []
    finetune(base, ROWS, LABELS, tmp_path / "a", config=quick)
    finetune(base, ROWS, LABELS, tmp_path / "a", config=quick, progress=steps.append)
    assert steps == []
    with pytest.raises(LevelheadError, match="is not empty"):
        finetune(base, ROWS[1:], LABELS, tmp_path / "a", config=quick)
    (tmp_path / "a" / "model.safetensors").write_bytes(b"")
    with pytest.raises(LevelheadError, match="is not empty"):
        finetune(base, ROWS, LABELS, tmp_path / "a", config=quick)

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        finetune(base, ROWS, LABELS, tmp_path / "b", config=quick, progress=stop)
    with pytest.raises(LevelheadError, match="another base, other texts or settings") as error:
        finetune(base, ROWS, LABELS, tmp_path / "b", config=replace(quick, seed=1))
    assert "remove it" in error.value.hint
    with pytest.raises(LevelheadError, match="NaN or infinity") as error:
        finetune(base, ROWS, LABELS, tmp_path / "c", config=replace(TUNING, learning_rate=1e38))
    assert error.value.hint == "give a lower rate"
    assert not (tmp_path / "c.unfinished").exists()


def test_every_text_is_shown_once_an_epoch_in_batches_of_like_length():
    lengths = [i % 17 + 3 for i in range(1003)]
    order = make_batch_order(lengths, FinetuneConfig(epochs=2.5, batch_size=8))
    assert len(order) == 315  # 126 batches an epoch, the last of 3
    for epoch in (order[:126], order[126:252]):
        assert sorted(i for batch in epoch for i in batch) == list(range(1003))
    assert order[:126] != order[126:252]
    spread = np.mean([np.ptp([lengths[i] for i in batch]) for batch in order])
    assert spread < 2  # of a range of 16
    assert order == make_batch_order(lengths, FinetuneConfig(epochs=2.5, batch_size=8))
    assert order != make_batch_order(lengths, FinetuneConfig(epochs=2.5, batch_size=8, seed=1))


def test_what_cannot_be_learned_is_refused(base, tmp_path):
    folder = tmp_path / "a"
    with pytest.raises(UnknownNameError, match="label"):
        finetune(base, ROWS, ("same", "different"), folder)
    with pytest.raises(LevelheadError, match="one class"):
        finetune(base, ROWS[:1], ("same", "other"), folder)
    with pytest.raises(LevelheadError, match="one class"):
        finetune(base, [], ("same", "other"), folder)
    with pytest.raises(LevelheadError, match="a score is not a finite number") as error:
        finetune(base, ROWS, (), folder)
    assert error.value.hint == "give numbers, or name the classes"
    with pytest.raises(LevelheadError, match="a score is not a finite number"):
        finetune(base, [("the man", float("nan")), ("a man", 1.0)], (), folder)
    with pytest.raises(LevelheadError, match="all texts have the same score"):
        finetune(base, [("the man", 1.0), ("a man", 1.0)], (), folder)
    with pytest.raises(LevelheadError, match="already has a classifier") as error:
        finetune(zoo.folder("bert", "BertForSequenceClassification"), ROWS, LABELS, folder)
    assert "the pretrained model that it was fine-tuned from" in error.value.hint
    with pytest.raises(MissingHeadError, match="cannot become a classifier"):
        finetune(zoo.folder("llama", "LlamaForCausalLM"), ROWS, LABELS, folder)
    with pytest.raises(LevelheadError, match="training would undo a head_scale") as error:
        finetune(base, ROWS, LABELS, folder, edits=[HeadScale(MASK.sites, 0.5)])
    assert error.value.hint == "edit the trained model instead"
    with pytest.raises(LevelheadError, match="the model has 3 layers"):
        finetune(base, ROWS, LABELS, folder, edits=[HeadScale([Site("head_out", 9, 0)], 0)])
    with pytest.raises(LevelheadError, match="but not into its checkpoint"):
        finetune(load(base).edited(MASK).merged(), ROWS, LABELS, folder)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "output"),
    [
        ({"batch_size": 0}, "no model can be trained"),
        ({"save_steps": 0}, "no model can be trained"),
        ({"max_tokens": 3}, "no model can be trained"),
        ({"seed": -1}, "no model can be trained"),
        ({"learning_rate": 0.0}, "a learning rate of 0.0"),
        ({"epochs": float("inf")}, "or inf epochs"),
    ],
)
def test_tuning_that_teaches_nothing(changes, output):
    with pytest.raises(LevelheadError, match=output) as error:
        FinetuneConfig(**changes)
    assert error.value.hint
