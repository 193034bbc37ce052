import dataclasses
import itertools

import numpy as np
import pytest
import torch
import zoo
from command import levelhead
from metric_cases import INFERENCE, NLI, WORDS, labelled, made, model

from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.data.counterfactuals.swap import swap, swap_within_groups
from levelhead.data.lexicons.lexicon import Term, lexicon
from levelhead.data.records import LabelledExample
from levelhead.measures.classification.counterfactual import Counterfactual
from levelhead.measures.classification.group_rates import (
    PairedPredictions,
    estimate_by_class,
    paired_share_interval,
)
from levelhead.models.loading.load import load
from levelhead.models.training.finetune import FinetuneConfig, finetune
from levelhead.stats.designs import clustered_design

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
    tuning = FinetuneConfig(epochs=60, batch_size=24, learning_rate=3e-3, threads=1)
    finetune(base, rows, ("no", "yes"), folder, config=tuning)
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
        found.append(LabelledExample(f"t{i}", text_of(who, thing, more), label))
    return tuple(found)


def test_the_planted_flip_rate_lies_in_the_interval(classifier):
    lm, planted = classifier
    texts = drawn_texts(planted)
    # 6 units flip, all one way: 2 of 64 sign flips are as extreme. 199 draws are too few for that.
    inference = dataclasses.replace(INFERENCE, permutations=1999)
    found = Counterfactual(texts, lexicon=LEXICON, positive="yes")(lm, inference=inference)
    assert found.n == len(texts)
    if planted:
        assert found.interval.low < 30 < found.interval.high
        assert found.parity == 0  # the placebo twins: woman and nurse are one to it
        assert found.excess.value == pytest.approx(found.value)  # so all of it is excess
        assert found.p.value <= 0.05  # 18 pairs of twins
        # Wherever it decides by the group, yes goes to the female rendering.
        assert found.extra("TPR of yes, female less male").value > 0.2
        assert found.extra("impact ratio of yes, female over male").value > 1.3
        assert found.extra("p(yes), female less male").p.value <= 0.05
    else:
        assert found.value <= found.extra("counterfactual, placebo twins").value
        assert found.p.value > 0.5
        assert 0 < found.interval.high < 20  # 18 different pairs of twins
        assert found.extra("TPR of yes, female less male").value == 0
        assert found.extra("impact ratio of yes, female over male").value == 1
    (asked, _) = Counterfactual(texts, lexicon=LEXICON).queries(lm)
    assert len({item.units for item in asked.items}) <= 18  # twins are one


# -- literal loops


def test_every_number_is_that_of_a_literal_loop():
    lm = model("counterfactual")
    found = made("counterfactual")(lm, inference=INFERENCE)
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
    assert found.extra("counterfactual_shift").value == pytest.approx(sum(shift) / n, abs=1e-6)
    for c, name in enumerate(NLI):
        signed = [float((p[0] - p[1])[c]) * (1 if who == "woman" else -1) for who, _, p in rows]
        told = found.extra(f"p({name}), female less male").value
        assert told == pytest.approx(sum(signed) / n, abs=1e-6)
        own = [p for _, label, p in rows if label != name]
        rate = [sum(int(p[i].argmax() == c) for p in own) / len(own) for i in (0, 2)]
        told = found.extra(f"FPR of {name}, text less placebo twin")
        assert told.value == pytest.approx(rate[0] - rate[1], abs=1e-9)
        assert told.n == len(own)
    neutral = [sum(int(p[i].argmax() == 2) for _, _, p in rows) for i in (0, 2)]
    told = found.extra("impact ratio of neutral, text over placebo twin").value
    assert told == pytest.approx(neutral[0] / neutral[1])


# -- what is dropped


def test_undecidable_swaps_and_texts_of_no_group_are_dropped_and_counted():
    texts = (
        *(LabelledExample(f"r{i}", f"The {who} is {thing}.", "") for i, (who, thing) in
          enumerate(itertools.product(("man", "woman"), ("quick", "lazy", "tired")))),
        LabelledExample("undecidable", "I saw her duck.", ""),
        LabelledExample("nobody", "The river is here.", ""),
    )  # fmt: skip
    found = Counterfactual(texts, labels=NLI)(model("counterfactual"), inference=INFERENCE)
    assert found.n == 6
    assert [one.item for one in found.dropped] == ["nobody", "undecidable"]
    assert found.dropped[0][1] == "no word of either group"
    assert found.dropped[1][1].startswith("undecidable:")
    assert found.n_items == 8
    assert any(note.startswith("dropped: 1 x no word") for note in found.notes)


def test_without_placebos_there_is_no_parity():
    alone = dataclasses.replace(WORDS, placebos=())
    found = made("counterfactual", lexicon=alone)(model("counterfactual"), inference=INFERENCE)
    assert found.parity is None
    assert found.p is None
    assert any("0 texts have a placebo twin" in note for note in found.notes)


def test_the_number_has_no_parity_where_placebos_are_of_some_texts_only():
    """Forty texts with a pronoun, which has no placebo, and forty without."""
    more = tuple(
        LabelledExample(
            f"p{i}", one.text.replace("the woman", "she").replace("the man", "he"), one.label
        )
        for i, one in enumerate(labelled())
    )
    found = made("counterfactual", texts=labelled() + more)(
        model("counterfactual"), inference=INFERENCE
    )
    assert found.n == 80
    assert found.parity is None
    assert found.p is None
    assert found.extra("counterfactual, excess over placebo twins").n == 40
    assert found.extra("counterfactual, texts with a placebo twin").n == 40
    assert any(note.startswith("40 of 80 texts have a placebo twin") for note in found.notes)


def test_a_placebo_changes_the_same_words_and_keeps_their_articles():
    ruler = Counterfactual((), lexicon="gender-en", groups=("female", "nonbinary"))
    words = lexicon("gender-en")

    def controls(ruler, text):
        twin = swap(text, words, groups=ruler.compared_groups)
        return ruler._is_matched_placebo(twin, swap_within_groups(text, words))

    assert not controls(ruler, "She met the king.")  # the placebo would be a duke
    plain = Counterfactual((), lexicon="gender-en")
    assert controls(plain, "The women met the mother.")
    assert not controls(plain, "The women met a mother.")  # a aunt


def test_the_impact_ratio_is_the_same_from_either_side():
    first, second = [1.0] * 24 + [0.0] * 76, [1.0] * 12 + [0.0] * 88
    p = torch.tensor([first, second], dtype=torch.float64).T  # [texts, 2]
    both = torch.stack([p, 1 - p], dim=2)
    units = tuple(map(str, range(100)))
    one, two = (
        estimate_by_class(
            PairedPredictions(turned, ("",) * 100, units, "a less b"),
            ("yes", "no"),
            "yes",
            INFERENCE,
        )[0][-1]
        for turned in (both, both.flip(1))
    )
    assert (one.value, two.value) == (2.0, 0.5)
    assert one.p.value == two.p.value <= 0.05
    assert one.interval.low == pytest.approx(1 / two.interval.high)
    assert one.interval.low > 1
    never = torch.stack([p * torch.tensor([0.0, 1.0]), 1 - p * torch.tensor([0.0, 1.0])], dim=2)
    (found, _) = estimate_by_class(
        PairedPredictions(never, ("",) * 100, units, "a less b"), ("yes", "no"), "yes", INFERENCE
    )
    assert found[-1].value == 0
    # None of 100 against twelve: Wilson's end for the first alone would be a ratio of 0.31.
    assert 0.3 < found[-1].interval.high < 1.5
    assert found[-1].detectable is None
    gap = next(one for one in found if one.name.startswith("rate of yes"))
    assert gap.value == pytest.approx(-0.12)
    assert gap.interval.high < 0


def test_the_interval_of_a_paired_gap_is_not_bounded_by_the_few_that_change():
    """One discordant text of 13 does not exclude a gap the other way (Bonett and Price 2012)."""
    both = torch.zeros(13, 2, dtype=torch.float64)
    both[0, 1] = 1
    found = paired_share_interval(both, clustered_design(list(map(str, range(13)))), 0.95)
    assert (found.low, found.high) == pytest.approx((-0.2905, 0.1571), abs=1e-4)
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(500):
        first, second = rng.random(40) < 0.06, rng.random(40) < 0.03
        drawn = torch.tensor(np.stack([first, second], 1), dtype=torch.float64)
        told = paired_share_interval(drawn, clustered_design(list(map(str, range(40)))), 0.95)
        inside += told.low <= 0.03 <= told.high
    assert inside >= 475


def test_twins_whose_article_no_longer_fits_are_dropped():
    odd = Counterfactual((LabelledExample("odd", "He is a priest.", ""),), lexicon="religion-en",
                         groups=("christian", "muslim"), labels=NLI)  # fmt: skip
    (item,) = odd.queries(model("counterfactual"))[0].items
    assert item.skip_reason == "a or an before the word would no longer fit"


def test_the_same_text_twice_is_one_unit():
    ruler = made("counterfactual")
    (found, _) = ruler.read(model("counterfactual"))
    # All twins stand in the data, too: a text and its twin are one observation.
    assert len(found) == 40
    assert ruler.design(found, ruler.primary_metric).limiting_factor.n_units == 20
    again = tuple(one._replace(id=f"{one.id} again") for one in labelled())
    (twice, _) = made("counterfactual", texts=labelled() + again).read(model("counterfactual"))
    assert ruler.design(twice, ruler.primary_metric).limiting_factor.n_units == 20


def test_texts_of_both_groups_are_in_no_number_by_group():
    mixed = tuple(
        LabelledExample(f"m{i}", f"the man and the woman is {t}.", "") for i, t in enumerate(THINGS)
    )
    found = made("counterfactual", texts=labelled() + mixed)(
        model("counterfactual"), inference=INFERENCE
    )
    assert found.n == 46
    assert found.extra("p(neutral), female less male").n == 40
    assert "6 texts speak of both groups: in no number by group" in found.notes


def test_classes_that_do_not_fit_are_refused():
    lm = model("counterfactual")
    with pytest.raises(UnknownNameError, match="LABEL_0"):
        made("counterfactual", labels=None)(lm)
    with pytest.raises(LevelheadError, match="2 names for 3 classes"):
        made("counterfactual", labels=("a", "b"))(lm)
    with pytest.raises(UnknownNameError, match="maybe"):
        made("counterfactual", positive="maybe")(lm)


# -- the command


def test_the_command_reads_the_users_file(tmp_path):
    path = tmp_path / "my.csv"
    rows = [f'"{one.text}",{one.label}' for one in labelled()]
    path.write_text("said,y\n" + "\n".join(rows) + "\n", "utf-8")
    folder = zoo.folder("bert", "BertForSequenceClassification", num_labels=3, seed=3)
    options = ("--data", str(path), "--text", "said", "--label", "y", "--resamples", "99")
    told = levelhead(
        *("measure", str(folder), "-m", f"counterfactual:labels={'+'.join(NLI)}", *options),
        *("--permutations", "99", "--store", str(tmp_path / "store")),
    )
    assert told.returncode == 0, told.stderr
    assert "counterfactual (female, male)" in told.stdout
    assert "TPR of neutral, female less male" in told.stdout  # shown without --details
    refused = levelhead("measure", str(folder), "-m", "nli:metric=nli_gap", *options)
    assert refused.returncode == 3
    assert "--data, --text, --label: only -m counterfactual uses these" in refused.stderr
    race = levelhead(
        *("measure", str(folder), "-m", f"counterfactual:labels={'+'.join(NLI)},lexicon=race-en"),
        *(*options, "--store", str(tmp_path / "store")),
    )
    assert race.returncode == 3  # what -m says is not overruled: no word of either group
    assert "no word of either group" in race.stderr
    refused = levelhead("measure", str(folder), "-m", "counterfactual")
    assert refused.returncode == 3
    assert "counterfactual needs your texts" in refused.stderr
