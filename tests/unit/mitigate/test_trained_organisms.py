"""Trainings on models of known bias: the planted bias falls, and further than by their placebos."""

from functools import cache, partial

import pytest

from levelhead.calibrate.organisms.organism import make_organism
from levelhead.mitigate.training.auto_debias import AutoDebiasSettings, auto_debias
from levelhead.mitigate.training.context_debias import context_debias
from levelhead.mitigate.training.preferences import dpo, npo
from levelhead.models.loading.load import load
from levelhead.models.training.configs import ContinuedPretrainingConfig

METHODS = {
    "context-debias": ("bert", context_debias),
    "auto-debias": (
        "bert",
        partial(auto_debias, settings=AutoDebiasSettings(candidates=60, beam=4, length=2)),
    ),
    "dpo": ("gpt2", dpo),
    "npo": ("gpt2", npo),
}


@cache
def organism(architecture):
    return make_organism(architecture, 1.0, quick=True)


@cache
def base(architecture):
    return organism(architecture).load_lm()


def planted_bias(architecture, lm):
    """The measured association of planted stereotypes; 0 is parity."""
    cloze = organism(architecture).planted_measures().cloze(base(architecture))
    return abs(float(cloze.reduce(cloze.read(lm)[0])))


def biases(method, folder, steps, seed):
    """Before, after, and after the placebo."""
    architecture, train = METHODS[method]
    corpus = folder / "texts.txt"
    texts = (text for document in organism(architecture).texts for text in document)
    corpus.write_text("\n".join(dict.fromkeys(texts)))
    config = ContinuedPretrainingConfig(
        steps=steps, batch_size=16, learning_rate=1e-3, seed=seed, threads=1
    )
    values = [planted_bias(architecture, base(architecture))]
    for placebo in (False, True):
        target = folder / f"{method} {seed} {placebo}"
        train(base(architecture), corpus, target, config=config, placebo=placebo)
        values.append(planted_bias(architecture, load(target)))
    return values


# Two trainings each, of a second.
@pytest.mark.parametrize("method", METHODS)
def test_the_planted_bias_falls_further_than_by_the_placebo(method, tmp_path):
    before, after, placebo = biases(method, tmp_path, steps=15, seed=0)
    assert after < 0.8 * before
    assert after < placebo


@pytest.mark.full  # 24 trainings
@pytest.mark.parametrize("method", METHODS)
def test_with_every_seed(method, tmp_path):
    for seed in range(3):
        before, after, placebo = biases(method, tmp_path, steps=100, seed=seed)
        assert after < 0.8 * before
        assert after < placebo
