"""Every metric is asked in the planted language, or it is said why not."""

import pytest

from levelhead.calibrate.organisms.language import Language
from levelhead.calibrate.planted_measures import PlantedMeasures
from levelhead.calibrate.suite import EXCLUDED, get_expected_response, list_applicable_measures
from levelhead.measures.registry import MEASURES


class Heads:
    """Only what `fitting` looks at."""

    def __init__(self, *heads):
        self.heads, self.is_causal = frozenset(heads), "causal" in heads


@pytest.fixture(scope="module")
def bias_measures():
    return PlantedMeasures(Language(1.0), "sentences.txt")


KINDS = {
    "bert": Heads("masked", "next_sentence"),
    "roberta": Heads("masked"),
    "llama": Heads("causal"),
}


def test_every_row_fits_some_family_or_is_told_why_not(bias_measures):
    fits = {name for lm in KINDS.values() for name in list_applicable_measures(bias_measures, lm)}
    for row, make in MEASURES.items():
        for metric in make.metrics:
            assert (metric in fits) != (bool({row, metric} & set(EXCLUDED))), metric


def test_rows_are_the_measures_of_their_names(bias_measures):
    for lm in KINDS.values():
        for name, measure in list_applicable_measures(bias_measures, lm).items():
            assert measure.name == name
            assert name in measure.metrics


def test_their_order_is_that_of_the_published_tables(bias_measures):
    names = (
        *("seat", "contrast", "crows", "crows_margin", "cloze", "cloze_probability", "cloze_top"),
        *("group_preference", "stereotype_score", "stereotype_margin", "icat", "lms", "lms_margin"),
    )
    masked = (*names, "lpbs", "pppl")
    assert tuple(list_applicable_measures(bias_measures, KINDS["roberta"])) == masked
    assert tuple(list_applicable_measures(bias_measures, KINDS["bert"])) == (
        *names,
        "strength",
        "distance",
        *masked[-2:],
    )
    assert tuple(list_applicable_measures(bias_measures, KINDS["llama"])) == (
        *names,
        "continuation",
        "ppl",
    )


def test_at_least_ten_measures_expect_a_dose(bias_measures):
    for name in ("bert", "llama"):
        dosed = [
            measure
            for measure in list_applicable_measures(bias_measures, KINDS[name]).values()
            if get_expected_response(measure) in ("rises", "falls")
        ]
        assert len(dosed) >= 10, name


def test_a_default_towards_a_group_is_not_expected_to_follow_the_dose(bias_measures):
    """The dose joins targets with groups, and names neither more often."""
    assert (
        get_expected_response(
            list_applicable_measures(bias_measures, KINDS["roberta"])["group_preference"]
        )
        == "any"
    )


def test_another_deal_of_labels_asks_the_same_texts(bias_measures):
    """So that a model is read once, however often labels are dealt."""
    other = PlantedMeasures(bias_measures.language, bias_measures.corpus, label_seed=3)
    assert other.pairs != bias_measures.pairs
    for name in ("crows", "stereotype_score"):
        single, two = (
            list_applicable_measures(item, KINDS["roberta"])[name]
            for item in (bias_measures, other)
        )
        assert _texts(single) == _texts(two)
        assert single.items != two.items


def _texts(measure):
    return {text for item in measure.items for text in item if " " in text}


def test_every_distance_item_has_a_placebo_within_its_group(bias_measures):
    distance = list_applicable_measures(bias_measures, KINDS["bert"])["distance"]
    real, control = distance.all_queries(KINDS["bert"])
    assert len(real.items) == 104
    assert len(control.items) >= 50  # fewer than that is no parity
    for item in control.items:
        subset, other = (ask[0].split() for ask in item.queries)
        assert len(subset) == len(other)
        (changed,) = [(a, b) for a, b in zip(subset, other, strict=True) if a != b]
        side = [name for name, words in _groups(bias_measures).items() if set(changed) <= words]
        assert side, changed


def _groups(bias_measures):
    return {
        group: {word for sides in bias_measures.language.marks.values() for word in sides[i]}
        for i, group in enumerate(bias_measures.language.groups)
    }
