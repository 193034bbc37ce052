"""Lexicons are read strictly, and those that ship are whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelhead.core.errors import LevelheadError
from levelhead.data.lexicons.lexicon import lexicon, list_shipped_lexicons, parse_lexicon
from levelhead.data.tokenize import fold_case

GOOD = """
name = "x"
language = "en"
groups = ["a", "b"]
source = "here"
licence = "CC0-1.0"
limits = "few words"
[[terms]]
kind = "person"
rows = [{ a = "one", b = "two" }, { a = "three", b = "four", generic = "b" }]
[targets.t]
about = "a contrast"
[targets.t.sides.left]
leans = "a"
words = ["up"]
[targets.t.sides.right]
words = ["down"]
"""


@pytest.mark.parametrize("name", ["gender-en", "race-en", "religion-en", "age-en"])
def test_what_ships_is_whole(name):
    assert name in list_shipped_lexicons()
    result = lexicon(name)
    assert result.name == name
    assert result.licence == "CC0-1.0"
    assert len(result.limits) > 80
    assert len(result.sha256) == 64
    for group in result.groups:
        assert result.words(group)
    for family in result.families:
        assert len(family.sides) == 2
        assert {side.stereotyped_group for side in family.sides} <= set(result.groups)
        sizes = {len(side.words) for side in family.sides}
        assert len(sizes) == 1
        words = [word for side in family.sides for word in side.words]
        assert len(set(words)) == len(words)
        for word in words:
            assert result.groups_of(word) == (), f"{word} is both target and attribute"


def test_the_groups_of_gender():
    gender = lexicon("gender-en")
    assert gender.groups == ("female", "male", "nonbinary")
    assert ("she", "he") in gender.pairs("female", "male")
    assert ("she", "they") in gender.pairs("female", "nonbinary")
    assert ("woman", "person") not in gender.pairs("female", "nonbinary")
    assert gender.groups_of("Mother") == ("female",)
    assert gender.groups_of("poet") == ()
    assert gender.groups_of("his") == ("male",)
    assert {family.name for family in gender.families} >= {
        "occupations",
        "traits",
        "career-family",
        "maths-arts",
        "science-arts",
    }
    assert len(gender.pairs("female", "male")) >= 150


def test_no_word_marks_two_groups_of_gender():
    gender = lexicon("gender-en")
    female = {fold_case(word) for word in gender.words("female")}
    male = {fold_case(word) for word in gender.words("male")}
    assert female & male == set()


def test_a_file_of_ones_own(tmp_path):
    (tmp_path / "mine.toml").write_text(GOOD)
    mine = lexicon(tmp_path / "mine.toml")
    assert mine.words("b") == ("two",)
    assert mine.targets("t").side("right") == ("down",)
    with pytest.raises(LevelheadError, match="no group named 'c'"):
        mine.words("c")
    with pytest.raises(LevelheadError, match="no family of targets named 'u'"):
        mine.targets("u")
    with pytest.raises(LevelheadError, match="no side named 'middle'"):
        mine.targets("t").side("middle")


@pytest.mark.parametrize(
    ("old", "new", "responses"),
    [
        ('limits = "few words"', "", "limits: Field required"),
        ('licence = "CC0-1.0"', 'licence = ""', "licence: String should have at least 1"),
        ('name = "x"', 'name = "x"\ncolour = "red"', "colour: Extra inputs are not permitted"),
        ('groups = ["a", "b"]', 'groups = ["a"]', "groups: List should have at least 2"),
        ('groups = ["a", "b"]', 'groups = ["a", "b", "a"]', "a group is listed twice"),
        ('b = "two" }', 'c = "two" }', "'c' in .* is no group"),
        ('{ a = "one", b = "two" }', '{ a = "one" }', "has words of fewer than two groups"),
        ('b = "two" }', 'b = " " }', "contains an empty word"),
        ('generic = "b"', 'generic = "z"', "generic names 'z'"),
        ('leans = "a"', 'leans = "q"', "targets.t names 'q', which is no group"),
        ('words = ["down"]', "words = []", "words: List should have at least 1"),
        ('kind = "person"', 'kind = "persona"', "kind: Input should be"),
        ("[[terms]]", "[[terms", "is not valid TOML"),
    ],
)
def test_faults_say_where_they_are(old, new, responses):
    assert old in GOOD
    with pytest.raises(LevelheadError, match=responses) as error:
        parse_lexicon(GOOD.replace(old, new).encode(), "mine.toml")
    assert error.value.problem.startswith("mine.toml")


def test_wrong_names_suggest():
    with pytest.raises(LevelheadError, match="no lexicon named 'gender'") as error:
        lexicon("gender")
    assert "gender-en" in error.value.hint
    with pytest.raises(LevelheadError, match="cannot read"):
        lexicon("nowhere.toml")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_lexicon_or_an_error(data):
    with pytest.raises(LevelheadError):
        parse_lexicon(data, "x")
