"""Texts of others cannot command the terminal."""

import io
import os
import pty
import sys

import pytest
from rich.console import Console
from rich.text import Text

from levelhead.cli import main
from levelhead.cli.shared.terminal import (
    _UNSTYLED,
    _UNSTYLED_OR_MOVED,
    ProtectedStream,
)
from levelhead.core.escape import escape_controls

HOSTILE = {
    "erased line": "\x1b[1A\x1b[2K",
    "title": "\x1b]0;pwned\x07",
    "hidden": "\x1b[8m",
    "background": "\x1b[41m",
    "hidden among styles": "\x1b[1;8m",
    "screen": "\x1bc",
    "C1": "\x9b2J",
    "direction": "\u202egnirts\u2066",
    "line separator": "\u2028",
    "backspace": "bias\b\b\b\bparity",
    "null": "\x00",
}


def is_safe(text):
    return not any(
        character in text for character in "\x00\x07\b\x9b\x1b\u2028\u202a\u202e\u2066\u2069"
    )


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_text_is_shown_by_its_numbers(text):
    assert not is_safe(text)
    escaped = escape_controls(text)
    assert is_safe(escaped)
    assert "\\u" in escaped
    stream = io.StringIO()
    ProtectedStream(stream, _UNSTYLED).write(text)
    assert stream.getvalue() == escaped


def test_texts_without_controls_are_unchanged():
    for text in (
        "a\tb\nc",
        "Zo\u00eb \u2013 \u201cno\u201d",
        "\u0645\u0631\u062d\u0628\u0627",
        "\U0001f600",
    ):
        assert escape_controls(text) == text


@pytest.mark.parametrize("pattern", [_UNSTYLED, _UNSTYLED_OR_MOVED])
def test_styles_of_rich_remain(pattern):
    stream = io.StringIO()
    text = Text("seat", style="bold red") + Text(" 1.2", style="dim")
    Console(file=ProtectedStream(stream, pattern), force_terminal=True).print(text)
    plain = io.StringIO()
    Console(file=plain, force_terminal=True).print(text)
    assert stream.getvalue() == plain.getvalue()
    assert "\x1b[1;31m" in plain.getvalue()


def test_a_message_on_a_terminal_is_escaped(monkeypatch, tmp_path):
    """The name of a folder, as anybody may have chosen it."""
    name = tmp_path / "model\x1b]0;pwned\x07\x1b[1A\x1b[2K"
    name.mkdir()
    leader, follower = pty.openpty()
    with os.fdopen(follower, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setattr(sys, "argv", ["levelhead", "doctor", str(name)])
        with pytest.raises(SystemExit):
            main()
        terminal.flush()
        output = os.read(leader, 100_000).decode()
    os.close(leader)
    assert "\\u001b]0;pwned\\u0007\\u001b[1A" in output
    assert is_safe(output)
