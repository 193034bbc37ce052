"""Check the header of a GGUF file before a parser reads it: counts and lengths must fit the file.

The parser of the `gguf` package runs through as many elements as the file says it has, whether or
not they are there: a file of a hundred bytes would keep it busy for ever.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, BinaryIO

from levelhead.core.errors import LevelheadError

if TYPE_CHECKING:
    from pathlib import Path

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_ELEMENTS = 1 << 23
"""Largest number of keys, tensors and elements of arrays together: vocabularies have a million."""
MAX_DIMENSIONS = 8
_STRING, _ARRAY = 8, 9
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of a number by its type in the file."""


class _Header:
    """Position in the header of a file, and how many elements may still follow."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.file, self.size, self.remaining = file, size, MAX_ELEMENTS

    def read(self, count: int) -> bytes:
        """Read bytes that must be there."""
        if count > self.size - self.file.tell():
            raise ValueError(f"{count} bytes are announced, and the file ends before")
        return self.file.read(count)

    def read_number(self, form: str) -> int:
        """Read a number of a little-endian form of `struct`."""
        return int(struct.unpack(f"<{form}", self.read(struct.calcsize(f"<{form}")))[0])

    def read_string(self) -> bytes:
        """Read a text with its length."""
        return self.read(self.read_number("Q"))

    def count(self, number: int) -> int:
        """Return a number of elements that is within the limit."""
        self.remaining -= number
        if self.remaining < 0:
            raise ValueError(f"more than {MAX_ELEMENTS} elements are announced")
        return number

    def read_value(self, kind: int) -> int | None:
        """Skip a value; return it if it is a whole number."""
        if kind == _STRING:
            self.read_string()
            return None
        if kind == _ARRAY:
            self._skip_array()
            return None
        if kind not in _SIZES:
            raise ValueError(f"a value has the unknown type {kind}")
        value = self.read(_SIZES[kind])
        is_float = kind in (6, 12)
        return None if is_float else int.from_bytes(value, "little")

    def _skip_array(self) -> None:
        kind = self.read_number("I")
        length = self.count(self.read_number("Q"))
        if kind == _STRING:
            for _ in range(length):
                self.read_string()
        elif kind in _SIZES:
            self.read(_SIZES[kind] * length)
        else:
            raise ValueError(f"an array has elements of the type {kind}")


def check_header(path: Path) -> None:
    """Raise an error if the header of a GGUF file announces what the file cannot hold.

    Args:
        path: the file.
    """
    try:
        with path.open("rb") as file:
            _read_header(_Header(file, os.fstat(file.fileno()).st_size))
    except ValueError as error:
        raise LevelheadError(
            f"levelhead cannot read this GGUF file: {error}", hint="download the file again"
        ) from None


def _read_header(header: _Header) -> None:
    if header.read(len(MAGIC)) != MAGIC:
        raise ValueError("it does not begin with the letters GGUF")
    if (version := header.read_number("I")) not in VERSIONS:
        raise ValueError(f"version {version} is none of {VERSIONS}")
    n_tensors, n_keys = (header.count(header.read_number("Q")) for _ in range(2))
    for _ in range(n_keys):
        key = header.read_string()
        number = header.read_value(header.read_number("I"))
        # Each layer has tensors; transformers would build as many layers as the key says.
        if key.endswith(b".block_count") and number is not None and number > n_tensors:
            raise ValueError(f"{number} layers are announced for {n_tensors} tensors")
    for _ in range(n_tensors):
        header.read_string()
        n_dimensions = header.read_number("I")
        if n_dimensions > MAX_DIMENSIONS:
            raise ValueError(f"a tensor has {n_dimensions} dimensions")
        header.read(8 * n_dimensions + 4)
        if (offset := header.read_number("Q")) > header.size:
            raise ValueError(f"a tensor begins at byte {offset}, behind the end of the file")
