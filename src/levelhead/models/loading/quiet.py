"""Suppress the output of transformers while it reads or writes files."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from transformers.utils import logging

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress transformers' progress bars and its report of missing weights.

    Missing weights become errors of levelhead instead.
    """
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        # Progress bars that the user had switched off stay off.
        if bars:
            logging.enable_progress_bar()
