"""Children of a model: trained further on swapped texts (CDA), or with more dropout.

Published mitigations by training, for comparison with edits (Yang et al. 2025, Appendix C). CDA:
every text that names a group, and its twin with the groups' words exchanged, both shown (Zmigrod et
al. 2019; two-sided, as Webster et al. 2020). Dropout: the same training on any text, with more
dropout than the base had (Webster et al. 2020: 0.20 hidden, 0.15 attention for BERT). What a child
lost in fluency is to be measured beside what it gained.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError
from levelhead.core.frozen import Frozen
from levelhead.core.results import FrozenMapping, Record, Sha256
from levelhead.data.catalog.datasets import dataset, datasets
from levelhead.data.corpus.reader import pieces, sentences
from levelhead.data.counterfactuals.swap import swap
from levelhead.data.lexicons.lexicon import lexicon as read_lexicon
from levelhead.models.lm import LM
from levelhead.models.loading.checkpoints import Checkpoint
from levelhead.models.loading.load import load
from levelhead.models.training.continued_pretraining import Schooling, continued, record_of
from levelhead.models.training.training_examples import lesson

if TYPE_CHECKING:
    from collections.abc import Mapping

Base = LM | str | os.PathLike[str]
Corpus = str | os.PathLike[str] | Sequence[str]
Progress = Callable[[int, int], None]
_QUOTED = re.compile(r"^'[^']*'")
"""The word that a reason names; reasons are counted without it."""


class Child(Record):
    """A model trained further: what it was shown, what was left out and why, and its hashes."""

    how: Literal["cda", "dropout"]
    base: str
    base_hash: Sha256
    model_hash: Sha256
    """Of the child: weights, config, tokenizer and record."""
    weights: FrozenMapping
    """SHA-256 of every file of weights, by name."""
    corpus: FrozenMapping
    """SHA-256 of every source, by name."""
    sentences: Annotated[int, Field(ge=1)]
    """In the corpus, each once."""
    looked_at: Annotated[int, Field(ge=1)]
    """As many as were needed, drawn in seeded order."""
    texts: Annotated[int, Field(ge=1)]
    twins: Annotated[int, Field(ge=0)]
    """With CDA as many as texts, each shown right behind its own; else none."""
    left_out: FrozenMapping
    """How many of those looked at were not used, by reason."""
    shown: Annotated[int, Field(ge=1)]
    """Rows in all steps; texts are shown again when there are fewer."""
    settings: FrozenMapping
    """The schooling, and what else was chosen."""
    versions: FrozenMapping


def cda(
    base: Base,
    corpus: Corpus,
    folder: str | os.PathLike[str],
    *,
    lexicon: str | os.PathLike[str] = "gender-en",
    groups: tuple[str, str] | None = None,
    schooling: Schooling | None = None,
    progress: Progress | None = None,
) -> Child:
    """Train a model further on texts that name a group and on their twins, as many of each.

    A text whose swap cannot be decided is left out and counted; so is a pair of which one is too
    long, or holds nothing the model could be asked for.

    Args:
        base: a model without edits, or its name.
        corpus: a data set's name, files, globs or URLs; several in a list.
        folder: a new folder, or one in which the same training was begun.
        lexicon: whose words are exchanged.
        groups: which two of its groups; by default the first two.
        schooling: how; with the base's own dropout unless it says another.
        progress: is called with steps done and steps in all.
    """
    schooling, words = schooling or Schooling(), read_lexicon(lexicon)
    first, second = words.two(groups)
    lm = _loaded(base)

    def twins(text: str) -> tuple[str, ...] | str:
        swapped = swap(text, words, groups=(first, second))
        if swapped.twin is None:
            return _QUOTED.sub("a word", swapped.refusals[0].reason)
        if not swapped.changes:
            return f"no word of {first} or {second}"
        return _usable(lm, (text, swapped.twin), schooling)

    settings = {
        "lexicon": words.name,
        "lexicon_sha256": words.sha256,
        "groups": (first, second),
    }
    return _raised("cda", lm, corpus, folder, twins, schooling, settings, progress)


def dropout(
    base: Base,
    corpus: Corpus,
    folder: str | os.PathLike[str],
    *,
    hidden: float = 0.20,
    attention: float = 0.15,
    schooling: Schooling | None = None,
    progress: Progress | None = None,
) -> Child:
    """Train a model further with more dropout; in use the child has the base's own again.

    Args:
        base: a model without edits, or its name.
        corpus: a data set's name, files, globs or URLs; several in a list.
        folder: a new folder, or one in which the same training was begun.
        hidden: the share of hidden states that is dropped.
        attention: the share of attention that is dropped.
        schooling: how else.
        progress: is called with steps done and steps in all.
    """
    own = replace(schooling or Schooling(), dropout=(hidden, attention))
    lm = _loaded(base)

    def alone(text: str) -> tuple[str, ...] | str:
        return _usable(lm, (text,), own)

    return _raised("dropout", lm, corpus, folder, alone, own, {}, progress)


def _loaded(base: Base) -> LM:
    return base if isinstance(base, LM) else load(base)


def _usable(lm: LM, texts: tuple[str, ...], schooling: Schooling) -> tuple[str, ...] | str:
    """The texts, if the model can learn from each; else why not."""
    for text in texts:
        if isinstance(found := lesson(lm, text, max_tokens=schooling.max_tokens), str):
            return found
    return texts


def _raised(
    how: Literal["cda", "dropout"],
    lm: LM,
    corpus: Corpus,
    folder: str | os.PathLike[str],
    accepted: Callable[[str], tuple[str, ...] | str],
    schooling: Schooling,
    settings: Mapping[str, object],
    progress: Progress | None,
) -> Child:
    """The child of a model, on the rows that texts of the corpus are accepted as."""
    read, sources = _read(corpus)
    drawn = _drawn(read, accepted, schooling)
    told = {"how": how, "corpus": sources, "settings": dict(settings)}
    path = continued(lm, drawn.rows, folder, schooling=schooling, told=told, progress=progress)
    record = record_of(path)
    return Child(
        how=how,
        base=str(record["base"]),
        base_hash=lm.identity.checkpoint.hash,
        model_hash=Checkpoint.inspect(path).hash,
        weights=Frozen(record["weights"]),
        corpus=Frozen(sources),
        sentences=len(read),
        looked_at=drawn.looked_at,
        texts=drawn.texts,
        twins=len(drawn.rows) - drawn.texts,
        left_out=Frozen(dict(sorted(drawn.left_out.items()))),
        shown=schooling.steps * schooling.batch,
        settings=Frozen(record["schooling"] | settings),
        versions=Frozen(record["versions"]),
    )


class _Drawn(NamedTuple):
    rows: list[str]
    """What the model is shown, a text's rows side by side."""
    texts: int
    looked_at: int
    left_out: Counter[str]


def _drawn(
    read: Sequence[str],
    accepted: Callable[[str], tuple[str, ...] | str],
    schooling: Schooling,
) -> _Drawn:
    """Texts in seeded order, until there are rows for every step or no more texts."""
    wanted, rng = schooling.steps * schooling.batch, np.random.default_rng(schooling.seed)
    rows: list[str] = []
    left_out: Counter[str] = Counter()
    texts = looked_at = 0
    for i in rng.permutation(len(read)):
        if len(rows) >= wanted:
            break
        looked_at += 1
        found = accepted(read[i])
        if isinstance(found, str):
            left_out[found] += 1
        else:
            rows += found
            texts += 1
    if not rows:
        reasons = ", ".join(f"{count} {reason}" for reason, count in left_out.most_common())
        raise LevelheadError(
            f"no text of {looked_at} can be used: {reasons or 'the corpus is empty'}",
            mend="give a corpus in the model's language; for cda, one that names the groups",
        )
    return _Drawn(rows, texts, looked_at, left_out)


def _read(corpus: Corpus) -> tuple[list[str], dict[str, str]]:
    """Every sentence once, in the order of the sources; and the sources' hashes, by name."""
    given = [corpus] if isinstance(corpus, str | os.PathLike) else corpus
    texts: dict[str, None] = {}
    hashes: dict[str, str] = {}
    for source in (os.fspath(one) for one in given):
        if source in datasets():
            row = dataset(source)
            items = (item for part in row.parts for item in row.items(part))
            texts |= dict.fromkeys(text for item in items if (text := getattr(item, "text", "")))
            hashes[source] = content_hash([file.sha256 for file in row.files])
        elif set(source) & set("*?[") or "://" in source or Path(source).is_file():
            cut = pieces([source])
            texts |= dict.fromkeys(text for piece in cut for text in sentences(piece))
            name = Path(source).name
            name = f"{name} ({len(hashes) + 1})" if name in hashes else name
            hashes[name] = content_hash([piece.sha256 for piece in cut])
        else:
            raise LevelheadError(
                f"{source!r} is neither a data set nor a file",
                mend="name a text file (.txt, .tsv, .jsonl, .parquet) or see `levelhead data list`",
            )
    return list(texts), hashes
