"""A training of a copy of a model: its record, its checks, and the folder it ends in.

The same base, rows, settings, versions and kind of machine give the same weights, bit for bit, also
if the training was killed and resumed: a batch depends only on the seed and its row numbers, and
the checkpoints contain the state of the random generator that dropout uses.
"""

from __future__ import annotations

import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError
from levelhead.core.versions import installed_versions
from levelhead.models.export.save import save_model
from levelhead.models.lm import LM
from levelhead.models.loading.checkpoints import MissingHeadError
from levelhead.models.loading.load import load
from levelhead.models.training.low_rank import ADAPTER_FOLDER
from levelhead.models.training.resumable import is_finished, publish_model, start_or_resume
from levelhead.models.training.trainee import train_copy

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from levelhead.models.architectures.model_layout import ModelLayout
    from levelhead.models.training.configs import ContinuedPretrainingConfig, LowRankConfig
    from levelhead.models.training.objectives import TrainingObjective


def train_and_save(
    lm: LM,
    objective: TrainingObjective,
    folder: str | os.PathLike[str],
    *,
    config: ContinuedPretrainingConfig,
    record: Mapping[str, object],
    adapter: LowRankConfig | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Train a copy of a model and write a plain transformers checkpoint.

    Until the training is complete, its files are in `folder`.unfinished. A second call with the
    same record resumes there, or returns the folder if the training is complete.

    Args:
        lm: Base, from `reload_base`; afterwards it has the trained weights.
        objective: Rows and loss.
        folder: New folder.
        config: Settings.
        record: Everything that the weights depend on, from `make_record`.
        adapter: Train a low-rank adapter only; the folder gets merged weights, and the adapter.
        progress: Function that is called with steps done and steps in total.
    """
    target = Path(folder)
    if is_finished(target, record):
        return target
    with start_or_resume(target, record) as work_folder:
        output_folder = work_folder / "made"
        # A kill while the model was saved leaves a part of it here.
        shutil.rmtree(output_folder, ignore_errors=True)
        trainee = train_copy(lm, objective, work_folder, config, adapter=adapter, progress=progress)
        try:
            _check_trained(lm.layout, trainee)
        except LevelheadError:
            shutil.rmtree(work_folder)  # resuming would end in the same way
            raise
        # Saved through the reloaded base: its config has the base's dropout, not the training's.
        lm.layout.model.load_state_dict(trainee.model.state_dict())
        save_model(lm, output_folder)
        if adapter is not None:
            shutil.move(work_folder / ADAPTER_FOLDER, output_folder / ADAPTER_FOLDER)
        publish_model(output_folder, target.resolve(), record)
    return target


def reload_base(base: LM | str | os.PathLike[str]) -> LM:
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


def make_record(
    lm: LM,
    config: ContinuedPretrainingConfig,
    texts: Sequence[str],
    *,
    asked: str,
    skipped: Mapping[str, int],
    metadata: Mapping[str, object],
) -> dict[str, object]:
    """Record everything that the weights depend on, for levelhead.json.

    Args:
        lm: Base.
        config: Settings.
        texts: All texts, in training order.
        asked: What the model is trained for.
        skipped: Numbers of texts that were not used, by reason.
        metadata: Further entries.
    """
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
        "asked": asked,
        "config": settings,
        "texts": len(texts),
        "texts_sha256": content_hash(list(texts)),
        "left_out": dict(sorted(skipped.items())),
        "shown": config.steps * config.batch_size,
        "versions": installed_versions(),
        "metadata": dict(metadata),
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
