import pytest
from maps import head_map

from levelhead.core.errors import LevelheadError
from levelhead.report.charts.heads.head_map import heat_map
from levelhead.report.theme import (
    OKABE_ITO,
    PUOR,
    category_scale,
    format_interval,
    format_number,
    panel_title,
    signed_colour_scale,
    subtitle_lines,
)


def test_zero_is_white_and_in_the_middle():
    scale = signed_colour_scale(0.3).to_dict()
    assert scale["range"] == list(PUOR)
    assert scale["domain"][0] == -0.3
    assert scale["domain"][-1] == 0.3
    assert scale["range"][scale["domain"].index(0.0)] == "#ffffff"


def test_clipped_colours_begin_at_zero():
    scale = signed_colour_scale(0.3, clip_negative=True).to_dict()
    assert (scale["domain"][0], scale["range"][0]) == (0.0, "#ffffff")
    assert scale["clamp"]
    assert scale["interpolate"] == "rgb"  # others draw values near 0 yellow


def test_more_names_than_colours_are_refused():
    assert len(set(OKABE_ITO)) == len(OKABE_ITO) == 7
    assert category_scale(["a", "b"]).to_dict() == {
        "domain": ["a", "b"],
        "range": ["#0072b2", "#d55e00"],
    }
    with pytest.raises(
        LevelheadError, match="8 lines in one chart cannot be distinguished"
    ) as error:
        category_scale(list("abcdefgh"))
    assert error.value.hint == "plot at most 7 at once"


def test_charts_are_light():
    spec = heat_map(head_map(2, 3)).to_dict()
    assert spec["background"] == "white"
    assert spec["config"]["view"]["fill"] == "white"


def test_lines_are_broken_where_the_chart_ends():
    spec = heat_map(head_map(2, 3)).to_dict()
    assert max(len(line) for line in spec["title"]["subtitle"]) <= 62


def test_a_panel_without_lines_has_no_subtitle():
    assert "subtitle" not in panel_title("heads").to_dict()
    assert panel_title("heads", "a line").to_dict()["subtitle"] == ["a line"]


def test_numbers_for_people():
    assert (format_number(0.12345), format_number(None), format_number(None, missing="-")) == (
        "0.123",
        "none",
        "-",
    )
    assert format_interval(-0.5, 1.25) == "[-0.5, 1.25]"
    assert (subtitle_lines(""), subtitle_lines("seat, a model")) == ([], ["seat, a model"])
