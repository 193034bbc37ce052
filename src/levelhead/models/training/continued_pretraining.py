"""Continued pretraining of a language model: on the user's texts, or with more dropout.

Masked models learn to fill blanks, causal models to predict the next token. There is no other
objective, so a next-sentence head retains its weights. The same base, texts, config, versions and
kind of machine give the same weights, bit for bit, also if the training was killed and resumed: the
targets of a step depend only on the seed and the step's number, and the checkpoints contain the
state of the random generator that dropout uses.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError
from levelhead.core.versions import installed_versions
from levelhead.models.export.save import RECORD_FILE, save_model
from levelhead.models.lm import LM
from levelhead.models.loading.checkpoints import MissingHeadError
from levelhead.models.loading.load import load
from levelhead.models.training.configs import ContinuedPretrainingConfig
from levelhead.models.training.resumable import is_finished, publish_model, start_or_resume
from levelhead.models.training.trainee import make_dropout_settings, train_copy
from levelhead.models.training.training_examples import TrainingExample, make_training_example

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from levelhead.models.architectures.model_layout import ModelLayout


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
    lm = _reload_base(base)
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
    record = _make_record(lm, config, texts, skipped) | {"metadata": dict(metadata or {})}
    target = Path(folder)
    if is_finished(target, record):
        return target
    with start_or_resume(target, record) as work_folder:
        trainee = train_copy(lm, usable, work_folder, config, progress)
        try:
            _check_trained(lm.layout, trainee)
        except LevelheadError:
            shutil.rmtree(work_folder)  # resuming would end in the same way
            raise
        # Saved through the reloaded base: its config has the base's dropout, not the training's.
        lm.layout.model.load_state_dict(trainee.model.state_dict())
        output_folder = work_folder / "made"
        # A kill while the model was saved leaves a part of it here.
        shutil.rmtree(output_folder, ignore_errors=True)
        save_model(lm, output_folder)
        publish_model(output_folder, target.resolve(), record)
    return target


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


def _reload_base(base: LM | str | os.PathLike[str]) -> LM:
    """Load the base again in float32, so that the caller's model is not trained."""
    if not isinstance(base, LM):
        lm = load(base)
    else:
        source = base.identity.checkpoint
        lm = load(source.folder, allow_pickle=source.is_pickled)
        if base.edits or base.identity.merged_edits != lm.identity.merged_edits:
            raise LevelheadError(
                f"{base.identity.name} is edited, but its checkpoint is not",
                hint="save it first (levelhead export, or save_pretrained), then train that folder",
            )
        # The reloaded model has default options; the caller's tokenizer policy and name are
        # retained.
        lm = replace(lm, tokens=base.tokens, identity=base.identity)
    # A vocabulary head of random weights would be trained from nothing on a few hundred steps.
    if not lm.heads & {"masked", "causal"}:
        raise MissingHeadError(
            f"{lm.identity.name} cannot be trained on texts: it holds no vocabulary head",
            hint="use a checkpoint trained as a masked or causal language model",
        )
    return lm


def _make_record(
    lm: LM, config: ContinuedPretrainingConfig, texts: Sequence[str], skipped: Mapping[str, int]
) -> dict[str, object]:
    """Record everything that the weights depend on, for levelhead.json."""
    settings = asdict(config)
    # It changes no weight: a resumed training may save more or less often.
    del settings["save_steps"]
    name = lm.identity.name
    return {
        # Without the path, so that the record is the same on every machine.
        "base": Path(name).name if Path(name).exists() else name,
        "base_sha256": lm.identity.checkpoint.hash,
        "folded": lm.identity.merged_edits,
        "class": lm.layout.model_class.name,
        "asked": "next token" if lm.layout.model_class.causal else "masked tokens",
        "config": settings,
        "texts": len(texts),
        "texts_sha256": content_hash(list(texts)),
        "left_out": dict(sorted(skipped.items())),
        "shown": config.steps * config.batch_size,
        "versions": installed_versions(),
    }


def _check_trained(base: ModelLayout, trainee: ModelLayout) -> None:
    """Raise if the weights are not finite, or are still those of the base.

    An untrained copy would otherwise pass as a trained variant.
    """
    before = dict(base.model.named_parameters())
    after = dict(trainee.model.named_parameters())
    if not all(bool(parameter.isfinite().all()) for parameter in after.values()):
        raise LevelheadError("training ended in NaN or infinity", hint="give a lower rate")
    if all(torch.equal(parameter, before[name]) for name, parameter in after.items()):
        raise LevelheadError(
            "all weights are still those of the base: training changed nothing",
            hint="give a higher rate or more steps",
        )
