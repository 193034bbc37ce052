"""The price: how well a model still predicts text. No bias is measured, so nothing is parity."""

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
from levelhead.core.frozen import Frozen
from levelhead.data.catalog.datasets import dataset
from levelhead.data.corpus.reader import split
from levelhead.data.records import Sentence
from levelhead.measures.base import Measure, Need
from levelhead.measures.items import Asked, Item
from levelhead.measures.metric import Aspect
from levelhead.measures.reductions import Reduction, drawn
from levelhead.stats.paired import item_counts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from levelhead.measures.responses import Readouts
    from levelhead.models.lm import LM
    from levelhead.stats.bootstrap import Times
    from levelhead.stats.designs import Draw


@dataclass(frozen=True)
class Fluency(Measure):
    """exp(- sum of log p / number of tokens), micro over tokens. Abstract."""

    texts: str | tuple[str, ...] | None = None
    """A file, a line each, or the texts themselves; None: the test split of WikiText-2 (raw)."""
    limit: int | None = 300
    """How many sentences are read, chosen by hash; None: all."""

    called: ClassVar[str]
    equation: ClassVar[str]

    @cached_property
    def items(self) -> tuple[Sentence, ...]:
        """Sentences with the document they stand in, the first `limit` by hash."""
        if self.limit is not None and self.limit < 1:
            raise LevelheadError(f"a limit of {self.limit}", mend="read at least one sentence")
        found = {one.text: one for one in self._all}
        order = sorted(found, key=lambda text: hashlib.sha256(text.encode()).hexdigest())
        return tuple(found[text] for text in order[: self.limit])

    @cached_property
    def _all(self) -> tuple[Sentence, ...]:
        if self.texts is None:
            rows = dataset("wikitext-2").items("test")
            lines = [
                (item.document, item.text)
                for item in rows
                if isinstance(item, Sentence) and not item.text.startswith(" = ")  # a heading
            ]
        else:
            own = self.texts if isinstance(self.texts, tuple) else _lines(self.texts)
            lines = [(str(i), text) for i, text in enumerate(own)]
        return tuple(
            Sentence(f"{document}/{hashlib.sha256(text.encode()).hexdigest()[:16]}", document, text)
            for document, line in lines
            for text in split(line)
        )

    @property
    def data(self) -> Mapping[str, str]:
        """The file, or the texts themselves."""
        if self.texts is None:
            file = dataset("wikitext-2").file("test")
            return {f"wikitext-2/{file.path}": file.sha256}
        return {"texts": content_hash([one.text for one in self._all])}

    @property
    def settings(self) -> dict[str, object]:
        """Every option."""
        own = None if self.texts is None else self.data["texts"]
        return super().settings | {"texts": own}

    def questions(self, lm: LM) -> tuple[Asked, ...]:
        """The likelihood of every sentence."""
        items = tuple(Item(one.id, ((one.text, None),), (one.document,)) for one in self.items)
        whole = len({one.text for one in self._all})
        told = f"{len(items)} of {whole} sentences, chosen by hash"
        if whole < len(self._all):
            told += f"; {len(self._all) - whole} stand there more than once and count once"
        asked = Asked("score", Frozen({}), ("documents",), items, notes=(told,))
        return (asked._replace(population=whole or None),)

    @property
    def formulas(self) -> tuple[Aspect, ...]:
        """The perplexity."""
        return (
            Aspect(
                name=self.called,
                equation=self.equation,
                per_item=_scores,
                over=perplexity,
                unit="perplexity a token",
                low=1.0,
                high=float("inf"),
                direction="larger: the model predicts the text worse",
                comparable=f"{self.called}, one vocabulary, same texts",
                role="utility",
                worse="higher",
                parity=None,
                method="expanded",
            ),
        )


@final
@dataclass(frozen=True)
class PseudoPerplexity(Fluency):
    """PPPL of a masked model: every token masked in turn (Salazar et al. 2020, section 2.2)."""

    metrics: ClassVar[dict[str, str]] = {
        "pppl": "pseudo-perplexity of a masked model",
    }
    needs: ClassVar[tuple[Need, ...]] = ("masked",)
    called: ClassVar[str] = "pppl"
    equation: ClassVar[str] = "Salazar et al. 2020, section 2.2, micro over tokens"


@final
@dataclass(frozen=True)
class Perplexity(Fluency):
    """Perplexity of a causal model, each sentence by itself."""

    metrics: ClassVar[dict[str, str]] = {
        "ppl": "perplexity of a causal model",
    }
    needs: ClassVar[tuple[Need, ...]] = ("causal",)
    called: ClassVar[str] = "ppl"
    equation: ClassVar[str] = "exp of the mean negative log-likelihood a token"


def _perplexity(values: torch.Tensor, draw: Draw) -> torch.Tensor:
    """exp(- sum of log p / sum of tokens) of the sentences drawn.

    `values` is `[n, 2]`: log-probability and tokens. mlm-scoring's "Hello world!" (Salazar et al.
    2020): PLL -12.411 over 3 tokens.

    >>> from levelhead.stats.designs import groups
    >>> values = torch.tensor([[-12.411, 3.0]] * 2, dtype=torch.float64)
    >>> round(float(perplexity(values, groups(2).whole)), 2)
    62.61
    """
    own = drawn(values, draw)
    return torch.exp(-own[:, 0].sum() / own[:, 1].sum())


def _perplexity_many(values: NDArray[np.float64], times: Times) -> NDArray[np.float64]:
    count = item_counts(times)
    return np.asarray(np.exp(-(count @ values[..., 0]) / (count @ values[..., 1])))


perplexity = Reduction(_perplexity, _perplexity_many)


def _scores(readouts: Readouts) -> torch.Tensor:
    return readouts.values[:, 0]


def _lines(path: str) -> tuple[str, ...]:
    try:
        return tuple(line for line in Path(path).read_text("utf-8").splitlines() if line.strip())
    except (OSError, UnicodeDecodeError) as error:
        raise LevelheadError(f"cannot read {path}: {error}", mend="give a UTF-8 file") from None
