r"""Output that cannot command the terminal.

Names of models and labels, texts of data sets and answers of servers are printed, and any of them
may hold escape sequences that move the cursor, hide a line, change the title of the window or turn
the direction of writing, so that a verdict reads as another one. They are shown as `\\u001b`.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Final, TextIO, cast, final

if TYPE_CHECKING:
    from collections.abc import Iterable

_CONTROL: Final = (
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)
"""All of C0 but tab and line feed, C1, and the signs that turn the direction of writing."""
# Bold, dim, italic, underlined and colours of letters. Not "conceal" (8), which hides text, and no
# background, on which letters of the same colour disappear.
_CODE: Final = r"(?:0|[1-4]|2[2-4]|3[0-79]|9[0-7]|38;5;\d{1,3})"
_STYLE: Final = rf"\x1b\[(?:{_CODE}(?:;{_CODE})*)?m"
_CURSOR: Final = r"\x1b\[(?:\d*A|2K|1?G|\?25[hl])|\r"
"""What rich writes to draw a progress bar anew."""
_CONTROLS: Final = re.compile(_CONTROL)
_UNSTYLED: Final = re.compile(rf"{_STYLE}|(?P<control>{_CONTROL})")
_UNSTYLED_OR_MOVED: Final = re.compile(rf"{_STYLE}|{_CURSOR}|(?P<control>{_CONTROL})")


def escape_controls(text: str) -> str:
    r"""Show control characters as their numbers.

    >>> print(escape_controls("parity\x1b[2K"))
    parity\u001b[2K

    Args:
        text: text of anybody.
    """
    return _CONTROLS.sub(lambda match: _escape(match[0]), text)


def protect_terminal() -> None:
    """Let standard output and standard error write no control sequences but ours."""
    # What is piped is data for a program, which must get the texts as they are.
    if sys.stdout.isatty():
        sys.stdout = cast("TextIO", ProtectedStream(sys.stdout, _UNSTYLED))
    sys.stderr = cast("TextIO", ProtectedStream(sys.stderr, _UNSTYLED_OR_MOVED))


@final
class ProtectedStream:
    """A text stream that escapes what a pattern names `control`."""

    def __init__(self, stream: TextIO, pattern: re.Pattern[str]) -> None:
        self._stream, self._pattern = stream, pattern

    def write(self, text: str) -> int:
        """Write a text, escaped."""
        return self._stream.write(self._pattern.sub(_escape_match, text))

    def writelines(self, lines: Iterable[str]) -> None:
        """Write lines, escaped."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def _escape_match(match: re.Match[str]) -> str:
    return _escape(match["control"]) if match["control"] else match[0]


def _escape(character: str) -> str:
    # As JSON writes it, so that JSON stays the same value.
    return f"\\u{ord(character):04x}"
