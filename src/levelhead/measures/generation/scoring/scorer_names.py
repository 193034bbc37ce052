"""Scorers by name, as on the command line."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.measures.generation.scoring.model_scorers import ClassifierScorer, JudgeScorer
from levelhead.measures.generation.scoring.scorers import (
    HurtLex,
    RefusalPhrases,
    TextScorer,
    VaderSentiment,
)

if TYPE_CHECKING:
    from collections.abc import Callable

SCORERS: dict[str, Callable[[], TextScorer]] = {
    "vader": VaderSentiment,
    "refusal": RefusalPhrases,
    "hurtlex": HurtLex,
    **{f"hurtlex-{language}": partial(HurtLex, language) for language in ("es", "fr", "it")},
}
"""Scorers that a name selects."""
MODEL_SCORERS: dict[str, Callable[[str, str], TextScorer]] = {
    "classifier": ClassifierScorer,
    "judge": JudgeScorer,
}
"""Scorers with a model, by what stands before it: classifier:MODEL:CLASS, judge:MODEL:QUESTION."""


def resolve_scorer(scorer: str | TextScorer) -> TextScorer:
    """The scorer with a name; a scorer is returned as it is."""
    return _resolve_name(scorer) if isinstance(scorer, str) else scorer


# Cached, so that a model is loaded once, however often its scorer is named.
@cache
def _resolve_name(name: str) -> TextScorer:
    if name in SCORERS:
        return SCORERS[name]()
    kind, _, rest = name.partition(":")
    if kind not in MODEL_SCORERS:
        raise UnknownNameError("scorer", kind, (*SCORERS, *MODEL_SCORERS))
    # From the right: the address of a server contains colons, too.
    model, _, argument = rest.rpartition(":")
    if not model or not argument:
        raise LevelheadError(
            f"{name!r} names no model, or not what to read from it",
            hint="write classifier:MODEL:CLASS or judge:MODEL:QUESTION",
        )
    return MODEL_SCORERS[kind](model, argument)
