"""Open a model by its name: weights to load, or a server to query."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

from levelhead.core.errors import LevelheadError
from levelhead.models.serving.addresses import KEY_VARIABLE

if TYPE_CHECKING:
    from levelhead.models.lm import LM
    from levelhead.models.serving.budget import TokenBudget


def is_http(model: str) -> bool:
    """Report whether a model's name is the address of a server."""
    return model.startswith(("http://", "https://"))


def open_model(
    model: str, *, edit: str | None = None, budget: object | None = None, **options: Any
) -> LM:
    """Open a model; one behind HTTP can only fill in words, score, choose and generate texts.

    Args:
        model: a Hub id, a folder, a .gguf file, or a server's address, with #NAME for one of
            several models.
        edit: folder of an edit that save_edits wrote.
        budget: `TokenBudget` of a server's tokens.
        options: further keywords of `load`. A server accepts the batch size only.

    Raises:
        LevelheadError: an option was set that a server cannot apply.
    """
    if not is_http(model):
        if budget is not None:
            raise LevelheadError(
                f"a budget of tokens has no effect on {model}, which no server runs",
                hint="leave out --max-tokens and --max-cost, or name the address of a server",
            )
        from levelhead.models.loading.load import load

        return load(model, edit=edit, **options)
    from levelhead.models.loading.http_model import HttpModel

    # An option that is silently ignored would give a number for another model than the one
    # that was named. The listed values are the defaults of the options: nobody set them.
    for name, value in {"edit": edit, **options}.items():
        if name != "batch_size" and value not in (None, False, "float32", "auto"):
            raise LevelheadError(
                f"--{name} has no effect on a model behind HTTP",
                hint="name the model's weights, or leave the option out",
            )
    address, _, name = model.partition("#")
    return cast(
        "LM",
        HttpModel(
            address,
            name,
            key=os.environ.get(KEY_VARIABLE),
            budget=cast("TokenBudget | None", budget),
        ),
    )
