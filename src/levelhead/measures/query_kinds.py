"""The questions a measure may ask, as Readings of a model."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch

from levelhead.data.tokenize import folded, tokens, without_clitic
from levelhead.models.inputs.tokenizer import UnknownWord
from levelhead.models.loading.http_model import NotOverHttp, Remote
from levelhead.models.queries import build as asks
from levelhead.models.queries import cloze as blanks
from levelhead.models.queries import sampling
from levelhead.models.queries.sampling import Sampling
from levelhead.models.sites import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from levelhead.measures.items import Ask, Verb
    from levelhead.models.inputs.tokenizer import Row
    from levelhead.models.lm import LM
    from levelhead.models.queries.query import Reading

    Settings = Mapping[str, Any]


class Distant(NamedTuple):
    """A question to a model behind HTTP, which has no Readings."""

    ask: Callable[[], torch.Tensor]

    def answered(self, lm: LM) -> torch.Tensor:
        """`[n, r]` what it says."""
        return self.ask()


class Question(NamedTuple):
    """A Reading, and the columns that are counted rather than read."""

    reading: Reading
    beside: torch.Tensor | None = None
    """`[n, c]` numbers that stand beside those the model gives: how many tokens were scored."""
    width: int | None = None
    """How many columns of the reading are wanted: one that fills blanks has a spare."""

    def answered(self, lm: LM) -> torch.Tensor:
        """`[n, r]` what the model says."""
        return self.joined(lm.run(self.reading))

    def joined(self, values: torch.Tensor) -> torch.Tensor:
        """`[n, r]`: what was read, and what was counted."""
        flat = values.flatten(1)[:, : self.width]
        return flat if self.beside is None else torch.cat([flat, self.beside.to(flat)], dim=1)


def embed(lm: LM, rows: Sequence[Ask], settings: Settings) -> Question:
    """(text, start, end): the vector of a word; (text,): of the sentence."""
    texts = [str(row[0]) for row in rows]
    spans: Any = None if len(rows[0]) == 1 else [(row[1], row[2]) for row in rows]
    layer = settings.get("layer")
    sites = [] if layer is None else [Site("block_out", layer)]
    for site in sites:
        lm.anatomy.find(site)
    reading = asks.states(lm, texts, sites, spans, settings.get("pooling"))
    # Around a word unknown ones may stand; a sentence is read whole.
    return _known(lm, reading) if spans is None else Question(reading)


def follows(lm: LM, rows: Sequence[Ask], settings: Settings) -> Question:
    """(first, second): log-probabilities that the second follows, and that not."""
    return _known(lm, asks.follows(lm, [(str(first), str(second)) for first, second in rows]))


def classify(lm: LM, rows: Sequence[Ask], settings: Settings) -> Question:
    """(text,) or (first, second): log-probabilities of the classifier's classes."""
    texts: Any = [row[0] if len(row) == 1 else (row[0], row[1]) for row in rows]
    return _known(lm, asks.classes(lm, texts))


def rate(lm: LM, rows: Sequence[Ask], settings: Settings) -> Question:
    """(text,) or (first, second): the score that a model trained on scores foretells."""
    texts: Any = [row[0] if len(row) == 1 else (row[0], row[1]) for row in rows]
    return _known(lm, asks.numbers(lm, texts))


def fill(lm: LM | Remote, rows: Sequence[Ask], settings: Settings) -> Question | Distant:
    """(text,): log-probabilities of the settings' words in its blank.

    (text, span or null): the same, with the characters of the span hidden. With the setting "best",
    the likeliest tokens follow, as in `top`.
    """
    words = list(settings["words"])
    hidden: Any = [row[1] if len(row) > 1 else None for row in rows]
    early = settings.get("prior") == "before hidden"
    texts = [str(row[0]) for row in rows]
    best = settings.get("best", 0)
    if isinstance(lm, Remote):
        for text in texts:
            lm.cut(text, words)  # what cannot be asked is told before anything is
        return Distant(partial(lm.fill, texts, words, best=best))
    reading = blanks.filling(lm, texts, words, hidden, before_hidden=early, best=best)
    return _known(lm, reading)._replace(width=len(words) + 2 * best)


def put(lm: LM, rows: Sequence[Ask], settings: Settings) -> Question:
    """(text, word): the summed probabilities of the word's tokens, and how many these are."""
    texts, words = ([str(row[i]) for row in rows] for i in (0, 1))
    reading, counts = blanks.putting(lm, texts, words)
    return _known(lm, reading)._replace(beside=torch.tensor(counts)[:, None])


def top(lm: LM, rows: Sequence[Ask], settings: Settings) -> Question:
    """(text,): the k likeliest tokens of its blank, then their log-probabilities."""
    return _known(lm, blanks.likeliest(lm, [str(text) for (text,) in rows], settings["k"]))


def score(lm: LM | Remote, rows: Sequence[Ask], settings: Settings) -> Question | Distant:
    """(text, spans or null): their log-probability, and of how many tokens it is the sum.

    Spans are of characters, or, if the settings say so, positions of tokens.
    """
    if isinstance(lm, Remote):
        if any(row[1] is not None for row in rows):
            raise NotOverHttp(
                "parts of a text cannot be scored behind HTTP", mend="load the model's weights"
            )
        texts = [str(row[0]) for row in rows]
        for text in texts:
            lm.whole(text)
        return Distant(lambda: torch.stack(lm.log_prob(texts), dim=1))
    spans: Any = None if rows[0][1] is None else [row[1] for row in rows]
    ask = asks.continuing if lm.anatomy.cls.causal else asks.masking
    by_token = settings.get("by") == "token"
    given = {"spans": None, "places": spans} if by_token else {"spans": spans}
    reading, counts = ask(lm, [str(row[0]) for row in rows], **given)
    return _known(lm, reading)._replace(beside=torch.tensor(counts)[:, None])


def _known(lm: LM, reading: Reading) -> Question:
    """Refuse texts that hold an unknown word anywhere.

    Two texts that differ in a word the model does not know are one and the same to it: they would
    read as parity.
    """
    _refuse_unknown(lm, reading.rows)
    return Question(reading)


def _refuse_unknown(lm: LM, rows: Sequence[Row]) -> None:
    unknown = lm.tokens.unknown
    if unknown is not None and any(unknown in row.ids for row in rows):
        raise UnknownWord(
            "the model's vocabulary lacks a word of the text",
            mend="leave the text out and count it as dropped: all unknown words look alike",
        )


class Writing(NamedTuple):
    """Continuations: each next question depends on the last answer, so that it is no Reading."""

    prompts: tuple[str, ...]
    numbers: tuple[int, ...]
    sampling: Sampling
    words: tuple[tuple[str, ...], ...]
    phrases: tuple[str, ...]

    def answered(self, lm: LM) -> torch.Tensor:
        """`[n, r]` what was written: see `sample`."""
        found = []
        for one in sampling.sample(lm, self.prompts, self.numbers, self.sampling):
            said = [folded(token.text) for token in tokens(one.text.replace("\u2019", "'"))]
            bare = [without_clitic(word)[0] for word in said]
            places = [_first_place(bare, words) for words in self.words]
            refused = _first_place(said, self.phrases) == 0
            rest = [-1] * (self.sampling.tokens - len(one.ids))
            found.append([*places, refused, len(one.ids), one.ended, *one.ids, *rest])
        return torch.tensor(found, dtype=torch.float64)


def sample(lm: LM, rows: Sequence[Ask], settings: Settings) -> Writing:
    """(text, number): one continuation of the text, the `number`th.

    For every list of the settings' words, which word of the continuation is the first of them (-1:
    none is); whether it begins with a phrase of refusal; how many tokens it has; whether it was
    ended; the tokens, -1 behind them.
    """
    names = ("tokens", "temperature", "top_p", "seed")
    how = Sampling(**{name: settings[name] for name in names})
    prompts, numbers = [str(row[0]) for row in rows], [cast("int", row[1]) for row in rows]
    asked = sampling.prepared(lm, prompts, how)
    _refuse_unknown(lm, asked)
    words = tuple(tuple(own) for own in settings["words"])
    return Writing(tuple(prompts), tuple(numbers), how, words, tuple(settings["phrases"]))


def _first_place(said: Sequence[str], words: Sequence[str]) -> int:
    """Where the first of some words (or phrases) stands; -1: none does."""
    whole = f" {' '.join(said)} "
    places = [at for word in words if (at := whole.find(f" {word} ")) >= 0]
    return whole.count(" ", 0, min(places)) if places else -1


VERBS: dict[Verb, Callable[[LM, Sequence[Ask], Settings], Question | Distant | Writing]] = {
    "embed": embed,
    "follows": follows,
    "classify": classify,
    "rate": rate,
    "fill": fill,
    "put": put,
    "top": top,
    "score": score,
    "sample": sample,
}
SHARD: dict[Verb, int] = {
    "embed": 512,
    "follows": 512,
    "classify": 512,
    "rate": 512,
    "fill": 128,
    "put": 256,
    "top": 512,
    "score": 64,
    "sample": 32,
}
"""Questions in a shard, about: a few seconds of work, lost if it is interrupted."""
ROWS = 8
"""A masked model is asked for a text in as many rows as it has tokens, a causal one in one."""


def shard_size(lm: LM, verb: Verb) -> int:
    """How many questions a shard has: of more, batches are of texts of like length."""
    return SHARD[verb] * (ROWS if verb == "score" and lm.is_causal else 1)
