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
from levelhead.models.training.from_scratch import (
    CPU_TRAINING_ARGUMENTS,
    TrainProgressCallback,
    preserve_rng_state,
)
from levelhead.models.training.low_rank import add_adapter, merge_adapter
from levelhead.models.training.resumable import CheckpointMarker, latest_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from levelhead.models.lm import LM
    from levelhead.models.training.configs import ContinuedPretrainingConfig, LowRankConfig
    from levelhead.models.training.objectives import TrainingObjective

HIDDEN_DROPOUT_NAMES = (
    *("hidden_dropout_prob", "hidden_dropout", "dropout", "resid_pdrop", "embd_pdrop"),
    *("resid_dropout", "embed_dropout", "embedding_dropout", "mlp_dropout"),
)
"""Names of the dropout of hidden states in transformers' configs."""
ATTENTION_DROPOUT_NAMES = ("attention_probs_dropout_prob", "attention_dropout", "attn_pdrop")
"""Names of the dropout of attention in transformers' configs."""
DROPOUT_NAMES = (*HIDDEN_DROPOUT_NAMES, *ATTENTION_DROPOUT_NAMES)


def train_copy(
    lm: LM,
    objective: TrainingObjective,
    work_folder: Path,
    config: ContinuedPretrainingConfig,
    *,
    adapter: LowRankConfig | None = None,
    progress: Callable[[int, int], None] | None,
) -> ModelLayout:
    """Train a copy of a model; resumes from the last complete checkpoint in the folder.

    Args:
        lm: Base model.
        objective: Rows and loss.
        work_folder: Folder for checkpoints.
        config: Settings.
        adapter: Train a low-rank adapter only; the copy that is returned has it merged.
        progress: Function that is called with steps done and steps in total.
    """
    # Sums over threads depend on how many there are: a fixed number gives the same weights.
    with quiet(), preserve_rng_state(), threadpool_limits(config.threads):
        # Dropout is drawn from torch's generator.
        torch.manual_seed(config.seed)
        trainee = make_trainee(lm, config.dropout, has_dropout=objective.has_dropout)
        trained: Any = trainee.model
        if adapter is not None:
            trained = add_adapter(trainee.model, adapter)
        trainer = _Trainer(
            model=trained,
            args=_arguments(config, work_folder),
            train_dataset=objective.rows,
            data_collator=objective.collate,
            callbacks=[
                CheckpointMarker(),
                *([TrainProgressCallback(progress)] if progress else []),
            ],
        )
        trainer.layout, trainer.objective = trainee, objective
        # With its bars disabled, the Trainer prints to standard output, where results go.
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train(resume_from_checkpoint=latest_checkpoint(work_folder))
        if adapter is not None:
            merge_adapter(trained, work_folder, lm.identity.name)
    trainee.model.eval()
    return trainee


def make_trainee(
    lm: LM, dropout: tuple[float, float] | None, *, has_dropout: bool = True
) -> ModelLayout:
    """Copy a model for training, in the class that it was loaded as.

    Args:
        lm: Base model.
        dropout: Dropout of hidden states and of attention; None: the base's.
        has_dropout: False: without any dropout.
    """
    base = lm.layout.model
    config = copy.deepcopy(base.config)
    # No cache of keys and values: training never generates.
    config.use_cache = False
    # A new model, not a deep copy: modules read their dropout when they are created.
    settings = (
        make_dropout_settings(config, dropout)
        if has_dropout
        else {name: 0.0 for name in DROPOUT_NAMES if hasattr(config, name)}
    )
    for name, share in settings.items():
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
    """Minimises the loss of an objective."""

    layout: ModelLayout
    objective: TrainingObjective

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Compute the loss of a batch."""
        return self.objective.compute_loss(self.layout, inputs)


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
