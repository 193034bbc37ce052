"""The prompts of Counteracts (Zhang 2023): a base, and nine kinds of knowledge before it.

The paper names 58 occupations and 2,680 prompts; 2,680 is what the 40 occupations of WinoBias give
when every background of the other side is used, 40 x (7 + 3 x 20), so both sets are offered.
"""

from __future__ import annotations

import random
import tomllib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from levelhead.core.errors import LevelheadError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Set = Literal["winobias40", "table1"]
Articles = Literal["right", "as_paper"]
BACKGROUND = (
    "background_counter_syntactic_similar",
    "background_counter_semantic_similar",
    "target_neutral_background_counter",
)


class Prompt(NamedTuple):
    """A base sentence with a blank, and the knowledge that is put before it."""

    id: str
    occupation: str
    dominated: str
    """The group that dominates the occupation, by the table."""
    kind: str
    background: str
    """The occupation of the other side, where the kind has one; else empty."""
    knowledge: str
    """Empty for the base."""
    base: str

    def text(self, separator: str = " ") -> str:
        """Knowledge and base as one text, by default two sentences.

        >>> next(counteracts("winobias40")).text()
        'The [MASK] works as a mechanician.'
        """
        return f"{self.knowledge}{separator}{self.base}" if self.knowledge else self.base


def counteracts(
    which: Set = "winobias40",
    *,
    articles: Articles = "right",
    backgrounds: int | None = None,
    seed: int = 0,
) -> Iterator[Prompt]:
    """The prompts, in the order of the table.

    Args:
        which: the 40 occupations of WinoBias (2,680 prompts) or the 58 of Table 1 (5,452).
        articles: "as_paper" writes "a" everywhere, as the paper's patterns do.
        backgrounds: how many backgrounds are drawn for each occupation and kind; all by default.
        seed: of that draw.
    """
    for value, options in ((which, Set), (articles, Articles)):
        if value not in get_args(options):
            raise UnknownName("choice", str(value), get_args(options))
    chosen = _occupations(which)
    for name, group in chosen.items():
        others = [other for other, side in chosen.items() if side != group]
        if backgrounds is not None:
            others = _drawn(others, backgrounds, f"{seed} {name}")
        yield from _of(name, group, others, articles)


def factorial(which: Set = "winobias40", *, articles: Articles = "right") -> Iterator[Prompt]:
    """Counterexamples that differ in one thing at a time: group word, order, verb; and the base.

    Kinds are "noun, group first, worked as" and so on, eight in all.

    >>> [one.knowledge for one in factorial() if one.occupation == "nurse"][1]
    'The man worked as a nurse.'
    """
    facts = table()
    for name, group in _occupations(which).items():
        words = _words(group)
        base = _filled(facts["patterns"]["base"], words, articles, occupation=name)
        yield Prompt(f"{name}/base", name, group, "base", "", "", base)
        for word, slot in facts["factorial"]["words"].items():
            for how, pattern in facts["factorial"]["patterns"].items():
                kind = f"{word}, {how}"
                own = words | {"word": words[slot]}
                knowledge = _filled(pattern, own, articles, occupation=name)
                yield Prompt(f"{name}/{kind}", name, group, kind, "", knowledge, base)


def _occupations(which: Set) -> dict[str, str]:
    """The occupations of a set, and the group that dominates each."""
    return {
        name: row["dominated"]
        for name, row in table()["occupations"].items()
        if which == "table1" or row["winobias"]
    }


def _words(group: str) -> dict[str, str]:
    """What stands for the group that dominates an occupation, and for the other one."""
    groups: dict[str, dict[str, str]] = table()["groups"]
    (against,) = (other for other in groups if other != group)
    return groups[group] | {f"other_{key}": word for key, word in groups[against].items()}


def _of(name: str, group: str, others: Sequence[str], articles: Articles) -> Iterator[Prompt]:
    facts, words = table(), _words(group)
    base = _filled(facts["patterns"]["base"], words, articles, occupation=name)
    for kind, pattern in facts["patterns"].items():
        for background in others if kind in BACKGROUND else ("",):
            slots = {"occupation": name, "background": background}
            knowledge = "" if kind == "base" else _filled(pattern, words, articles, **slots)
            parts = (name, kind, background) if background else (name, kind)
            yield Prompt("/".join(parts), name, group, kind, background, knowledge, base)


def _filled(pattern: str, words: dict[str, str], articles: Articles, **slots: str) -> str:
    noun = slots["background" if "{background}" in pattern else "occupation"]
    return pattern.format(a="a" if articles == "as_paper" else article(noun), **words, **slots)


def article(word: str) -> str:
    """The indefinite article: by the first letter, and by sound where that is known to differ.

    >>> article("engineer"), article("nurse"), article("university"), article("heir")
    ('an', 'a', 'a', 'an')
    """
    start = word.lower()
    if start.startswith(("uni", "use", "usu", "eu", "one", "ufo")):
        return "a"
    if start.startswith(("hour", "heir", "honest", "honor", "honour")):
        return "an"
    return "an" if start.startswith(tuple("aeiou")) else "a"


def _drawn(others: Sequence[str], count: int, seed: str) -> list[str]:
    if not 0 < count <= len(others):
        raise LevelheadError(
            f"{count} backgrounds of {len(others)}", mend=f"draw 1 to {len(others)} of them"
        )
    kept = set(random.Random(seed).sample(list(others), count))  # noqa: S311  # no secret
    return [other for other in others if other in kept]


@cache
def table() -> dict[str, Any]:
    """The facts of the paper, from counteracts.toml."""
    return tomllib.loads(files("levelhead.data").joinpath("counteracts.toml").read_text("utf-8"))
