from typing import ClassVar

import pytest
from simulated import Plain

from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.measures.registry import (
    MEASURES,
    make_measure,
    metric_texts,
    parse_measure,
    reported_metric_name,
)


@pytest.mark.parametrize("name", MEASURES)
def test_every_row_makes_its_measure(name):
    first, *others = MEASURES[name].metrics
    assert (
        make_measure(name).name == first == parse_measure(name).name == reported_metric_name(name)
    )
    for metric in (first, *others):
        made = make_measure(name, metric=metric)
        assert (
            made.name
            == metric
            == reported_metric_name(f"{name}:subsample_fraction=0.5,metric={metric}")
        )
        assert made == parse_measure(f"{name}:metric={metric}")
        assert made.settings.get("metric") == (metric if others else None)
        # What is reported changes, and what else there is to see does not.
        assert [aspect.name for aspect in made.formulas] == [
            aspect.name for aspect in make_measure(name).formulas
        ]


def test_a_metric_without_a_formula_is_an_error_and_no_other_metric_takes_its_place():
    class Mismatched(Plain):
        metrics: ClassVar = {"mean": "the mean"}

    assert Plain().name == "plain"
    assert Mismatched(called="mean").name == "mean"
    with pytest.raises(UnknownNameError, match="no metric named 'mean'") as error:
        Mismatched(called="plain").primary_metric  # noqa: B018
    assert error.value.hint == "known: plain"


@pytest.mark.parametrize("metric", sorted(set(metric_texts()) - set(MEASURES)))
def test_a_metric_alone_is_no_measure_and_the_hint_says_what_to_write(metric):
    for refused in (parse_measure, make_measure, reported_metric_name):
        with pytest.raises(LevelheadError, match=f"'{metric}' is a metric of the meas") as error:
            refused(metric)
        text = metric_texts()[metric]
        assert f"write {text!r}" in error.value.hint
        assert parse_measure(text).name == metric


@pytest.mark.parametrize(
    ("text", "option", "value"),
    [
        ("seat:contexts_per_word=30,contexts=matched", "contexts_per_word", 30),
        ("seat:corpus=a.txt+b.txt", "corpus", ["a.txt", "b.txt"]),
        ("crows:decimals=none", "decimals", None),
        ("pppl:limit=none", "limit", None),
        ("cloze:kinds=pronoun+person+kinship", "kinds", ["pronoun", "person", "kinship"]),
        ("cloze:kinds=person", "kinds", ["person"]),
        ("strength:top=0.2", "top", 0.2),
    ],
)
def test_options_have_their_types(text, option, value):
    assert parse_measure(text).settings[option] == value


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("sat", "did you mean 'seat'"),
        ("seat:contexts_per_wrd=3", "did you mean 'contexts_per_word'"),
        ("seat:contexts_per_word", "'contexts_per_word' in 'seat:contexts_per_word' is no option"),
        ("seat:contexts_per_word=many", "contexts_per_word=many"),
        ("crows:protocol=mead", "did you mean 'meade'|protocol=mead"),
        ("crows:metric=crows_margn", "no metric named 'crows_margn'"),
        ("seat:metric=crows", "no metric named 'crows'"),
        ("crows_margin:bias=gender", "'crows_margin' is a metric of the measure 'crows'"),
    ],
)
def test_what_is_wrong_is_said(text, output):
    with pytest.raises(LevelheadError, match=output):
        parse_measure(text)


def test_a_file_with_a_plus_in_its_name_is_one_file(tmp_path):
    path = tmp_path / "c++.txt"
    path.write_text("A line.\n")
    assert parse_measure(f"ppl:texts={path}").texts == str(path)
