"""GGUF files: convert them once to safetensors, then load them like any other checkpoint."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from levelhead.core.errors import LevelheadError, MissingExtraError
from levelhead.core.files import file_hash
from levelhead.models.export.save import build_once
from levelhead.models.loading.gguf_header import check_header
from levelhead.models.loading.quiet import quiet

CONVERSION_REVISION = 2
"""Incremented when `_convert` changes what it writes; cached conversions are then made again."""


def convert_gguf(path: Path, cache: Path) -> Path:
    """Return the folder with the converted GGUF file; the first call converts it, atomically."""

    def convert(folder: Path) -> None:
        # The file is linked into an empty folder: transformers would otherwise use a tokenizer, an
        # adapter or code that happens to be next to it.
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch, quiet():
            link = Path(scratch, "model.gguf")
            link.symlink_to(path.resolve())
            _convert(link, folder)

    # Named by its content: a file that was replaced under its name is converted again.
    return build_once(cache / "gguf" / f"{file_hash(path)[:32]}-{CONVERSION_REVISION}", convert)


def _convert(path: Path, folder: Path) -> None:
    import torch
    import transformers

    try:
        # transformers imports it much later, with a less clear error.
        import gguf  # noqa: F401
    except ImportError:
        raise MissingExtraError("reading GGUF files", "gguf") from None
    check_header(path)
    try:
        loaded: Any = transformers.AutoModelForCausalLM.from_pretrained(
            path.parent,
            gguf_file=path.name,
            dtype=torch.float32,
            trust_remote_code=False,
            output_loading_info=True,
        )
        model, loading_info = loaded
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            path.parent, gguf_file=path.name, trust_remote_code=False
        )
        # transformers refuses to save a model that it read from GGUF, but saves a new one with the
        # same weights. They are dequantised now, so the quantisation settings are removed.
        settings = model.config.to_dict()
        settings.pop("quantization_config", None)
        unquantised_model = type(model)(type(model.config)(**settings))
        unquantised_model.load_state_dict(model.state_dict())
    # A malformed file can fail anywhere in the parser, with any type of error.
    except Exception as error:
        raise LevelheadError(
            f"transformers cannot read this GGUF file: {(str(error).splitlines() or [''])[0]:.200}",
            hint="use a GGUF file of an architecture and quantisation that transformers knows",
        ) from None
    # transformers initialises them at random, and random weights show no bias.
    if missing := sorted(loading_info["missing_keys"]):
        raise LevelheadError(
            f"the GGUF file lacks weights, which would be initialised at random: {missing[0]}"
            f"{' and more' if len(missing) > 1 else ''}",
            hint="download the file again",
        )
    unquantised_model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    tokenizer_config = folder / "tokenizer_config.json"
    settings = json.loads(tokenizer_config.read_text(encoding="utf-8"))
    tokenizer_config.write_text(
        json.dumps(settings | {"add_bos_token": _adds_bos(path)}), encoding="utf-8"
    )


def _adds_bos(path: Path) -> bool:
    """Whether the file requests a beginning token; transformers' tokenizer drops this setting."""
    from gguf import GGUFReader

    field = GGUFReader(path).get_field("tokenizer.ggml.add_bos_token")
    return bool(field is not None and field.contents())
