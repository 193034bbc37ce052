"""A datatrove filter: documents with a sentence that `levelhead mine` would keep as a pair.

    from levelhead.interop.datatrove import CounterfactualPairs

    pipeline = [reader, CounterfactualPairs(batch_size=1000), writer]

Ids, matching and swapping are those of `levelhead mine`; a document that stays carries its pairs in
`metadata["levelhead_pairs"]`, as mining writes them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from levelhead.core.errors import LevelheadError
from levelhead.data.corpus.collect import PAIR
from levelhead.data.corpus.matcher import Kernel, literal
from levelhead.data.corpus.matcher_polars import pattern
from levelhead.data.lexicons.lexicon import lexicon as read_lexicon

try:
    from datatrove.pipeline.filters.base_filter import BaseFilter
except ImportError:
    raise LevelheadError("datatrove is not installed", mend="pip install 'datatrove[io]'") from None

if TYPE_CHECKING:
    from collections.abc import Sequence

KEPT = "levelhead_pairs"


class CounterfactualPairs(BaseFilter):  # type: ignore[misc]
    """Keeps documents that give a counterfactual pair."""

    name = "levelhead: counterfactual pairs"

    def __init__(
        self,
        lexicon: str = "gender-en",
        groups: tuple[str, str] | None = None,
        exclusion_writer: Any = None,
        batch_size: int = 1000,
    ) -> None:
        super().__init__(exclusion_writer, batch_size)
        self.lexicon, self.groups = lexicon, groups
        self._kernel: Kernel | None = None

    @property
    def kernel(self) -> Kernel:
        """What is looked for; made where the filter runs."""
        if self._kernel is None:
            words = read_lexicon(self.lexicon)
            self._kernel = Kernel(words, words.two(self.groups))
        return self._kernel

    def filter(self, doc: Any) -> bool | tuple[bool, str]:
        """Whether a document stays."""
        _, rows = literal([doc.text], self.kernel, 1)
        kept = rows.get(PAIR, {}).values()
        pairs = [json.loads(row) for row in kept if isinstance(row, bytes)]
        if not pairs:
            return False, "no pair"
        doc.metadata[KEPT] = pairs
        return True

    def filter_batch(self, batch: Sequence[Any]) -> list[bool | tuple[bool, str]]:
        """The same for many at once: most are seen to hold no word at a glance."""
        try:
            import polars
        except ImportError:
            return [self.filter(doc) for doc in batch]
        texts: Any = polars.Series([doc.text for doc in batch], dtype=polars.String)
        held = texts.str.contains(pattern(self.kernel.known)).to_list()
        return [
            self.filter(doc) if may else (False, "no word")
            for doc, may in zip(batch, held, strict=True)
        ]
