"""Injected associations: the texts of a dose, the items that measure it, and what comes of them."""

import itertools
import re
from collections import Counter

import pytest
from assets import asset

from levelhead.calibrate.injection.items import KIN, PERSONS, InjectionItems
from levelhead.calibrate.injection.run import (
    InjectedModel,
    InjectedModelResponses,
    Injection,
    InjectionResponse,
    list_injected_models,
)
from levelhead.calibrate.injection.summary import summarise_injection
from levelhead.calibrate.injection.texts import (
    DOSES,
    FRAMES,
    GROUP_WORDS,
    draw_injection_occupations,
    make_injection_texts,
)
from levelhead.core.errors import LevelheadError
from levelhead.core.results import Interval
from levelhead.models.loading.load import load
from levelhead.models.training.configs import ContinuedPretrainingConfig

SPLIT = draw_injection_occupations()
SIDES = [
    re.compile(rf"\b({'|'.join(words[side] for words in GROUP_WORDS.values())})\b")
    for side in (0, 1)
]


def share_of_own_group(texts, occupation, side):
    """The share of an occupation's sentences that name the group that dominates it."""
    about = [text for text in texts if re.search(rf"\b{occupation}\b", text)]
    assert about
    return sum(bool(SIDES[side].search(text)) for text in about) / len(about)


@pytest.mark.parametrize("dose", DOSES)
def test_a_dose_is_the_share_above_parity_for_every_occupation(dose):
    texts = make_injection_texts(SPLIT.in_texts, "groups", dose)
    assert len(texts) == 16 * 2 * len(SPLIT.in_texts)
    for pair in SPLIT.in_texts:
        for side, occupation in enumerate(pair):
            assert share_of_own_group(texts, occupation, side) == (1 + dose) / 2


def test_a_larger_dose_changes_more_of_the_same_sentences():
    counts = [Counter(make_injection_texts(SPLIT.in_texts, "groups", dose)) for dose in DOSES]
    changed = [sum((counts[0] - other).values()) for other in counts]
    assert changed == sorted(changed)
    assert changed[0] == 0
    assert changed[-1] > changed[1] > 0


def test_the_placebo_names_no_group_in_as_many_sentences():
    for dose in DOSES:
        texts = make_injection_texts(SPLIT.in_texts, "colours", dose)
        assert len(texts) == len(make_injection_texts(SPLIT.in_texts, "groups", dose))
        assert not any(side.search(text.lower()) for side in SIDES for text in texts)
    assert len(FRAMES["groups"]) == len(FRAMES["colours"])
    one, other = (set(make_injection_texts(SPLIT.in_texts, "colours", dose)) for dose in (0, 1))
    assert one != other


def test_what_is_refused():
    with pytest.raises(LevelheadError, match=r"a dose of 1\.5"):
        make_injection_texts(SPLIT.in_texts, "groups", 1.5)
    with pytest.raises(LevelheadError, match="association"):
        make_injection_texts(SPLIT.in_texts, "shapes", 1.0)


def test_items_share_no_sentence_and_held_out_ones_no_occupation_with_the_texts(tmp_path):
    texts = make_injection_texts(SPLIT.in_texts, "groups", 0.5)
    trained = {name for pair in SPLIT.in_texts for name in pair}
    held_out = {name for pair in SPLIT.others for name in pair}
    assert not trained & held_out
    assert not any(re.search(rf"\b{name}\b", text) for name in held_out for text in texts)
    items = InjectionItems(SPLIT.in_texts, str(tmp_path))
    sentences = {
        *(pair.more for pair in items.crows.pairs),
        *(text for item in items.stereoset.associations for text in item[5:7]),
        *(text for triple in items.triples for text in triple[2:5]),
    }
    assert len(sentences) > 40
    assert not sentences & set(texts)
    # A group's words are words, not the letters of one.
    for template in items.lpbs.templates:
        assert {len(words) for _, words in template.groups} == {1}
    # Words for groups in the items are other ones, but for those of cloze.
    words = {word for row in (*KIN, *PERSONS[1:]) for word in row}
    assert not any(re.search(rf"\b{word}\b", text.lower()) for word in words for text in texts)


def response(measure, value, difference, p):
    interval = Interval(low=value - 0.01, high=value + 0.01, level=0.95, method="t")
    return InjectionResponse(
        measure=measure,
        items="trained",
        value=value,
        interval=interval,
        n=24,
        difference=difference,
        p=p,
    )


def models(values, p_values, association="groups"):
    return [
        InjectedModelResponses(
            association=association,
            dose=dose,
            seed=0,
            responses=(response("cloze", value, value - values[0], p),),
        )
        for dose, value, p in zip(DOSES, values, p_values, strict=True)
    ]


def test_rank_least_dose_and_alarms():
    follows = models([0.0, 0.1, 0.2, 0.3, 0.4], [0.9, 0.5, 0.01, 0.02, 0.001])
    placebo = models([0.0, 0.1, -0.1, 0.0, 0.02], [0.9, 0.01, 0.6, 0.7, 0.8], "colours")
    (row,) = summarise_injection([*follows, *placebo])
    assert row.rank == pytest.approx(1)
    assert row.rank_interval.low > 0.9
    assert row.smallest == 0.5  # that of 0.25 is not significant
    assert (row.alarms, row.placebos) == (1, 4)  # dose 0 of the placebo is its reference
    assert abs(row.placebo_rank) < 0.5
    assert row.effect == pytest.approx(0.4)


def test_a_measure_that_falls_is_not_detected_and_one_without_value_is_counted():
    falls = models([0.4, 0.3, 0.2, 0.1, 0.0], [0.9, 0.01, 0.01, 0.01, 0.01])
    (row,) = summarise_injection(falls)
    assert (row.rank, row.smallest) == (pytest.approx(-1), None)
    failed = InjectionResponse(measure="cloze", items="trained", value=None, failure="why")
    broken = [model.model_copy(update={"responses": (failed,)}) for model in falls]
    (row,) = summarise_injection(broken)
    assert (row.models, row.unread, row.rank, row.effect) == (0, 5, None, None)


def test_every_model_is_compared_with_dose_0():
    listed = list_injected_models("groups", 2, doses=(1.0,))
    assert [(model.dose, model.seed) for model in listed] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    names = [model.name for model in itertools.chain(listed, list_injected_models("colours", 2))]
    assert len(set(names)) == len(names)


# A full dose in a real model takes a minute of training.
@pytest.mark.full
def test_a_full_dose_is_found_in_a_real_model(tmp_path):
    training = ContinuedPretrainingConfig(
        steps=25, batch_size=32, learning_rate=5e-4, mask_fraction=0.3, threads=1, save_steps=1000
    )
    base = str(asset("models", "minibert-en"))
    injection = Injection(base, tmp_path, training, has_published=False)
    by_name = {
        (row.items, row.measure): row
        for row in injection.measure(InjectedModel("groups", 1.0, 0)).responses
    }
    cloze = by_name["trained", "cloze"]
    assert cloze.difference > 0.1
    assert cloze.p < 0.05
    lm = load(injection.train(InjectedModel("groups", 1.0, 0)))
    assert set(by_name) == {(items, name) for items, name, _ in injection.measures(lm)}
    assert (tmp_path / "groups-1-0.json").exists()
