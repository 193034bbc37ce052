"""Errors with a problem and a hint.

A failure is never reported as "no bias": levelhead raises an error for everything that it cannot
measure. The text states the problem and how to correct it; texts are tested like other results.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

Option = TypeVar("Option", bound=str)


class LevelheadError(Exception):
    """An error that states a problem and a hint at how to correct it.

    >>> print(LevelheadError("the list is empty", hint="give at least one word"))
    the list is empty
      hint: give at least one word
    """

    def __init__(self, problem: str, *, hint: str) -> None:
        super().__init__(problem, hint)
        self.problem = problem
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.problem}\n  hint: {self.hint}"

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process boundaries. Exception's default pickling ignores keyword arguments
        # and would call the constructors of subclasses with wrong arguments.
        return _restore_error, (type(self), self.args, self.__dict__)


def _restore_error(
    error_type: type[Exception], args: tuple[object, ...], state: dict[str, object]
) -> object:
    error = error_type.__new__(error_type, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class UnknownNameError(LevelheadError):
    """A name that is not in a table; the error suggests close names and lists all options."""

    def __init__(self, kind: str, name: str, options: Iterable[str]) -> None:
        names = sorted(options)
        # difflib compares case: "SEAT" and "seat" would share no letter.
        by_folded_name = {option.casefold(): option for option in names}
        suggestions = [
            by_folded_name[match]
            for match in get_close_matches(name.casefold(), by_folded_name, n=3)
        ]
        options_text = ", ".join(names) if names else "none"
        suggestion_text = (
            f"did you mean {' or '.join(map(repr, suggestions))}? " if suggestions else ""
        )
        super().__init__(
            f"there is no {kind} named {name!r}", hint=f"{suggestion_text}known: {options_text}"
        )


def require_option(kind: str, value: str, options: Collection[Option]) -> Option:
    """Return a text as the option that it names.

    Args:
        kind: what is chosen, for the error.
        value: the text.
        options: all options, such as `get_args` of a Literal.

    Raises:
        UnknownNameError: the text is none of the options.
    """
    for option in options:
        if option == value:
            return option
    raise UnknownNameError(kind, str(value), options)


class MissingExtraError(LevelheadError):
    """A feature that needs the packages of an optional extra that is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(
            f"{feature} needs packages that are not installed",
            hint=f"pip install 'levelhead[{extra}]', or pip install '.[{extra}]' in a clone",
        )


class NotMeasurableError(LevelheadError):
    """The data do not allow the requested number; no substitute is returned."""
