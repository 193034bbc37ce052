"""The counter-stereotype experiment (Yang et al. 2025, section 5.2).

"Women are emotional" and "men are emotional" differ in one word. A head that carries the stereotype
should attend less from "emotional" to "men" than to "women"; a head that does not should not care.
The paper tests each group of heads by itself. That the one is significant and the other is not does
not show that they differ: the claim is the difference, sentence by sentence.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
import torch
from pydantic import Field

from levelhead.core.errors import NotMeasurable
from levelhead.core.results import Dropped, Provenance, Record
from levelhead.core.run_context import Inference
from levelhead.data.lexicons.published import any_lexicon
from levelhead.explain.attention.attention_scores import columns, on_attribute
from levelhead.explain.attention.changes import AttentionChange, Read, Weighting, attention_change
from levelhead.explain.attention.head_groups import Heads, heads_of, pairs_hash, provenance
from levelhead.explain.attention.pairs import attribute_first, drawn, placebo_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from levelhead.data.lexicons.lexicon import Lexicon
    from levelhead.explain.attention.pairs import CounterPair, Pairs, Question
    from levelhead.models.lm import LM
    from levelhead.models.sites import Site

WEIGHTINGS: tuple[Weighting, Weighting] = ("attention", "value-weighted")


class CounterStereotype(Record):
    """How attention from targets to attributes changes in twins, in biased and regular heads."""

    attention: AttentionChange
    """As the model computes it: the paper's."""
    weighted: AttentionChange
    """Times the norm of what is moved (Kobayashi et al. 2020)."""
    n: Annotated[int, Field(ge=2)]
    """Sentences used; `n + len(dropped)` were drawn."""
    placebos: Annotated[int, Field(ge=0)]
    """How many of them have a placebo twin."""
    dropped: tuple[Dropped, ...]
    left_out: tuple[tuple[str, int], ...]
    """(reason, how many) of the sentences that were not drawn from."""
    targets: tuple[tuple[str, int], ...]
    """Every target, and how many sentences it has."""
    groups: tuple[tuple[str, int], ...]
    """Every group that attributes mark in the originals, and how many sentences it has."""
    notes: tuple[str, ...] = ()
    provenance: Provenance

    def __str__(self) -> str:
        return f"{self.attention.difference}, {len(self.targets)} targets"


def counterstereotype(
    lm: LM,
    pairs: Pairs,
    *,
    biased: Sequence[Site],
    regular: Sequence[Site],
    n: int = 500,
    off: Sequence[str] = ("colours", "sports"),
    placebo: Lexicon | str | None = "gender-en",
    inference: Inference = Inference(),
    progress: Callable[[int, int], None] | None = None,
) -> CounterStereotype:
    """Run the experiment on a model.

    A causal model is asked only where the attribute comes first.

    Args:
        lm: the model, edited or not.
        pairs: sentences and their twins; see `levelhead.explain.attention.pairs`.
        biased: heads with a positive score, `Site("head_out", layer, head)`.
        regular: heads with a negative score.
        n: how many pairs are drawn, evenly over targets; the paper has 500.
        off: kinds of targets that are left out, of `levelhead.explain.attention.pairs.OFF`.
        placebo: whose words of one group may stand for each other, as a control; None: no control.
        inference: seed, resamples and level. The seed draws the pairs too.
        progress: is called with the number of texts read, and how many there are.
    """
    heads = heads_of(lm, biased, regular)
    words = None if placebo is None else any_lexicon(placebo)
    chosen = drawn(
        attribute_first(pairs) if lm.is_causal else pairs, n, seed=inference.seed, off=tuple(off)
    )
    found = _read(lm, chosen, heads, words, progress)
    changes = {
        name: attention_change(
            name, found.reads[i], heads.columns, heads.sites, inference=inference
        )
        for i, name in enumerate(WEIGHTINGS)
    }
    return CounterStereotype(
        attention=changes["attention"],
        weighted=changes["value-weighted"],
        n=len(found.used),
        placebos=len(found.reads[0].placed),
        dropped=tuple(sorted(found.dropped)),
        left_out=chosen.left_out,
        targets=tuple(sorted(Counter(pair.word for pair in found.used).items())),
        groups=tuple(sorted(Counter(pair.group for pair in found.used).items())),
        notes=(
            *_notes(chosen, n, words, found),
            *(note for one in changes.values() for note in one.notes),
        ),
        provenance=provenance(
            lm,
            data=dict(chosen.data) | ({f"lexicon {words.name}": words.sha256} if words else {}),
            settings={
                "heads": heads.told,
                "normalised": "row min-max",
                "n": n,
                "off": list(off),
                "pairs": pairs_hash(chosen.pairs),
            },
            inference=inference,
        ),
    )


class _Found(NamedTuple):
    used: tuple[CounterPair, ...]
    dropped: list[Dropped]
    reads: tuple[Read, Read]
    """By weighting."""


def _read(
    lm: LM,
    chosen: Pairs,
    heads: Heads,
    words: Lexicon | None,
    progress: Callable[[int, int], None] | None,
) -> _Found:
    """Attention in originals, twins and placebos, of all heads that are compared."""
    pairs = chosen.pairs
    controls = [None if words is None else placebo_of(pair, words) for pair in pairs]
    asked: list[Question] = [pair.original for pair in pairs]
    asked += [pair.counter for pair in pairs]
    asked += [one for one in controls if one is not None]
    values = on_attribute(lm, asked, progress=progress)
    first, second = values[: len(pairs)], values[len(pairs) : 2 * len(pairs)]
    third = iter(values[2 * len(pairs) :])
    placed = [None if one is None else next(third) for one in controls]
    used: list[CounterPair] = []
    dropped, rows, control = [], [], []
    for pair, before, after, swapped in zip(pairs, first, second, placed, strict=True):
        if isinstance(before, str) or isinstance(after, str):
            dropped.append(Dropped(pair.id, before if isinstance(before, str) else str(after)))
            continue
        if isinstance(swapped, torch.Tensor):
            control.append((len(used), heads.of(swapped)))
        used.append(pair)
        rows.append(torch.stack([heads.of(before), heads.of(after)]))
    if not used:
        raise NotMeasurable(
            f"none of {len(pairs)} pairs can be read, such as: {dropped[0].reason}",
            mend="give pairs whose words are in the model's vocabulary",
        )
    whole = torch.stack(rows).numpy()  # [sentences, original or counter, weighting, heads]
    swaps = torch.stack([row for _, row in control]).numpy() if control else None
    where = np.array([i for i, _ in control], dtype=np.intp)
    targets = tuple(pair.word for pair in used)
    reads = [
        Read(
            whole[:, 0, i],
            whole[:, 1, i],
            np.empty((0, whole.shape[-1])) if swaps is None else swaps[:, i],
            where,
            _same_length(lm, used),
            targets,
        )
        for i in range(2)
    ]
    return _Found(tuple(used), dropped, (reads[0], reads[1]))


def _same_length(lm: LM, used: Sequence[CounterPair]) -> NDArray[np.bool_]:
    """Whether attribute and counterpart have as many tokens: a column is the sum of its tokens."""
    sizes = [
        [len(own.tokens[own.attribute]) for own in (columns(lm, one) for one in pair[-2:])]
        for pair in used
    ]
    return np.array([first == second for first, second in sizes])


def _notes(chosen: Pairs, n: int, words: Lexicon | None, found: _Found) -> tuple[str, ...]:
    notes = []
    if len(chosen) < n:
        notes.append(f"{n} pairs were wanted, {len(chosen)} are there")
    placed = len(found.reads[0].placed)
    if words is None:
        notes.append("no placebo: a change may be one of word frequency")
    else:
        notes.append(
            f"placebo: {placed} of {len(found.used)} sentences have another word of the same group "
            f"in {words.name} (nouns only); net is of these"
        )
    return tuple(notes)
