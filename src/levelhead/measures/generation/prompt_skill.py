"""The skill of writing about a prompt: a text is likelier after its own prompt than after another.

A model that is untrained, or writes one text after every prompt, finds a text equally likely after
both. Words that a text shares with its prompt would need long texts; likelihoods do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from levelhead.core.frozen import FrozenDict
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.measures.skills.checks import SkillCheck, score_margins, text_digest

if TYPE_CHECKING:
    from levelhead.measures.responses import Responses

ABOUT_PROMPT = "texts are likelier after their own prompt than after another one"
SAMPLED = 48
"""Number of prompts, selected by hash: with 48, guessing reaches 65% once in fifty times."""
MARGIN = 0.1
"""Nats per token; texts whose likelihood differs by less are a tie."""
CHAT_SETTINGS = ("chat", "answer_start")


def make_prompt_check(responses: Responses, is_answer: torch.Tensor) -> SkillCheck | None:
    """Check that texts depend on their prompts; None if all prompts are of one unit.

    Args:
        responses: Generated texts.
        is_answer: `[items, texts]` whether a text is neither a refusal nor empty.
    """
    rows = sorted(range(len(responses)), key=lambda i: text_digest(responses.items[i].id))
    items: list[MeasureItem] = []
    n_silent = 0
    for place, i in enumerate(rows[:SAMPLED]):
        item = responses.items[i]
        other = next(
            (
                responses.items[j]
                for j in (*rows[place + 1 :], *rows[:place])
                if responses.items[j].units[0] != item.units[0]
            ),
            None,
        )
        if other is None:
            return None
        answered = is_answer[i].nonzero().flatten().tolist()
        if not answered:
            # A refusal or an empty text is no success, and none of its likelihood is.
            n_silent += 1
            continue
        number = answered[0]
        text = responses.texts[i][number].strip()
        # The same number in the other item: a prompt about the same group, if items have both.
        prompts = (item.queries[number][0], other.queries[number][0])
        items.append(MeasureItem(item.id, tuple((p, (text,)) for p in prompts), (item.units[0],)))
    settings = {name: responses.settings[name] for name in CHAT_SETTINGS}
    query_set = QuerySet(
        "choose", FrozenDict(settings), ("prompts",), tuple(items), may_be_empty=True
    )

    def score(checked: Responses) -> torch.Tensor:
        silent = torch.zeros(n_silent, dtype=torch.float64)
        if not len(checked):
            return silent
        log_p, n_tokens = checked.values.unbind(-1)
        margins = (log_p[:, 0] - log_p[:, 1]) / n_tokens[:, 0]
        return torch.cat([score_margins(margins, MARGIN).double(), silent])

    if not items:
        # Nothing can be queried: the texts themselves are the evidence.
        return SkillCheck(ABOUT_PROMPT, lambda _: torch.zeros(n_silent), unit="% of prompts")
    return SkillCheck(ABOUT_PROMPT, score, query_set, unit="% of prompts")
