"""Perplexity: how well a model predicts text. A utility, not a bias, so it has no parity."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, final

import numpy as np
import torch

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError
from levelhead.core.frozen import FrozenDict
from levelhead.data.catalog.datasets import dataset
from levelhead.data.corpus.reader import split_sentences
from levelhead.data.records import Sentence
from levelhead.measures.base import Measure, RequiredHead
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.measures.metric import Metric
from levelhead.measures.reductions import Reduction, take_resample
from levelhead.stats.paired import pooled_item_counts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM
    from levelhead.stats.bootstrap import ItemCounts
    from levelhead.stats.designs import Resample


@dataclass(frozen=True)
class PerplexityBase(Measure):
    """Abstract base class: exp(- sum of log p / number of tokens), micro over tokens."""

    texts: str | tuple[str, ...] | None = None
    """Path of a file with one text a line, or texts; None: the test split of WikiText-2 (raw)."""
    limit: int | None = 300
    """Maximum number of sentences, selected by hash; None: all."""

    metric_name: ClassVar[str]
    equation: ClassVar[str]

    @cached_property
    def items(self) -> tuple[Sentence, ...]:
        """Sentences with their document, the first `limit` by hash."""
        if self.limit is not None and self.limit < 1:
            raise LevelheadError(f"a limit of {self.limit}", hint="read at least one sentence")
        sentence_of_text = {sentence.text: sentence for sentence in self._all_sentences}
        # By hash, so that a larger limit adds sentences and keeps those of a smaller one.
        order = sorted(sentence_of_text, key=lambda text: hashlib.sha256(text.encode()).hexdigest())
        return tuple(sentence_of_text[text] for text in order[: self.limit])

    @cached_property
    def _all_sentences(self) -> tuple[Sentence, ...]:
        if self.texts is None:
            # The test split, as in Yang et al. 2025 (4.09 for BERT); the script of Meade et al.
            # reads the validation split, so that its 4.469 is of another text.
            rows = dataset("wikitext-2").items("test")
            lines = [
                (item.document, item.text)
                for item in rows
                # WikiText marks headings by " = "; they are no sentences.
                if isinstance(item, Sentence) and not item.text.startswith(" = ")
            ]
        else:
            user_texts = self.texts if isinstance(self.texts, tuple) else _read_lines(self.texts)
            lines = [(str(i), text) for i, text in enumerate(user_texts)]
        return tuple(
            Sentence(f"{document}/{hashlib.sha256(text.encode()).hexdigest()[:16]}", document, text)
            for document, line in lines
            for text in split_sentences(line)
        )

    @property
    def data(self) -> Mapping[str, str]:
        """Hash of the file, or of the user's texts."""
        if self.texts is None:
            return dataset("wikitext-2").hashes("test")
        return {"texts": content_hash([sentence.text for sentence in self._all_sentences])}

    @property
    def settings(self) -> dict[str, object]:
        """All options; texts are given by their hash."""
        # A hash instead of a path: the same texts in another folder stay comparable.
        texts_hash = None if self.texts is None else self.data["texts"]
        return super().settings | {"texts": texts_hash}

    def all_queries(self, lm: LM) -> tuple[QuerySet, ...]:
        """One query for the likelihood of each sentence."""
        items = tuple(
            MeasureItem(sentence.id, ((sentence.text, None),), (sentence.document,))
            for sentence in self.items
        )
        n_distinct = len({sentence.text for sentence in self._all_sentences})
        note = f"{len(items)} of {n_distinct} sentences, chosen by hash"
        if n_distinct < len(self._all_sentences):
            n_repeated = len(self._all_sentences) - n_distinct
            note += f"; {n_repeated} stand there more than once and count once"
        query_set = QuerySet("score", FrozenDict({}), ("documents",), items, notes=(note,))
        # Counted before the limit, so that reports show which part of the data was read.
        return (query_set._replace(population=n_distinct or None),)

    @property
    def formulas(self) -> tuple[Metric, ...]:
        """The perplexity."""
        return (
            Metric(
                name=self.metric_name,
                equation=self.equation,
                per_item_values=_scores,
                aggregate=perplexity,
                unit="perplexity a token",
                low=1.0,
                high=float("inf"),
                direction="larger: the model predicts the text worse",
                comparability_key=f"{self.metric_name}, one vocabulary, same texts",
                role="utility",
                worse="higher",
                parity=None,
                # exp of a mean is skewed over few documents, where expanded percentiles cover
                # better.
                method="expanded",
            ),
        )


@final
@dataclass(frozen=True)
class PseudoPerplexity(PerplexityBase):
    """PPPL of a masked model: every token is masked in turn (Salazar et al. 2020, section 2.2)."""

    metrics: ClassVar[dict[str, str]] = {
        "pppl": "pseudo-perplexity of a masked model",
    }
    needs: ClassVar[tuple[RequiredHead, ...]] = ("masked",)
    metric_name: ClassVar[str] = "pppl"
    equation: ClassVar[str] = "Salazar et al. 2020, section 2.2, micro over tokens"


@final
@dataclass(frozen=True)
class Perplexity(PerplexityBase):
    """Perplexity of a causal model, for each sentence without its context."""

    metrics: ClassVar[dict[str, str]] = {
        "ppl": "perplexity of a causal model",
    }
    needs: ClassVar[tuple[RequiredHead, ...]] = ("causal",)
    metric_name: ClassVar[str] = "ppl"
    equation: ClassVar[str] = "exp of the mean negative log-likelihood a token"


def _perplexity(values: torch.Tensor, resample: Resample) -> torch.Tensor:
    """exp(- sum of log p / sum of tokens) of the resampled sentences.

    `values` is `[n, 2]`: log-probability and tokens. mlm-scoring's "Hello world!" (Salazar et al.
    2020): PLL -12.411 over 3 tokens.

    >>> from levelhead.stats.designs import grouped_design
    >>> values = torch.tensor([[-12.411, 3.0]] * 2, dtype=torch.float64)
    >>> round(float(perplexity(values, grouped_design(2).full_sample)), 2)
    62.61
    """
    resampled = take_resample(values, resample)
    # Sums first: a mean of perplexities by sentence would be dominated by a few bad ones.
    return torch.exp(-resampled[:, 0].sum() / resampled[:, 1].sum())


def _perplexity_many(values: NDArray[np.float64], item_counts: ItemCounts) -> NDArray[np.float64]:
    count = pooled_item_counts(item_counts)
    return np.asarray(np.exp(-(count @ values[..., 0]) / (count @ values[..., 1])))


perplexity = Reduction(_perplexity, _perplexity_many)


def _scores(responses: Responses) -> torch.Tensor:
    return responses.values[:, 0]


def _read_lines(path: str) -> tuple[str, ...]:
    try:
        return tuple(line for line in Path(path).read_text("utf-8").splitlines() if line.strip())
    except (OSError, UnicodeDecodeError) as error:
        raise LevelheadError(f"cannot read {path}: {error}", hint="give a UTF-8 file") from None
