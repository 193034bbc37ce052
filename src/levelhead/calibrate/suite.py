"""Every measure that can be computed in a planted language, and why the others cannot.

The expected response of a measure to a larger dose follows from its role: a measure of stereotypes
rises, one of parity falls, a utility does not respond.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from levelhead.calibrate.planted_measures import (
    CONTEXT_PATTERN,
    NEXT_PATTERNS,
    PLANTED,
    UNRELATED_PATTERN,
    PlantedMeasures,
)
from levelhead.data.lexicons.lexicon import Side, TargetFamily
from levelhead.data.lexicons.published import GroupTemplate
from levelhead.data.records import StereoSetItem, TwinTriple
from levelhead.measures.cloze.group_preference import GroupPreference
from levelhead.measures.cloze.top_k import ClozeTopK
from levelhead.measures.generation.continuation import Continuation
from levelhead.measures.likelihood.lpbs import Lpbs
from levelhead.measures.likelihood.stereoset import StereoSet
from levelhead.measures.next_sentence.distance import Distance
from levelhead.measures.utility.perplexity import Perplexity, PseudoPerplexity

if TYPE_CHECKING:
    from levelhead.core.calibration import ExpectedResponse
    from levelhead.measures.base import Measure
    from levelhead.models.lm import LM

LPBS_FAMILY = "occupation"
"""Family of targets for measures that put all targets into the same sentence."""
SENTENCE_PATTERNS = {
    "occupation": "the {target} at the {place} is a {person} .",
    "trait": "my {kin} is very {target} .",
    "liking": "our {kin} likes {target} .",
}
GROUP_PATTERNS = {
    "person": "the XXX at the {place} is a GGG .",
    "pronoun": "the XXX said that GGG was tired {time} .",
}
"""Sentences for LPBS, by the slot of the group's words."""
CONTINUATION_TEMPLATE = "the {occupation} said that"
PREFERENCE = "group_preference"
"""The measure of a default towards one group, which is no stereotype."""
UTILITY_SENTENCES = 100
"""Number of sentences on which fluency is measured."""
SAMPLES = 4
"""Number of continuations of an occupation."""
QUESTIONS = "asks questions in English, which the language does not have; see `chat_doses`"
EXCLUDED = {
    **dict.fromkeys(
        (
            *("bbq", "bbq_disambiguated", "bbq_s_amb", "bbq_s_dis", "bbq_accuracy"),
            *("bbq_likelihood", "bbq_unknown", "bbq_unknown_likelihood"),
            *("implicit_association", "implicit_association_d"),
            *("relative_decision", "relative_decision_share"),
            *("unqover", "unqover_score", "unqover_count"),
            *("unqover_position_error", "unqover_attribute_error"),
            *("decision", "callback", "callback_impact_ratio"),
            *("winobias", "winobias_gap", "winobias_accuracy", "winobias_likelihood"),
        ),
        QUESTIONS,
    ),
    **dict.fromkeys(
        (
            *("generation", "generation_refusals", "generation_failures"),
            *("generation_length", "persona", "persona_marked", "persona_refusals"),
            "persona_failures",
        ),
        "makes requests in English, which the language does not have; see `chat_doses`",
    ),
    **dict.fromkeys(
        (
            *("bold", "bold_excess", "bold_refusals", "bold_failures", "bold_length"),
            *("honest", "honest_score", "honest_refusals", "honest_failures"),
        ),
        "continues sentences in English, which the language does not have",
    ),
    **dict.fromkeys(
        (
            *(
                "association_spread",
                "association_variance",
                "association_gap",
                "association_interaction",
            ),
            *("decision_spread", "decision_variance", "decision_gap", "decision_interaction"),
        ),
        "compares more groups than the language has; see `calibrate.organisms.group_tables`",
    ),
    "cloze_relative": "measures the effect of knowledge before a sentence; the language has none",
    "counterfactual": "needs a classifier; `levelhead mitigate select` is tried on planted ones "
    "(tools/tuned.py)",
    "nli": "needs a classifier of inferences, which the language does not have",
    "nli_coal": "needs a classifier of inferences, which the language does not have",
    "snli": "utility of a classifier of inferences",
    "task": "utility of a classifier",
    "accuracy": "utility of a classifier",
    "instructions": "utility; gives instructions in English, which the language does not have",
    "facts": "utility; asks questions in English, which the language does not have",
    "definitional_gender": "utility; its sentences are English; `Organism.planted_knowledge` makes "
    "others",
    "pronoun_agreement": "utility; `measure_skills` measures the same on every organism",
}
"""Measures and metrics that do not apply, and why."""


def list_applicable_measures(planted: PlantedMeasures, lm: LM) -> dict[str, Measure]:
    """Create the metrics that a model has a head for, by name.

    Args:
        planted: measures in the language of the model, with original or permuted labels.
        lm: the model.
    """
    cloze, stereoset = planted.cloze(lm), StereoSet(_stereoset_items(planted), bias=PLANTED)
    bases: list[Measure] = [
        planted.seat,
        planted.contrast,
        planted.crows,
        cloze,
        ClozeTopK(cloze.prompts, lexicon=cloze.lexicon, form=cloze.form, kinds=cloze.kinds),
        GroupPreference(cloze.prompts, lexicon=cloze.lexicon, form=cloze.form, kinds=cloze.kinds),
        stereoset,
    ]
    if "next_sentence" in lm.heads:
        bases += [planted.strength, _make_distance(planted)]
    if lm.is_causal:
        bases += [
            Continuation(
                cloze.prompts, CONTINUATION_TEMPLATE, planted.lexicon, k=SAMPLES, tokens=8
            ),
            Perplexity(texts=planted.corpus, limit=UTILITY_SENTENCES),
        ]
    else:
        bases += [
            _make_lpbs(planted),
            PseudoPerplexity(texts=planted.corpus, limit=UTILITY_SENTENCES),
        ]
    return {
        metric: base if metric == base.metric else replace(base, metric=metric)
        for base in bases
        for metric in base.metrics
        if metric not in EXCLUDED
    }


def get_expected_response(measure: Measure) -> ExpectedResponse:
    """Return the expected response of a measure to a stronger association of groups and targets.

    Args:
        measure: the measure.
    """
    # Distance is about unrelated sentences, which are about nobody.
    if isinstance(measure, Distance):
        return "none"
    # The dose joins targets with groups. A model may still name one group more often than its text
    # does: some do, up to 9 times (docs/results/calibration.md).
    if isinstance(measure, GroupPreference):
        return "any"
    match measure.primary_metric.role:
        case "utility":
            return "none"
        case "parity":
            return "falls"
        case _:
            return "rises"


def _stereoset_items(planted: PlantedMeasures) -> tuple[StereoSetItem, ...]:
    """Make one item per pair of targets; the groups alternate."""
    items = []
    for i, pair in enumerate(planted.pairs):
        group, key = i % 2, f"{pair.family} {pair.number}"
        other = planted.neutral_word("food", key)
        stereotype, anti, nonsense, context = (
            planted.fill_pattern(SENTENCE_PATTERNS[pair.family], word, key, group=group)
            for word in (pair.words[group], pair.words[1 - group], other, "BLANK")
        )
        items.append(
            StereoSetItem(key, "intrasentence", PLANTED, key, context, stereotype, anti, nonsense)
        )
    return tuple(items)


def _make_lpbs(planted: PlantedMeasures) -> Lpbs:
    words = [
        [pair.words[side] for pair in planted.pairs if pair.family == LPBS_FAMILY]
        for side in (0, 1)
    ]
    groups = planted.language.groups
    sides = (
        Side(name, name, tuple(side_words)) for name, side_words in zip(groups, words, strict=True)
    )
    templates = tuple(
        GroupTemplate(
            planted.fill_pattern(text, slot),
            tuple(zip(groups, planted.language.marks[slot], strict=True)),
        )
        for slot, text in GROUP_PATTERNS.items()
    )
    return Lpbs(targets=TargetFamily(PLANTED, "occupations", tuple(sides)), templates=templates)


def _make_distance(planted: PlantedMeasures) -> Distance:
    """Make a triple for every target, about its group; only unrelated sentences are queried.

    Every word of a group has the next word of its kind as a placebo.
    """
    groups, triples = planted.language.groups, []
    for pair in planted.pairs:
        for side, word in enumerate(pair.words):
            original, twin = (
                planted.fill_pattern(CONTEXT_PATTERN, word, group=group)
                for group in (side, 1 - side)
            )
            likely, unlikely = (
                planted.fill_pattern(NEXT_PATTERNS[pair.family], pair.words[i], word)
                for i in (side, 1 - side)
            )
            ends = (likely, unlikely, planted.fill_pattern(UNRELATED_PATTERN, word))
            triples.append(TwinTriple(word, groups[side], original, *ends, twin, *ends))
    placebos = tuple(
        (group, tuple(zip(words, (*words[1:], words[0]), strict=True)))
        for sides in planted.language.marks.values()
        for group, words in zip(groups, sides, strict=True)
        if len(words) > 1
    )
    lexicon = replace(planted.lexicon, placebos=placebos)
    return Distance(tuple(triples), units="items", lexicon=lexicon)
