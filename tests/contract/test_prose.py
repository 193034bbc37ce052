"""Documents can be read: their size, sentences and phrases, and an example on each page."""

import re
from pathlib import Path

import pytest
import yaml
from proselint.checks import __register__ as proselint_checks
from proselint.registry import CheckRegistry
from proselint.tools import LintFile

ROOT = Path(__file__).parents[2]
PAGES = {
    str(page.relative_to(ROOT)): page.read_text()
    for page in sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
}
WORDS_A_PAGE, WORDS_IN_ALL, TOP_ENTRIES = 4_000, 60_000, 8
WORDS_A_SENTENCE = 25
"""On average over a page: plain English has 15 to 20, and terms of the field take more."""
MIN_SENTENCES = 5
"""A page with fewer has no average to speak of."""
CHECKS = (
    *("archaism", "cliches", "lexical_illusions", "malapropisms", "mixed_metaphors", "mondegreens"),
    *("needless_variants", "nonwords", "oxymorons", "psychology", "skunked_terms", "spelling"),
    *("misc.but", "misc.illogic", "misc.latin", "misc.narcissism", "misc.pretension", "misc.waxed"),
    *("industrial_language", "redundancy", "social_awareness", "weasel_words"),
)
"""Checks of proselint. Left out: those of quotes and dashes, which Markdown types, and of dates."""
SWITCHED_OFF = {
    "spelling.consistency": "titles of papers are American, the text is British",
}
"""Checks of these families that are right in general and wrong here, with the reason."""
DECISIONS = "docs/development/decisions/"
"""Choices with reasons, which need no example."""


def prose(text):
    """The sentences of a page: no code, tables, pictures, headings, comments or addresses."""
    text = re.sub(r"^(`{3,}).*?^\1$", "\n", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!--.*?-->", "\n", text, flags=re.DOTALL)
    text = re.sub(r"^(#|\||:::|!\[|    ).*$", "\n", text, flags=re.MULTILINE)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)  # a link counts as its text
    text = re.sub(r"`[^`]*`", "CODE", text)
    return re.sub(r"^\s*(?:[-*>]|\d+\.) ", "\n\n", text, flags=re.MULTILINE)


def sentences(text):
    """Split prose; an item of a list ends a sentence."""
    parts = re.split(r"(?<=[.!?])[\"')*]*\s+(?=[A-Z\"'(*])|:\s*\n|\n\s*\n", prose(text))
    return [part.split() for part in parts if len(part.split()) > 1]


def average_length(text):
    """Words a sentence, of a page that has some."""
    found = sentences(text)
    return sum(map(len, found)) / len(found) if len(found) >= MIN_SENTENCES else 0


def has_example(text):
    """Whether a page shows something: a block, a picture or an example in words."""
    return bool(re.search(r"^```|^!\[|^::: |[Ff]or example|[Ss]uch as", text, flags=re.MULTILINE))


@pytest.fixture(scope="module")
def phrases():
    """What proselint says about a text."""
    registry = CheckRegistry()
    registry.register_many(proselint_checks)
    checks = {**dict.fromkeys(SWITCHED_OFF, False), **dict.fromkeys(CHECKS, True)}
    config = {"max_errors": 100, "checks": checks}

    def lint(name, text):
        results = LintFile(source=name, content=prose(text)).lint(config)
        return [f"{name}: {r.check_result.check_path}: {r.check_result.message}" for r in results]

    return lint


def test_pages_and_all_documents_are_short():
    words = {name: len(text.split()) for name, text in PAGES.items()}
    assert {name: count for name, count in words.items() if count > WORDS_A_PAGE} == {}
    assert sum(words.values()) <= WORDS_IN_ALL


def test_navigation_has_few_entries_and_every_page():
    # The configuration has no tags: the safe loader reads it.
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    assert len(nav) <= TOP_ENTRIES
    named = set(re.findall(r"[\w/-]+\.md", str(nav)))
    assert named == {name.removeprefix("docs/") for name in PAGES} - {"README.md"}


def test_sentences_are_short():
    lengths = {name: average_length(text) for name, text in PAGES.items()}
    assert {name: round(n, 1) for name, n in lengths.items() if n > WORDS_A_SENTENCE} == {}


def test_every_page_has_an_example():
    shown = [name for name, text in PAGES.items() if has_example(text)]
    assert [name for name in PAGES if name not in shown and DECISIONS not in name] == []


def test_phrases(phrases):
    assert [fault for name, text in PAGES.items() for fault in phrases(name, text)] == []


def test_the_rules_can_fail(phrases):
    short = "One thing is said here. " * MIN_SENTENCES
    assert average_length(short) == 5
    assert average_length(short.replace("thing", "thing " * 40)) > WORDS_A_SENTENCE
    assert average_length("```\n" + short.replace(".", "") * 9 + "\n```\n" + short) == 5
    assert not has_example("# Title\n\nText.\n")
    assert phrases("page", "It is good, at this point in time.")
    assert not phrases("page", "A measure has an interval.\n\n```\nvery, very good\n```\n")
