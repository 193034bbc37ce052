"""Every metric is asked in the planted language, or it is said why not."""

import pytest

from levelhead.calibrate.measures import PlantedMeasures
from levelhead.calibrate.organisms.language import Language
from levelhead.calibrate.suite import EXCLUDED, get_expected_response, list_applicable_measures
from levelhead.measures.registry import MEASURES


class Heads:
    """Only what `fitting` looks at."""

    def __init__(self, *heads):
        self.heads, self.is_causal = frozenset(heads), "causal" in heads


@pytest.fixture(scope="module")
def rulers():
    return PlantedMeasures(Language(1.0), "sentences.txt")


KINDS = {
    "bert": Heads("masked", "next_sentence"),
    "roberta": Heads("masked"),
    "llama": Heads("causal"),
}


def test_every_row_fits_some_family_or_is_told_why_not(rulers):
    fits = {name for lm in KINDS.values() for name in list_applicable_measures(rulers, lm)}
    for row, make in MEASURES.items():
        for metric in make.metrics:
            assert (metric in fits) != (bool({row, metric} & set(EXCLUDED))), metric


def test_rows_are_the_measures_of_their_names(rulers):
    for lm in KINDS.values():
        for name, ruler in list_applicable_measures(rulers, lm).items():
            assert ruler.name == name
            assert name in ruler.metrics


def test_their_order_is_that_of_the_published_tables(rulers):
    names = (
        *("seat", "contrast", "crows", "crows_margin", "cloze", "cloze_probability", "cloze_top"),
        *("group_preference", "stereotype_score", "stereotype_margin", "icat", "lms", "lms_margin"),
    )
    masked = (*names, "lpbs", "pppl")
    assert tuple(list_applicable_measures(rulers, KINDS["roberta"])) == masked
    assert tuple(list_applicable_measures(rulers, KINDS["bert"])) == (
        *names,
        "strength",
        "distance",
        *masked[-2:],
    )
    assert tuple(list_applicable_measures(rulers, KINDS["llama"])) == (
        *names,
        "continuation",
        "ppl",
    )


def test_at_least_ten_rulers_expect_a_dose(rulers):
    for name in ("bert", "llama"):
        dosed = [
            own
            for own in list_applicable_measures(rulers, KINDS[name]).values()
            if get_expected_response(own) in ("rises", "falls")
        ]
        assert len(dosed) >= 10, name


def test_a_default_towards_a_group_is_not_expected_to_follow_the_dose(rulers):
    """The dose joins targets with groups, and names neither more often."""
    assert (
        get_expected_response(
            list_applicable_measures(rulers, KINDS["roberta"])["group_preference"]
        )
        == "any"
    )


def test_another_deal_of_labels_asks_the_same_texts(rulers):
    """So that a model is read once, however often labels are dealt."""
    other = PlantedMeasures(rulers.language, rulers.corpus, label_seed=3)
    assert other.pairs != rulers.pairs
    for name in ("crows", "stereotype_score"):
        one, two = (
            list_applicable_measures(own, KINDS["roberta"])[name] for own in (rulers, other)
        )
        assert _texts(one) == _texts(two)
        assert one.items != two.items


def _texts(ruler):
    return {text for item in ruler.items for text in item if " " in text}


def test_every_distance_item_has_a_placebo_within_its_group(rulers):
    distance = list_applicable_measures(rulers, KINDS["bert"])["distance"]
    real, control = distance.all_queries(KINDS["bert"])
    assert len(real.items) == 104
    assert len(control.items) >= 50  # fewer than that is no parity
    for item in control.items:
        own, other = (ask[0].split() for ask in item.queries)
        assert len(own) == len(other)
        (changed,) = [(a, b) for a, b in zip(own, other, strict=True) if a != b]
        side = [name for name, words in _groups(rulers).items() if set(changed) <= words]
        assert side, changed


def _groups(rulers):
    return {
        group: {word for sides in rulers.language.marks.values() for word in sides[i]}
        for i, group in enumerate(rulers.language.groups)
    }
