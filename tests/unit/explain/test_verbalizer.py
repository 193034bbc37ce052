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
    subset = []
    for prompt in prompts("The"):
        words = ("woman", "man") if prompt.majority_group == "female" else ("man", "woman")
        if prompt.kind == "base":
            subset.append(prompt)
            for kind, word in zip(GROUP_NAMING_KINDS, words, strict=True):
                output = f"the {word} was a {prompt.occupation}."
                subset.append(
                    CounteractsPrompt(
                        f"{prompt.id}/{kind}", *prompt[1:3], kind, "", output, prompt.base
                    )
                )
    return tuple(subset)


def test_words_are_sorted_by_where_they_are_likelier_and_occupations_left_out():
    lm = load(zoo.folder("bert", "BertForMaskedLM"), dtype="float64")
    cloze = made("cloze", prompts=naming())
    result = add_prevalent_words(lm, cloze, k=5)
    stored = {prompt.occupation for prompt in result.cloze.prompts}
    off = [item for item in naming() if item.occupation not in stored]
    assert off
    assert {item.occupation for item in off} | stored == {item.occupation for item in naming()}
    mass = {}
    for item in off:
        if item.kind == "base":
            continue
        text = f"{item.knowledge}[SEP]{item.base}"
        side = 0 if "woman" in item.knowledge else 1
        for word, value in lm.fill_top([text], 5)[0]:
            subset = mass.setdefault(word, {}).setdefault(item.occupation, [0, 0])
            subset[side] += math.exp(value)
    unedited = {"she", "woman", "he", "man"}
    first, second = result.cloze.words
    added = {word for word in (*first, *second) if word not in unedited}
    assert added
    for word in {word for word in mass if word.isalpha()} - unedited:
        hers = sum(a > b for a, b in mass[word].values())
        his = len(mass[word]) - hers
        full = sum(a - b for a, b in mass[word].values()) > 0
        agreeing = hers if full else his
        sure = agreeing >= 3 and agreeing >= 2 / 3 * (hers + his)
        assert (word in added) == sure, word
        assert (word in first) == (sure and full), word
    assert f"{len(added)} words come from this model's answers" in result.note


def test_prompts_that_name_no_group_are_refused():
    lm = load(zoo.folder("bert", "BertForMaskedLM"))
    with pytest.raises(NotMeasurableError, match="no knowledge that names a group"):
        add_prevalent_words(lm, made("cloze", prompts=prompts("The")))
