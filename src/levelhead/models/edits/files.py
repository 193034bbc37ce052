"""Edit files: a folder with edits.json and edits.safetensors, whose hashes are checked."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self, cast

from pydantic import Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load as read_tensors
from safetensors.torch import save as serialize_tensors

from levelhead.core.canonical_json import content_hash, to_canonical_json
from levelhead.core.errors import LevelheadError
from levelhead.core.files import Url, join_url, open_filesystem, read_bytes, write_atomic
from levelhead.core.frozen import FrozenDict
from levelhead.core.results import FrozenMapping, Record, Sha256
from levelhead.models.edits.base import Edit, EditParts
from levelhead.models.edits.kinds import EDIT_KINDS, require_registered
from levelhead.models.sites import Site

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import torch

    from levelhead.models.editable_model import EditableModel
    from levelhead.models.sites import Stream

EDITS_FILE, TENSORS_FILE, FITTED_WORDS_FILE = "edits.json", "edits.safetensors", "seen.txt"


class InvalidEditFileError(LevelheadError):
    """An edit file that is damaged, was changed, or is not an edit file."""


class EditOrigin(Record):
    """The model that edits were fitted on, and the settings of the fit."""

    model: str
    checkpoint: Sha256
    """Hash of its files: directions that were fitted on one model have no meaning in another."""
    how: FrozenMapping

    @classmethod
    def from_model(cls, lm: EditableModel, **details: object) -> Self:
        """Create the origin of edits that were fitted on a model."""
        identity = lm.identity
        return cls(
            model=identity.display_name,
            checkpoint=identity.checkpoint.hash,
            how=FrozenDict(details),
        )


class _Entry(Record):
    kind: str
    """Key in EDIT_KINDS."""
    at: tuple[tuple[str, int, int | None], ...] = Field(min_length=1)
    settings: dict[str, str | float]
    tensors: tuple[str, ...]
    sha256: Sha256
    """Content hash of the edit."""


class _Contents(Record):
    format: Literal["levelhead-edits-1"]
    tensors: str
    """Name of the file with the tensors, in the same folder."""
    tensors_sha256: Sha256
    edits: tuple[_Entry, ...] = Field(min_length=1)
    origin: EditOrigin | None = None

    @property
    def as_json(self) -> dict[str, object]:
        """The contents as they are written; an unknown origin is left out."""
        return self.model_dump(exclude={"origin"} if self.origin is None else None)


def save_edits(
    edits: Sequence[Edit],
    folder: Url,
    *,
    fitted_words: Iterable[str] = (),
    origin: EditOrigin | None = None,
) -> None:
    """Write edits into a folder that `load_edits` and `load(edit=...)` can read.

    Args:
        edits: Edits, in the order in which they are applied.
        folder: Folder to write to.
        fitted_words: Words that the edits were fitted on; the edits must not be tested on them.
        origin: Model that the edits were fitted on, and settings of the fit.
    """
    if isinstance(edits, Edit) or not edits:
        raise LevelheadError("edits must be a non-empty list", hint="write [edit]")
    for edit in edits:
        require_registered(edit)
    tensors = serialize_tensors(
        {
            f"{i}.{name}": value.contiguous()
            for i, edit in enumerate(edits)
            for name, value in edit.tensors.items()
        }
    )
    contents = _Contents(
        format="levelhead-edits-1",
        tensors=TENSORS_FILE,
        tensors_sha256=hashlib.sha256(tensors).hexdigest(),
        edits=tuple(_make_entry(edit) for edit in edits),
        origin=origin,
    )
    text = to_canonical_json(
        {"sha256": content_hash(contents.as_json), "contents": contents.as_json}
    )
    fs, path = open_filesystem(join_url(folder, EDITS_FILE))
    # Writing the same edits again is harmless; others may be in use by a study.
    if fs.exists(path) and read_bytes(join_url(folder, EDITS_FILE)) != text:
        raise LevelheadError(f"{folder} holds other edits", hint="give a new folder")
    save_fitted_words(fitted_words, folder)
    write_atomic(join_url(folder, TENSORS_FILE), tensors)
    # edits.json is written last and holds the hash of the tensors: an incomplete folder is never
    # loaded.
    write_atomic(join_url(folder, EDITS_FILE), text)


def _make_entry(edit: Edit) -> _Entry:
    """Create the entry of an edit; raises if the entry does not give the same edit again."""
    parts = edit.to_parts()
    try:
        entry = _Entry.model_validate(
            {
                "kind": edit.kind,
                "at": tuple((site.stream, site.layer, site.head) for site in parts.sites),
                "settings": dict(parts.settings),
                "tensors": tuple(sorted(parts.tensors)),
                "sha256": edit.content_hash,
            }
        )
        # A kind that loses a parameter in its file is found when it is saved, not when it is read.
        rebuilt = type(edit).from_parts(parts._replace(settings=entry.settings))
    except (ValidationError, TypeError, ValueError) as error:
        raise LevelheadError(
            f"the {edit.kind} cannot be saved: {' '.join(str(error).split())}",
            hint="use only texts and finite numbers as settings, and let "
            f"{type(edit).__name__}.from_parts create the edit from sites, settings and tensors",
        ) from None
    if rebuilt.content_hash != edit.content_hash:
        raise LevelheadError(
            f"{type(edit).__name__}.from_parts does not give the same {edit.kind} again",
            hint="return all parameters in settings and tensors, and use all of them in from_parts",
        )
    return entry


def save_fitted_words(words: Iterable[str], folder: Url) -> None:
    """Write the words that the edits of a folder were fitted on, if there are any."""
    # Sorted: the file must not depend on the order in which words were found.
    if sorted_words := sorted(words):
        write_atomic(join_url(folder, FITTED_WORDS_FILE), ("\n".join(sorted_words) + "\n").encode())


def read_fitted_words(folder: Url) -> tuple[str, ...] | None:
    """Read the words that the edits of a folder were fitted on; None if they are not recorded."""
    fs, path = open_filesystem(join_url(folder, FITTED_WORDS_FILE))
    if not fs.exists(path):
        return None
    try:
        words = read_bytes(join_url(folder, FITTED_WORDS_FILE)).decode().splitlines()
    except UnicodeError:
        raise InvalidEditFileError(
            f"{FITTED_WORDS_FILE} is not UTF-8 text", hint="copy it again"
        ) from None
    return tuple(word for word in words if word)


def read_edit_origin(folder: Url) -> EditOrigin | None:
    """Read which model the edits of a folder were fitted on; None if it is not recorded."""
    return _read_contents(folder).origin


def load_edits(folder: Url) -> tuple[Edit, ...]:
    """Read the edits of a folder; raises if a hash or a shape does not match."""
    contents = _read_contents(folder)
    # An edit file is untrusted: it could name a file outside its folder.
    if os.path.basename(contents.tensors) != contents.tensors or contents.tensors in (
        "",
        ".",
        "..",
    ):
        raise InvalidEditFileError(
            f"{EDITS_FILE} names a file outside its folder: {contents.tensors!r}",
            hint="do not use this edit; request it again from its author",
        )
    data = _read_bytes(folder, contents.tensors)
    # Checked before the bytes are parsed: a parser never sees a file that was exchanged.
    if hashlib.sha256(data).hexdigest() != contents.tensors_sha256:
        raise InvalidEditFileError(
            f"{contents.tensors} is not the file that was written with {EDITS_FILE}",
            hint="copy the complete folder again",
        )
    try:
        tensors = read_tensors(data)
    # KeyError: a type of numbers that torch lacks.
    except (SafetensorError, KeyError, ValueError, RuntimeError, TypeError) as error:
        raise InvalidEditFileError(
            f"{TENSORS_FILE} is damaged: {error}", hint="copy it again"
        ) from None
    return tuple(_make_edit(i, entry, tensors) for i, entry in enumerate(contents.edits))


def _read_contents(folder: Url) -> _Contents:
    try:
        document = json.loads(_read_bytes(folder, EDITS_FILE))
        # As text: in pydantic's strict mode only JSON may give a list for a tuple.
        contents = _Contents.model_validate_json(json.dumps(document["contents"]))
    # RecursionError: an untrusted file may nest lists deeper than Python's stack.
    except (ValueError, ValidationError, KeyError, TypeError, RecursionError) as error:
        raise InvalidEditFileError(
            f"{EDITS_FILE} is not an edit file: {str(error).splitlines()[0]}",
            hint="give a folder that save_edits wrote",
        ) from None
    # Detects damage and edits by hand; it is no signature, because anyone can compute it again.
    if content_hash(contents.as_json) != document.get("sha256"):
        raise InvalidEditFileError(
            f"{EDITS_FILE} was changed after it was written", hint="copy the complete folder again"
        )
    return contents


def _read_bytes(folder: Url, name: str) -> bytes:
    try:
        # Whoever opens a pipe, or a device, in a folder of others may wait for ever.
        if (path := Path(str(folder), name)).exists() and not path.is_file():
            raise IsADirectoryError(name)
        return read_bytes(join_url(folder, name))
    except (FileNotFoundError, NotADirectoryError):
        raise InvalidEditFileError(
            f"{folder} contains no {name:.80}", hint="give a folder that save_edits wrote"
        ) from None
    # ValueError: a name with a null byte, which an untrusted file may hold.
    except (OSError, ValueError) as error:
        raise InvalidEditFileError(
            f"cannot read {name!r:.80} in {folder}: {type(error).__name__}",
            hint="give a folder that save_edits wrote",
        ) from None


def _make_edit(index: int, entry: _Entry, tensors: Mapping[str, torch.Tensor]) -> Edit:
    # The cast is safe: every edit validates its sites when it is created.
    sites = tuple(Site(cast("Stream", stream), layer, head) for stream, layer, head in entry.at)
    kind = EDIT_KINDS.get(entry.kind)
    if kind is None:
        raise InvalidEditFileError(
            f"edit {index} has the unknown kind {entry.kind!r:.60}; known: {', '.join(EDIT_KINDS)}",
            hint="register its class first, in levelhead.models.edits.kinds.EDIT_KINDS",
        )
    parts: dict[str, torch.Tensor] = {}
    for name in entry.tensors:
        if f"{index}.{name}" not in tensors:
            raise InvalidEditFileError(
                f"edit {index} lacks its tensor {name}", hint="copy the folder again"
            )
        parts[name] = tensors[f"{index}.{name}"]
    try:
        edit = kind.from_parts(EditParts(sites, entry.settings, parts))
    # RuntimeError: of torch, for shapes or types that do not fit.
    except (TypeError, ValueError, RuntimeError, IndexError) as error:
        raise InvalidEditFileError(
            f"edit {index} is not a valid {entry.kind}: {error}",
            hint="give a folder that save_edits wrote",
        ) from None
    # Of the rebuilt edit: a class that ignores a stored parameter would apply another edit.
    if edit.content_hash != entry.sha256:
        raise InvalidEditFileError(
            f"the hash of edit {index} differs from the stored one", hint="copy the folder again"
        )
    return edit
