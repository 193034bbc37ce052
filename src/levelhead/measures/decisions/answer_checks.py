"""Does a model answer at all? Checks before the skill that a measure of decisions needs.

Log-odds exist of answers that a model never gives, too, and may follow facts and groups: below a
refusal, a fixed letter or the place of an option. They are no evidence of what the model decides.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, cast

import torch

from levelhead.measures.skills.checks import SkillCheck

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.measures.items import QueryArgs
    from levelhead.measures.responses import Responses

MIN_ANSWER_SHARE = 1e-3
"""Probability of all listed answers together below which a request is not answered: the model would
write something else, such as a refusal. Low, because answers may be worded in other ways, too."""
MIN_OTHER_PLACES = 1.0
"""Percentage of requests whose likeliest answer must be listed at another place than most."""
ANSWERS = "gives one of the listed answers (not a refusal or another text)"
CONTENT = "gives answers that are not always listed at the same place"


def note_unanswered(responses: Responses) -> tuple[str, ...]:
    """A note on items some of whose requests are not answered; empty if all are."""
    if responses.query_kind != "choose":
        return ()
    shares = _score_answered(responses)
    n_unanswered = int((shares < 1).sum())
    if not n_unanswered:
        return ()
    return (
        f"{n_unanswered} of {len(shares)} items have requests whose listed answers have less than "
        f"{MIN_ANSWER_SHARE:.1%} of the probability: the model would write something else",
    )


def find_listed_places(query: QueryArgs) -> tuple[int, ...]:
    """Place at which a request lists each answer, counted from 0; empty unless it lists all.

    >>> find_listed_places(("Is no news good news? Answer No or Yes.", ("Yes", "No")))
    (1, 0)
    """
    request, answers = str(query[0]), cast("Sequence[str]", query[1])
    # The last one: a context may name the answers before they are listed.
    positions = [_find_last(answer, request) for answer in answers]
    if min(positions) < 0:
        return ()
    return tuple(sorted(positions).index(position) for position in positions)


def _find_last(words: str, text: str) -> int:
    """Where some words are found last in a text, not as a part of other words; -1: nowhere."""
    begin = text.rfind(words)
    while begin >= 0:
        end = begin + len(words)
        if not (text[begin - 1 : begin].isalnum() or text[end : end + 1].isalnum()):
            return begin
        begin = text.rfind(words, 0, end - 1)
    return -1


def _score_answered(responses: Responses) -> torch.Tensor:
    """Share of the requests of each item whose listed answers are likely; items that list any."""
    n_answers = responses.values.shape[-1] // 2
    log_p = responses.values[..., :n_answers].logsumexp(-1)
    is_answered = log_p.exp() >= MIN_ANSWER_SHARE
    shares = []
    for item, answered in zip(responses.items, is_answered, strict=True):
        # Where answers are not listed, their exact words are unlikely in any answer.
        listed = [i for i, query in enumerate(item.queries) if find_listed_places(query)]
        if listed:
            shares.append(answered[listed].double().mean())
    return torch.stack(shares) if shares else torch.zeros(0)


def _score_places(responses: Responses) -> torch.Tensor:
    """Share of the requests of each item whose answer is not at the place of most answers.

    No scores if the place says nothing: the answers are not listed, or always in the same order.
    """
    n_answers = responses.values.shape[-1] // 2
    chosen = responses.values[..., :n_answers].argmax(-1).tolist()
    orders: set[tuple[int, ...]] = set()
    items: list[list[int]] = []
    for item, columns in zip(responses.items, chosen, strict=True):
        listed = [find_listed_places(query) for query in item.queries]
        orders |= {places for places in listed if places}
        items.append(
            [places[column] for places, column in zip(listed, columns, strict=True) if places]
        )
    if len(orders) < 2:
        return torch.zeros(0)
    commonest = Counter(place for places in items for place in places).most_common(1)[0][0]
    shares = [
        sum(place != commonest for place in places) / len(places) for places in items if places
    ]
    return torch.tensor(shares, dtype=torch.float64)


ANSWER_CHECKS = (
    SkillCheck(ANSWERS, _score_answered, unit="% of requests"),
    SkillCheck(CONTENT, _score_places, None, 0.0, MIN_OTHER_PLACES, unit="% at another place"),
)
"""Checks of the responses to a measure's own requests."""
