"""Knowledge of organisms: what reads the group also knows it, and training on twins keeps it."""

import random
from dataclasses import replace
from functools import cache

import pytest

from levelhead.calibrate.organisms.language_pairs import make_planted_pairs
from levelhead.calibrate.organisms.organism import make_organism
from levelhead.core.run_context import Inference
from levelhead.mitigate.evaluation.knowledge import evaluate_knowledge
from levelhead.mitigate.evaluation.price import evaluate_mitigation
from levelhead.mitigate.heads.mask import mask_heads
from levelhead.mitigate.projection.baselines import leace, sentence_debias
from levelhead.mitigate.training.cda_and_dropout import cda
from levelhead.models.loading.load import load
from levelhead.models.sites import Site
from levelhead.models.training.configs import ContinuedPretrainingConfig
from levelhead.models.training.continued_pretraining import continue_pretraining

INFERENCE = Inference(resamples=199, permutations=199)
# One head sees the group, and quick training is enough for all of the grammar (BERT: 87%).
HEAD = (1, 2)
ORGANISM = make_organism("gpt2", 1.0, visible_head=HEAD, quick=True)
KNOWLEDGE = ORGANISM.planted_knowledge()


@cache
def base():
    return ORGANISM.load_lm()


def test_sentences_are_of_the_language_and_have_no_target():
    language = ORGANISM.language
    bias_texts = {
        text for pair in ORGANISM.planted_measures().crows.pairs for text in (pair.more, pair.less)
    }
    for measure in KNOWLEDGE:
        words = {word for sentence in measure.items for word in sentence.text.split()}
        assert words <= set(language.vocabulary)
        assert not words & set(language.target_words)
        assert not bias_texts & {sentence.text for sentence in measure.items}
        by_unit = {}
        for sentence in measure.items:
            by_unit.setdefault(sentence.unit, []).append(sentence.group)
        # A version for both groups: one answer to everything is right in half.
        assert {tuple(groups) for groups in by_unit.values()} == {language.groups}


def test_masking_all_that_reads_the_group_loses_knowledge():
    """The bias is gone, and so is all that says who a word is about."""
    lm = base()
    masked = lm.edited(mask_heads([Site("head_out", *HEAD)]))
    panel = evaluate_knowledge(lm, masked, KNOWLEDGE, inference=INFERENCE)
    assert set(panel.lost) == {"definitional_gender", "pronoun_agreement"}
    assert [(row.base.value, row.edited.value) for row in panel.changes] == [(100, 50)] * 2
    contrast = ORGANISM.planted_measures().contrast
    assert abs(float(contrast.reduce(contrast.read(masked)[0]))) < 1e-5
    report = evaluate_mitigation(
        lm,
        masked,
        [ORGANISM.planted_measures().cloze(lm)],
        price=[],
        knowledge=panel,
        inference=INFERENCE,
    )
    assert report.verdict == "bias reduced, knowledge lost"


def test_masking_another_head_keeps_knowledge():
    lm = base()
    masked = lm.edited(mask_heads([Site("head_out", 0, 1)]))
    assert evaluate_knowledge(lm, masked, KNOWLEDGE, inference=INFERENCE).is_kept


@pytest.mark.full
@pytest.mark.parametrize("fit_edit", [leace, sentence_debias])
def test_erasing_the_group_at_every_layer_loses_knowledge(fit_edit):
    """What such an edit reduces is more than a bias, whichever way the directions are fitted."""
    lm = base()
    pairs = make_planted_pairs(ORGANISM.language)[::4]
    sites = [Site("block_out", layer) for layer in range(lm.layout.layers)]
    edits = [edit for site in sites for edit in fit_edit(lm, pairs, site, pooling="mean")]
    panel = evaluate_knowledge(lm, lm.edited(*edits), KNOWLEDGE, inference=INFERENCE)
    assert set(panel.lost) == {"definitional_gender", "pronoun_agreement"}


def train_on_twins(folder, steps):
    """Counterfactual data augmentation on the organism's own texts."""
    corpus = folder / "texts.txt"
    corpus.write_text(
        "\n".join(dict.fromkeys(text for document in ORGANISM.texts for text in document))
    )
    config = ContinuedPretrainingConfig(steps=steps, learning_rate=5e-4, threads=1)
    cda(base(), corpus, folder / "cda", config=config)
    return load(folder / "cda"), corpus, config


def test_training_on_twins_keeps_knowledge(tmp_path):
    trained, _, _ = train_on_twins(tmp_path, steps=40)
    panel = evaluate_knowledge(base(), trained, KNOWLEDGE, inference=INFERENCE)
    assert panel.is_kept, str(panel)
    measure = ORGANISM.planted_measures().cloze(base())
    report = evaluate_mitigation(
        base(), trained, [measure], price=[], knowledge=panel, inference=INFERENCE
    )
    assert report.verdict == "bias reduced, placebos not compared"


@pytest.mark.full  # 20 trainings: minutes
def test_training_on_twins_gains_more_than_other_trainings(tmp_path):
    """Trainings of as many steps without twins gain less; they are few independent placebos."""
    trained, corpus, config = train_on_twins(tmp_path, steps=40)
    lines = corpus.read_text().splitlines()
    placebos = []
    for seed in range(19):
        random.Random(seed).shuffle(lines)
        folder = tmp_path / f"placebo {seed}"
        continue_pretraining(base(), lines, folder, config=replace(config, seed=seed))
        placebos.append(load(folder))
    report = evaluate_mitigation(
        base(),
        trained,
        [ORGANISM.planted_measures().cloze(base())],
        price=[],
        placebos=placebos,
        knowledge=evaluate_knowledge(base(), trained, KNOWLEDGE, inference=INFERENCE),
        inference=INFERENCE,
    )
    (test,) = report.placebo_tests
    assert test.gain.value > max(test.placebo_gains)
    assert test.outcome == "untestable: placebos not independent"
    assert report.verdict == "bias reduced, placebos not compared"
