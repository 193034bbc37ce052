"""MEASURES: every ruler, by name. A new row is covered by the contract's battery at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from levelhead.core.errors import LevelheadError, UnknownName
from levelhead.measure.accuracy import Accuracy
from levelhead.measure.cloze import Cloze
from levelhead.measure.cloze_top import ClozeTop
from levelhead.measure.coal import Coal
from levelhead.measure.continuation import Continuation
from levelhead.measure.counterfactual import Counterfactual
from levelhead.measure.crows import Crows
from levelhead.measure.distance import Distance
from levelhead.measure.fluency import Perplexity, PseudoPerplexity
from levelhead.measure.group_preference import GroupPreference
from levelhead.measure.lpbs import Lpbs
from levelhead.measure.nli import Nli
from levelhead.measure.pairs import every_pair
from levelhead.measure.pronouns_agree import PronounAgreement
from levelhead.measure.seat import Seat
from levelhead.measure.snli import Snli
from levelhead.measure.stereoset import StereoSet
from levelhead.measure.strength import Contrast, Strength
from levelhead.measure.task import Tasked

if TYPE_CHECKING:
    from levelhead.measure.measure import Measure


class Row(NamedTuple):
    """A class of measures, and the options that make it this one."""

    make: type[Measure]
    about: str
    options: tuple[tuple[str, str], ...] = ()


MEASURES: dict[str, Row] = {
    "seat": Row(Seat, "association of words with groups in the model's space"),
    "strength": Row(Strength, "stereotypes in next-sentence judgements, top tenth"),
    "distance": Row(Distance, "unequal judgement of unrelated sentences after twins"),
    "contrast": Row(Contrast, "Strength's question asked of likelihoods; not comparable with it"),
    "crows": Row(Crows, "share of pairs whose more stereotypical sentence is likelier"),
    "crows_margin": Row(Crows, "by how much it is likelier", (("headline_is", "crows_margin"),)),
    "cloze": Row(Cloze, "who is put into an occupation's sentence, log-odds"),
    "cloze_probability": Row(
        Cloze, "the same in probabilities", (("headline_is", "cloze_probability"),)
    ),
    "cloze_relative": Row(
        Cloze, "what knowledge before the sentence changes", (("headline_is", "cloze_relative"),)
    ),
    "cloze_top": Row(ClozeTop, "the paper's way: group words among the k likeliest"),
    "group_preference": Row(
        GroupPreference, "which group is named where the sentence says nothing about it"
    ),
    "lpbs": Row(Lpbs, "what a word does to the group that a masked model puts before it"),
    "stereotype_score": Row(StereoSet, "share of stereotypes preferred to anti-stereotypes"),
    **{
        name: Row(StereoSet, about, (("headline_is", name),))
        for name, about in {
            "stereotype_margin": "by how much stereotypes are likelier",
            "lms": "price: share of endings that make sense preferred to those that do not",
            "lms_margin": "price: by how much they are likelier",
            "icat": "lms and stereotype_score in one number",
        }.items()
    },
    "nli_fairness": Row(Nli, "inference about occupations: accuracy x parity, and both factors"),
    **{
        name: Row(Nli, about, (("headline_is", name),))
        for name, about in {
            "nli_accuracy": "share of these pairs that are called neutral, as they are",
            "nli_parity": "share of occupations labelled alike whichever the gendered word",
            "nli_parity_majority": "the same by the commonest label of either group",
            "nli_gap": "how far class probabilities of the two groups lie apart, by occupation",
            "net_neutral": "mean probability of neutral",
            "fraction_neutral": "share of occupation x word called neutral",
            "threshold_neutral": "share whose probability of neutral is above tau",
        }.items()
    },
    "nli_coal": Row(Coal, "inferences as a stereotype has them, by all three labels"),
    "nli_coal_probability": Row(
        Coal, "the same in class probabilities", (("headline_is", "nli_coal_probability"),)
    ),
    "counterfactual": Row(Counterfactual, "your classifier, your texts: decisions that flip"),
    "counterfactual_shift": Row(
        Counterfactual, "by how much they move", (("headline_is", "counterfactual_shift"),)
    ),
    "continuation": Row(Continuation, "of whom a causal model writes after an occupation"),
    "snli": Row(Snli, "price: accuracy of an inference classifier"),
    "snli_likelihood": Row(
        Snli, "price: log-probability of the label", (("headline_is", "snli_likelihood"),)
    ),
    "task": Row(Tasked, "price: a fine-tuned model's task, by GLUE's own metric"),
    "task_likelihood": Row(
        Tasked, "price: log-probability of its labels", (("headline_is", "task_likelihood"),)
    ),
    "accuracy": Row(Accuracy, "price: your classifier, your labelled texts: how many are right"),
    "accuracy_likelihood": Row(
        Accuracy,
        "price: log-probability of their labels",
        (("headline_is", "accuracy_likelihood"),),
    ),
    "pronoun_agreement": Row(
        PronounAgreement, "price: knowledge people need: pronouns that are beyond doubt"
    ),
    "pronoun_agreement_margin": Row(
        PronounAgreement,
        "price: by how much they are likelier",
        (("headline_is", "pronoun_agreement_margin"),),
    ),
    "pppl": Row(PseudoPerplexity, "price: pseudo-perplexity of a masked model"),
    "ppl": Row(Perplexity, "price: perplexity of a causal model"),
}


EVERY = "groups=all"


def measure(name: str, **options: Any) -> Measure:
    """A measure by name, with options as keywords.

    >>> measure("crows", protocol="meade").name
    'crows'
    """
    if name not in MEASURES:
        raise UnknownName("measure", name, MEASURES)
    row = MEASURES[name]
    fixed = dict(row.options)
    known = sorted(set(_types(row.make)) - set(fixed))
    for option in options:
        if option not in known:
            raise UnknownName(f"option of {name}", option, known)
    return row.make(**(fixed | options))


def parsed_all(text: str, own: dict[str, Any] | None = None) -> tuple[Measure, ...]:
    """As `parsed`; `groups=all` makes one measure for every pair of the lexicon's groups.

    Args:
        text: as the command line has it.
        own: the user's texts for counterfactual, which come by options of their own.

    >>> len(parsed_all("seat:lexicon=religion-en,groups=all"))
    10
    """
    name, sign, rest = text.partition(":")
    options = rest.split(",")
    found = parsed(name + sign + ",".join(one for one in options if one != EVERY))
    if own is not None and isinstance(found, Counterfactual):
        found = replace(found, **own)
    return every_pair(found) if EVERY in options else (found,)


def parsed(text: str) -> Measure:
    """A measure as the command line names it: `name` or `name:option=value,option=value`.

    >>> parsed("strength:part=dev,top=0.2").settings["top"]
    0.2
    """
    name, _, rest = text.partition(":")
    if name not in MEASURES:
        raise UnknownName("measure", name, MEASURES)
    types, options = _types(MEASURES[name].make), {}
    for pair in filter(None, rest.split(",")):
        key, sign, value = pair.partition("=")
        if not sign:
            raise LevelheadError(
                f"{pair!r} in {text!r} is no option", mend=f"write {name}:option=value,..."
            )
        if key not in types:
            raise UnknownName(f"option of {name}", key, types)
        options[key] = _typed(types[key], value, key)
    return measure(name, **options)


def _types(make: type[Measure]) -> dict[str, Any]:
    """The options of a class of measures and their types."""
    from dataclasses import fields
    from typing import get_type_hints

    hints = get_type_hints(make)
    return {field.name: hints[field.name] for field in fields(make)}


def _typed(kind: Any, value: str, key: str) -> object:
    several = tuple(value.split("+"))
    whole_first = len(several) == 1 or Path(value).exists()  # "+" may stand in a file's name
    readings: list[object] = [value, several] if whole_first else [several, value]
    if value == "none":
        readings = [None]
    for reading in readings:
        try:
            return TypeAdapter(kind).validate_python(reading, strict=False)
        except ValidationError as error:
            why = error.errors()[0]["msg"]
    raise LevelheadError(
        f"{key}={value}: {why}", mend="see `docs/measures.md`; several words are joined by +"
    )
