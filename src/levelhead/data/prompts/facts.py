"""Questions about common knowledge, of which one of four answers is right."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import NamedTuple


class FactQuestion(NamedTuple):
    """A question with its answers."""

    question: str
    topic: str
    answers: tuple[str, ...]
    """The first is right."""


@cache
def load_facts() -> tuple[FactQuestion, ...]:
    """Load the questions that levelhead includes."""
    text = files("levelhead.data").joinpath("facts.toml").read_text("utf-8")
    return tuple(
        FactQuestion(topic["question"].format(subject), topic["name"], tuple(answers))
        for topic in tomllib.loads(text)["topic"]
        for subject, *answers in topic["facts"]
    )
