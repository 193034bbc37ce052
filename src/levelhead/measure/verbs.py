"""The questions a measure may ask, as Readings of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from levelhead.models import asks, blanks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from levelhead.measure.asked import Ask, Verb
    from levelhead.models.lm import LM
    from levelhead.models.readings import Reading

    Settings = Mapping[str, Any]


class Question(NamedTuple):
    """A Reading, and the columns that are counted rather than read."""

    reading: Reading
    beside: torch.Tensor | None = None
    """`[n, c]` numbers that stand beside those the model gives: how many tokens were scored."""

    def answered(self, lm: LM) -> torch.Tensor:
        """`[n, r]` what the model says."""
        return self.joined(lm.run(self.reading))

    def joined(self, values: torch.Tensor) -> torch.Tensor:
        """`[n, r]`: what was read, and what was counted."""
        flat = values.flatten(1)
        return flat if self.beside is None else torch.cat([flat, self.beside.to(flat)], dim=1)


def embed(lm: LM, rows: Sequence[Ask], settings: Settings) -> Question:
    """(text, start, end): the vector of a word; (text,): of the sentence."""
    texts = [str(row[0]) for row in rows]
    spans: Any = None if len(rows[0]) == 1 else [(row[1], row[2]) for row in rows]
    return Question(asks.embedding(lm, texts, spans, settings.get("pooling")))


def follows(lm: LM, rows: Sequence[Ask], settings: Settings) -> Question:
    """(first, second): log-probabilities that the second follows, and that not."""
    return Question(asks.follows(lm, [(str(first), str(second)) for first, second in rows]))


def fill(lm: LM, rows: Sequence[Ask], settings: Settings) -> Question:
    """(text,): log-probabilities of the settings' words in its blank."""
    reading = blanks.filling(lm, [str(text) for (text,) in rows], list(settings["words"]))
    return Question(reading)


def top(lm: LM, rows: Sequence[Ask], settings: Settings) -> Question:
    """(text,): the k likeliest tokens of its blank, then their log-probabilities."""
    return Question(blanks.likeliest(lm, [str(text) for (text,) in rows], settings["k"]))


def score(lm: LM, rows: Sequence[Ask], settings: Settings) -> Question:
    """(text, spans or null): the log-probability of the spans, and how many tokens they hold."""
    spans: Any = None if rows[0][1] is None else [row[1] for row in rows]
    ask = asks.continuing if lm.anatomy.cls.causal else asks.masking
    reading, counts = ask(lm, [str(row[0]) for row in rows], spans)
    return Question(reading, torch.tensor(counts)[:, None])


VERBS: dict[Verb, Callable[[LM, Sequence[Ask], Settings], Question]] = {
    "embed": embed,
    "follows": follows,
    "fill": fill,
    "top": top,
    "score": score,
}
SHARD: dict[Verb, int] = {"embed": 512, "follows": 512, "fill": 128, "top": 512, "score": 64}
"""Questions in a shard, about: a few seconds of work, lost if it is interrupted."""
