"""Words in a text."""

import re

from hypothesis import given
from hypothesis import strategies as st

from levelhead.data.tokenize import tokenize_words


@given(st.text(st.sampled_from("aZ_0'-. \u0301\u20d0\u2019\u00e9\x1f"), max_size=12))
def test_the_quick_patterns_are_the_literal_ones(text):
    run = r"(?:\w[\u0300-\u036f\u1ab0-\u1aff\u20d0-\u20ff]*)+"
    literal = re.compile(rf"{run}(?:['\u2019-]{run})*|[^\w\s]")
    assert [tuple(token) for token in tokenize_words(text)] == [
        (match[0], match.start(), match.end()) for match in literal.finditer(text)
    ]
