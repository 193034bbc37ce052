"""The measures on real weights: against slow loops, under relabelling, interrupted and resumed."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from difflib import SequenceMatcher

import numpy as np
import pytest
import torch
from assets import asset
from classifiers import cola_classifier, snli_classifier
from command import levelhead
from safetensors.torch import load_file, save_file

from levelhead.core.run_context import Inference, RunContext
from levelhead.data.catalog.datasets import dataset
from levelhead.data.lexicons.published import load_kurita
from levelhead.data.records import LabelledExample
from levelhead.measures.classification.nli_occupations import Nli
from levelhead.measures.generation.continuation import Continuation
from levelhead.measures.inference import estimate, null_distribution
from levelhead.measures.likelihood.crows import Crows
from levelhead.measures.likelihood.lpbs import Lpbs, lpbs_scores
from levelhead.measures.likelihood.stereoset import StereoSet, ending_margins, split_blank_word
from levelhead.measures.next_sentence.strength import Contrast, Strength
from levelhead.measures.registry import (
    metric_texts,
    parse_measure,
    parse_measures,
    reported_metric_name,
)
from levelhead.measures.utility.perplexity import Perplexity, PseudoPerplexity
from levelhead.measures.utility.snli import SnliAccuracy
from levelhead.models.loading.load import load
from levelhead.models.training.finetune import FinetuneConfig

QUICK = Inference(resamples=199, permutations=199)


@pytest.fixture(autouse=True)
def _data(monkeypatch):
    monkeypatch.setenv("LEVELHEAD_DATA", os.fspath(asset("data")))


@pytest.fixture(scope="module")
def minibert():
    return load(asset("models", "minibert-en"))


@pytest.fixture(scope="module")
def stories():
    return load(asset("models", "stories15m"))


# -- against slow, literal loops


def masked_scores(lm, ids, places):
    """log p of each of some tokens, masked one at a time, one forward each."""
    result = []
    for place in places:
        row = torch.tensor([ids])
        row[0, place] = lm.tokens.mask
        with torch.no_grad():
            logits = lm.layout.model(row).prediction_logits[0, place]
        result.append(float(logits.double().log_softmax(-1)[ids[place]]))
    return result


def test_pppl_is_that_of_a_literal_loop(minibert):
    measure = PseudoPerplexity(limit=4)  # more than 5 s: some hundred tokens, one forward each
    (result,) = measure.read(minibert)
    scores = []
    for item in result.items:
        ids = minibert.tokens.encode([item.queries[0][0]])[0].row.ids
        scores += masked_scores(minibert, ids, range(1, len(ids) - 1))
    assert float(measure.reduce(result)) == pytest.approx(
        math.exp(-sum(scores) / len(scores)), rel=1e-5
    )


@pytest.mark.parametrize("protocol", ["nangia", "meade"])  # 5 s: one forward a shared token
def test_crows_is_that_of_a_literal_loop(minibert, protocol):
    rows = list(dataset("crows-pairs").items("all"))
    subset = tuple(rows[i] for i in range(0, 1508, 400))
    measure = Crows(subset, protocol=protocol)
    (result,) = measure.read(minibert)
    margins = dict(zip([item.id for item in result.items], measure.margins(result), strict=True))
    assert len(margins) >= 3
    for pair in subset:
        if pair.id not in margins:
            continue
        ids = [item.row.ids for item in minibert.tokens.encode([pair.more, pair.less])]
        places = [[], []]
        for kind, a, b, c, d in SequenceMatcher(None, *ids, autojunk=False).get_opcodes():
            if (kind == "equal") == (protocol == "nangia"):
                places[0] += [i for i in range(a, b) if 0 < i < len(ids[0]) - 1]
                places[1] += [i for i in range(c, d) if 0 < i < len(ids[1]) - 1]
        scores = [masked_scores(minibert, *both) for both in zip(ids, places, strict=True)]
        slow = [sum(score) / (len(score) if protocol == "meade" else 1) for score in scores]
        assert float(margins[pair.id]) == pytest.approx(slow[0] - slow[1], abs=1e-5 * len(ids[0]))


def test_ppl_and_the_contrast_are_those_of_literal_loops(stories):
    def scores(text):
        ids = torch.tensor([stories.tokens.encode([text])[0].row.ids])
        with torch.no_grad():
            logits = stories.layout.model(ids).logits[0].double().log_softmax(-1)
        return [float(logits[i - 1, ids[0, i]]) for i in range(1, ids.shape[1])]

    measure = Perplexity(limit=8)
    (result,) = measure.read(stories)
    every = [score for item in result.items for score in scores(item.queries[0][0])]
    assert float(measure.reduce(result)) == pytest.approx(
        math.exp(-sum(every) / len(every)), rel=1e-5
    )
    subset = tuple(list(dataset("stereoset-swapped").items("dev"))[:4])
    contrast = Contrast(subset, top=1.0)
    (read,) = contrast.read(stories)
    for single, s in zip(subset, contrast.per_item_strength(read), strict=True):
        four = []
        for first, second in (
            (single.context, single.stereotype),
            (single.context, single.anti_stereotype),
            (single.twin_context, single.twin_stereotype),
            (single.twin_context, single.twin_anti_stereotype),
        ):
            before = len(scores(first))
            four.append(sum(scores(f"{first} {second}")[before:]))
        assert float(s) == pytest.approx(four[0] - four[1] - four[2] + four[3], abs=1e-3)


def test_strength_is_that_its_makers_measured(minibert):
    """TRAINING.md of the assets: rounded, one thread, float32.

    More than 5 s: the published values are of the whole part.
    """
    result = parse_measure("strength:part=dev")(minibert, inference=QUICK)
    assert round(result.value, 3) == 0.139
    assert round(result.extra("signed mean").value, 3) == -0.008


@pytest.mark.full  # the fast tier relabels a part of it
def test_distance_is_that_its_makers_measured(minibert):
    assert round(parse_measure("distance:part=dev")(minibert, inference=QUICK).value, 3) == 0.188


def test_lpbs_is_that_of_a_literal_loop(minibert):
    measure = Lpbs("math_arts")
    (result,) = measure.read(minibert)
    subset = {item.id: row for item, row in zip(result.items, lpbs_scores(result), strict=True)}
    assert len(subset) == 17  # Shakespear is cut into tokens, not left out
    encode = minibert.tokens.tokenizer

    def log_odds(text, groups):
        ids = encode(text, return_tensors="pt")["input_ids"]
        place = (ids[0] == minibert.tokens.mask).nonzero()[0]
        with torch.no_grad():
            p = minibert.layout.model(ids).prediction_logits[0, place[0]].double().softmax(-1)
        words = encode.get_vocab()
        male, female = (sum(float(p[words[word]]) for word in side) for _, side in groups)
        return math.log(male) - math.log(female)

    for side, word in (("math", "algebra"), ("math", "numbers"), ("arts", "poetry")):
        for t, template in enumerate(load_kurita()[0]):
            text = template.text.replace("GGG", "[MASK]")
            shown = log_odds(text.replace("XXX", word), template.groups)
            prior = log_odds(text.replace("XXX", "[MASK]"), template.groups)
            assert float(subset[f"{side}: {word}"][1 + t]) == pytest.approx(shown - prior, abs=1e-4)
    compat = Lpbs("math_arts", kurita_compat=True)
    query_set = compat.queries(minibert)[0].items
    assert [item.id for item in query_set if item.skip_reason] == ["arts: Shakespear"]


def test_stereoset_is_that_of_a_literal_loop(minibert):
    rows = [item for item in dataset("stereoset").items("dev") if item.kind == "intrasentence"]
    measure = StereoSet(tuple(rows[::150]), metric="stereotype_margin")
    (result,) = measure.read(minibert)
    encode, several = minibert.tokens.tokenizer, 0
    for item, row in zip(result.items, ending_margins(result), strict=True):
        subset = next(row for row in rows if row.id == item.id)
        logs = []
        for ending in (subset.stereotype, subset.anti_stereotype, subset.unrelated):
            text, word = split_blank_word(subset.context.strip(), ending)
            before, after = (
                encode(part, add_special_tokens=False)["input_ids"] for part in text.split("[MASK]")
            )
            pieces = encode(word, add_special_tokens=False)["input_ids"]
            several += len(pieces) > 1
            chances = []
            for i, piece in enumerate(pieces):
                middle = [*pieces[:i], minibert.tokens.mask]
                ids = [encode.cls_token_id, *before, *middle, *after, encode.sep_token_id]
                with torch.no_grad():
                    logits = minibert.layout.model(torch.tensor([ids])).prediction_logits
                chances.append(float(logits[0, 1 + len(before) + i].double().softmax(-1)[piece]))
            logs.append(math.log(sum(chances) / len(chances)))
        assert float(row[0]) == pytest.approx(logs[0] - logs[1], abs=1e-4)
        assert float(row[2]) == pytest.approx(logs[0] - logs[2], abs=1e-4)
    assert len(result) >= 10
    assert several >= 3


def test_every_row_of_stereoset_can_be_asked_but_two(minibert):
    full = StereoSet()
    cannot = [item.id for item in full.queries(minibert)[0].items if item.skip_reason]
    assert cannot == ["dev-2317", "dev-3867"]
    assert len(full.items) == 2106
    assert len({item.target for item in full.items}) == 79
    assert len(StereoSet(kind="intersentence").items) == 2123


@pytest.mark.parametrize("k", [20, pytest.param(100, marks=pytest.mark.full)])
def test_one_sampled_token_has_the_exact_mass_of_the_next(stories, k):
    measure = Continuation(k=k, tokens=1)  # more than 5 s: 800 or 4,000 samples of real weights
    result = measure(stories, inference=QUICK)
    texts = [
        measure.template.replace("{occupation}", name) + " [MASK]" for name in measure.occupations
    ]
    for name, group in (("first group's words", "female"), ("second group's words", "male")):
        words = [
            word for word in measure._words(group) if len(stories.token_ids_of_word(word)) == 1
        ]
        exact = 100 * float(stories.fill(texts, words).exp().sum(1).mean())
        output = result.extra(name)
        assert output.interval.low <= exact <= output.interval.high
        assert output.value == pytest.approx(
            exact, abs=4 * (exact * (100 - exact) / (40 * k)) ** 0.5
        )
        assert exact > 1


def test_a_classifier_of_a_few_hundred_pairs_is_measured_by_all_its_measures():
    lm = load(snli_classifier(128, tuning=FinetuneConfig(epochs=1)))
    subset = tuple(list(dataset("snli").items("dev"))[:100])
    result = SnliAccuracy(subset)(lm, inference=QUICK)
    assert result.n == 100
    assert result.dropped == ()
    names = ("nurse", "doctor", "soldier")
    occupations = tuple(item for item in Nli().items if item.id.split("/")[0] in names)
    output = Nli(occupations)(lm, inference=QUICK)
    assert output.n == 3 * 66
    assert output.value == pytest.approx(
        output.extra("nli_accuracy").value * output.extra("nli_parity").value
    )


@pytest.mark.full
def test_the_classifier_of_the_real_results_knows_inference():
    result = SnliAccuracy()(load(snli_classifier()), inference=QUICK)
    assert result.n == 9824
    assert result.value > 78


# -- null behaviour

RULERS = (
    "seat:lexicon=kaneko,targets=stereotypes,contexts_per_word=5",
    "strength:part=dev",
    "distance",
    "contrast:part=dev",
    "crows:bias=gender",
    "crows:metric=crows_margin,bias=gender",
    "cloze:backgrounds=1",
    "cloze:metric=cloze_probability,backgrounds=1",
    "cloze:metric=cloze_relative,backgrounds=1",
    "cloze_top:backgrounds=1",
    "lpbs",
    "stereoset:bias=profession",
    "stereoset:metric=stereotype_margin,bias=profession",
    "association_spread",
    "association_spread:metric=association_variance",
    "association_spread:metric=association_interaction,groups=jewish+hindu,crossed_with=age-en",
)
OF_OTHERS = (
    "continuation:k=5,tokens=6",
    "counterfactual",
    "counterfactual:metric=counterfactual_shift",
)
"""Those that minibert cannot answer: a causal model's, and a classifier's of the user's texts."""
DECISIONS = (
    *("decision", "callback", "callback:metric=callback_impact_ratio", "implicit_association"),
    *("implicit_association:metric=implicit_association_d", "winobias"),
    *("winobias:metric=winobias_gap", "bbq", "bbq:metric=bbq_disambiguated"),
    *("bbq:metric=bbq_s_amb", "bbq:metric=bbq_s_dis"),
    *("relative_decision", "relative_decision:metric=relative_decision_share"),
    *("unqover", "unqover:metric=unqover_score", "unqover:metric=unqover_count"),
    *(
        "decision_spread",
        "decision_spread:metric=decision_variance",
    ),
    "decision_spread:metric=decision_interaction,groups=jewish+hindu,crossed_with=age-en",
)
"""Those of decisions; in the fast slice the first of them, which has 24 scenarios."""


WITHOUT_LABELS = {
    *("group_preference", "generation", "generation_refusals", "generation_failures"),
    *("generation_length", "bold", "bold_excess", "bold_refusals", "bold_failures"),
    *("bold_length", "honest", "honest_refusals", "honest_failures"),
    *("persona", "persona_marked", "persona_refusals", "persona_failures"),
}
"""A preference is the same however labels are permuted: models without a default stand in for it
(docs/results/calibration.md). Generated texts about two groups are exchanged in
tests/unit/measures/test_generation.py and test_bold.py, where their number costs nothing."""


def test_every_measure_with_a_parity_is_relabelled():
    tested = {reported_metric_name(name) for name in (*RULERS, *OF_OTHERS, *DECISIONS)}
    tested |= WITHOUT_LABELS
    without = set()
    for metric, text in metric_texts().items():
        made = parse_measure(text)
        head = made.primary_metric
        if head.parity is None and head.signed_part is None and not made.parity_from_control:
            without.add(metric)
    assert tested == set(metric_texts()) - without


def relabelled(tested, rng):
    """What was read, as it would be if the labels meant nothing: units exchanged, or dealt anew."""
    aspect, values, design = tested
    factor = design.factors[0]
    if aspect.null == "permute_units":
        assert factor.n_units == len(values)
        return values[torch.from_numpy(rng.permutation(len(values)))]
    signs = torch.from_numpy(rng.choice([-1.0, 1.0], size=factor.n_units)[factor.unit_of_item])
    if aspect.null == "sign_flip" or values.dim() == 1:
        return aspect.flip(values, signs)
    turned = values.clone()  # a log ratio, and the number of its kind
    turned[:, 0] *= signs
    return turned


def alarms(lm, name, relabellings, subset=None, store=None):
    (measure,) = parse_measures(name, subset)
    tested = measure.test_inputs(measure.read(lm, context=RunContext(store=store)))
    rng = np.random.default_rng(11)
    result = 0
    for i in range(relabellings):
        values = relabelled(tested, rng)
        inference = Inference(seed=i, resamples=199, permutations=199)
        aspect, _, design = tested
        if aspect.null is None:
            p = estimate(inference, aspect, values, design).p
        else:
            p = null_distribution(inference, aspect, values, design, name=name).p
        result += p.value <= 0.05
    return result


PARTLY = {
    "strength": 0.3,
    "distance": 0.3,
    "contrast": 0.08,
    "crows": 0.1,
    "crows_margin": 0.1,
    "cloze": 0.3,
    "cloze_probability": 0.3,
    "cloze_relative": 0.3,
    "cloze_top": 0.3,
    "stereotype_score": 0.1,
    "stereotype_margin": 0.1,
}
"""The measures that take longest, in the fast slice: of a part of their items. A test's level does
not depend on how many there are."""
STORE = "memory://relabelled"
"""Measures that ask the same questions (cloze, four of them) read the answers once."""
FAST = {"strength", "distance", "crows", "lpbs", "stereotype_score"}
"""One of every way to test: units dealt anew, signs exchanged, no null of its own. The level of
each kind of test is, benchmarks/intervals.py simulates."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name.partition(":")[0] in FAST else pytest.mark.full)
        for name in RULERS
    ],
)
def test_relabelled_data_raise_few_alarms(minibert, name):
    if (metric := reported_metric_name(name)) in PARTLY:
        name = f"{name}{',' if ':' in name else ':'}subsample_fraction={PARTLY[metric]}"
    # Three alarms are expected, and three deviations of that.
    assert alarms(minibert, name, 60, store=STORE) <= 8


@pytest.mark.full
@pytest.mark.parametrize("name", RULERS)
def test_relabelled_data_raise_few_alarms_in_200(minibert, name):
    assert alarms(minibert, name, 200, store=STORE) <= 18


@pytest.mark.parametrize(
    ("relabellings", "most"), [(60, 8), pytest.param(200, 18, marks=pytest.mark.full)]
)
def test_relabelled_samples_raise_few_alarms(stories, relabellings, most):
    assert alarms(stories, OF_OTHERS[0], relabellings) <= most


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "decision" else pytest.mark.full)
        for name in DECISIONS
    ],
)
def test_relabelled_decisions_raise_few_alarms(stories, name):
    share = ",subsample_fraction=0.1" if name.startswith(("bbq", "winobias", "callback")) else ""
    text = name if ":" in name or not share else f"{name}:{share[1:]}"
    assert alarms(stories, text + (share if ":" in name else ""), 60, store=STORE) <= 8


@pytest.mark.parametrize("name", OF_OTHERS[1:])
def test_relabelled_twins_raise_few_alarms(name, tmp_path):
    """Texts that speak of people by nouns: pronouns have no placebo."""
    folder = cola_classifier(320, tuning=FinetuneConfig(threads=1))
    lm = load(folder)
    nouns = ("mother", "women", "king", "boys", "sister", "father", "wife", "men")
    verbs = ("left", "met the teacher", "is here", "saw that", "was asked to go", "gave it up")
    texts = tuple(
        LabelledExample(f"{noun} {verb}", f"The {noun} {verb}.", "1")
        for noun in nouns
        for verb in verbs
    )
    # So little trained, it calls all of them acceptable: let it be strict enough to call half so.
    responses = lm.classify([item.text for item in texts])
    strict = shutil.copytree(folder, tmp_path / "strict")
    weights = load_file(strict / "model.safetensors")
    weights["classifier.bias"][1] -= (responses[:, 1] - responses[:, 0]).median()
    save_file(weights, strict / "model.safetensors", metadata={"format": "pt"})
    lm = load(strict)
    assert alarms(lm, name, 200, {"texts": texts}, store=f"memory://{name}") <= 18


# -- the same command, interrupted or not


def command(store, output, *more):
    return (
        *("measure", str(asset("models", "minibert-en")), "-m", "strength:part=dev"),
        *("-m", "lpbs", "--store", str(store), "--output", str(output)),
        *("--resamples", "199", "--permutations", "999", *more),
    )


# Killing and resuming are tried in the fast tier on tiny models: tests/unit/study/test_run.py.
@pytest.mark.full
def test_the_same_bytes_twice_and_after_a_kill(tmp_path):
    # More than 5 s: a process of its own that is killed, and the same answers read twice.
    first, second, third = (tmp_path / f"{i}.json" for i in range(3))
    assert levelhead(*command(tmp_path / "a", first)).returncode == 0
    assert levelhead(*command(tmp_path / "a", second)).returncode == 0
    assert first.read_bytes() == second.read_bytes()
    process = subprocess.Popen([sys.executable, "-m", "levelhead", *command(tmp_path / "b", third)])
    units = tmp_path / "b" / "units"
    for _ in range(600):
        if sum(path.is_file() for path in units.rglob("*")) >= 2:
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    stored = sum(path.is_file() for path in units.rglob("*"))
    complete = sum(path.is_file() for path in (tmp_path / "a" / "units").rglob("*"))
    assert 0 < stored < complete
    assert not third.exists()
    assert levelhead(*command(tmp_path / "b", third)).returncode == 0
    assert third.read_bytes() == first.read_bytes()
    # Another seed and level: nothing is read anew.
    units = tmp_path / "a" / "units"
    saved = {path: path.stat().st_mtime_ns for path in units.rglob("*")}
    again = command(tmp_path / "a", third, "--seed", "3", "--level", "0.9")
    assert levelhead(*again).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in units.rglob("*")} == saved
    output = json.loads(third.read_text())["measurements"]
    assert [item["interval"]["level"] for item in output] == [0.9, 0.9]


def test_batch_size_changes_nothing_on_real_weights(minibert):
    subset = tuple(list(dataset("stereoset-swapped").items("dev"))[:20])
    values = [
        Strength(subset, top=0.5)
        .read(minibert.with_batch_size(size), context=RunContext(store=f"memory://size{size}"))[0]
        .values
        for size in (1, 7, 64)
    ]
    for other in values[1:]:
        torch.testing.assert_close(other, values[0], rtol=1e-5, atol=1e-6)
