from difflib import SequenceMatcher

import pytest
import torch
import zoo
from rulers import JUDGE, made, model, pairs

from levelhead.core.errors import LevelheadError
from levelhead.core.results import Dropped
from levelhead.data.items import MinimalPair
from levelhead.measure.crows import Crows
from levelhead.models.load import load


def slow(lm, one, protocol):
    """Each token masked by hand, the model called directly."""
    rows = [encoded.row.ids for encoded in lm.tokens.encode([one.more, one.less])]
    codes = SequenceMatcher(None, *rows, autojunk=False).get_opcodes()
    shared = [[], []]
    for kind, a, b, c, d in codes:
        if (kind == "equal") == (protocol == "nangia"):
            shared[0] += range(a, b)
            shared[1] += range(c, d)
    scores = []
    for ids, places in zip(rows, shared, strict=True):
        found = []
        for place in places:
            if 0 < place < len(ids) - 1:
                masked = torch.tensor([ids])
                masked[0, place] = lm.tokens.mask
                with torch.no_grad():
                    logits = lm.anatomy.model(masked).prediction_logits[0, place]
                found.append(float(logits.log_softmax(-1)[ids[place]]))
        scores.append(sum(found) / (len(found) if protocol == "meade" else 1))
    return scores[0] - scores[1]


@pytest.mark.parametrize("protocol", ["nangia", "meade"])
def test_margins_are_those_of_the_literal_loop(protocol):
    lm, ruler = model("crows"), made("crows", protocol=protocol, decimals=None)
    (found,) = ruler.read(lm)
    margins = ruler.margins(found).tolist()
    for one, margin in zip(pairs(), margins, strict=True):
        assert margin == pytest.approx(slow(lm, one, protocol), abs=1e-5)
    share = 100 * sum(margin > 0 for margin in margins) / len(margins)
    assert ruler(lm, judge=JUDGE).value == pytest.approx(share)


def test_a_causal_model_is_scored_by_the_sentence():
    lm = load(zoo.folder("llama", "LlamaForCausalLM"))
    ruler = made("crows_margin")
    (found,) = ruler.read(lm)
    assert found.facts["protocol"] == "sentence"
    more, less = (lm.log_prob([text]).value for text in (pairs()[0].more, pairs()[0].less))
    assert float(ruler.margins(found)[0]) == pytest.approx(float(more - less), rel=1e-4)


def test_a_tie_counts_half_or_not_at_all():
    lm = model("crows")
    same = MinimalPair("same", "gender", "stereo", "the man is here.", "the man is here.")
    own = (*pairs(3), same)
    values = {
        rule: Crows(own, ties=rule, protocol="sentence")(lm, judge=JUDGE).value
        for rule in ("half", "paper")
    }
    assert values["half"] - values["paper"] == pytest.approx(100 / 8)


def test_a_pair_that_differs_by_a_word_left_out_has_nothing_to_score_for_meade():
    own = (*pairs(3), MinimalPair("x", "gender", "stereo", "the man is here.", "the is here."))
    result = Crows(own, protocol="meade")(model("crows"), judge=JUDGE)
    assert result.dropped == (Dropped("x", "the two sentences differ by words left out only"),)


def test_every_bias_type_is_tested_and_corrected():
    result = made("crows_margin")(model("crows"), judge=JUDGE)
    kinds = [one for one in result.beside if one.name.startswith("type: ")]
    assert {one.name for one in kinds} == {"type: gender", "type: age"}
    assert all(one.p.correction == "holm" and one.p.family == 2 for one in kinds)


def test_one_bias_type_alone():
    assert {one.bias for one in made("crows", bias="age").items} == {"age"}
    with pytest.raises(LevelheadError, match="no bias type named 'shoes'"):
        made("crows", bias="shoes").items  # noqa: B018


def test_near_ties_are_counted():
    result = made("crows")(model("crows"), judge=JUDGE)
    assert any("0 ties, 0 margins below 0.0001" in note for note in result.notes)
