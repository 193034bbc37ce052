"""`load`: the door. A Hub id, a folder or a GGUF file becomes an LM."""

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

from levelhead.core.errors import LevelheadError, UnknownName
from levelhead.models.architectures.families import ModelClass, family
from levelhead.models.architectures.model_layout import Anatomy, layers_of
from levelhead.models.architectures.tensor_parallel import ALONE, Ranks
from levelhead.models.diagnostics.one_visible_head import KnownHead
from levelhead.models.edits.base import Edit
from levelhead.models.edits.files import TEXT as EDITS
from levelhead.models.edits.files import load_edits, origin_of
from levelhead.models.export.save import RECORD
from levelhead.models.inputs.tokenizer import Tokens
from levelhead.models.lm import LM, Identity, batching_for
from levelhead.models.loading.checkpoints import WANTED, Checkpoint
from levelhead.models.loading.gguf import converted
from levelhead.models.loading.quiet import quiet
from levelhead.models.sites import Site, checked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from levelhead.models.architectures.tensor_parallel import Parallel
    from levelhead.models.inputs.tokenizer import Bos

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
    parallel: Parallel | None = None,
    recompute: bool = False,
) -> LM:
    """A pretrained model, ready to be read, edited and measured.

    Args:
        name: a Hub id, a folder written by save_pretrained, or a .gguf file.
        revision: a branch, tag or commit of the Hub; the commit is what gets recorded.
        device: where all of it goes, "cpu" or "cuda:0".
        dtype: precision of the weights in memory, whatever they are stored in.
        device_map: how to split it over devices, as in transformers ("auto" or a mapping).
        edit: an edit, several, or a folder that `save_edits` wrote.
        bos: whether a beginning-of-sequence token is put first; "auto" where it is known to be
            needed and missing.
        batch_size: rows in a batch; halved by itself when memory runs out.
        allow_pickle: read pickled weights, by torch's weights-only reader. Only if you trust them.
        parallel: share the model with the other processes of `torchrun`: "tensor", each has some of
            the heads, or "rows", each has a part of all weights and reads some of the rows.
        recompute: compute layers again for a gradient instead of holding all of them in memory
            (activation checkpointing).
    """
    if (precision := str(dtype).removeprefix("torch.")) not in DTYPES:
        raise UnknownName("dtype", precision, DTYPES)
    if sum(one is not None for one in (device, device_map, parallel)) > 1:
        raise LevelheadError(
            "of device, device_map and parallel several are given", mend="give one of them"
        )
    ranks = ALONE if parallel is None else Ranks.joined(parallel)
    folder, commit = _folder(os.fspath(name), revision, allow_pickle=allow_pickle)
    if edit is None and (folder / EDITS).exists():
        raise LevelheadError(
            f"{name} holds the weights of a base beside the edits that belong to them",
            mend=f"give edit={str(name)!r}, or edit=() for the base alone",
        )
    checkpoint = Checkpoint.inspect(folder, allow_pickle=allow_pickle)
    family(checkpoint.model_type)  # an unknown architecture is refused before weights are read
    placed: dict[str, Any] = {"device_map": device_map}
    if parallel is not None:
        placed = ranks.settings()
    model, model_class = _model(checkpoint, getattr(torch, precision), device, placed)
    tokens = Tokens.of(
        _tokenizer(checkpoint.folder),
        model.config,
        bos=bos,
        says=checkpoint.says_bos,
        causal=family(checkpoint.model_type).is_causal,
        offset=family(checkpoint.model_type).position_offset,
    )
    anatomy = Anatomy.of(model, model_class, ranks)
    ranks.share_out(anatomy.backbone, anatomy.blocks)
    folded, as_base = _folded(folder)
    lm = LM(
        anatomy=anatomy,
        tokens=tokens,
        identity=Identity(str(name), commit, checkpoint, folded),
        batching=replace(batching_for(anatomy, batch_size), fixed=ranks.size > 1),
        as_base=as_base,
        recompute=recompute,
    )
    if edit is None:
        return lm
    if isinstance(edit, str | os.PathLike):
        _warn_of_another(lm, edit)
        return lm.edited(*load_edits(edit))
    return lm.edited(*((edit,) if isinstance(edit, Edit) else edit))


def _warn_of_another(lm: LM, edit: str | os.PathLike[str]) -> None:
    """Tell of edits that were fitted on other weights: on a child of theirs that may be meant."""
    origin = origin_of(edit)
    if origin is not None and origin.checkpoint != lm.identity.checkpoint.hash:
        warnings.warn(
            f"the edit of {edit} was fitted on {origin.model}, whose weights are not these of "
            f"{lm.identity.name}: its directions may mean nothing here",
            stacklevel=3,
        )


def cache_folder() -> Path:
    """Where converted models are kept: LEVELHEAD_CACHE, or the system's place for caches."""
    return Path(os.environ.get("LEVELHEAD_CACHE") or pooch.os_cache("levelhead"))


def bytes_of(name: str, revision: str | None = None) -> int:
    """How much room the files of a model take here, fetched if they are not."""
    folder, _ = _folder(name, revision, allow_pickle=False)
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _folded(folder: Path) -> tuple[tuple[str, ...], tuple[Site, ...]]:
    """Hashes of the edits that `save_pretrained` folded in, and where the base is left by it."""
    try:
        told = json.loads((folder / RECORD).read_text())
        folded = tuple(map(str, told["folded"]))
        # A record of folded edits that does not say where they went is not taken for "not there".
        return folded, tuple(checked(Site(*one)) for one in told["as_base"]) if folded else ()
    except FileNotFoundError:
        return (), ()
    except (ValueError, KeyError, TypeError) as error:
        raise LevelheadError(f"{folder / RECORD} is damaged: {error}", mend="bake again") from None


def _folder(name: str, revision: str | None, *, allow_pickle: bool) -> tuple[Path, str | None]:
    path = Path(name).expanduser()
    if path.is_dir():
        return path, None
    if path.suffix == ".gguf":
        if not path.is_file():
            raise LevelheadError(f"there is no file {path}", mend="check the path")
        return converted(path, cache_folder()), None
    if path.is_file():
        raise LevelheadError(
            f"{path} is a file", mend="give the folder it lies in, or a .gguf file"
        )
    return _from_hub(name, revision, (*WANTED, "*.bin") if allow_pickle else WANTED)


def _from_hub(name: str, revision: str | None, wanted: Sequence[str]) -> tuple[Path, str | None]:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        found = Path(snapshot_download(name, revision=revision, allow_patterns=list(wanted)))
    except HFValidationError:
        raise LevelheadError(
            f"{name!r} is neither a folder here nor a Hub id", mend="check the path"
        ) from None
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise LevelheadError(
            f"{name!r} is no folder here, and the Hub did not give it: "
            f"{str(error).splitlines()[0]:.160}",
            mend="check the name and the connection, or give a local folder",
        ) from None
    return found, found.name  # a snapshot's folder is named by its commit


def tokenize(name: str | os.PathLike[str]) -> Callable[[str], Sequence[str]]:
    """A model's tokenizer as a function from a word to its pieces; none where it has no token."""
    folder, _ = _folder(os.fspath(name), None, allow_pickle=False)
    found = _tokenizer(folder)

    def pieces(word: str) -> list[str]:
        ids = found(word, add_special_tokens=False).input_ids
        return [] if found.unk_token_id in ids else list(found.convert_ids_to_tokens(ids))

    return pieces


PROBE = "The nurse said: she's TIRED, na\u00efve caf\u00e9 n\u00b0 3.5 \u2014 isn't it?"


def _tokenizer(folder: Path) -> Any:
    try:
        found = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise LevelheadError(
            f"{folder} has no tokenizer that transformers can read: "
            f"{(str(error).splitlines() or [''])[0]:.160}",
            mend="save the tokenizer into the model's folder: tokenizer.save_pretrained(folder)",
        ) from None
    unknown = found.unk_token_id
    if len(found) < 2 or set(found(PROBE, add_special_tokens=False).input_ids) <= {unknown}:
        # transformers makes a tokenizer without words where there is no file for one.
        raise LevelheadError(
            f"the tokenizer in {folder} knows no word of English text",
            mend="save the tokenizer into the model's folder: tokenizer.save_pretrained(folder)",
        )
    if not (path := folder / "tokenizer.json").exists():
        return found
    # For some architectures transformers puts its own rules in the place of tokenizer.json's, and
    # says nothing; the file is what the model was trained with.
    inner = tokenizers.Tokenizer.from_file(str(path))
    inner.no_padding()
    inner.no_truncation()
    told = inner.encode(PROBE, add_special_tokens=False).ids
    if found(PROBE, add_special_tokens=False).input_ids != told:
        found = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    if found(PROBE, add_special_tokens=False).input_ids != told:
        raise LevelheadError(
            "transformers reads other tokens than tokenizer.json says",
            mend="save the tokenizer again with the installed version of transformers",
        )
    return found


def _model(
    checkpoint: Checkpoint,
    dtype: torch.dtype,
    device: str | None,
    placed: Mapping[str, Any],
) -> tuple[Any, ModelClass]:
    """The model in the first class whose every weight the checkpoint holds."""
    missing: dict[str, list[str]] = {}
    for row in checkpoint.candidates:
        model, lacking = _loaded(checkpoint, row, dtype, placed)
        if not lacking:
            model.requires_grad_(False).eval()
            _check_finite(model)
            if known := KnownHead.of(model.config):
                known.install(model.base_model, layers_of(model))
            return _moved(model, device), row
        missing[row.name] = lacking
        del model
    last, lacking = list(missing.items())[-1]
    raise LevelheadError(
        f"the checkpoint lacks weights of {last}, which would be random: "
        f"{', '.join(lacking[:3])}{' and more' if len(lacking) > 3 else ''}",
        mend="fetch the model again, or correct its config.json",
    )


def _check_finite(model: Any) -> None:
    # sdpa on a CPU makes finite numbers of some NaN: a damaged layer would read as dead heads.
    for name, parameter in model.named_parameters():
        own = parameter.to_local() if hasattr(parameter, "to_local") else parameter
        if not own.is_meta and not own.isfinite().all():
            raise LevelheadError(
                f"the weight {name} holds NaN or infinity",
                mend="fetch the model again, or load it with dtype='float32'",
            )


def _moved(model: Any, device: str | None) -> Any:
    try:
        return model if device is None else model.to(device)
    except (RuntimeError, AssertionError) as error:
        raise LevelheadError(
            f"the model cannot go to {device!r}: {(str(error).splitlines() or [''])[0]:.160}",
            mend="use device='cpu', or a device that torch finds here",
        ) from None


def _loaded(
    checkpoint: Checkpoint,
    row: ModelClass,
    dtype: torch.dtype,
    placed: Mapping[str, Any],
) -> tuple[Any, list[str]]:
    """The model, and the names of weights that would be newly initialised."""
    options: dict[str, Any] = {}
    if row.pooler and not any("pooler." in key for key in checkpoint.keys):
        options["add_pooling_layer"] = False
    if checkpoint.config.get("is_decoder"):
        raise LevelheadError(
            "the config says is_decoder: this encoder would look backwards only",
            mend="set is_decoder to false in config.json if that is not meant",
        )
    try:
        config = transformers.AutoConfig.from_pretrained(checkpoint.folder, trust_remote_code=False)
        config.return_dict = True
        if getattr(config, "chunk_size_feed_forward", 0):
            config.chunk_size_feed_forward = 0  # the same numbers, and one call a layer
        with quiet():
            model, told = getattr(transformers, row.name).from_pretrained(
                checkpoint.folder,
                config=config,
                dtype=dtype,
                **placed,
                use_safetensors=not checkpoint.pickled,
                weights_only=True,
                trust_remote_code=False,
                local_files_only=True,
                output_loading_info=True,
                **options,
            )
    except Exception as error:
        raise LevelheadError(
            f"transformers cannot load {checkpoint.folder}: "
            f"{(str(error).strip().splitlines() or [''])[0]:.200}",
            mend="check that config.json fits the weights, or fetch the model again",
        ) from error
    if over := _layers_too_many(checkpoint.model_type, model, told["unexpected_keys"]):
        raise LevelheadError(
            f"the checkpoint holds layers that config.json does not: {over}",
            mend="correct num_hidden_layers in config.json, or fetch the model again",
        )
    return model, sorted(told["missing_keys"])


def _layers_too_many(model_type: str, model: Any, keys: Iterable[str]) -> str:
    """A weight of a layer that the model does not have; buffers of older releases are none."""
    path = family(model_type).layers
    count = len(model.base_model.get_submodule(path))
    for key in sorted(keys):
        index = re.search(rf"(?:^|\.){re.escape(path)}\.(\d+)\.", key)
        if index and int(index[1]) >= count:
            return key
    return ""
