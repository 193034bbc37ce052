"""The linter: one item for each rule, and silence on a clean one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelhead.data.lint import lint
from levelhead.data.records import MinimalPair, Sentence, StereoSetItem, TwinTriple

CLEAN = TwinTriple(
    "t",
    "F",
    "The mother left.",
    "She was kind.",
    "She was rude.",
    "Tea is hot.",
    "The father left.",
    "He was kind.",
    "He was rude.",
    "Tea is hot.",
)


def rules(item):
    return {flag.rule for flag in lint([item])}


def test_a_clean_twin_is_not_flagged():
    assert rules(CLEAN) == set()


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"twin_unrelated": "Tea is  hot."}, "unrelated differs"),
        ({"other_context": "The dad left."}, "inconsistent"),
        ({"twin_context": "The mother left."}, "unswapped"),
        ({"context": "Her mother left.", "twin_context": "His mother left."}, "unswapped word"),
        (
            {
                "context": "The mother walked into her kitchen.",
                "twin_context": "The father walked into him kitchen.",
            },
            "ungrammatical",
        ),
        ({"stereotype": "His hat fell.", "twin_stereotype": "Hers hat fell."}, "ungrammatical"),
        ({"stereotype": "She wore a dress.", "twin_stereotype": "He wore a suit."}, "not minimal"),
        ({"stereotype": "If she left.", "twin_stereotype": "Is he left."}, "not minimal"),
        ({"context": "The door closed.", "twin_context": "The door closed."}, "attribute missing"),
        ({"stereotype": "She was old.", "twin_stereotype": "He was old."}, "another family: age"),
        ({"stereotype": "Asian food.", "twin_stereotype": "Asian food."}, "another family: race"),
        ({"unrelated": "caf\u00c3\u00a9", "twin_unrelated": "caf\u00c3\u00a9"}, "encoding"),
        ({"unrelated": "a\x07b", "twin_unrelated": "a\x07b"}, "encoding"),
    ],
)
def test_each_rule_sees_its_fault_alone(changes, rule):
    assert rules(CLEAN._replace(**changes)) == {rule}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Both men and women", "Both women and men"),
        ('He said "yes ma\'am".', "She said yes sir."),
        ("Bob called his mother.", "Sue called her father."),
        ("A home-schooled girl", "A home schooled boy"),
        ("She is black-haired and feminine.", "He is black haired and feminine."),
        ("I will miss her.", "I will miss him."),
    ],
)
def test_what_people_swap_rightly_is_not_flagged(old, new):
    assert rules(CLEAN._replace(stereotype=old, twin_stereotype=new)) == set()


def association(**changes):
    return StereoSetItem(
        "a", "intrasentence", "gender", "nurse", "The nurse is BLANK.", "kind", "rude", "blue"
    )._replace(**changes)


@pytest.mark.parametrize(
    ("item", "result"),
    [
        (association(), set()),
        (association(context="The nurse."), {"blank"}),
        (association(context="BLANK is BLANK."), {"blank"}),
        (association(context="The nurse.BLANK"), {"blank"}),
        (association(context="BLANK is here."), {"blank"}),
        (association(unrelated="kind"), {"label set"}),
        (
            association(
                kind="intersentence",
                context="I know many gentlemen.",
                stereotype="They pay.",
                anti_stereotype="They swear.",
            ),
            {"attribute missing"},
        ),
        (MinimalPair("m", "gender", "stereo", "He is here.", "She is here."), set()),
        (MinimalPair("m", "gender", "stereo", "He is here.", "He is here."), {"unswapped"}),
        (
            MinimalPair("m", "x", "stereo", "He is here now.", "She is here then."),
            {"several spans"},
        ),
        (
            MinimalPair("m", "x", "stereo", "We a b c d e.", "We f g h i j."),
            {"not minimal"},
        ),
    ],
)
def test_other_kinds_of_items(item, result):
    assert rules(item) == result


def test_every_copy_but_the_first_is_flagged():
    flags = lint([CLEAN, CLEAN._replace(id="u"), CLEAN._replace(id="v")])
    assert [(flag.item, flag.rule) for flag in flags] == [("u", "duplicate"), ("v", "duplicate")]


@given(st.lists(st.text(max_size=30), min_size=10, max_size=10), st.text(max_size=30))
def test_any_text_is_linted(texts, sentence):
    lint([TwinTriple(*texts), Sentence("s", "d", sentence), MinimalPair(*texts[:5])])
    lint([StereoSetItem(*texts[:8]), StereoSetItem("i", "intersentence", "gender", *texts[:5])])
