"""Sources of counter-stereotype pairs: a data set, mining, a file, or a lexicon's frames."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.files import file_hash
from levelhead.data.catalog.datasets import dataset, datasets
from levelhead.data.counterfactuals.templates import (
    CarrierKind,
    fill_carrier_frames,
    subject_phrase,
)
from levelhead.data.records import Template
from levelhead.data.user_files import USER_FILE_SUFFIXES, read_user_texts
from levelhead.explain.attention.pairs import CounterPair, CounterPairs, make_counter_pair

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    from levelhead.data.lexicons.lexicon import Lexicon, Term

MINED_FILE = "pairs.jsonl"
FILE_COLUMNS = ("text", "twin", "attribute", "target", "group")
"""Required columns of a file of the user."""


def counterstereotype_pairs(source: str | os.PathLike[str]) -> CounterPairs:
    """Read pairs of a data set, by name; of a folder of `levelhead data mine`; or of a user's file.

    A file is .csv, .tsv or .jsonl with the columns text, twin, attribute, target and group.
    """
    if str(source) in datasets():
        return pairs_from_dataset(str(source))
    path = Path(source)
    if (path / MINED_FILE).is_file():
        return pairs_from_mined(path)
    if path.is_file():
        return pairs_from_mined(path.parent) if path.name == MINED_FILE else pairs_from_file(path)
    raise LevelheadError(
        f"{str(source)!r} is neither a data set, nor a folder of `levelhead data mine`, nor a file",
        hint=f"give a {', '.join(USER_FILE_SUFFIXES)} file with the columns "
        f"{', '.join(FILE_COLUMNS)}, or counter-stereotype",
    )


def pairs_from_dataset(name: str = "counter-stereotype") -> CounterPairs:
    """Read the pairs of a data set."""
    row = dataset(name)

    def rows() -> Iterator[CounterPair | str]:
        for item in (item for part in row.parts for item in row.items(part)):
            slots = dict(item.slots) if isinstance(item, Template) else {}
            if not {"counter_sentence", "gender", "attribute", "target"} <= slots.keys():
                raise LevelheadError(
                    f"{name} holds no sentences with their twins",
                    hint="use counter-stereotype, a file of your own or a mined folder",
                )
            yield make_counter_pair(
                item.id,
                getattr(item, "text", ""),
                slots["counter_sentence"],
                group=slots["gender"],
                attribute=slots["attribute"],
                target=slots["target"],
            )

    return _collect_pairs(rows(), tuple(row.hashes().items()))


def pairs_from_mined(folder: str | os.PathLike[str]) -> CounterPairs:
    """Read the pairs of `levelhead data mine`; sentences with several targets are left out."""
    path = Path(folder) / MINED_FILE
    try:
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        pairs = [_parse_mined_row(row) for row in rows]
    except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise LevelheadError(
            f"{path} is not as `levelhead data mine` writes it: {error}",
            hint="mine the corpus again",
        ) from None
    return _collect_pairs(pairs, ((path.name, file_hash(path)),))


class _MinedRow(TypedDict):
    """A line of the output of `levelhead data mine`; words with their first and last character."""

    id: str
    text: str
    twin: str
    group: str
    attribute: tuple[str, int, int]
    targets: list[tuple[str, int, int]]


def _parse_mined_row(row: _MinedRow) -> CounterPair | str:
    targets, attribute = row["targets"], row["attribute"]
    # Section 5.2 takes sentences with one attribute and one target; with two, the clusters overlap.
    if len({str(word) for word, _, _ in targets}) != 1:
        return "it holds several targets"
    texts = str(row["text"]), str(row["twin"])
    return make_counter_pair(
        str(row["id"]),
        *texts,
        group=str(row["group"]),
        attribute=str(attribute[0]),
        target=str(targets[0][0]),
    )


def pairs_from_file(path: str | os.PathLike[str]) -> CounterPairs:
    """Read the pairs of a user's file with the columns text, twin, attribute, target and group."""
    columns = [[row.text for row in read_user_texts(str(path), name)] for name in FILE_COLUMNS]
    rows = enumerate(zip(*columns, strict=True), 1)
    pairs = [
        make_counter_pair(f"row {i}", text, twin, group=group, attribute=attribute, target=target)
        for i, (text, twin, attribute, target, group) in rows
    ]
    return _collect_pairs(pairs, ((Path(path).name, file_hash(path)),))


def pairs_from_templates(
    lexicon: Lexicon,
    *,
    targets: str | None = None,
    groups: tuple[str, str] | None = None,
    carrier_kind: CarrierKind = "any",
) -> CounterPairs:
    """Make pairs from a lexicon: frames with the word of the group that a target leans to.

    They are for groups whose words hardly occur near a target in running text. A frame is no sample
    of a language: the sentences of one target and one pair of words are nearly the same.

    Args:
        lexicon: Lexicon of the words and targets.
        targets: One of its families of targets; all of them by default.
        groups: The two groups; by default the first two of the lexicon.
        carrier_kind: Kind of the targets, for the frames (CARRIES of
            `data.counterfactuals.templates`).
    """
    first, second = lexicon.resolve_group_pair(groups)
    families = lexicon.families if targets is None else (lexicon.targets(targets),)
    group_targets = [
        (str(side.stereotyped_group), word)
        for family in families
        for side in family.sides
        for word in side.words
        # A target that leans to neither group has no stereotype to counter.
        if side.stereotyped_group in (first, second)
    ]

    def rows() -> Iterator[CounterPair | str]:
        for group, target in dict.fromkeys(group_targets):
            other_group = second if group == first else first
            for term in dict.fromkeys(lexicon.terms):
                yield from _pairs_in_frames(term, (group, other_group), target, carrier_kind)

    return _collect_pairs(rows(), ((f"lexicon {lexicon.name}", lexicon.sha256),))


def _pairs_in_frames(
    term: Term, groups: tuple[str, str], target: str, carrier_kind: CarrierKind
) -> Iterator[CounterPair | str]:
    attribute, counterpart = (
        term.word(group) if term.is_marker_of(group) else None for group in groups
    )
    if attribute is None or counterpart is None:
        return
    phrase = subject_phrase(term.kind, term.role)
    if phrase is None:
        yield f"a {term.kind} that cannot be the subject of a frame"
        return
    framed = (
        fill_carrier_frames(phrase, word, target, carrier_kind=carrier_kind)
        for word in (attribute, counterpart)
    )
    for sentence, twin in zip(*framed, strict=True):
        name = f"{attribute}/{counterpart}/{target}/{sentence.id}"
        yield make_counter_pair(
            name, sentence.text, twin.text, group=groups[0], attribute=attribute, target=target
        )


def _collect_pairs(
    rows: Iterable[CounterPair | str], data: tuple[tuple[str, str], ...]
) -> CounterPairs:
    """The valid pairs among some rows, each once; the others are counted by reason."""
    pair_of_key: dict[tuple[str, str, str], CounterPair] = {}
    reasons: Counter[str] = Counter()
    for row in rows:
        if isinstance(row, str):
            reasons[row] += 1
            continue
        # By text, not by id: a corpus repeats sentences, and copies would count as observations.
        key = (row.original.text, row.counter.text, row.target_word)
        if key in pair_of_key:
            reasons["it stands there twice"] += 1
        pair_of_key.setdefault(key, row)
    if not pair_of_key:
        summary = ", ".join(f"{reason} ({count})" for reason, count in sorted(reasons.items()))
        raise NotMeasurableError(
            f"there is no counter-stereotype pair: {summary or 'the source is empty'}",
            hint="give sentences with one attribute and one target, and their twins",
        )
    return CounterPairs(tuple(pair_of_key.values()), data, tuple(sorted(reasons.items())))
