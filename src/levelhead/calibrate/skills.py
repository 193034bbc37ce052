"""Did an organism learn its language? New text, beside the best that anybody could do.

A ruler that finds nothing in a model that learned nothing says nothing. So every organism is held
against the generator itself, which knows the probability of every word it said.
"""

from __future__ import annotations

import math
import random
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import logsumexp

from levelhead.calibrate.organisms.language import NOBODY
from levelhead.core.results import Estimate
from levelhead.data.prompts.counteracts import article
from levelhead.models.inputs.tokenizer import MASK
from levelhead.stats.intervals import proportion_interval
from levelhead.stats.means import t_test

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.calibrate.organisms.language import Document, Language, Spoken
    from levelhead.models.lm import LM


class Skill(NamedTuple):
    """What a model can do on text drawn anew, and the most that can be done."""

    estimate: Estimate
    best: float
    """Of the same unit: what one would reach who knew the generator."""

    def __str__(self) -> str:
        return f"{self.estimate}; at best {self.best:.4g}"


def learned(lm: LM, language: Language, *, seed: int, documents: int = 400) -> tuple[Skill, ...]:
    """Every skill that the model has a head for.

    Args:
        lm: the model.
        language: what it was trained on.
        seed: of the text; another than that of its training.
        documents: how many.
    """
    drawn = tuple(language.documents(documents, seed=seed))
    chance = random.Random(f"learned {seed}")  # noqa: S311  # no secret
    found = [_agreeing(lm, language, drawn)]
    if "causal" in lm.heads:
        return (*found, _foretelling(lm, drawn))
    found.append(_filling(lm, language, drawn, chance))
    if "next_sentence" in lm.heads:
        found.append(_following(lm, language, drawn, chance))
    return tuple(found)


def _agreeing(lm: LM, language: Language, documents: Sequence[Document]) -> Skill:
    """How often the pronoun is of the group that the sentence before names."""
    words = [side[0] for side in language.marks["pronoun"]]
    texts, own = [], []
    for document in documents:
        first, second = document.sentences[:2]
        if first.kind != "opening" or second.slots[0] != "pronoun":
            continue
        rest = () if lm.is_causal else second.words[1:]
        texts.append(" ".join((*first.words, MASK, *rest)))
        own.append(words.index(second.words[0]))
    hits = sum(
        int(row.argmax()) == which for row, which in zip(lm.fill(texts, words), own, strict=True)
    )
    return _share("pronouns that agree", hits, len(own), 1.0)


def _foretelling(lm: LM, documents: Sequence[Document]) -> Skill:
    """Bits of surprise a word, less those of the generator, which are the text's entropy."""
    scores = lm.log_prob([document.text for document in documents])
    words = float(scores.tokens.double().mean()) * math.log(2)
    entropy = -np.array([document.log_p for document in documents])
    test = t_test((-scores.value.double().numpy() - entropy) / words)
    estimate = Estimate(
        name=f"surprise a word beyond the text's own {float(entropy.mean()) / words:.3f} bits",
        value=test.mean,
        interval=test.interval,
        n=len(documents),
        unit="bits",
    )
    return Skill(estimate, 0.0)


def _filling(
    lm: LM, language: Language, documents: Sequence[Document], chance: random.Random
) -> Skill:
    """How often the likeliest word for a blank is the one that stood there."""
    alone = "next_sentence" in lm.heads  # BERT was shown sentences alone or in pairs
    texts, words, best = [], [], []
    for document in documents:
        parts = (chance.choice(document.sentences),) if alone else document.sentences
        for which, part in enumerate(parts):
            place = chance.randrange(len(part.words) - 1)  # not the full stop
            told = [list(one.words) for one in parts]
            told[which][place] = MASK
            texts.append(" ".join(" ".join(one) for one in told))
            words.append(part.words[place])
            best.append(_best(language, parts, which, place))
    found = [row[0][0] for row in lm.fill_top(texts, 1)]
    hits = sum(a == b for a, b in zip(found, words, strict=True))
    return _share("words filled in", hits, len(words), math.fsum(best) / len(best))


def _best(language: Language, parts: Sequence[Spoken], which: int, place: int) -> float:
    """The probability of the likeliest word for a blank, given all other words."""
    part = parts[which]
    slot = part.slots[place]
    if slot not in language.chances:
        return 1.0
    logs = [math.log(share) for share in language.shares]
    for i, other in enumerate(parts):
        for j, both in enumerate(other.word_log_p):
            if (i, j) != (which, place):
                logs = [log + p for log, p in zip(logs, both, strict=True)]
    before = part.words[place - 1] if place and part.slots[place - 1] == "a" else None
    joint: dict[str, float] = {}
    for log, chances in zip(logs, language.chances[slot], strict=True):
        for word, p in chances.items():
            if before in (None, article(word)):
                joint[word] = joint.get(word, 0.0) + math.exp(log - max(logs)) * p
    return max(joint.values()) / math.fsum(joint.values())


def _following(
    lm: LM, language: Language, documents: Sequence[Document], chance: random.Random
) -> Skill:
    """How often it is told right whether a sentence follows another."""
    pairs, truth, known = [], [], 0.0
    for document in documents:
        for first, second in pairwise(document.sentences):
            follows = chance.random() < 0.5
            other = chance.choice(chance.choice(documents).sentences[1:])
            said = second if follows else other
            pairs.append((first.text, said.text))
            truth.append(follows)
            odds = _odds(language, first, said)
            known += 0.5 if odds == 1 else (odds > 1) == follows
    found = lm.next_sentence(pairs)
    hits = sum(bool(yes > no) == follows for (yes, no), follows in zip(found, truth, strict=True))
    return _share("sentences told to follow", hits, len(pairs), known / len(pairs))


def _odds(language: Language, first: Spoken, second: Spoken) -> float:
    """That the second follows the first, rather than being of any document."""
    elsewhere = [one.kind == "elsewhere" for one in (first, second)]
    if elsewhere[0] != elsewhere[1]:
        return 0.0
    if all(elsewhere):
        return 1 / NOBODY
    logs = np.log(language.shares)
    after = logsumexp(logs + first.log_p + second.log_p) - logsumexp(logs + first.log_p)
    return float(np.exp(after - logsumexp(logs + second.log_p))) / (1 - NOBODY)


def _share(name: str, hits: int, n: int, best: float) -> Skill:
    interval = proportion_interval(hits, n)
    return Skill(Estimate(name=name, value=hits / n, interval=interval, n=n), best)
