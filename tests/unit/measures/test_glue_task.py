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
    ruler = GlueTask(task="mrpc", texts=PAIRS, labels=ALIKE)
    found = ruler(classifier, inference=INFERENCE)
    said = classifier.classify([(one.first, one.second) for one in PAIRS])
    called = [ALIKE[i] == "equivalent" for i in said.argmax(1)]
    true = [one.label == "equivalent" for one in PAIRS]
    assert len(set(called)) == 2
    assert found.value == pytest.approx(100 * metrics.f1_score(true, called))
    accuracy = found.extra("accuracy")
    assert accuracy.value == pytest.approx(100 * metrics.accuracy_score(true, called))
    own = said.double().gather(1, torch.tensor([[1 - one] for one in true], dtype=torch.int64))
    assert found.extra("task_likelihood").value == pytest.approx(float(own.mean()), rel=1e-6)
    assert found.interval.low < found.value < found.interval.high
    assert (found.parity, found.p, found.unit) == (None, None, "100 x F1")
    assert ruler.primary_metric.role == "utility"
    share = np.mean(true)
    assert f"always equivalent: F1 of {200 * share / (1 + share):.1f}" in found.notes
    assert f"always equivalent: {100 * share:.1f}% of texts" in found.notes
    assert "mrpc: Two thirds are equivalent: a constant answer has a high F1." in found.notes
    design = ruler.design(ruler.read(classifier)[0], ruler.primary_metric)
    assert design.limiting_factor.n_units == len(THINGS)  # first texts, not pairs
    assert parse_measure("task:task=rte,part=dev").spec.name == "rte"


def test_scores_are_read_and_correlated(scorer):
    ruler = GlueTask(task="stsb", texts=SCORES)
    found = ruler(scorer, inference=INFERENCE)
    with torch.no_grad():
        inputs = zoo.tokenizer()(
            [one.first for one in SCORES],
            [one.second for one in SCORES],
            return_token_type_ids=True,
            return_tensors="pt",
        )
        said = scorer.layout.model(**inputs).logits[:, 0]
    true = [float(one.label) for one in SCORES]
    assert found.value == pytest.approx(100 * stats.pearsonr(said, true)[0], rel=1e-4)
    assert found.extra("Spearman").value == pytest.approx(
        100 * stats.spearmanr(said, true)[0], rel=1e-4
    )
    assert "chance: 0" in found.notes
    edited = scorer.edited(HeadScale([Site("head_out", 1, i) for i in range(4)], 0))
    assert ruler(edited, inference=INFERENCE).value != found.value
    read = ruler.read(scorer)[0]
    leaf = read.values.clone().requires_grad_()
    ruler.reduce(dataclasses.replace(read, values=leaf)).backward()
    assert leaf.grad.isfinite().all()
    assert leaf.grad.any()
    same = dataclasses.replace(read, values=torch.ones_like(read.values))
    with pytest.raises(LevelheadError, match="the model's scores are all equal"):
        ruler.compute_measurement(scorer, [same], inference=INFERENCE)


def test_a_model_that_says_one_class_has_a_price_and_is_told(classifier):
    texts = tuple(
        LabelledExample(f"{a} {b}", f"the {a} is {b}.", "acceptable" if a < b else "unacceptable")
        for a in THINGS
        for b in THINGS
    )
    ruler = GlueTask(task="cola", texts=texts, labels=("unacceptable", "acceptable"))
    read = ruler.read(classifier)[0]
    p = 0.8 + 0.1 * torch.rand(len(texts), 1, 1, generator=torch.manual_seed(0)).double()
    always = dataclasses.replace(read, values=torch.cat([1 - p, p], dim=2).log())
    found = ruler.compute_measurement(classifier, [always], inference=INFERENCE)
    assert found.value == 0
    assert found.interval.low < 0 < found.interval.high
    assert "the model predicts acceptable for every text" in found.notes
    assert "chance: Matthews of 0" in found.notes


def test_classes_go_by_name_never_by_number(classifier):
    with pytest.raises(LevelheadError, match="LABEL_0, LABEL_1: which is not_equiv") as error:
        GlueTask(task="mrpc", texts=PAIRS)(classifier, inference=INFERENCE)
    assert error.value.hint.endswith("labels=not_equivalent+equivalent")
    named = SimpleNamespace(labels=("Equivalent", "not_equivalent"))
    assert GlueTask(task="mrpc")._classes(named) == ALIKE
    with pytest.raises(LevelheadError, match="itself names its classes equivalent, not_equ"):
        GlueTask(task="mrpc", labels=ALIKE[::-1])._classes(named)
    one = GlueTask(task="mrpc", texts=PAIRS, labels=ALIKE)(classifier, inference=INFERENCE)
    other = GlueTask(task="mrpc", texts=PAIRS, labels=ALIKE[::-1])(classifier, inference=INFERENCE)
    assert one.value != other.value


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
    rows = "".join(f"{one.first},{one.second},{one.label}\n" for one in PAIRS)
    found = []
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        path = tmp_path / place / "dev.csv"
        path.write_text("sentence1,sentence2,label\n" + rows)
        ruler = GlueTask(task="mrpc", file=str(path), labels=ALIKE)
        assert ruler.settings["file"] == "dev.csv"
        found.append(ruler(classifier, inference=INFERENCE).to_json())
    assert found[0] == found[1]
