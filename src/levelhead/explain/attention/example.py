"""One sentence and its twin, as some heads see them (Yang et al. 2025, Figure 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.core.errors import NotMeasurable
from levelhead.core.results import Provenance, Record
from levelhead.explain.attention.attention_scores import columns, normalised
from levelhead.explain.attention.head_groups import Group, heads_of, pairs_hash, provenance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.explain.attention.pairs import CounterPair
    from levelhead.models.lm import LM
    from levelhead.models.sites import Site


class Strip(Record):
    """One sentence, word by word, as its target sees it."""

    words: tuple[str, ...]
    """Without special tokens and punctuation."""
    attribute: int
    target: int


class HeadStrip(Record):
    """One head's normalised attention from the target to every word. Counted from 0."""

    layer: int
    head: int
    group: Group
    original: tuple[float, ...]
    counter: tuple[float, ...]


class Example(Record):
    """One sentence and its twin (Figure 3)."""

    pair: str
    original: Strip
    counter: Strip
    heads: tuple[HeadStrip, ...]
    provenance: Provenance


def example(
    lm: LM, pair: CounterPair, *, biased: Sequence[Site], regular: Sequence[Site]
) -> Example:
    """One sentence and its twin in some heads, word by word (Figure 3)."""
    heads = heads_of(lm, biased, regular)
    strips, rows = [], []
    for question in (pair.original, pair.counter):
        over = columns(lm, question)
        (row,) = lm.attention_row([question.text], [question.target])
        strips.append(Strip(words=over.words, attribute=over.attribute, target=over.target))
        rows.append(heads.of(normalised(row, over).movedim(-1, 0)))
    if any(row.isnan().any() for row in rows):
        raise NotMeasurable(
            f"a head attends alike to all words of {pair.original.text!r:.60}",
            mend="take a longer sentence",
        )
    return Example(
        pair=pair.id,
        original=strips[0],
        counter=strips[1],
        heads=tuple(
            HeadStrip(
                layer=heads.sites[i].layer,
                head=int(heads.sites[i].head or 0),
                group=name,
                original=tuple(rows[0][:, i].tolist()),
                counter=tuple(rows[1][:, i].tolist()),
            )
            for name, own in heads.columns.items()
            for i in own
        ),
        provenance=provenance(
            lm, data={"pair": pairs_hash([pair])}, settings={"heads": heads.told}
        ),
    )
