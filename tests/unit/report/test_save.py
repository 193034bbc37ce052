import json
import re

import pytest
from maps import example_of, head_map

from levelhead.core.errors import UnknownNameError
from levelhead.report.charts.attention_example import attention_example_chart
from levelhead.report.charts.heads.head_map import heat_map
from levelhead.report.save import save

HOSTILE = ("the", "</script><script>bad()</script>", "<img src=x>", "women", "calm")


@pytest.fixture(scope="module")
def sample():
    return heat_map(head_map(3, 4))


def test_svg_png_and_pdf(sample, tmp_path):
    save(sample, tmp_path / "a.pdf")
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")
    save(sample, tmp_path / "a.svg")
    save(sample, tmp_path / "a.PNG")
    svg = (tmp_path / "a.svg").read_text()
    assert svg.startswith("<svg")
    assert "layer, counted from 1" in svg
    assert (tmp_path / "a.PNG").read_bytes().startswith(b"\x89PNG")


def test_the_same_chart_has_the_same_bytes(sample, tmp_path):
    for name in ("a.svg", "b.svg", "a.json", "b.json"):
        save(sample, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert json.loads((tmp_path / "a.json").read_text()) == sample.to_dict()


def test_html_needs_no_network(sample, tmp_path):
    save(sample, tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text()
    assert "default-src 'none'" in page
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", page.split("<script>")[0])
    assert page.count("<script>") == 2
    assert page.count("</script>") == 2
    assert len(page) > 500_000  # the libraries are inside


def test_words_are_never_html(tmp_path):
    save(attention_example_chart(example_of(2, HOSTILE)), tmp_path / "a.html")
    save(attention_example_chart(example_of(2, HOSTILE)), tmp_path / "a.svg")
    page = (tmp_path / "a.html").read_text()
    assert page.count("</script>") == 2
    assert "<img" not in page.rpartition("<script>")[2]
    assert "\\u003c/script>\\u003cscript>bad()" in page
    svg = (tmp_path / "a.svg").read_text()
    assert "<script" not in svg
    assert "&lt;img src=x&gt;" in svg


def test_other_endings_are_refused(sample, tmp_path):
    with pytest.raises(UnknownNameError) as error:
        save(sample, tmp_path / "a.eps")
    assert str(error.value) == (
        "there is no kind of picture named '.eps'\n  hint: known: .html, .json, .pdf, .png, .svg"
    )
    assert not list(tmp_path.iterdir())
