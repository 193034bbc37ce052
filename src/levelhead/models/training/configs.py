"""Settings of continued pretraining and of fine-tuning."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from levelhead.core.errors import LevelheadError


@final
@dataclass(frozen=True)
class ContinuedPretrainingConfig:
    """All settings of a continued pretraining, except the base and the texts."""

    steps: int = 200
    batch_size: int = 32
    learning_rate: float = 5e-5
    mask_fraction: float = 0.15
    """Share of a text's tokens that a masked model has to predict; at least one token."""
    dropout: tuple[float, float] | None = None
    """Dropout of hidden states and of attention during training; None: the base's."""
    max_tokens: int = 64
    """Texts with more tokens are left out."""
    seed: int = 0
    threads: int = 2
    save_steps: int = 50
    """Steps between checkpoints. It changes no weight."""

    def __post_init__(self) -> None:
        counts = (self.steps, self.batch_size, self.threads, self.save_steps)
        # Fewer than 4 tokens leave no context: two of them are special in most encoders.
        if min(counts) < 1 or self.max_tokens < 4 or self.seed < 0:
            raise LevelheadError(
                f"no model can be trained with {self}",
                hint="give counts of at least 1, at least 4 tokens and a seed of 0 or more",
            )
        if not (
            math.isfinite(self.learning_rate)
            and self.learning_rate > 0
            and 0 < self.mask_fraction < 1
        ):
            raise LevelheadError(
                f"a learning rate of {self.learning_rate} or a mask fraction of "
                f"{self.mask_fraction} is out of range",
                hint="give a rate above 0, such as 5e-5, and a share between 0 and 1, such as 0.15",
            )
        if not all(0 <= rate < 1 for rate in self.dropout or ()):
            raise LevelheadError(
                f"a dropout of {self.dropout} is out of range",
                hint="give shares of at least 0 and below 1",
            )


@final
@dataclass(frozen=True)
class LowRankConfig:
    """Size of a low-rank adapter (LoRA; Hu et al. 2022, section 4.1)."""

    rank: int = 8
    alpha: int = 16
    """The update of a weight is alpha / rank times the product of its two factors; 0: no update."""

    def __post_init__(self) -> None:
        if self.rank < 1 or self.alpha < 0:
            raise LevelheadError(
                f"no adapter has a rank of {self.rank} and an alpha of {self.alpha}",
                hint="give a rank of at least 1 and an alpha of at least 0, such as 8 and 16",
            )


@final
@dataclass(frozen=True)
class FinetuneConfig:
    """All settings of a fine-tuning, except the base and the texts."""

    epochs: float = 1.0
    batch_size: int = 32
    learning_rate: float = 1e-4
    max_tokens: int = 128
    """Maximum number of tokens of a text; longer texts are truncated."""
    dropout: bool = True
    """Whether the base's dropout is on during training. Without it, a step takes a quarter less
    time."""
    seed: int = 0
    threads: int = 2
    save_steps: int = 200
    """Steps between checkpoints. It changes no weight."""

    def __post_init__(self) -> None:
        counts = (self.batch_size, self.threads, self.save_steps)
        if min(counts) < 1 or self.max_tokens < 4 or self.seed < 0:
            raise LevelheadError(
                f"no model can be trained with {self}",
                hint="give counts of at least 1, at least 4 tokens and a seed of 0 or more",
            )
        if not all(
            math.isfinite(value) and value > 0 for value in (self.learning_rate, self.epochs)
        ):
            raise LevelheadError(
                f"a learning rate of {self.learning_rate} or {self.epochs} epochs is out of range",
                hint="give numbers above 0, such as a rate of 1e-4 and 2 epochs",
            )
