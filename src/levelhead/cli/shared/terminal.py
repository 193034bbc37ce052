r"""Output that commands neither the terminal nor a CI system.

Names of models and labels, texts of data sets and answers of servers are printed, and any of them
may hold escape sequences that move the cursor, hide a line, change the title of the window or turn
the direction of writing, so that a verdict reads as another one. They are shown as `\\u001b`.

CI systems read commands from the log: GitHub those of lines that begin with two colons, and two
number signs with a bracket anywhere; Azure and TeamCity have words of their own behind the signs.
"""

from __future__ import annotations

import codecs
import io
import json
import os
import re
import stat
import sys
from typing import TYPE_CHECKING, Final, TextIO, cast, final

from levelhead.core.escape import CONTROL, escape_character

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

CI_VARIABLES: Final = ("GITHUB_ACTIONS", "GITEA_ACTIONS", "TF_BUILD", "TEAMCITY_VERSION")
"""Environment variables of systems that obey lines of the log."""
UNENCODABLE: Final = "levelhead.escape"
"""Name of the way to write characters that a stream cannot encode."""
# Bold, dim, italic, underlined and colours of letters. Not "conceal" (8), which hides text, and no
# background, on which letters of the same colour disappear.
_CODE: Final = r"(?:0|[1-4]|2[2-4]|3[0-79]|9[0-7]|38;5;\d{1,3})"
_STYLE: Final = rf"\x1b\[(?:{_CODE}(?:;{_CODE})*)?m"
_CURSOR: Final = r"\x1b\[(?:\d*A|2K|1?G|\?25[hl])|\r"
"""What rich writes to draw a progress bar anew."""
_LINE_COMMAND: Final = r"(?:\A|(?<=[\r\n]))\s*(?P<line_command>:)(?=:)"
_COMMAND: Final = r"#(?P<command>\#)(?=\[|vso\[|teamcity\[)"
_UNSTYLED: Final = re.compile(rf"{_STYLE}|(?P<control>{CONTROL})")
_UNSTYLED_OR_MOVED: Final = re.compile(rf"{_STYLE}|{_CURSOR}|(?P<control>{CONTROL})")
_WORKFLOW_COMMAND: Final = re.compile(rf"{_LINE_COMMAND}|{_COMMAND}")


def protect_terminal(environment: Mapping[str, str] = os.environ) -> None:
    """Let standard output and standard error write no control sequences but ours.

    Args:
        environment: variables that name the CI system, if there is one.
    """
    codecs.register_error(UNENCODABLE, _escape_unencodable)
    for stream in (sys.stdout, sys.stderr):
        # A terminal of one byte per letter, or a name that is no text, must not end a command.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=UNENCODABLE)
    # What is piped is data for a program, which must get the texts as they are.
    if sys.stdout.isatty():
        sys.stdout = cast("TextIO", ProtectedStream(sys.stdout, _UNSTYLED))
    sys.stderr = cast("TextIO", ProtectedStream(sys.stderr, _UNSTYLED_OR_MOVED))
    if any(name in environment for name in CI_VARIABLES):
        sys.stderr = cast("TextIO", ProtectedStream(sys.stderr, _WORKFLOW_COMMAND))
        if not _is_regular_file(sys.stdout):
            sys.stdout = cast("TextIO", ProtectedStream(sys.stdout, _WORKFLOW_COMMAND))


@final
class ProtectedStream:
    """A text stream that escapes the characters which a pattern captures."""

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
    if match.lastgroup is None:
        return match[0]
    # The captured character is the last of the match.
    return match[0][:-1] + escape_character(match[match.lastgroup])


def _escape_unencodable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    # Characters beyond 16 bits are two numbers in JSON, too.
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def _is_regular_file(stream: TextIO) -> bool:
    """Whether a stream is redirected into a file, which no CI system reads as its log."""
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError, AttributeError):
        return False
