"""Corrections of published items, kept apart from them: a word at a place, never a sentence.

A patch names the item, the field, the SHA-256 of the text it is for, the number of the token and
the word that shall stand there. Where the text is another one, the patch is refused: corrections
of one version of a data set do not leak into another.
"""

from __future__ import annotations

import csv
import hashlib
import io
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from levelhead.core.errors import LevelheadError
from levelhead.data.tokenize import tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from levelhead.data.records import Item

AnyItem = TypeVar("AnyItem", bound="Item")


class Patch(NamedTuple):
    """One word of one text, corrected."""

    item: str
    field: str
    sha256: str
    token: int
    word: str


def read_patches(text: str) -> list[Patch]:
    """Patches from CSV with a header."""
    found = []
    for row in csv.DictReader(io.StringIO(text, newline="")):
        try:
            found.append(
                Patch(row["item"], row["field"], row["sha256"], int(row["token"]), row["word"])
            )
        except (KeyError, TypeError, ValueError) as error:
            raise LevelheadError(
                f"a patch is not as it should be: {error!r}",
                mend="columns: item, field, sha256, token, word",
            ) from None
    return found


def patched(items: Iterable[AnyItem], patches: Iterable[Patch]) -> Iterator[AnyItem]:
    """The items with their corrections; a patch that fits no item is an error."""
    waiting: dict[str, dict[str, list[Patch]]] = {}
    for patch in patches:
        waiting.setdefault(patch.item, {}).setdefault(patch.field, []).append(patch)
    for item in items:
        mended = item
        for field, own in waiting.pop(item.id, {}).items():
            mended = _with(mended, field, own)
        yield mended
    if waiting:
        raise LevelheadError(
            f"a patch is for {next(iter(waiting))}, which is not in the data",
            mend="use the overlay with the data set it was made for",
        )


def _with(item: AnyItem, field: str, patches: list[Patch]) -> AnyItem:
    """All corrections of one text, from its end to its beginning so that places stay."""
    text = getattr(item, field, None)
    name = f"{item.id} ({field})"
    if field == "id" or not isinstance(text, str):
        raise LevelheadError(f"{name} is no text", mend="name a field that holds a text")
    digest, found = hashlib.sha256(text.encode()).hexdigest(), tokens(text)
    for patch in sorted(patches, key=lambda patch: -patch.token):
        if patch.sha256 != digest:
            raise LevelheadError(
                f"the patch of {name} is for another text",
                mend="use the overlay with the version of the data set it was made for",
            )
        if not 0 <= patch.token < len(found) or not patch.word:
            raise LevelheadError(f"{name} has no token {patch.token}", mend="count from 0")
        old = found[patch.token]
        text = text[: old.start] + patch.word + text[old.end :]
    values: dict[str, Any] = {field: text}
    mended: Any = item._replace(**values)
    return cast("AnyItem", mended)
