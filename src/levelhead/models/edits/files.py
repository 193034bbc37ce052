"""Edits as files: a folder with edits.json and edits.safetensors, both hash-checked."""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, Literal, Self, cast

from pydantic import Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load as read_tensors
from safetensors.torch import save as written_tensors

from levelhead.core.canonical_json import canonical, content_hash
from levelhead.core.errors import LevelheadError
from levelhead.core.files import Url, join, located, read_bytes, write_atomic
from levelhead.core.frozen import Frozen
from levelhead.core.results import FrozenMapping, Record, Sha256
from levelhead.models.edits.base import Edit, EditParts
from levelhead.models.edits.kinds import EDIT_KINDS, refuse_unregistered
from levelhead.models.sites import Site

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import torch

    from levelhead.models.lm import LM
    from levelhead.models.sites import Stream

TEXT, TENSORS, SEEN = "edits.json", "edits.safetensors", "seen.txt"


class RefusedEdits(LevelheadError):
    """An edit file that is not what it says it is."""


class Origin(Record):
    """What edits were fitted on, and how."""

    model: str
    checkpoint: Sha256
    """Of its files: directions of one model say nothing in another."""
    how: FrozenMapping

    @classmethod
    def of(cls, lm: LM, **how: object) -> Self:
        """Of edits that were fitted on a model."""
        own = lm.identity
        return cls(model=own.shown, checkpoint=own.checkpoint.hash, how=Frozen(how))


class _Entry(Record):
    kind: str
    """As in EDIT_KINDS."""
    at: tuple[tuple[str, int, int | None], ...] = Field(min_length=1)
    settings: dict[str, str | float]
    tensors: tuple[str, ...]
    sha256: Sha256
    """The edit's own content hash."""


class _Contents(Record):
    format: Literal["levelhead-edits-1"]
    tensors: str
    """The file beside this one that holds the tensors."""
    tensors_sha256: Sha256
    edits: tuple[_Entry, ...] = Field(min_length=1)
    origin: Origin | None = None

    @property
    def plain(self) -> dict[str, object]:
        """As it is written: what is not known is not there."""
        return self.model_dump(exclude={"origin"} if self.origin is None else None)


def save_edits(
    edits: Sequence[Edit], folder: Url, *, seen: Iterable[str] = (), origin: Origin | None = None
) -> None:
    """Write edits into a folder that `load_edits` and `load(edit=...)` read.

    Args:
        edits: in their order.
        folder: where to.
        seen: the words that they were fitted on, so that nobody judges them by these.
        origin: the model that they were fitted on, and how.
    """
    if isinstance(edits, Edit) or not edits:
        raise LevelheadError("there is no list of edits to save", mend="write [edit]")
    for edit in edits:
        refuse_unregistered(edit)
    tensors = written_tensors(
        {
            f"{i}.{name}": value.contiguous()
            for i, edit in enumerate(edits)
            for name, value in edit.tensors.items()
        }
    )
    contents = _Contents(
        format="levelhead-edits-1",
        tensors=TENSORS,
        tensors_sha256=hashlib.sha256(tensors).hexdigest(),
        edits=tuple(_entry(edit) for edit in edits),
        origin=origin,
    )
    text = canonical({"sha256": content_hash(contents.plain), "contents": contents.plain})
    fs, path = located(join(folder, TEXT))
    if fs.exists(path) and read_bytes(join(folder, TEXT)) != text:
        raise LevelheadError(f"{folder} holds other edits", mend="give a new folder")
    save_seen(seen, folder)
    write_atomic(join(folder, TENSORS), tensors)
    # The text is written last and names the tensors' hash: half a folder is never read as an edit.
    write_atomic(join(folder, TEXT), text)


def _entry(edit: Edit) -> _Entry:
    """What the text says of an edit; refused if the same edit cannot be made of it again."""
    parts = edit.to_parts()
    try:
        entry = _Entry.model_validate(
            {
                "kind": edit.kind,
                "at": tuple((site.stream, site.layer, site.head) for site in parts.at),
                "settings": dict(parts.settings),
                "tensors": tuple(sorted(parts.tensors)),
                "sha256": edit.content_hash,
            }
        )
        again = type(edit).from_parts(parts._replace(settings=entry.settings))
    except (ValidationError, TypeError, ValueError) as error:
        raise LevelheadError(
            f"the {edit.kind} cannot be saved: {' '.join(str(error).split())}",
            mend="an edit has sites, settings that are texts or finite numbers, and tensors, and "
            f"{type(edit).__name__}.from_parts makes it of them",
        ) from None
    if again.content_hash != edit.content_hash:
        raise LevelheadError(
            f"{type(edit).__name__}.from_parts makes another {edit.kind} of the parts of this one",
            mend="let settings and tensors name all that it is made of, and from_parts use it",
        )
    return entry


def save_seen(words: Iterable[str], folder: Url) -> None:
    """Write the words that the edits of a folder were fitted on, if there are any."""
    if found := sorted(words):
        write_atomic(join(folder, SEEN), ("\n".join(found) + "\n").encode())


def seen_by_edits(folder: Url) -> tuple[str, ...] | None:
    """The words that the edits of a folder were fitted on; None if it does not say."""
    fs, path = located(join(folder, SEEN))
    if not fs.exists(path):
        return None
    try:
        words = read_bytes(join(folder, SEEN)).decode().splitlines()
    except UnicodeError:
        raise RefusedEdits(f"{SEEN} is no UTF-8 text", mend="copy it again") from None
    return tuple(word for word in words if word)


def origin_of(folder: Url) -> Origin | None:
    """What the edits of a folder were fitted on; None if it does not say."""
    return _contents(folder).origin


def load_edits(folder: Url) -> tuple[Edit, ...]:
    """Read the edits of a folder; anything that does not fit its hash or shape is refused."""
    contents = _contents(folder)
    if os.path.basename(contents.tensors) != contents.tensors or contents.tensors in (
        "",
        ".",
        "..",
    ):
        raise RefusedEdits(
            f"{TEXT} names a file outside its folder: {contents.tensors!r}",
            mend="do not use this edit; ask for it again",
        )
    data = _bytes(folder, contents.tensors)
    if hashlib.sha256(data).hexdigest() != contents.tensors_sha256:
        raise RefusedEdits(
            f"{contents.tensors} is not the file that {TEXT} was written with",
            mend="copy the whole folder again",
        )
    try:
        tensors = read_tensors(data)
    except SafetensorError as error:
        raise RefusedEdits(f"{TENSORS} is damaged: {error}", mend="copy it again") from None
    return tuple(_edit(i, entry, tensors) for i, entry in enumerate(contents.edits))


def _contents(folder: Url) -> _Contents:
    try:
        found = json.loads(_bytes(folder, TEXT))
        contents = _Contents.model_validate_json(json.dumps(found["contents"]))
    except (ValueError, ValidationError, KeyError, TypeError, RecursionError) as error:
        raise RefusedEdits(
            f"{TEXT} is no edit file: {str(error).splitlines()[0]}",
            mend="give a folder that save_edits wrote",
        ) from None
    if content_hash(contents.plain) != found.get("sha256"):
        raise RefusedEdits(
            f"{TEXT} was changed after it was written", mend="copy the whole folder again"
        )
    return contents


def _bytes(folder: Url, name: str) -> bytes:
    try:
        return read_bytes(join(folder, name))
    except (FileNotFoundError, NotADirectoryError):
        raise RefusedEdits(
            f"there is no {name} in {folder}", mend="give a folder that save_edits wrote"
        ) from None


def _edit(index: int, entry: _Entry, tensors: Mapping[str, torch.Tensor]) -> Edit:
    # The edit checks its sites itself.
    sites = tuple(Site(cast("Stream", stream), layer, head) for stream, layer, head in entry.at)
    kind = EDIT_KINDS.get(entry.kind)
    if kind is None:
        raise RefusedEdits(
            f"edit {index} is of a kind that is not known, {entry.kind!r:.60}; known: "
            f"{', '.join(EDIT_KINDS)}",
            mend="register its class first, in levelhead.models.edits.kinds.EDIT_KINDS",
        )
    parts: dict[str, torch.Tensor] = {}
    for name in entry.tensors:
        if f"{index}.{name}" not in tensors:
            raise RefusedEdits(f"edit {index} lacks its {name}", mend="copy the folder again")
        parts[name] = tensors[f"{index}.{name}"]
    try:
        edit = kind.from_parts(EditParts(sites, entry.settings, parts))
    except (TypeError, ValueError) as error:
        raise RefusedEdits(
            f"edit {index} is no {entry.kind}: {error}", mend="give a folder save_edits wrote"
        ) from None
    if edit.content_hash != entry.sha256:
        raise RefusedEdits(
            f"edit {index} does not have the hash it was saved with", mend="copy the folder again"
        )
    return edit
