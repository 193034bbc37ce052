"""Organisms: grown once, the same everywhere; the measures find what was planted and no more."""

import functools
import tomllib
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from levelhead.calibrate.organisms import organism as organisms
from levelhead.calibrate.organisms.language import Language
from levelhead.calibrate.organisms.organism import (
    HELD_OUT_SEED_OFFSET,
    QUICK_STEPS,
    THREADS,
    TRAIN_CONFIGS,
    Organism,
    describe_machine,
    make_organism,
)
from levelhead.calibrate.skills import measure_skills
from levelhead.core.canonical_json import to_canonical_json
from levelhead.core.errors import LevelheadError
from levelhead.core.files import file_hash
from levelhead.core.run_context import Inference
from levelhead.core.versions import installed_versions
from levelhead.measures.inference import null_distribution
from levelhead.measures.likelihood.crows import Crows
from levelhead.models.edits.base import HeadScale
from levelhead.models.loading.load import load
from levelhead.models.sites import Site
from levelhead.models.training.from_scratch import TrainConfig
from levelhead.stats.multiple_testing import holm

INFERENCE = Inference(resamples=199, permutations=999)
MODELS = [
    *((config, None, False) for config in TRAIN_CONFIGS),
    ("gpt2", (1, 2), False),
    ("bert", None, True),
    ("gpt2", (1, 2), True),
]
STANDARD = [
    pytest.param(*model, marks=[pytest.mark.full] * (not model[2]), id=" ".join(map(str, model)))
    for model in MODELS
]
"""A model is trained for up to a minute. The fast tier trains those of `levelhead demo` alone, for
a third of the steps: a masked and a causal one."""
TINY = Organism(
    Language(1.0),
    TrainConfig("gpt2", layers=1, heads=2, width=8, steps=2, batch_size=4),
    n_documents=40,
)
KNOWN = tomllib.loads(files("levelhead.calibrate").joinpath("organisms.toml").read_text())


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("LEVELHEAD_CACHE", str(tmp_path))


# -- growing and keeping


def test_an_organism_is_grown_once(cache, monkeypatch):
    steps = []
    folder = TINY.grow(lambda done, total: steps.append((done, total)))
    assert steps == [(1, 2), (2, 2)]
    monkeypatch.setattr(
        organisms, "train_from_scratch", None
    )  # would be an error if it were called
    assert TINY.grow() == folder
    assert load(folder).heads == {"causal"}


def test_what_is_damaged_is_grown_again_and_comes_out_the_same(cache):
    folder = TINY.grow()
    first = {path.name: file_hash(path) for path in folder.iterdir()}
    assert {"model.safetensors", "config.json", "tokenizer.json", "organism.json"} <= set(first)
    for name in first:
        path = folder / name
        path.write_bytes(path.read_bytes()[:-8])
        assert TINY.grow() == folder
        assert {path.name: file_hash(path) for path in folder.iterdir()} == first


def test_nothing_is_left_of_an_organism_that_did_not_grow(cache, tmp_path, monkeypatch):
    def broken(*args, **kwargs):
        args[3].mkdir()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(organisms, "train_from_scratch", broken)
        with pytest.raises(KeyboardInterrupt):
            TINY.grow()
    assert [path.suffix for path in (tmp_path / "organisms").iterdir()] == [".lock"]
    assert TINY.grow().is_dir()


def test_everything_the_weights_depend_on_makes_another_organism(cache):
    others = (
        replace(TINY, language=Language(0.5)),
        replace(TINY, train_config=replace(TINY.train_config, seed=1)),
        replace(TINY, train_config=replace(TINY.train_config, steps=3)),
        replace(TINY, n_documents=41),
    )
    assert len({item.grow() for item in (TINY, *others)}) == 5


def test_a_whole_number_and_threads_by_default_name_the_same_organism():
    """What calibration has grown is found again, however its rho is written."""
    written = [
        to_canonical_json(replace(TINY, language=Language(rho)).build_inputs) for rho in (1, 1.0)
    ]
    assert written[0] == written[1]
    assert (
        {config.threads for config in TRAIN_CONFIGS.values()}
        == {make_organism().train_config.threads}
        == {THREADS}
    )


def test_an_unknown_architecture_is_refused():
    with pytest.raises(LevelheadError, match="bert"):
        make_organism("brt")


# -- the standard ones: grown for this run, then taken from the cache


def facts(architecture, rho):
    """The first of the table's rows."""
    rows = [row for row in KNOWN["organisms"] if row["architecture"] == architecture]
    return next(row for row in rows if row["rho"] == rho)


def test_the_table_names_five_seeds_with_a_bias_and_twenty_models_without():
    rows = [(row["architecture"], row["rho"], row["seed"]) for row in KNOWN["organisms"]]
    assert {seed for name, rho, seed in rows if (name, rho) == ("bert", 1.0)} == set(range(5))
    assert len({seed for _, rho, seed in rows if rho == 0}) == 20
    assert {name for name, _, _ in rows} == set(TRAIN_CONFIGS)


@functools.cache
def texts_hash(rho, seed):
    """Of what organisms of every architecture are trained on; made in a second."""
    return make_organism(rho=rho, seed=seed).build_inputs["texts_sha256"]


@pytest.mark.parametrize("architecture", TRAIN_CONFIGS)
def test_the_text_of_a_standard_organism_is_the_one_of_the_table(architecture):
    for rho in (0.0, 1.0):
        row = facts(architecture, rho)
        standard = make_organism(architecture, rho, seed=row["seed"])
        assert standard.language == make_organism(rho=rho).language
        assert standard.train_config.seed == row["seed"]
        assert texts_hash(rho, row["seed"]) == row["texts_sha256"]


# More than 5 s where an organism is not in the cache yet: it is grown.
@pytest.mark.parametrize(("architecture", "known_head", "quick"), STANDARD)
def test_a_planted_bias_is_found_in_a_model_that_knows_its_language(
    architecture, known_head, quick
):
    organism = make_organism(architecture, 1.0, visible_head=known_head, quick=quick)
    folder = organism.grow()
    here = dict(installed_versions()) | {"machine": describe_machine(), "threads": THREADS}
    same = all(
        KNOWN[name] == here[name] for name in ("torch", "transformers", "machine", "threads")
    )
    if same and known_head is None and not quick:
        subset = file_hash(folder / "model.safetensors")
        assert subset == facts(architecture, 1.0)["weights_sha256"]
    lm = organism.load_lm()
    check_skills(lm, organism)
    for name, measure in organism.planted_measures().for_model(lm).items():
        result = measure(lm, inference=INFERENCE)
        assert not result.dropped, name
        if name == "seat" and lm.is_causal:
            continue  # it can miss it there: what a last state says is the next word
        assert result.p.value < 0.01, name
        assert result.value > result.parity, name


def check_skills(lm, single):
    for skill in measure_skills(
        lm, single.language, seed=single.train_config.seed + HELD_OUT_SEED_OFFSET
    ):
        if skill.estimate.name == "pronouns that agree":
            assert skill.estimate.value > 0.85, skill  # chance: 0.5
        elif single.train_config.steps == QUICK_STEPS[single.train_config.architecture]:
            continue  # too few steps to learn the rest of the language
        elif skill.estimate.unit == "bits":
            assert -0.02 < skill.estimate.value < 0.06, skill
        else:
            assert skill.estimate.value > 0.85 * skill.best, skill


# More than 5 s: 10 permutations are four measures each, and the organism may have to be grown. Of
# tests that keep their level 10 raise 0.5 alarms, more than 3 with a chance of .001 (the seeds are
# fixed); tests that reject half the time raise 5. 30 permutations bound the level more closely.
@pytest.mark.parametrize(
    ("quick", "deals", "most"), [(True, 10, 3), pytest.param(False, 30, 5, marks=pytest.mark.full)]
)
def test_without_a_bias_nothing_is_found_whatever_the_labels(quick, deals, most):
    organism = make_organism("bert", 0.0, quick=quick)
    lm = organism.load_lm()
    check_skills(lm, organism)
    for name, measure in organism.planted_measures().for_model(lm).items():
        assert measure(lm, inference=INFERENCE).p.value > 0.01, name
    # Dealt anew, labels mean nothing in any model: this tries the measures' tests, not the model.
    inference, alarms = Inference(resamples=99, permutations=199), 0
    for labels in range(deals):
        p = []
        for name, measure in organism.planted_measures(label_seed=labels).for_model(lm).items():
            aspect, values, design = measure.test_inputs(measure.read(lm))
            p.append(
                null_distribution(
                    inference, aspect, values, design, name=f"{name} {labels}"
                ).p.value
            )
        alarms += holm(p).min() <= 0.05
    assert alarms <= most


def test_another_deal_of_labels_asks_nothing_new(monkeypatch):
    organism = make_organism("bert", 1.0, quick=True)
    lm = organism.load_lm()
    values = {
        name: measure.reduce(measure.read(lm)[0])
        for name, measure in organism.planted_measures().for_model(lm).items()
    }
    monkeypatch.setattr(type(lm), "iterate_batches", None)  # no forward any more
    for name, measure in organism.planted_measures(label_seed=1).for_model(lm).items():
        assert abs(measure.reduce(measure.read(lm)[0])) < abs(values[name]), name


@pytest.mark.parametrize("quick", [True, pytest.param(False, marks=pytest.mark.full)])
def test_a_known_head_carries_all_of_the_margin(quick):
    organism = make_organism("gpt2", 1.0, visible_head=(1, 2), quick=quick)
    lm = organism.load_lm()
    check_skills(lm, organism)
    pairs = organism.planted_measures().crows.pairs
    texts = [text for pair in pairs for text in (pair.more, pair.less)]
    # The target is the last word but the full stop, the same in both sentences of a pair.
    spans = [[(text.rindex(" ", 0, -2) + 1, len(text) - 2)] for text in texts]

    def margins(model):
        scores = model.log_prob(texts, spans).value
        return scores[0::2] - scores[1::2]

    contrast = organism.planted_measures().contrast
    assert float(contrast.reduce(contrast.read(lm)[0])) > 1
    blind = lm.edited(HeadScale([Site("head_out", 1, 2)], 0))
    assert (
        contrast.per_item_strength(contrast.read(blind)[0]).abs().max() <= 1e-5
    )  # sums of seven tokens
    assert margins(lm).mean() > 1
    for layer in range(2):
        for head in range(4):
            without = margins(lm.edited(HeadScale([Site("head_out", layer, head)], 0)))
            if (layer, head) == (1, 2):
                assert without.abs().max() <= 1e-6
            else:
                assert without.mean() > 0.5


def test_the_weights_of_organisms_are_not_in_the_package():
    names = [entry.name for entry in files("levelhead.calibrate").iterdir()]
    assert not [name for name in names if name.endswith((".safetensors", ".bin", ".pt"))]


@pytest.mark.full
@pytest.mark.parametrize("seed", range(5))
def test_strength_and_the_others_find_it_with_every_seed(seed):
    organism = make_organism("bert", 1.0, seed=seed)
    lm = organism.load_lm()
    for name, measure in organism.planted_measures().for_model(lm).items():
        assert measure(lm, inference=INFERENCE).p.value < 0.01, name


# -- the items


def test_every_target_is_asked_once_and_pairs_differ_in_the_group_only():
    measures = TINY.planted_measures()
    pairs = measures.crows.pairs
    assert sorted(pair.id for pair in pairs) == sorted(TINY.language.target_words)
    marks = set(TINY.language.mark_words)
    for pair in pairs:
        more, less = pair.more.split(), pair.less.split()
        apart = [(a, b) for a, b in zip(more, less, strict=True) if a != b]
        assert len(apart) == 1
        assert set(apart[0]) <= marks
    assert isinstance(measures.crows, Crows)
    assert len(measures.triples) == len(pairs) / 2
    for triple in measures.triples:
        assert triple.stereotype == triple.twin_stereotype  # no word of a group in it
        assert triple.context != triple.twin_context


def test_labels_are_dealt_within_pairs():
    base, permuted, again = (TINY.planted_measures(label_seed=seed).pairs for seed in (None, 3, 3))
    assert permuted == again != base
    assert [sorted(pair.words) for pair in permuted] == [sorted(pair.words) for pair in base]
    turned = sum(a != b for a, b in zip(base, permuted, strict=True))
    assert 0.3 < turned / len(base) < 0.7


def test_contexts_are_of_held_out_text(cache):
    path = Path(TINY.planted_measures().corpus)
    lines = set(path.read_text(encoding="utf-8").splitlines())
    trained = {sentence for document in TINY.texts for sentence in document}
    assert len(lines) > 3000
    assert len(lines & trained) < 0.5 * len(trained)
    assert path.parent.name == "organisms"
