"""The core suite of an audit: fixed measures of fixed sizes, in a fixed order, by kind of model.

The verdict of an audit is based only on these measures. Neither the time budget nor the speed of
the machine changes them or their number of items: the same model and data give the same verdict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from levelhead.core.errors import NotMeasurableError
from levelhead.measures.decisions.choice_measure import ChoiceMeasure
from levelhead.measures.registry import MEASURES, is_utility
from levelhead.models.serving.served_model import ServedModel

if TYPE_CHECKING:
    from levelhead.models.lm import LM

Role = Literal["bias", "utility"]
Kind = Literal[
    "masked with next-sentence head",
    "masked",
    "causal",
    "chat",
    "chat by texts only",
    "next-sentence",
    "classifier",
    "embeddings",
]
BERT: Kind = "masked with next-sentence head"
MASKED: Kind = "masked"
CAUSAL: Kind = "causal"
CHAT: Kind = "chat"
WRITING: Kind = "chat by texts only"
"""A chat model whose server reports no log-probabilities."""
CHATS: tuple[Kind, ...] = (CHAT, WRITING)
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
    # Decisions and texts first: they are what a chat model is used for.
    CoreMeasure("decision", "decision", CHATS),
    CoreMeasure("bbq", "bbq:per_template=6,subsample_fraction=0.125", CHATS),
    # Not WinoBias: a part of its crossed occupations would leave too few of one side.
    CoreMeasure("winobias", "winobias:source=winogender", CHATS),
    CoreMeasure("callback", "callback:subsample_fraction=0.125", CHATS),
    CoreMeasure(
        "implicit-association",
        "implicit_association:n_pairs=2,subsample_fraction=0.25",
        CHATS,
    ),
    CoreMeasure("generation", "generation:k=1,tokens=30", CHATS),
    CoreMeasure("cloze", "cloze:backgrounds=1", (BERT, MASKED, CAUSAL, CHAT)),
    # It shares its queries with cloze: with stored responses, it adds no cost.
    CoreMeasure(
        "group-preference",
        "group_preference:backgrounds=1",
        (BERT, MASKED, CAUSAL, CHAT),
    ),
    CoreMeasure("stereotype", "stereoset:subsample_fraction=0.5", (BERT, MASKED, CAUSAL)),
    CoreMeasure("crows", "crows:subsample_fraction=0.125", (BERT, MASKED, CAUSAL, CHAT)),
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
    CoreMeasure("ppl", "ppl:limit=50", (CAUSAL, CHAT)),
    # The price of an edit that perplexity does not show. Units are the kinds of instructions: all.
    CoreMeasure("instructions", "instructions:per_kind=2", CHATS),
    CoreMeasure("facts", "facts", CHATS),
)
"""One row a measure, in the order in which they are run.

Only measures whose data can be downloaded (a suite that needs a manual download would be
inconclusive almost everywhere), and only for kinds of models on which calibration has not refuted
them: no SEAT for causal models, no Distance. A chat model has decisions and generations instead of
the largest measures of causal models, which the budget adds. Sizes: about two minutes of one slow
core for a model of 11 million parameters, and at least 30 units (occupations, targets, pairs) a
measure where the data have them, because the bootstrap of few units gives intervals that are too
narrow."""


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
        return _kind_of_causal(lm)
    return CLASSIFIER if "classifier" in heads else EMBEDDINGS


def core_suite(kind: Kind) -> tuple[CoreMeasure, ...]:
    """The measures of the core suite for a kind of model."""
    return tuple(row._replace(text=text_for(kind, row.text)) for row in CORE if kind in row.kinds)


def text_for(kind: Kind, text: str) -> str:
    """A measure as a kind of model can answer it: with written answers where it only writes.

    Args:
        kind: the kind of the model.
        text: the measure as on the command line.

    >>> text_for("chat by texts only", "bbq:per_template=6")
    'bbq:per_template=6,generated_answers=true,listing=lines'
    """
    name, _, options = text.partition(":")
    if kind != WRITING or not issubclass(MEASURES[name], ChoiceMeasure):
        return text
    # Without letters, which a text names instead of the answers behind them.
    written = ["generated_answers=true", *(["listing=lines"] if name == "bbq" else [])]
    return f"{name}:{','.join([*filter(None, [options]), *written])}"


def _kind_of_causal(lm: LM) -> Kind:
    served = cast("LM | ServedModel", lm)
    if not isinstance(served, ServedModel):
        return CHAT if lm.tokens.tokenizer.chat_template else CAUSAL
    if not served.can_score:
        return WRITING
    try:
        (prompt,) = served.apply_templates([[{"role": "user", "content": "Hello"}]], None)
    except NotMeasurableError:  # the server scores texts, and applies no templates
        return CAUSAL
    return CAUSAL if prompt is None else CHAT
