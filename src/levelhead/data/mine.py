"""Mining: sentences for counterfactual pairs (Yang et al. 2025, section 5.2, step 1) and contexts.

A sentence is kept for a pair if it holds exactly one word that marks a group and at least one
target that common opinion joins with that group; and for a word's contexts, up to a quota. Matching
is exact: NFC, runs of Unicode word characters, ASCII case folded, whole words. Each piece of a
corpus is a pure function of its bytes; ids are hashes of the text, duplicates fall together, and
what is kept for a quota is decided by hash, so that neither order nor cutting nor workers matter.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from heapq import nsmallest
from typing import TYPE_CHECKING, Any

from levelhead.core.canonical import canonical
from levelhead.core.errors import LevelheadError
from levelhead.core.files import join, write_atomic
from levelhead.core.frozen import Frozen
from levelhead.data.corpus import Piece, pieces, sentences
from levelhead.data.lexicon import lexicon as read_lexicon
from levelhead.data.swap import swap
from levelhead.data.words import folded
from levelhead.engine.jobs import Job, run
from levelhead.engine.units import Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from levelhead.core.files import Url
    from levelhead.data.lexicon import Lexicon
    from levelhead.engine.events import Event
    from levelhead.engine.runners import Runner

RUN = re.compile(r"\w+")
WORK = "levelhead.data.mine:piece"


def mine(
    corpus: Sequence[Url],
    folder: Url,
    *,
    lexicon: str = "gender-en",
    groups: tuple[str, str] | None = None,
    quota: int = 100,
    runner: Runner | None = None,
    on_event: Callable[[Event], None] = lambda event: None,
) -> dict[str, Any]:
    """Mine a corpus into a folder: pairs.jsonl, contexts.jsonl, manifest.json.

    Args:
        corpus: files, globs or URLs.
        folder: a new folder, or one in which the same mining was begun.
        lexicon: a lexicon's name or file.
        groups: which two of its groups; the first two by default.
        quota: contexts kept for each word.
        runner: who computes; by default this process.
        on_event: is told how far it is.
    """
    if quota < 1:
        raise LevelheadError(f"a quota of {quota}", mend="keep at least one context a word")
    words = read_lexicon(lexicon)
    first, second = groups or words.groups[:2]
    asked = {
        "lexicon": lexicon,
        "lexicon_sha256": words.sha256,
        "groups": [first, second],
        "quota": quota,
    }
    cut = pieces(corpus)
    units = tuple(Unit(WORK, Frozen(asked | {"piece": list(part)})) for part in cut)
    job = Job("mine", units)
    store = run(job, join(folder, "store"), runner=runner, on_event=on_event)
    found = _merged((json.loads(result) for result in job.results(store)), quota)
    manifest = asked | {
        "corpus": sorted({(part.url.rpartition("/")[2], part.sha256) for part in cut}),
        "lost_words": _lost(words, (first, second)),
        "counts": found["counts"],
        "contexts": {word: len(kept) for word, kept in found["contexts"].items()},
        "pairs": len(found["pairs"]),
    }
    _write(folder, "pairs.jsonl", found["pairs"])
    _write(
        folder,
        "contexts.jsonl",
        ({"word": word, **row} for word, kept in found["contexts"].items() for row in kept),
    )
    write_atomic(join(folder, "manifest.json"), canonical(manifest))
    return manifest


def piece(spec: Frozen) -> bytes:
    """What one piece of a corpus gives: pairs, contexts and counts, as canonical JSON."""
    words = read_lexicon(str(spec["lexicon"]))
    if words.sha256 != spec["lexicon_sha256"]:
        raise LevelheadError("the lexicon changed while it was used", mend="mine into a new folder")
    asked: dict[str, Any] = json.loads(canonical(spec))
    kernel = _Kernel(words, (asked["groups"][0], asked["groups"][1]))
    pairs: dict[str, dict[str, Any]] = {}
    contexts: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    counts: Counter[str] = Counter()
    for text in sentences(Piece(*asked["piece"])):
        counts["sentences"] += 1
        matches = kernel.matches(text)
        if not matches:
            continue
        key = hashlib.sha256(text.encode()).hexdigest()
        for word, start, end in matches:
            contexts[word][key] = {"id": key, "text": text, "start": start, "end": end}
        row, why = kernel.pair(text, matches)
        counts[why] += 1
        if row is not None:
            pairs[key] = {"id": key, **row}
    return canonical(
        {
            "pairs": [pairs[key] for key in sorted(pairs)],
            "contexts": {
                word: _least(word, rows.values(), asked["quota"])
                for word, rows in sorted(contexts.items())
            },
            "counts": dict(counts),
        }
    )


class _Kernel:
    """The words of a lexicon, ready to be found."""

    def __init__(self, words: Lexicon, groups: tuple[str, str]) -> None:
        self.lexicon, self.groups = words, groups
        every = [(word, group) for group in groups for word in words.words(group)]
        self.attributes = {folded(word): group for word, group in every}
        self.titles = {folded(word): word for word, _ in every if word[0].isupper()}
        self.targets: dict[str, set[str]] = defaultdict(set)
        for family in words.families:
            for side in family.sides:
                for word in side.words:
                    if side.leans in groups:
                        self.targets[folded(word)].add(str(side.leans))
        self.known = self.attributes.keys() | self.targets.keys()

    def matches(self, text: str) -> list[tuple[str, int, int]]:
        """Every known word of a text, folded, with its place."""
        found = []
        for match in RUN.finditer(text):
            word = folded(match[0])
            if word in self.known and self.titles.get(word, match[0]) == match[0]:
                found.append((word, match.start(), match.end()))
        return found

    def pair(
        self, text: str, matches: Sequence[tuple[str, int, int]]
    ) -> tuple[dict[str, Any] | None, str]:
        """The pair a sentence gives, or None; and what became of it, for the counts."""
        marks = [match for match in matches if match[0] in self.attributes]
        if len(marks) != 1:
            return None, "no group word" if not marks else "several group words"
        word, start, end = marks[0]
        group = self.attributes[word]
        wanted = [list(match) for match in matches if group in self.targets.get(match[0], ())]
        if not wanted:
            return None, "no target of its group"
        twin = swap(text, self.lexicon, groups=self.groups)
        if twin.twin is None:
            return None, "its word cannot be swapped"
        if len(twin.changes) != 1:
            return None, "its swap changes another word"
        return {
            "text": text,
            "twin": twin.twin,
            "group": group,
            "attribute": [word, start, end],
            "targets": wanted,
        }, "kept"


def _merged(results: Iterable[dict[str, Any]], quota: int) -> dict[str, Any]:
    pairs: dict[str, Any] = {}
    contexts: dict[str, dict[str, Any]] = defaultdict(dict)
    counts: Counter[str] = Counter()
    for result in results:
        pairs |= {row["id"]: row for row in result["pairs"]}
        for word, rows in result["contexts"].items():
            contexts[word] |= {row["id"]: row for row in rows}
        counts.update(result["counts"])
    counts["duplicates"] = counts["kept"] - len(pairs)
    counts["kept"] = len(pairs)
    return {
        "pairs": [pairs[key] for key in sorted(pairs)],
        "contexts": {
            word: _least(word, rows.values(), quota) for word, rows in sorted(contexts.items())
        },
        "counts": dict(sorted(counts.items())),
    }


def _least(word: str, rows: Iterable[dict[str, Any]], quota: int) -> list[dict[str, Any]]:
    """The rows with the least hashes: the least of all are among the least of the parts."""
    return nsmallest(quota, rows, key=lambda row: rank(word, row["id"]))


def rank(word: str, sentence: str) -> str:
    """The hash that decides which sentences (by their ids) are kept for a word."""
    return hashlib.sha256(f"{word} {sentence}".encode()).hexdigest()


def _lost(words: Lexicon, groups: tuple[str, str]) -> list[str]:
    """Words of the lexicon that are no single run of word characters, and so never match."""
    every = [word for group in groups for word in words.words(group)]
    every += [word for family in words.families for side in family.sides for word in side.words]
    return sorted({word for word in every if not RUN.fullmatch(word)})


def _write(folder: Url, name: str, rows: Iterable[dict[str, Any]]) -> None:
    write_atomic(join(folder, name), b"".join(_line(row) for row in rows))


def _line(row: dict[str, Any]) -> bytes:
    return canonical(row) + b"\n"
