"""Files as fsspec URLs, written whole or not at all.

A plain path is a URL too. On local disks a file is written beside its place and renamed into it;
object stores publish an object only when its upload is complete. Either way a reader sees the old
bytes or the new ones, and a process killed at any moment leaves no half file under the final name.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from typing import TYPE_CHECKING

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

Url = str | os.PathLike[str]


def located(url: Url) -> tuple[AbstractFileSystem, str]:
    """The file system a URL points into, and the path inside it."""
    fs, path = url_to_fs(os.fspath(url))
    return fs, path


def is_local(url: Url) -> bool:
    """Whether a URL is on a disk of this machine (or mounted like one)."""
    return isinstance(located(url)[0], LocalFileSystem)


def join(url: Url, *parts: str) -> str:
    """A URL below another one."""
    return "/".join((os.fspath(url).rstrip("/"), *parts))


def read_bytes(url: Url) -> bytes:
    """The bytes of a file; FileNotFoundError if there is none."""
    fs, path = located(url)
    return bytes(fs.cat_file(path))


def write_atomic(url: Url, data: bytes, *, scratch: Url | None = None) -> None:
    """Write a file whole or not at all, replacing what was there.

    Args:
        url: where the bytes shall be.
        data: the bytes.
        scratch: a folder on the same disk for the unfinished file; by default the file's own.
            Object stores have no use for it.
    """
    fs, path = located(url)
    if not isinstance(fs, LocalFileSystem):
        fs.pipe_file(path, data)
        return
    folder = os.path.dirname(path)
    beside = folder if scratch is None else located(scratch)[1]
    os.makedirs(folder, exist_ok=True)
    os.makedirs(beside, exist_ok=True)
    unfinished = os.path.join(beside, f".{os.path.basename(path)}.{secrets.token_hex(8)}.tmp")
    try:
        with open(unfinished, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException:
        if os.path.exists(unfinished):
            os.unlink(unfinished)
        raise


def file_hash(url: Url) -> str:
    """SHA-256 of a file's bytes, in hexadecimal, read in pieces."""
    fs, path = located(url)
    with fs.open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
