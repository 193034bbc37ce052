"""The core suite of an audit: fixed measures of fixed sizes, in a fixed order, by kind of model.

The verdict of an audit is based only on these measures. Neither the time budget nor the speed of
the machine changes them or their number of items: the same model and data give the same verdict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from levelhead.measures.registry import is_utility

if TYPE_CHECKING:
    from levelhead.models.lm import LM

Role = Literal["bias", "utility"]
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
    """The role of a measure, given as on the command line, in an audit."""
    return "utility" if is_utility(text) else "bias"


class CoreMeasure(NamedTuple):
    """A measure of the core suite."""

    name: str
    text: str
    """The measure as on the command line, with its size."""
    kinds: tuple[Kind, ...]
    """Kinds of models whose suite includes the measure."""

    @property
    def role(self) -> Role:
        """The role of the measure's primary metric."""
        return role_of(self.text)


CORE: tuple[CoreMeasure, ...] = (
    CoreMeasure("strength", "strength:subsample_fraction=0.5", (BERT, PAIRS)),
    CoreMeasure("contrast", "contrast:subsample_fraction=0.5", (CAUSAL,)),
    CoreMeasure("cloze", "cloze:backgrounds=1", (BERT, MASKED, CAUSAL)),
    # It shares its queries with cloze: with stored responses, it adds no cost.
    CoreMeasure("group-preference", "group_preference:backgrounds=1", (BERT, MASKED, CAUSAL)),
    CoreMeasure("stereotype", "stereoset:subsample_fraction=0.5", (BERT, MASKED, CAUSAL)),
    CoreMeasure("crows", "crows:subsample_fraction=0.125", (BERT, MASKED, CAUSAL)),
    CoreMeasure("seat-weat6", "seat:weat_test=weat6", (BERT, MASKED, PAIRS, EMBEDDINGS)),
    CoreMeasure("nli-fairness", "nli:subsample_fraction=0.5", (CLASSIFIER,)),
    CoreMeasure("nli-coal", "nli_coal:subsample_fraction=0.5", (CLASSIFIER,)),
    CoreMeasure(
        "agreement",
        # Not GAP: loading its texts alone takes a quarter of a minute.
        "pronoun_agreement:sources=winogender+winobias,subsample_fraction=0.5",
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
data have them, because the bootstrap of few units gives intervals that are too narrow."""


def kind_of(lm: LM) -> Kind:
    """The kind of a model, by its heads."""
    heads = lm.heads
    # Both heads before one of them: the suite then has the measures of both.
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
    """The measures of the core suite for a kind of model."""
    return tuple(row for row in CORE if kind in row.kinds)
