"""Files of sparse dictionaries: a small format with checked hashes, and folders of SAELens.

A folder of levelhead holds `dictionary.json` (site, activation function, k, normalization, hash of
the tensors, origin) and `dictionary.safetensors` (`encoder.weight` `[features, width]`,
`encoder.bias`, `decoder.weight` `[features, width]`, `decoder.bias`, and for jumprelu
`encoder.threshold`).

A folder of SAELens holds `cfg.json` and `sae_weights.safetensors` (`W_enc` `[width, features]`,
`b_enc`, `W_dec` `[features, width]`, `b_dec`, `threshold`). SAELens itself is not needed, and no
code of the folder runs.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Literal

import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load as read_tensors
from safetensors.torch import save as serialize_tensors

from levelhead.core.canonical_json import to_canonical_json
from levelhead.core.errors import LevelheadError
from levelhead.core.files import Url, join_url, open_filesystem, read_bytes, write_atomic
from levelhead.core.results import Record, Sha256
from levelhead.models.edits.dictionary import (
    ActivationFunction,
    Encoder,
    Normalization,
    SparseDictionary,
)
from levelhead.models.edits.files import EditOrigin
from levelhead.models.sites import Site

if TYPE_CHECKING:
    from collections.abc import Mapping

    from levelhead.models.sites import Stream

CONTENTS_FILE, WEIGHTS_FILE = "dictionary.json", "dictionary.safetensors"
SAELENS_CONFIG_FILE, SAELENS_WEIGHTS_FILE = "cfg.json", "sae_weights.safetensors"
SAELENS_HOOKS: dict[str, Stream] = {
    "hook_resid_post": "block_out",
    "hook_resid_pre": "block_out",
    "hook_mlp_out": "mlp_out",
    "attn.hook_z": "head_out",
}
"""Streams by the end of a hook's name; `hook_resid_pre` is the output of the layer before."""
SAELENS_NORMALIZATIONS: dict[str, Normalization] = {
    "none": "none",
    "constant_norm_rescale": "constant_norm",
    "layer_norm": "layer_norm",
}


class InvalidDictionaryError(LevelheadError):
    """A dictionary file that is damaged, was changed, or cannot be used."""


class _Contents(Record):
    format: Literal["levelhead-dictionary-1"]
    site: tuple[str, int, int | None]
    activation: ActivationFunction
    k: int = 0
    normalization: Normalization = "none"
    tensors_sha256: Sha256
    origin: EditOrigin | None = None


def save_dictionary(
    dictionary: SparseDictionary, folder: Url, *, origin: EditOrigin | None = None
) -> None:
    """Write a dictionary into a folder that `load_dictionary` can read.

    Args:
        dictionary: The dictionary.
        folder: Folder to write to.
        origin: The model that it was trained on, and the settings of the training.
    """
    tensors = serialize_tensors(
        {name: tensor.detach().cpu().contiguous() for name, tensor in dictionary.tensors.items()}
    )
    encoder = dictionary.encoder
    contents = _Contents(
        format="levelhead-dictionary-1",
        site=(dictionary.site.stream, dictionary.site.layer, dictionary.site.head),
        activation=encoder.activation,
        k=encoder.k,
        normalization=encoder.normalization,
        tensors_sha256=hashlib.sha256(tensors).hexdigest(),
        origin=origin,
    )
    text = to_canonical_json(contents.model_dump())
    fs, path = open_filesystem(join_url(folder, CONTENTS_FILE))
    if fs.exists(path) and read_bytes(join_url(folder, CONTENTS_FILE)) != text:
        raise LevelheadError(f"{folder} holds another dictionary", hint="give a new folder")
    write_atomic(join_url(folder, WEIGHTS_FILE), tensors)
    # Last, with the hash of the tensors: an incomplete folder is never loaded.
    write_atomic(join_url(folder, CONTENTS_FILE), text)


def load_dictionary(folder: Url, *, site: Site | None = None) -> SparseDictionary:
    """Read a dictionary of levelhead or of SAELens.

    Args:
        folder: Folder with `dictionary.json`, or with `cfg.json` of SAELens.
        site: The site, if a folder of SAELens names a hook that levelhead has no stream for.
    """
    fs, path = open_filesystem(join_url(folder, CONTENTS_FILE))
    if not fs.exists(path):
        return _load_saelens(folder, site)
    try:
        contents = _Contents.model_validate_json(_read(folder, CONTENTS_FILE))
    except ValidationError as error:
        raise InvalidDictionaryError(
            f"{CONTENTS_FILE} is no dictionary: {str(error).splitlines()[0]}",
            hint="give a folder that save_dictionary wrote",
        ) from None
    data = _read(folder, WEIGHTS_FILE)
    # Checked before the bytes are parsed: a parser never sees a file that was exchanged.
    if hashlib.sha256(data).hexdigest() != contents.tensors_sha256:
        raise InvalidDictionaryError(
            f"{WEIGHTS_FILE} is not the file that was written with {CONTENTS_FILE}",
            hint="copy the complete folder again",
        )
    tensors = _parse_tensors(data, WEIGHTS_FILE)
    stream, layer, head = contents.site
    return SparseDictionary(
        Site(stream, layer, head),  # type: ignore[arg-type]  # the dictionary validates it
        Encoder(
            _take(tensors, "encoder.weight"),
            _take(tensors, "encoder.bias"),
            contents.activation,
            contents.k,
            tensors.get("encoder.threshold"),
            contents.normalization,
        ),
        _take(tensors, "decoder.weight"),
        _take(tensors, "decoder.bias"),
    )


def _load_saelens(folder: Url, site: Site | None) -> SparseDictionary:
    """Read a folder that `SAE.save_model` of SAELens wrote, of version 3 or later."""
    try:
        config = json.loads(_read(folder, SAELENS_CONFIG_FILE))
        metadata = config.get("metadata") or config.get("meta") or {}
        hook = str(config.get("hook_name") or metadata.get("hook_name") or "")
    # RecursionError: an untrusted file may nest lists deeper than Python's stack.
    except (ValueError, AttributeError, RecursionError):
        raise InvalidDictionaryError(
            f"{SAELENS_CONFIG_FILE} is not JSON of SAELens", hint="copy it again"
        ) from None
    tensors = _parse_tensors(_read(folder, SAELENS_WEIGHTS_FILE), SAELENS_WEIGHTS_FILE)
    weight = _take(tensors, "W_enc").T.contiguous()
    bias, decoder_bias = _take(tensors, "b_enc"), _take(tensors, "b_dec")
    if weight.dim() != 2 or decoder_bias.shape != weight.shape[1:]:
        raise InvalidDictionaryError("W_enc and b_dec do not fit", hint="copy the folder again")
    # SAELens subtracts the decoder's bias first: <e, h - c> + b is <e, h> + (b - <e, c>).
    if config.get("apply_b_dec_to_input", True):
        bias = bias - weight @ decoder_bias
    activation, k = _saelens_activation(config)
    return SparseDictionary(
        site or _saelens_site(hook, config.get("hook_head_index")),
        Encoder(
            weight,
            bias,
            activation,
            k,
            _take(tensors, "threshold") if activation == "jumprelu" else None,
            _saelens_normalization(config),
        ),
        _take(tensors, "W_dec"),
        decoder_bias,
    )


def _saelens_activation(config: Mapping[str, object]) -> tuple[ActivationFunction, int]:
    architecture = config.get("architecture", "standard")
    function = config.get("activation_fn_str") or config.get("activation_fn") or "relu"
    # Before version 6, k was an argument of the activation function of a standard architecture.
    arguments = config.get("activation_fn_kwargs")
    k = config.get("k") or (arguments.get("k") if isinstance(arguments, dict) else None)
    if architecture == "topk" or (architecture == "standard" and function == "topk"):
        if type(k) is int:
            return "topk", k
    elif architecture == "jumprelu":
        return "jumprelu", 0
    elif architecture == "standard" and function == "relu":
        return "relu", 0
    raise InvalidDictionaryError(
        f"an architecture {architecture!r:.40} with {function!r:.40} cannot be read",
        hint="convert it to relu, topk or jumprelu, and write it by save_dictionary",
    )


def _saelens_normalization(config: Mapping[str, object]) -> Normalization:
    name = str(config.get("normalize_activations", "none"))
    # Its factor is an average over the training data, and is not in the file.
    if name not in SAELENS_NORMALIZATIONS or config.get("finetuning_scaling_factor"):
        raise InvalidDictionaryError(
            f"activations are scaled by {name!r:.40}, and the scale is not in the file",
            hint="fold the scale into the weights (fold_activation_norm_scaling_factor), and save "
            "it again",
        )
    return SAELENS_NORMALIZATIONS[name]


def _saelens_site(hook: str, head: object) -> Site:
    match = re.fullmatch(r"blocks\.(\d{1,4})\.([a-z_.]+)", hook)
    stream = None if match is None else SAELENS_HOOKS.get(match[2])
    if match is None or stream is None or head is not None:
        raise InvalidDictionaryError(
            f"levelhead has no site for the hook {hook!r:.60}",
            hint=f"give site=; hooks with a site: {', '.join(SAELENS_HOOKS)}",
        )
    layer = int(match[1])
    if match[2] == "hook_resid_pre":
        return Site("embeddings") if layer == 0 else Site(stream, layer - 1)
    return Site(stream, layer)


def _take(tensors: Mapping[str, torch.Tensor], name: str) -> torch.Tensor:
    if name not in tensors:
        raise InvalidDictionaryError(f"the tensor {name} is missing", hint="copy the folder again")
    return tensors[name].to(torch.float32)


def _parse_tensors(data: bytes, name: str) -> dict[str, torch.Tensor]:
    try:
        return read_tensors(data)
    # KeyError: a type of numbers that torch lacks.
    except (SafetensorError, KeyError, ValueError, RuntimeError, TypeError) as error:
        raise InvalidDictionaryError(f"{name} is damaged: {error}", hint="copy it again") from None


def _read(folder: Url, name: str) -> bytes:
    try:
        return read_bytes(join_url(folder, name))
    except (FileNotFoundError, NotADirectoryError):
        raise InvalidDictionaryError(
            f"{folder} contains no {name}",
            hint=f"give a folder with {CONTENTS_FILE}, or with {SAELENS_CONFIG_FILE} and "
            f"{SAELENS_WEIGHTS_FILE}",
        ) from None
