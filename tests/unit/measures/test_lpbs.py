import math

import numpy as np
import pytest
import torch
import zoo
from metric_cases import INFERENCE, THINGS, made, model, templates

from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.data.lexicons.lexicon import Side, TargetFamily
from levelhead.data.lexicons.published import GroupTemplate
from levelhead.measures.likelihood.lpbs import lpbs_scores
from levelhead.models.loading.load import load
from levelhead.models.queries.cloze import build_lm_fill_words_query


def literal(lm, template, word, *, compat=False):
    """Kurita's score of one word in one template: own forwards, softmax, sums, logs."""
    encode = lm.tokens.tokenizer
    mask = lm.tokens.mask

    def log_odds(text, place):
        ids = encode(text, return_tensors="pt")["input_ids"]
        masks = (ids[0] == mask).nonzero().flatten().tolist()
        with torch.no_grad():
            logits = lm.layout.model(ids).prediction_logits[0]
        p = logits[place(masks)].double().softmax(-1)
        sums = [
            sum(float(p[encode(w, add_special_tokens=False)["input_ids"][0]]) for w in words)
            for _, words in template.groups
        ]
        return math.log(sums[0]) - math.log(sums[1])

    group_first = template.text.index("GGG") < template.text.index("XXX")
    shown = template.text.replace("GGG", "[MASK]").replace("XXX", word)
    hidden = template.text.replace("GGG", "[MASK]").replace("XXX", "[MASK]")
    at = (lambda masks: masks[0]) if group_first else (lambda masks: masks[-1])
    prior = (lambda masks: masks[-1] - 1) if compat else at
    return log_odds(shown, lambda masks: masks[0]) - log_odds(hidden, prior)


def effect(x, y):
    """Her effect size: pandas' std (ddof 1) over everything, plus 1e-8."""
    x, y = np.ravel(x), np.ravel(y)
    return (x.mean() - y.mean()) / (np.concatenate([x, y]).std(ddof=1) + 1e-8)


def test_it_is_that_of_a_literal_loop():
    lm = model("lpbs")
    result = made("lpbs")(lm, inference=INFERENCE)
    rows = np.array([[literal(lm, t, word) for t in templates()] for word in THINGS])
    assert result.value == pytest.approx(effect(rows[:5], rows[5:]), abs=1e-4)
    subset = [
        dict(result.per_item_values)[f"{'ab'[i >= 5]}: {word}"] for i, word in enumerate(THINGS)
    ]
    assert subset == pytest.approx(rows.mean(1).tolist(), abs=1e-5)
    assert result.extra("difference of means").value == pytest.approx(
        rows[:5].mean() - rows[5:].mean(), abs=1e-5
    )
    assert result.extra("mean score").value == pytest.approx(rows.mean(), abs=1e-5)
    assert result.extra("spread").value == pytest.approx(rows.std(ddof=1), abs=1e-5)
    words = made("lpbs", pool="words")(lm, inference=INFERENCE)
    assert words.value == pytest.approx(effect(rows[:5].mean(1), rows[5:].mean(1)), abs=1e-4)
    assert words.value != pytest.approx(result.value, rel=1e-3)


def test_the_published_mistake_can_be_repeated():
    """The prior of a template is one for all words: it shows where templates are pooled."""
    lm = model("lpbs")
    first = (templates()[0], GroupTemplate("GGG said that XXX was here.", templates()[1].groups))
    result = made("lpbs", templates=first, kurita_compat=True)(lm, inference=INFERENCE)
    rows = np.array([[literal(lm, t, word, compat=True) for t in first] for word in THINGS])
    assert result.value == pytest.approx(effect(rows[:5], rows[5:]), abs=1e-4)
    base = made("lpbs", templates=first)(lm, inference=INFERENCE)
    assert base.value != pytest.approx(result.value, rel=1e-3)
    assert "published code" in result.provenance.equation
    assert base.comparability_key != result.comparability_key
    with pytest.raises(LevelheadError, match="target first"):
        made("lpbs", kurita_compat=True)(lm)


def test_groups_exchanged_turn_it_round():
    lm = model("lpbs")
    single = made("lpbs")(lm, inference=INFERENCE)
    two = made("lpbs", groups=("female", "male"))(lm, inference=INFERENCE)
    assert two.value == pytest.approx(-single.value)


def test_a_target_of_several_tokens_is_hidden_whole():
    first, second = ("nurse house", "doctor", "quick"), ("in", "lazy", "river")
    lists = TargetFamily("things", "", (Side("a", None, first), Side("b", None, second)))
    lm, measure = model("lpbs"), made("lpbs", targets=lists)
    (result,) = measure.read(lm)
    template = templates()[1]
    shown, hidden = (
        lm.layout.model(lm.tokens.tokenizer(text, return_tensors="pt")["input_ids"])
        for text in ("the nurse house is a [MASK].", "the [MASK] [MASK] is a [MASK].")
    )
    lm_ids = lm.tokens.tokenizer.get_vocab()
    odds = []
    for output, place in ((shown, 6), (hidden, 6)):
        p = output.prediction_logits[0, place].double().softmax(-1).detach()
        male, female = (sum(p[lm_ids[w]] for w in words) for _, words in template.groups)
        odds.append(float(male.log() - female.log()))
    assert float(lpbs_scores(result)[0, 2]) == pytest.approx(odds[0] - odds[1], abs=1e-5)


def test_what_is_no_template_or_test_is_refused():
    with pytest.raises(LevelheadError, match="GGG and XXX once each"):
        made("lpbs", templates=(GroupTemplate("GGG is here.", templates()[0].groups),)).queries(
            None
        )
    with pytest.raises(UnknownNameError, match="group"):
        made("lpbs", groups=("male", "river")).queries(None)
    with pytest.raises(LevelheadError, match="two are compared"):
        made("lpbs", groups=("male",)).queries(None)


def test_a_causal_model_cannot_hide_words():
    causal = load(zoo.folder("llama", "LlamaForCausalLM"))
    with pytest.raises(LevelheadError, match="does not hold"):
        made("lpbs")(causal)
    with pytest.raises(LevelheadError, match="cannot mask"):
        build_lm_fill_words_query(causal, ["the nurse is [MASK]"], ["he"], [(4, 9)])
    with pytest.raises(LevelheadError, match="the masked span contains the blank"):
        build_lm_fill_words_query(model("lpbs"), ["the nurse is [MASK]"], ["he"], [(10, 15)])
