"""The frequency control of CrowS-Pairs: a model without context is never shown to stereotype."""

import dataclasses
import math
import os
from collections import Counter

import pytest
import torch
import zoo
from assets import asset
from metric_cases import made, model, pairs

from levelhead.core.results import Estimate, Interval, PValue
from levelhead.core.run_context import Inference, RunContext
from levelhead.core.verdicts import adjusted_p_value
from levelhead.data.catalog.frequencies import compute_log_odds, locate_sources, read_source_texts
from levelhead.data.records import MinimalPair
from levelhead.measures.likelihood.crows import Crows
from levelhead.measures.likelihood.frequency_control import (
    EXCESS,
    Unigram,
    estimate_frequency_excess,
    exchanged_words,
    fit_unigram,
    intersection_union_test,
    prefers_first,
    unigram_scores,
)
from levelhead.measures.responses import Responses
from levelhead.models.loading.load import load
from levelhead.models.loading.weight_checksums import record_checksum

INFERENCE = Inference(seed=1, resamples=99, permutations=599)
"""So many that nine corrected tests can be shown: 9 x 2 / 600 is below .05."""
FREQUENT = ("man", "he", "doctor", "house", "quick", "here", "that", "and")
RARE = ("woman", "she", "nurse", "river", "lazy", "there", "as", "in")


def text_of(counts, path):
    """A file in which words stand so often."""
    path.write_text("\n".join(word for word, n in counts.items() for _ in range(n)))
    return str(path)


@pytest.fixture
def text(tmp_path):
    return text_of(dict.fromkeys(FREQUENT, 40) | dict.fromkeys(RARE, 4), tmp_path / "a.txt")


def frequent_pairs():
    """Type x: the more stereotypical sentence has the rarer word; type y: either in turn."""
    result = []
    for i, (frequent, rare) in enumerate(zip(FREQUENT, RARE, strict=True)):
        for j, end in enumerate(("tired", "said", "works")):
            more, less = (rare, frequent) if i % 2 else (frequent, rare)
            for kind, single, other in (("x", rare, frequent), ("y", more, less)):
                name = f"{kind} {i} {j}"
                result.append(
                    MinimalPair(
                        name, kind, "stereo", f"the {single} was {end}.", f"the {other} was {end}."
                    )
                )
    return tuple(result)


def context_free(log_p):
    """A real causal model whose next token depends on nothing: GPT-2 with a constant last state."""
    lm = load(zoo.folder("gpt2", "GPT2LMHeadModel"))
    net = lm.layout.model
    with torch.no_grad():
        net.transformer.ln_f.weight.zero_()
        net.transformer.ln_f.bias.zero_()
        net.transformer.ln_f.bias[0] = 1.0
        net.transformer.wte.weight[:, 0] = log_p.float()
    record_checksum(net)  # changed on purpose; every store of these tests is new
    return lm


def by_type(result):
    return {extra.name: extra for extra in result.extras if extra.name.startswith("type: ")}


def test_a_context_free_model_is_no_finding_in_any_type(text, tmp_path):
    """Fails without the control: the type differs from 50 in every pair."""
    lm = load(zoo.folder("gpt2", "GPT2LMHeadModel"))
    other = {w: 30 + 5 * i for i, w in enumerate(FREQUENT)} | {w: i for i, w in enumerate(RARE)}
    sources = locate_sources([text_of(other, tmp_path / "b.txt")])  # not the control's own text
    free = context_free(fit_unigram(lm.tokens, sources).log_p)
    measure = Crows(frequent_pairs(), frequencies=text)
    result = measure.compute_measurement(
        free, measure.read(free, context=RunContext(store="memory://free")), inference=INFERENCE
    )
    types = by_type(result)
    assert types["type: x"].value == 0.0  # in every pair the more frequent word is likelier
    base = Crows(frequent_pairs(), frequencies=None)
    raw = base.compute_measurement(
        free, base.read(free, context=RunContext(store="memory://free")), inference=INFERENCE
    )
    assert adjusted_p_value(by_type(raw)["type: x"]) < 0.05
    assert adjusted_p_value(types["type: x"]) == 1.0
    assert adjusted_p_value(types[f"type: x, {EXCESS}"]) > 0.05
    assert types[f"type: x, {EXCESS}"].interval.low < 0 < types[f"type: x, {EXCESS}"].interval.high
    assert any("type: x: 0 differs from 50" in n and "not a finding" in n for n in result.notes)


def test_a_model_that_goes_against_frequency_is_shown(text):
    """Its answer is the stereotype in type x, whichever word is rarer: 100% where words give 0."""
    lm = load(zoo.folder("gpt2", "GPT2LMHeadModel"))
    measure = Crows(frequent_pairs(), frequencies=text)
    (result,) = measure.read(lm)
    values = result.values.clone()
    values[..., 0] = torch.tensor([-9.0, -10.0])
    planted = measure.compute_measurement(
        lm, [dataclasses.replace(result, values=values)], inference=INFERENCE
    )
    types = by_type(planted)
    excess = types[f"type: x, {EXCESS}"]
    assert excess.value == 100.0
    assert 0 < excess.interval.low < excess.interval.high <= 100.0
    assert adjusted_p_value(types["type: x"]) <= 0.05
    assert types["type: x"].p.family == 2
    assert "word frequency, the larger p" in types["type: x"].p.method
    assert adjusted_p_value(planted.extra(EXCESS)) <= 0.05
    assert not any(n.startswith("type: x") and "not a finding" in n for n in planted.notes)
    assert any(name.startswith("word frequency ") for name in planted.provenance.data)


def test_pairs_that_exchange_the_same_words_are_one_observation(text):
    lm = load(zoo.folder("gpt2", "GPT2LMHeadModel"))
    measure = Crows(frequent_pairs(), frequencies=text)
    (result,) = measure.read(lm)
    assert len({exchanged_words(item) for item in result.items}) == len(FREQUENT)
    excess = by_type(measure.compute_measurement(lm, [result], inference=INFERENCE))[
        f"type: x, {EXCESS}"
    ]
    assert excess.n == 24
    assert "8 words exchanged" in excess.interval.method


def test_the_interval_of_few_changes_can_leave_their_side():
    """One pair of 24 changes: resampling alone would end at 0."""
    lm = load(zoo.folder("gpt2", "GPT2LMHeadModel"))
    (query_set,) = Crows(frequent_pairs()).queries(lm)
    items = [item for item in query_set.items if item.group == "x"]
    frequent = torch.zeros(len(items), dtype=torch.float64)
    preferred = frequent.clone()
    preferred[0] = 1.0
    result = estimate_frequency_excess(preferred, frequent, items, INFERENCE, "x")
    assert result.value == pytest.approx(100 / 24)
    assert result.interval.low < 0 < result.value < result.interval.high
    assert "bonett-price" in result.interval.method


def test_unigram_scores_are_those_of_the_literal_loop(text):
    lm = load(zoo.folder("gpt2", "GPT2LMHeadModel"))
    sources = locate_sources([text])
    counts = Counter(word for line in read_source_texts(sources) for word in line.split())
    vocabulary, total = zoo.VOCABULARY, sum(counts.values())
    (query_set,) = Crows(frequent_pairs()).queries(lm)
    unigram = fit_unigram(lm.tokens, sources)
    assert unigram.n == total == 8 * 44
    for averaged in (False, True):
        scores = unigram_scores(lm, unigram, query_set.items, averaged)
        for item, row in zip(query_set.items, scores.tolist(), strict=True):
            for (sentence, _), score in zip(item.queries, row, strict=True):
                words = sentence.replace(".", " .").split()
                log_p = [math.log((counts[w] + 1) / (total + vocabulary)) for w in words]
                mean = sum(log_p) / (len(log_p) if averaged else 1)
                assert score == pytest.approx(mean)


def test_a_token_that_no_model_scores_is_left_out_of_both():
    lm = load(zoo.folder("gpt2", "GPT2LMHeadModel"))
    lm.tokens.tokenizer.backend_tokenizer.post_processor = _nothing()
    unigram = Unigram(torch.arange(zoo.VOCABULARY).double(), 1)
    (query_set,) = Crows(pairs(3)).queries(lm)
    ids = lm.tokens.encode([pairs()[0].more])[0].row.ids
    assert unigram_scores(lm, unigram, query_set.items, False)[0, 0] == sum(ids[1:])


def _nothing():
    from tokenizers.processors import TemplateProcessing

    return TemplateProcessing(single="$A")


@pytest.mark.parametrize("given", ["none.txt", None, "auto"])
def test_without_the_text_every_type_carries_the_caveat(given, tmp_path):
    path = str(tmp_path / given) if given == "none.txt" else given
    result = made("crows", protocol="sentence", frequencies=path)(
        model("crows"), inference=INFERENCE
    )
    assert any(note.startswith(f"{EXCESS}: not available: ") for note in result.notes)
    for item in by_type(result).values():
        assert item.p.method.endswith("word frequency not controlled for")
        assert item.p.correction == "holm"
    assert EXCESS not in [extra.name for extra in result.extras]


def test_words_that_both_sentences_share_need_no_control():
    result = made("crows", protocol="nangia", frequencies="gone.txt")(
        model("crows"), inference=INFERENCE
    )
    assert any("so it cancels" in note for note in result.notes)
    assert not any("not controlled" in item.p.method for item in by_type(result).values())


def test_the_control_changes_neither_the_number_nor_what_it_compares_with(text):
    lm = model("crows")
    with_text, without = (
        Crows(frequent_pairs(), protocol="meade", frequencies=given)(lm, inference=INFERENCE)
        for given in (text, None)
    )
    assert with_text.value == without.value
    assert with_text.p == without.p
    assert with_text.comparability_key == without.comparability_key
    assert EXCESS in [extra.name for extra in with_text.extras]


def estimate(value, p, parity):
    interval = Interval(low=value - 1, high=value + 1, level=0.95, method="m")
    tested = PValue(value=p, method="sign flip", alternative="two-sided")
    return Estimate(name="type: x", value=value, interval=interval, parity=parity, p=tested, n=9)


@pytest.mark.parametrize(
    ("raw", "excess", "p"),
    [
        ((30.0, 0.01), (-10.0, 0.03), 0.03),  # beyond frequency: the weaker of two proofs
        ((30.0, 0.01), (-1.0, 0.8), 0.8),  # frequency explains it
        ((30.0, 0.01), (10.0, 0.001), 1.0),  # nearer to parity than frequency is
        ((50.0, 1.0), (20.0, 0.001), 1.0),
    ],
)
def test_a_type_is_shown_only_beyond_parity_and_frequency_alike(raw, excess, p):
    assert intersection_union_test(estimate(*raw, 50.0), estimate(*excess, 0.0)).p.value == p


def test_ties_of_a_unigram_model_count_half():
    scores = torch.tensor([[1.0, 1.0 + 1e-12], [2.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
    assert prefers_first(scores).tolist() == [0.5, 1.0, 0.0]


def test_log_odds_of_words_and_of_what_is_left_without_a_block(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("\n".join(["She is here."] * 20 + ["he is here."] * 60))
    result = compute_log_odds(locate_sources([str(path)]), ("she",), ("he",))
    assert result.value == pytest.approx(math.log(21 / 61))
    assert result.n_words == 80 * 4
    assert result.leave_block_out_values[0] == pytest.approx(math.log(17 / 61))
    assert len(result.leave_block_out_values) == 20


def test_a_corpus_without_running_text_is_refused(monkeypatch):
    monkeypatch.setenv("LEVELHEAD_DATA", os.fspath(asset("data")))
    from levelhead.core.errors import LevelheadError

    with pytest.raises(LevelheadError, match="no running text"):
        read_source_texts(locate_sources(["weat"]))


# -- the real pairs


@pytest.fixture(scope="module")
def stories():
    return load(asset("models", "stories15m"))


def spoken(lm, measure, log_p):
    """What a context-free model says to every pair: sums of the log-probabilities of tokens."""
    (query_set,) = measure.queries(lm)
    scores = unigram_scores(lm, Unigram(log_p, 1), query_set.items, False)
    values = torch.stack([scores, torch.ones_like(scores)], dim=-1)
    return Responses(
        query_set.items,
        values,
        query_set.factors,
        (),
        torch.zeros(0, 0),
        (),
        (),
        metadata=query_set.metadata,
    )


REAL = Inference(seed=1, resamples=99, permutations=399)  # 9 x 2 / 400 is below .05
OTHERS = ("leipzig-news", "wikipedia-biographies", "gutenberg-fiction", "wikinews")
"""Not GAP, passages chosen for their pronouns: its unigram model differs from that of WikiText-2 in
nationality (corrected p .045). Two texts can differ in a type; docs/measures/index.md says so."""


@pytest.mark.parametrize("corpus", OTHERS[:1])
def test_a_unigram_model_of_another_text_is_no_finding_on_crows_pairs(corpus, stories, monkeypatch):
    """The control counts WikiText-2: what differs between two texts is not taken for bias."""
    monkeypatch.setenv("LEVELHEAD_DATA", os.fspath(asset("data")))
    measure = Crows()
    log_p = fit_unigram(stories.tokens, locate_sources([corpus])).log_p
    result = measure.compute_measurement(stories, [spoken(stories, measure, log_p)], inference=REAL)
    types = by_type(result)
    assert len(types) == 18
    shown = {
        name: adjusted_p_value(single)
        for name, single in types.items()
        if adjusted_p_value(single) <= 0.05
    }
    assert not shown
    # Without the control some types would be findings, and the notes name them.
    assert sum("not a finding" in note for note in result.notes) >= 2
    assert result.provenance.data["word frequency wikitext-2/wiki.test.raw"]


@pytest.mark.full
@pytest.mark.parametrize("corpus", OTHERS[1:])
def test_nor_is_one_of_any_other_text(corpus, stories, monkeypatch):
    test_a_unigram_model_of_another_text_is_no_finding_on_crows_pairs(corpus, stories, monkeypatch)


@pytest.mark.full
def test_a_stereotype_planted_in_one_type_of_crows_pairs_is_found_there(stories, monkeypatch):
    monkeypatch.setenv("LEVELHEAD_DATA", os.fspath(asset("data")))
    measure = Crows()
    log_p = fit_unigram(stories.tokens, locate_sources(["wikitext-2"])).log_p
    responses = spoken(stories, measure, log_p)
    planted = torch.tensor([item.group == "nationality" for item in responses.items])
    responses.values[planted, 0, 0] += 100.0
    result = measure.compute_measurement(stories, [responses], inference=INFERENCE)
    shown = [name for name, single in by_type(result).items() if adjusted_p_value(single) <= 0.05]
    assert shown == ["type: nationality", f"type: nationality, {EXCESS}"]


def test_contrasts_ignore_order_and_case(stories):
    item = next(iter(Crows(pairs(1)).queries(stories)[0].items))
    turned = item._replace(queries=item.queries[::-1])
    assert exchanged_words(item) == exchanged_words(turned) == "man / woman"
    same = item._replace(queries=(item.queries[0], item.queries[0]))
    assert exchanged_words(same) == item.id
