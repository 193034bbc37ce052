"""Leases: locks in object stores, which expire when their holder no longer renews them.

A file lock is released by the system when its process ends; an object remains. So a holder writes
its claim again every few seconds, and a claim that was not renewed for a whole lease is void. Ages
are differences between times that the store itself noted, so clocks of machines play no part.

Claims are numbered. Whoever replaces a void claim creates the next number, and only one process can
create an object that does not exist yet. On a backend without conditional writes two processes may
both write it; each reads it back, so that all but one of them notice.
"""

from __future__ import annotations

import os
import platform
import secrets
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from levelhead.core.canonical_json import to_canonical_json
from levelhead.core.errors import LevelheadError
from levelhead.core.files import join_url, open_filesystem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fsspec import AbstractFileSystem

LEASE_SECONDS: Final = 60.0
"""Age at which a claim is void: long enough for a few failed renewals, short enough to wait for."""
RENEWALS_PER_LEASE: Final = 6
CLAIMS: Final = "locks"
"""Folder of the claims."""


class FolderInUseError(LevelheadError):
    """Another job is running in the folder."""


@contextmanager
def hold_lease(folder: str, seconds: float = LEASE_SECONDS) -> Iterator[None]:
    """Claim a folder of an object store, and renew the claim until the end of the context.

    Args:
        folder: URL of the folder.
        seconds: age at which a claim that was not renewed is void.
    """
    fs, path = open_filesystem(join_url(folder, CLAIMS))
    # The token distinguishes two jobs of one process; host and process id are for the user.
    text = to_canonical_json(
        {"host": platform.node(), "pid": os.getpid(), "token": secrets.token_hex(8)}
    )
    claims = _Claims(fs, path, folder, text, seconds)
    claim = claims.acquire()
    is_over = threading.Event()

    def renew() -> None:
        while not is_over.wait(seconds / RENEWALS_PER_LEASE):
            # The network may be back for the next renewal.
            with suppress(OSError):
                if claims.read(claim) != text:
                    # Another job took over while this process was suspended. Results are stored by
                    # content, so both may go on, but the claim is the other's.
                    return
                fs.pipe_file(claim, text)

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        if claims.read(claim) == text:
            fs.rm_file(claim)


@final
@dataclass(frozen=True)
class _Claims:
    """The claims on a folder, and the text of ours."""

    fs: AbstractFileSystem
    path: str
    folder: str
    text: bytes
    seconds: float

    def acquire(self) -> str:
        """Write our claim and return its path; raise `FolderInUseError` if another one is valid."""
        void = self.paths()
        for claim in void:
            self._require_void(claim)
        number = 1 + int(void[-1].rpartition("/")[2]) if void else 0
        ours = f"{self.path}/{number:06d}"
        with suppress(FileExistsError):
            self.fs.pipe_file(ours, self.text, mode="create")
        if self.read(ours) != self.text:
            raise self._in_use(ours)
        # Another job may have claimed the folder between our listing and our claim, under another
        # number. Then it sees our claim, too, and one of the two or both withdraw.
        others = [claim for claim in self.paths() if claim not in (ours, *void)]
        if others:
            self.fs.rm_file(ours)
            raise self._in_use(others[0])
        for claim in void:
            with suppress(FileNotFoundError):
                self.fs.rm_file(claim)
        return ours

    def paths(self) -> list[str]:
        """Paths of all claims, in their order."""
        self.fs.invalidate_cache()
        try:
            paths = self.fs.ls(self.path, detail=False)
        except FileNotFoundError:
            return []
        return sorted(path for path in paths if path.rpartition("/")[2].isdecimal())

    def read(self, claim: str) -> bytes:
        """The text of a claim; empty if it is gone."""
        try:
            return bytes(self.fs.cat_file(claim))
        except FileNotFoundError:
            return b""

    def _require_void(self, claim: str) -> None:
        """Raise an error unless a claim was not renewed for a whole lease."""
        probe = f"{self.path}/{secrets.token_hex(8)}.time"
        try:
            self.fs.pipe_file(probe, b"now")
            self.fs.invalidate_cache()
            age = self.fs.modified(probe) - self.fs.modified(claim)
        except FileNotFoundError:
            # Its holder has just released it.
            return
        finally:
            with suppress(FileNotFoundError):
                self.fs.rm_file(probe)
        if age.total_seconds() <= self.seconds:
            raise self._in_use(claim)

    def _in_use(self, claim: str) -> FolderInUseError:
        holder = self.read(claim).decode(errors="replace") or "a process that has ended"
        return FolderInUseError(
            f"{self.folder} is claimed by {holder}",
            hint="wait for it to end, or use another folder; the claim of a process that was "
            f"killed ends {self.seconds:g} seconds after its death",
        )
