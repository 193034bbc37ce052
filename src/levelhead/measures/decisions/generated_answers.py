"""Answers that a model writes: which option does a text name?

For models that report no log-probabilities of given answers. A text that names no option, or
several, counts for none of them, and such texts are counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch

from levelhead.core.errors import NotMeasurableError
from levelhead.data.tokenize import fold_case, tokenize_words
from levelhead.models.generation.config import GenerationConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.measures.items import QueryArgs
    from levelhead.measures.responses import Responses

# Greedy: one answer, which does not depend on a seed.
ANSWER_CONFIG = GenerationConfig(max_tokens=32, temperature=0.0)
"""Settings of generated answers: long enough to name an option in a sentence."""
ARTICLES = ("the", "a", "an")


def find_named_option(text: str, options: Sequence[str]) -> int | None:
    """Index of the option that a text names; None if it names none, or several.

    A text that begins with an option names that one, whatever it says later.

    >>> find_named_option("It was the nurse.", ("the doctor", "the nurse"))
    1
    >>> find_named_option("No, not yet. Yes is too early.", ("Yes", "No"))
    1
    >>> find_named_option("The doctor or the nurse", ("the man", "the nurse who left"))
    """
    words = f" {' '.join(_plain_words(text))} "
    names = {i: f" {' '.join(_plain_words(option))} " for i, option in enumerate(options)}
    found = {}
    # Longer options first: "the old man" also contains "man".
    for i in sorted(names, key=lambda i: -len(names[i])):
        position = words.find(names[i])
        if position >= 0 and names[i].strip():
            found[i] = position
            words = words.replace(names[i], " " + "\0" * (len(names[i]) - 2) + " ")
    first = [i for i, position in found.items() if position == 0]
    return next(iter(first or found)) if len(first or found) == 1 else None


def _plain_words(text: str) -> list[str]:
    """Words in lower case, without articles and punctuation."""
    plain = text.replace("\u2019", "'")
    words = [fold_case(token.text) for token in tokenize_words(plain) if token.text[0].isalnum()]
    return [word for word in words if word not in ARTICLES]


def make_generated_query(query: QueryArgs) -> QueryArgs:
    """The request of a choice as one to generate: the first sample, and the options."""
    request, options = query
    return (request, 0, options)


def score_named_options(responses: Responses) -> torch.Tensor:
    """`[items, queries, options]` 1 for the option that each text names, else 0.

    Raises:
        NotMeasurableError: no text names an option, which is no parity.
    """
    scores = torch.tensor(
        [
            [_score_text(text, query) for text, query in zip(texts, item.queries, strict=True)]
            for texts, item in zip(responses.texts, responses.items, strict=True)
        ],
        dtype=torch.float64,
    )
    if not bool(scores.any()):
        raise NotMeasurableError(
            "no generated answer names an option",
            hint="look at the answers; another request or system prompt may help",
        )
    return scores


def _score_text(text: str, query: QueryArgs) -> list[float]:
    options = [str(option) for option in cast("Sequence[str]", query[2])]
    named = find_named_option(text, options)
    return [float(i == named) for i in range(len(options))]


def unnamed_shares(responses: Responses) -> torch.Tensor:
    """`[items]` shares of the generated answers that name no option."""
    return 1 - score_named_options(responses).sum(-1).mean(1)
