import pytest

from levelhead.core.errors import LevelheadError
from levelhead.models.sites import STREAMS, Site, validate_site


def test_paper_labels_count_from_one():
    assert Site.from_paper_label("9-12") == Site("head_out", 8, 11)
    assert Site.from_paper_label(" 1-1 ") == Site("head_out", 0, 0)


@pytest.mark.parametrize("label", ["0-1", "1-0", "9", "9-12-3", "9.12", "nine-two", "", "-1-2"])
def test_other_labels_are_refused(label):
    with pytest.raises(LevelheadError, match="is not a head label") as error:
        Site.from_paper_label(label)
    assert "'9-12'" in error.value.hint


@pytest.mark.parametrize(
    ("site", "responses"),
    [
        (Site("heads"), "no stream named 'heads'"),
        (Site("head_out", -1), "is not a valid index"),
        (Site("head_out", True, 0), "is not a valid index"),
        (Site("head_out", 0, 1.0), "is not a valid index"),
        (Site("mlp_out", 0, 1), "is not split into heads"),
        (Site("pooled", 1), "belongs to no layer"),
    ],
)
def test_impossible_sites_are_refused(site, responses):
    with pytest.raises(LevelheadError, match=responses):
        validate_site(site)


def test_every_stream_has_a_site():
    for stream in STREAMS:
        assert validate_site(Site(stream)).stream == stream


def test_a_site_prints_as_people_say_it():
    assert [str(s) for s in (Site("query", 2, 3), Site("block_out", 4), Site("pooled"))] == [
        "query 2.3",
        "block_out 4",
        "pooled",
    ]
