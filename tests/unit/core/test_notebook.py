"""Results as a notebook shows them."""

import base64
import re
import sys
from html.parser import HTMLParser

import pytest
from IPython.lib.pretty import pretty
from maps import estimate, head_map, measurement
from sweeps import swept_settings, tuned_edit

import levelhead as lh
from levelhead.core.item_records import ItemDetail, ItemValue, QueryDetail
from levelhead.core.notebook import MAX_ROWS
from levelhead.measures.compare import Comparison

HOSTILE = "</td><script>alert('x')</script><img src=x onerror=y> & \""


class Tags(HTMLParser):
    """The tags of a document with their attributes, and its text."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes.append(dict(attrs))

    def handle_data(self, data):
        self.text += f"{data}\n"


def compared(**changes):
    first, second = measurement(1.0, "a"), measurement(0.5, "b")
    given = {"difference": estimate("difference of seat", -0.5, p=0.01), "verdict": "nearer"}
    return Comparison(measure="seat", first=first, second=second, **(given | changes))


SWEPT = swept_settings(levels=("sent",))
RESULTS = [measurement(), compared(), head_map(2, 3), SWEPT, tuned_edit()]


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: type(result).__name__)
def test_a_result_is_a_table_a_chart_and_a_frame(result):
    shown = Tags(result._repr_html_())
    assert shown.tags.count("table") == shown.tags.count("img") == 1
    assert result.title in shown.text
    frame = result.to_frame()
    assert len(frame) == len(result.to_rows()) > 0
    # A header and the rows, of which a long table leaves some out.
    assert shown.tags.count("tr") == 1 + min(len(frame), MAX_ROWS)
    left_out = f"{len(frame) - MAX_ROWS} more rows"
    assert (left_out in shown.text) == (len(frame) > MAX_ROWS)
    assert result.plot().to_dict() == lh.chart(result).to_dict()
    image = next(found for found in shown.attributes if "src" in found)
    svg = base64.b64decode(image["src"].removeprefix("data:image/svg+xml;base64,"))
    assert svg.startswith(b"<svg")


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: type(result).__name__)
def test_its_plain_text_is_a_line(result):
    """A notebook stores it beside the table."""
    assert pretty(result) == str(result)
    assert len(str(result)) < 400


def test_a_measurement_shows_its_numbers_and_its_verdict():
    result = measurement(1.35)
    text = Tags(result._repr_html_()).text
    low, high = result.interval.low, result.interval.high
    for cell in ("1.35", f"[{low:.4g}, {high:.4g}]", str(result.n)):
        assert f"\n{cell}\n" in f"\n{text}"
    (status,) = [row["status"] for row in result.to_rows() if "status" in row]
    assert status in text
    assert result.to_frame("pandas")["value"][0] == 1.35
    assert result.to_frame("polars")["low"][0] == low


def test_a_map_is_ordered_by_score():
    frame = head_map(2, 3).to_frame()
    assert frame["score"].is_monotonic_decreasing
    assert sorted(frame["label"]) == ["1-1", "1-2", "1-3", "2-1", "2-2", "2-3"]


def test_a_comparison_names_its_rows():
    names = [row["name"] for row in compared().to_rows()]
    assert names == ["first model", "second model", "difference of seat"]


HOSTILE_RESULTS = [
    measurement(name=HOSTILE),
    compared(verdict=HOSTILE, extras=(estimate(HOSTILE, 1.0),)),
    SWEPT.model_copy(update={"measure": HOSTILE}),
    tuned_edit().model_copy(update={"reason": HOSTILE}),
]


@pytest.mark.parametrize("result", HOSTILE_RESULTS, ids=lambda result: type(result).__name__)
def test_hostile_text_is_only_text(result):
    html = result._repr_html_()
    shown = Tags(html)
    assert set(shown.tags) <= {"div", "p", "b", "table", "thead", "tbody", "tr", "th", "td", "img"}
    assert all(found.keys() <= {"class", "alt", "src"} for found in shown.attributes)
    assert all(not found.get("src", "data:").startswith("x") for found in shown.attributes)
    assert HOSTILE in shown.text.replace("\n", "") or HOSTILE in shown.text
    assert not re.search(r"<script|<img src=x", html)


def test_without_altair_there_is_the_table_alone(monkeypatch):
    result = measurement()
    monkeypatch.setitem(sys.modules, "altair", None)  # an import fails
    shown = Tags(result._repr_html_())
    assert "table" in shown.tags
    assert "img" not in shown.tags
    with pytest.raises(lh.LevelheadError, match="drawing charts"):
        result.plot()


def test_items_are_a_frame():
    detail = ItemDetail("a", "female", (QueryDetail("[MASK] works.", (("she", 0.5),)),))
    first = measurement()
    result = first.model_copy(
        update={
            "n": 2,
            "per_item_values": (ItemValue("a", 1.5), ItemValue("b", 0.5)),
            "item_details": (detail,),
        }
    )
    frame = result.per_item()
    assert list(frame) == ["item", "group", "value", "text", "response_she"]
    assert frame["text"][0] == "[MASK] works."
    assert result.per_item("dict")["response_she"] == [0.5, None]
    assert result.without_items().per_item("dict") == {
        "item": ["a", "b"],
        "group": [None, None],
        "value": [1.5, 0.5],
    }
