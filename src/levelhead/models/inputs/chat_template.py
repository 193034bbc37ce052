"""Limits of time and memory for chat templates, which are programs that come with the weights.

The sandbox of transformers keeps a template from Python, not from loops within loops or from texts
that double. A thread watches and interrupts it, because a template calls nothing that could check.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from levelhead.core.errors import LevelheadError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MAX_SECONDS = 10.0
"""Longest time of a template; those of published models take less than a millisecond."""
MAX_MEMORY_BYTES = 1 << 30
"""Largest growth of the process while a template runs, where the system reports it (Linux)."""
MAX_CHARACTERS = 1_000_000
"""Longest text of a template, above what any model of today can read."""
MAX_QUOTED = 500
"""Characters of a template's own error that are quoted."""
_POLL_SECONDS = 0.02


class TemplateLimitError(Exception):
    """The watching thread interrupts a template."""


@contextmanager
def limit_template() -> Iterator[None]:
    """Interrupt what this thread runs within the context if it takes too long or too much memory.

    Raises:
        LevelheadError: a limit was reached.
    """
    thread_id, lock = threading.get_ident(), threading.Lock()
    is_done, is_interrupted = threading.Event(), threading.Event()

    def watch() -> None:
        deadline, memory = time.monotonic() + MAX_SECONDS, _used_memory()
        while not is_done.wait(_POLL_SECONDS):
            if time.monotonic() < deadline and _used_memory() - memory < MAX_MEMORY_BYTES:
                continue
            with lock:
                if not is_done.is_set():
                    is_interrupted.set()
                    _raise_in(thread_id, TemplateLimitError)
            return

    threading.Thread(target=watch, daemon=True, name="chat template").start()
    try:
        try:
            yield
        finally:
            with lock:
                is_done.set()
            # What was not raised yet must not be raised in whatever runs next.
            if is_interrupted.is_set():
                _raise_in(thread_id, None)
    except TemplateLimitError:
        raise LevelheadError(
            f"the model's chat template does not end within {MAX_SECONDS:g} s and "
            f"{MAX_MEMORY_BYTES >> 20} MB",
            hint="give style='plain', or another model: a template of this kind is an attack or "
            "a mistake",
        ) from None


def render_chat(tokenizer: Any, messages: Sequence[Mapping[str, str]], **switches: Any) -> str:
    """Apply the template of a tokenizer to messages, within the limits.

    Args:
        tokenizer: tokenizer with a template.
        messages: messages with roles.
        switches: further arguments of the template; one that knows none ignores them.
    """
    try:
        with limit_template():
            text = str(
                tokenizer.apply_chat_template(
                    messages, tokenize=False, add_generation_prompt=True, **switches
                )
            )
    except LevelheadError:
        raise
    # A template is a program that comes with the weights: any error in it is its fault.
    except Exception as error:
        raise LevelheadError(
            f"the model's chat template fails: {str(error)[:MAX_QUOTED]}",
            hint="leave out what it does not accept, such as a system prompt",
        ) from error
    if len(text) > MAX_CHARACTERS:
        raise LevelheadError(
            f"the model's chat template writes {len(text)} characters for one request",
            hint="give style='plain', or another model",
        )
    return text


def _raise_in(thread_id: int, error: type[Exception] | None) -> None:
    """Let a thread raise an exception at its next instruction; None takes it back."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread_id), None if error is None else ctypes.py_object(error)
    )


def _used_memory() -> int:
    """Bytes of memory of this process; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return 0
