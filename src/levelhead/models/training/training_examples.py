"""What a model that is trained further is shown and asked, a pure function of seed and row number.

A row's blanks do not depend on which rows were drawn before it, so that training can go on from any
step as if it had never stopped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from levelhead.core.errors import LevelheadError
from levelhead.models.inputs.batching import padded
from levelhead.models.inputs.tokenizer import NotReadable, Row, TooLong
from levelhead.models.training.from_scratch import IGNORED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.models.inputs.tokenizer import Tokens
    from levelhead.models.lm import LM

WINDOW = 16
"""Batches whose rows are sorted by length together: less padding, half the time."""


class Lesson(NamedTuple):
    """A text as tokens, and the positions that may be asked for."""

    row: Row
    asked: tuple[int, ...]


def lesson(lm: LM, text: str, *, max_tokens: int) -> Lesson | str:
    """A text to learn from, or why it is none."""
    too_long = f"more than {max_tokens} tokens"
    try:
        encoded = lm.tokens.encode([text])[0]
    except TooLong:
        return too_long
    except NotReadable:
        return "no tokens"
    except LevelheadError:
        return "a mask token is written out"
    row = encoded.row
    if len(row.ids) > max_tokens:
        return too_long
    first = 1 if lm.anatomy.cls.causal else 0  # nothing foretells the first token
    asked = tuple(i for i in encoded.words() if i >= first and row.ids[i] != lm.tokens.unknown)
    return Lesson(row, asked) if asked else "no token that can be asked for"


class Lessons(torch.utils.data.Dataset[int]):
    """Rows in the order they are shown in; a row is named by its number."""

    def __init__(
        self,
        tokens: Tokens,
        lessons: Sequence[Lesson],
        *,
        rows: int,
        batch: int,
        masked: float | None,
        seed: int,
    ) -> None:
        self.tokens, self.lessons, self.masked, self.seed = tokens, lessons, masked, seed
        self.order = _order([len(one.row.ids) for one in lessons], rows, batch, seed)
        special = set(tokens.tokenizer.all_special_ids)
        self.ordinary = np.array([i for i in range(len(tokens.tokenizer)) if i not in special])

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, index: int) -> int:
        return index

    def collated(self, numbers: list[int]) -> dict[str, torch.Tensor]:
        """A batch, padded; what is asked for as labels at the tokens' own positions."""
        shown = [self.lessons[self.order[number]] for number in numbers]
        rows = [one.row for one in shown]
        batch = padded(
            rows, range(len(rows)), pad=self.tokens.pad, device=torch.device("cpu")
        ).inputs
        ids = batch["input_ids"]
        labels = torch.full_like(ids, IGNORED)
        for place, (number, one) in enumerate(zip(numbers, shown, strict=True)):
            if self.masked is None:
                asked = torch.tensor(one.asked)
                labels[place, asked] = ids[place, asked]
                continue
            rng = np.random.default_rng((self.seed, number))
            count = max(1, round(self.masked * len(one.asked)))
            asked = torch.from_numpy(rng.permutation(one.asked)[:count])
            labels[place, asked] = ids[place, asked]
            ids[place, asked] = self._blanked(ids[place, asked], rng)
        return batch | {"labels": labels}

    def _blanked(self, ids: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        """Devlin et al. (2019): 80% the mask, 10% another token, 10% as it is."""
        how = torch.from_numpy(rng.random(len(ids)))
        others = torch.from_numpy(rng.choice(self.ordinary, len(ids)))
        masks = torch.full_like(ids, self.tokens.mask)
        return torch.where(how < 0.8, masks, torch.where(how < 0.9, others, ids))


def _order(lengths: Sequence[int], rows: int, batch: int, seed: int) -> list[int]:
    """Which text each row is: as given, but batches of a window are of like length, and mixed."""
    rng = np.random.default_rng(seed)
    order: list[int] = []
    for begin in range(0, rows, WINDOW * batch):
        end = min(begin + WINDOW * batch, rows)
        part = sorted((i % len(lengths) for i in range(begin, end)), key=lengths.__getitem__)
        cut = [part[i : i + batch] for i in range(0, len(part), batch)]
        order += [row for i in rng.permutation(len(cut)) for row in cut[i]]
    return order
