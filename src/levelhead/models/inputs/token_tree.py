"""Words that go on from one text share its tokens: a tree of tokens in one row.

What a causal model makes of a token depends on its place and on the tokens it sees. Where a family
takes both from its caller (`Family.branches`), every token sees its own forerunners alone, at their
distance, and all words of several tokens cost a few tokens more instead of a row each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from levelhead.models.diagnostics.one_visible_head import KnownHead
from levelhead.models.inputs.tokenizer import Row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.models.lm import LM

Ids = tuple[int, ...]


def longest(lm: LM) -> int:
    """The most tokens that a row with branches may have; 0 if there can be none."""
    config = lm.anatomy.model.config
    if (
        not lm.anatomy.family.branches
        or config._attn_implementation != "sdpa"  # eager attention wants another kind of mask
        or KnownHead.of(config) is not None  # it makes masks of its own
    ):
        return 0
    # A model's own window is not in a mask that is given: no row may be longer than it.
    return min(lm.tokens.limit, getattr(config, "sliding_window", None) or lm.tokens.limit)


def tree(stem: Ids, words: Sequence[Ids]) -> tuple[Row, list[Ids]]:
    """A row of what all words show behind a stem; for every word, where its tokens are foretold.

    Where nothing branches off it is a plain row.

    >>> tree((7, 8), [(1,), (2, 3), (6, 4, 5)])
    (Row(ids=(7, 8, 2, 6, 4), types=None, after=(-1, 0, 1, 1, 3)), [(1,), (1, 2), (1, 3, 4)])
    """
    end = len(stem) - 1
    ids, after = [*stem], [*range(-1, end)]
    at: dict[Ids, int] = {(): end}
    for word in words:
        for n in range(1, len(word)):
            if word[:n] not in at:
                at[word[:n]] = len(ids)
                ids.append(word[n - 1])
                after.append(at[word[: n - 1]])
    places = [tuple(at[word[:n]] for n in range(len(word))) for word in words]
    plain = after == [*range(-1, len(ids) - 1)]
    return Row(tuple(ids), None, () if plain else tuple(after)), places


def seen(rows: Sequence[Row], width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Which tokens each sees, `[batch, 1, width, width]`, and at which place each stands.

    Padding sees all before it: a token that sees nothing would be NaN.
    """
    mask = torch.ones(width, width, dtype=torch.bool).tril().repeat(len(rows), 1, 1)
    places = torch.arange(width).repeat(len(rows), 1)
    for i, row in enumerate(rows):
        depth: list[int] = []
        for token, before in enumerate(row.after):
            depth.append(depth[before] + 1 if before >= 0 else 0)
            if depth[-1] < token:  # in a branch: it sees what its forerunner sees, and itself
                mask[i, token] = mask[i, before]
                mask[i, token, token] = True
        places[i, : len(depth)] = torch.tensor(depth, dtype=torch.long)
    return mask[:, None], places
