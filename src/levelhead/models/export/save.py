"""Write a model into a new folder, atomically."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from filelock import FileLock
from transformers import GenerationConfig

from levelhead.core.canonical_json import to_canonical_json
from levelhead.core.errors import LevelheadError
from levelhead.models.loading.quiet import quiet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from transformers import PreTrainedModel

    from levelhead.models.editable_model import EditableModel

RECORD_FILE = "levelhead.json"
"""File that records which edits were merged into which checkpoint, or how a model was trained."""
GENERATION_FILE = "generation_config.json"


def prepare_new_folder(folder: Path) -> Path:
    """Return the absolute path of a folder for a new model; raise if it cannot be written.

    Callers check this before they start, because a training may take hours.
    """
    target = folder.resolve()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise LevelheadError(f"{folder} is not empty", hint="give a new folder")
    # The final rename would replace the folder that the process is in.
    if target == Path.cwd():
        raise LevelheadError("a model cannot replace the working folder", hint="give a new folder")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(target.parent, os.W_OK):
            raise PermissionError(f"{target.parent} is read-only")
    except OSError as error:
        raise LevelheadError(
            f"{folder} cannot be written: {error}", hint="give another folder"
        ) from None
    return target


def build_once(
    folder: Path,
    build: Callable[[Path], None],
    *,
    is_complete: Callable[[Path], bool] | None = None,
) -> Path:
    """Return a folder of the cache; the first call builds it, atomically and in one process.

    Args:
        folder: Folder in the cache.
        build: Writes the contents into a new folder.
        is_complete: Whether an existing folder can be used; None: always.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if folder.exists() and (is_complete is None or is_complete(folder)):
            return folder
        # In the same file system as the target, so that the rename below is atomic.
        with TemporaryDirectory(prefix=".unfinished-", dir=folder.parent) as scratch:
            build(Path(scratch, "made"))
            shutil.rmtree(folder, ignore_errors=True)
            os.replace(Path(scratch, "made"), folder)
    return folder


def save_model(
    lm: EditableModel, folder: Path, *, write_extras: Callable[[Path], None] = lambda folder: None
) -> None:
    """Write weights as safetensors, config, tokenizer, and the record of merged edits.

    Args:
        lm: Model; edits that are not merged are not written.
        folder: New folder.
        write_extras: Writes further files into the folder before it gets its final name.
    """
    model, source = lm.layout.model, lm.identity.checkpoint

    def write(model_folder: Path) -> None:
        with quiet(), _default_generation_config(model):
            model.save_pretrained(model_folder)
            lm.tokens.tokenizer.save_pretrained(model_folder)
        if (source.folder / GENERATION_FILE).exists():
            shutil.copy(source.folder / GENERATION_FILE, model_folder / GENERATION_FILE)
        record = {
            "base": lm.identity.name,
            "base_sha256": source.hash,
            "folded": lm.identity.merged_edits,
            "as_base": lm.merged_sites,
        }
        # Without merged edits the folder is a plain checkpoint, which needs no record.
        if lm.identity.merged_edits:
            (model_folder / RECORD_FILE).write_bytes(to_canonical_json(record))
        write_extras(model_folder)

    write_folder(folder, write)


def write_folder(folder: Path, write: Callable[[Path], None]) -> None:
    """Write a new folder atomically: it gets its name when it is complete."""
    target = prepare_new_folder(folder)
    with TemporaryDirectory(prefix=".unfinished-", dir=target.parent) as scratch:
        unfinished = Path(scratch, "model")
        unfinished.mkdir()
        write(unfinished)
        os.replace(unfinished, target)


@contextmanager
def _default_generation_config(model: PreTrainedModel) -> Iterator[None]:
    """Replace the generation settings while a model is saved.

    Transformers refuses to write some settings that it accepts when reading; `save_model` copies
    the original file instead.
    """
    generation_config = getattr(model, "generation_config", None)
    if generation_config is None:
        yield
        return
    model.generation_config = GenerationConfig()
    try:
        yield
    finally:
        model.generation_config = generation_config
