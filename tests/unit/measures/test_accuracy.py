"""Accuracy of labelled texts, against literal loops."""

import pytest
import zoo
from metric_cases import INFERENCE, NLI, labelled, made, model, nli_pairs

from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.data.records import LabelledExample, TextPair
from levelhead.measures.registry import parse_measure
from levelhead.measures.utility.accuracy import Accuracy
from levelhead.models.loading.load import load
from levelhead.stats.intervals import proportion_interval


def test_every_number_is_that_of_a_literal_loop():
    lm, texts = model("accuracy"), labelled()
    result = made("accuracy")(lm, inference=INFERENCE)
    p = lm.classify([item.text for item in texts]).double().exp()
    wanted = [NLI.index(text.label) for text in texts]
    right = [int(row.argmax()) == i for row, i in zip(p, wanted, strict=True)]
    assert 0 < sum(right) < len(right)
    assert result.value == pytest.approx(100 * sum(right) / len(right))
    assert result.parity is None
    logs = [float(row[i].log()) for row, i in zip(p, wanted, strict=True)]
    output = result.extra("accuracy_likelihood").value
    assert output == pytest.approx(sum(logs) / len(logs), rel=1e-5)
    for name in NLI:
        subset = [hit for hit, text in zip(right, texts, strict=True) if text.label == name]
        assert result.extra(f"label: {name}").value == pytest.approx(
            100 * sum(subset) / len(subset)
        )
    most = max(sum(text.label == name for text in texts) for name in NLI)
    assert any(note.endswith(f": {100 * most / len(texts):.1f}% of texts") for note in result.notes)


def test_pairs_are_sampled_by_their_first_text():
    lm, pairs = model("accuracy"), nli_pairs()
    measure = Accuracy(pairs, labels=NLI)
    result = measure(lm, inference=INFERENCE)
    responses = lm.classify([(pair.first, pair.second) for pair in pairs]).argmax(1).tolist()
    right = [NLI[i] == pair.label for i, pair in zip(responses, pairs, strict=True)]
    assert result.value == pytest.approx(100 * sum(right) / len(right))
    (query_set,) = measure.queries(lm)
    assert {item.units for item in query_set.items} == {(pair.first,) for pair in pairs}


def test_a_next_sentence_head_tells_what_follows():
    lm = load(zoo.folder("bert", "BertForPreTraining"))
    pairs = [
        TextPair(f"p{i}", f"the {who} is here.", f"she was {thing}.", ("next", "unrelated")[i % 2])
        for i, (who, thing) in enumerate(
            (who, thing) for who in ("man", "woman", "nurse") for thing in ("tired", "quick", "in")
        )
    ]
    result = Accuracy(tuple(pairs))(lm, inference=INFERENCE)
    responses = lm.next_sentence([(pair.first, pair.second) for pair in pairs])
    right = [bool(yes > no) == (i % 2 == 0) for i, (yes, no) in enumerate(responses)]
    assert result.value == pytest.approx(100 * sum(right) / len(right))
    with pytest.raises(LevelheadError, match="t0 is a single text, and a next-sentence head reads"):
        Accuracy((LabelledExample("t0", "the man is here.", "next"),)).queries(lm)


def test_all_right_has_an_interval_of_some_width():
    lm = model("accuracy")
    texts = labelled()[:9]
    responses = lm.classify([item.text for item in texts]).argmax(1).tolist()
    subset = tuple(text._replace(label=NLI[i]) for text, i in zip(texts, responses, strict=True))
    result = Accuracy(subset, labels=NLI)(lm, inference=INFERENCE)
    expected = proportion_interval(9, 9)
    assert (result.value, result.interval.low) == (100, pytest.approx(100 * expected.low))


def test_a_file_is_told_by_its_name(tmp_path):
    path = tmp_path / "own.csv"
    rows = "\n".join(f"{item.text},{item.label.upper()}" for item in labelled())
    path.write_text(f"said,what\n{rows}\n")
    measure = Accuracy(str(path), text="said", label="what", labels=NLI)
    result = measure(model("accuracy"), inference=INFERENCE)
    assert result.value == made("accuracy")(model("accuracy"), inference=INFERENCE).value
    assert measure.settings["texts"] == "own.csv"
    assert list(measure.data) == ["file own.csv"]
    assert parse_measure(f"accuracy:texts={path},text=said").texts == str(path)


def test_labels_that_are_none_of_the_classes_are_refused():
    lm = model("accuracy")
    with pytest.raises(UnknownNameError, match=r"there is no class of the model .* named 'maybe'"):
        Accuracy((LabelledExample("a", "the man is here.", "maybe"),), labels=NLI).queries(lm)
    with pytest.raises(LevelheadError, match="2 names for 3 classes"):
        Accuracy(labelled(), labels=("a", "b")).queries(lm)
    subset = tuple(reversed(lm.labels))
    with pytest.raises(LevelheadError, match="the model itself names its classes LABEL_0"):
        Accuracy(labelled(), labels=subset).queries(lm)
    with pytest.raises(UnknownNameError, match="no metric named"):
        Accuracy(metric="f1")
