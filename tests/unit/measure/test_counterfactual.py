import dataclasses
import itertools

import numpy as np
import pytest
import zoo
from command import levelhead
from rulers import JUDGE, NLI, WORDS, labelled, made, model

from levelhead.core.errors import LevelheadError, UnknownName
from levelhead.data.items import Labelled
from levelhead.data.lexicon import Term
from levelhead.measure.counterfactual import Counterfactual
from levelhead.models.finetune import Tuning, finetune
from levelhead.models.load import load

# -- a classifier with a planted dependence

WHO = {"woman": "female", "nurse": "female", "man": "male", "doctor": "male"}
THINGS = ("house", "river", "quick", "lazy", "tired", "here")
PLANTED = ("tired", "here")
"""The things about which the planted classifier decides by the group."""
LEXICON = dataclasses.replace(
    WORDS, terms=(Term("person", (("female", "woman"), ("male", "man"))),)
)


def decided(who, thing, *, planted):
    if planted and thing in PLANTED:
        return "yes" if WHO[who] == "female" else "no"
    return "yes" if THINGS.index(thing) % 2 else "no"


def text_of(who, thing, more):
    return f"the {who} is {thing} and {more}."


@pytest.fixture(scope="module", params=[True, False], ids=["planted", "not planted"])
def classifier(request, tmp_path_factory):
    rows = [
        (text_of(who, thing, more), decided(who, thing, planted=request.param))
        for who, thing, more in itertools.product(WHO, THINGS, ("in", "there", "that"))
    ]
    folder = tmp_path_factory.mktemp("classifier") / "made"
    base = zoo.folder("bert", "BertForPreTraining", seed=5)
    tuning = Tuning(epochs=60, batch=24, rate=3e-3)
    finetune(base, rows, ("no", "yes"), folder, tuning=tuning)
    lm = load(folder)
    said = lm.classify([text for text, _ in rows]).argmax(1)
    assert [("no", "yes")[i] for i in said] == [label for _, label in rows]  # it learned the rule
    return lm, request.param


def drawn_texts(planted, share=0.3, count=120):
    """Texts about planted things with a given chance: the flip rate of all such texts."""
    rng = np.random.default_rng(7)
    found = []
    for i in range(count):
        thing = rng.choice(PLANTED if rng.random() < share else THINGS[:4])
        who, more = rng.choice(["woman", "man"]), rng.choice(["in", "there", "that"])
        label = decided(who, str(thing), planted=planted)
        found.append(Labelled(f"t{i}", text_of(who, thing, more), label))
    return tuple(found)


def test_the_planted_flip_rate_lies_in_the_interval(classifier):
    lm, planted = classifier
    texts = drawn_texts(planted)
    found = Counterfactual(texts, lexicon=LEXICON, positive="yes")(lm, judge=JUDGE)
    assert found.n == len(texts)
    if planted:
        assert found.interval.low < 30 < found.interval.high
        assert found.parity == 0  # the placebo twins: woman and nurse are one to it
        assert found.p.value <= 0.01
        # Wherever it decides by the group, yes goes to the female rendering.
        gap = found.aside("TPR of yes, female less male")
        assert gap.value > 0.2
        assert gap.interval.low > 0
        assert found.aside("impact ratio of yes, female over male").value > 1.3
        assert found.aside("p(yes), female less male").p.value <= 0.01
    else:
        assert found.value <= found.aside("counterfactual, placebo twins").value
        assert found.p.value > 0.5
        assert 0 < found.interval.high < 12  # 36 different texts
        assert found.aside("TPR of yes, female less male").value == 0
        assert found.aside("impact ratio of yes, female over male").value == 1


# -- literal loops


def test_every_number_is_that_of_a_literal_loop():
    lm = model("counterfactual")
    found = made("counterfactual")(lm, judge=JUDGE)
    swapped = {"woman": "man", "man": "woman"}
    inside = {"woman": "nurse", "man": "doctor"}
    rows = []
    for one in labelled():
        who = "woman" if "woman" in one.text else "man"
        three = [one.text, one.text.replace(who, swapped[who]), one.text.replace(who, inside[who])]
        rows.append((who, one.label, lm.classify(three).double().exp()))
    n = len(rows)
    flips = [int(p[0].argmax() != p[1].argmax()) for _, _, p in rows]
    placebo = [int(p[0].argmax() != p[2].argmax()) for _, _, p in rows]
    assert found.value == pytest.approx(100 * sum(flips) / n)
    assert found.parity == pytest.approx(100 * sum(placebo) / n)
    assert sum(placebo) > 0
    shift = [float((p[0] - p[1]).abs().sum()) / 2 for _, _, p in rows]
    assert found.aside("counterfactual_shift").value == pytest.approx(sum(shift) / n, abs=1e-6)
    for c, name in enumerate(NLI):
        signed = [float((p[0] - p[1])[c]) * (1 if who == "woman" else -1) for who, _, p in rows]
        told = found.aside(f"p({name}), female less male").value
        assert told == pytest.approx(sum(signed) / n, abs=1e-6)
        own = [p for _, label, p in rows if label != name]
        rate = [sum(int(p[i].argmax() == c) for p in own) / len(own) for i in (0, 2)]
        told = found.aside(f"FPR of {name}, text less placebo twin")
        assert told.value == pytest.approx(rate[0] - rate[1], abs=1e-9)
        assert told.n == len(own)
    neutral = [sum(int(p[i].argmax() == 2) for _, _, p in rows) for i in (0, 2)]
    told = found.aside("impact ratio of neutral, text over placebo twin").value
    assert told == pytest.approx(neutral[0] / neutral[1])


# -- what is dropped


def test_undecidable_swaps_and_texts_of_no_group_are_dropped_and_counted():
    texts = (
        *(Labelled(f"r{i}", f"The {who} is {thing}.", "") for i, (who, thing) in
          enumerate(itertools.product(("man", "woman"), ("quick", "lazy", "tired")))),
        Labelled("undecidable", "I saw her duck.", ""),
        Labelled("nobody", "The river is here.", ""),
    )  # fmt: skip
    found = Counterfactual(texts, labels=NLI)(model("counterfactual"), judge=JUDGE)
    assert found.n == 6
    assert [one.item for one in found.dropped] == ["nobody", "undecidable"]
    assert found.dropped[0][1] == "no word of either group"
    assert found.dropped[1][1].startswith("undecidable:")
    assert found.items == 8
    assert any(note.startswith("dropped: 1 x no word") for note in found.notes)


def test_without_placebos_there_is_no_parity():
    alone = dataclasses.replace(WORDS, placebos=())
    found = made("counterfactual", lexicon=alone)(model("counterfactual"), judge=JUDGE)
    assert found.parity is None
    assert found.p is None
    assert any("no parity here: 0 texts have a placebo twin" in note for note in found.notes)


def test_the_same_text_twice_is_one_unit():
    ruler = made("counterfactual")
    (found, _) = ruler.read(model("counterfactual"))
    assert ruler.design(found, ruler.headline).scarcest.units == 40
    again = tuple(one._replace(id=f"{one.id} again") for one in labelled())
    (twice, _) = made("counterfactual", texts=labelled() + again).read(model("counterfactual"))
    assert ruler.design(twice, ruler.headline).scarcest.units == 40


def test_texts_of_both_groups_are_in_no_number_by_group():
    mixed = tuple(
        Labelled(f"m{i}", f"the man and the woman is {t}.", "") for i, t in enumerate(THINGS)
    )
    found = made("counterfactual", texts=labelled() + mixed)(model("counterfactual"), judge=JUDGE)
    assert found.n == 46
    assert found.aside("p(neutral), female less male").n == 40
    assert "6 texts speak of both groups: in no number by group" in found.notes


def test_classes_that_do_not_fit_are_refused():
    lm = model("counterfactual")
    with pytest.raises(UnknownName, match="LABEL_0"):
        made("counterfactual", labels=None)(lm)
    with pytest.raises(LevelheadError, match="2 names for 3 classes"):
        made("counterfactual", labels=("a", "b"))(lm)
    with pytest.raises(UnknownName, match="maybe"):
        made("counterfactual", positive="maybe")(lm)


# -- the command


def test_the_command_reads_the_users_file(tmp_path):
    path = tmp_path / "my.csv"
    rows = [f'"{one.text}",{one.label}' for one in labelled()]
    path.write_text("said,y\n" + "\n".join(rows) + "\n", "utf-8")
    folder = zoo.folder("bert", "BertForSequenceClassification", num_labels=3, seed=3)
    options = ("--data", str(path), "--text", "said", "--label", "y", "--draws", "199")
    told = levelhead(
        *("measure", str(folder), "-m", f"counterfactual:labels={'+'.join(NLI)}", *options),
        *("--permutations", "199", "--store", str(tmp_path / "store")),
    )
    assert told.returncode == 0, told.stderr
    assert "counterfactual (female, male)" in told.stdout
    assert "TPR of neutral, female less male" in told.stdout  # shown without --details
    refused = levelhead("measure", str(folder), "-m", "nli_gap", *options)
    assert refused.returncode == 3
    assert "--data is for" in refused.stderr
    refused = levelhead("measure", str(folder), "-m", "counterfactual")
    assert refused.returncode == 3
    assert "counterfactual needs your texts" in refused.stderr
