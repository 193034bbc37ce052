"""Parts of a causal model whose weights are constructed: one layer of GPT-2 that looks up words.

A large constant in every vector makes layer norms divide by nearly the same number, so that what is
read is linear in what was written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HEAD_WIDTH = 32
CONSTANT, SINK, PLACE = 0, 1, 2
"""Dimensions: a constant; one that is always 0, which keeps the sum of what is read at 0, so that
the mean that a layer norm subtracts cancels; and the position."""
CONSTANT_SIZE = 512.0
"""So much larger than everything else that layer norms divide by nearly the same number."""
LOOK_UP = 30.0
"""Attention score of the words that a head looks up: others get e^-30 of its weight."""
SWITCH = 12.0
"""Larger than what is switched on or off in the MLP."""


class GptConstruction:
    """Writes words, heads and logits into the weights of a model of one layer."""

    def __init__(self, ids: Mapping[str, int], model: Any) -> None:
        self.ids, self.model = ids, model
        self.width, self.positions = model.config.n_embd, model.config.n_positions
        self.n_dims, self.n_heads, self.n_inner = PLACE + 1, 0, 0
        self.first, self.logits = model.transformer.h[0], model.lm_head.weight
        self.embeddings = model.transformer.wte.weight

    def clear(self) -> None:
        """Set all weights to 0, except norms, the constant and positions."""
        for name, parameter in self.model.named_parameters():
            # The scale of a norm undoes its division, which is by the constant's share of it.
            scale = CONSTANT_SIZE / self.width**0.5 * (1 - 1 / self.width) ** 0.5
            is_scale = name.endswith("weight") and "ln_" in name
            parameter.fill_(scale if is_scale else 0.0)
        self.embeddings[:, CONSTANT] = CONSTANT_SIZE
        places = torch.arange(self.positions) / self.positions
        self.model.transformer.wpe.weight[:, PLACE] = places

    def new_dims(self, count: int) -> list[int]:
        """Reserve dimensions of the hidden states."""
        self.n_dims += count
        if self.n_dims > self.width:
            raise AssertionError("the model is too narrow for its words")
        return list(range(self.n_dims - count, self.n_dims))

    def look_up(self, values: Mapping[str, Sequence[float]], n_values: int) -> list[int]:
        """Add a head: the mean of some words' values, over all of them in the text so far.

        Returns:
            The dimensions with the means; 0 where the text has none of the words.
        """
        indicator, *inputs = self.new_dims(1 + n_values)
        for word, row in values.items():
            self.embeddings[self.ids[word], [indicator, *inputs]] = torch.tensor([1.0, *row])
        return self.add_head({indicator: LOOK_UP}, inputs)

    def add_head(self, key: Mapping[int, float], inputs: Sequence[int]) -> list[int]:
        """Add a head with the scores of a key, which copies some dimensions to new ones."""
        attention, begin = self.first.attn, self.n_heads * HEAD_WIDTH
        self.n_heads += 1
        self.read(attention.c_attn.weight[:, begin], {CONSTANT: 1 / CONSTANT_SIZE})
        # Scores are divided by the root of the width.
        scaled = {dim: score * HEAD_WIDTH**0.5 for dim, score in key.items()}
        self.read(attention.c_attn.weight[:, self.width + begin], scaled)
        outputs = self.new_dims(len(inputs))
        for slot, (source, target) in enumerate(zip(inputs, outputs, strict=True)):
            self.read(attention.c_attn.weight[:, 2 * self.width + begin + slot], {source: 1.0})
            attention.c_proj.weight[begin + slot, target] = 1.0
        return outputs

    def read(self, weights: torch.Tensor, amounts: Mapping[int, float]) -> None:
        """Read dimensions in some amounts; what has been read stays."""
        for dim, amount in amounts.items():
            weights[dim] += amount
            weights[SINK] -= amount

    def switch(
        self,
        amounts: Mapping[int, float],
        switch: Mapping[int, float],
        targets: Mapping[int, float],
    ) -> None:
        """Add `amounts` to targets where the switch is 1, and nothing where it is 0 or below."""
        mlp = self.first.mlp
        for sign in (1.0, -1.0):
            unit = self.n_inner
            self.n_inner += 1
            read = {dim: sign * amount for dim, amount in amounts.items()}
            for dim, amount in switch.items():
                read[dim] = read.get(dim, 0.0) + SWITCH * amount
            self.read(mlp.c_fc.weight[:, unit], read)
            mlp.c_fc.bias[unit] = -SWITCH
            for dim, amount in targets.items():
                mlp.c_proj.weight[unit, dim] = sign * amount

    def write_where_all(self, dims: Sequence[int], value: float, target: int) -> None:
        """Add a value to a dimension where all of some dimensions, which are 0 or 1, are 1."""
        unit = self.n_inner
        self.n_inner += 1
        self.read(self.first.mlp.c_fc.weight[:, unit], dict.fromkeys(dims, SWITCH))
        self.first.mlp.c_fc.bias[unit] = SWITCH * (1 - len(dims))
        self.first.mlp.c_proj.weight[unit, target] = value / SWITCH

    def score(self, word: str, amounts: Mapping[int, float]) -> None:
        """Add to the logit of a word."""
        self.read(self.logits[self.ids[word]], amounts)
