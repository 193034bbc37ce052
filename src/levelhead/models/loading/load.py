"""`load`: create an LM from a Hub id, a local folder or a GGUF file."""

from __future__ import annotations

import json
import os
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pooch
import tokenizers
import torch
import transformers

from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.models.architectures.families import ModelClass, get_family
from levelhead.models.architectures.model_layout import ModelLayout, find_layers
from levelhead.models.architectures.tensor_parallel import SINGLE_PROCESS, ModelParallel
from levelhead.models.diagnostics.one_visible_head import OneVisibleHead
from levelhead.models.editable_model import Identity
from levelhead.models.edits.base import Edit
from levelhead.models.edits.files import EDITS_FILE, load_edits, read_edit_origin
from levelhead.models.export.save import RECORD_FILE
from levelhead.models.inputs.batching import make_batching
from levelhead.models.inputs.tokenizer import Tokens
from levelhead.models.lm import LM
from levelhead.models.loading.checkpoints import HUB_PATTERNS, Checkpoint
from levelhead.models.loading.gguf import convert_gguf
from levelhead.models.loading.quiet import quiet
from levelhead.models.loading.weight_checksums import record_checksum
from levelhead.models.sites import Site, validate_site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from levelhead.models.architectures.tensor_parallel import ParallelMode
    from levelhead.models.inputs.tokenizer import Bos

MAX_NAME_BYTES = 255
"""Longest name of a file or folder."""
DTYPES = ("float32", "float64", "bfloat16", "float16")


def load(
    name: str | os.PathLike[str],
    *,
    revision: str | None = None,
    device: str | None = None,
    dtype: str | torch.dtype = "float32",
    device_map: str | Mapping[str, int | str] | None = None,
    edit: str | os.PathLike[str] | Edit | Sequence[Edit] | None = None,
    bos: Bos = "auto",
    batch_size: int = 32,
    allow_pickle: bool = False,
    parallel: ParallelMode | None = None,
    recompute: bool = False,
) -> LM:
    """Load a pretrained model that can be read, edited and measured.

    Args:
        name: Hub id, folder written by save_pretrained, or path of a .gguf file.
        revision: Branch, tag or commit of the Hub; the commit is recorded.
        device: Device of the full model, such as "cpu" or "cuda:0".
        dtype: Precision of the weights in memory, independent of how they are stored.
        device_map: How to split the model over devices, as in transformers ("auto" or a mapping).
        edit: An edit, several edits, or a folder written by `save_edits`.
        bos: Whether texts start with a beginning-of-sequence token; "auto" adds it where it is
            known to be needed and missing.
        batch_size: Number of rows in a batch; halved automatically when memory runs out.
        allow_pickle: Read pickled weights with torch's weights-only reader. Use it only if you
            trust them.
        parallel: How to share the model with the other processes of `torchrun`: "tensor", where
            each process has some of the heads, or "rows", where each process has a part of all
            weights and runs some of the rows.
        recompute: Recompute layers for a gradient instead of holding all of them in memory
            (activation checkpointing).
    """
    # Eleven parameters, as `from_pretrained` has them: a user sets one or two by name, and a value
    # that holds some of them would be one more thing to import.
    if (precision := str(dtype).removeprefix("torch.")) not in DTYPES:
        raise UnknownNameError("dtype", precision, DTYPES)
    if sum(option is not None for option in (device, device_map, parallel)) > 1:
        raise LevelheadError(
            "more than one of device, device_map and parallel is given", hint="give one of them"
        )
    tensor_parallel = SINGLE_PROCESS if parallel is None else ModelParallel.from_torchrun(parallel)
    folder, commit = _find_folder(os.fspath(name), revision, allow_pickle=allow_pickle)
    # Loading such a folder without its edits would silently give the unedited base.
    if edit is None and (folder / EDITS_FILE).exists():
        raise LevelheadError(
            f"{name} holds the weights of a base and, in a separate file, the edits for them",
            hint=f"give edit={str(name)!r}, or edit=() for the base alone",
        )
    checkpoint = Checkpoint.inspect(folder, allow_pickle=allow_pickle)
    get_family(checkpoint.model_type)  # refuse an unknown architecture before reading weights
    device_options: dict[str, Any] = {"device_map": device_map}
    if parallel is not None:
        device_options = tensor_parallel.loading_options()
    model, model_class = _load_model(checkpoint, getattr(torch, precision), device, device_options)
    tokens = Tokens.from_config(
        _load_tokenizer(checkpoint.folder),
        model.config,
        bos=bos,
        add_bos_token=checkpoint.add_bos_token,
        causal=get_family(checkpoint.model_type).is_causal,
        offset=get_family(checkpoint.model_type).position_offset,
    )
    layout = ModelLayout.from_model(model, model_class, tensor_parallel)
    tensor_parallel.shard_weights(layout.backbone, layout.blocks)
    record_checksum(layout.model)
    merged_edits, merged_sites = _read_merge_record(folder)
    lm = LM(
        layout=layout,
        tokens=tokens,
        identity=Identity(str(name), commit, checkpoint, merged_edits),
        # Processes that share a model must take the same batches: none may halve them on its own.
        batching=replace(
            make_batching(layout, batch_size), has_fixed_size=tensor_parallel.size > 1
        ),
        merged_sites=merged_sites,
        recompute=recompute,
    )
    if edit is None:
        return lm
    if isinstance(edit, str | os.PathLike):
        _warn_of_other_base(lm, edit)
        return lm.edited(*load_edits(edit))
    return lm.edited(*((edit,) if isinstance(edit, Edit) else edit))


def _warn_of_other_base(lm: LM, edit: str | os.PathLike[str]) -> None:
    """Warn about edits that were fitted on other weights.

    It is no error: applying them to a trained variant of those weights may be intended.
    """
    origin = read_edit_origin(edit)
    if origin is not None and origin.checkpoint != lm.identity.checkpoint.hash:
        warnings.warn(
            f"the edit of {edit} was fitted on {origin.model}, whose weights differ from those of "
            f"{lm.identity.name}: its directions may have no meaning here",
            stacklevel=3,
        )


def model_cache_folder() -> Path:
    """Return the folder for converted models: LEVELHEAD_CACHE, or the system's cache folder."""
    return Path(os.environ.get("LEVELHEAD_CACHE") or pooch.os_cache("levelhead"))


def compute_model_size(name: str, revision: str | None = None) -> int:
    """Return the size of a model's files in bytes; the files are downloaded if necessary."""
    folder, _ = _find_folder(name, revision, allow_pickle=False)
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def compute_checkpoint_hash(name: str, revision: str | None = None) -> str:
    """Return the hash of a checkpoint's files without loading its weights."""
    folder, _ = _find_folder(name, revision, allow_pickle=False)
    return Checkpoint.inspect(folder).hash


def _read_merge_record(folder: Path) -> tuple[tuple[str, ...], tuple[Site, ...]]:
    """Read which edits `save_pretrained` merged, and the sites that it left as in the base."""
    try:
        record = json.loads((folder / RECORD_FILE).read_text(encoding="utf-8"))
        merged_edits = tuple(map(str, record["folded"]))
        # If a record lists merged edits without their sites, the missing key raises an error: it
        # must not count as "no site is affected".
        return merged_edits, tuple(
            validate_site(Site(*site)) for site in record["as_base"]
        ) if merged_edits else ()
    except FileNotFoundError:
        return (), ()
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise LevelheadError(
            f"{folder / RECORD_FILE} is damaged: {error}", hint="merge the edit again"
        ) from None


def _find_folder(name: str, revision: str | None, *, allow_pickle: bool) -> tuple[Path, str | None]:
    # Longer than any file: the system would raise an error without a hint.
    if max(map(len, os.fsencode(name).split(b"/"))) > MAX_NAME_BYTES or "\0" in name:
        raise LevelheadError(
            "the name of the model is no path and no Hub id", hint="check the name"
        )
    path = Path(name).expanduser()
    # As in transformers, a local folder takes precedence over a Hub id.
    if path.is_dir():
        return path, None
    if path.suffix == ".gguf":
        if not path.is_file():
            raise LevelheadError(f"the file {path} does not exist", hint="check the path")
        return convert_gguf(path, model_cache_folder()), None
    if "://" in name:
        # Not quoted: an address may hold a password.
        raise LevelheadError(
            f"a model has no address of the protocol {name.partition('://')[0]!r:.20}",
            hint="give a Hub id, a local folder, a .gguf file, or http:// of a server",
        )
    if path.is_file():
        raise LevelheadError(
            f"{path} is a file", hint="give the folder that contains it, or a .gguf file"
        )
    return _download(name, revision, (*HUB_PATTERNS, "*.bin") if allow_pickle else HUB_PATTERNS)


def _download(name: str, revision: str | None, patterns: Sequence[str]) -> tuple[Path, str | None]:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        snapshot = Path(snapshot_download(name, revision=revision, allow_patterns=list(patterns)))
    except HFValidationError:
        raise LevelheadError(
            f"{name!r} is neither a local folder nor a Hub id", hint="check the path"
        ) from None
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise LevelheadError(
            f"{name!r} is not a local folder, and the Hub download failed: "
            f"{str(error).splitlines()[0]:.160}",
            hint="check the name and the connection, or give a local folder",
        ) from None
    return snapshot, snapshot.name  # a snapshot's folder is named by its commit


def load_word_tokenizer(name: str | os.PathLike[str]) -> Callable[[str], Sequence[str]]:
    """Return a function that splits a word into a model's tokens; empty for an unknown word."""
    folder, _ = _find_folder(os.fspath(name), None, allow_pickle=False)
    tokenizer = _load_tokenizer(folder)

    def pieces(word: str) -> list[str]:
        ids = tokenizer(word, add_special_tokens=False).input_ids
        return [] if tokenizer.unk_token_id in ids else list(tokenizer.convert_ids_to_tokens(ids))

    return pieces


# Capitals, an apostrophe, accents, a number and a dash: rules in which tokenizers differ.
TOKENIZER_TEST_TEXT = (
    "The nurse said: she's TIRED, na\u00efve caf\u00e9 n\u00b0 3.5 \u2014 isn't it?"
)


def _load_tokenizer(folder: Path) -> Any:
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        if not isinstance(tokenizer.model_max_length, int | float):
            raise TypeError("model_max_length is no number")
    # The parser of tokenizer.json raises plain exceptions, and panics of Rust are none.
    except Exception as error:
        raise LevelheadError(
            f"{folder} holds no tokenizer that transformers can read: "
            f"{(str(error).splitlines() or [''])[0]:.160}",
            hint="save the tokenizer into the model's folder: tokenizer.save_pretrained(folder)",
        ) from None
    unknown_id = tokenizer.unk_token_id
    if len(tokenizer) < 2 or set(
        tokenizer(TOKENIZER_TEST_TEXT, add_special_tokens=False).input_ids
    ) <= {unknown_id}:
        # If tokenizer files are missing, transformers creates a tokenizer without words.
        raise LevelheadError(
            f"the tokenizer in {folder} knows no English word",
            hint="save the tokenizer into the model's folder: tokenizer.save_pretrained(folder)",
        )
    if not (path := folder / "tokenizer.json").exists():
        return tokenizer
    # For some architectures transformers silently replaces the rules of tokenizer.json by its own,
    # but the model was trained with those of the file.
    file_tokenizer = tokenizers.Tokenizer.from_file(str(path))
    # tokenizer.json can store padding and truncation; a truncated text would be another text.
    file_tokenizer.no_padding()
    file_tokenizer.no_truncation()
    expected_ids = file_tokenizer.encode(TOKENIZER_TEST_TEXT, add_special_tokens=False).ids
    if tokenizer(TOKENIZER_TEST_TEXT, add_special_tokens=False).input_ids != expected_ids:
        tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    if tokenizer(TOKENIZER_TEST_TEXT, add_special_tokens=False).input_ids != expected_ids:
        raise LevelheadError(
            "the tokenizer of transformers gives other tokens than tokenizer.json",
            hint="save the tokenizer again with the installed version of transformers",
        )
    return tokenizer


def _load_model(
    checkpoint: Checkpoint,
    dtype: torch.dtype,
    device: str | None,
    device_options: Mapping[str, Any],
) -> tuple[Any, ModelClass]:
    """Load the model as the first candidate class whose weights are all in the checkpoint."""
    missing: dict[str, list[str]] = {}
    for model_class in checkpoint.candidates:
        model, missing_weights = _load_class(checkpoint, model_class, dtype, device_options)
        if not missing_weights:
            # Gradients are wanted by gates, never by weights; and dropout would be random.
            model.requires_grad_(False).eval()
            _check_finite(model)
            if visible_head := OneVisibleHead.from_config(model.config):
                visible_head.install(model.base_model, find_layers(model))
            return _move_to_device(model, device), model_class
        missing[model_class.name] = missing_weights
        # Freed before the next class is loaded: memory may not hold the model twice.
        del model
    last, missing_weights = list(missing.items())[-1]
    raise LevelheadError(
        f"the checkpoint lacks weights of {last}, which would be initialised at random: "
        f"{', '.join(missing_weights[:3])}{' and more' if len(missing_weights) > 3 else ''}",
        hint="download the model again, or correct its config.json",
    )


def _check_finite(model: Any) -> None:
    # sdpa on a CPU turns some NaN into finite numbers: the heads of a damaged layer would look as
    # if they had no effect.
    for name, parameter in model.named_parameters():
        # A weight that processes share is a DTensor: each process checks its part.
        values = parameter.to_local() if hasattr(parameter, "to_local") else parameter
        if not values.is_meta and not has_only_finite_numbers(values):
            raise LevelheadError(
                f"the weight {name} holds NaN or infinity",
                hint="download the model again, or load it with dtype='float32'",
            )


def has_only_finite_numbers(values: torch.Tensor) -> bool:
    """Whether there is neither NaN nor infinity, by the smallest and the largest number.

    NaN is passed on by both. `isfinite` fills three tensors of the same size, which took a third
    of the time of loading a model.
    """
    if not values.numel():
        return True
    return bool(torch.stack(values.aminmax()).isfinite().all())


def _move_to_device(model: Any, device: str | None) -> Any:
    try:
        return model if device is None else model.to(device)
    # AssertionError is what a torch without CUDA raises.
    except (RuntimeError, AssertionError) as error:
        raise LevelheadError(
            f"the model cannot be moved to {device!r}: {(str(error).splitlines() or [''])[0]:.160}",
            hint="use device='cpu', or a device that torch finds on this machine",
        ) from None


def _load_class(
    checkpoint: Checkpoint,
    model_class: ModelClass,
    dtype: torch.dtype,
    device_options: Mapping[str, Any],
) -> tuple[Any, list[str]]:
    """Load a model as one class; returns it with the names of weights that are not stored."""
    options: dict[str, Any] = {}
    # Without its weights a pooler would be random, and its output would look like a vector.
    if model_class.pooler and not any("pooler." in key for key in checkpoint.keys):
        options["add_pooling_layer"] = False
    if checkpoint.config.get("is_decoder"):
        raise LevelheadError(
            "the config sets is_decoder: this encoder would attend only to earlier tokens",
            hint="set is_decoder to false in config.json if that is not intended",
        )
    try:
        config = transformers.AutoConfig.from_pretrained(checkpoint.folder, trust_remote_code=False)
        # A stored return_dict=False would turn outputs, which are read by name, into tuples.
        config.return_dict = True
        if getattr(config, "chunk_size_feed_forward", 0):
            # The numbers stay the same, and the feed-forward module is called once per layer: a
            # hook would see only the first chunk.
            config.chunk_size_feed_forward = 0
        with quiet():
            model, loading_info = getattr(transformers, model_class.name).from_pretrained(
                checkpoint.folder,
                config=config,
                dtype=dtype,
                **device_options,
                # Never None: without safetensors, transformers would then read a pickle.
                use_safetensors=not checkpoint.is_pickled,
                weights_only=True,
                trust_remote_code=False,
                local_files_only=True,
                output_loading_info=True,
                **options,
            )
    # transformers raises errors of many types for a config that does not fit its weights.
    except Exception as error:
        raise LevelheadError(
            f"transformers cannot load {checkpoint.folder}: "
            f"{(str(error).strip().splitlines() or [''])[0]:.200}",
            hint="check that config.json fits the weights, or download the model again",
        ) from error
    if extra_weight := _find_extra_layer(
        checkpoint.model_type, model, loading_info["unexpected_keys"]
    ):
        raise LevelheadError(
            f"the checkpoint holds more layers than config.json says: {extra_weight}",
            hint="correct num_hidden_layers in config.json, or download the model again",
        )
    return model, sorted(loading_info["missing_keys"])


def _find_extra_layer(model_type: str, model: Any, keys: Iterable[str]) -> str:
    """Return the name of a stored weight whose layer the model does not have, or "".

    Other unexpected keys, such as buffers of older releases, are harmless.
    """
    path = get_family(model_type).layers
    count = len(model.base_model.get_submodule(path))
    for key in sorted(keys):
        index = re.search(rf"(?:^|\.){re.escape(path)}\.(\d+)\.", key)
        if index and int(index[1]) >= count:
            return key
    return ""
