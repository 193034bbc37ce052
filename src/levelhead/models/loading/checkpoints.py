"""A checkpoint's files, looked at before anything in them is believed.

Weights are untrusted input. Only safetensors are read unless a pickle is asked for by name, and
then by torch's weights-only reader; code in a checkpoint is never run; and a head counts only if
the checkpoint holds its weights, because a randomly initialised head scores near chance, which
would read as "no bias".
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError
from levelhead.core.files import file_hash
from levelhead.models.architectures.families import ModelClass, family

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SAFE = ("model.safetensors", "model.safetensors.index.json")
PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")
SETTINGS = ("*.json", "*.txt", "*.model", "*.jinja")
"""Config and tokenizer, in all the files they come in."""
WANTED = ("*.safetensors", *SETTINGS)
"""What is fetched from a hub: never code, and a pickle only if asked for."""
REFUSED = {
    "auto_map": "asks to run code that comes with the checkpoint",
    "quantization_config": "says the weights are quantised: they cannot be read as they are",
    "transformers_weights": "names other files for the weights",
    "attn_implementation": "names the code that computes attention",
    "_attn_implementation": "names the code that computes attention",
}
"""Keys of config.json and tokenizer_config.json that we do not follow, and what they do."""


class Unsafe(LevelheadError):
    """A checkpoint that asks for something we do not do with files from strangers."""


class NoHead(LevelheadError):
    """The checkpoint does not hold the head that a verb needs."""


@dataclass(frozen=True)
class Checkpoint:
    """A folder with a model, inspected."""

    folder: Path
    config: dict[str, Any]
    weights: tuple[Path, ...]
    keys: frozenset[str]
    pickled: bool

    @classmethod
    def inspect(cls, folder: Path, *, allow_pickle: bool = False) -> Checkpoint:
        """Read a folder's config and the names of its weights, and refuse what is unsafe."""
        config = _json(folder / "config.json")
        _refuse(folder, config)
        if (folder / "adapter_config.json").exists():
            raise LevelheadError(
                f"{folder} holds an adapter beside or instead of a model",
                mend="merge it first: PeftModel.from_pretrained(...).merge_and_unload(), then save",
            )
        if any((folder / name).exists() for name in SAFE):
            weights = _files(folder, *SAFE)
            return cls(folder, config, weights, _safe_keys(weights), pickled=False)
        if not any((folder / name).exists() for name in PICKLED):
            raise LevelheadError(
                f"{folder} holds no weights: neither {SAFE[0]} nor {PICKLED[0]}",
                mend="give a folder written by save_pretrained, or a .gguf file",
            )
        if not allow_pickle:
            raise Unsafe(
                f"the weights in {folder} are pickled, and a pickle can run any code",
                mend="convert them to safetensors, or pass allow_pickle=True if you trust them "
                "(then torch's weights-only reader is used)",
            )
        weights = _files(folder, *PICKLED)
        return cls(folder, config, weights, _pickle_keys(weights), pickled=True)

    @cached_property
    def hash(self) -> str:
        """SHA-256 over everything that decides what the model says: weights, config, tokenizer."""
        told = {path for pattern in SETTINGS for path in self.folder.glob(pattern)}
        told |= set(self.weights)
        return content_hash({path.name: file_hash(path) for path in sorted(told)})

    @property
    def candidates(self) -> list[ModelClass]:
        """The classes of the family whose heads this checkpoint seems to hold, richest first."""
        return [row for row in family(self.model_type).classes if self._seems(row)]

    @property
    def model_type(self) -> str:
        """Transformers' name of the architecture."""
        return str(self.config.get("model_type", "(none)"))

    @property
    def says_bos(self) -> bool | None:
        """What the tokenizer's settings say about a beginning token; transformers may forget it."""
        path = self.folder / "tokenizer_config.json"
        says = _json(path).get("add_bos_token") if path.exists() else None
        return says if isinstance(says, bool) else None

    def _seems(self, row: ModelClass) -> bool:
        architectures = self.config.get("architectures") or [""]
        if row.classifier and architectures[0] != row.name:
            return False  # a token or question-answering classifier's weights have the same names
        own = all(any(self._holds(mark) for mark in marks) for marks in row.marks)
        if row.causal and not own:
            # The vocabulary head may be the embeddings again, if it was trained as one.
            return bool(self.config.get("tie_word_embeddings", True)) and (
                architectures[0] == row.name
            )
        return own

    def _holds(self, mark: str) -> bool:
        return any(key.startswith(mark) for key in self.keys)


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LevelheadError(
            f"{path.parent} has no {path.name}", mend="give a folder written by save_pretrained"
        ) from None
    except (ValueError, RecursionError) as error:
        raise LevelheadError(f"{path} is no JSON: {error}", mend="fetch the model again") from None
    if not isinstance(found, dict):
        raise LevelheadError(f"{path} holds no settings", mend="fetch the model again")
    return found


def _refuse(folder: Path, config: dict[str, Any]) -> None:
    asks = {"config.json": config}
    if (path := folder / "tokenizer_config.json").exists():
        asks[path.name] = _json(path)
    for name, settings in asks.items():
        for key in settings.keys() & REFUSED.keys():
            raise Unsafe(
                f"{name} {REFUSED[key]} ({key})",
                mend="levelhead does not follow it; if transformers knows the model without "
                f"{key}, remove it from a copy of the folder",
            )


def _files(folder: Path, single: str, index: str) -> tuple[Path, ...]:
    if (folder / single).exists():
        return (folder / single,)
    placed = _json(folder / index).get("weight_map")
    if not isinstance(placed, dict) or not all(isinstance(v, str) for v in placed.values()):
        raise LevelheadError(f"{index} names no files", mend="fetch the model again")
    names = sorted(set(placed.values()))
    for name in names:
        if os.path.basename(name) != name or name in ("", ".", ".."):
            raise Unsafe(
                f"{index} names a file outside its folder: {name!r}", mend="fetch the model again"
            )
        if not (folder / name).exists():
            raise LevelheadError(
                f"the shard {name} named in {index} is missing", mend="fetch the model again"
            )
    return tuple(folder / name for name in names)


def _safe_keys(weights: Iterable[Path]) -> frozenset[str]:
    from safetensors import SafetensorError, safe_open

    keys: set[str] = set()
    for path in weights:
        try:
            with safe_open(path, framework="pt") as file:
                keys.update(file.keys())
        except SafetensorError as error:
            raise LevelheadError(
                f"{path} is damaged: {error}", mend="fetch the model again"
            ) from None
    return frozenset(keys)


def _pickle_keys(weights: Iterable[Path]) -> frozenset[str]:
    import pickle

    import torch

    keys: set[str] = set()
    for path in weights:
        try:
            keys.update(torch.load(path, map_location="meta", weights_only=True))
        except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
            raise Unsafe(
                f"{path} holds more than weights, or is damaged: {str(error).splitlines()[0]}",
                mend="do not use it; ask for safetensors",
            ) from None
    return frozenset(keys)
