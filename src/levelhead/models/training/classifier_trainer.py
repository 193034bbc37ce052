"""Train a classifier for `finetune`: new head, batches in a fixed order, transformers' Trainer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
import transformers
from threadpoolctl import threadpool_limits

from levelhead.models.architectures.model_layout import ModelLayout, find_layers, is_transposed
from levelhead.models.diagnostics.one_visible_head import OneVisibleHead
from levelhead.models.edits.merge import merge_edits
from levelhead.models.loading.quiet import quiet
from levelhead.models.training.from_scratch import (
    CPU_TRAINING_ARGUMENTS,
    TrainProgressCallback,
    preserve_rng_state,
)
from levelhead.models.training.resumable import CheckpointMarker, latest_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from levelhead.models.architectures.families import ModelClass
    from levelhead.models.edits.base import Edit
    from levelhead.models.lm import LM
    from levelhead.models.training.configs import FinetuneConfig

WINDOW = 50
"""Number of batches among which texts are assigned by length: less padding, half the time."""
REGRESSION_LABEL = "score"
"""Name of the only output column of a model that predicts a number."""


def train_classifier(
    lm: LM,
    model_class: ModelClass,
    examples: Sequence[dict[str, Any]],
    labels: Sequence[str],
    edits: Sequence[Edit],
    config: FinetuneConfig,
    work_folder: Path,
    progress: Callable[[int, int], None] | None,
) -> Any:
    """Train a new classifier on a base; resumes from the last complete checkpoint in the folder.

    Args:
        lm: Base model.
        model_class: Class of the base's family that has a classifier.
        examples: Tokens and label of every text.
        labels: Names of the classes; empty for a regression.
        edits: Masks of heads, which are merged into the weights before training.
        config: Settings.
        work_folder: Folder for checkpoints.
        progress: Function that is called with steps done and steps in total.
    """
    # Sums over threads depend on how many there are: a fixed number gives the same weights.
    with quiet(), preserve_rng_state(), threadpool_limits(config.threads):
        # Before the model is made: the new head's weights are random.
        torch.manual_seed(config.seed)
        model = make_classifier(lm, model_class, labels)
        if edits:
            layout = merge_edits(ModelLayout.from_model(model, model_class), tuple(edits))
            model = layout.model
            _freeze_masked_heads(layout, edits)
        batches = BatchDataset(examples, lm.tokens.tokenizer, config)
        trainer = _Trainer(
            model=model,
            args=_arguments(config, len(batches), work_folder),
            train_dataset=batches,
            data_collator=batches.collate,
            callbacks=[
                CheckpointMarker(),
                *([TrainProgressCallback(progress)] if progress else []),
            ],
        )
        trainer.dropout = config.dropout
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train(resume_from_checkpoint=latest_checkpoint(work_folder))
    return model


def make_classifier(lm: LM, model_class: ModelClass, labels: Sequence[str]) -> Any:
    """Create a model with the base's weights and a new head, in float32."""
    source, names = lm.identity.checkpoint, list(labels) or [REGRESSION_LABEL]
    model = getattr(transformers, model_class.name).from_pretrained(
        source.folder,
        dtype=torch.float32,
        use_safetensors=not source.is_pickled,
        weights_only=True,
        trust_remote_code=False,
        local_files_only=True,
        problem_type="single_label_classification" if labels else "regression",
        id2label=dict(enumerate(names)),
        label2id={name: i for i, name in enumerate(names)},
    )
    if visible_head := OneVisibleHead.from_config(model.config):
        visible_head.install(model.base_model, find_layers(model))
    return model


def _freeze_masked_heads(layout: ModelLayout, edits: Sequence[Edit]) -> None:
    """Keep masked heads masked: set the gradient of their columns of W_O to 0.

    These columns are 0, and so are their moments in Adam and their weight decay: they stay 0.
    """
    for site in (site for edit in edits for site in edit.sites):
        linear = layout.hook_point("head_out", site.layer).module
        weight = cast("torch.nn.Parameter", linear.weight)
        columns = cast("torch.Tensor", layout.head_columns("head_out", site.layer))[site.head]
        gradient_mask = torch.ones_like(weight)
        (gradient_mask.T if is_transposed(linear) else gradient_mask)[:, columns] = 0
        weight.register_hook(lambda gradient, gradient_mask=gradient_mask: gradient * gradient_mask)


class _Trainer(transformers.Trainer):
    """Computes the loss of one batch for classifiers and regressions."""

    dropout: bool

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Compute the loss of a batch."""
        return compute_classification_loss(model, inputs, dropout=self.dropout)


def compute_classification_loss(
    model: Any, inputs: dict[str, Any], *, dropout: bool
) -> torch.Tensor:
    """Compute the mean negative log-probability (natural) of labels, or squared error of scores."""
    labels = inputs.pop("labels")
    # In all families of the table, training mode changes nothing but dropout.
    model.train(dropout)
    logits = model(**inputs).logits.float()
    if labels.is_floating_point():
        return torch.nn.functional.mse_loss(logits[:, 0], labels)
    return torch.nn.functional.cross_entropy(logits, labels)


class BatchDataset(torch.utils.data.Dataset[int]):
    """The examples of each training step: one item of this dataset is a complete batch."""

    def __init__(
        self, examples: Sequence[dict[str, Any]], tokenizer: Any, config: FinetuneConfig
    ) -> None:
        self.examples = examples
        self.order = make_batch_order([len(example["input_ids"]) for example in examples], config)
        self.pad = transformers.DataCollatorWithPadding(tokenizer)

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, index: int) -> int:
        return index

    def collate(self, batch_indices: list[int]) -> dict[str, Any]:
        """Pad the examples of one batch."""
        (batch_index,) = batch_indices
        return dict(self.pad([self.examples[i] for i in self.order[batch_index]]))


def make_batch_order(lengths: Sequence[int], config: FinetuneConfig) -> list[list[int]]:
    """Assign texts to steps: each text once per epoch, batches of similar length, shuffled."""
    rng, size = np.random.default_rng(config.seed), config.batch_size
    steps = math.ceil(config.epochs * math.ceil(len(lengths) / size))
    order: list[list[int]] = []
    while len(order) < steps:
        shuffled = rng.permutation(len(lengths)).tolist()
        batches = []
        for begin in range(0, len(shuffled), WINDOW * size):
            window = sorted(shuffled[begin : begin + WINDOW * size], key=lengths.__getitem__)
            batches += [window[i : i + size] for i in range(0, len(window), size)]
        # Shuffled across all windows: sorted batches would show long texts first.
        order += [batches[i] for i in rng.permutation(len(batches))]
    return order[:steps]


def _arguments(
    config: FinetuneConfig, steps: int, work_folder: Path
) -> transformers.TrainingArguments:
    return transformers.TrainingArguments(
        output_dir=str(work_folder),
        max_steps=steps,
        # An item of the dataset is a complete batch.
        per_device_train_batch_size=1,
        learning_rate=config.learning_rate,
        # Schedule, warm-up and weight decay as in BERT's published code for fine-tuning.
        lr_scheduler_type="linear",
        warmup_steps=steps // 10,
        weight_decay=0.01,
        seed=config.seed,
        data_seed=config.seed,
        train_sampling_strategy="sequential",  # `BatchDataset` holds the order
        **CPU_TRAINING_ARGUMENTS
        | {
            "save_strategy": "steps",
            "save_steps": config.save_steps,
            # The last checkpoint may be incomplete after a kill: the one before it is retained.
            "save_total_limit": 2,
        },
    )
