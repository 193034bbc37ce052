"""Where counter-stereotype pairs come from: a data set, mining, a file, or a lexicon's frames."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.files import file_hash
from levelhead.data.catalog.datasets import dataset, datasets
from levelhead.data.counterfactuals.templates import Carried, carried, subject
from levelhead.data.records import Template
from levelhead.data.user_files import ENDINGS, own_texts
from levelhead.explain.attention.pairs import CounterPair, Pairs, paired

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    from levelhead.data.lexicons.lexicon import Lexicon, Term

MINED = "pairs.jsonl"
COLUMNS = ("text", "twin", "attribute", "target", "group")
"""Of a file of your own."""


def pairs_from(source: str | os.PathLike[str]) -> Pairs:
    """Pairs of a data set, by name; of a folder of `levelhead mine`; or of a file of your own.

    A file is .csv, .tsv or .jsonl with the columns text, twin, attribute, target and group.
    """
    if str(source) in datasets():
        return from_dataset(str(source))
    path = Path(source)
    if (path / MINED).is_file():
        return from_mined(path)
    if path.is_file():
        return from_mined(path.parent) if path.name == MINED else from_file(path)
    raise LevelheadError(
        f"{str(source)!r} is neither a data set, nor a folder of `levelhead mine`, nor a file",
        mend=f"give a {', '.join(ENDINGS)} file with the columns {', '.join(COLUMNS)}, or "
        "counter-stereotype",
    )


def from_dataset(name: str = "counter-stereotype") -> Pairs:
    """The pairs of a data set."""
    row = dataset(name)

    def rows() -> Iterator[CounterPair | str]:
        for item in (item for part in row.parts for item in row.items(part)):
            slots = dict(item.slots) if isinstance(item, Template) else {}
            if not {"counter_sentence", "gender", "attribute", "target"} <= slots.keys():
                raise LevelheadError(
                    f"{name} holds no sentences with their twins",
                    mend="use counter-stereotype, a file of your own or a mined folder",
                )
            yield paired(
                item.id,
                getattr(item, "text", ""),
                slots["counter_sentence"],
                group=slots["gender"],
                attribute=slots["attribute"],
                target=slots["target"],
            )

    return _gathered(rows(), tuple((f"{name}/{file.path}", file.sha256) for file in row.files))


def from_mined(folder: str | os.PathLike[str]) -> Pairs:
    """The pairs that `levelhead mine` wrote; sentences with several targets are left out."""
    path = Path(folder) / MINED
    try:
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        found = [_mined(row) for row in rows]
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise LevelheadError(
            f"{path} is not as `levelhead mine` writes it: {error}", mend="mine the corpus again"
        ) from None
    return _gathered(found, ((path.name, file_hash(path)),))


def _mined(row: dict[str, object]) -> CounterPair | str:
    targets, attribute = row["targets"], row["attribute"]
    if len({str(word) for word, _, _ in targets}) != 1:  # type: ignore[attr-defined]
        return "it holds several targets"
    texts = str(row["text"]), str(row["twin"])
    return paired(
        str(row["id"]),
        *texts,
        group=str(row["group"]),
        attribute=str(attribute[0]),  # type: ignore[index]
        target=str(targets[0][0]),  # type: ignore[index]
    )


def from_file(path: str | os.PathLike[str]) -> Pairs:
    """The pairs of a file of your own, by the columns text, twin, attribute, target and group."""
    columns = [[row.text for row in own_texts(str(path), name)] for name in COLUMNS]
    rows = enumerate(zip(*columns, strict=True), 1)
    found = [
        paired(f"row {i}", text, twin, group=group, attribute=attribute, target=target)
        for i, (text, twin, attribute, target, group) in rows
    ]
    return _gathered(found, ((Path(path).name, file_hash(path)),))


def templated(
    lexicon: Lexicon,
    *,
    targets: str | None = None,
    groups: tuple[str, str] | None = None,
    sort: Carried = "any",
) -> Pairs:
    """Pairs made of a lexicon: own frames with the word of the group that a target leans to.

    For groups whose words hardly stand in running text beside a target. A frame is no sample of a
    language: the sentences of one target and one pair of words are nearly the same.

    Args:
        lexicon: whose words and targets.
        targets: one of its families of targets; all of them by default.
        groups: which two groups; by default its first two.
        sort: what the targets are, for the frames (CARRIES of `data.counterfactuals.templates`).
    """
    first, second = lexicon.two(groups)
    families = lexicon.families if targets is None else (lexicon.targets(targets),)
    leaning = [
        (str(side.leans), word)
        for family in families
        for side in family.sides
        for word in side.words
        if side.leans in (first, second)
    ]

    def rows() -> Iterator[CounterPair | str]:
        for own, target in dict.fromkeys(leaning):
            other = second if own == first else first
            for term in dict.fromkeys(lexicon.terms):
                yield from _framed(term, (own, other), target, sort)

    return _gathered(rows(), ((f"lexicon {lexicon.name}", lexicon.sha256),))


def _framed(
    term: Term, groups: tuple[str, str], target: str, sort: Carried
) -> Iterator[CounterPair | str]:
    own, other = (term.word(group) if term.marks(group) else None for group in groups)
    if own is None or other is None:
        return
    phrase = subject(term.kind, term.role)
    if phrase is None:
        yield f"a {term.kind} that cannot be the subject of a frame"
        return
    both = (carried(phrase, word, target, sort=sort) for word in (own, other))
    for one, twin in zip(*both, strict=True):
        name = f"{own}/{other}/{target}/{one.id}"
        yield paired(name, one.text, twin.text, group=groups[0], attribute=own, target=target)


def _gathered(rows: Iterable[CounterPair | str], data: tuple[tuple[str, str], ...]) -> Pairs:
    """The pairs among some rows, each once; the reasons of the others counted."""
    found: dict[tuple[str, str, str], CounterPair] = {}
    why: Counter[str] = Counter()
    for row in rows:
        if isinstance(row, str):
            why[row] += 1
            continue
        key = (row.original.text, row.counter.text, row.word)
        if key in found:
            why["it stands there twice"] += 1
        found.setdefault(key, row)
    if not found:
        told = ", ".join(f"{reason} ({count})" for reason, count in sorted(why.items()))
        raise NotMeasurable(
            f"there is no counter-stereotype pair: {told or 'the source is empty'}",
            mend="give sentences with one attribute and one target, and their twins",
        )
    return Pairs(tuple(found.values()), data, tuple(sorted(why.items())))
