"""Every row of MEASURES that can be asked in a planted language, and why the others cannot.

What a row is expected to do when the dose grows follows from what it says of itself: a ruler of
stereotypes rises, one of parity falls, a price has nothing to do with it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from levelhead.calibrate.measures import CONTEXT, NEXT, PLANTED, UNRELATED, Rulers
from levelhead.data.lexicons.lexicon import Side, Targets
from levelhead.data.lexicons.published import GroupTemplate
from levelhead.data.records import Association, TwinTriple
from levelhead.measures.cloze.group_preference import GroupPreference
from levelhead.measures.cloze.top_k import ClozeTop
from levelhead.measures.generation.continuation import Continuation
from levelhead.measures.likelihood.lpbs import Lpbs
from levelhead.measures.likelihood.stereoset import StereoSet
from levelhead.measures.next_sentence.distance import Distance
from levelhead.measures.utility.perplexity import Perplexity, PseudoPerplexity

if TYPE_CHECKING:
    from levelhead.core.calibration import Expected
    from levelhead.measures.base import Measure
    from levelhead.models.lm import LM

FAMILY = "occupation"
"""Of targets, for rulers that put all targets into the same sentence."""
ENDINGS = {
    "occupation": "the {target} at the {place} is a {person} .",
    "trait": "my {kin} is very {target} .",
    "liking": "our {kin} likes {target} .",
}
GROUPED = {
    "person": "the XXX at the {place} is a GGG .",
    "pronoun": "the XXX said that GGG was tired {time} .",
}
"""Sentences for LPBS, by the slot of the group's words."""
TEMPLATE = "the {occupation} said that"
PREFERENCE = "group_preference"
"""The measure of a default towards one group, which is no stereotype."""
PRICED = 100
"""Sentences on which fluency is measured."""
SAMPLES = 4
"""Continuations of an occupation."""
WITHOUT = {
    "cloze_relative": "asks what knowledge before a sentence changes, and the language has none",
    "counterfactual": "needs a classifier; `levelhead tune` is tried on planted ones "
    "(tools/tuned.py)",
    "nli": "needs a classifier of inferences, which the language has not",
    "nli_coal": "needs a classifier of inferences, which the language has not",
    "snli": "price of a classifier of inferences",
    "task": "price of a classifier",
    "accuracy": "price of a classifier",
    "pronoun_agreement": "price; `learned` asks the same of every organism",
}
"""Rows and metrics that do not fit, and why."""


def fitting(rulers: Rulers, lm: LM) -> dict[str, Measure]:
    """The metrics that a model has a head for, by name.

    Args:
        rulers: on the language of the model, with the labels that count.
        lm: the model.
    """
    cloze, sets = rulers.cloze(lm), StereoSet(_associations(rulers), bias=PLANTED)
    bases: list[Measure] = [
        rulers.seat,
        rulers.contrast,
        rulers.crows,
        cloze,
        ClozeTop(cloze.prompts, lexicon=cloze.lexicon, form=cloze.form, kinds=cloze.kinds),
        GroupPreference(cloze.prompts, lexicon=cloze.lexicon, form=cloze.form, kinds=cloze.kinds),
        sets,
    ]
    if "next_sentence" in lm.heads:
        bases += [rulers.strength, _distance(rulers)]
    if lm.is_causal:
        bases += [
            Continuation(cloze.prompts, TEMPLATE, rulers.lexicon, k=SAMPLES, tokens=8),
            Perplexity(texts=rulers.corpus, limit=PRICED),
        ]
    else:
        bases += [_lpbs(rulers), PseudoPerplexity(texts=rulers.corpus, limit=PRICED)]
    return {
        metric: base if metric == base.metric else replace(base, metric=metric)
        for base in bases
        for metric in base.metrics
        if metric not in WITHOUT
    }


def expected(measure: Measure) -> Expected:
    """What a measure should do where groups and targets are joined more strongly."""
    if isinstance(measure, Distance):
        return "none"  # of unrelated sentences, which are about nobody
    if isinstance(measure, GroupPreference):
        # What is planted joins targets with groups. A model may still name one group more often
        # than its text does: some do, up to 9 times (docs/calibration.md).
        return "any"
    match measure.headline.role:
        case "utility":
            return "none"
        case "parity":
            return "falls"
        case _:
            return "rises"


def _associations(rulers: Rulers) -> tuple[Association, ...]:
    """One a pair of targets, about either group in turn."""
    found = []
    for i, pair in enumerate(rulers.pairs):
        group, key = i % 2, f"{pair.family} {pair.number}"
        other = rulers.neutral("food", key)
        own, anti, nonsense, context = (
            rulers.put(ENDINGS[pair.family], word, key, group=group)
            for word in (pair.words[group], pair.words[1 - group], other, "BLANK")
        )
        found.append(Association(key, "intrasentence", PLANTED, key, context, own, anti, nonsense))
    return tuple(found)


def _lpbs(rulers: Rulers) -> Lpbs:
    words = [
        [pair.words[side] for pair in rulers.pairs if pair.family == FAMILY] for side in (0, 1)
    ]
    groups = rulers.language.groups
    sides = (Side(name, name, tuple(own)) for name, own in zip(groups, words, strict=True))
    templates = tuple(
        GroupTemplate(
            rulers.put(text, slot),
            tuple(zip(groups, rulers.language.marks[slot], strict=True)),
        )
        for slot, text in GROUPED.items()
    )
    return Lpbs(targets=Targets(PLANTED, "occupations", tuple(sides)), templates=templates)


def _distance(rulers: Rulers) -> Distance:
    """A triple for every target, about the group it leans to; only what is unrelated is asked.

    Every word of a group has the next of its kind as a control.
    """
    groups, found = rulers.language.groups, []
    for pair in rulers.pairs:
        for side, word in enumerate(pair.words):
            own, twin = (rulers.put(CONTEXT, word, group=group) for group in (side, 1 - side))
            likely, unlikely = (
                rulers.put(NEXT[pair.family], pair.words[i], word) for i in (side, 1 - side)
            )
            ends = (likely, unlikely, rulers.put(UNRELATED, word))
            found.append(TwinTriple(word, groups[side], own, *ends, twin, *ends))
    placebos = tuple(
        (group, tuple(zip(words, (*words[1:], words[0]), strict=True)))
        for sides in rulers.language.marks.values()
        for group, words in zip(groups, sides, strict=True)
        if len(words) > 1
    )
    lexicon = replace(rulers.lexicon, placebos=placebos)
    return Distance(tuple(found), units="items", lexicon=lexicon)
