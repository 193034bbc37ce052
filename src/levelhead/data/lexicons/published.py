"""Published word lists as lexicons, read from their published files without corrections.

`levelhead data lexicon check` reports their faults; the lists of levelhead are in `lexicons/`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal, NamedTuple

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.data.catalog.datasets import dataset
from levelhead.data.counterfactuals.templates import TemplateKind, fill_templates
from levelhead.data.lexicons.lexicon import Lexicon, Side, TargetFamily, Term, lexicon
from levelhead.data.records import Sentence, WordSets
from levelhead.data.tokenize import fold_case, tokenize_words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SEAT_ROLES = ("targ1", "targ2", "attr1", "attr2")
PLEASANT: tuple[str, TemplateKind] = ("pleasant_5", "bare")
UNPLEASANT: tuple[str, TemplateKind] = ("unpleasant_5b", "bare")
# The names of the groups in the files of Kaneko and Kurita.
FEMALE, MALE = "female", "male"


def load_kaneko(*, distinct: bool = True) -> Lexicon:
    """Load gender pairs and stereotype words of Kaneko and Bollegala 2021 (in Yang et al. 2025).

    The files have 222 aligned lines per side, 409 distinct words (202 and 207; the paper states
    444) and 220 distinct pairs; 168 stereotype words alternate, female-stereotyped first. Averages
    over lines and over distinct words differ, because some words occur in several lines.

    Args:
        distinct: whether each pair is used once; False uses every line.
    """
    rows = list(
        # strict: the files are aligned by line, and a lost line would shift all pairs after it.
        zip(_read_lines("kaneko-words", FEMALE), _read_lines("kaneko-words", MALE), strict=True)
    )
    words = _read_lines("kaneko-words", "stereotype")
    return _make_lexicon(
        "kaneko",
        (FEMALE, MALE),
        [
            Term("person", ((FEMALE, a), (MALE, b)))
            for a, b in (dict.fromkeys(rows) if distinct else rows)
        ],
        [
            TargetFamily(
                "stereotypes",
                "words of opinion, alternating in the file",
                (Side("a", FEMALE, tuple(words[::2])), Side("b", MALE, tuple(words[1::2]))),
            )
        ],
        "kaneko-words",
    )


def load_manzini(category: Literal["gender", "race", "religion"]) -> Lexicon:
    """Load definite sets and role words of Manzini et al. 2019; the first set names the groups.

    Args:
        category: gender, race or religion.
    """
    parts = {name: f"{name}_attributes_optm" for name in ("gender", "race", "religion")}
    if category not in parts:
        raise UnknownNameError("list of Manzini", category, parts)
    (item,) = dataset("manzini-words").items(parts[category])
    sets = _word_sets(item)
    definite = [words for path, _, words in sets if path.startswith("/definite_sets")]
    roles = {name: words for path, name, words in sets if path.endswith("/role")}
    groups = definite[0]
    terms = [Term("person", tuple(zip(groups, row, strict=True))) for row in definite]
    sides = tuple(
        Side(name, name if name in groups else None, words) for name, words in roles.items()
    )
    targets = [TargetFamily("roles", "roles associated with groups", sides)] if sides else []
    return _make_lexicon(f"manzini-{category}", tuple(groups), terms, targets, "manzini-words")


def load_manzini_race_pair() -> Lexicon:
    """Load the words of Manzini et al. 2019 for two groups, black and caucasian.

    Yang et al. 2025, section 6, take three pairs and ten roles of this list and do not say which:
    these are all of its pairs, and all eleven roles.
    """
    race = load_manzini("race")
    first, second, _ = race.groups
    pairs = dict.fromkeys((term.word(first), term.word(second)) for term in race.terms)
    terms = [Term("person", ((first, a), (second, b))) for a, b in pairs if a and b]
    (roles,) = race.families
    sides = tuple(side for side in roles.sides if side.name in (first, second))
    family = TargetFamily(roles.name, roles.description, sides)
    return _make_lexicon("manzini-race-pair", (first, second), terms, [family], "manzini-words")


# Functions instead of lexicons: a list is read only when it is used.
PUBLISHED: dict[str, Callable[[], Lexicon]] = {
    "kaneko": load_kaneko,
    "manzini-gender": lambda: load_manzini("gender"),
    "manzini-race": lambda: load_manzini("race"),
    "manzini-race-pair": load_manzini_race_pair,
    "manzini-religion": lambda: load_manzini("religion"),
}


def resolve_lexicon(name: str | Lexicon) -> Lexicon:
    """Return a lexicon: the given one, or one by its name or path.

    Args:
        name: a lexicon, the name of a published one or of one of levelhead, or a path.
    """
    if isinstance(name, Lexicon):
        return name
    return PUBLISHED[name]() if name in PUBLISHED else lexicon(name)


class GroupTemplate(NamedTuple):
    """A sentence with a slot for the group (GGG) and one for the target (XXX)."""

    text: str
    groups: tuple[tuple[str, tuple[str, ...]], ...]


def load_kurita() -> tuple[tuple[GroupTemplate, ...], tuple[TargetFamily, ...]]:
    """Load the templates and the three tests of Kurita et al. 2019 (career, maths and science)."""
    content = json.loads(dataset("kurita-words").path("all").read_text("utf-8"))
    templates = tuple(
        GroupTemplate(
            row["text"],
            tuple((key, tuple(words)) for key, words in row.items() if key != "text"),
        )
        for row in content["templates"]
    )
    tests = tuple(
        TargetFamily(
            name, "", tuple(Side(side, None, tuple(words)) for side, words in sides.items())
        )
        for name, sides in content["tests"].items()
    )
    return templates, tests


def load_seat_test(name: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Load a SEAT or WEAT test of May et al. 2019: role -> (category, words or sentences).

    Args:
        name: name of the test.
    """
    (item,) = dataset("seat").items(name)
    return {role: (category, words) for role, category, words in _word_sets(item)}


def load_seat_sentences(name: str) -> dict[str, tuple[tuple[str, str], ...]]:
    """Load a test of May et al. 2019 as (sentence, word) by role.

    A sentence contains a word of the list it was made from, or its singular or plural. Irregular
    forms are assigned to the previous word, because the files are in the order of the words. A text
    that was not made from words is its own word.

    Args:
        name: name of the test.
    """
    sentences = {role: texts for role, (_, texts) in load_seat_test(name).items()}
    parts = {file.part for file in dataset("seat").files}
    word_test = name.removeprefix("sent-")
    if word_test == name or word_test not in parts:
        return {role: tuple((text, text) for text in texts) for role, texts in sentences.items()}
    pairs_by_role = {}
    for role, (_, words) in load_seat_test(word_test).items():
        rows, last_word = [], ""
        for text in sentences[role]:
            # Blanks around the tokens make a substring search match complete words only.
            padded_text = f" {' '.join(fold_case(token.text) for token in tokenize_words(text))} "
            # Exact matches first: a regular form of one word may be another word of the list.
            exact_matches = [word for word in words if f" {fold_case(word)} " in padded_text]
            matching_words = exact_matches or [
                word
                for word in words
                if any(f" {form} " in padded_text for form in _word_forms(word))
            ]
            # The longest match, because a word may contain another one.
            last_word = max(matching_words, key=len) if matching_words else last_word
            rows.append((text, last_word))
        pairs_by_role[role] = tuple(rows)
    return pairs_by_role


def _word_forms(word: str) -> set[str]:
    """Return the regular singular and plural of a word, and some forms that do not exist."""
    stem = fold_case(word)
    forms = {f"{stem}s", f"{stem}es", f"{stem.removesuffix('y')}ies"}
    forms |= {stem.removesuffix("s"), stem.removesuffix("es"), f"{stem.removesuffix('ies')}y"}
    return forms | {stem.replace("men", "man"), stem.removesuffix("ren")}


WEAT_TESTS: dict[str, tuple[tuple[str, TemplateKind], ...]] = {
    # X, Y, A, B by WEFE's names, and the kind of template for their words.
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


def make_weat_sentences(name: str) -> dict[str, tuple[tuple[str, str], ...]]:
    """Make a WEAT test as (sentence, word) by role, in templates like those of May et al.

    Args:
        name: name of the test.
    """
    if name not in WEAT_TESTS:
        raise UnknownNameError("WEAT test", name, WEAT_TESTS)
    return {
        role: tuple(
            (framed_word.text, framed_word.word)
            for framed_word in fill_templates(load_weat_set(set_name), template_kind)
        )
        for role, (set_name, template_kind) in zip(SEAT_ROLES, WEAT_TESTS[name], strict=True)
    }


def load_weat_set(name: str) -> tuple[str, ...]:
    """Load a WEAT word set, by its name in WEFE.

    Args:
        name: name of the word set.
    """
    items_by_name = {item.id: item for item in dataset("weat").items("all")}
    if name not in items_by_name:
        raise UnknownNameError("WEAT set", name, items_by_name)
    return _word_sets(items_by_name[name])[0][2]


def _word_sets(item: object) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    if not isinstance(item, WordSets):
        raise LevelheadError("these are no word sets", hint="check the data set's reader")
    return item.sets


def _read_lines(name: str, part: str) -> list[str]:
    return [item.text for item in dataset(name).items(part) if isinstance(item, Sentence)]


def _make_lexicon(
    name: str,
    groups: tuple[str, ...],
    terms: Sequence[Term],
    targets: Sequence[TargetFamily],
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
