"""A training that may be killed: where it lies until it is done, and what it goes on from.

Until the end all work lies in `folder`.unfinished, beside the goal: the plan, and the Trainer's
checkpoints (weights, optimizer, schedule, the state of torch's generator). The finished folder
appears by one renaming, with the plan and the hashes of its weights as its record.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import transformers

from levelhead.core.canonical_json import canonical
from levelhead.core.errors import LevelheadError
from levelhead.core.files import file_hash, write_atomic
from levelhead.engine.locks import claimed
from levelhead.models.export.save import RECORD, new_folder
from levelhead.models.loading.checkpoints import Checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

WHOLE = "levelhead-whole"
"""In a checkpoint of the Trainer: it was written to its end."""


class Marked(transformers.TrainerCallback):
    """Says of a checkpoint that it is whole: a process may be killed while it writes one."""

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Told by the Trainer."""
        Path(args.output_dir, f"checkpoint-{state.global_step}", WHOLE).touch()


def last_whole(unfinished: Path) -> str | None:
    """The last whole checkpoint; others go."""
    whole = []
    for path in unfinished.glob("checkpoint-*"):
        if (path / WHOLE).exists():
            whole.append(path)
        else:
            shutil.rmtree(path)
    return str(max(whole, key=lambda path: int(path.name.partition("-")[2]))) if whole else None


@contextmanager
def begun(folder: Path, plan: Mapping[str, object]) -> Iterator[Path]:
    """The place beside a new folder where a plan is worked on, by one process at a time.

    It is gone at the end; if an error ends the work, it stays, to be gone on with.
    """
    target = new_folder(folder)
    unfinished = target.with_name(f"{target.name}.unfinished")
    unfinished.mkdir(exist_ok=True)
    with claimed(str(unfinished)):
        path, own = unfinished / RECORD, canonical(plan)
        if path.exists() and path.read_bytes() != own:
            raise LevelheadError(
                f"{unfinished} holds a training with another base, other texts or settings",
                mend="finish that one with what it began with, or remove it, or give another "
                "folder",
            )
        write_atomic(path, own)
        yield unfinished
    shutil.rmtree(unfinished, ignore_errors=True)


def finished(made: Path, folder: Path, plan: Mapping[str, object]) -> None:
    """Give a model that was written its record and its final name."""
    write_atomic(made / RECORD, canonical({**plan, "weights": weights_of(made)}))
    os.replace(made, folder)


def is_finished(folder: Path, plan: Mapping[str, object]) -> bool:
    """Whether a folder holds what this plan ends with, unharmed."""
    try:
        told = json.loads((folder / RECORD).read_bytes())
        weights = told.pop("weights")
        return canonical(told) == canonical(plan) and weights == weights_of(folder)
    except (OSError, ValueError, KeyError, AttributeError, LevelheadError):
        return False


def weights_of(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of weights, by name."""
    return {path.name: file_hash(path) for path in Checkpoint.inspect(folder).weights}
