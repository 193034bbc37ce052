"""What a training minimises: how rows become a batch, and the loss of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

from levelhead.models.inputs.batching import make_batch
from levelhead.models.queries.vocabulary import compute_token_log_probs
from levelhead.models.training.from_scratch import IGNORED_LABEL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.models.architectures.model_layout import ModelLayout
    from levelhead.models.inputs.tokenizer import TokenRow
    from levelhead.models.training.training_examples import TrainingExampleDataset

Batch = dict[str, torch.Tensor]
MODEL_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
"""Entries of a batch that the model reads."""


class TrainingObjective(Protocol):
    """A loss and its rows.

    A batch depends only on row numbers, so that a training can resume at any step.
    """

    has_dropout: bool
    """Whether the model trains with dropout. A loss that compares states or probabilities with
    those of the base is computed without it: dropout alone would be a difference."""

    @property
    def rows(self) -> torch.utils.data.Dataset[int]:
        """Numbers of the rows, in training order."""
        ...

    def collate(self, row_numbers: list[int]) -> Batch:
        """Build a padded batch."""
        ...

    def compute_loss(self, trainee: ModelLayout, batch: Batch) -> torch.Tensor:
        """Compute the loss of a batch."""
        ...


class TokenPrediction:
    """The loss of language modelling: masked tokens, or the next one."""

    has_dropout = True

    def __init__(self, dataset: TrainingExampleDataset) -> None:
        self.rows = dataset

    def collate(self, row_numbers: list[int]) -> Batch:
        """Build a padded batch with labels at the target tokens."""
        return self.rows.collate(row_numbers)

    def compute_loss(self, trainee: ModelLayout, batch: Batch) -> torch.Tensor:
        """Compute the mean negative log-probability (natural) of the target tokens."""
        labels = batch["labels"]
        hidden = run_backbone(trainee, batch)
        if trainee.model_class.causal:
            # A causal model predicts a token at the position before it.
            hidden, labels = hidden[:, :-1], labels[:, 1:]
        is_target = labels != IGNORED_LABEL
        # Shape [targets, width]: the vocabulary head runs for the targets only.
        return -compute_token_log_probs(
            trainee, hidden[is_target], labels[is_target][:, None]
        ).mean()


class CyclicRows(torch.utils.data.Dataset[int]):
    """Numbers of a few rows in the given order; after the last one, the first follows again."""

    def __init__(self, count: int, length: int) -> None:
        self.count, self.length = count, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return index % self.count


def pad_token_rows(rows: Sequence[TokenRow], pad: int) -> Batch:
    """Make the inputs of a model from token rows."""
    return make_batch(rows, range(len(rows)), pad=pad, device=torch.device("cpu")).inputs


def run_backbone(layout: ModelLayout, batch: Batch) -> torch.Tensor:
    """Compute the last hidden states; the vocabulary head would score every token."""
    hidden: torch.Tensor = layout.backbone(**_model_inputs(batch)).last_hidden_state
    return hidden


def run_layers(layout: ModelLayout, batch: Batch) -> torch.Tensor:
    """Compute the hidden states after every layer, `[layers, rows, tokens, width]`."""
    output = layout.backbone(**_model_inputs(batch), output_hidden_states=True)
    # The first entry holds the embeddings, which are no layer.
    return torch.stack(output.hidden_states[1:])


def _model_inputs(batch: Batch) -> Batch:
    return {name: batch[name] for name in MODEL_INPUTS if name in batch}
