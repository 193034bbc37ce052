"""Inspect the files of a checkpoint before loading it.

Weights are untrusted input. Only safetensors are read unless the caller explicitly allows pickles,
which torch's weights-only reader then reads. Code in a checkpoint is never run. A head counts only
if the checkpoint holds its weights: a randomly initialised head gives random scores, which would
look like "no bias".
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
from levelhead.models.architectures.families import ModelClass, get_family

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SAFETENSORS_FILES = ("model.safetensors", "model.safetensors.index.json")
PICKLE_FILES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
CONFIG_PATTERNS = ("*.json", "*.txt", "*.model", "*.jinja")
"""File patterns of config and tokenizer."""
HUB_PATTERNS = ("*.safetensors", *CONFIG_PATTERNS)
"""File patterns that are downloaded from a hub: never code, and pickles only on request."""
REFUSED_KEYS = {
    "auto_map": "requests to run code that comes with the checkpoint",
    "quantization_config": "says that the weights are quantised, which cannot be read as they are",
    "transformers_weights": "names other files for the weights",
    "attn_implementation": "names the code that computes attention",
    "_attn_implementation": "names the code that computes attention",
    "_attn_implementation_internal": "names the code that computes attention",
    "experts_implementation": "names the code that computes experts",
    "_experts_implementation": "names the code that computes experts",
    "_experts_implementation_internal": "names the code that computes experts",
    "fusion_config": "replaces modules of the model by others",
    "kernel_config": "names code that replaces modules of the model",
}
"""Keys of config.json and tokenizer_config.json that are refused, and what each would do."""

MAX_COUNTS = {"num_labels": 100_000} | dict.fromkeys(
    ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_hidden_groups"), 1000
)
"""Largest plausible counts of config.json, unless the checkpoint holds more weights."""


class UnsafeCheckpointError(LevelheadError):
    """A checkpoint that requests something that is unsafe with untrusted files."""


class MissingHeadError(LevelheadError):
    """The checkpoint does not hold the head that a method needs."""


@dataclass(frozen=True)
class Checkpoint:
    """A model folder whose config and weight names were read and checked."""

    folder: Path
    config: dict[str, Any]
    weights: tuple[Path, ...]
    keys: frozenset[str]
    is_pickled: bool
    stamps: tuple[tuple[str, int, int], ...]
    """Name, size and time of the files that the hash covers, when they were inspected."""

    @classmethod
    def inspect(cls, folder: Path, *, allow_pickle: bool = False) -> Checkpoint:
        """Read a folder's config and the names of its weights; raise if something is unsafe.

        Args:
            folder: Folder of the checkpoint.
            allow_pickle: Accept pickled weights.
        """
        config = _read_json(folder / "config.json")
        _refuse_unsafe_config(folder, config)
        # With peft installed, transformers applies the adapter silently: the weights that run
        # would not be those of this checkpoint.
        if (folder / "adapter_config.json").exists():
            raise LevelheadError(
                f"{folder} holds an adapter in addition to a model, or instead of one",
                hint="merge it first: PeftModel.from_pretrained(...).merge_and_unload(), then save",
            )
        if any((folder / name).exists() for name in SAFETENSORS_FILES):
            weights = _list_weight_files(folder, *SAFETENSORS_FILES)
            return cls._of(folder, config, weights, is_pickled=False)
        if not any((folder / name).exists() for name in PICKLE_FILES):
            raise LevelheadError(
                f"{folder} holds no weights: neither {SAFETENSORS_FILES[0]} nor {PICKLE_FILES[0]}",
                hint="give a folder written by save_pretrained, or a .gguf file",
            )
        if not allow_pickle:
            raise UnsafeCheckpointError(
                f"the weights in {folder} are pickled, and a pickle can run any code",
                hint="convert them to safetensors, or pass allow_pickle=True if you trust them "
                "(then torch's weights-only reader is used)",
            )
        weights = _list_weight_files(folder, *PICKLE_FILES)
        return cls._of(folder, config, weights, is_pickled=True)

    @classmethod
    def _of(
        cls, folder: Path, config: dict[str, Any], weights: tuple[Path, ...], *, is_pickled: bool
    ) -> Checkpoint:
        # Before the names are read: what is written from now on is noticed.
        stamps = _stamp(folder, weights)
        keys = (_read_pickle_keys if is_pickled else _read_safetensors_keys)(weights)
        _refuse_large_counts(config, len(keys))
        return cls(folder, config, weights, keys, is_pickled, stamps)

    @cached_property
    def hash(self) -> str:
        """SHA-256 of everything that determines the outputs: weights, config, tokenizer."""
        # By name and not by path: the same checkpoint has the same hash in every folder.
        files = _hashed_files(self.folder, self.weights)
        hashes = {path.name: file_hash(path) for path in files}
        # The weights in memory may be those of before: their responses would be stored under the
        # hash of other weights. Compared after the hash, for files that change meanwhile.
        if _stamp(self.folder, self.weights) != self.stamps:
            raise LevelheadError(
                f"the files in {self.folder} changed after the model was loaded",
                hint="load the model again",
            )
        return content_hash(hashes)

    @property
    def candidates(self) -> list[ModelClass]:
        """The family's classes whose heads this checkpoint seems to hold, most heads first."""
        return [
            model_class
            for model_class in get_family(self.model_type).classes
            if self._seems_to_hold(model_class)
        ]

    @property
    def model_type(self) -> str:
        """Name of the architecture in transformers."""
        return str(self.config.get("model_type", "(none)"))

    @property
    def add_bos_token(self) -> bool | None:
        """The tokenizer's setting for a beginning token, which transformers may drop."""
        path = self.folder / "tokenizer_config.json"
        value = _read_json(path).get("add_bos_token") if path.exists() else None
        return value if isinstance(value, bool) else None

    def _seems_to_hold(self, model_class: ModelClass) -> bool:
        architectures = self.config.get("architectures")
        if not isinstance(architectures, list) or not architectures:
            architectures = [""]
        # Classifiers of tokens or for question answering have weights of the same names.
        if model_class.classifier and architectures[0] != model_class.name:
            return False
        has_all_weights = all(
            any(self._has_weight(prefix) for prefix in prefixes)
            for prefixes in model_class.weight_prefixes
        )
        if model_class.causal and not has_all_weights:
            # With tied weights the vocabulary head is the embedding matrix and is not stored.
            return bool(self.config.get("tie_word_embeddings", True)) and (
                architectures[0] == model_class.name
            )
        return has_all_weights

    def _has_weight(self, prefix: str) -> bool:
        return any(key.startswith(prefix) for key in self.keys)


def _hashed_files(folder: Path, weights: tuple[Path, ...]) -> list[Path]:
    return sorted({*weights, *(path for name in CONFIG_PATTERNS for path in folder.glob(name))})


def _stamp(folder: Path, weights: tuple[Path, ...]) -> tuple[tuple[str, int, int], ...]:
    stats = ((path.name, path.stat()) for path in _hashed_files(folder, weights))
    return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats)


def _refuse_large_counts(config: dict[str, Any], n_weights: int) -> None:
    """Raise an error for a config of more layers or classes than could be meant.

    transformers would build as many modules, or names of classes, as an untrusted file says.
    """
    for name, limit in MAX_COUNTS.items():
        count = config.get(name)
        # A model that shares its layers may have more of them than weights.
        if isinstance(count, int | float) and count > max(limit, n_weights):
            raise UnsafeCheckpointError(
                f"config.json says {name} {count}, and the checkpoint holds {n_weights} weights",
                hint="download the model again",
            )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LevelheadError(
            f"{path.parent} has no {path.name}", hint="give a folder written by save_pretrained"
        ) from None
    # RecursionError: an untrusted file may nest lists deeper than Python's stack.
    except (ValueError, RecursionError, IsADirectoryError) as error:
        raise LevelheadError(
            f"{path} is not valid JSON: {error}", hint="download the model again"
        ) from None
    if not isinstance(content, dict):
        raise LevelheadError(f"{path} holds no settings", hint="download the model again")
    return content


def _refuse_unsafe_config(folder: Path, config: dict[str, Any]) -> None:
    configs = {"config.json": config}
    if (path := folder / "tokenizer_config.json").exists():
        configs[path.name] = _read_json(path)
    for name, settings in configs.items():
        for key in sorted(_all_keys(settings) & REFUSED_KEYS.keys()):
            raise UnsafeCheckpointError(
                f"{name} {REFUSED_KEYS[key]} ({key})",
                hint="levelhead does not follow it; if transformers knows the model without "
                f"{key}, remove it from a copy of the folder",
            )


def _all_keys(settings: object) -> set[str]:
    """Keys of a document at every depth: parts of a model have configs of their own."""
    keys: set[str] = set()
    # No recursion: a document may nest almost as deep as Python's stack.
    stack = [settings]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            keys |= value.keys()
            stack += value.values()
        elif isinstance(value, list):
            stack += value
    return keys


def _list_weight_files(folder: Path, single: str, index: str) -> tuple[Path, ...]:
    # In the order of transformers: the hash must cover the file that it loads.
    if (folder / single).exists():
        return (folder / single,)
    weight_map = _read_json(folder / index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(v, str) for v in weight_map.values()):
        raise LevelheadError(f"{index} names no files", hint="download the model again")
    names = sorted(set(weight_map.values()))
    for name in names:
        # An index is untrusted too: it could name a file outside the checkpoint's folder.
        if os.path.basename(name) != name or name in ("", ".", ".."):
            raise UnsafeCheckpointError(
                f"{index} names a file outside its folder: {name!r}",
                hint="download the model again",
            )
        if not (folder / name).exists():
            raise LevelheadError(
                f"the shard {name} named in {index} is missing", hint="download the model again"
            )
    return tuple(folder / name for name in names)


def _read_safetensors_keys(weights: Iterable[Path]) -> frozenset[str]:
    from safetensors import SafetensorError, safe_open

    keys: set[str] = set()
    for path in weights:
        try:
            with safe_open(path, framework="pt") as file:
                keys.update(file.keys())
        except (SafetensorError, OSError) as error:
            raise LevelheadError(
                f"{path} is damaged: {error}", hint="download the model again"
            ) from None
    return frozenset(keys)


def _read_pickle_keys(weights: Iterable[Path]) -> frozenset[str]:
    import pickle

    import torch

    keys: set[str] = set()
    for path in weights:
        try:
            # On the meta device: only names are wanted here, not gigabytes of weights.
            keys.update(torch.load(path, map_location="meta", weights_only=True))
        except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
            raise UnsafeCheckpointError(
                f"{path} holds more than weights, or is damaged: {str(error).splitlines()[0]}",
                hint="do not use it; request the weights as safetensors",
            ) from None
    return frozenset(keys)
