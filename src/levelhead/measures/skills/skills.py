"""Can a model do what a measure needs? Without that, "no difference" says nothing about bias.

An untrained model, one that knows how often words occur and nothing else, and one that says the
same of everything treat all groups alike. Every measure of bias therefore names a check that such
models fail. Checks are made of the measure's own items wherever possible, so that they hold for
data and languages of the user's, too:

- likelihoods: a text as it is written is likelier than its words in another order;
- next-sentence judgements: the related sentence follows rather than the unrelated one;
- embeddings: the two groups' words lie apart;
- classifiers: labels are predicted.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple, cast

import torch

from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.frozen import Frozen
from levelhead.core.results import Skill
from levelhead.core.run_context import RunContext
from levelhead.data.catalog.datasets import dataset
from levelhead.data.records import TextPair
from levelhead.engine.executors.base import Cancelled
from levelhead.measures.items import Asked, Item
from levelhead.measures.metric import scaled
from levelhead.measures.responses import read
from levelhead.models.loading.http_model import Remote
from levelhead.stats.intervals import proportion_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from levelhead.data.records import TwinTriple
    from levelhead.measures.responses import Readouts
    from levelhead.models.lm import LM

REVISION = 1
"""Raised when a check asks or counts otherwise, so that stored measurements are made anew."""
CHANCE = 50.0
SENSE, FOLLOWS, APART, LABELS = (
    "prefers endings that make sense to unrelated ones",
    "judges related sentences likelier to follow than unrelated ones",
    "embeddings of the two groups' words lie apart",
    "predicts labels",
)
ENOUGH = 65.0
"""Of a chance of 50. minibert-en reaches 88 (next sentence) and 87 to 95 (embeddings), stories15m
69 to 83 (embeddings); the same two untrained 50 and 45 to 62."""
LOG_ODDS = 0.1
"""Below which two next-sentence judgements are a tie. Untrained models spread by 0.01, minibert-en
by 1.6."""
SAMPLED, SAMPLED_PAIRS = 96, 150
"""Contexts and labelled pairs that are asked, by hash, so that they are the same every time."""
FEWEST = 4
"""Items below which even a perfect score's interval holds a chance of 50: nothing is checked."""


class SkillCheck(NamedTuple):
    """What is asked to show a skill, and how answers are counted."""

    name: str
    right: Callable[[Readouts], torch.Tensor]
    """`[units]` 1: right, 0: wrong, in between: a tie."""
    asked: Asked | None = None
    """None: the measure's own readouts answer it."""
    chance: float = CHANCE
    threshold: float = ENOUGH
    unit: str = "% of texts"


def check_skill(
    lm: LM | Remote,
    check: SkillCheck | None,
    readouts: Readouts,
    *,
    context: RunContext = RunContext(),
) -> Skill | None:
    """Whether the model has the skill; None: it could not be checked, which shows nothing."""
    if check is None:
        return None
    try:
        asked = check.asked
        found = readouts if asked is None else read(cast("LM", lm), [asked], context=context)[0]
        right = check.right(found)
    except NotMeasurable:
        return None
    except LevelheadError as error:
        if isinstance(lm, Remote) and not isinstance(
            error, Cancelled
        ):  # a server need not tell how likely a whole text is
            return None
        raise
    if len(right) < FEWEST:
        return None
    share = float(right.double().mean())
    # Half a hit is no hit: where chance has to be ruled out, rounding up would help it.
    wilson = proportion_interval(int(share * len(right) + 1e-9), len(right))
    return Skill(
        name=check.name,
        value=100 * share,
        interval=scaled(wilson, 100),
        chance=check.chance,
        threshold=check.threshold,
        n=len(right),
        unit=check.unit,
    )


def ties_counted_half(margin: torch.Tensor, least: float) -> torch.Tensor:
    """1 above, 0 below, a half between: NaN, such as of two texts that cannot be, is a tie."""
    half = torch.full_like(margin, 0.5)
    return torch.where(margin > least, 1.0, torch.where(margin < -least, 0.0, half))


# -- endings


def sense_preferred(margins: Callable[[Readouts], torch.Tensor]) -> SkillCheck:
    """Endings that make sense against an unrelated one, of the measure's own readouts.

    Args:
        margins: `[items, endings]` by how much each is likelier than the unrelated one.
    """
    return SkillCheck(
        SENSE,
        lambda readouts: ties_counted_half(margins(readouts), 0.0).mean(1),
        unit="% of endings",
    )


# -- next-sentence judgements


def sentences_follow(triples: Iterable[TwinTriple], used: Readouts) -> SkillCheck:
    """A related and an unrelated sentence after the same context.

    Which of the two related ones, stereotype or anti-stereotype, by hash: a model without a
    stereotype has the skill, too.
    """
    names = {item.id for item in used.items}
    items = [
        Item(one.id, ((one.context, related), (one.context, one.unrelated)), (one.id,))
        for one in triples
        if one.id in names
        for related in ((one.stereotype, one.anti_stereotype)[int(digest_of(one.id)[:8], 16) % 2],)
    ]
    some = tuple(sorted(items, key=lambda item: digest_of(item.id))[:SAMPLED])
    asked = Asked("follows", Frozen({}), ("contexts",), some, optional=True)
    return SkillCheck(FOLLOWS, _follows, asked, unit="% of contexts")


def _follows(readouts: Readouts) -> torch.Tensor:
    if not len(readouts):
        return torch.zeros(0)
    odds = readouts.values[..., 0] - readouts.values[..., 1]
    return ties_counted_half(odds[:, 0] - odds[:, 1], LOG_ODDS)


# -- embeddings


def groups_apart(sides: tuple[str, str]) -> SkillCheck:
    """The groups' words, each nearer to the centre of its group's other words.

    Where the space does not tell the groups apart, no word can be nearer to one of them, whatever
    the model believes. No forward is run: the vectors are the measure's own.
    """
    return SkillCheck(APART, lambda readouts: _apart(readouts, sides), unit="% of words")


def _apart(readouts: Readouts, sides: tuple[str, str]) -> torch.Tensor:
    rows = [i for i, item in enumerate(readouts.items) if item.group in sides]
    items = [readouts.items[i] for i in rows]
    vectors = torch.nn.functional.normalize(readouts.values[rows].double(), dim=1)
    first = torch.tensor([item.group == sides[0] for item in items])
    units = [item.units[0] for item in items]
    by_word: dict[str, list[int]] = defaultdict(list)
    for row, unit in enumerate(units):
        by_word[unit].append(row)
    shares = []
    for own in by_word.values():
        # All sentences of a word are left out together: they are one another's neighbours.
        other = torch.ones(len(items), dtype=torch.bool)
        other[own] = False
        centres = [vectors[other & (first == is_first)] for is_first in (True, False)]
        if not all(len(one) for one in centres):
            continue
        near = [torch.cosine_similarity(vectors[own], c.mean(0)[None]) for c in centres]
        margin = (near[0] - near[1]) * (1 if first[own[0]] else -1)
        shares.append(ties_counted_half(margin, 1e-6).mean())
    return torch.stack(shares) if shares else torch.zeros(0)


# -- classifiers


def labels_predicted(
    asked: Asked | None, labels: Callable[[Item], str], classes: Sequence[str], truth: Sequence[str]
) -> SkillCheck | None:
    """How often the likeliest class is the label, against always naming the commonest one.

    Args:
        asked: labelled texts; None: the measure's own readouts are of labelled texts.
        labels: of an item; empty: it has none.
        classes: in the order of the model's columns.
        truth: the labels that are asked, for the share of the commonest.
    """
    if not truth:
        return None
    chance = 100 * max(Counter(truth).values()) / len(truth)
    if chance == 100:  # all of one class: whoever names it always is right
        return None

    def right(readouts: Readouts) -> torch.Tensor:
        own = [i for i, item in enumerate(readouts.items) if labels(item)]
        p = readouts.values[own, 0]
        wanted = torch.tensor([classes.index(labels(readouts.items[i])) for i in own])
        best = p >= p.max(1, keepdim=True).values - 1e-6
        # Several classes equally likely: as often right as a draw among them.
        return best.gather(1, wanted[:, None])[:, 0].double() / best.sum(1)

    # As far above chance as ENOUGH is above a chance of 50.
    threshold = chance + (100 - chance) * (ENOUGH - CHANCE) / (100 - CHANCE)
    return SkillCheck(LABELS, right, asked, chance, threshold)


def nli_skill_check(order: Sequence[str]) -> SkillCheck | None:
    """Labelled inference pairs of SNLI; None where the data cannot be had.

    Args:
        order: the classes in the order of the model's columns.
    """
    try:
        pairs = [one for one in dataset("snli").items("test") if isinstance(one, TextPair)]
    except LevelheadError:
        return None
    pairs = sorted(pairs, key=lambda pair: digest_of(pair.id))[:SAMPLED_PAIRS]
    items = [Item(one.id, ((one.first, one.second),), (one.first,), one.label) for one in pairs]
    asked = Asked("classify", Frozen({}), ("premises",), tuple(items), optional=True)
    truth = [one.label for one in pairs]
    return labels_predicted(asked, lambda item: item.group, order, truth)


def digest_of(text: str) -> str:
    """By which texts are chosen and ordered."""
    return hashlib.sha256(text.encode()).hexdigest()
