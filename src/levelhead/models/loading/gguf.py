"""GGUF files: converted once to safetensors, then loaded like any other checkpoint."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from levelhead.core.errors import LevelheadError, MissingExtra
from levelhead.core.files import file_hash
from levelhead.models.export.save import made_once
from levelhead.models.loading.quiet import quiet

RECIPE = 2
"""Raised when `_convert` writes other files than before; old conversions are then made anew."""


def converted(path: Path, cache: Path) -> Path:
    """The folder a GGUF file was converted into; made on first use, whole or not at all."""

    def convert(folder: Path) -> None:
        # Alone in a folder: transformers would take a tokenizer, an adapter or code from whatever
        # lies beside the file.
        with tempfile.TemporaryDirectory(dir=folder.parent) as alone, quiet():
            link = Path(alone, "model.gguf")
            link.symlink_to(path.resolve())
            _convert(link, folder)

    return made_once(cache / "gguf" / f"{file_hash(path)[:32]}-{RECIPE}", convert)


def _convert(path: Path, folder: Path) -> None:
    import torch
    import transformers

    try:
        import gguf  # noqa: F401  # transformers asks for it much later, and less clearly
    except ImportError:
        raise MissingExtra("reading GGUF files", "gguf") from None
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype=torch.float32, trust_remote_code=False
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            path.parent, gguf_file=path.name, trust_remote_code=False
        )
    except Exception as error:
        raise LevelheadError(
            f"transformers cannot read this GGUF file: {(str(error).splitlines() or [''])[0]}",
            mend="use a GGUF file of an architecture and quantisation that transformers knows",
        ) from None
    # transformers will not save a model it read from GGUF; a fresh one with the same weights it
    # will. The weights are dequantised, so the note of their quantisation goes.
    settings = model.config.to_dict()
    settings.pop("quantization_config", None)
    fresh = type(model)(type(model.config)(**settings))
    fresh.load_state_dict(model.state_dict())
    fresh.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    said = folder / "tokenizer_config.json"
    said.write_text(json.dumps(json.loads(said.read_text()) | {"add_bos_token": _adds_bos(path)}))


def _adds_bos(path: Path) -> bool:
    """What the file says about a beginning token; transformers' tokenizer forgets it."""
    from gguf import GGUFReader

    field = GGUFReader(path).get_field("tokenizer.ggml.add_bos_token")
    return bool(field is not None and field.contents())
