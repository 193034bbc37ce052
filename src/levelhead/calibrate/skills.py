"""Skills of an organism in its language, on new text, with the best possible values.

A measure that finds nothing in a model that learned nothing is no evidence. So every organism is
compared with the generator of the text, which knows the probability of every word.
"""

from __future__ import annotations

import math
import random
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import logsumexp

from levelhead.calibrate.organisms.language import NOBODY_SHARE
from levelhead.core.results import Estimate
from levelhead.data.prompts.counteracts import indefinite_article
from levelhead.models.inputs.tokenizer import MASK
from levelhead.stats.intervals import proportion_interval
from levelhead.stats.means import t_test

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.calibrate.organisms.language import Language, PlantedDocument, PlantedSentence
    from levelhead.models.lm import LM


class SkillEstimate(NamedTuple):
    """Skill of a model on newly sampled text, and the best possible value."""

    estimate: Estimate
    best: float
    """Value of a predictor that knows the generator, in the same unit."""

    def __str__(self) -> str:
        return f"{self.estimate}; at best {self.best:.4g}"


def measure_skills(
    lm: LM, language: Language, *, seed: int, documents: int = 400
) -> tuple[SkillEstimate, ...]:
    """Measure every skill that the model has a head for.

    Args:
        lm: the model.
        language: the language that it was trained on.
        seed: random seed of the text; it must differ from that of the training.
        documents: number of documents.
    """
    sampled = tuple(language.documents(documents, seed=seed))
    rng = random.Random(f"learned {seed}")  # noqa: S311  # no secret
    estimates = [_measure_pronoun_agreement(lm, language, sampled)]
    if "causal" in lm.heads:
        return (*estimates, _measure_surprise(lm, sampled))
    estimates.append(_measure_blank_filling(lm, language, sampled, rng))
    if "next_sentence" in lm.heads:
        estimates.append(_measure_next_sentence(lm, language, sampled, rng))
    return tuple(estimates)


def _measure_pronoun_agreement(
    lm: LM, language: Language, documents: Sequence[PlantedDocument]
) -> SkillEstimate:
    """Measure how often the pronoun agrees with the group that the previous sentence names."""
    words = [side[0] for side in language.marks["pronoun"]]
    texts, answers = [], []
    for document in documents:
        first, second = document.sentences[:2]
        # Only there does the text decide the pronoun: agreement is grammar, not bias.
        if first.kind != "opening" or second.slots[0] != "pronoun":
            continue
        rest = () if lm.is_causal else second.words[1:]
        texts.append(" ".join((*first.words, MASK, *rest)))
        answers.append(words.index(second.words[0]))
    hits = sum(
        int(row.argmax()) == answer
        for row, answer in zip(lm.fill(texts, words), answers, strict=True)
    )
    return _estimate_share("pronouns that agree", hits, len(answers), 1.0)


def _measure_surprise(lm: LM, documents: Sequence[PlantedDocument]) -> SkillEstimate:
    """Measure the surprise in bits per word, less the text's entropy under the generator."""
    scores = lm.log_prob([document.text for document in documents])
    # Divides nats per document; the result is in bits per word.
    words = float(scores.token_counts.double().mean()) * math.log(2)
    entropy = -np.array([document.log_p for document in documents])
    test = t_test((-scores.value.double().numpy() - entropy) / words)
    estimate = Estimate(
        name=f"surprise a word beyond the text's own {float(entropy.mean()) / words:.3f} bits",
        value=test.mean,
        interval=test.interval,
        n=len(documents),
        unit="bits",
    )
    return SkillEstimate(estimate, 0.0)


def _measure_blank_filling(
    lm: LM, language: Language, documents: Sequence[PlantedDocument], rng: random.Random
) -> SkillEstimate:
    """Measure how often the likeliest word for a blank is the original one."""
    # BERT was trained on single sentences or pairs: a full document would be unfamiliar input.
    is_single_sentence = "next_sentence" in lm.heads
    texts, words, best = [], [], []
    for document in documents:
        sentences = (rng.choice(document.sentences),) if is_single_sentence else document.sentences
        for sentence_index, sentence in enumerate(sentences):
            # The full stop, which is always the same, is no test.
            word_index = rng.randrange(len(sentence.words) - 1)
            masked_words = [list(other.words) for other in sentences]
            masked_words[sentence_index][word_index] = MASK
            texts.append(
                " ".join(" ".join(words_of_sentence) for words_of_sentence in masked_words)
            )
            words.append(sentence.words[word_index])
            best.append(_compute_best_accuracy(language, sentences, sentence_index, word_index))
    predictions = [row[0][0] for row in lm.fill_top(texts, 1)]
    hits = sum(a == b for a, b in zip(predictions, words, strict=True))
    return _estimate_share("words filled in", hits, len(words), math.fsum(best) / len(best))


def _compute_best_accuracy(
    language: Language, sentences: Sequence[PlantedSentence], sentence_index: int, word_index: int
) -> float:
    """Compute the probability of the likeliest word for a blank, given all other words."""
    sentence = sentences[sentence_index]
    slot = sentence.slots[word_index]
    if slot not in language.word_probabilities:
        return 1.0
    logs = [math.log(share) for share in language.shares]
    for i, other in enumerate(sentences):
        for j, both in enumerate(other.word_log_p):
            if (i, j) != (sentence_index, word_index):
                logs = [log + p for log, p in zip(logs, both, strict=True)]
    # "a" or "an" before the blank excludes the words of the other article.
    before = (
        sentence.words[word_index - 1]
        if word_index and sentence.slots[word_index - 1] == "a"
        else None
    )
    joint: dict[str, float] = {}
    for log, chances in zip(logs, language.word_probabilities[slot], strict=True):
        # Relative to the larger one, which cancels in the share: exp of a document's
        # log-probability could underflow to 0.
        for word, p in chances.items():
            if before in (None, indefinite_article(word)):
                joint[word] = joint.get(word, 0.0) + math.exp(log - max(logs)) * p
    return max(joint.values()) / math.fsum(joint.values())


def _measure_next_sentence(
    lm: LM, language: Language, documents: Sequence[PlantedDocument], rng: random.Random
) -> SkillEstimate:
    """Measure how often the model predicts correctly whether a sentence follows another."""
    pairs, truth, best_hits = [], [], 0.0
    for document in documents:
        for first, second in pairwise(document.sentences):
            is_next = rng.random() < 0.5
            # Never an opening: it follows no sentence, so its form would reveal the answer.
            other = rng.choice(rng.choice(documents).sentences[1:])
            candidate = second if is_next else other
            pairs.append((first.text, candidate.text))
            truth.append(is_next)
            odds = _compute_next_sentence_odds(language, first, candidate)
            # At even odds the best predictor guesses.
            best_hits += 0.5 if odds == 1 else (odds > 1) == is_next
    predictions = lm.next_sentence(pairs)
    hits = sum(
        bool(yes > no) == is_next for (yes, no), is_next in zip(predictions, truth, strict=True)
    )
    return _estimate_share(
        "sentences predicted to follow", hits, len(pairs), best_hits / len(pairs)
    )


def _compute_next_sentence_odds(
    language: Language, first: PlantedSentence, second: PlantedSentence
) -> float:
    """Compute the odds that the second follows the first, rather than being of any document."""
    # A document is about a person or about nobody throughout.
    is_about_nobody = [sentence.kind == "elsewhere" for sentence in (first, second)]
    if is_about_nobody[0] != is_about_nobody[1]:
        return 0.0
    if all(is_about_nobody):
        return 1 / NOBODY_SHARE
    logs = np.log(language.shares)
    after = logsumexp(logs + first.log_p + second.log_p) - logsumexp(logs + first.log_p)
    return float(np.exp(after - logsumexp(logs + second.log_p))) / (1 - NOBODY_SHARE)


def _estimate_share(name: str, hits: int, n: int, best: float) -> SkillEstimate:
    interval = proportion_interval(hits, n)
    return SkillEstimate(Estimate(name=name, value=hits / n, interval=interval, n=n), best)
