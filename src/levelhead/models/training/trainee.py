"""Continued pretraining: the copy of the model that is trained, and its Trainer.

The Trainer's checkpoints hold weights, optimizer, schedule and the state of torch's generator; rows
and masked positions depend only on the seed (`training_examples`). A training that was killed and
resumed therefore gives the same weights, bit for bit.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
import transformers
from threadpoolctl import threadpool_limits

from levelhead.core.errors import LevelheadError
from levelhead.models.architectures.model_layout import ModelLayout, find_layers
from levelhead.models.diagnostics.one_visible_head import OneVisibleHead
from levelhead.models.loading.quiet import quiet
from levelhead.models.queries.vocabulary import compute_token_log_probs
from levelhead.models.training.from_scratch import (
    CPU_TRAINING_ARGUMENTS,
    IGNORED_LABEL,
    TrainProgressCallback,
    preserve_rng_state,
)
from levelhead.models.training.resumable import CheckpointMarker, latest_checkpoint
from levelhead.models.training.training_examples import TrainingExample, TrainingExampleDataset

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from levelhead.models.lm import LM
    from levelhead.models.training.configs import ContinuedPretrainingConfig

HIDDEN_DROPOUT_NAMES = (
    *("hidden_dropout_prob", "hidden_dropout", "dropout", "resid_pdrop", "embd_pdrop"),
    *("resid_dropout", "embed_dropout", "embedding_dropout", "mlp_dropout"),
)
"""Names of the dropout of hidden states in transformers' configs."""
ATTENTION_DROPOUT_NAMES = ("attention_probs_dropout_prob", "attention_dropout", "attn_pdrop")
"""Names of the dropout of attention in transformers' configs."""


def train_copy(
    lm: LM,
    examples: Sequence[TrainingExample],
    work_folder: Path,
    config: ContinuedPretrainingConfig,
    progress: Callable[[int, int], None] | None,
) -> ModelLayout:
    """Train a copy of a model; resumes from the last complete checkpoint in the folder.

    Args:
        lm: Base model.
        examples: Texts as tokens.
        work_folder: Folder for checkpoints.
        config: Settings.
        progress: Function that is called with steps done and steps in total.
    """
    dataset = TrainingExampleDataset(
        lm.tokens,
        examples,
        rows=config.steps * config.batch_size,
        batch_size=config.batch_size,
        mask_fraction=None if lm.layout.model_class.causal else config.mask_fraction,
        seed=config.seed,
    )
    # Sums over threads depend on how many there are: a fixed number gives the same weights.
    with quiet(), preserve_rng_state(), threadpool_limits(config.threads):
        # Dropout is drawn from torch's generator.
        torch.manual_seed(config.seed)
        trainee = make_trainee(lm, config.dropout)
        trainer = _Trainer(
            model=trainee.model,
            args=_arguments(config, work_folder),
            train_dataset=dataset,
            data_collator=dataset.collate,
            callbacks=[
                CheckpointMarker(),
                *([TrainProgressCallback(progress)] if progress else []),
            ],
        )
        trainer.layout = trainee
        # With its bars disabled, the Trainer prints to standard output, where results go.
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train(resume_from_checkpoint=latest_checkpoint(work_folder))
    trainee.model.eval()
    return trainee


def make_trainee(lm: LM, dropout: tuple[float, float] | None) -> ModelLayout:
    """Copy a model for training, in the class that it was loaded as."""
    base = lm.layout.model
    config = copy.deepcopy(base.config)
    # No cache of keys and values: training never generates.
    config.use_cache = False
    # A new model, not a deep copy: modules read their dropout when they are created.
    for name, share in make_dropout_settings(config, dropout).items():
        setattr(config, name, share)
    model = type(base)(config)
    model.load_state_dict(base.state_dict())
    # The hooks are not among the weights that were copied.
    if visible_head := OneVisibleHead.from_config(config):
        visible_head.install(model.base_model, find_layers(model))
    return ModelLayout.from_model(model, lm.layout.model_class)


def make_dropout_settings(config: Any, dropout: tuple[float, float] | None) -> dict[str, float]:
    """Map the config's dropout settings to new values; raise if no value is higher than before.

    Args:
        config: Config of the base.
        dropout: Dropout of hidden states and of attention; None: no change.
    """
    if dropout is None:
        return {}
    settings: dict[str, float] = {}
    for kind, names, share in zip(
        ("hidden", "attention"),
        (HIDDEN_DROPOUT_NAMES, ATTENTION_DROPOUT_NAMES),
        dropout,
        strict=True,
    ):
        present = [name for name in names if hasattr(config, name)]
        if share and not present:
            raise LevelheadError(
                f"{config.model_type} has no dropout of {kind} states", hint=f"give {kind}=0"
            )
        settings |= dict.fromkeys(present, share)
    # More dropout is an intervention (Webster et al. 2020); without an increase it tests nothing.
    if all(share <= getattr(config, name) for name, share in settings.items()):
        current = ", ".join(f"{name} {getattr(config, name)}" for name in settings)
        raise LevelheadError(
            f"a dropout of {dropout} is not higher than the base's ({current})",
            hint="give higher shares",
        )
    return settings


class _Trainer(transformers.Trainer):
    """Computes the loss of target tokens, with vocabulary scores only at these tokens."""

    layout: ModelLayout

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Compute the mean negative log-probability (natural) of the target tokens."""
        labels = inputs.pop("labels")
        # Only the backbone: the vocabulary head would score every token.
        hidden = self.layout.backbone(**inputs).last_hidden_state
        if self.layout.model_class.causal:
            # A causal model predicts a token at the position before it.
            hidden, labels = hidden[:, :-1], labels[:, 1:]
        is_target = labels != IGNORED_LABEL
        # Shape [targets, width]: the vocabulary head runs for the targets only.
        return -compute_token_log_probs(
            self.layout, hidden[is_target], labels[is_target][:, None]
        ).mean()


def _arguments(
    config: ContinuedPretrainingConfig, work_folder: Path
) -> transformers.TrainingArguments:
    return transformers.TrainingArguments(
        output_dir=str(work_folder),
        max_steps=config.steps,
        per_device_train_batch_size=config.batch_size,
        learning_rate=config.learning_rate,
        # Schedule and weight decay as in Devlin et al. (2019), with a warm-up of a tenth.
        lr_scheduler_type="linear",
        warmup_steps=config.steps // 10,
        weight_decay=0.01,
        seed=config.seed,
        data_seed=config.seed,
        train_sampling_strategy="sequential",  # `TrainingExampleDataset` holds the order
        **CPU_TRAINING_ARGUMENTS
        | {
            "save_strategy": "steps",
            "save_steps": config.save_steps,
            # The last checkpoint may be incomplete after a kill: the one before it is retained.
            "save_total_limit": 2,
        },
    )
