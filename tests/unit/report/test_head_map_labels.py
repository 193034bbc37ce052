import pytest
from maps import head_map, provenance

from levelhead.report.head_map_labels import METHOD_TEXT, head_map_captions, score_title
from levelhead.report.theme import model_name


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("bert-base-uncased", "bert-base-uncased"),
        ("org/name", "org/name"),
        ("/folder/of/name/", "name"),
        ("a/b/name", "name"),
    ],
)
def test_folders_are_left_out(given, shown):
    assert model_name(provenance(given)) == shown


def test_edits_are_counted():
    subset = provenance()
    assert model_name(subset.model_copy(update={"edits": ("ab" * 32,)})) == "made-up-model + 1 edit"
    assert model_name(subset.model_copy(update={"edits": ("ab" * 32,) * 2})).endswith(" + 2 edits")


def test_every_way_to_locate_is_told():
    for by, output in METHOD_TEXT.items():
        assert head_map_captions(head_map(2, 2).model_copy(update={"method": by}))[0] == output


def test_a_measure_without_words_for_its_direction():
    result = head_map(2, 2)
    bare = result.measurement.model_copy(update={"direction": ""})
    assert (
        len(head_map_captions(result.model_copy(update={"measurement": bare})))
        == len(head_map_captions(result)) - 1
    )
    assert score_title(result) == "score: above 0 adds to the bias, below 0 takes from it"
