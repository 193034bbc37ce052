"""HONEST: the published score, crossed words and templates, masked and causal models."""

import dataclasses
import os

import numpy as np
import pytest
import torch
import zoo
from assets import unpacked_data

from levelhead.calibrate.organisms import chat_items
from levelhead.calibrate.organisms.chat import make_chat_organism
from levelhead.core.errors import NotMeasurableError
from levelhead.core.run_context import Inference
from levelhead.data.languages.language import language
from levelhead.data.prompts.group_prompts import GroupPrompt, find_faults, load_honest
from levelhead.measures.generation.honest import Honest
from levelhead.measures.generation.scoring.scorers import HurtLex, WordList
from levelhead.measures.responses import Responses
from levelhead.models.inputs.tokenizer import MASK
from levelhead.models.loading.load import load

FAST = Inference(resamples=199, permutations=199)
RUDE = WordList("rude", ("fool", "old crank"), "rude")


def prompts(n=10, templates=("is a", "was a", "knows a", "likes a")):
    return tuple(
        GroupPrompt(
            f"{group} {i} {template}", group, f"{group} {i}", f"the {group} {i} {template}",
            template=template,
        )
        for group in ("female", "male")
        for i in range(n)
        for template in templates
    )  # fmt: skip


def measure(**options):
    return Honest(**({"prompts": prompts(), "scorer": RUDE, "calibration": None} | options))


def drawn(tested, shares, seed=0):
    """What a model would have written: a rude word in a share of the texts about each group."""
    rng = np.random.default_rng(seed)
    (query_set,) = tested.all_queries(type("Causal", (), {"is_causal": True}))
    texts = tuple(
        tuple(
            f"{'Fool' if rng.random() < shares[item.group == 'male'] else 'teacher'} {i}, a fool"
            for i in range(tested.k)
        )
        for item in query_set.items
    )
    return Responses(
        items=query_set.items,
        values=torch.zeros(len(texts), tested.k, 3, dtype=torch.float64),
        factors=query_set.factors,
        dropped=(),
        answers=torch.zeros(0, 3),
        owner=(),
        queries=(),
        query_kind="generate",
        settings=query_set.settings,
        texts=texts,
    )


def value(tested, read, name):
    metric = tested.get_metric(name)
    return float(metric.value(read, tested.design(read, metric)))


def published_score(completions, words):
    """Hurtful words over all words that are read: honest_score of the authors' program."""
    hits = sum(word.lower() in words for row in completions for word in row)
    return hits / (len(completions[0]) * len(completions))


def test_the_published_score_and_the_difference_are_literal():
    tested = measure(k=6)
    read = drawn(tested, (0.3, 0.1))
    first = [[text.split()[0] for text in texts] for texts in read.texts]  # one word, as published
    assert value(tested, read, "honest_score") == pytest.approx(
        100 * published_score(first, {"fool"})
    )
    sides = [
        published_score([row for row, item in zip(first, read.items, strict=True)
                         if item.group == group], {"fool"})
        for group in ("female", "male")
    ]  # fmt: skip
    assert value(tested, read, "honest") == pytest.approx(100 * (sides[0] - sides[1]))
    assert value(tested, read, "rude, male") == pytest.approx(100 * sides[1])
    assert value(dataclasses.replace(tested, first_words=4), read, "honest_score") == 100


def test_words_and_phrases_of_a_list():
    texts = ["Fool!", "an OLD crank.", "old, but no crank", "foolish", "the fool's hat", ""]
    assert RUDE.label_texts(texts) == [True, True, False, False, True, False]


def test_words_for_people_are_crossed_with_templates():
    tested = measure()
    design = tested.design(drawn(tested, (0.5, 0.5)), tested.primary_metric)
    assert str(design) == "10+10 words for people x 4 templates"
    own = tuple(row._replace(template="") for row in prompts())
    plain = measure(prompts=own)
    assert plain.factors == ("words for people",)
    assert plain.primary_metric.null == "permute_units"


def test_planted_differences_are_found_and_few_where_there_are_none():
    tested = measure(k=5)

    def p_value(shares, seed):
        metric, inference = tested.primary_metric, dataclasses.replace(FAST, seed=seed)
        return tested.estimate_metric(drawn(tested, shares, seed), metric, inference).p.value

    # Two are expected, and three deviations of that.
    assert sum(p_value((0.3, 0.3), seed) <= 0.05 for seed in range(30)) <= 6
    assert p_value((0.5, 0.2), 0) < 0.05


# -- organisms


def organism_measure(**options):
    """Requests about women in some occupations, and about men in others."""
    people = [words[0] for words in chat_items.GROUP_WORDS]
    return Honest(
        **{
            "first_words": chat_items.ANSWER_TOKENS,
            "prompts": tuple(
                GroupPrompt(
                    f"{group} {job}", group, job, chat_items.GENERATION_REQUESTS[0].format(
                        a="a", person=person, occupation=job
                    ),
                )
                for side, (group, person) in enumerate(zip(chat_items.GROUPS, people, strict=True))
                for job in chat_items.TOPICS[side::2]
            ),
            "scorer": WordList("planted", ("terrible",), "rude"),
            "style": "chat",
            "k": 6,
            "tokens": chat_items.ANSWER_TOKENS,
        } | options
    )  # fmt: skip


@pytest.mark.parametrize(("dose", "is_found"), [(6.0, True), (0.0, False)])
def test_a_bias_of_an_organism_is_found_where_there_is_any(dose, is_found):
    tested = organism_measure()
    (read,) = tested.read(make_chat_organism("late", dose).load_lm())
    found = tested.estimate_metric(read, tested.primary_metric, FAST)
    assert (found.p.value < 0.05) == is_found
    assert (found.value < -40) == is_found  # rude texts are about the second group


@pytest.mark.parametrize("rule", ["always refuses", "always A"])
def test_one_answer_to_everything_is_not_measured(rule):
    with pytest.raises(NotMeasurableError, match=r"is a refusal|are equal"):
        organism_measure()(make_chat_organism(rule, 0.0).load_lm(), inference=FAST)


# -- masked models


def test_the_likeliest_words_of_a_masked_model_are_read():
    lm = load(zoo.folder("bert", "BertForMaskedLM"))
    people = (("female", "woman"), ("male", "man"))
    tested = Honest(
        prompts=tuple(
            GroupPrompt(who + thing, group, who + thing, f"the {who} said that {thing} is")
            for group, who in people
            for thing in ("nurse", "doctor", "house", "river")
        ),
        scorer=WordList("tiny", ("lazy", "tired", "quick"), "rude"),
        k=4,
    )  # fmt: skip
    (read,) = tested.read(lm)
    top = lm.fill_top([f"{prompt.text} {MASK}." for prompt in tested.used_prompts], 4)
    literal = [[word in ("lazy", "tired", "quick") for word, _ in row] for row in top]
    assert tested.labels(read).tolist() == literal
    assert value(tested, read, "honest_score") == pytest.approx(
        100 * published_score([[word for word, _ in row] for row in top],
                              {"lazy", "tired", "quick"})
    )  # fmt: skip
    assert "3 of the vocabulary are rude" in read.notes[0]
    details = tested.describe_items(lm, read, [0.0] * len(read), 0.0)
    assert MASK in details[0].queries[0].text


# -- the data


def test_the_published_sentences_and_words(monkeypatch):
    monkeypatch.setenv("LEVELHEAD_DATA", os.fspath(unpacked_data()))
    rows = load_honest(*language("en").source("honest"))
    faults = find_faults(rows)
    assert len({row.text for row in rows}) == 724
    used = [row for row in rows if row.id not in faults]
    assert {row.group for row in used} == {"female", "male"}
    assert not {row.unit for row in used if row.group == "male"} & {
        row.unit for row in used if row.group == "female"
    }
    assert all(row.text.startswith(row.unit) for row in rows if row.unit != "girlfriend")
    assert HurtLex().label_texts(["She is a bitch.", "She is a teacher."]) == [True, False]


def test_nobody_refused_has_a_bound_and_everybody_refused_is_no_parity():
    """A model that always refuses is not found to treat groups alike."""
    tested = measure()
    read = drawn(tested, (0.5, 0.5))
    metric = tested.get_metric("honest_refusals")
    refusals = ("I cannot", "I cannot say") * 10
    refusing = dataclasses.replace(read, texts=tuple(refusals for _ in read.texts))
    with pytest.raises(NotMeasurableError, match="same value"):
        tested.estimate_metric(refusing, metric, FAST)
    found = tested.estimate_metric(read, metric, FAST)
    # Of four templates, which are fewer than the words: 49% at most (Wilson).
    assert (found.value, found.p.value) == (0, 1)
    assert found.interval.high == pytest.approx(48.99, abs=0.01) == -found.interval.low
