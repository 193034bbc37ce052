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
    responses = lm.classify([text for text, _ in rows]).argmax(1)
    assert [("no", "yes")[i] for i in responses] == [
        label for _, label in rows
    ]  # it learned the rule
    return lm, request.param


def drawn_texts(planted, share=0.3, count=120):
    """Texts about planted things with a given chance: the flip rate of all such texts."""
    rng = np.random.default_rng(7)
    result = []
    for i in range(count):
        thing = rng.choice(PLANTED if rng.random() < share else THINGS[:4])
        who, more = rng.choice(["woman", "man"]), rng.choice(["in", "there", "that"])
        label = decided(who, str(thing), planted=planted)
        result.append(LabelledExample(f"t{i}", text_of(who, thing, more), label))
    return tuple(result)


def test_the_planted_flip_rate_lies_in_the_interval(classifier):
    lm, planted = classifier
    texts = drawn_texts(planted)
    # 6 units flip, all one way: 2 of 64 sign flips are as extreme. 199 draws are too few for that.
    inference = dataclasses.replace(INFERENCE, permutations=1999)
    result = Counterfactual(texts, lexicon=LEXICON, positive="yes")(lm, inference=inference)
    assert result.n == len(texts)
    if planted:
        assert result.interval.low < 30 < result.interval.high
        assert result.parity == 0  # the placebo twins: woman and nurse are one to it
        assert result.excess.value == pytest.approx(result.value)  # so all of it is excess
        assert result.p.value <= 0.05  # 18 pairs of twins
        # Wherever it decides by the group, yes goes to the female rendering.
        assert result.extra("TPR of yes, female less male").value > 0.2
        assert result.extra("impact ratio of yes, female over male").value > 1.3
        assert result.extra("p(yes), female less male").p.value <= 0.05
    else:
        assert result.value <= result.extra("counterfactual, placebo twins").value
        assert result.p.value > 0.5
        assert 0 < result.interval.high < 20  # 18 different pairs of twins
        assert result.extra("TPR of yes, female less male").value == 0
        assert result.extra("impact ratio of yes, female over male").value == 1
    (query_set, _) = Counterfactual(texts, lexicon=LEXICON).queries(lm)
    assert len({item.units for item in query_set.items}) <= 18  # twins are one


# -- literal loops


def test_every_number_is_that_of_a_literal_loop():
    lm = model("counterfactual")
    result = made("counterfactual")(lm, inference=INFERENCE)
    swapped = {"woman": "man", "man": "woman"}
    inside = {"woman": "nurse", "man": "doctor"}
    rows = []
    for item in labelled():
        who = "woman" if "woman" in item.text else "man"
        three = [
            item.text,
            item.text.replace(who, swapped[who]),
            item.text.replace(who, inside[who]),
        ]
        rows.append((who, item.label, lm.classify(three).double().exp()))
    n = len(rows)
    flips = [int(p[0].argmax() != p[1].argmax()) for _, _, p in rows]
    placebo = [int(p[0].argmax() != p[2].argmax()) for _, _, p in rows]
    assert result.value == pytest.approx(100 * sum(flips) / n)
    assert result.parity == pytest.approx(100 * sum(placebo) / n)
    assert sum(placebo) > 0
    shift = [float((p[0] - p[1]).abs().sum()) / 2 for _, _, p in rows]
    assert result.extra("counterfactual_shift").value == pytest.approx(sum(shift) / n, abs=1e-6)
    for c, name in enumerate(NLI):
        signed = [float((p[0] - p[1])[c]) * (1 if who == "woman" else -1) for who, _, p in rows]
        output = result.extra(f"p({name}), female less male").value
        assert output == pytest.approx(sum(signed) / n, abs=1e-6)
        subset = [p for _, label, p in rows if label != name]
        rate = [sum(int(p[i].argmax() == c) for p in subset) / len(subset) for i in (0, 2)]
        output = result.extra(f"FPR of {name}, text less placebo twin")
        assert output.value == pytest.approx(rate[0] - rate[1], abs=1e-9)
        assert output.n == len(subset)
    neutral = [sum(int(p[i].argmax() == 2) for _, _, p in rows) for i in (0, 2)]
    output = result.extra("impact ratio of neutral, text over placebo twin").value
    assert output == pytest.approx(neutral[0] / neutral[1])


# -- what is dropped


def test_undecidable_swaps_and_texts_of_no_group_are_dropped_and_counted():
    texts = (
        *(LabelledExample(f"r{i}", f"The {who} is {thing}.", "") for i, (who, thing) in
          enumerate(itertools.product(("man", "woman"), ("quick", "lazy", "tired")))),
        LabelledExample("undecidable", "I saw her duck.", ""),
        LabelledExample("nobody", "The river is here.", ""),
    )  # fmt: skip
    result = Counterfactual(texts, labels=NLI)(model("counterfactual"), inference=INFERENCE)
    assert result.n == 6
    assert [entry.item for entry in result.dropped] == ["nobody", "undecidable"]
    assert result.dropped[0][1] == "no word of either group"
    assert result.dropped[1][1].startswith("undecidable:")
    assert result.n_items == 8
    assert any(note.startswith("dropped: 1 x no word") for note in result.notes)


def test_without_placebos_there_is_no_parity():
    alone = dataclasses.replace(WORDS, placebos=())
    result = made("counterfactual", lexicon=alone)(model("counterfactual"), inference=INFERENCE)
    assert result.parity is None
    assert result.p is None
    assert any("0 texts have a placebo twin" in note for note in result.notes)


def test_the_number_has_no_parity_where_placebos_are_of_some_texts_only():
    """Forty texts with a pronoun, which has no placebo, and forty without."""
    more = tuple(
        LabelledExample(
            f"p{i}", single.text.replace("the woman", "she").replace("the man", "he"), single.label
        )
        for i, single in enumerate(labelled())
    )
    result = made("counterfactual", texts=labelled() + more)(
        model("counterfactual"), inference=INFERENCE
    )
    assert result.n == 80
    assert result.parity is None
    assert result.p is None
    assert result.extra("counterfactual, excess over placebo twins").n == 40
    assert result.extra("counterfactual, texts with a placebo twin").n == 40
    assert any(note.startswith("40 of 80 texts have a placebo twin") for note in result.notes)


def test_a_placebo_changes_the_same_words_and_keeps_their_articles():
    measure = Counterfactual((), lexicon="gender-en", groups=("female", "nonbinary"))
    words = lexicon("gender-en")

    def controls(measure, text):
        twin = swap(text, words, groups=measure.compared_groups)
        return measure._is_matched_placebo(twin, swap_within_groups(text, words))

    assert not controls(measure, "She met the king.")  # the placebo would be a duke
    base = Counterfactual((), lexicon="gender-en")
    assert controls(base, "The women met the mother.")
    assert not controls(base, "The women met a mother.")  # a aunt


def test_the_impact_ratio_is_the_same_from_either_side():
    first, second = [1.0] * 24 + [0.0] * 76, [1.0] * 12 + [0.0] * 88
    p = torch.tensor([first, second], dtype=torch.float64).T  # [texts, 2]
    both = torch.stack([p, 1 - p], dim=2)
    units = tuple(map(str, range(100)))
    single, two = (
        estimate_by_class(
            PairedPredictions(turned, ("",) * 100, units, "a less b"),
            ("yes", "no"),
            "yes",
            INFERENCE,
        )[0][-1]
        for turned in (both, both.flip(1))
    )
    assert (single.value, two.value) == (2.0, 0.5)
    assert single.p.value == two.p.value <= 0.05
    assert single.interval.low == pytest.approx(1 / two.interval.high)
    assert single.interval.low > 1
    never = torch.stack([p * torch.tensor([0.0, 1.0]), 1 - p * torch.tensor([0.0, 1.0])], dim=2)
    (result, _) = estimate_by_class(
        PairedPredictions(never, ("",) * 100, units, "a less b"), ("yes", "no"), "yes", INFERENCE
    )
    assert result[-1].value == 0
    # None of 100 against twelve: Wilson's end for the first alone would be a ratio of 0.31.
    assert 0.3 < result[-1].interval.high < 1.5
    assert result[-1].detectable is None
    gap = next(item for item in result if item.name.startswith("rate of yes"))
    assert gap.value == pytest.approx(-0.12)
    assert gap.interval.high < 0


def test_the_interval_of_a_paired_gap_is_not_bounded_by_the_few_that_change():
    """One discordant text of 13 does not exclude a gap the other way (Bonett and Price 2012)."""
    both = torch.zeros(13, 2, dtype=torch.float64)
    both[0, 1] = 1
    result = paired_share_interval(both, clustered_design(list(map(str, range(13)))), 0.95)
    assert (result.low, result.high) == pytest.approx((-0.2905, 0.1571), abs=1e-4)
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(500):
        first, second = rng.random(40) < 0.06, rng.random(40) < 0.03
        sample = torch.tensor(np.stack([first, second], 1), dtype=torch.float64)
        output = paired_share_interval(sample, clustered_design(list(map(str, range(40)))), 0.95)
        inside += output.low <= 0.03 <= output.high
    assert inside >= 475


def test_twins_whose_article_no_longer_fits_are_dropped():
    odd = Counterfactual((LabelledExample("odd", "He is a priest.", ""),), lexicon="religion-en",
                         groups=("christian", "muslim"), labels=NLI)  # fmt: skip
    (item,) = odd.queries(model("counterfactual"))[0].items
    assert item.skip_reason == "a or an before the word would no longer fit"


def test_the_same_text_twice_is_one_unit():
    measure = made("counterfactual")
    (result, _) = measure.read(model("counterfactual"))
    # All twins stand in the data, too: a text and its twin are one observation.
    assert len(result) == 40
    assert measure.design(result, measure.primary_metric).limiting_factor.n_units == 20
    again = tuple(item._replace(id=f"{item.id} again") for item in labelled())
    (twice, _) = made("counterfactual", texts=labelled() + again).read(model("counterfactual"))
    assert measure.design(twice, measure.primary_metric).limiting_factor.n_units == 20


def test_texts_of_both_groups_are_in_no_number_by_group():
    mixed = tuple(
        LabelledExample(f"m{i}", f"the man and the woman is {t}.", "") for i, t in enumerate(THINGS)
    )
    result = made("counterfactual", texts=labelled() + mixed)(
        model("counterfactual"), inference=INFERENCE
    )
    assert result.n == 46
    assert result.extra("p(neutral), female less male").n == 40
    assert "6 texts speak of both groups: in no number by group" in result.notes


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
    rows = [f'"{item.text}",{item.label}' for item in labelled()]
    path.write_text("said,y\n" + "\n".join(rows) + "\n", "utf-8")
    folder = zoo.folder("bert", "BertForSequenceClassification", num_labels=3, seed=3)
    options = ("--data", str(path), "--text", "said", "--label", "y", "--resamples", "99")
    completed = levelhead(
        *("measure", str(folder), "-m", f"counterfactual:labels={'+'.join(NLI)}", *options),
        *("--permutations", "99", "--store", str(tmp_path / "store")),
    )
    assert completed.returncode == 0, completed.stderr
    assert "counterfactual (female, male)" in completed.stdout
    assert "TPR of neutral, female less male" in completed.stdout  # shown without --details
    refused = levelhead("measure", str(folder), "-m", "nli:metric=nli_gap", *options)
    assert refused.returncode == 3
    assert "--data, --text, --label: only -m counterfactual uses your texts" in refused.stderr
    race = levelhead(
        *("measure", str(folder), "-m", f"counterfactual:labels={'+'.join(NLI)},lexicon=race-en"),
        *(*options, "--store", str(tmp_path / "store")),
    )
    assert race.returncode == 3  # what -m says is not overruled: no word of either group
    assert "no word of either group" in race.stderr
    refused = levelhead("measure", str(folder), "-m", "counterfactual")
    assert refused.returncode == 3
    assert "counterfactual needs your texts" in refused.stderr
