"""Files as fsspec URLs, written whole or not at all.

A plain path is a URL too. On local disks a file is written under another name and renamed, and
object stores publish an object only when its upload is complete: a reader sees the old bytes or the
new ones, and a process killed at any moment leaves no half file under the final name. Remote file
systems that are neither (sftp, smb) may show a part while it is written; whoever reads from them
must verify a checksum, as `engine.store` does.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from levelhead.core.errors import LevelheadError, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fsspec import AbstractFileSystem

Url = str | os.PathLike[str]

_EXTRAS = {"s3": "s3", "s3a": "s3"}
"""Protocols whose fsspec package is one of our extras."""


def located(url: Url) -> tuple[AbstractFileSystem, str]:
    """The file system a URL points into, and the absolute path inside it."""
    text = os.fspath(url)
    # Only text with a protocol is a URL: a path may hold "::", "%20" or anything else.
    if isinstance(url, os.PathLike) or "://" not in text:
        return LocalFileSystem(), os.path.abspath(text)
    if text.startswith("file://"):
        return LocalFileSystem(), os.path.abspath(unquote(urlsplit(text).path))
    protocol = text.partition("://")[0]
    try:
        fs, path = url_to_fs(text)
    except ImportError as error:
        if protocol in _EXTRAS:
            raise MissingExtra(f"reading {protocol}:// URLs", _EXTRAS[protocol]) from None
        raise LevelheadError(f"cannot open {text}: {error}", mend="install that package") from None
    except ValueError as error:
        raise LevelheadError(
            f"cannot open {text}: {error}", mend="use a path, or a protocol that fsspec knows"
        ) from None
    return fs, path


def absolute(url: Url) -> str:
    """A URL that means the same whatever the working directory becomes, without a slash at its end.

    >>> absolute("memory://a/b/")
    'memory://a/b'
    """
    fs, path = located(url)
    if isinstance(fs, LocalFileSystem):
        return path
    protocol, _, rest = os.fspath(url).partition("://")
    return f"{protocol}://{rest.rstrip('/')}"


def whole_path(path: str) -> str:
    """The absolute path of what is there; anything else as it is."""
    found = Path(path).expanduser()
    return str(found.resolve()) if found.exists() else path


def is_local(url: Url) -> bool:
    """Whether a URL is on a disk of this machine (or mounted like one)."""
    return isinstance(located(url)[0], LocalFileSystem)


def on_disk(folder: Url) -> Path:
    """The path of a folder that has to be on a disk of this machine."""
    if is_local(folder):
        return Path(folder if "://" not in os.fspath(folder) else located(folder)[1])
    raise LevelheadError(
        f"{os.fspath(folder)} is on no disk of this machine",
        mend="name a folder here; studies and leaderboards keep readings elsewhere by `store`",
    )


def join(url: Url, *parts: str) -> str:
    """A URL below another one."""
    text = os.fspath(url)
    base = text if text.endswith("://") else text.rstrip("/") + "/"
    return base + "/".join(parts)


def read_bytes(url: Url) -> bytes:
    """The bytes of a file; FileNotFoundError if there is none."""
    fs, path = located(url)
    return bytes(fs.cat_file(path))


def write_atomic(url: Url, data: bytes | Iterable[bytes], *, scratch: Url | None = None) -> None:
    """Write a file whole or not at all, replacing what was there.

    Args:
        url: where the bytes shall be.
        data: the bytes, or parts of them, which are never held together.
        scratch: a folder on the same disk for the unfinished file; by default the file's own.
            Object stores have no use for it.
    """
    fs, path = located(url)
    if not isinstance(fs, LocalFileSystem) and isinstance(data, bytes):
        fs.pipe_file(path, data)
        return
    if not isinstance(fs, LocalFileSystem):
        with tempfile.TemporaryDirectory() as folder:  # a stream cut off would be published
            whole = os.path.join(folder, "whole")
            write_atomic(whole, data)
            fs.put_file(whole, path)
        return
    folder = os.path.dirname(path)
    beside = folder if scratch is None else located(scratch)[1]
    os.makedirs(folder, exist_ok=True)
    os.makedirs(beside, exist_ok=True)
    unfinished = os.path.join(beside, _unfinished_name(os.path.basename(path)))
    try:
        with open(unfinished, "xb") as file:
            file.writelines((data,) if isinstance(data, bytes) else data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(unfinished)
        raise


def expect_writable(url: Url) -> None:
    """Refuse a file that cannot be written before the work whose result it shall hold.

    Folders that are missing are made by `write_atomic`; what a remote store allows is not asked.
    """
    fs, path = located(url)
    if not isinstance(fs, LocalFileSystem):
        return
    if os.path.isdir(path):
        raise LevelheadError(f"{os.fspath(url)} is a folder", mend="name a file in it")
    near = next(str(one) for one in Path(path).parents if os.path.exists(one))
    if not os.path.isdir(near):
        raise LevelheadError(
            f"{os.fspath(url)} cannot be written: {near} is a file", mend="name another file"
        )
    if not os.access(near, os.W_OK | os.X_OK):
        raise LevelheadError(
            f"{os.fspath(url)} cannot be written: nothing may be added to {near}",
            mend="name another file, or ask whose folder it is",
        )


def remove_abandoned(folder: Url) -> None:
    """Remove unfinished files of writers on this machine that are no more. Others stay."""
    fs, path = located(folder)
    if not isinstance(fs, LocalFileSystem) or not os.path.isdir(path):
        return
    for entry in os.scandir(path):
        writer = _UNFINISHED.fullmatch(entry.name)
        if writer and writer["host"] == _host() and not _alive(int(writer["pid"])):
            with suppress(FileNotFoundError):
                os.unlink(entry.path)


def file_hash(url: Url) -> str:
    """SHA-256 of a file's bytes, in hexadecimal, read in pieces."""
    fs, path = located(url)
    with fs.open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_UNFINISHED = re.compile(r"\..+\.(?P<host>[0-9a-f]{8})-(?P<pid>\d+)-[0-9a-f]{16}\.tmp")


def _unfinished_name(name: str) -> str:
    """Says who writes it, so that what a killed process left can be told from work under way."""
    return f".{name}.{_host()}-{os.getpid()}-{secrets.token_hex(8)}.tmp"


def _host() -> str:
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def _alive(pid: int) -> bool:
    if os.name == "nt":  # signal 0 asks on Unix and kills on Windows
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is there and not ours to ask
        return True
    return True
