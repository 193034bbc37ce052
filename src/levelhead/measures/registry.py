"""MEASURES: all classes of measures, by name. The contract tests cover a new row automatically."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.measures.classification.counterfactual import Counterfactual
from levelhead.measures.classification.nli_coal import NliCoal
from levelhead.measures.classification.nli_occupations import Nli
from levelhead.measures.cloze.cloze import Cloze
from levelhead.measures.cloze.group_preference import GroupPreference
from levelhead.measures.cloze.top_k import ClozeTopK
from levelhead.measures.decisions.bbq import Bbq
from levelhead.measures.decisions.callback import Callback
from levelhead.measures.decisions.decision import Decision
from levelhead.measures.decisions.implicit_association import ImplicitAssociation
from levelhead.measures.decisions.relative_decision import RelativeDecision
from levelhead.measures.decisions.unqover import Unqover
from levelhead.measures.decisions.winobias import Winobias
from levelhead.measures.embedding.seat import Seat
from levelhead.measures.generation.bold import Bold
from levelhead.measures.generation.continuation import Continuation
from levelhead.measures.generation.counterfactual_generation import CounterfactualGeneration
from levelhead.measures.generation.honest import Honest
from levelhead.measures.generation.persona import Persona
from levelhead.measures.group_tables.association_spread import AssociationSpread
from levelhead.measures.group_tables.decision_spread import DecisionSpread
from levelhead.measures.likelihood.crows import Crows
from levelhead.measures.likelihood.lpbs import Lpbs
from levelhead.measures.likelihood.stereoset import StereoSet
from levelhead.measures.next_sentence.distance import Distance
from levelhead.measures.next_sentence.strength import Contrast, Strength
from levelhead.measures.robustness.all_group_pairs import all_group_pairs
from levelhead.measures.utility.accuracy import Accuracy
from levelhead.measures.utility.definitional_gender import DefinitionalGender
from levelhead.measures.utility.facts import Facts
from levelhead.measures.utility.glue_task import GlueTask
from levelhead.measures.utility.instructions import Instructions
from levelhead.measures.utility.perplexity import Perplexity, PseudoPerplexity
from levelhead.measures.utility.pronoun_agreement import PronounAgreement
from levelhead.measures.utility.snli import SnliAccuracy

if TYPE_CHECKING:
    from levelhead.measures.base import Measure


MEASURES: dict[str, type[Measure]] = {
    "seat": Seat,
    "strength": Strength,
    "distance": Distance,
    "contrast": Contrast,
    "crows": Crows,
    "cloze": Cloze,
    "cloze_top": ClozeTopK,
    "group_preference": GroupPreference,
    "lpbs": Lpbs,
    "stereoset": StereoSet,
    "nli": Nli,
    "nli_coal": NliCoal,
    "counterfactual": Counterfactual,
    "continuation": Continuation,
    "generation": CounterfactualGeneration,
    "persona": Persona,
    "bold": Bold,
    "honest": Honest,
    "bbq": Bbq,
    "winobias": Winobias,
    "decision": Decision,
    "callback": Callback,
    "implicit_association": ImplicitAssociation,
    "relative_decision": RelativeDecision,
    "unqover": Unqover,
    "association_spread": AssociationSpread,
    "decision_spread": DecisionSpread,
    "snli": SnliAccuracy,
    "task": GlueTask,
    "accuracy": Accuracy,
    "instructions": Instructions,
    "facts": Facts,
    "pronoun_agreement": PronounAgreement,
    "definitional_gender": DefinitionalGender,
    "pppl": PseudoPerplexity,
    "ppl": Perplexity,
}
"""One row for each class. Its attribute `metrics` lists and describes what it can report."""

ALL_GROUPS = "groups=all"


def metric_texts() -> dict[str, str]:
    """All metrics by name, with their names on the command line.

    >>> metric_texts()["crows"], metric_texts()["crows_margin"]
    ('crows', 'crows:metric=crows_margin')
    """
    return {
        # The first metric is the default, so the measure's name alone selects it.
        metric: f"{name}:metric={metric}" if number else name
        for name, measure_class in MEASURES.items()
        for number, metric in enumerate(measure_class.metrics)
    }


def reported_metric_name(text: str) -> str:
    """Name of the metric that a measure reports, from its text on the command line.

    All options except `metric` are ignored.

    >>> reported_metric_name("stereoset:kind=intersentence")
    'stereotype_score'
    >>> reported_metric_name("stereoset:metric=lms")
    'lms'
    """
    name, _, rest = text.partition(":")
    # Other options are not parsed: the files that they name may not exist here.
    options = dict(pair.partition("=")[::2] for pair in rest.split(","))
    return _get_measure_class(name)(metric=options.get("metric", "")).metric


def is_utility(text: str) -> bool:
    """Whether a measure, given as on the command line, is a utility and not a bias.

    >>> is_utility("ppl:limit=50"), is_utility("stereoset"), is_utility("stereoset:metric=lms")
    (True, False, True)
    """
    return _get_measure_class(text.partition(":")[0])(metric=reported_metric_name(text)).is_utility


def utility_measures() -> frozenset[str]:
    """Names of all metrics of utility."""
    return frozenset(metric for metric, text in metric_texts().items() if is_utility(text))


def make_measure(name: str, **options: Any) -> Measure:
    """Make a measure from its name, with options as keywords.

    >>> make_measure("crows", metric="crows_margin", protocol="meade").name
    'crows_margin'
    """
    measure_class = _get_measure_class(name)
    valid_options = sorted(_option_types(measure_class))
    for option in options:
        if option not in valid_options:
            raise UnknownNameError(f"option of {name}", option, valid_options)
    return measure_class(**options)


def _get_measure_class(name: str) -> type[Measure]:
    if name in MEASURES:
        return MEASURES[name]
    text = metric_texts().get(name)
    if text is None:
        raise UnknownNameError("measure", name, MEASURES)
    raise LevelheadError(
        f"{name!r} is a metric of the measure {text.partition(':')[0]!r}, and no measure by itself",
        hint=f"write {text!r}, with any other option behind it",
    )


def parse_measures(text: str, user_texts: dict[str, Any] | None = None) -> tuple[Measure, ...]:
    """Parse a measure; `groups=all` gives one measure for every pair of the lexicon's groups.

    Args:
        text: A measure as on the command line; see `parse_measure`.
        user_texts: Options with the user's texts, for the counterfactual measure.

    >>> len(parse_measures("seat:lexicon=religion-en,groups=all"))
    10
    """
    name, sign, rest = text.partition(":")
    options = rest.split(",")
    # `groups=all` is no option of a class: it is taken out, and expands the parsed measure.
    measure = parse_measure(
        name + sign + ",".join(option for option in options if option != ALL_GROUPS)
    )
    if user_texts is not None and isinstance(measure, Counterfactual):
        measure = replace(measure, **user_texts)
    return all_group_pairs(measure) if ALL_GROUPS in options else (measure,)


def parse_measure(text: str) -> Measure:
    """Parse a measure of the form `name` or `name:option=value,option=value`.

    >>> parse_measure("strength:part=dev,top=0.2").settings["top"]
    0.2
    """
    name, _, rest = text.partition(":")
    types, options = _option_types(_get_measure_class(name)), {}
    for pair in filter(None, rest.split(",")):
        key, sign, value = pair.partition("=")
        if not sign:
            raise LevelheadError(
                f"{pair!r} in {text!r} is no option", hint=f"write {name}:option=value,..."
            )
        if key not in types:
            raise UnknownNameError(f"option of {name}", key, types)
        options[key] = _parse_option(types[key], value, key)
    return make_measure(name, **options)


def _option_types(measure_class: type[Measure]) -> dict[str, Any]:
    """The options of a class of measures, with their types."""
    from dataclasses import fields
    from typing import get_type_hints

    hints = get_type_hints(measure_class)
    return {field.name: hints[field.name] for field in fields(measure_class)}


def _parse_option(kind: Any, value: str, key: str) -> object:
    parts = tuple(value.split("+"))
    # A file name may contain "+": an existing path is one value, not a list.
    is_single_first = len(parts) == 1 or Path(value).exists()
    candidates: list[object] = [value, parts] if is_single_first else [parts, value]
    if value == "none":
        candidates = [None]
    # The types decide between a string and a list: the first candidate that validates is used.
    for candidate in candidates:
        try:
            return TypeAdapter(kind).validate_python(candidate, strict=False)
        except ValidationError as error:
            reason = error.errors()[0]["msg"]
    raise LevelheadError(
        f"{key}={value}: {reason}", hint="see `docs/measures/index.md`; join several words by +"
    )
