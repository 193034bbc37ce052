import pytest

from levelhead.data.counterfactuals.agreement import SEVERAL_PEOPLE, pluralize_verb
from levelhead.data.lexicons.lexicon import lexicon

TO_THEY = ("female", "nonbinary")


def swapped(text, groups=TO_THEY):
    return lexicon("gender-en").swap(text, groups=groups)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("She is tired.", "They are tired."),
        ("She was here and she has left.", "They were here and they have left."),
        ("She walks home.", "They walk home."),
        ("She often tries again.", "They often try again."),
        ("She left.", "They left."),
        ("She can swim.", "They can swim."),
        ("Where is she now?", "Where are they now?"),
        ("Does she know?", "Do they know?"),
        ("She's late.", "They're late."),
        ("She's been away.", "They've been away."),
        ("She'll go.", "They'll go."),
        ("She doesn't know.", "They don't know."),
        ("SHE IS HERE.", "THEY ARE HERE."),
        ("I saw her yesterday.", "I saw them yesterday."),
        ("It was her brother who left.", None),
        ("She and her friend are here.", "They and their friend are here."),
        ("She is a poet and is known for it.", "They are a poet and are known for it."),
        ("She hurt herself.", "They hurt themself."),
    ],
)
def test_verbs_agree_with_they(text, expected):
    result = swapped(text)
    if expected is not None:
        assert result.counterfactual == expected
    # Positions are those of the words in both texts.
    for change in result.changes:
        assert text[change.start : change.end] == change.old
        if result.counterfactual is not None:
            assert result.counterfactual[change.new_start : change.new_end] == change.new


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("She smiles and waves.", "may have to agree"),
        ("She's finished.", "short for is or for has"),
        ("They are here.", SEVERAL_PEOPLE),
        ("I saw them.", SEVERAL_PEOPLE),
    ],
)
def test_what_is_not_clear_is_refused(text, reason):
    result = swapped(text)
    assert result.counterfactual is None
    assert any(reason in refusal.reason for refusal in result.refusals)


def test_two_groups_of_the_same_number_are_as_before():
    text = "She is here and her brother waves."
    assert swapped(text, ("female", "male")).counterfactual == "He is here and his sister waves."


@pytest.mark.parametrize(
    ("verb", "plural"),
    [("does", "do"), ("boxes", "box"), ("studies", "study"), ("this", None), ("us", None)],
)
def test_plurals_of_verbs(verb, plural):
    assert pluralize_verb(verb) == plural
