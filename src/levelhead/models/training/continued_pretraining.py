"""Continued pretraining of a language model: on the user's texts, or with more dropout.

Masked models learn to fill blanks, causal models to predict the next token. There is no other
objective, so a next-sentence head retains its weights. `training_run` says what makes the weights
the same, also after a kill.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from levelhead.core.errors import LevelheadError
from levelhead.models.export.save import RECORD_FILE
from levelhead.models.training.configs import ContinuedPretrainingConfig
from levelhead.models.training.objectives import TokenPrediction
from levelhead.models.training.trainee import make_dropout_settings
from levelhead.models.training.training_examples import (
    TrainingExample,
    TrainingExampleDataset,
    make_training_example,
)
from levelhead.models.training.training_run import make_record, reload_base, train_and_save

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from levelhead.models.lm import LM


def continue_pretraining(
    base: LM | str | os.PathLike[str],
    texts: Sequence[str],
    folder: str | os.PathLike[str],
    *,
    config: ContinuedPretrainingConfig | None = None,
    metadata: Mapping[str, object] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Continue the pretraining of a language model and write a plain transformers checkpoint.

    Masked models are trained as by Devlin et al. (2019): a share of the tokens are targets, of
    which 80% are replaced by the mask, 10% by another token, and 10% stay as they are. There is no
    whole-word masking, and unknown words are never targets. The optimizer is AdamW with a linear
    schedule and a warm-up of a tenth of the steps.

    Until the training is complete, its files are in `folder`.unfinished. A second call with the
    same base, texts and config resumes there, or returns the folder if the training is complete.

    Args:
        base: Model, or its name; weights are read from its checkpoint in float32.
        texts: Texts in training order; after the last text, the first follows again.
        folder: New folder.
        config: Settings.
        metadata: Further entries for the record in the folder (levelhead.json).
        progress: Function that is called with steps done and steps in total.

    Returns:
        The folder: weights, config with the base's dropout, tokenizer, levelhead.json.
    """
    config = config or ContinuedPretrainingConfig()
    lm = reload_base(base)
    # Only checked here, so that an impossible dropout is refused before any file is written.
    make_dropout_settings(lm.layout.model.config, config.dropout)
    examples = [make_training_example(lm, text, max_tokens=config.max_tokens) for text in texts]
    usable = [example for example in examples if isinstance(example, TrainingExample)]
    skipped = Counter(reason for reason in examples if isinstance(reason, str))
    if not usable:
        raise LevelheadError(
            f"none of {len(texts)} texts can be used: {', '.join(skipped) or 'the list is empty'}",
            hint="give texts in the model's language, from a few words to max_tokens tokens",
        )
    is_causal = lm.layout.model_class.causal
    record = make_record(
        lm,
        config,
        texts,
        asked="next token" if is_causal else "masked tokens",
        skipped=skipped,
        metadata=metadata or {},
    )
    dataset = TrainingExampleDataset(
        lm.tokens,
        usable,
        rows=config.steps * config.batch_size,
        batch_size=config.batch_size,
        mask_fraction=None if is_causal else config.mask_fraction,
        seed=config.seed,
    )
    return train_and_save(
        lm, TokenPrediction(dataset), folder, config=config, record=record, progress=progress
    )


def read_pretraining_record(folder: Path) -> dict[str, Any]:
    """Read the record that `continue_pretraining` wrote into its folder."""
    try:
        record = json.loads((folder / RECORD_FILE).read_bytes())
        if isinstance(record, dict) and {"config", "weights"} <= record.keys():
            return record
    except (OSError, ValueError):
        pass
    raise LevelheadError(
        f"{folder} holds no model from continued pretraining", hint="train it again"
    )
