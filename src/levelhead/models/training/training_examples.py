"""Inputs and targets of continued pretraining, as a pure function of seed and row number.

The masked positions of a row do not depend on the rows before it, so that a training can resume at
any step and gives the same weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from levelhead.core.errors import LevelheadError
from levelhead.models.inputs.batching import make_batch
from levelhead.models.inputs.tokenizer import TextTooLongError, TokenRow, UnreadableTextError
from levelhead.models.training.from_scratch import IGNORED_LABEL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.models.inputs.tokenizer import Tokens
    from levelhead.models.lm import LM

WINDOW = 16
"""Number of batches whose rows are sorted by length together: less padding, half the time."""


class TrainingExample(NamedTuple):
    """A text as tokens, and the positions that can be targets."""

    row: TokenRow
    target_positions: tuple[int, ...]


def make_training_example(lm: LM, text: str, *, max_tokens: int) -> TrainingExample | str:
    """Convert a text to a training example, or return the reason why it cannot be used."""
    # The reasons are keys in levelhead.json: their wording is a part of the format.
    too_long = f"more than {max_tokens} tokens"
    try:
        encoded = lm.tokens.encode([text])[0]
    except TextTooLongError:
        return too_long
    except UnreadableTextError:
        return "no tokens"
    except LevelheadError:
        return "a mask token is written out"
    row = encoded.row
    if len(row.ids) > max_tokens:
        return too_long
    # A causal model has no prediction for the first token.
    first = 1 if lm.layout.model_class.causal else 0
    target_positions = tuple(
        i for i in encoded.word_positions() if i >= first and row.ids[i] != lm.tokens.unknown
    )
    return (
        TrainingExample(row, target_positions)
        if target_positions
        else "no token that can be a target"
    )


class TrainingExampleDataset(torch.utils.data.Dataset[int]):
    """Rows in training order; an item of this dataset is the number of a row."""

    def __init__(
        self,
        tokens: Tokens,
        examples: Sequence[TrainingExample],
        *,
        rows: int,
        batch_size: int,
        mask_fraction: float | None,
        seed: int,
    ) -> None:
        self.tokens, self.examples, self.mask_fraction, self.seed = (
            tokens,
            examples,
            mask_fraction,
            seed,
        )
        self.order = _make_row_order(
            [len(example.row.ids) for example in examples], rows, batch_size, seed
        )
        # A random replacement is never a special token: it would change the structure of the text.
        special = set(tokens.tokenizer.all_special_ids)
        self.ordinary_ids = np.array([i for i in range(len(tokens.tokenizer)) if i not in special])

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, index: int) -> int:
        return index

    def collate(self, row_numbers: list[int]) -> dict[str, torch.Tensor]:
        """Build a padded batch; the labels hold the target tokens at their positions."""
        examples = [self.examples[self.order[row_number]] for row_number in row_numbers]
        rows = [example.row for example in examples]
        batch = make_batch(
            rows, range(len(rows)), pad=self.tokens.pad, device=torch.device("cpu")
        ).inputs
        ids = batch["input_ids"]
        labels = torch.full_like(ids, IGNORED_LABEL)
        for i, (row_number, example) in enumerate(zip(row_numbers, examples, strict=True)):
            if self.mask_fraction is None:
                positions = torch.tensor(example.target_positions)
                labels[i, positions] = ids[i, positions]
                continue
            # A generator for each row: masks do not depend on where training was resumed.
            rng = np.random.default_rng((self.seed, row_number))
            # At least one: a batch without targets would have a mean loss of NaN.
            count = max(1, round(self.mask_fraction * len(example.target_positions)))
            positions = torch.from_numpy(rng.permutation(example.target_positions)[:count])
            labels[i, positions] = ids[i, positions]
            ids[i, positions] = self._mask_tokens(ids[i, positions], rng)
        return batch | {"labels": labels}

    def _mask_tokens(self, ids: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        """Replace targets as Devlin et al. (2019): 80% mask, 10% another token, 10% unchanged."""
        roll = torch.from_numpy(rng.random(len(ids)))
        random_ids = torch.from_numpy(rng.choice(self.ordinary_ids, len(ids)))
        masks = torch.full_like(ids, self.tokens.mask)
        return torch.where(roll < 0.8, masks, torch.where(roll < 0.9, random_ids, ids))


def _make_row_order(lengths: Sequence[int], rows: int, batch_size: int, seed: int) -> list[int]:
    """Assign texts to rows: in the given order, but sorted by length into batches in each window.

    The batches of a window are shuffled.
    """
    rng = np.random.default_rng(seed)
    order: list[int] = []
    for begin in range(0, rows, WINDOW * batch_size):
        end = min(begin + WINDOW * batch_size, rows)
        window = sorted((i % len(lengths) for i in range(begin, end)), key=lengths.__getitem__)
        batches = [window[i : i + batch_size] for i in range(0, len(window), batch_size)]
        order += [row for i in rng.permutation(len(batches)) for row in batches[i]]
    return order
