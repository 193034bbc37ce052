"""A task's own metric: by name of classes, of scores, with chance told and collapse priced."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import zoo
from metric_cases import INFERENCE, THINGS
from scipy import stats
from sklearn import metrics

from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.data.records import LabelledExample, TextPair
from levelhead.measures.registry import parse_measure
from levelhead.measures.utility.glue_task import GlueTask
from levelhead.models.edits.base import HeadScale
from levelhead.models.loading.checkpoints import MissingHeadError
from levelhead.models.loading.load import load
from levelhead.models.sites import Site

ALIKE = ("equivalent", "not_equivalent")
"""The classes of the tiny classifier: not in GLUE's order."""


def pairs(label):
    return tuple(
        TextPair(f"{a}/{b}", f"the {a} is here.", f"the {b} was there.", label(i, j))
        for i, a in enumerate(THINGS)
        for j, b in enumerate(THINGS)
    )


PAIRS = pairs(lambda i, j: "equivalent" if (i + j) % 3 else "not_equivalent")
SCORES = pairs(lambda i, j: str(float((3 * i + j) % 6)))


@pytest.fixture(scope="module")
def classifier():
    return load(zoo.folder("bert", "BertForSequenceClassification", num_labels=2, seed=11))


@pytest.fixture(scope="module")
def scorer():
    return load(zoo.folder("bert", "BertForSequenceClassification", num_labels=1,
                           problem_type="regression", seed=3))  # fmt: skip


def test_f1_leads_and_the_others_stand_beside(classifier):
    measure = GlueTask(task="mrpc", texts=PAIRS, labels=ALIKE)
    result = measure(classifier, inference=INFERENCE)
    responses = classifier.classify([(pair.first, pair.second) for pair in PAIRS])
    called = [ALIKE[i] == "equivalent" for i in responses.argmax(1)]
    true = [pair.label == "equivalent" for pair in PAIRS]
    assert len(set(called)) == 2
    assert result.value == pytest.approx(100 * metrics.f1_score(true, called))
    accuracy = result.extra("accuracy")
    assert accuracy.value == pytest.approx(100 * metrics.accuracy_score(true, called))
    subset = responses.double().gather(
        1, torch.tensor([[1 - item] for item in true], dtype=torch.int64)
    )
    assert result.extra("task_likelihood").value == pytest.approx(float(subset.mean()), rel=1e-6)
    assert result.interval.low < result.value < result.interval.high
    assert (result.parity, result.p, result.unit) == (None, None, "100 x F1")
    assert measure.primary_metric.role == "utility"
    share = np.mean(true)
    assert f"always equivalent: F1 of {200 * share / (1 + share):.1f}" in result.notes
    assert f"always equivalent: {100 * share:.1f}% of texts" in result.notes
    assert "mrpc: Two thirds are equivalent: a constant answer has a high F1." in result.notes
    design = measure.design(measure.read(classifier)[0], measure.primary_metric)
    assert design.limiting_factor.n_units == len(THINGS)  # first texts, not pairs
    assert parse_measure("task:task=rte,part=dev").spec.name == "rte"


def test_scores_are_read_and_correlated(scorer):
    measure = GlueTask(task="stsb", texts=SCORES)
    result = measure(scorer, inference=INFERENCE)
    with torch.no_grad():
        inputs = zoo.tokenizer()(
            [score.first for score in SCORES],
            [score.second for score in SCORES],
            return_token_type_ids=True,
            return_tensors="pt",
        )
        responses = scorer.layout.model(**inputs).logits[:, 0]
    true = [float(score.label) for score in SCORES]
    assert result.value == pytest.approx(100 * stats.pearsonr(responses, true)[0], rel=1e-4)
    assert result.extra("Spearman").value == pytest.approx(
        100 * stats.spearmanr(responses, true)[0], rel=1e-4
    )
    assert "chance: 0" in result.notes
    edited = scorer.edited(HeadScale([Site("head_out", 1, i) for i in range(4)], 0))
    assert measure(edited, inference=INFERENCE).value != result.value
    read = measure.read(scorer)[0]
    leaf = read.values.clone().requires_grad_()
    measure.reduce(dataclasses.replace(read, values=leaf)).backward()
    assert leaf.grad.isfinite().all()
    assert leaf.grad.any()
    same = dataclasses.replace(read, values=torch.ones_like(read.values))
    with pytest.raises(LevelheadError, match="the model's scores are all equal"):
        measure.compute_measurement(scorer, [same], inference=INFERENCE)


def test_a_model_that_says_one_class_has_a_price_and_is_told(classifier):
    texts = tuple(
        LabelledExample(f"{a} {b}", f"the {a} is {b}.", "acceptable" if a < b else "unacceptable")
        for a in THINGS
        for b in THINGS
    )
    measure = GlueTask(task="cola", texts=texts, labels=("unacceptable", "acceptable"))
    read = measure.read(classifier)[0]
    p = 0.8 + 0.1 * torch.rand(len(texts), 1, 1, generator=torch.manual_seed(0)).double()
    always = dataclasses.replace(read, values=torch.cat([1 - p, p], dim=2).log())
    result = measure.compute_measurement(classifier, [always], inference=INFERENCE)
    assert result.value == 0
    assert result.interval.low < 0 < result.interval.high
    assert "the model predicts acceptable for every text" in result.notes
    assert "chance: Matthews of 0" in result.notes


def test_classes_go_by_name_never_by_number(classifier):
    with pytest.raises(LevelheadError, match="LABEL_0, LABEL_1: which is not_equiv") as error:
        GlueTask(task="mrpc", texts=PAIRS)(classifier, inference=INFERENCE)
    assert error.value.hint.endswith("labels=not_equivalent+equivalent")
    named = SimpleNamespace(labels=("Equivalent", "not_equivalent"))
    assert GlueTask(task="mrpc")._classes(named) == ALIKE
    with pytest.raises(LevelheadError, match="itself names its classes equivalent, not_equ"):
        GlueTask(task="mrpc", labels=ALIKE[::-1])._classes(named)
    single = GlueTask(task="mrpc", texts=PAIRS, labels=ALIKE)(classifier, inference=INFERENCE)
    other = GlueTask(task="mrpc", texts=PAIRS, labels=ALIKE[::-1])(classifier, inference=INFERENCE)
    assert single.value != other.value


def test_what_does_not_fit_is_refused(classifier, scorer):
    with pytest.raises(MissingHeadError, match="has 2 classes") as error:
        GlueTask(task="stsb", texts=SCORES)(classifier, inference=INFERENCE)
    assert error.value.hint.endswith("levelhead finetune --task stsb")
    with pytest.raises(MissingHeadError, match="no mutually exclusive classes: 1 outputs"):
        GlueTask(task="mrpc", texts=PAIRS, labels=ALIKE)(scorer, inference=INFERENCE)
    with pytest.raises(LevelheadError, match="stsb predicts a number, which has no likelihood"):
        GlueTask(task="stsb", metric="task_likelihood")
    with pytest.raises(UnknownNameError, match="no task named 'mprc'"):
        GlueTask(task="mprc")
    with pytest.raises(LevelheadError, match="part, file would change nothing with texts of"):
        GlueTask(task="mrpc", texts=PAIRS, part="test", file="dev.csv")
    with pytest.raises(LevelheadError, match="part would change nothing with a file of your own"):
        GlueTask(task="mrpc", part="test", file="dev.csv")
    wrong = (PAIRS[0]._replace(label="same"), *PAIRS[1:])
    with pytest.raises(UnknownNameError, match="label of mrpc"):
        GlueTask(task="mrpc", texts=wrong, labels=ALIKE)(classifier, inference=INFERENCE)


def test_a_file_is_known_by_its_content_not_its_place(classifier, tmp_path):
    rows = "".join(f"{pair.first},{pair.second},{pair.label}\n" for pair in PAIRS)
    result = []
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        path = tmp_path / place / "dev.csv"
        path.write_text("sentence1,sentence2,label\n" + rows)
        measure = GlueTask(task="mrpc", file=str(path), labels=ALIKE)
        assert measure.settings["file"] == "dev.csv"
        result.append(measure(classifier, inference=INFERENCE).to_json())
    assert result[0] == result[1]
