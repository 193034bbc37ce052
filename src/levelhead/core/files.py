"""Files as fsspec URLs, with atomic writes.

A plain path is also a URL. On local disks a file is written under a temporary name and renamed;
object stores publish an object only when its upload is complete. So a reader sees either the old or
the new bytes, and a process that is killed leaves no partial file under the final name. Other
remote file systems (sftp, smb) may show a partial file during the write; code that reads from them
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

from levelhead.core.errors import LevelheadError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fsspec import AbstractFileSystem

Url = str | os.PathLike[str]

_EXTRAS = {"s3": "s3", "s3a": "s3"}
"""Protocols whose fsspec package is an optional extra of levelhead."""
_PROTOCOLS = (
    *("file", "memory", "http", "https", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl"),
    *("hdfs", "webhdfs", "sftp", "ssh", "smb", "hf", "oci", "oss"),
)
"""Protocols of stores and corpora. Others of fsspec unpack archives, run a shell, read another
process or redirect to any other address: a folder that a file names must do none of these."""


def open_filesystem(url: Url) -> tuple[AbstractFileSystem, str]:
    """Return the file system of a URL and the absolute path within it."""
    text = os.fspath(url)
    # Only text with a protocol is parsed as a URL: a path may contain "::", "%20" or other signs.
    if isinstance(url, os.PathLike) or "://" not in text:
        return LocalFileSystem(), os.path.abspath(text)
    if text.startswith("file://"):
        return LocalFileSystem(), os.path.abspath(unquote(urlsplit(text).path))
    protocol = _check_url(text)
    try:
        fs, path = url_to_fs(text)
    except ImportError as error:
        if protocol in _EXTRAS:
            raise MissingExtraError(f"reading {protocol}:// URLs", _EXTRAS[protocol]) from None
        raise LevelheadError(
            f"cannot open {text}: {error}", hint="install the fsspec package of this protocol"
        ) from None
    except ValueError as error:
        raise LevelheadError(
            f"cannot open {text}: {error}", hint="use a path, or a protocol that fsspec supports"
        ) from None
    return fs, path


def _check_url(text: str) -> str:
    """Return the protocol of a URL; raise an error for one that is not listed, or for a secret."""
    protocol, _, rest = text.partition("://")
    if protocol not in _PROTOCOLS or "::" in text:
        raise LevelheadError(
            f"cannot open a URL of the protocol {protocol!r:.40}",
            hint="use a path, or one of " + ", ".join(sorted(_PROTOCOLS)),
        )
    user, _, host = rest.partition("/")[0].rpartition("@")
    # URLs are a part of results, keys and messages. A name alone is no secret (sftp).
    is_web = protocol in ("http", "https")
    if ":" in user or (is_web and (user or "?" in rest)):
        raise LevelheadError(
            f"the URL of {host.partition('?')[0]} contains a password or a query",
            hint="give it in the way of the protocol, such as its environment variables",
        )
    return protocol


def absolute_url(url: Url) -> str:
    """Return a URL that does not depend on the working directory, without a trailing slash.

    >>> absolute_url("memory://a/b/")
    'memory://a/b'
    """
    fs, path = open_filesystem(url)
    if isinstance(fs, LocalFileSystem):
        return path
    protocol, _, rest = os.fspath(url).partition("://")
    return f"{protocol}://{rest.rstrip('/')}"


def absolute_path_str(path: str) -> str:
    """Return the absolute path if the path exists; otherwise return the text unchanged."""
    expanded = Path(path).expanduser()
    return str(expanded.resolve()) if expanded.exists() else path


def is_local(url: Url) -> bool:
    """Return whether a URL is on a disk of this machine (or mounted like one)."""
    return isinstance(open_filesystem(url)[0], LocalFileSystem)


def local_path(folder: Url) -> Path:
    """Return the path of a folder that must be on a disk of this machine."""
    if is_local(folder):
        return Path(folder if "://" not in os.fspath(folder) else open_filesystem(folder)[1])
    raise LevelheadError(
        f"{os.fspath(folder)} is on no disk of this machine",
        hint="name a local folder; studies and leaderboards store responses elsewhere with `store`",
    )


def join_url(url: Url, *parts: str) -> str:
    """Append path parts to a URL."""
    text = os.fspath(url)
    base = text if text.endswith("://") else text.rstrip("/") + "/"
    return base + "/".join(parts)


def read_bytes(url: Url) -> bytes:
    """Return the bytes of a file; raise FileNotFoundError if it does not exist."""
    fs, path = open_filesystem(url)
    return bytes(fs.cat_file(path))


def write_atomic(url: Url, data: bytes | Iterable[bytes], *, scratch: Url | None = None) -> None:
    """Write a file atomically and replace an existing one.

    Args:
        url: path or URL of the file.
        data: the bytes, or an iterable of parts that are never in memory together.
        scratch: a folder on the same disk for the unfinished file; by default the folder of the
            file. Object stores ignore it.
    """
    fs, path = open_filesystem(url)
    if not isinstance(fs, LocalFileSystem) and isinstance(data, bytes):
        # An upload is published when it is complete, so nothing is renamed.
        fs.pipe_file(path, data)
        return
    if not isinstance(fs, LocalFileSystem):
        # If a stream to an object store breaks off, the store may publish the part it received.
        with tempfile.TemporaryDirectory() as folder:
            complete_file = os.path.join(folder, "whole")
            write_atomic(complete_file, data)
            fs.put_file(complete_file, path)
        return
    # Renaming a file over /dev/null or /dev/stdout would replace the device, for root.
    if _is_device(path):
        with open(path, "wb") as file:
            file.writelines((data,) if isinstance(data, bytes) else data)
        return
    folder = os.path.dirname(path)
    scratch_folder = folder if scratch is None else open_filesystem(scratch)[1]
    os.makedirs(folder, exist_ok=True)
    os.makedirs(scratch_folder, exist_ok=True)
    unfinished = os.path.join(scratch_folder, _make_temp_name(os.path.basename(path)))
    try:
        with open(unfinished, "xb") as file:
            file.writelines((data,) if isinstance(data, bytes) else data)
            file.flush()
            # Without fsync, a power cut after the rename could leave an empty file.
            # Folders are not synced: decision 0002.
            os.fsync(file.fileno())
        # Atomic within one file system only, which is why `scratch` must be on the same disk.
        os.replace(unfinished, path)
    # BaseException: Ctrl-C must not leave an unfinished file either.
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(unfinished)
        raise
    if scratch is None:
        # A run that was killed here and started again leaves nothing beside its file. The file is
        # complete: a folder that cannot be listed is no failure of the write.
        with suppress(OSError):
            remove_abandoned(folder, os.path.basename(path))


def _is_device(path: str) -> bool:
    """Whether a path names a device, a pipe or an open file of this process."""
    if not os.path.exists(path) or os.path.isdir(path):
        return False
    # /dev/stdout may lead to a regular file.
    is_open_file = os.path.dirname(path) in ("/dev", "/dev/fd", "/proc/self/fd")
    return is_open_file or not os.path.isfile(path)


def check_writable(url: Url) -> None:
    """Raise an error if a file cannot be written, before its contents are computed.

    `write_atomic` creates missing folders. Permissions of remote stores are not checked.
    """
    fs, path = open_filesystem(url)
    if not isinstance(fs, LocalFileSystem):
        return
    if os.path.isdir(path):
        raise LevelheadError(f"{os.fspath(url)} is a folder", hint="name a file in this folder")
    # `write_atomic` creates missing folders, so the nearest existing parent decides.
    existing_parent = next(str(parent) for parent in Path(path).parents if os.path.exists(parent))
    if not os.path.isdir(existing_parent):
        raise LevelheadError(
            f"{os.fspath(url)} cannot be written: {existing_parent} is a file",
            hint="name another file",
        )
    # Creating a file needs search permission (X_OK) on the folder in addition to W_OK.
    if not os.access(existing_parent, os.W_OK | os.X_OK):
        raise LevelheadError(
            f"{os.fspath(url)} cannot be written: {existing_parent} is not writable",
            hint="name another file, or change the permissions of the folder",
        )


def remove_abandoned(folder: Url, name: str = "") -> None:
    """Remove unfinished files of processes of this machine that have ended.

    Args:
        folder: where they are.
        name: only those of the file of this name; empty: all.
    """
    fs, path = open_filesystem(folder)
    if not isinstance(fs, LocalFileSystem) or not os.path.isdir(path):
        return
    for entry in os.scandir(path):
        match = entry.name.startswith(f".{name}") and _TEMP_NAME.fullmatch(entry.name)
        # Process ids of other hosts that share the folder cannot be checked, so their files stay.
        if match and match["host"] == _host_id() and not _is_alive(int(match["pid"])):
            with suppress(FileNotFoundError):
                os.unlink(entry.path)


def file_hash(url: Url) -> str:
    """Return the SHA-256 of a file, in hexadecimal; the file is read in chunks."""
    fs, path = open_filesystem(url)
    with fs.open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_TEMP_NAME = re.compile(r"\..+\.(?P<host>[0-9a-f]{8})-(?P<pid>\d+)-[0-9a-f]{16}\.tmp")


def _make_temp_name(name: str) -> str:
    """Name a temporary file by host and process, so that abandoned files can be recognised."""
    return f".{name}.{_host_id()}-{os.getpid()}-{secrets.token_hex(8)}.tmp"


def _host_id() -> str:
    # A hash has a fixed length and no characters that are invalid in file names.
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def _is_alive(pid: int) -> bool:
    # On Unix signal 0 only checks whether a process exists; on Windows os.kill terminates it.
    if os.name == "nt":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # The process exists and belongs to another user.
    except OSError:
        return True
    return True
