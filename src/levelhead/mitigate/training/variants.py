"""What all trained variants have in common: their corpus, their rows, and their record."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
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
from levelhead.models.lm import LM
from levelhead.models.loading.checkpoints import Checkpoint
from levelhead.models.loading.load import load
from levelhead.models.training.continued_pretraining import read_pretraining_record
from levelhead.models.training.training_examples import make_training_example

if TYPE_CHECKING:
    from collections.abc import Mapping

    from levelhead.models.training.configs import ContinuedPretrainingConfig

Base = LM | str | os.PathLike[str]
Corpus = str | os.PathLike[str] | Sequence[str]
Progress = Callable[[int, int], None]
ToRows = Callable[[str], tuple[str, ...] | str]
"""Converts a text to the texts to train on, or returns the reason why it cannot be used."""
MethodName = Literal["cda", "dropout", "context-debias", "auto-debias", "dpo", "npo"]


class TrainedVariant(Record):
    """A trained model: its texts, the texts that were left out with reasons, and its hashes."""

    method: MethodName
    placebo: bool = False
    """Whether the method was trained without its information about groups."""
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
    """Different texts; for Context-Debias contexts of words, for Auto-Debias prompts."""
    twins: Annotated[int, Field(ge=0)]
    """With CDA, DPO and NPO as many as texts; otherwise none."""
    left_out: FrozenMapping
    """Numbers of the examined texts that were not used, by reason."""
    rows_seen: Annotated[int, Field(ge=1)]
    """Rows in all steps; texts are repeated if there are fewer."""
    settings: FrozenMapping
    """Settings of the training, and those of the method."""
    versions: FrozenMapping


class TrainingData(NamedTuple):
    """What a method made of its corpus."""

    corpus: Mapping[str, str]
    """SHA-256 of every source, by name."""
    sentences: int
    sentences_scanned: int
    texts: int
    twins: int
    left_out: Mapping[str, int]


def describe_variant(
    method: MethodName,
    lm: LM,
    path: Path,
    data: TrainingData,
    config: ContinuedPretrainingConfig,
    settings: Mapping[str, object],
    *,
    placebo: bool,
) -> TrainedVariant:
    """Describe a finished training by its record and its data."""
    record = read_pretraining_record(path)
    return TrainedVariant(
        method=method,
        placebo=placebo,
        base=str(record["base"]),
        base_hash=lm.identity.checkpoint.hash,
        model_hash=Checkpoint.inspect(path).hash,
        weights=FrozenDict(record["weights"]),
        corpus=FrozenDict(data.corpus),
        sentences=data.sentences,
        sentences_scanned=data.sentences_scanned,
        texts=data.texts,
        twins=data.twins,
        left_out=FrozenDict(dict(sorted(data.left_out.items()))),
        rows_seen=config.steps * config.batch_size,
        settings=FrozenDict(record["config"] | settings),
        versions=FrozenDict(record["versions"]),
    )


def make_metadata(
    method: MethodName,
    sources: Mapping[str, str],
    settings: Mapping[str, object],
    *,
    placebo: bool,
) -> dict[str, object]:
    """Make the entries of a method for the record of its training."""
    metadata: dict[str, object] = {
        "how": method,
        "corpus": dict(sources),
        "settings": dict(settings),
    }
    # Absent otherwise, so that trainings from before there were placebos are still complete.
    return metadata | ({"placebo": True} if placebo else {})


def load_base(base: Base) -> LM:
    """Load a model by name; a loaded one is returned as it is."""
    return base if isinstance(base, LM) else load(base)


def select_usable(
    lm: LM, texts: tuple[str, ...], config: ContinuedPretrainingConfig
) -> tuple[str, ...] | str:
    """Return the texts, if the model can learn from each; otherwise the reason why it cannot."""
    for text in texts:
        if isinstance(result := make_training_example(lm, text, max_tokens=config.max_tokens), str):
            return result
    return texts


class SampledRows(NamedTuple):
    """Texts to train on, and the corpus texts that they come from."""

    rows: list[str]
    """Training rows, those of a text next to each other."""
    texts: int
    sentences_scanned: int
    left_out: Counter[str]


def sample_rows(
    corpus_texts: Sequence[str],
    to_rows: ToRows,
    n_rows: int,
    seed: int,
) -> SampledRows:
    """Texts in seeded order, until there are rows for every step or no more texts."""
    rng = np.random.default_rng(seed)
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
            hint="give a corpus in the model's language; for all but dropout, one that names the "
            "groups, and for dpo and npo stereotyped words beside them",
        )
    return SampledRows(rows, texts, sentences_scanned, left_out)


def read_corpus(corpus: Corpus) -> tuple[list[str], dict[str, str]]:
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
