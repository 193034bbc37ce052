"""Every measure has a page, and every page a measure."""

import re
from pathlib import Path

from levelhead.measures.registry import metric_texts, parse_measure

SHARED = {"index.md", "choices.md"}
PAGES = sorted(
    page
    for page in (Path(__file__).parents[2] / "docs" / "measures").glob("*.md")
    if page.name not in SHARED
)


def test_every_measure_has_one_page():
    named = [
        name
        for page in PAGES
        for name in re.findall(r"`([\w:=]+)`", page.read_text().split("\n")[2])
    ]
    assert sorted(named) == sorted(metric_texts().values())


def test_pages_state_the_limits_of_a_measure_and_name_real_options():
    for page in PAGES:
        text = page.read_text()
        assert all(f"## {part}" in text for part in ("What it measures", "Example", "Limits")), page
        for spec in re.findall(r"`((?:\w+):[\w=,+.]+=[\w,=+.]+)`", text):
            if not spec.endswith((".csv", ".txt")):
                parse_measure(spec)
