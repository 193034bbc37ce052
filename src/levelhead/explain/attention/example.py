"""Attention of some heads in one sentence and its counterfactual (Yang et al. 2025, Figure 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.core.errors import NotMeasurableError
from levelhead.core.results import Provenance, Record
from levelhead.explain.attention.attention_scores import find_word_columns, normalise_attention
from levelhead.explain.attention.head_groups import (
    Group,
    HeadGroups,
    hash_counter_pairs,
    make_provenance,
    validate_head_groups,
)

if TYPE_CHECKING:
    from levelhead.explain.attention.pairs import CounterPair
    from levelhead.models.lm import LM


class AttentionStrip(Record):
    """Attention of the target of one sentence, word by word."""

    words: tuple[str, ...]
    """Words of the sentence, without special tokens and punctuation."""
    attribute: int
    target: int


class HeadAttentionStrip(Record):
    """Normalised attention of one head from the target to every word. Counted from 0."""

    layer: int
    head: int
    group: Group
    original: tuple[float, ...]
    counter: tuple[float, ...]


class AttentionExample(Record):
    """One sentence and its counterfactual (Figure 3)."""

    pair: str
    original: AttentionStrip
    counter: AttentionStrip
    heads: tuple[HeadAttentionStrip, ...]
    provenance: Provenance


def make_attention_example(lm: LM, pair: CounterPair, heads: HeadGroups) -> AttentionExample:
    """Attention of some heads in one sentence and its counterfactual, word by word (Figure 3)."""
    validate_head_groups(lm, heads)
    strips, rows = [], []
    for sentence in (pair.original, pair.counter):
        word_columns = find_word_columns(lm, sentence)
        (row,) = lm.attention_row([sentence.text], [sentence.target])
        strips.append(
            AttentionStrip(
                words=word_columns.words,
                attribute=word_columns.attribute,
                target=word_columns.target,
            )
        )
        # `[words, layers, heads]`, because `select` indexes the last two dimensions.
        rows.append(heads.select(normalise_attention(row, word_columns).movedim(-1, 0)))
    if any(row.isnan().any() for row in rows):
        raise NotMeasurableError(
            f"a head attends alike to all words of {pair.original.text!r:.60}",
            hint="take a longer sentence",
        )
    return AttentionExample(
        pair=pair.id,
        original=strips[0],
        counter=strips[1],
        heads=tuple(
            HeadAttentionStrip(
                layer=heads.sites[i].layer,
                head=int(heads.sites[i].head or 0),
                group=name,
                original=tuple(rows[0][:, i].tolist()),
                counter=tuple(rows[1][:, i].tolist()),
            )
            for name, group_columns in heads.columns.items()
            for i in group_columns
        ),
        provenance=make_provenance(
            lm, data={"pair": hash_counter_pairs([pair])}, settings={"heads": heads.as_json}
        ),
    )
