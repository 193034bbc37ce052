"""Resumable training: where its files are until it is complete, and where it resumes.

Until the training is complete, all files are in `folder`.unfinished, next to the final folder: the
record of the settings, and the Trainer's checkpoints (weights, optimizer, schedule, state of
torch's generator). The final folder appears by one rename; its record holds the settings and the
hashes of the weights.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import transformers

from levelhead.core.canonical_json import to_canonical_json
from levelhead.core.errors import LevelheadError
from levelhead.core.files import file_hash, write_atomic
from levelhead.engine.locks import exclusive_lock
from levelhead.models.export.save import RECORD_FILE, prepare_new_folder
from levelhead.models.loading.checkpoints import Checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

COMPLETE_MARKER = "levelhead-whole"
"""File that marks a checkpoint of the Trainer as complete."""


class CheckpointMarker(transformers.TrainerCallback):
    """Marks complete checkpoints: a process may be killed while it writes one."""

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Mark a checkpoint; called by the Trainer after it wrote it."""
        Path(args.output_dir, f"checkpoint-{state.global_step}", COMPLETE_MARKER).touch()


def latest_checkpoint(work_folder: Path) -> str | None:
    """Return the last complete checkpoint; incomplete ones are deleted."""
    complete = []
    # Removed, because the Trainer would count an incomplete checkpoint in its save limit.
    for path in work_folder.glob("checkpoint-*"):
        if (path / COMPLETE_MARKER).exists():
            complete.append(path)
        else:
            shutil.rmtree(path)
    return (
        str(max(complete, key=lambda path: int(path.name.partition("-")[2]))) if complete else None
    )


@contextmanager
def start_or_resume(folder: Path, record: Mapping[str, object]) -> Iterator[Path]:
    """Open the working folder of a training, next to its final folder, for one process at a time.

    It is removed at the end. If an error ends the training, it stays, so that a later call resumes.

    Args:
        folder: Final folder.
        record: Settings that the weights depend on.
    """
    target = prepare_new_folder(folder)
    work_folder = target.with_name(f"{target.name}.unfinished")
    work_folder.mkdir(exist_ok=True)
    with exclusive_lock(str(work_folder)):
        path, content = work_folder / RECORD_FILE, to_canonical_json(record)
        # Resuming with other settings would mix two trainings in one model.
        if path.exists() and path.read_bytes() != content:
            raise LevelheadError(
                f"{work_folder} holds a training with another base, other texts or settings",
                hint="resume it with the settings it started with, or remove it, or give another "
                "folder",
            )
        write_atomic(path, content)
        yield work_folder
    shutil.rmtree(work_folder, ignore_errors=True)


def publish_model(output_folder: Path, folder: Path, record: Mapping[str, object]) -> None:
    """Write the record of a saved model, and move the model to its final folder."""
    # The record comes first: a folder under its final name is always complete.
    write_atomic(
        output_folder / RECORD_FILE,
        to_canonical_json({**record, "weights": hash_weight_files(output_folder)}),
    )
    os.replace(output_folder, folder)


def is_finished(folder: Path, record: Mapping[str, object]) -> bool:
    """Whether a folder holds the complete, undamaged result of a training."""
    try:
        saved = json.loads((folder / RECORD_FILE).read_bytes())
        weights = saved.pop("weights")
        return to_canonical_json(saved) == to_canonical_json(
            record
        ) and weights == hash_weight_files(folder)
    except (OSError, ValueError, KeyError, AttributeError, LevelheadError):
        return False


def hash_weight_files(folder: Path) -> dict[str, str]:
    """Compute the SHA-256 of every weight file, by file name."""
    return {path.name: file_hash(path) for path in Checkpoint.inspect(folder).weights}
