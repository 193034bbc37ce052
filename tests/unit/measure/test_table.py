import pytest

from levelhead.core.errors import LevelheadError
from levelhead.measure.table import MEASURES, measure, parsed


@pytest.mark.parametrize("name", MEASURES)
def test_every_row_makes_its_measure(name):
    assert measure(name).name == name == parsed(name).name


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
        ("crows_margin:headline_is=crows", "no option of crows_margin named 'headline_is'"),
    ],
)
def test_what_is_wrong_is_said(text, told):
    with pytest.raises(LevelheadError, match=told):
        parsed(text)


def test_a_file_with_a_plus_in_its_name_is_one_file(tmp_path):
    path = tmp_path / "c++.txt"
    path.write_text("A line.\n")
    assert parsed(f"ppl:texts={path}").texts == str(path)
