"""Data frames of results: pandas, polars, or a dictionary of columns, whichever is installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from levelhead.core.errors import LevelheadError, require_option

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Backend = Literal["pandas", "polars", "dict"]
"""Library of a data frame; "dict" is a dictionary of lists and needs none."""
LIBRARIES: tuple[Backend, ...] = ("pandas", "polars")
"""Libraries of data frames; without a choice the first that is installed is used."""


class ReportedNumber(Protocol):
    """A number with interval and test, such as an `Estimate` or a `Measurement`."""

    @property
    def value(self) -> float:
        """The number."""

    @property
    def interval(self) -> Any:
        """The confidence interval."""

    @property
    def parity(self) -> float | None:
        """The value under equal treatment."""

    @property
    def p(self) -> Any:
        """The p-value."""

    @property
    def n(self) -> int:
        """The number of items."""

    @property
    def unit(self) -> str:
        """The unit."""

    @property
    def detectable(self) -> float | None:
        """The minimum detectable effect."""


def make_number_row(name: str, number: ReportedNumber | None) -> dict[str, object]:
    """Make the row of a number; without the number, only its name."""
    if number is None:
        return {"name": name}
    p = number.p
    return {
        "name": name,
        "value": number.value,
        "low": number.interval.low,
        "high": number.interval.high,
        "level": number.interval.level,
        "parity": number.parity,
        "p": None if p is None else p.value,
        "p_adjusted": None if p is None else p.adjusted,
        "n": number.n,
        "unit": number.unit,
        "detectable": number.detectable,
    }


def make_columns(rows: Sequence[Mapping[str, object]]) -> dict[str, list[object]]:
    """Convert rows to columns, in the order of their first occurrence; missing cells are None.

    >>> make_columns([{"a": 1}, {"a": 2, "b": "x"}])
    {'a': [1, 2], 'b': [None, 'x']}
    """
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def make_frame(rows: Sequence[Mapping[str, object]], backend: Backend | None = None) -> Any:
    """Make a data frame of rows.

    Args:
        rows: cells by name of the column.
        backend: pandas, polars or dict; by default pandas if it is installed, otherwise polars,
            otherwise a dictionary of columns.
    """
    columns = make_columns(rows)
    library = choose_backend(backend)
    if library == "dict":
        return columns
    # Imported here: narwhals imports the library, and most runs make no data frame.
    import narwhals

    return narwhals.from_dict(columns, backend=library).to_native()


def choose_backend(backend: Backend | None = None) -> Backend:
    """Return the library of data frames: the named one, or the first that is installed."""
    if backend is None:
        return next((name for name in LIBRARIES if _is_installed(name)), "dict")
    require_option("library of data frames", backend, get_args(Backend))
    if backend != "dict" and not _is_installed(backend):
        raise LevelheadError(
            f"{backend} is not installed",
            hint=f"pip install {backend}, or backend='dict' for a dictionary of columns",
        )
    return backend


def _is_installed(name: str) -> bool:
    # Found, not imported: importing pandas takes a second.
    return find_spec(name) is not None
