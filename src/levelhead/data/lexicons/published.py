"""Published word lists as lexicons, read from where they live; what is odd in them stays in them.

`levelhead data lexicon check` says what is odd; our own lists are in `lexicons/`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal, NamedTuple

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError, UnknownName
from levelhead.data.catalog.datasets import dataset
from levelhead.data.counterfactuals.templates import Sort, framed
from levelhead.data.lexicons.lexicon import Lexicon, Side, Targets, Term, lexicon
from levelhead.data.records import Sentence, WordSets
from levelhead.data.tokenize import folded, tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROLES = ("targ1", "targ2", "attr1", "attr2")
PLEASANT: tuple[str, Sort] = ("pleasant_5", "bare")
UNPLEASANT: tuple[str, Sort] = ("unpleasant_5b", "bare")
FEMALE, MALE = "female", "male"  # the names of Kaneko's and Kurita's files


def kaneko(*, distinct: bool = True) -> Lexicon:
    """Gender pairs and stereotype words of Kaneko and Bollegala 2021, as Yang et al. 2025 use them.

    222 aligned lines a side, 409 distinct words (202 and 207; the paper says 444), 220 distinct
    pairs; 168 stereotype words alternate, female-stereotyped first. Averages over lines and over
    distinct words differ, since some words stand in several lines.

    Args:
        distinct: each pair once; False keeps every line.
    """
    rows = list(zip(_lines("kaneko-words", FEMALE), _lines("kaneko-words", MALE), strict=True))
    words = _lines("kaneko-words", "stereotype")
    return _lexicon(
        "kaneko",
        (FEMALE, MALE),
        [
            Term("person", ((FEMALE, a), (MALE, b)))
            for a, b in (dict.fromkeys(rows) if distinct else rows)
        ],
        [
            Targets(
                "stereotypes",
                "words of opinion, alternating in the file",
                (Side("a", FEMALE, tuple(words[::2])), Side("b", MALE, tuple(words[1::2]))),
            )
        ],
        "kaneko-words",
    )


def manzini(which: Literal["gender", "race", "religion"]) -> Lexicon:
    """Definite sets and role words of Manzini et al. 2019; groups are named by the first set."""
    parts = {name: f"{name}_attributes_optm" for name in ("gender", "race", "religion")}
    if which not in parts:
        raise UnknownName("list of Manzini", which, parts)
    (item,) = dataset("manzini-words").items(parts[which])
    sets = _sets(item)
    definite = [words for path, _, words in sets if path.startswith("/definite_sets")]
    roles = {name: words for path, name, words in sets if path.endswith("/role")}
    groups = definite[0]
    terms = [Term("person", tuple(zip(groups, row, strict=True))) for row in definite]
    sides = tuple(
        Side(name, name if name in groups else None, words) for name, words in roles.items()
    )
    targets = [Targets("roles", "roles joined with groups", sides)] if sides else []
    return _lexicon(f"manzini-{which}", tuple(groups), terms, targets, "manzini-words")


PUBLISHED: dict[str, Callable[[], Lexicon]] = {
    "kaneko": kaneko,
    "manzini-gender": lambda: manzini("gender"),
    "manzini-race": lambda: manzini("race"),
    "manzini-religion": lambda: manzini("religion"),
}


def any_lexicon(name: str | Lexicon) -> Lexicon:
    """A lexicon: itself, a published one or ours by name, or your own by path."""
    if isinstance(name, Lexicon):
        return name
    return PUBLISHED[name]() if name in PUBLISHED else lexicon(name)


class GroupTemplate(NamedTuple):
    """A sentence with a slot for the group (GGG) and one for the target (XXX)."""

    text: str
    groups: tuple[tuple[str, tuple[str, ...]], ...]


def kurita() -> tuple[tuple[GroupTemplate, ...], tuple[Targets, ...]]:
    """Templates and the three tests of Kurita et al. 2019 (career, maths and science)."""
    found = json.loads(dataset("kurita-words").path("all").read_text("utf-8"))
    templates = tuple(
        GroupTemplate(
            row["text"],
            tuple((key, tuple(words)) for key, words in row.items() if key != "text"),
        )
        for row in found["templates"]
    )
    tests = tuple(
        Targets(name, "", tuple(Side(side, None, tuple(words)) for side, words in sides.items()))
        for name, sides in found["tests"].items()
    )
    return templates, tests


def seat_test(name: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    """A SEAT or WEAT test of May et al. 2019: role -> (category, words or sentences)."""
    (item,) = dataset("seat").items(name)
    return {role: (category, words) for role, category, words in _sets(item)}


def seat_sentences(name: str) -> dict[str, tuple[tuple[str, str], ...]]:
    """A test of May et al. 2019 as (sentence, word) by role.

    A sentence holds a word of the list it was made from, or its singular or plural; where these are
    irregular it is that of the word before, since the files stand in the order of the words. What
    was not made from words is its own.
    """
    sentences = {role: texts for role, (_, texts) in seat_test(name).items()}
    parts = {file.part for file in dataset("seat").files}
    plain = name.removeprefix("sent-")
    if plain == name or plain not in parts:
        return {role: tuple((text, text) for text in texts) for role, texts in sentences.items()}
    found = {}
    for role, (_, words) in seat_test(plain).items():
        rows, last = [], ""
        for text in sentences[role]:
            said = f" {' '.join(folded(token.text) for token in tokens(text))} "
            exact = [word for word in words if f" {folded(word)} " in said]
            here = exact or [w for w in words if any(f" {form} " in said for form in _forms(w))]
            last = max(here, key=len) if here else last
            rows.append((text, last))
        found[role] = tuple(rows)
    return found


def _forms(word: str) -> set[str]:
    """A word's regular singular and plural, and some that are neither."""
    stem = folded(word)
    found = {f"{stem}s", f"{stem}es", f"{stem.removesuffix('y')}ies"}
    found |= {stem.removesuffix("s"), stem.removesuffix("es"), f"{stem.removesuffix('ies')}y"}
    return found | {stem.replace("men", "man"), stem.removesuffix("ren")}


WEATS: dict[str, tuple[tuple[str, Sort], ...]] = {
    # X, Y, A, B by WEFE's names, and the sort of sentence a word is put into.
    "weat1": (("flowers", "thing"), ("insects", "thing"), PLEASANT, ("unpleasant_5a", "bare")),
    "weat2": (("instruments", "thing"), ("weapons", "thing"), PLEASANT, ("unpleasant_5a", "bare")),
    "weat3": (
        ("european_american_names_5", "person"),
        ("african_american_names_5", "person"),
        PLEASANT,
        UNPLEASANT,
    ),
    "weat4": (
        ("european_american_names_7", "person"),
        ("african_american_names_7", "person"),
        PLEASANT,
        UNPLEASANT,
    ),
    "weat5": (
        ("european_american_names_7", "person"),
        ("african_american_names_7", "person"),
        ("pleasant_9", "bare"),
        ("unpleasant_9", "bare"),
    ),
    "weat6": (
        ("male_names", "person"),
        ("female_names", "person"),
        ("career", "bare"),
        ("family", "bare"),
    ),
    "weat7": (("math", "bare"), ("arts", "bare"), ("male_terms", "bare"), ("female_terms", "bare")),
    "weat8": (
        ("science", "bare"),
        ("arts_2", "bare"),
        ("male_terms_2", "bare"),
        ("female_terms_2", "bare"),
    ),
    "weat9": (
        ("mental_disease", "adjective"),
        ("physical_disease", "adjective"),
        ("temporary", "adjective"),
        ("permanent", "adjective"),
    ),
    "weat10": (
        ("young_people_names", "person"),
        ("old_people_names", "person"),
        ("pleasant_9", "bare"),
        ("unpleasant_9", "bare"),
    ),
}
"""The ten tests of Caliskan et al. 2017. WEFE's lists of 4, 5, 9 and 10 differ by a few words."""


def weat_sentences(name: str) -> dict[str, tuple[tuple[str, str], ...]]:
    """A WEAT test as (sentence, word) by role, in our own frames in the manner of May et al."""
    if name not in WEATS:
        raise UnknownName("WEAT test", name, WEATS)
    return {
        role: tuple((one.text, one.word) for one in framed(weat_set(which), sort))
        for role, (which, sort) in zip(ROLES, WEATS[name], strict=True)
    }


def weat_set(name: str) -> tuple[str, ...]:
    """A WEAT word set, by WEFE's name for it."""
    found = {item.id: item for item in dataset("weat").items("all")}
    if name not in found:
        raise UnknownName("WEAT set", name, found)
    return _sets(found[name])[0][2]


def _sets(item: object) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    if not isinstance(item, WordSets):
        raise LevelheadError("these are no word sets", mend="check the data set's reader")
    return item.sets


def _lines(name: str, part: str) -> list[str]:
    return [item.text for item in dataset(name).items(part) if isinstance(item, Sentence)]


def _lexicon(
    name: str,
    groups: tuple[str, ...],
    terms: Sequence[Term],
    targets: Sequence[Targets],
    source: str,
) -> Lexicon:
    row = dataset(source)
    return Lexicon(
        name=name,
        language="en",
        groups=groups,
        source=f"data set {source}",
        licence=row.licence,
        limits=row.cannot,
        sha256=content_hash([file.sha256 for file in row.files]),
        terms=tuple(terms),
        placebos=(),
        families=tuple(targets),
    )
