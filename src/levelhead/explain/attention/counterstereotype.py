"""The counter-stereotype experiment (Yang et al. 2025, section 5.2).

"Women are emotional" and "men are emotional" differ in one word. A head that carries the stereotype
should attend less from "emotional" to "men" than to "women"; in other heads attention should stay
the same. The paper tests each group of heads separately. That one group is significant and the
other is not does not show that they differ: the claim is the difference, paired by sentence.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
import torch
from pydantic import Field

from levelhead.core.errors import NotMeasurableError
from levelhead.core.results import DroppedItem, Provenance, Record
from levelhead.core.run_context import Inference
from levelhead.data.lexicons.published import resolve_lexicon
from levelhead.explain.attention.attention_scores import find_word_columns, read_attribute_attention
from levelhead.explain.attention.changes import (
    AttentionChange,
    PairedAttention,
    Weighting,
    compute_attention_change,
)
from levelhead.explain.attention.head_groups import (
    HeadGroups,
    hash_counter_pairs,
    make_provenance,
    validate_head_groups,
)
from levelhead.explain.attention.pairs import attribute_first, make_placebo_sentence, sample_pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from levelhead.data.lexicons.lexicon import Lexicon
    from levelhead.explain.attention.pairs import AnnotatedSentence, CounterPair, CounterPairs
    from levelhead.models.lm import LM

WEIGHTINGS: tuple[Weighting, Weighting] = ("attention", "value-weighted")


class CounterStereotypeResult(Record):
    """Changes of the attention of targets to attributes in counterfactuals, by group of heads."""

    attention: AttentionChange
    """Attention as the model computes it, as in the paper."""
    weighted: AttentionChange
    """Attention times the norm of the transformed value vector (Kobayashi et al. 2020)."""
    n: Annotated[int, Field(ge=2)]
    """Number of sentences used; `n + len(dropped)` were drawn."""
    n_placebos: Annotated[int, Field(ge=0)]
    """Number of sentences with a placebo counterfactual."""
    dropped: tuple[DroppedItem, ...]
    exclusions: tuple[tuple[str, int], ...]
    """(reason, number) of the sentences that were excluded before drawing."""
    targets: tuple[tuple[str, int], ...]
    """Every target, with its number of sentences."""
    groups: tuple[tuple[str, int], ...]
    """Every group that attributes mark in the originals, with its number of sentences."""
    notes: tuple[str, ...] = ()
    provenance: Provenance

    def __str__(self) -> str:
        return f"{self.attention.difference}, {len(self.targets)} targets"


def counterstereotype(
    lm: LM,
    pairs: CounterPairs,
    heads: HeadGroups,
    *,
    n_pairs: int = 500,
    control_categories: Sequence[str] = ("colours", "sports"),
    placebo: Lexicon | str | None = "gender-en",
    inference: Inference = Inference(),
    progress: Callable[[int, int], None] | None = None,
) -> CounterStereotypeResult:
    """Run the experiment on a model.

    A causal model is queried only on sentences in which the attribute comes first.

    Args:
        lm: The model, edited or not.
        pairs: Sentences and their counterfactuals; see `levelhead.explain.attention.pairs`.
        heads: Heads with a positive score, and heads with a negative score.
        n_pairs: Number of pairs to draw, evenly over targets; the paper has 500.
        control_categories: Kinds of targets to leave out, of
            `levelhead.explain.attention.pairs.CONTROL_CATEGORIES`.
        placebo: Lexicon whose words of one group may replace each other, as a control; None: no
            control.
        inference: Seed, resamples and level. The seed also samples the pairs.
        progress: Callback for the number of texts read and the total number.
    """
    validate_head_groups(lm, heads)
    words = None if placebo is None else resolve_lexicon(placebo)
    # A causal model's target sees earlier words only. Excluded before sampling, so that n_pairs
    # are left to draw.
    sampled_pairs = sample_pairs(
        attribute_first(pairs) if lm.is_causal else pairs,
        n_pairs,
        seed=inference.seed,
        control_categories=tuple(control_categories),
    )
    readings = _read_pairs(lm, sampled_pairs, heads, words, progress)
    changes = {
        name: compute_attention_change(
            name, readings.attention[i], heads.columns, heads.sites, inference=inference
        )
        for i, name in enumerate(WEIGHTINGS)
    }
    return CounterStereotypeResult(
        attention=changes["attention"],
        weighted=changes["value-weighted"],
        n=len(readings.pairs),
        n_placebos=len(readings.attention[0].placebo_indices),
        dropped=tuple(sorted(readings.dropped)),
        exclusions=sampled_pairs.exclusions,
        targets=tuple(sorted(Counter(pair.target_word for pair in readings.pairs).items())),
        groups=tuple(sorted(Counter(pair.group for pair in readings.pairs).items())),
        notes=(
            *_notes(sampled_pairs, n_pairs, words, readings),
            *(note for change in changes.values() for note in change.notes),
        ),
        provenance=make_provenance(
            lm,
            data=dict(sampled_pairs.data)
            | ({f"lexicon {words.name}": words.sha256} if words else {}),
            settings={
                "heads": heads.as_json,
                "normalised": "row min-max",
                "n": n_pairs,
                "control_categories": list(control_categories),
                "pairs": hash_counter_pairs(sampled_pairs.pairs),
            },
            inference=inference,
        ),
    )


class _PairReadings(NamedTuple):
    pairs: tuple[CounterPair, ...]
    dropped: list[DroppedItem]
    attention: tuple[PairedAttention, PairedAttention]
    """Results by weighting."""


def _read_pairs(
    lm: LM,
    sampled_pairs: CounterPairs,
    heads: HeadGroups,
    words: Lexicon | None,
    progress: Callable[[int, int], None] | None,
) -> _PairReadings:
    """Attention of all compared heads in originals, counterfactuals and placebos."""
    pairs = sampled_pairs.pairs
    controls = [None if words is None else make_placebo_sentence(pair, words) for pair in pairs]
    # Originals, counterfactuals and placebos in one reading, taken apart by position below.
    sentences: list[AnnotatedSentence] = [pair.original for pair in pairs]
    sentences += [pair.counter for pair in pairs]
    sentences += [control for control in controls if control is not None]
    values = read_attribute_attention(lm, sentences, progress=progress)
    first, second = values[: len(pairs)], values[len(pairs) : 2 * len(pairs)]
    placebo_iterator = iter(values[2 * len(pairs) :])
    placebo_values = [None if control is None else next(placebo_iterator) for control in controls]
    readable_pairs: list[CounterPair] = []
    dropped, rows, placebo_rows = [], [], []
    for pair, before, after, placebo_value in zip(
        pairs, first, second, placebo_values, strict=True
    ):
        if isinstance(before, str) or isinstance(after, str):
            dropped.append(DroppedItem(pair.id, before if isinstance(before, str) else str(after)))
            continue
        # A placebo that cannot be read drops the control of this pair, not the pair.
        if isinstance(placebo_value, torch.Tensor):
            placebo_rows.append((len(readable_pairs), heads.select(placebo_value)))
        readable_pairs.append(pair)
        rows.append(torch.stack([heads.select(before), heads.select(after)]))
    if not readable_pairs:
        raise NotMeasurableError(
            f"none of {len(pairs)} pairs can be read, such as: {dropped[0].reason}",
            hint="give pairs whose words are in the model's vocabulary",
        )
    attention = torch.stack(rows).numpy()  # [sentences, original or counter, weighting, heads]
    placebo_attention = (
        torch.stack([row for _, row in placebo_rows]).numpy() if placebo_rows else None
    )
    placebo_indices = np.array([i for i, _ in placebo_rows], dtype=np.intp)
    targets = tuple(pair.target_word for pair in readable_pairs)
    reads = [
        PairedAttention(
            attention[:, 0, i],
            attention[:, 1, i],
            np.empty((0, attention.shape[-1]))
            if placebo_attention is None
            else placebo_attention[:, i],
            placebo_indices,
            _same_length(lm, readable_pairs),
            targets,
        )
        for i in range(2)
    ]
    return _PairReadings(tuple(readable_pairs), dropped, (reads[0], reads[1]))


def _same_length(lm: LM, pairs: Sequence[CounterPair]) -> NDArray[np.bool_]:
    """Whether attribute and counterpart have as many tokens: a column is the sum of its tokens."""
    sizes = [
        [
            len(word_columns.tokens[word_columns.attribute])
            for word_columns in (find_word_columns(lm, sentence) for sentence in pair[-2:])
        ]
        for pair in pairs
    ]
    return np.array([first == second for first, second in sizes])


def _notes(
    sampled_pairs: CounterPairs, n_pairs: int, words: Lexicon | None, readings: _PairReadings
) -> tuple[str, ...]:
    notes = []
    if len(sampled_pairs) < n_pairs:
        notes.append(f"{n_pairs} pairs were wanted, {len(sampled_pairs)} are there")
    n_placebos = len(readings.attention[0].placebo_indices)
    if words is None:
        notes.append("no placebo: a change may be one of word frequency")
    else:
        notes.append(
            f"placebo: {n_placebos} of {len(readings.pairs)} sentences have another word of the "
            f"same group in {words.name} (nouns only); net is of these"
        )
    return tuple(notes)
