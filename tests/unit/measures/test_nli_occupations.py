import dataclasses
from collections import Counter, defaultdict

import pytest
import torch
import zoo
from metric_cases import (
    CLASSES_SEED,
    FEMALE,
    INFERENCE,
    MALE,
    NLI,
    WORDS,
    made,
    model,
    neutral,
    nli_pairs,
)

from levelhead.core.errors import LevelheadError, NotMeasurableError, UnknownNameError
from levelhead.core.results import DroppedItem
from levelhead.core.run_context import RunContext
from levelhead.data.records import TextPair
from levelhead.measures.classification.nli_occupations import Nli
from levelhead.measures.utility.snli import SnliAccuracy
from levelhead.models.loading.load import load
from levelhead.models.loading.weight_checksums import record_checksum

NEUTRAL = NLI.index("neutral")


@pytest.fixture(scope="module")
def responses():
    """The classifier's own probabilities, one forward a pair."""
    lm = model("nli_gap")
    result = {}
    for pair in nli_pairs():
        row = lm.tokens.tokenizer.backend_tokenizer.encode(pair.first, pair.second)
        with torch.no_grad():
            logits = (
                lm.layout.model(
                    torch.tensor([row.ids]), token_type_ids=torch.tensor([row.type_ids])
                )
                .logits[0]
                .double()
            )
        result[tuple(pair.id.split("/"))] = logits.softmax(-1)
    return result


def literal(responses, tau):
    """Every formula as the papers say it, pair by pair."""
    by_cell, by_word, by_occupation = defaultdict(set), defaultdict(list), defaultdict(list)
    for (occupation, template, word), p in responses.items():
        by_cell[occupation, template].add(int(p.argmax()))
        by_word[occupation, word].append(p)
        by_occupation[occupation].append((word, p))
    right = [float(p.argmax() == NEUTRAL) for p in responses.values()]
    strict = [
        all(len(labels) == 1 for (subset, _), labels in by_cell.items() if subset == occupation)
        for occupation in by_occupation
    ]
    majority, gap = [], []
    for rows in by_occupation.values():
        votes = [Counter(int(p.argmax()) for w, p in rows if w in side) for side in (FEMALE, MALE)]
        means = [torch.stack([p for w, p in rows if w in side]).mean(0) for side in (FEMALE, MALE)]
        commonest = []
        for side, vote in zip((FEMALE, MALE), votes, strict=True):
            total = sum(p for w, p in rows if w in side)
            best = max(vote.values())
            tied = [label for label, n in vote.items() if n == best]
            commonest.append(max(tied, key=lambda label: float(total[label])))
        majority.append(commonest[0] == commonest[1])
        gap.append(float((means[0] - means[1]).abs().sum()) / 2)
    cells = [torch.stack(rows).mean(0) for rows in by_word.values()]
    accuracy = sum(right) / len(right)
    parity = sum(strict) / len(strict)
    return {
        "nli_accuracy": accuracy,
        "nli_parity": parity,
        "nli_parity_majority": sum(majority) / len(majority),
        "nli_fairness": accuracy * parity,
        "nli_gap": sum(gap) / len(gap),
        "net_neutral": sum(float(p[NEUTRAL]) for p in responses.values()) / len(responses),
        "fraction_neutral": sum(bool(p.argmax() == NEUTRAL) for p in cells) / len(cells),
        "threshold_neutral": sum(bool(p[NEUTRAL] > tau) for p in cells) / len(cells),
    }


def test_every_formula_is_that_of_a_literal_loop(responses):
    tau = 0.45
    measure = made("nli_fairness", tau=tau)
    (result,) = measure.read(model("nli_fairness"))
    values = {
        a.name: float(a.value(result, measure.design(result, a))) for a in measure.ordered_metrics
    }
    expected = literal(responses, tau)
    assert values == pytest.approx(expected, abs=1e-6)
    # The case is worth something: none of them is 0 or 1, and the two parities differ.
    assert all(0 < value < 1 for value in expected.values())
    assert expected["nli_parity"] != expected["nli_parity_majority"]


def test_classes_go_by_name_not_by_place():
    """Two classifiers that say the same with their columns in another order."""
    names = ("entailment", "neutral", "contradiction")
    lm, other = model("nli_gap"), model("nli_gap")
    order = [NLI.index(name) for name in names]
    with torch.no_grad():
        head = other.layout.model.classifier
        head.weight.copy_(head.weight[order])
        head.bias.copy_(head.bias[order])
    record_checksum(other.layout.model)  # changed on purpose, with a store of its own
    (single,) = made("nli_gap").read(lm)
    (two,) = made("nli_gap", labels=names).read(
        other, context=RunContext(store="memory://other-order")
    )
    for measure in (made("nli_fairness"), made("nli_gap"), made("threshold_neutral")):
        value = float(measure.reduce(single))
        again = float(measure.reduce(dataclasses.replace(two)))
        assert again == pytest.approx(value, abs=1e-6)


def test_the_order_of_the_classes_does_not_make_models_incomparable(tmp_path):
    names = ("entailment", "neutral", "contradiction")
    head = made("nli_gap").primary_metric
    output = [
        made("nli_gap", labels=subset).build_comparability_key(
            head, made("nli_gap", labels=subset).read(lm)[0]
        )
        for subset, lm in ((NLI, model("nli_gap")), (names, model("nli_gap")))
    ]
    assert output[0] == output[1]


def test_names_that_contradict_the_model_are_refused():
    lm = model("nli_gap")
    lm.layout.model.config.id2label = dict(enumerate(NLI))
    assert made("nli_gap", labels=None).read(lm)[0].metadata["labels"] == NLI
    with pytest.raises(LevelheadError, match="the model itself names"):
        made("nli_gap", labels=("entailment", "neutral", "contradiction"))(lm)


def test_nothing_compared_is_no_parity():
    """A template of its own for every pair: each cell has one label, trivially."""
    odd = tuple(
        pair._replace(id=f"{pair.id.split('/')[0]}/{i}/{pair.id.split('/')[2]}", label="neutral")
        for i, pair in enumerate(nli_pairs())
    )
    with pytest.raises(NotMeasurableError, match="one group only"):
        made("nli_parity", pairs=odd)(model("nli_gap"), inference=INFERENCE)
    with pytest.raises(LevelheadError, match="is labelled"):
        made("nli_parity", pairs=nli_pairs())(model("nli_gap"), inference=INFERENCE)


def test_a_classifier_with_nameless_classes_is_refused():
    with pytest.raises(LevelheadError, match="LABEL_0") as error:
        made("nli_gap", labels=None)(model("nli_gap"))
    assert "labels=entailment+neutral+contradiction" in error.value.hint
    two = load(zoo.folder("bert", "BertForSequenceClassification", num_labels=2, seed=CLASSES_SEED))
    with pytest.raises(LevelheadError, match="which is"):
        made("nli_gap")(two)


def test_fairness_shows_both_factors():
    result = made("nli_fairness")(model("nli_fairness"), inference=INFERENCE)
    assert result.value == pytest.approx(
        result.extra("nli_accuracy").value * result.extra("nli_parity").value
    )
    assert result.extra("nli_parity").interval.method == "wilson, 10 occupations"
    assert any("about occupations, for these words only" in note for note in result.notes)
    signed = [extra for extra in result.extras if extra.name.endswith("female less male")]
    assert len(signed) >= 2
    assert {item.p.family for item in signed} == {len(signed)}


def test_no_occupation_alike_has_an_interval():
    measure = made("nli_fairness")
    (outcome,) = measure.read(model("nli_fairness"))
    rows = [[-9.0, -0.1, -3.0] if item.group == "female" else [-9.0, -3.0, -0.1] for item in
            outcome.items]  # fmt: skip
    none = dataclasses.replace(outcome, values=torch.tensor(rows, dtype=torch.float64)[:, None])
    result = measure.compute_measurement(model("nli_fairness"), [none], inference=INFERENCE)
    assert result.value == 0
    assert 0 < result.interval.high < 0.5
    assert result.extra("nli_parity").value == 0
    assert "nli_accuracy: every resample gives the same value" in " ".join(result.notes)


def test_the_majority_is_of_labels_not_of_probabilities():
    """Three weak entailments outvote one strong neutral."""
    measure = made("nli_parity_majority")
    (result,) = measure.read(model("nli_gap"))
    weak, strong = [0.25, 0.4, 0.35], [0.04, 0.01, 0.95]
    rows = torch.tensor([weak] * len(result), dtype=torch.float64)
    rows[[item.id for item in result.items].index("nurse/0/she")] = torch.tensor(strong).double()
    given = dataclasses.replace(result, values=rows.log()[:, None])
    assert float(measure.reduce(given)) == 1
    assert float(made("nli_parity").reduce(given)) == pytest.approx(0.9)


def test_words_of_neither_group_are_dropped_by_name():
    odd = TextPair("nurse/0/river", "the nurse is here.", "the river is here.", "neutral")
    result = made("nli_gap", pairs=(*neutral(), odd))(model("nli_gap"), inference=INFERENCE)
    assert result.dropped == (DroppedItem("nurse/0/river", "'river' is of neither group"),)
    with pytest.raises(LevelheadError, match="occupation, template and word"):
        Nli((TextPair("7", "a", "b", "neutral"),), lexicon=WORDS).queries(None)
    with pytest.raises(LevelheadError, match="source would change nothing with pairs of your own"):
        Nli(neutral(), source="coal")


def test_an_occupation_with_one_group_only_has_no_gap():
    half = tuple(p for p in neutral() if not p.id.startswith("nurse/") or p.id.endswith("man"))
    half = tuple(p for p in half if p.id not in ("nurse/0/man", "nurse/1/man"))
    with pytest.raises(NotMeasurableError, match=r"no pair of 'male'|one group only"):
        made("nli_gap", pairs=half)(model("nli_gap"), inference=INFERENCE)


def test_snli_clusters_by_premise_and_shows_chance():
    result = made("snli")(model("snli"), inference=INFERENCE)
    lm = model("snli")
    p = lm.classify([(pair.first, pair.second) for pair in nli_pairs()])
    right = [NLI[i] == pair.label for i, pair in zip(p.argmax(1), nli_pairs(), strict=True)]
    assert result.value == pytest.approx(100 * sum(right) / len(right))
    gold = [p[i, NLI.index(pair.label)] for i, pair in enumerate(nli_pairs())]
    assert result.extra("snli_likelihood").value == pytest.approx(float(sum(gold)) / len(gold))
    assert result.notes[-1] == "always contradiction: 40.0% of pairs"
    (read,) = made("snli").read(lm)
    assert (
        made("snli").design(read, made("snli").primary_metric).limiting_factor.n_units == 20
    )  # not 80
    with pytest.raises(UnknownNameError, match="label"):
        SnliAccuracy((TextPair("1", "a", "b", "maybe"),), labels=NLI).queries(lm)
