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
    found = made("accuracy")(lm, inference=INFERENCE)
    p = lm.classify([one.text for one in texts]).double().exp()
    wanted = [NLI.index(one.label) for one in texts]
    right = [int(row.argmax()) == i for row, i in zip(p, wanted, strict=True)]
    assert 0 < sum(right) < len(right)
    assert found.value == pytest.approx(100 * sum(right) / len(right))
    assert found.parity is None
    logs = [float(row[i].log()) for row, i in zip(p, wanted, strict=True)]
    told = found.extra("accuracy_likelihood").value
    assert told == pytest.approx(sum(logs) / len(logs), rel=1e-5)
    for name in NLI:
        own = [hit for hit, one in zip(right, texts, strict=True) if one.label == name]
        assert found.extra(f"label: {name}").value == pytest.approx(100 * sum(own) / len(own))
    most = max(sum(one.label == name for one in texts) for name in NLI)
    assert any(note.endswith(f": {100 * most / len(texts):.1f}% of texts") for note in found.notes)


def test_pairs_are_sampled_by_their_first_text():
    lm, pairs = model("accuracy"), nli_pairs()
    ruler = Accuracy(pairs, labels=NLI)
    found = ruler(lm, inference=INFERENCE)
    said = lm.classify([(one.first, one.second) for one in pairs]).argmax(1).tolist()
    right = [NLI[i] == one.label for i, one in zip(said, pairs, strict=True)]
    assert found.value == pytest.approx(100 * sum(right) / len(right))
    (asked,) = ruler.queries(lm)
    assert {item.units for item in asked.items} == {(one.first,) for one in pairs}


def test_a_next_sentence_head_tells_what_follows():
    lm = load(zoo.folder("bert", "BertForPreTraining"))
    pairs = [
        TextPair(f"p{i}", f"the {who} is here.", f"she was {thing}.", ("next", "unrelated")[i % 2])
        for i, (who, thing) in enumerate(
            (who, thing) for who in ("man", "woman", "nurse") for thing in ("tired", "quick", "in")
        )
    ]
    found = Accuracy(tuple(pairs))(lm, inference=INFERENCE)
    said = lm.next_sentence([(one.first, one.second) for one in pairs])
    right = [bool(yes > no) == (i % 2 == 0) for i, (yes, no) in enumerate(said)]
    assert found.value == pytest.approx(100 * sum(right) / len(right))
    with pytest.raises(LevelheadError, match="t0 is a single text, and a next-sentence head reads"):
        Accuracy((LabelledExample("t0", "the man is here.", "next"),)).queries(lm)


def test_all_right_has_an_interval_of_some_width():
    lm = model("accuracy")
    texts = labelled()[:9]
    said = lm.classify([one.text for one in texts]).argmax(1).tolist()
    own = tuple(one._replace(label=NLI[i]) for one, i in zip(texts, said, strict=True))
    found = Accuracy(own, labels=NLI)(lm, inference=INFERENCE)
    expected = proportion_interval(9, 9)
    assert (found.value, found.interval.low) == (100, pytest.approx(100 * expected.low))


def test_a_file_is_told_by_its_name(tmp_path):
    path = tmp_path / "own.csv"
    rows = "\n".join(f"{one.text},{one.label.upper()}" for one in labelled())
    path.write_text(f"said,what\n{rows}\n")
    ruler = Accuracy(str(path), text="said", label="what", labels=NLI)
    found = ruler(model("accuracy"), inference=INFERENCE)
    assert found.value == made("accuracy")(model("accuracy"), inference=INFERENCE).value
    assert ruler.settings["texts"] == "own.csv"
    assert list(ruler.data) == ["file own.csv"]
    assert parse_measure(f"accuracy:texts={path},text=said").texts == str(path)


def test_labels_that_are_none_of_the_classes_are_refused():
    lm = model("accuracy")
    with pytest.raises(UnknownNameError, match=r"there is no class of the model .* named 'maybe'"):
        Accuracy((LabelledExample("a", "the man is here.", "maybe"),), labels=NLI).queries(lm)
    with pytest.raises(LevelheadError, match="2 names for 3 classes"):
        Accuracy(labelled(), labels=("a", "b")).queries(lm)
    own = tuple(reversed(lm.labels))
    with pytest.raises(LevelheadError, match="the model itself names its classes LABEL_0"):
        Accuracy(labelled(), labels=own).queries(lm)
    with pytest.raises(UnknownNameError, match="no metric named"):
        Accuracy(metric="f1")
