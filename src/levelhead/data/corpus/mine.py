"""Mining: sentences for counterfactual pairs (Yang et al. 2025, section 5.2, step 1) and contexts.

A sentence is kept for a pair if it holds exactly one word that marks a group and at least one
target that common opinion joins with that group; and for a word's contexts, up to a quota. Matching
is exact: NFC, runs of Unicode word characters, ASCII case folded, whole words. What a piece of a
corpus gives is a pure function of its bytes; ids are hashes of the text, duplicates fall together,
and what is kept for a quota is decided by hash: neither order nor cutting nor workers matter.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from levelhead.core.canonical_json import canonical
from levelhead.core.errors import LevelheadError
from levelhead.core.files import join, write_atomic
from levelhead.core.frozen import Frozen
from levelhead.core.run_context import RunContext
from levelhead.data.corpus.collect import PAIR, gathered, given, least
from levelhead.data.corpus.matcher import Kernel, Rows, in_order, literal
from levelhead.data.corpus.matcher_polars import pattern, scanned
from levelhead.data.corpus.reader import Piece, pieces, texts_with
from levelhead.data.lexicons.lexicon import lexicon as read_lexicon
from levelhead.engine.run_dir import own
from levelhead.engine.scheduler import Job, run
from levelhead.engine.tasks import Unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.core.files import Url
    from levelhead.engine.executors.base import Runner

WORK = "levelhead.data.corpus.mine:some_pieces"
REVISION = 5
PIECES = 8
"""In a unit: of a word's contexts, few of the later ones are kept, and none is written twice."""


def mine(
    corpus: Sequence[Url],
    folder: Url,
    *,
    lexicon: str = "gender-en",
    groups: tuple[str, str] | None = None,
    quota: int = 100,
    runner: Runner | None = None,
    context: RunContext = RunContext(),
) -> dict[str, Any]:
    """Mine a corpus into a folder: pairs.jsonl, contexts.jsonl, manifest.json.

    Args:
        corpus: files, globs or URLs.
        folder: a new folder, or one in which the same mining was begun.
        lexicon: a lexicon's name or file.
        groups: which two of its groups; the first two by default.
        quota: contexts kept for each word.
        runner: who computes; by default this process.
        context: progress and cancellation; the folder is the store.
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
    parts = [list(map(list, cut[begin : begin + PIECES])) for begin in range(0, len(cut), PIECES)]
    units = tuple(Unit(WORK, Frozen(asked | {"pieces": part}), revision=REVISION) for part in parts)
    job = Job("mine", units)
    own(folder, ("pairs.jsonl", "contexts.jsonl", "manifest.json"))
    store = run(job, join(folder, "store"), runner=runner, context=context)
    found = gathered(
        job.results(store), quota, lambda name, lines: write_atomic(join(folder, name), lines)
    )
    manifest = asked | {
        "corpus": sorted({(part.url.rpartition("/")[2], part.sha256) for part in cut}),
        "lost_words": Kernel(words, (first, second)).lost(),
        "counts": found.counts,
        "contexts": found.contexts,
        "pairs": found.pairs,
    }
    write_atomic(join(folder, "manifest.json"), canonical(manifest))
    return manifest


def some_pieces(spec: Frozen) -> bytes:
    """What a few pieces of a corpus give: pairs, contexts and counts, as `gather` takes them."""
    kernel = _kernel(str(spec["lexicon"]), str(spec["lexicon_sha256"]), *spec["groups"])  # type: ignore[misc]
    quota, counts, rows = int(str(spec["quota"])), Counter[str](), Rows()
    for piece in spec["pieces"]:  # type: ignore[union-attr]
        number, read = texts_with(Piece(*piece), pattern(kernel.known))  # type: ignore[misc]
        more, found = found_in(read, kernel, quota, rows)
        counts += more
        counts["texts"] += number
        for word, kept in found.items():
            rows[word] = least(word, rows.get(word, {}) | kept, quota)
    return given(counts, in_order(rows, kernel))


def found_in(
    texts: Sequence[str], kernel: Kernel, quota: int, before: Rows
) -> tuple[Counter[str], Rows]:
    """What texts give beside what was found `before`: by columns with the `mine` extra."""
    try:
        import polars
    except ImportError:
        return literal(texts, kernel, quota)
    full = {word: max(own) for word, own in before.items() if len(own) == quota and word != PAIR}
    return scanned(polars, texts, kernel, quota, full)


@lru_cache(maxsize=2)
def _kernel(lexicon: str, sha256: str, first: str, second: str) -> Kernel:
    words = read_lexicon(lexicon)
    if words.sha256 != sha256:
        raise LevelheadError("the lexicon changed while it was used", mend="mine into a new folder")
    return Kernel(words, (first, second))
