import numpy as np
import pytest
import torch
import zoo
from metric_cases import INFERENCE, associations, made, model

from levelhead.core.errors import NotMeasurableError
from levelhead.core.frozen import FrozenDict
from levelhead.core.run_context import Inference
from levelhead.data.records import StereoSetItem
from levelhead.measures.inference import estimate
from levelhead.measures.items import MeasureItem
from levelhead.measures.likelihood.stereoset import StereoSet, ending_margins, split_blank_word
from levelhead.measures.responses import Responses
from levelhead.models.loading.checkpoints import MissingHeadError
from levelhead.models.loading.load import load
from levelhead.stats.designs import Resample, crossed_design
from levelhead.stats.intervals import proportion_interval


def given(rows, protocol="follows"):
    """Readouts of (term, stereotype, anti-stereotype, unrelated), scores as they are."""
    items = tuple(MeasureItem(f"i{i}", (), (row[0],), "gender") for i, row in enumerate(rows))
    scores = torch.tensor([row[1:] for row in rows], dtype=torch.float64).log()
    values = torch.stack([scores, torch.ones_like(scores)], dim=-1)
    return Responses(items, values, ("terms",), (), torch.zeros(0, 0), (), (),
                    metadata=FrozenDict({"protocol": protocol}))  # fmt: skip


# Term a: S > A in 2 of 3; S or A above U in 5 of 6. Term b: S > A in 0 of 1; 1 of 2.
BY_HAND = [
    ("a", 0.9, 0.1, 0.05),
    ("a", 0.8, 0.3, 0.2),
    ("a", 0.2, 0.6, 0.3),
    ("b", 0.1, 0.7, 0.3),
]


def value(name, rows, **options):
    measure = made(name, **options)
    result = given(rows)
    return float(
        measure.primary_metric.value(result, measure.design(result, measure.primary_metric))
    )


def test_scores_are_means_over_terms_by_hand():
    ss = (100 * 2 / 3 + 0) / 2  # over items: 50
    lms = (100 * 5 / 6 + 100 * 1 / 2) / 2  # over items: 75
    assert value("stereotype_score", BY_HAND) == pytest.approx(ss)
    assert value("lms", BY_HAND) == pytest.approx(lms)
    assert value("icat", BY_HAND) == pytest.approx(lms * ss / 50)  # min(ss, 100 - ss) is ss
    margin = torch.tensor(BY_HAND[0][1:] + BY_HAND[1][1:] + BY_HAND[2][1:]).log().view(3, 3)
    first = float((margin[:, 0] - margin[:, 1]).mean())
    second = float(torch.tensor(0.1).log() - torch.tensor(0.7).log())
    assert value("stereotype_margin", BY_HAND) == pytest.approx((first + second) / 2, rel=1e-6)
    turned = [(t, a, s, u) for t, s, a, u in BY_HAND]
    assert value("stereotype_score", turned) == pytest.approx(100 - ss)
    assert value("lms", turned) == pytest.approx(lms)
    assert value("icat", turned) == pytest.approx(lms * ss / 50)


def test_a_tie_counts_as_published_or_half():
    tied = [*BY_HAND, ("b", 0.4, 0.4, 0.1)]
    assert value("stereotype_score", tied) == pytest.approx((100 * 2 / 3 + 0) / 2)
    assert value("stereotype_score", tied, ties="half") == pytest.approx((100 * 2 / 3 + 25) / 2)


def test_a_term_drawn_twice_counts_twice():
    result, measure = given(BY_HAND), made("stereotype_score")
    design = measure.design(result, measure.primary_metric)
    twice = Resample(design, (np.array([0, 0, 1]),))
    values = measure.primary_metric.per_item_values(result)
    assert float(measure.primary_metric.aggregate(values, twice)) == pytest.approx(
        (2 * 200 / 3 + 0) / 3
    )


def literal(lm, context, word):
    """Nadeem's score: tokens from left to right, the rest absent, p averaged."""
    before, _, after = context.partition("BLANK")
    tokenize = lm.tokens.tokenizer
    special = tokenize("", add_special_tokens=True)["input_ids"]
    left, right = (
        tokenize(part, add_special_tokens=False)["input_ids"] for part in (before, after)
    )
    pieces = tokenize(word, add_special_tokens=False)["input_ids"]
    result = []
    for i, piece in enumerate(pieces):
        row = [special[0], *left, *pieces[:i], lm.tokens.mask, *right, special[-1]]
        with torch.no_grad():
            output = lm.layout.model(torch.tensor([row]))
        logits = output.prediction_logits[0, 1 + len(left) + i]
        result.append(float(logits.double().softmax(-1)[piece]))
    return sum(result) / len(result)


def test_words_are_scored_as_in_a_literal_loop():
    """One of them is of two tokens, another of three."""
    longer = StereoSetItem(
        "longer", "intrasentence", "race", "z", "the BLANK is here.", "the nurse doctor is here.",
        "the river is here.", "the lazy house in is here.",
    )  # fmt: skip
    given = (*associations(), longer)
    lm, measure = model("lms"), made("lms", associations=given)
    (result,) = measure.read(lm)
    assert result.values[-1, :, 1].tolist() == [2, 1, 3]
    for item, subset, row in zip(result.items, given, ending_margins(result), strict=True):
        assert item.id == subset.id
        endings = (subset.stereotype, subset.anti_stereotype, subset.unrelated)
        words = [split_blank_word(subset.context, ending)[1] for ending in endings]
        first, second, third = (literal(lm, subset.context, word) for word in words)
        logs = torch.tensor([first, second, third], dtype=torch.float64).log()
        assert float(row[0]) == pytest.approx(float(logs[0] - logs[1]), abs=1e-5)
        assert float(row[2]) == pytest.approx(float(logs[0] - logs[2]), abs=1e-5)
        assert float(row[3]) == pytest.approx(float(logs[1] - logs[2]), abs=1e-5)


def test_causal_models_are_scored_by_the_sentence_and_by_the_second_one():
    lm = load(zoo.folder("llama", "LlamaForCausalLM"))
    (result,) = made("lms").read(lm)
    assert result.metadata["protocol"] == "sentence"
    single = associations()[0]
    score = lm.log_prob([single.stereotype, single.anti_stereotype])
    mean = score.value.double() / score.token_counts
    assert float(ending_margins(result)[0, 0]) == pytest.approx(float(mean[0] - mean[1]), abs=1e-5)
    between = tuple(
        StereoSetItem(f"b{i}", "intersentence", "gender", "ab"[i % 2], "the man is here.",
                    f"he is {a}.", f"she is {a}.", f"the {a} was there.")
        for i, a in enumerate(("nurse", "doctor", "tired", "quick"))
    )  # fmt: skip
    measure = StereoSet(between, kind="intersentence")
    (result,) = measure.read(lm)
    assert result.metadata["protocol"] == "likelihood"
    full = lm.log_prob(["the man is here. he is nurse."], [[(17, 29)]])
    assert float(result.values[0, 0, 0]) == pytest.approx(float(full.value[0]), abs=1e-4)
    (result,) = measure.read(model("lms"))
    follows = model("lms").next_sentence([("the man is here.", "he is nurse.")])
    assert float(result.values[0, 0, 0]) == pytest.approx(float(follows[0, 0]), abs=1e-5)


def test_a_head_that_a_kind_needs_is_asked_for():
    masked = load(zoo.folder("bert", "BertForMaskedLM"))
    with pytest.raises(MissingHeadError, match="intersentence items needs a next_sentence head"):
        made("lms", kind="intersentence")(masked)
    follows = load(zoo.folder("bert", "BertForNextSentencePrediction"))
    with pytest.raises(MissingHeadError, match="intrasentence items needs a vocabulary"):
        made("lms")(follows)


@pytest.mark.parametrize(
    ("context", "ending", "output"),
    [
        ("A BLANK and a BLANK.", "A nurse and a doctor.", "2 blanks"),
        ("No gap.", "No gap.", "0 blanks"),
        ("The BLANK is here.", "The nurse was here.", "not the context"),
        ("The BLANK is here.", "The  is here.", "not the context"),
    ],
)
def test_endings_that_do_not_fit_are_dropped_with_a_reason(context, ending, output):
    assert output in split_blank_word(context, ending)


def test_dropped_items_are_counted():
    odd = StereoSetItem("odd", "intrasentence", "race", "z", "the BLANK BLANK.", "a", "b", "c")
    result = made("lms", associations=(*associations(), odd))(model("lms"), inference=INFERENCE)
    assert [entry.item for entry in result.dropped] == ["odd"]


def test_all_above_is_no_certainty():
    measure = made("stereotype_score")
    outcome = given([(t, 0.9, a / 2, u) for t, _, a, u in BY_HAND])
    result = measure.compute_measurement(model("lms"), [outcome], inference=INFERENCE)
    assert result.value == 100
    assert result.interval.low < 60  # two terms only
    assert result.interval.method == "wilson"


def test_all_ties_are_refused():
    level = [(term, 0.5, 0.5, 0.5) for term, *_ in BY_HAND]
    with pytest.raises(NotMeasurableError, match="equally likely"):
        value("stereotype_score", level)


@pytest.mark.parametrize("margin", [1.0, -1.0])
def test_an_icat_of_0_in_every_item_has_an_interval(margin):
    """Of 40 terms that all prefer the same, as many may yet prefer the other as Wilson allows."""
    values = torch.tensor([[margin, 1.0, 1.5, 0.5]] * 40, dtype=torch.float64)
    icat = StereoSet(associations=(), metric="icat").primary_metric
    design = crossed_design({"terms": [str(i) for i in range(40)]})
    result = estimate(Inference(resamples=99), icat, values, design)
    most = 100 * proportion_interval(0, 40).high
    assert result.value == 0
    assert (result.interval.low, result.interval.high) == (0, pytest.approx(2 * most))
