"""The user's files: which rows are the gain and which the price."""

import pytest
import zoo
from biased_classifier import LEXICON, classifier, texts, write
from metric_cases import NLI, model, neutral, nli_pairs, triples

from levelhead.core.errors import LevelheadError, NotMeasurableError, UnknownNameError
from levelhead.measures.classification.controlled_difference import ControlledDifference
from levelhead.measures.classification.counterfactual import Counterfactual
from levelhead.measures.classification.nli_occupations import Nli
from levelhead.measures.next_sentence.strength import Strength
from levelhead.measures.utility.accuracy import Accuracy
from levelhead.mitigate.selection.user_task import TaskFiles, load_user_task, pairs_from_task
from levelhead.models.loading.load import load


def both(tmp_path):
    return [write(tmp_path / f"{tag}.csv", texts(tag, 40)) for tag in ("dev", "test")]


def test_counterfactuals_and_accuracy_are_of_the_same_rows(tmp_path):
    dev, test = both(tmp_path)
    task = load_user_task(TaskFiles(dev, test, lexicon=LEXICON))
    expected = Counterfactual(dev, label="label", lexicon=LEXICON)
    assert task.bias == ControlledDifference(expected)
    assert task.utility == Accuracy(dev)
    assert task.bias_test.counterfactual.texts == task.utility_test.texts == test
    assert task.utility.items == task.bias.counterfactual.items
    base = load_user_task(
        TaskFiles(dev, test, "counterfactual_shift", lexicon=LEXICON, control=False)
    )
    assert base.bias.primary_metric.name == "counterfactual_shift"
    assert isinstance(base.bias, Counterfactual)


def test_fairness_takes_the_rows_about_occupations_and_the_price_the_others(tmp_path):
    rows = [*neutral()[:24], *(pair._replace(id=f"s{i}") for i, pair in enumerate(nli_pairs()))]
    for name in ("dev", "test"):
        lines = [f"{row.id},{row.first},{row.second},{row.label}" for row in rows]
        text = "\n".join(["id,premise,hypothesis,label", *lines])
        (tmp_path / f"{name}.csv").write_text(text)
    files = [str(tmp_path / f"{name}.csv") for name in ("dev", "test")]
    task = load_user_task(TaskFiles(*files, bias_measure="fairness", labels=NLI))
    assert isinstance(task.bias, Nli)
    assert task.bias.pairs == neutral()[:24]
    assert task.utility.texts == tuple(rows[24:])
    assert task.utility.labels == task.bias.labels == NLI
    for part, responses in (
        (rows[:24], "dev.csv: every row is about an occupation"),
        (rows[24:], "dev.csv: no id names occupation, template and word"),
    ):
        lines = [f"{row.id},{row.first},{row.second},{row.label}" for row in part]
        (tmp_path / "dev.csv").write_text("\n".join(["id,premise,hypothesis,label", *lines]))
        with pytest.raises(NotMeasurableError, match=responses):
            load_user_task(TaskFiles(*files, bias_measure="fairness", labels=NLI))


def test_strength_takes_twin_triples_and_what_follows_is_its_price(tmp_path):
    header = "context_id,context,next_sentence,label,gender,gender_swapped_context,"
    lines = [header + "gender_swapped_next_sentence"]
    for triple in triples():
        for label, subset, twin in (
            ("stereotype", triple.stereotype, triple.twin_stereotype),
            ("anti-stereotype", triple.anti_stereotype, triple.twin_anti_stereotype),
            ("unrelated", triple.unrelated, triple.twin_unrelated),
        ):
            row = (
                triple.id,
                triple.context,
                subset,
                label,
                triple.group,
                triple.twin_context,
                twin,
            )
            lines.append(",".join(row))
    for name in ("dev", "test"):
        (tmp_path / f"{name}.csv").write_text("\n".join(lines))
    files = [str(tmp_path / f"{name}.csv") for name in ("dev", "test")]
    task = load_user_task(TaskFiles(*files, bias_measure="strength"))
    assert isinstance(task.bias, Strength)
    assert [triple._replace(id="") for triple in task.bias.triples] == [
        triple._replace(id="") for triple in triples()
    ]
    pairs = task.utility.texts
    assert len(pairs) == 6 * len(triples())
    assert [pair.label for pair in pairs[:6]] == ["next", "next", "unrelated"] * 2
    assert (pairs[5].first, pairs[5].second) == (
        triples()[0].twin_context,
        triples()[0].twin_unrelated,
    )
    lm = load(zoo.folder("bert", "BertForPreTraining"))
    assert len(task.utility.queries(lm)[0].items) == len(pairs)
    with pytest.raises(LevelheadError, match=r"cannot read .*gone\.csv"):
        load_user_task(TaskFiles(str(tmp_path / "gone.csv"), files[1], "strength"))


def test_what_is_no_task_is_refused(tmp_path):
    dev, test = both(tmp_path)
    with pytest.raises(LevelheadError, match="dev and test are one file"):
        load_user_task(TaskFiles(dev, str(tmp_path / "." / "dev.csv")))
    with pytest.raises(UnknownNameError, match="there is no gain named 'fairnes'"):
        TaskFiles(dev, test, bias_measure="fairnes")
    with pytest.raises(UnknownNameError, match="there is no utility measure named 'f1'"):
        TaskFiles(dev, test, utility_measure="f1")
    task = load_user_task(TaskFiles(dev, test, label="what"))
    with pytest.raises(UnknownNameError, match=r"column of dev\.csv named 'what'"):
        task.utility.queries(model("accuracy"))


def test_pairs_are_the_texts_of_dev_and_their_swaps(tmp_path):
    dev, test = both(tmp_path)
    task = load_user_task(TaskFiles(dev, test, lexicon=LEXICON))
    result = pairs_from_task(classifier(0.0), task.bias, lexicon=LEXICON)
    assert len(result.pairs) == len({item.text for item in texts("dev", 40)})
    for pair in result.pairs:
        assert "woman" in pair.first
        assert pair.second == pair.first.replace("woman", "man")
