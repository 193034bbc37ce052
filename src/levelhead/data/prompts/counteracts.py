"""The prompts of Counteracts (Zhang 2023): a base sentence and nine kinds of knowledge before it.

The paper states 58 occupations and 2,680 prompts. The 40 occupations of WinoBias give 2,680 prompts
if every background of the other side is used, 40 x (7 + 3 x 20), so both sets are available.
"""

from __future__ import annotations

import random
import tomllib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from levelhead.core.errors import LevelheadError, require_option

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

OccupationSet = Literal["winobias40", "table1"]
ArticleStyle = Literal["right", "as_paper"]
BACKGROUND_KINDS = (
    "background_counter_syntactic_similar",
    "background_counter_semantic_similar",
    "target_neutral_background_counter",
)


class CounteractsPrompt(NamedTuple):
    """A base sentence with a blank, and the knowledge before it."""

    id: str
    occupation: str
    majority_group: str
    """Group that dominates the occupation, by the table of the paper."""
    kind: str
    background: str
    """Occupation of the other side, if the kind has one; otherwise empty."""
    knowledge: str
    """Sentence before the base; empty for the base alone."""
    base: str

    def text(self, separator: str = " ") -> str:
        """Join knowledge and base, by default as two sentences.

        >>> next(make_counteracts_prompts("winobias40")).text()
        'The [MASK] works as a mechanician.'
        """
        return f"{self.knowledge}{separator}{self.base}" if self.knowledge else self.base


def make_counteracts_prompts(
    occupation_set: OccupationSet = "winobias40",
    *,
    articles: ArticleStyle = "right",
    backgrounds: int | None = None,
    seed: int = 0,
) -> Iterator[CounteractsPrompt]:
    """Yield the prompts, in the order of the table.

    Args:
        occupation_set: the 40 occupations of WinoBias (2,680 prompts) or the 58 of Table 1 (5,452).
        articles: "as_paper" writes "a" everywhere, as the paper's patterns do.
        backgrounds: number of sampled backgrounds per occupation and kind; by default all.
        seed: seed of the sampling.
    """
    for value, options in ((occupation_set, OccupationSet), (articles, ArticleStyle)):
        require_option("choice", value, get_args(options))
    groups_by_occupation = _occupations(occupation_set)
    for name, group in groups_by_occupation.items():
        other_occupations = [other for other, side in groups_by_occupation.items() if side != group]
        if backgrounds is not None:
            other_occupations = _sample_occupations(
                # A seed per occupation: its sample does not depend on the other occupations.
                other_occupations,
                backgrounds,
                f"{seed} {name}",
            )
        yield from _occupation_prompts(name, group, other_occupations, articles)


def make_factorial_prompts(
    occupation_set: OccupationSet = "winobias40", *, articles: ArticleStyle = "right"
) -> Iterator[CounteractsPrompt]:
    """Yield counterexamples that vary group word, order and verb one at a time, and the base.

    There are eight kinds, such as "noun, group first, worked as".

    >>> [one.knowledge for one in make_factorial_prompts() if one.occupation == "nurse"][1]
    'The man worked as a nurse.'

    Args:
        occupation_set: as in `make_counteracts_prompts`.
        articles: as in `make_counteracts_prompts`.
    """
    paper_table = load_counteracts_table()
    for name, group in _occupations(occupation_set).items():
        words = _group_words(group)
        base = _fill_pattern(paper_table["patterns"]["base"], words, articles, occupation=name)
        yield CounteractsPrompt(f"{name}/base", name, group, "base", "", "", base)
        for word, slot in paper_table["factorial"]["words"].items():
            for pattern_name, pattern in paper_table["factorial"]["patterns"].items():
                kind = f"{word}, {pattern_name}"
                slot_words = words | {"word": words[slot]}
                knowledge = _fill_pattern(pattern, slot_words, articles, occupation=name)
                yield CounteractsPrompt(f"{name}/{kind}", name, group, kind, "", knowledge, base)


def _occupations(occupation_set: OccupationSet) -> dict[str, str]:
    """Return the occupations of a set with the group that dominates each."""
    return {
        name: row["dominated"]
        for name, row in load_counteracts_table()["occupations"].items()
        if occupation_set == "table1" or row["winobias"]
    }


def _group_words(group: str) -> dict[str, str]:
    """Return the words for the dominating group of an occupation and for the other group."""
    groups: dict[str, dict[str, str]] = load_counteracts_table()["groups"]
    (other_group,) = (other for other in groups if other != group)
    return groups[group] | {f"other_{key}": word for key, word in groups[other_group].items()}


def _occupation_prompts(
    name: str, group: str, other_occupations: Sequence[str], articles: ArticleStyle
) -> Iterator[CounteractsPrompt]:
    paper_table, words = load_counteracts_table(), _group_words(group)
    base = _fill_pattern(paper_table["patterns"]["base"], words, articles, occupation=name)
    for kind, pattern in paper_table["patterns"].items():
        # Only these three kinds name an occupation of the other side.
        for background in other_occupations if kind in BACKGROUND_KINDS else ("",):
            slots = {"occupation": name, "background": background}
            knowledge = "" if kind == "base" else _fill_pattern(pattern, words, articles, **slots)
            parts = (name, kind, background) if background else (name, kind)
            yield CounteractsPrompt("/".join(parts), name, group, kind, background, knowledge, base)


def _fill_pattern(pattern: str, words: dict[str, str], articles: ArticleStyle, **slots: str) -> str:
    noun = slots["background" if "{background}" in pattern else "occupation"]
    return pattern.format(
        a="a" if articles == "as_paper" else indefinite_article(noun), **words, **slots
    )


def indefinite_article(word: str) -> str:
    """Return the indefinite article, by the first letter and known differences in sound.

    >>> [indefinite_article(word) for word in ("engineer", "nurse", "university", "heir")]
    ['an', 'a', 'a', 'an']

    Args:
        word: the word after the article.
    """
    start = word.lower()
    if start.startswith(("uni", "use", "usu", "eu", "one", "ufo")):
        return "a"
    if start.startswith(("hour", "heir", "honest", "honor", "honour")):
        return "an"
    return "an" if start.startswith(tuple("aeiou")) else "a"


def _sample_occupations(occupations: Sequence[str], count: int, seed: str) -> list[str]:
    if not 0 < count <= len(occupations):
        raise LevelheadError(
            f"{count} backgrounds of {len(occupations)}",
            hint=f"give 1 to {len(occupations)}",
        )
    sampled = set(random.Random(seed).sample(list(occupations), count))  # noqa: S311  # no secret
    # The order of the table, so that the sample decides which prompts, not their order.
    return [other for other in occupations if other in sampled]


@cache
def load_counteracts_table() -> dict[str, Any]:
    """Read the tables and patterns of the paper from counteracts.toml."""
    return tomllib.loads(files("levelhead.data").joinpath("counteracts.toml").read_text("utf-8"))
