import pytest

from levelhead.core.errors import LevelheadError
from levelhead.measures.registry import MEASURES, measure, metric_of, metric_texts, parsed


@pytest.mark.parametrize("name", MEASURES)
def test_every_row_makes_its_measure(name):
    first, *others = MEASURES[name].metrics
    assert measure(name).name == first == parsed(name).name == metric_of(name)
    for metric in (first, *others):
        made = measure(name, metric=metric)
        assert made.name == metric == metric_of(f"{name}:share=0.5,metric={metric}")
        assert made == parsed(f"{name}:metric={metric}")
        assert made.settings.get("metric") == (metric if others else None)
        # What is reported changes, and what else there is to see does not.
        assert [aspect.name for aspect in made.formulas] == [
            aspect.name for aspect in measure(name).formulas
        ]


@pytest.mark.parametrize("metric", sorted(set(metric_texts()) - set(MEASURES)))
def test_a_metric_alone_is_no_measure_and_the_hint_says_what_to_write(metric):
    for refused in (parsed, measure, metric_of):
        with pytest.raises(LevelheadError, match=f"'{metric}' is a metric of the meas") as error:
            refused(metric)
        text = metric_texts()[metric]
        assert f"write {text!r}" in error.value.mend
        assert parsed(text).name == metric


@pytest.mark.parametrize(
    ("text", "option", "value"),
    [
        ("seat:quota=30,contexts=matched", "quota", 30),
        ("seat:corpus=a.txt+b.txt", "corpus", ["a.txt", "b.txt"]),
        ("crows:decimals=none", "decimals", None),
        ("pppl:limit=none", "limit", None),
        ("cloze:kinds=pronoun+person+kinship", "kinds", ["pronoun", "person", "kinship"]),
        ("cloze:kinds=person", "kinds", ["person"]),
        ("strength:top=0.2", "top", 0.2),
    ],
)
def test_options_have_their_types(text, option, value):
    assert parsed(text).settings[option] == value


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("sat", "did you mean 'seat'"),
        ("seat:quoat=3", "did you mean 'quota'"),
        ("seat:quota", "'quota' in 'seat:quota' is no option"),
        ("seat:quota=many", "quota=many"),
        ("crows:protocol=mead", "did you mean 'meade'|protocol=mead"),
        ("crows:metric=crows_margn", "no metric named 'crows_margn'"),
        ("seat:metric=crows", "no metric named 'crows'"),
        ("crows_margin:bias=gender", "'crows_margin' is a metric of the measure 'crows'"),
    ],
)
def test_what_is_wrong_is_said(text, told):
    with pytest.raises(LevelheadError, match=told):
        parsed(text)


def test_a_file_with_a_plus_in_its_name_is_one_file(tmp_path):
    path = tmp_path / "c++.txt"
    path.write_text("A line.\n")
    assert parsed(f"ppl:texts={path}").texts == str(path)
