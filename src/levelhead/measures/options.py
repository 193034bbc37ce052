"""Options of measures: checks of their values, and their form in stored results."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError
from levelhead.core.files import file_hash

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _typeshed import DataclassInstance


def option_as_json(value: object) -> object:
    """Convert an option to plain JSON; lexicons and the user's items are replaced by hashes."""
    if isinstance(value, tuple) and any(hasattr(element, "_fields") for element in value):
        return hash_items(value)
    if isinstance(value, tuple | list):
        return [option_as_json(element) for element in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    name, digest = getattr(value, "name", None), getattr(value, "sha256", None)
    if name is not None and digest is not None:
        return {"name": str(name), "sha256": str(digest)}
    return str(value)


def is_lexicon_file(value: object) -> bool:
    """Report whether the option for a lexicon is a path and no name."""
    return isinstance(value, str) and (
        value.endswith(".toml") or Path(value).expanduser().is_file()
    )


def hash_items(items: Sequence[object]) -> str:
    """SHA-256 of items that the user passed in memory."""
    return content_hash([list(item) if isinstance(item, tuple) else str(item) for item in items])


def hash_texts(texts: str | Sequence[object]) -> dict[str, str]:
    """SHA-256 of the user's texts, by name: of a file by its path, or of texts in memory."""
    if isinstance(texts, str):
        return {f"file {Path(texts).name}": file_hash(texts)}
    return {"texts": hash_items(texts)}


def forbid_unused_options(
    measure: DataclassInstance, options: tuple[str, ...], overriding: str
) -> None:
    """Raise an error for options that another option makes ineffective."""
    # A silently ignored option would look as if it had been applied.
    defaults = {option.name: option.default for option in fields(measure)}
    changed = [name for name in options if getattr(measure, name) != defaults[name]]
    if changed:
        names_text = ", ".join(changed)
        raise LevelheadError(
            f"{names_text} would change nothing with {overriding}",
            hint=f"leave out {names_text}, or {overriding}",
        )


def check_positive(value: float, name: str) -> None:
    """Raise an error unless a number is larger than 0."""
    # Written with `not` so that NaN is refused too.
    if not value > 0:
        raise LevelheadError(f"{name} is {value}", hint="give a number larger than 0")
