"""MEASURES: every class of measures, by name. The contract's battery runs on a new row at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from levelhead.core.errors import LevelheadError, UnknownName
from levelhead.measures.classification.counterfactual import Counterfactual
from levelhead.measures.classification.nli_coal import Coal
from levelhead.measures.classification.nli_occupations import Nli
from levelhead.measures.cloze.cloze import Cloze
from levelhead.measures.cloze.group_preference import GroupPreference
from levelhead.measures.cloze.top_k import ClozeTop
from levelhead.measures.embedding.seat import Seat
from levelhead.measures.generation.continuation import Continuation
from levelhead.measures.likelihood.crows import Crows
from levelhead.measures.likelihood.lpbs import Lpbs
from levelhead.measures.likelihood.stereoset import StereoSet
from levelhead.measures.next_sentence.distance import Distance
from levelhead.measures.next_sentence.strength import Contrast, Strength
from levelhead.measures.robustness.all_group_pairs import every_pair
from levelhead.measures.utility.accuracy import Accuracy
from levelhead.measures.utility.glue_task import Tasked
from levelhead.measures.utility.perplexity import Perplexity, PseudoPerplexity
from levelhead.measures.utility.pronoun_agreement import PronounAgreement
from levelhead.measures.utility.snli import Snli

if TYPE_CHECKING:
    from levelhead.measures.base import Measure


MEASURES: dict[str, type[Measure]] = {
    "seat": Seat,
    "strength": Strength,
    "distance": Distance,
    "contrast": Contrast,
    "crows": Crows,
    "cloze": Cloze,
    "cloze_top": ClozeTop,
    "group_preference": GroupPreference,
    "lpbs": Lpbs,
    "stereoset": StereoSet,
    "nli": Nli,
    "nli_coal": Coal,
    "counterfactual": Counterfactual,
    "continuation": Continuation,
    "snli": Snli,
    "task": Tasked,
    "accuracy": Accuracy,
    "pronoun_agreement": PronounAgreement,
    "pppl": PseudoPerplexity,
    "ppl": Perplexity,
}
"""One row a class. What a class can report, and what that is about, its `metrics` say."""

EVERY = "groups=all"


def metric_texts() -> dict[str, str]:
    """Every metric by name, and how it is named on the command line.

    >>> metric_texts()["crows"], metric_texts()["crows_margin"]
    ('crows', 'crows:metric=crows_margin')
    """
    return {
        metric: f"{name}:metric={metric}" if number else name
        for name, make in MEASURES.items()
        for number, metric in enumerate(make.metrics)
    }


def metric_of(text: str) -> str:
    """The metric that a measure, named as on the command line, reports; no other option is read.

    >>> metric_of("stereoset:kind=intersentence"), metric_of("stereoset:metric=lms")
    ('stereotype_score', 'lms')
    """
    name, _, rest = text.partition(":")
    options = dict(pair.partition("=")[::2] for pair in rest.split(","))
    return _class(name)(metric=options.get("metric", "")).metric


def is_utility(text: str) -> bool:
    """Whether a measure, named as on the command line, is of what a model can do, and no bias.

    >>> is_utility("ppl:limit=50"), is_utility("stereoset"), is_utility("stereoset:metric=lms")
    (True, False, True)
    """
    return _class(text.partition(":")[0])(metric=metric_of(text)).is_utility


def utility_measures() -> frozenset[str]:
    """The metrics of what a model can do."""
    return frozenset(metric for metric, text in metric_texts().items() if is_utility(text))


def measure(name: str, **options: Any) -> Measure:
    """A measure by name, with options as keywords.

    >>> measure("crows", metric="crows_margin", protocol="meade").name
    'crows_margin'
    """
    make = _class(name)
    known = sorted(_types(make))
    for option in options:
        if option not in known:
            raise UnknownName(f"option of {name}", option, known)
    return make(**options)


def _class(name: str) -> type[Measure]:
    if name in MEASURES:
        return MEASURES[name]
    text = metric_texts().get(name)
    if text is None:
        raise UnknownName("measure", name, MEASURES)
    raise LevelheadError(
        f"{name!r} is a metric of the measure {text.partition(':')[0]!r}, and no measure by itself",
        mend=f"write {text!r}, with any other option behind it",
    )


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
    types, options = _types(_class(name)), {}
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
