"""Every ruler has a page, and no page another."""

import re
from pathlib import Path

from levelhead.measures.registry import metric_texts, parsed

PAGES = sorted((Path(__file__).parents[2] / "docs" / "rulers").glob("*.md"))


def test_every_ruler_has_one_page():
    named = [
        name
        for page in PAGES
        for name in re.findall(r"`([\w:=]+)`", page.read_text().split("\n")[2])
    ]
    assert sorted(named) == sorted(metric_texts().values())


def test_pages_say_what_a_ruler_is_not_and_name_real_options():
    for page in PAGES:
        text = page.read_text()
        assert all(f"## {part}" in text for part in ("What it is", "What it is not", "Use it")), (
            page
        )
        for spec in re.findall(r"`((?:\w+):[\w=,+.]+=[\w,=+.]+)`", text):
            if not spec.endswith((".csv", ".txt")):
                parsed(spec)
