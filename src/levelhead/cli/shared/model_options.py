"""Where a command stores the responses of the model that it names."""

from __future__ import annotations

from levelhead.models.loading.open_model import is_http


def response_store(store: str | None, model: str) -> str | None:
    """Choose where a model's responses are stored.

    Args:
        store: the user's choice.
        model: the model. A server may change its weights without notice: its responses are stored
            on request only.

    Returns:
        The user's choice, or the cache; None for a server.
    """
    from levelhead.models.loading.load import model_cache_folder

    # None keeps responses in memory for this run only.
    return store or (None if is_http(model) else str(model_cache_folder().parent / "readouts"))
