"""Token trees: several continuations of one text share its tokens in one row.

In a causal model, the state of a token depends only on its position and on the tokens that it
attends to. Where a family accepts both as inputs (`ModelFamily.supports_token_tree`), every token
attends only to its own predecessors, at their distance. A word of several tokens then costs a few
more tokens instead of a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from levelhead.models.diagnostics.one_visible_head import OneVisibleHead
from levelhead.models.inputs.tokenizer import TokenRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.models.architectures.model_layout import ModelLayout
    from levelhead.models.inputs.tokenizer import Tokens

TokenIds = tuple[int, ...]


def max_tree_length(layout: ModelLayout, tokens: Tokens) -> int:
    """Return the maximum length of a row with branches; 0 if the model allows no branches."""
    config = layout.model.config
    if (
        not layout.family.supports_token_tree
        or config._attn_implementation != "sdpa"  # eager attention needs another kind of mask
        or OneVisibleHead.from_config(config) is not None  # it creates its own masks
    ):
        return 0
    # A mask that is passed in replaces the model's sliding window: no row may be longer than it.
    return min(tokens.max_length, getattr(config, "sliding_window", None) or tokens.max_length)


def build_token_tree(stem: TokenIds, words: Sequence[TokenIds]) -> tuple[TokenRow, list[TokenIds]]:
    """Build one row with a stem and all words after it.

    Without branches it is a plain row.

    Args:
        stem: Tokens that all words follow.
        words: Tokens of each word.

    Returns:
        The row, and for every word the positions that predict its tokens.

    >>> row, positions = build_token_tree((7, 8), [(1,), (2, 3), (6, 4, 5)])
    >>> row
    TokenRow(ids=(7, 8, 2, 6, 4), token_types=None, parents=(-1, 0, 1, 1, 3))
    >>> positions
    [(1,), (1, 2), (1, 3, 4)]
    """
    end = len(stem) - 1
    ids, parents = [*stem], [*range(-1, end)]
    position_of: dict[TokenIds, int] = {(): end}
    for word in words:
        # Without the last token of a word: nothing is predicted from it.
        for n in range(1, len(word)):
            if word[:n] not in position_of:
                position_of[word[:n]] = len(ids)
                ids.append(word[n - 1])
                parents.append(position_of[word[: n - 1]])
    positions = [tuple(position_of[word[:n]] for n in range(len(word))) for word in words]
    is_chain = parents == [*range(-1, len(ids) - 1)]
    return TokenRow(tuple(ids), None, () if is_chain else tuple(parents)), positions


def tree_attention_mask(rows: Sequence[TokenRow], width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Build the attention mask, `[batch, 1, width, width]`, and the position of each token.

    Padding attends to all tokens before it, because a row of the mask without any token gives NaN.

    Args:
        rows: Rows of the batch.
        width: Length of the padded rows.
    """
    mask = torch.ones(width, width, dtype=torch.bool).tril().repeat(len(rows), 1, 1)
    position_ids = torch.arange(width).repeat(len(rows), 1)
    for i, row in enumerate(rows):
        depth: list[int] = []
        for token, parent in enumerate(row.parents):
            depth.append(depth[parent] + 1 if parent >= 0 else 0)
            # In a branch, a token attends to what its predecessor attends to, and to itself.
            if depth[-1] < token:
                mask[i, token] = mask[i, parent]
                mask[i, token, token] = True
        position_ids[i, : len(depth)] = torch.tensor(depth, dtype=torch.long)
    return mask[:, None], position_ids
