import math

import pytest
import zoo
from metric_cases import made, prompts

from levelhead.core.errors import NotMeasurableError
from levelhead.data.prompts.counteracts import CounteractsPrompt
from levelhead.explain.prompting.verbalizer import GROUP_NAMING_KINDS, add_prevalent_words
from levelhead.models.loading.load import load


def naming():
    """Prompts whose knowledge names the dominating group, or the other one."""
    own = []
    for one in prompts("The"):
        words = ("woman", "man") if one.majority_group == "female" else ("man", "woman")
        if one.kind == "base":
            own.append(one)
            for kind, word in zip(GROUP_NAMING_KINDS, words, strict=True):
                told = f"the {word} was a {one.occupation}."
                own.append(
                    CounteractsPrompt(f"{one.id}/{kind}", *one[1:3], kind, "", told, one.base)
                )
    return tuple(own)


def test_words_are_sorted_by_where_they_are_likelier_and_occupations_left_out():
    lm = load(zoo.folder("bert", "BertForMaskedLM"), dtype="float64")
    cloze = made("cloze", prompts=naming())
    found = add_prevalent_words(lm, cloze, k=5)
    kept = {one.occupation for one in found.cloze.prompts}
    off = [one for one in naming() if one.occupation not in kept]
    assert off
    assert {one.occupation for one in off} | kept == {one.occupation for one in naming()}
    mass = {}
    for one in off:
        if one.kind == "base":
            continue
        text = f"{one.knowledge}[SEP]{one.base}"
        side = 0 if "woman" in one.knowledge else 1
        for word, value in lm.fill_top([text], 5)[0]:
            own = mass.setdefault(word, {}).setdefault(one.occupation, [0, 0])
            own[side] += math.exp(value)
    plain = {"she", "woman", "he", "man"}
    first, second = found.cloze.words
    added = {word for word in (*first, *second) if word not in plain}
    assert added
    for word in {word for word in mass if word.isalpha()} - plain:
        hers = sum(a > b for a, b in mass[word].values())
        his = len(mass[word]) - hers
        whole = sum(a - b for a, b in mass[word].values()) > 0
        agreeing = hers if whole else his
        sure = agreeing >= 3 and agreeing >= 2 / 3 * (hers + his)
        assert (word in added) == sure, word
        assert (word in first) == (sure and whole), word
    assert f"{len(added)} words come from this model's answers" in found.note


def test_prompts_that_name_no_group_are_refused():
    lm = load(zoo.folder("bert", "BertForMaskedLM"))
    with pytest.raises(NotMeasurableError, match="no knowledge that names a group"):
        add_prevalent_words(lm, made("cloze", prompts=prompts("The")))
