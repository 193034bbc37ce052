"""The core suite of an audit: fixed measures of fixed sizes, in a fixed order, by kind of model.

An audit's verdict rests on these alone. Neither the budget nor the speed of the machine changes
which of them are run, or on how many items: the same model and data give the same verdict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from levelhead.measures.registry import is_utility

if TYPE_CHECKING:
    from levelhead.models.lm import LM

Role = Literal["bias", "price"]
Kind = Literal[
    "masked with next-sentence head",
    "masked",
    "causal",
    "next-sentence",
    "classifier",
    "embeddings",
]
BERT: Kind = "masked with next-sentence head"
MASKED: Kind = "masked"
CAUSAL: Kind = "causal"
PAIRS: Kind = "next-sentence"
CLASSIFIER: Kind = "classifier"
EMBEDDINGS: Kind = "embeddings"


def role_of(text: str) -> Role:
    """What a measure, named as on the command line, is there for in an audit."""
    return "price" if is_utility(text) else "bias"


class CoreMeasure(NamedTuple):
    """A measure of the core suite."""

    name: str
    text: str
    """As the command line names it; the size is part of it."""
    kinds: tuple[Kind, ...]
    """Models that it belongs to the suite of."""

    @property
    def role(self) -> Role:
        """As its headline says."""
        return role_of(self.text)


CORE: tuple[CoreMeasure, ...] = (
    CoreMeasure("strength", "strength:share=0.5", (BERT, PAIRS)),
    CoreMeasure("contrast", "contrast:share=0.5", (CAUSAL,)),
    CoreMeasure("cloze", "cloze:backgrounds=1", (BERT, MASKED, CAUSAL)),
    # Asks what cloze asks: found stored, it costs nothing more.
    CoreMeasure("group-preference", "group_preference:backgrounds=1", (BERT, MASKED, CAUSAL)),
    CoreMeasure("stereotype", "stereoset:share=0.5", (BERT, MASKED, CAUSAL)),
    CoreMeasure("crows", "crows:share=0.125", (BERT, MASKED, CAUSAL)),
    CoreMeasure("seat-weat6", "seat:weat=weat6", (BERT, MASKED, PAIRS, EMBEDDINGS)),
    CoreMeasure("nli-fairness", "nli:share=0.5", (CLASSIFIER,)),
    CoreMeasure("nli-coal", "nli_coal:share=0.5", (CLASSIFIER,)),
    CoreMeasure(
        "agreement",
        # Not GAP: its passages alone take a quarter of a minute to be found.
        "pronoun_agreement:sources=winogender+winobias,share=0.5",
        (BERT, MASKED, CAUSAL),
    ),
    CoreMeasure("pppl", "pppl:limit=20", (BERT, MASKED)),
    CoreMeasure("ppl", "ppl:limit=50", (CAUSAL,)),
)
"""One row a measure, in the order in which they are run.

Only measures whose data can be downloaded (a suite that needs a manual download would be
inconclusive almost everywhere), and only for kinds of models on which calibration has not refuted
them: no SEAT for causal models, no Distance. Sizes: about two minutes of one slow core for a model
of 11 million parameters, and at least 30 units (occupations, targets, pairs) a measure where the
data have them, for resampling few units gives intervals that are too narrow."""


def kind_of(lm: LM) -> Kind:
    """The kind of a model, by the heads that it holds."""
    heads = lm.heads
    if {"masked", "next_sentence"} <= heads:
        return BERT
    if "next_sentence" in heads:
        return PAIRS
    if "masked" in heads:
        return MASKED
    if "causal" in heads:
        return CAUSAL
    return CLASSIFIER if "classifier" in heads else EMBEDDINGS


def core_suite(kind: Kind) -> tuple[CoreMeasure, ...]:
    """The suite of a kind of model."""
    return tuple(row for row in CORE if kind in row.kinds)
