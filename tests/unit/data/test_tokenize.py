"""Words in a text."""

import gc
import re

from hypothesis import given
from hypothesis import strategies as st

from levelhead.data.tokenize import locate_words, tokenize_words


@given(st.text(st.sampled_from("aZ_0'-. \u0301\u20d0\u2019\u00e9\x1f"), max_size=12))
def test_the_quick_patterns_are_the_literal_ones(text):
    run = r"(?:\w[\u0300-\u036f\u1ab0-\u1aff\u20d0-\u20ff]*)+"
    literal = re.compile(rf"{run}(?:['\u2019-]{run})*|[^\w\s]")
    assert [tuple(token) for token in tokenize_words(text)] == [
        (match[0], match.start(), match.end()) for match in literal.finditer(text)
    ]


@given(st.text(st.sampled_from("aZ_0'-. \u0301\u20d0\u2019\u00e9\x1f"), max_size=12))
def test_words_and_their_starts_are_those_of_the_tokens(text):
    words, starts = locate_words(text)
    assert [(token.text, token.start) for token in tokenize_words(text)] == [
        *zip(words, starts, strict=True)
    ]
    assert all(text.startswith(word, start) for word, start in zip(words, starts, strict=True))


def test_the_garbage_collector_walks_no_word_of_a_text():
    """Of long texts that took a third of the time of a swap, and made it grow faster than they."""
    words, starts = locate_words("The men's club. " * 10)
    assert len(words) == len(starts) == 40
    assert not any(gc.is_tracked(part) for part in (*words, *starts))
