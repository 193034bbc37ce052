"""The model that a command names: weights to load, or a server that is asked."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

from levelhead.core.errors import LevelheadError

if TYPE_CHECKING:
    from levelhead.models.lm import LM

KEY = "LEVELHEAD_KEY"
"""The variable that holds a server's key: what stands in a command line is seen by others."""


def is_served(model: str) -> bool:
    """Whether a model's name is the address of a server."""
    return model.startswith(("http://", "https://"))


def opened(model: str, *, edit: str | None = None, **how: Any) -> LM:
    """The model; behind HTTP one that can fill in words and score texts, and nothing else.

    Args:
        model: a Hub id, a folder, a .gguf file, or a server's address.
        edit: a folder that save_edits wrote.
        how: what else `load` is told; refused for a server, but for the size of batches.
    """
    if not is_served(model):
        from levelhead.models.loading.load import load

        return load(model, edit=edit, **how)
    from levelhead.models.loading.http_model import Remote

    for name, value in {"edit": edit, **how}.items():
        if name != "batch_size" and value not in (None, False, "float32", "auto"):
            raise LevelheadError(
                f"--{name} says nothing to a model behind HTTP",
                mend="name the model's weights, or leave the option out",
            )
    return cast("LM", Remote(model, key=os.environ.get(KEY)))
