import random

import numpy as np
import pytest
import torch
import zoo

from levelhead.core.errors import LevelheadError, UnknownName
from levelhead.core.files import file_hash
from levelhead.models.finetune import Tuning, finetune
from levelhead.models.load import load

ROWS = [
    ((f"the {a} is here.", f"the {b} was there."), "same" if a == b else "other")
    for a in ("nurse", "doctor", "man", "woman", "house", "river")
    for b in ("nurse", "doctor", "man", "woman", "house", "river")
]
TUNING = Tuning(epochs=2, batch=8, rate=1e-3)


def test_a_pretrained_encoder_becomes_a_classifier_with_named_classes(tmp_path):
    base = zoo.folder("bert", "BertForPreTraining")
    steps = []
    finetune(base, ROWS, ("other", "same"), tmp_path / "a", tuning=TUNING,
             progress=lambda *told: steps.append(told))  # fmt: skip
    lm = load(tmp_path / "a")
    assert lm.labels == ("other", "same")
    assert lm.heads == {"classifier"}
    assert steps[-1] == (10, 10)
    before, after = load(base).anatomy, lm.anatomy
    assert not torch.equal(  # all weights are trained, not the head alone
        before.blocks[0].attention.self.query.weight, after.blocks[0].attention.self.query.weight
    )
    torch.manual_seed(99), np.random.seed(99), random.seed(99)  # noqa: NPY002
    drawn = torch.random.get_rng_state().clone()
    finetune(base, ROWS, ("other", "same"), tmp_path / "b", tuning=TUNING)
    assert torch.equal(torch.random.get_rng_state(), drawn)  # nobody else's chance is touched
    hashes = {file_hash(tmp_path / name / "model.safetensors") for name in ("a", "b")}
    assert len(hashes) == 1


def test_what_cannot_be_learned_is_refused(tmp_path):
    base = zoo.folder("bert", "BertForPreTraining")
    with pytest.raises(UnknownName, match="label"):
        finetune(base, ROWS, ("same", "different"), tmp_path / "a")
    with pytest.raises(LevelheadError, match="one class"):
        finetune(base, ROWS[:1], ("same", "other"), tmp_path / "a")
    assert not (tmp_path / "a").exists()
