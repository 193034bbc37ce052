"""Models trained further from a base: on swapped texts (CDA), or with more dropout.

These are published mitigations by training, for comparison with edits (Yang et al. 2025, Appendix
C). CDA uses every text that names a group, and its twin with the groups' words exchanged (Zmigrod
et al. 2019; two-sided, as Webster et al. 2020). Dropout is the same training on any text, with more
dropout than in the base (Webster et al. 2020: 0.20 hidden, 0.15 attention for BERT). The loss of
fluency is to be measured together with the gain.
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
from levelhead.core.frozen import FrozenDict
from levelhead.core.results import FrozenMapping, Record, Sha256
from levelhead.data.catalog.datasets import dataset, datasets
from levelhead.data.corpus.reader import iter_sentences, split_corpus
from levelhead.data.counterfactuals.swap import swap
from levelhead.data.lexicons.lexicon import lexicon as read_lexicon
from levelhead.models.lm import LM
from levelhead.models.loading.checkpoints import Checkpoint
from levelhead.models.loading.load import load
from levelhead.models.training.configs import ContinuedPretrainingConfig
from levelhead.models.training.continued_pretraining import (
    continue_pretraining,
    read_pretraining_record,
)
from levelhead.models.training.training_examples import make_training_example

if TYPE_CHECKING:
    from collections.abc import Mapping

Base = LM | str | os.PathLike[str]
Corpus = str | os.PathLike[str] | Sequence[str]
Progress = Callable[[int, int], None]
_QUOTED = re.compile(r"^'[^']*'")
"""The word in a reason; reasons are counted without it."""


class TrainedVariant(Record):
    """A trained model: its texts, the texts that were left out with reasons, and its hashes."""

    method: Literal["cda", "dropout"]
    base: str
    base_hash: Sha256
    model_hash: Sha256
    """SHA-256 of the trained model: weights, config, tokenizer and record."""
    weights: FrozenMapping
    """SHA-256 of every file of weights, by name."""
    corpus: FrozenMapping
    """SHA-256 of every source, by name."""
    sentences: Annotated[int, Field(ge=1)]
    """Number of different texts in the corpus."""
    sentences_scanned: Annotated[int, Field(ge=1)]
    """Number of texts examined, in seeded order, until there were enough."""
    texts: Annotated[int, Field(ge=1)]
    twins: Annotated[int, Field(ge=0)]
    """With CDA as many as texts, each directly after its original; otherwise none."""
    left_out: FrozenMapping
    """Numbers of the examined texts that were not used, by reason."""
    rows_seen: Annotated[int, Field(ge=1)]
    """Rows in all steps; texts are repeated if there are fewer."""
    settings: FrozenMapping
    """Settings of the continued pretraining, and the other options."""
    versions: FrozenMapping


def cda(
    base: Base,
    corpus: Corpus,
    folder: str | os.PathLike[str],
    *,
    lexicon: str | os.PathLike[str] = "gender-en",
    groups: tuple[str, str] | None = None,
    config: ContinuedPretrainingConfig | None = None,
    progress: Progress | None = None,
) -> TrainedVariant:
    """Train a model further on texts that name a group and on as many counterfactuals.

    A text whose swap is undecided is left out and counted. So is a pair with a text that is too
    long, or that has nothing the model could be trained to predict.

    Args:
        base: A model without edits, or its name.
        corpus: A data set's name, files, globs or URLs; several in a list.
        folder: A new folder, or one with an interrupted run of the same training.
        lexicon: Lexicon of the exchanged words.
        groups: Two of its groups; by default the first two.
        config: Settings of the training; by default with the dropout of the base.
        progress: Callback for the number of finished steps and the total.
    """
    config, words = config or ContinuedPretrainingConfig(), read_lexicon(lexicon)
    first, second = words.resolve_group_pair(groups)
    lm = _load_base(base)

    def text_and_twin(text: str) -> tuple[str, ...] | str:
        swapped = swap(text, words, groups=(first, second))
        if swapped.counterfactual is None:
            return _QUOTED.sub("a word", swapped.refusals[0].reason)
        if not swapped.changes:
            return f"no word of {first} or {second}"
        # Both or neither: a text without its twin would leave the corpus unbalanced.
        return _usable(lm, (text, swapped.counterfactual), config)

    settings = {
        "lexicon": words.name,
        "lexicon_sha256": words.sha256,
        "groups": (first, second),
    }
    return _train_variant("cda", lm, corpus, folder, text_and_twin, config, settings, progress)


def dropout(
    base: Base,
    corpus: Corpus,
    folder: str | os.PathLike[str],
    *,
    hidden: float = 0.20,
    attention: float = 0.15,
    config: ContinuedPretrainingConfig | None = None,
    progress: Progress | None = None,
) -> TrainedVariant:
    """Train a model further with more dropout; afterwards the model has the dropout of the base.

    Args:
        base: A model without edits, or its name.
        corpus: A data set's name, files, globs or URLs; several in a list.
        folder: A new folder, or one with an interrupted run of the same training.
        hidden: Dropout of hidden states.
        attention: Dropout of attention.
        config: Other settings of the training.
        progress: Callback for the number of finished steps and the total.
    """
    # Dropout rates of the training only; the child's config keeps those of the base.
    dropout_config = replace(config or ContinuedPretrainingConfig(), dropout=(hidden, attention))
    lm = _load_base(base)

    def single_text(text: str) -> tuple[str, ...] | str:
        return _usable(lm, (text,), dropout_config)

    return _train_variant("dropout", lm, corpus, folder, single_text, dropout_config, {}, progress)


def _load_base(base: Base) -> LM:
    return base if isinstance(base, LM) else load(base)


def _usable(
    lm: LM, texts: tuple[str, ...], config: ContinuedPretrainingConfig
) -> tuple[str, ...] | str:
    """The texts, if the model can learn from each; otherwise the reason why it cannot."""
    for text in texts:
        if isinstance(result := make_training_example(lm, text, max_tokens=config.max_tokens), str):
            return result
    return texts


def _train_variant(
    method: Literal["cda", "dropout"],
    lm: LM,
    corpus: Corpus,
    folder: str | os.PathLike[str],
    to_rows: Callable[[str], tuple[str, ...] | str],
    config: ContinuedPretrainingConfig,
    settings: Mapping[str, object],
    progress: Progress | None,
) -> TrainedVariant:
    """Train a model on the rows of the accepted texts of the corpus."""
    corpus_texts, sources = _read_corpus(corpus)
    sample = _sample_rows(corpus_texts, to_rows, config)
    details = {"how": method, "corpus": sources, "settings": dict(settings)}
    path = continue_pretraining(
        lm, sample.rows, folder, config=config, metadata=details, progress=progress
    )
    record = read_pretraining_record(path)
    return TrainedVariant(
        method=method,
        base=str(record["base"]),
        base_hash=lm.identity.checkpoint.hash,
        model_hash=Checkpoint.inspect(path).hash,
        weights=FrozenDict(record["weights"]),
        corpus=FrozenDict(sources),
        sentences=len(corpus_texts),
        sentences_scanned=sample.sentences_scanned,
        texts=sample.texts,
        twins=len(sample.rows) - sample.texts,
        left_out=FrozenDict(dict(sorted(sample.left_out.items()))),
        rows_seen=config.steps * config.batch_size,
        settings=FrozenDict(record["config"] | settings),
        versions=FrozenDict(record["versions"]),
    )


class _SampledRows(NamedTuple):
    rows: list[str]
    """Training rows, those of a text next to each other."""
    texts: int
    sentences_scanned: int
    left_out: Counter[str]


def _sample_rows(
    corpus_texts: Sequence[str],
    to_rows: Callable[[str], tuple[str, ...] | str],
    config: ContinuedPretrainingConfig,
) -> _SampledRows:
    """Texts in seeded order, until there are rows for every step or no more texts."""
    n_rows, rng = config.steps * config.batch_size, np.random.default_rng(config.seed)
    rows: list[str] = []
    left_out: Counter[str] = Counter()
    texts = sentences_scanned = 0
    # Seeded order, not the corpus order: the first texts of a file may share a topic or source.
    for i in rng.permutation(len(corpus_texts)):
        if len(rows) >= n_rows:
            break
        sentences_scanned += 1
        result = to_rows(corpus_texts[i])
        if isinstance(result, str):
            left_out[result] += 1
        else:
            # A twin right behind its text, so that a short training has seen as many of each.
            rows += result
            texts += 1
    if not rows:
        reasons = ", ".join(f"{count} {reason}" for reason, count in left_out.most_common())
        raise LevelheadError(
            f"no text of {sentences_scanned} can be used: {reasons or 'the corpus is empty'}",
            hint="give a corpus in the model's language; for cda, one that names the groups",
        )
    return _SampledRows(rows, texts, sentences_scanned, left_out)


def _read_corpus(corpus: Corpus) -> tuple[list[str], dict[str, str]]:
    """Every sentence once, in the order of the sources; and the hashes of the sources, by name."""
    entries = [corpus] if isinstance(corpus, str | os.PathLike) else corpus
    # A dict drops repeated sentences but keeps their order, on which the seeded sample depends.
    texts: dict[str, None] = {}
    hashes: dict[str, str] = {}
    for source in (os.fspath(entry) for entry in entries):
        if source in datasets():
            row = dataset(source)
            items = (item for part in row.parts for item in row.items(part))
            texts |= dict.fromkeys(text for item in items if (text := getattr(item, "text", "")))
            # Contents identify a corpus, so that the record holds wherever the files lie.
            hashes[source] = content_hash([file.sha256 for file in row.files])
        elif set(source) & set("*?[") or "://" in source or Path(source).is_file():
            corpus_pieces = split_corpus([source])
            texts |= dict.fromkeys(
                text for piece in corpus_pieces for text in iter_sentences(piece)
            )
            name = Path(source).name
            name = f"{name} ({len(hashes) + 1})" if name in hashes else name
            hashes[name] = content_hash([piece.sha256 for piece in corpus_pieces])
        else:
            raise LevelheadError(
                f"{source!r} is neither a data set nor a file",
                hint="name a text file (.txt, .tsv, .jsonl, .parquet) or see `levelhead data list`",
            )
    return list(texts), hashes
