"""The battery on real weights: exact, calibrated, and right where the truth is known."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from assets import asset, smollm2

from levelhead.calibrate.organisms.organism import make_organism
from levelhead.core.errors import NotMeasurableError
from levelhead.core.run_context import Inference
from levelhead.data.prompts.counteracts import make_counteracts_prompts
from levelhead.explain.prompting.contrasts import EXPECTED_VERDICTS
from levelhead.explain.prompting.knowledge import knowledge
from levelhead.measures.cloze.battery import MAX_TOP_K, Battery, BatteryResponses
from levelhead.measures.cloze.cloze import Cloze
from levelhead.measures.cloze.margins import estimate_margin, estimate_margin_change
from levelhead.measures.inference import holm_corrected
from levelhead.mitigate.prompting.choose_prefix import select_prompt_prefix
from levelhead.mitigate.prompting.prefixes import PrefixGrid
from levelhead.models.loading.load import load
from levelhead.stats.intervals import proportion_interval

WORDS = (("woman", "girl", "schoolgirl"), ("man", "boy", "gentleman"))
FEW = Cloze(backgrounds=1, words=WORDS)


def some(which=("nurse", "carpenter")):
    return tuple(
        prompt for prompt in make_counteracts_prompts(backgrounds=1) if prompt.occupation in which
    )


@pytest.mark.parametrize(
    ("form", "name"),
    [("auto", "minibert-en"), ("auto", "stories15m"), ("paper", "stories15m"),
     pytest.param("auto", "SmolLM2", marks=pytest.mark.full),
     pytest.param("chat", "SmolLM2", marks=pytest.mark.full)],
)  # fmt: skip
def test_words_and_likeliest_tokens_are_those_of_a_literal_loop(form, name):
    folder = smollm2() if name == "SmolLM2" else asset("models", name)
    lm = load(folder, dtype="float64")
    # 135 million parameters in float64, one forward a word: one occupation is enough of them.
    prompts = some(("nurse",)) if name == "SmolLM2" else some()
    battery = Battery(replace(FEW, prompts=prompts, backgrounds=None, form=form))
    result = battery.read(lm)
    words = battery.build_queries(lm).settings["words"]
    for i, item in list(enumerate(result.items))[::7]:
        text = item.queries[0][0]
        for j, word in enumerate(words):
            single = float(lm.fill([text], [word])[0, 0])
            assert float(result.responses.values[i, 0, j]) == pytest.approx(single, abs=1e-6)
        ranked = [value for _, value in lm.fill_top([text], MAX_TOP_K)[0]]
        assert result._best[1][i].tolist() == pytest.approx(ranked, abs=1e-6)


def responses_of(backgrounds):
    """What minibert says to the prompts of all 40 occupations, some backgrounds each."""
    lm = load(asset("models", "minibert-en"))
    return Battery(replace(FEW, backgrounds=backgrounds)).read(lm)


def relabelled(answers, rng):
    """The same answers with kinds (and backgrounds) dealt anew within every occupation."""
    order = np.arange(len(answers.items))
    for name in answers.base:
        subset = np.array([i for i, item in enumerate(answers.items) if item.units[0] == name])
        order[subset] = rng.permutation(subset)
    values = answers.responses.values[torch.from_numpy(order)]
    return BatteryResponses(replace(answers.responses, values=values))


def any_contrast(answers, seed):
    """Whether a kind is called different from the base after correction."""
    inference = Inference(seed=seed, resamples=199)
    permuted = relabelled(answers, np.random.default_rng(seed))
    result = holm_corrected(
        [estimate_margin_change(permuted, kind, inference) for kind in EXPECTED_VERDICTS]
    )
    return min(item.p.adjusted for item in result) <= 0.05


def test_kinds_dealt_anew_are_seldom_significant():
    # Occupations are the units of the test: all 40, whatever the number of backgrounds.
    answers = responses_of(1)
    hits = sum(any_contrast(answers, seed) for seed in range(20))
    assert proportion_interval(hits, 20).low < 0.07, f"{hits} of 20"


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_kinds_dealt_anew_are_seldom_significant_in_500():
    answers = responses_of(5)
    hits = sum(any_contrast(answers, seed) for seed in range(500))
    sys.stdout.write(f"{hits} of 500, {proportion_interval(hits, 500)}\n")
    assert hits <= 35, f"{hits} of 500, {proportion_interval(hits, 500)}"


# More than 5 s: the organisms of the demo, which the fast tier trains once and shares.
@pytest.mark.parametrize("quick", [True, pytest.param(False, marks=pytest.mark.full)])
@pytest.mark.parametrize(("rho", "result"), [(1.0, True), (0.0, False)])
def test_the_base_margin_is_found_where_it_was_planted_and_only_there(rho, result, quick):
    organism = make_organism("bert", rho, quick=quick)
    lm = organism.load_lm()
    answers = Battery(organism.planted_measures().cloze(lm)).read(lm)
    margin = estimate_margin(answers, "base", Inference(resamples=199))
    assert (0 not in margin.interval) == result, str(margin)


@pytest.mark.full  # half a minute; on organisms it is tests/unit/cli/test_knowledge.py
def test_the_whole_of_it_on_minibert():
    lm = load(asset("models", "minibert-en"))
    result = knowledge(lm, FEW, inference=Inference(resamples=99))
    assert {contrast.kind for contrast in result.contrasts} == set(EXPECTED_VERDICTS)
    assert result.base.interval.low > 0
    assert result.find_contrast("target_counter_syntactic_similar").verdict == "overturned"
    assert result.factorial is not None
    assert result.labour is not None
    assert not result.dropped
    assert type(result).from_json(result.to_json()) == result


@pytest.mark.full  # half a minute; on organisms it is tests/unit/cli/test_knowledge.py
@pytest.mark.parametrize(("sizes", "candidates"), [((2,), 3), ((2, 4), 6)])
def test_a_prefix_is_chosen_on_one_half_and_reported_on_the_other(sizes, candidates):
    lm = load(asset("models", "minibert-en"))
    cloze = replace(FEW, backgrounds=None)
    result = select_prompt_prefix(
        lm,
        cloze=cloze,
        grid=PrefixGrid(sizes, candidates_per_size=1),
        inference=Inference(resamples=99),
    )
    assert result.n_train == result.n_held_out == 20
    assert len(result.candidates) == candidates
    assert result.is_recommended == (
        result.gain.interval.low > 0
        and result.gain_over_unrelated.interval.low > 0
        and 0 not in result.base.interval
        and any(candidate.is_viable for candidate in result.candidates)
    )
    assert result.gain_in_continuations is None  # a masked model writes nothing
    assert type(result).from_json(result.to_json()) == result


def test_a_masked_model_has_no_chat():
    lm = load(asset("models", "minibert-en"))
    with pytest.raises(NotMeasurableError, match="has no chat template"):
        knowledge(lm, replace(FEW, form="chat"))
