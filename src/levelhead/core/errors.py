"""Errors that say the mend.

A failure never reads as "no bias": whatever cannot be measured is raised, and the text says what
was wrong and what to do about it. The texts are tested like any other result.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class LevelheadError(Exception):
    """What went wrong, and how to mend it.

    >>> print(LevelheadError("the list is empty", mend="give at least one word"))
    the list is empty
      mend: give at least one word
    """

    def __init__(self, what: str, *, mend: str) -> None:
        super().__init__(what, mend)
        self.what = what
        self.mend = mend

    def __str__(self) -> str:
        return f"{self.what}\n  mend: {self.mend}"

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process boundaries; Exception's own pickling knows no keyword arguments
        # and would call a subclass with the wrong ones.
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[Exception], args: tuple[object, ...], state: dict[str, object]) -> object:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class UnknownName(LevelheadError):
    """A name that is not in a table; the closest ones are suggested and the options listed."""

    def __init__(self, kind: str, name: str, options: Iterable[str]) -> None:
        known = sorted(options)
        folded = {option.casefold(): option for option in known}
        suggested = [folded[near] for near in get_close_matches(name.casefold(), folded, n=3)]
        listed = ", ".join(known) if known else "none"
        guess = f"did you mean {' or '.join(map(repr, suggested))}? " if suggested else ""
        super().__init__(f"there is no {kind} named {name!r}", mend=f"{guess}known: {listed}")


class MissingExtra(LevelheadError):
    """A feature whose packages are an optional extra that is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(
            f"{feature} needs packages that are not installed",
            mend=f"pip install 'levelhead[{extra}]'",
        )


class NotMeasurable(LevelheadError):
    """The data do not allow the number that was asked for; nothing stands in for it."""
