"""A model written into a new folder, whole or not at all."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from filelock import FileLock
from transformers import GenerationConfig

from levelhead.core.canonical_json import canonical
from levelhead.core.errors import LevelheadError
from levelhead.models.loading.quiet import quiet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from transformers import PreTrainedModel

    from levelhead.models.lm import LM

RECORD = "levelhead.json"
"""In the folder of a baked model: what was folded into which checkpoint."""
GENERATION = "generation_config.json"


def new_folder(folder: Path) -> Path:
    """The folder, if a model can be written there; said before the work, not after it."""
    target = folder.resolve()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise LevelheadError(f"{folder} is not empty", mend="give a new folder")
    if target == Path.cwd():
        raise LevelheadError("a model cannot replace the working folder", mend="name a new folder")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(target.parent, os.W_OK):
            raise PermissionError(f"{target.parent} is read-only")
    except OSError as error:
        raise LevelheadError(f"cannot write {folder}: {error}", mend="give another place") from None
    return target


def made_once(
    folder: Path,
    make: Callable[[Path], None],
    *,
    is_whole: Callable[[Path], bool] | None = None,
) -> Path:
    """A folder of the cache, made on first use, whole or not at all, by one process at a time."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if folder.exists() and (is_whole is None or is_whole(folder)):
            return folder
        with TemporaryDirectory(prefix=".unfinished-", dir=folder.parent) as unfinished:
            make(Path(unfinished, "made"))
            shutil.rmtree(folder, ignore_errors=True)
            os.replace(Path(unfinished, "made"), folder)
    return folder


def save_whole(
    lm: LM, folder: Path, *, beside: Callable[[Path], None] = lambda folder: None
) -> None:
    """Weights as safetensors, config, tokenizer, and the record of what was folded.

    Args:
        lm: the model; edits it still has are not written.
        folder: a new folder.
        beside: writes whatever else belongs into the folder, before it appears.
    """
    target, model, source = new_folder(folder), lm.anatomy.model, lm.identity.checkpoint
    with TemporaryDirectory(prefix=".unfinished-", dir=target.parent) as unfinished:
        written = Path(unfinished, "model")
        with quiet(), _plain_generation(model):
            model.save_pretrained(written)
            lm.tokens.tokenizer.save_pretrained(written)
        if (source.folder / GENERATION).exists():
            shutil.copy(source.folder / GENERATION, written / GENERATION)
        record = {
            "base": lm.identity.name,
            "base_sha256": source.hash,
            "folded": lm.identity.folded,
            "as_base": lm.as_base,
        }
        if lm.identity.folded:
            (written / RECORD).write_bytes(canonical(record))
        beside(written)
        os.replace(written, target)


@contextmanager
def _plain_generation(model: PreTrainedModel) -> Iterator[None]:
    """Transformers refuses to write some generation settings that it read.

    The settings' file goes along as it was instead.
    """
    own = getattr(model, "generation_config", None)
    if own is None:
        yield
        return
    model.generation_config = GenerationConfig()
    try:
        yield
    finally:
        model.generation_config = own
