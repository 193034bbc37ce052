"""Texts of others made harmless in what levelhead writes: terminals, logs, tables, Markdown.

Names of models and labels, texts of data sets and answers of servers may hold sequences that a
reader of a file obeys. HTML, LaTeX and XML are escaped where they are written.
"""

from __future__ import annotations

import re
from typing import Final

CONTROL: Final = (
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)
"""All of C0 but tab and line feed, C1, and the signs that turn the direction of writing."""
_CONTROLS: Final = re.compile(CONTROL)
# Full-width forms too: spreadsheet programs of East Asia read them as the ASCII signs.
_FORMULA: Final = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]")


def escape_character(character: str) -> str:
    """Show a character by its number, as JSON writes it, so that JSON stays the same value."""
    return f"\\u{ord(character):04x}"


def escape_controls(text: str) -> str:
    r"""Show control characters by their numbers.

    >>> print(escape_controls("parity\x1b[2K"))
    parity\u001b[2K
    """
    return _CONTROLS.sub(lambda match: escape_character(match[0]), text)


def to_single_line(text: str) -> str:
    r"""Put a text on one line, with its control characters as numbers.

    A name with a line break could otherwise add a line of its own to a verdict.

    >>> print(to_single_line("fail\npass: 3 rules"))
    fail pass: 3 rules
    """
    return escape_controls(" ".join(re.split(r"[ \t\r\n\x0b\x0c]+", text.strip())))


def escape_markdown(text: str) -> str:
    r"""Escape a text so that it cannot end a cell, begin a tag or a link, or be code.

    >>> print(escape_markdown("a|b <img>"))
    a\|b &lt;img>
    """
    escaped = to_single_line(text).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([|`\[\]*_\\])", r"\\\1", escaped)


def escape_cell(text: str) -> str:
    """Escape a cell of a CSV file: an apostrophe marks what a spreadsheet would compute as text.

    >>> escape_cell("=HYPERLINK(1)"), escape_cell("-0.5"), escape_cell("seat")
    ("'=HYPERLINK(1)", '-0.5', 'seat')
    """
    # Readers end a row there, and the writer of Python does not quote it.
    text = text.replace("\r", escape_character("\r"))
    if not _FORMULA.match(text):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text
