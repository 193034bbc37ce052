"""A datatrove filter for documents with a sentence that `levelhead data mine` stores as a pair.

    from levelhead.interop.datatrove import CounterfactualPairs

    pipeline = [reader, CounterfactualPairs(batch_size=1000), writer]

Ids, matching and swapping are the same as in `levelhead data mine`; a document that passes has its
pairs in `metadata["levelhead_pairs"]`, in the format of mining.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from levelhead.core.errors import LevelheadError
from levelhead.data.corpus.collect import PAIR_KEY
from levelhead.data.corpus.matcher import SentenceMatcher, match_texts
from levelhead.data.corpus.matcher_polars import build_text_pattern
from levelhead.data.lexicons.lexicon import lexicon as read_lexicon

try:
    from datatrove.pipeline.filters.base_filter import BaseFilter
except ImportError:
    raise LevelheadError("datatrove is not installed", hint="pip install 'datatrove[io]'") from None

if TYPE_CHECKING:
    from collections.abc import Sequence

PAIRS_KEY = "levelhead_pairs"


class CounterfactualPairs(BaseFilter):  # type: ignore[misc]
    """Filter that passes documents with a counterfactual pair."""

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
        # datatrove pickles filters; a matcher is created again in every worker.
        self._matcher: SentenceMatcher | None = None

    @property
    def matcher(self) -> SentenceMatcher:
        """Matcher of the lexicon, created in the process where the filter runs."""
        if self._matcher is None:
            lexicon = read_lexicon(self.lexicon)
            self._matcher = SentenceMatcher(lexicon, lexicon.resolve_group_pair(self.groups))
        return self._matcher

    def filter(self, doc: Any) -> bool | tuple[bool, str]:
        """Return whether a document passes; if not, also the reason."""
        # A quota of 1 limits the contexts, which the filter ignores; pairs have no quota.
        _, rows = match_texts([doc.text], self.matcher, 1)
        encoded_pairs = rows.get(PAIR_KEY, {}).values()
        pairs = [json.loads(row) for row in encoded_pairs if isinstance(row, bytes)]
        if not pairs:
            return False, "no pair"
        doc.metadata[PAIRS_KEY] = pairs
        return True

    def filter_batch(self, batch: Sequence[Any]) -> list[bool | tuple[bool, str]]:
        """Filter many documents; one regular expression rejects most of them without matching."""
        # polars belongs to the `mine` extra; without it the result is the same but slower.
        try:
            import polars
        except ImportError:
            return [self.filter(doc) for doc in batch]
        texts: Any = polars.Series([doc.text for doc in batch], dtype=polars.String)
        has_word = texts.str.contains(build_text_pattern(self.matcher.vocabulary)).to_list()
        return [
            self.filter(doc) if may_match else (False, "no word")
            for doc, may_match in zip(batch, has_word, strict=True)
        ]
