from difflib import SequenceMatcher

import pytest
import torch
import zoo
from metric_cases import INFERENCE, made, model, pairs
from tokenizers.processors import TemplateProcessing
from vocabularies import byte_level

from levelhead.core.errors import LevelheadError
from levelhead.core.results import DroppedItem
from levelhead.core.run_context import RunContext
from levelhead.data.records import MinimalPair
from levelhead.measures.likelihood.crows import Crows
from levelhead.measures.query_kinds import QUERY_KINDS
from levelhead.models.loading.load import load


def slow(lm, single, protocol):
    """Each token masked by hand, the model called directly."""
    rows = [encoded.row.ids for encoded in lm.tokens.encode([single.more, single.less])]
    codes = SequenceMatcher(None, *rows, autojunk=False).get_opcodes()
    shared = [[], []]
    for kind, a, b, c, d in codes:
        if (kind == "equal") == (protocol == "nangia"):
            shared[0] += range(a, b)
            shared[1] += range(c, d)
    scores = []
    for ids, places in zip(rows, shared, strict=True):
        result = []
        for place in places:
            if 0 < place < len(ids) - 1:
                masked = torch.tensor([ids])
                masked[0, place] = lm.tokens.mask
                with torch.no_grad():
                    logits = lm.layout.model(masked).prediction_logits[0, place]
                result.append(float(logits.log_softmax(-1)[ids[place]]))
        scores.append(sum(result) / (len(result) if protocol == "meade" else 1))
    return scores[0] - scores[1]


@pytest.mark.parametrize("protocol", ["nangia", "meade"])
def test_margins_are_those_of_the_literal_loop(protocol):
    lm, measure = model("crows"), made("crows", protocol=protocol, decimals=None)
    (result,) = measure.read(lm)
    margins = measure.margins(result).tolist()
    for pair, margin in zip(pairs(), margins, strict=True):
        assert margin == pytest.approx(slow(lm, pair, protocol), abs=1e-5)
    share = 100 * sum(margin > 0 for margin in margins) / len(margins)
    assert measure(lm, inference=INFERENCE).value == pytest.approx(share)


def test_a_causal_model_is_scored_by_the_sentence():
    lm = load(zoo.folder("llama", "LlamaForCausalLM"))
    measure = made("crows_margin")
    (result,) = measure.read(lm)
    assert result.metadata["protocol"] == "sentence"
    more, less = (lm.log_prob([text]).value for text in (pairs()[0].more, pairs()[0].less))
    assert float(measure.margins(result)[0]) == pytest.approx(float(more - less), rel=1e-4)


def test_a_tie_counts_half():
    lm = model("crows")
    same = MinimalPair("same", "gender", "stereo", "the man is here.", "the man is here.")
    three = Crows(pairs(3), protocol="sentence")(lm, inference=INFERENCE)
    four = Crows((*pairs(3), same), protocol="sentence")(lm, inference=INFERENCE)
    assert four.value == pytest.approx((3 * three.value + 50) / 4)
    assert four.interval.low <= four.value <= four.interval.high


def test_protocols_that_mask_are_refused_for_causal_models():
    lm = load(zoo.folder("llama", "LlamaForCausalLM"))
    with pytest.raises(LevelheadError, match="masks tokens, which a causal model cannot"):
        made("crows", protocol="meade")(lm)


def test_a_first_word_that_cannot_be_scored_drops_the_pair():
    subset = tuple(
        MinimalPair(f"p{i}", "gender", "stereo", f"{a} is {c}.", f"{b} is {c}.")
        for i, (a, b, c) in enumerate(
            [("he", "she", "here"), ("the man", "the woman", "here"), ("the man", "the she", "in")]
        )
    )
    lm = load(zoo.folder("gpt2", "GPT2LMHeadModel"))
    lm.tokens.tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="$A")
    (result,) = Crows(subset).read(lm, context=RunContext(store="memory://first"))
    assert [(item.id, why.split(",")[0]) for item, why in result.dropped] == [
        ("p0", "they differ in the first token")
    ]
    (full,) = Crows(subset).read(load(zoo.folder("gpt2", "GPT2LMHeadModel")))
    assert not full.dropped


def test_byte_level_tokens_without_width_are_scored():
    """A space of its own has no characters left once offsets are trimmed."""
    lm = byte_level(load(zoo.folder("bert", "BertForMaskedLM")))
    subset = [
        MinimalPair(f"p{i}", "gender", "stereo", f"the  man is {c}.", f"the  woman is {c}.")
        for i, c in enumerate(("here", "there", "in"))
    ]
    (query_set,) = Crows(tuple(subset)).queries(lm)
    encoded = lm.tokens.encode([subset[0].more])[0]
    assert any(low == high for low, high in encoded.offsets[1:-1])
    assert all(query_set.items[i].queries for i in range(3))
    QUERY_KINDS["score"](lm, [item.queries[0] for item in query_set.items], query_set.settings)


def test_a_pair_that_differs_by_a_word_left_out_has_nothing_to_score_for_meade():
    subset = (*pairs(3), MinimalPair("x", "gender", "stereo", "the man is here.", "the is here."))
    result = Crows(subset, protocol="meade")(model("crows"), inference=INFERENCE)
    assert result.dropped == (DroppedItem("x", "the two sentences differ by words left out only"),)


def test_every_bias_type_is_tested_and_corrected():
    result = made("crows_margin")(model("crows"), inference=INFERENCE)
    kinds = [extra for extra in result.extras if extra.name.startswith("type: ")]
    assert {kind.name for kind in kinds} == {"type: gender", "type: age"}
    assert all(kind.p.correction == "holm" and kind.p.family == 2 for kind in kinds)


def test_one_bias_type_alone():
    assert {item.bias for item in made("crows", bias="age").items} == {"age"}
    with pytest.raises(LevelheadError, match="no bias type named 'shoes'"):
        made("crows", bias="shoes").items  # noqa: B018


def test_near_ties_are_counted():
    result = made("crows")(model("crows"), inference=INFERENCE)
    assert any("0 ties, 0 margins below 0.0001" in note for note in result.notes)
