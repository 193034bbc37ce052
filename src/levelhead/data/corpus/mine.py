"""Mining of sentences for pairs and contexts (Yang et al. 2025, section 5.2, step 1).

A sentence gives a pair if it contains exactly one word that marks a group and at least one target
that is stereotypically associated with this group. It also gives contexts of words, up to a quota.
Matching is exact: NFC, runs of Unicode word characters, ASCII case folding, complete words. The
result of a piece of a corpus is a pure function of its bytes. Ids are hashes of the text, so
duplicates coincide, and hashes decide which contexts are stored: results do not depend on order,
splitting or workers.
"""

from __future__ import annotations

import time
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from levelhead.core.canonical_json import to_canonical_json
from levelhead.core.errors import LevelheadError
from levelhead.core.files import join_url, write_atomic
from levelhead.core.frozen import FrozenDict
from levelhead.core.run_context import RunContext
from levelhead.data.corpus.collect import (
    PAIR_KEY,
    collect_results,
    encode_piece_result,
    keep_lowest_ranked,
)
from levelhead.data.corpus.matcher import (
    RowsByWord,
    SentenceMatcher,
    iter_rows_in_order,
    match_texts,
)
from levelhead.data.corpus.matcher_polars import build_text_pattern, match_texts_columnar
from levelhead.data.corpus.reader import CorpusPiece, read_matching_texts, split_corpus
from levelhead.data.lexicons.lexicon import lexicon as read_lexicon
from levelhead.engine.run_dir import mark_owned
from levelhead.engine.scheduler import Job, run_job
from levelhead.engine.tasks import Task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.core.files import Url
    from levelhead.data.lexicons.lexicon import Lexicon
    from levelhead.engine.executors.base import Executor

TASK_FUNCTION = "levelhead.data.corpus.mine:mine_pieces"
# Part of the key of every task: increase it when the mined rows change.
REVISION = 6
PIECES_PER_TASK = 8
"""Pieces of one task; they share the contexts found so far, so that later pieces store few."""


def mine_corpus(
    corpus: Sequence[Url],
    folder: Url,
    *,
    lexicon: str = "gender-en",
    groups: tuple[str, str] | None = None,
    quota: int = 100,
    executor: Executor | None = None,
    context: RunContext = RunContext(),
) -> dict[str, Any]:
    """Mine a corpus into a folder: pairs.jsonl, contexts.jsonl, manifest.json.

    Args:
        corpus: files, globs or URLs of text.
        folder: a new folder, or one in which the same mining was started.
        lexicon: name or file of a lexicon.
        groups: two groups of the lexicon; by default its first two.
        quota: largest number of contexts per word.
        executor: computes the tasks; by default this process.
        context: progress and cancellation; the folder is the store.
    """
    settings, words = _make_settings(lexicon, groups, quota)
    corpus_pieces = split_corpus(corpus)
    piece_groups = [
        list(map(list, corpus_pieces[begin : begin + PIECES_PER_TASK]))
        for begin in range(0, len(corpus_pieces), PIECES_PER_TASK)
    ]
    tasks = tuple(
        Task(TASK_FUNCTION, FrozenDict(settings | {"pieces": piece_group}), revision=REVISION)
        for piece_group in piece_groups
    )
    job = Job("mine", tasks)
    # Before the work: a folder with files of others is refused now and not after hours.
    mark_owned(folder, ("pairs.jsonl", "contexts.jsonl", "manifest.json"))
    store = run_job(job, join_url(folder, "store"), executor=executor, context=context)
    totals = collect_results(
        job.results(store), quota, lambda name, lines: write_atomic(join_url(folder, name), lines)
    )
    manifest = settings | {
        # Without folders, so that the manifest does not depend on where the corpus is.
        "corpus": sorted({(piece.url.rpartition("/")[2], piece.sha256) for piece in corpus_pieces}),
        "lost_words": SentenceMatcher(words, tuple(settings["groups"])).unmatchable_words(),
        "counts": totals.counts,
        "contexts": totals.contexts,
        "pairs": totals.pairs,
    }
    # Last: a folder with a manifest has complete pairs and contexts.
    write_atomic(join_url(folder, "manifest.json"), to_canonical_json(manifest))
    return manifest


class MiningCost(NamedTuple):
    """The size of a mining, and an estimate of its time."""

    pieces: int
    tasks: int
    seconds: float
    """Estimated seconds in one process: those of the first piece, times the number of pieces."""


def estimate_mining_cost(
    corpus: Sequence[Url], *, lexicon: str = "gender-en", quota: int = 100
) -> MiningCost:
    """Split a corpus as `mine_corpus` does, and time its first piece.

    Args:
        corpus: files, globs or URLs of text.
        lexicon: name or file of a lexicon.
        quota: largest number of contexts per word.
    """
    settings, _ = _make_settings(lexicon, None, quota)
    corpus_pieces = split_corpus(corpus)
    first_piece = FrozenDict(settings | {"pieces": [list(corpus_pieces[0])]})
    mine_pieces(first_piece)  # imports and loads what is used; only the second run is timed
    started_at = time.perf_counter()
    mine_pieces(first_piece)
    seconds = (time.perf_counter() - started_at) * len(corpus_pieces)
    return MiningCost(len(corpus_pieces), -(-len(corpus_pieces) // PIECES_PER_TASK), seconds)


def mine_pieces(spec: FrozenDict) -> bytes:
    """Mine a few pieces of a corpus: pairs, contexts and counts, encoded for `collect_results`.

    Args:
        spec: lexicon, groups, quota and pieces.
    """
    groups = cast("tuple[str, str]", spec["groups"])
    matcher = _load_matcher(str(spec["lexicon"]), str(spec["lexicon_sha256"]), *groups)
    quota, counts, rows = int(str(spec["quota"])), Counter[str](), RowsByWord()
    for piece in cast("tuple[tuple[str, str, int, int], ...]", spec["pieces"]):
        pattern = build_text_pattern(matcher.vocabulary)
        n_texts, piece_texts = read_matching_texts(CorpusPiece(*piece), pattern)
        piece_counts, piece_rows = match_piece_texts(piece_texts, matcher, quota, rows)
        counts += piece_counts
        counts["texts"] += n_texts
        for word, word_rows in piece_rows.items():
            rows[word] = keep_lowest_ranked(word, rows.get(word, {}) | word_rows, quota)
    return encode_piece_result(counts, iter_rows_in_order(rows, matcher))


def match_piece_texts(
    texts: Sequence[str], matcher: SentenceMatcher, quota: int, earlier_rows: RowsByWord
) -> tuple[Counter[str], RowsByWord]:
    """Match texts, given the rows found earlier; with Polars if the `mine` extra is installed.

    Args:
        texts: texts of a piece.
        matcher: words of the lexicon.
        quota: largest number of contexts per word.
        earlier_rows: rows of earlier pieces of the task.
    """
    try:
        # polars belongs to the `mine` extra; without it the rows are the same but slower.
        import polars
    except ImportError:
        return match_texts(texts, matcher, quota)
    # Only contexts with a smaller hash can replace stored ones once the quota is reached.
    rank_limits = {
        word: max(word_rows)
        for word, word_rows in earlier_rows.items()
        if len(word_rows) == quota and word != PAIR_KEY
    }
    return match_texts_columnar(polars, texts, matcher, quota, rank_limits)


def _make_settings(
    lexicon: str, groups: tuple[str, str] | None, quota: int
) -> tuple[dict[str, Any], Lexicon]:
    if quota < 1:
        raise LevelheadError(f"a quota of {quota}", hint="give a quota of at least 1")
    words = read_lexicon(lexicon)
    settings = {
        "lexicon": lexicon,
        # The hash, not only the name: a user may edit a lexicon between two runs.
        "lexicon_sha256": words.sha256,
        "groups": list(groups or words.groups[:2]),
        "quota": quota,
    }
    return settings, words


@lru_cache(maxsize=2)
def _load_matcher(lexicon: str, sha256: str, first: str, second: str) -> SentenceMatcher:
    words = read_lexicon(lexicon)
    # A worker reads the file itself, and perhaps later than the process that made the task.
    if words.sha256 != sha256:
        raise LevelheadError("the lexicon changed during the run", hint="mine into a new folder")
    return SentenceMatcher(words, (first, second))
