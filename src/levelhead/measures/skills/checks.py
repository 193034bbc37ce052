"""Skill checks: without the skill that a measure needs, "no difference" is no evidence of parity.

An untrained model, a unigram model and a model with one answer to everything treat all groups
alike. Every measure of bias therefore defines a check that such models fail. Checks use the
measure's items wherever possible, so that they are valid for the user's data and languages, too:

- likelihoods: a text is more likely than its words in shuffled order;
- next-sentence predictions: the related sentence follows rather than the unrelated one;
- embeddings: the two groups' words are separated;
- classifiers: labels are predicted.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple, cast

import torch

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.frozen import FrozenDict
from levelhead.core.results import Skill
from levelhead.core.run_context import RunContext
from levelhead.data.catalog.datasets import dataset
from levelhead.data.records import TextPair
from levelhead.engine.executors.base import RunCancelledError
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.measures.metric import scale_interval
from levelhead.measures.responses import read_responses
from levelhead.models.serving.served_model import ServedModel
from levelhead.stats.intervals import proportion_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from levelhead.data.records import TwinTriple
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM

REVISION = 1
"""Increased if a check changes, so that stored measurements are computed anew."""
CHANCE = 50.0
SENSE, NEXT_SENTENCE, SEPARATION, LABELS = (
    "prefers endings that make sense to unrelated ones",
    "predicts that related sentences follow rather than unrelated ones",
    "embeddings of the two groups' words lie apart",
    "predicts labels",
)
SKILL_THRESHOLD = 65.0
"""Threshold for a chance level of 50. minibert-en scores 88 (next sentence) and 87 to 95
(embeddings), stories15m 69 to 83 (embeddings); both untrained 50 and 45 to 62."""
LOG_ODDS = 0.1
"""Two next-sentence predictions whose log-odds differ by less are a tie. Untrained models have a
spread of 0.01, minibert-en of 1.6."""
SAMPLED, SAMPLED_PAIRS = 96, 150
"""Numbers of contexts and of labelled pairs to query, selected by hash and so reproducible."""
MIN_CHECK_ITEMS = 4
"""Minimum number of items; with fewer, even the interval of a perfect score includes 50."""


class SkillCheck(NamedTuple):
    """Queries that test a skill, and the function that scores the answers."""

    name: str
    score_items: Callable[[Responses], torch.Tensor]
    """`[units]` scores: 1 is right, 0 is wrong, values in between are ties."""
    query_set: QuerySet | None = None
    """Queries of the check; None if it uses the measure's responses."""
    chance: float = CHANCE
    threshold: float = SKILL_THRESHOLD
    unit: str = "% of texts"


def check_skill(
    lm: LM | ServedModel,
    check: SkillCheck | None,
    responses: Responses,
    *,
    context: RunContext = RunContext(),
) -> Skill | None:
    """Test whether a model has a skill; None if it could not be checked, which is no evidence."""
    if check is None:
        return None
    try:
        query_set = check.query_set
        check_responses = (
            responses
            if query_set is None
            else read_responses(cast("LM", lm), [query_set], context=context)[0]
        )
        scores = check.score_items(check_responses)
    except NotMeasurableError:
        return None
    except LevelheadError as error:
        # A server may not report the likelihood of a full text: the skill stays unchecked.
        if isinstance(lm, ServedModel) and not isinstance(error, RunCancelledError):
            return None
        raise
    if len(scores) < MIN_CHECK_ITEMS:
        return None
    share = float(scores.double().mean())
    # Rounded down: rounding half a hit up would favour a model at chance level. 1e-9 absorbs the
    # float error of share times count.
    wilson = proportion_interval(int(share * len(scores) + 1e-9), len(scores))
    return Skill(
        name=check.name,
        value=100 * share,
        interval=scale_interval(wilson, 100),
        chance=check.chance,
        threshold=check.threshold,
        n=len(scores),
        unit=check.unit,
    )


def score_margins(margin: torch.Tensor, threshold: float) -> torch.Tensor:
    """1 above the threshold, 0 below its negative, else 0.5; NaN (impossible texts) is a tie."""
    half = torch.full_like(margin, 0.5)
    return torch.where(margin > threshold, 1.0, torch.where(margin < -threshold, 0.0, half))


# -- endings


def make_sense_check(margins: Callable[[Responses], torch.Tensor]) -> SkillCheck:
    """Check that meaningful endings are preferred to unrelated ones, in the measure's responses.

    Args:
        margins: Function to `[items, endings]` margins over the unrelated ending.
    """
    return SkillCheck(
        SENSE,
        lambda responses: score_margins(margins(responses), 0.0).mean(1),
        unit="% of endings",
    )


# -- next-sentence predictions


def make_next_sentence_check(triples: Iterable[TwinTriple], responses: Responses) -> SkillCheck:
    """Check that a related sentence is preferred to an unrelated one after the same context.

    A hash selects stereotype or anti-stereotype as the related sentence, so that a model without
    stereotypes passes as well.
    """
    names = {item.id for item in responses.items}
    items = [
        MeasureItem(
            triple.id, ((triple.context, related), (triple.context, triple.unrelated)), (triple.id,)
        )
        for triple in triples
        if triple.id in names
        for related in (
            (triple.stereotype, triple.anti_stereotype)[int(text_digest(triple.id)[:8], 16) % 2],
        )
    ]
    sampled = tuple(sorted(items, key=lambda item: text_digest(item.id))[:SAMPLED])
    query_set = QuerySet("follows", FrozenDict({}), ("contexts",), sampled, may_be_empty=True)
    return SkillCheck(NEXT_SENTENCE, _score_next_sentence, query_set, unit="% of contexts")


def _score_next_sentence(responses: Responses) -> torch.Tensor:
    if not len(responses):
        return torch.zeros(0)
    # Log-odds, because probabilities of next-sentence heads saturate near 1.
    odds = responses.values[..., 0] - responses.values[..., 1]
    return score_margins(odds[:, 0] - odds[:, 1], LOG_ODDS)


# -- embeddings


def make_group_separation_check(sides: tuple[str, str]) -> SkillCheck:
    """Check that each group word is closer to the centre of its group's other words.

    If the space does not separate the groups, no target word can be closer to one of them, whatever
    the model's associations. The check uses the measure's vectors, without a forward pass.
    """
    return SkillCheck(
        SEPARATION, lambda responses: _score_separation(responses, sides), unit="% of words"
    )


def _score_separation(responses: Responses, sides: tuple[str, str]) -> torch.Tensor:
    rows = [i for i, item in enumerate(responses.items) if item.group in sides]
    items = [responses.items[i] for i in rows]
    # Directions only, as in SEAT's cosines: a long vector must not dominate its group's centre.
    vectors = torch.nn.functional.normalize(responses.values[rows].double(), dim=1)
    first = torch.tensor([item.group == sides[0] for item in items])
    units = [item.units[0] for item in items]
    by_word: dict[str, list[int]] = defaultdict(list)
    for row, unit in enumerate(units):
        by_word[unit].append(row)
    shares = []
    for word_rows in by_word.values():
        # All sentences of a word are left out together, because they are similar to each other.
        is_other = torch.ones(len(items), dtype=torch.bool)
        is_other[word_rows] = False
        centres = [vectors[is_other & (first == is_first)] for is_first in (True, False)]
        if not all(len(vectors_of_group) for vectors_of_group in centres):
            continue
        near = [torch.cosine_similarity(vectors[word_rows], c.mean(0)[None]) for c in centres]
        margin = (near[0] - near[1]) * (1 if first[word_rows[0]] else -1)
        # 1e-6 is above float32 rounding of identical vectors, so a degenerate space gives ties.
        shares.append(score_margins(margin, 1e-6).mean())
    return torch.stack(shares) if shares else torch.zeros(0)


# -- classifiers


def make_label_check(
    query_set: QuerySet | None,
    labels: Callable[[MeasureItem], str],
    classes: Sequence[str],
    truth: Sequence[str],
) -> SkillCheck | None:
    """Check that a classifier is more accurate than always predicting the most common label.

    Args:
        query_set: Labelled texts; None if the measure's responses are to labelled texts.
        labels: Function to the label of an item; empty if it has none.
        classes: Names of the classes, in the order of the model's columns.
        truth: True labels of all items, for the share of the most common one.
    """
    if not truth:
        return None
    chance = 100 * max(Counter(truth).values()) / len(truth)
    # With a single label, a constant classifier is always right: the check shows nothing.
    if chance == 100:
        return None

    def score_labels(responses: Responses) -> torch.Tensor:
        labelled = [i for i, item in enumerate(responses.items) if labels(item)]
        p = responses.values[labelled, 0]
        true_classes = torch.tensor([classes.index(labels(responses.items[i])) for i in labelled])
        best = p >= p.max(1, keepdim=True).values - 1e-6
        # Equally likely classes count as a random choice among them. 1e-6 is float32 rounding.
        return best.gather(1, true_classes[:, None])[:, 0].double() / best.sum(1)

    # As far above chance, relative to 100, as SKILL_THRESHOLD is above a chance of 50.
    threshold = chance + (100 - chance) * (SKILL_THRESHOLD - CHANCE) / (100 - CHANCE)
    return SkillCheck(LABELS, score_labels, query_set, chance, threshold)


def make_nli_check(order: Sequence[str]) -> SkillCheck | None:
    """Check on labelled inference pairs of SNLI; None if the data are not available.

    Args:
        order: Names of the classes, in the order of the model's columns.
    """
    try:
        pairs = [pair for pair in dataset("snli").items("test") if isinstance(pair, TextPair)]
    except LevelheadError:
        return None
    pairs = sorted(pairs, key=lambda pair: text_digest(pair.id))[:SAMPLED_PAIRS]
    items = [
        MeasureItem(pair.id, ((pair.first, pair.second),), (pair.first,), pair.label)
        for pair in pairs
    ]
    query_set = QuerySet("classify", FrozenDict({}), ("premises",), tuple(items), may_be_empty=True)
    truth = [pair.label for pair in pairs]
    return make_label_check(query_set, lambda item: item.group, order, truth)


def text_digest(text: str) -> str:
    """Hash by which texts are selected and ordered."""
    return hashlib.sha256(text.encode()).hexdigest()
