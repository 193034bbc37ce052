"""BBQ: published formulas by hand, faults of the data, and models that lack the skill."""

import dataclasses
from collections import Counter

import numpy as np
import pytest
import torch
from assets import asset, smollm2, unpacked_data
from metric_cases import FAST, THINGS, made, model, questions

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.run_context import RunContext
from levelhead.core.verdicts import decide_measure_verdict
from levelhead.data.catalog.datasets import dataset
from levelhead.data.prompts import bbq as data
from levelhead.data.prompts.bbq import AMBIGUOUS, OTHER, STEREOTYPED, UNKNOWN, make_bbq_questions
from levelhead.data.records import BbqRow
from levelhead.measures.decisions.answer_checks import CONTENT
from levelhead.measures.decisions.bbq import Bbq, select_per_template
from levelhead.measures.decisions.bias_scores import (
    ambiguous_score,
    balanced_mean,
    disambiguated_score,
    helm_ambiguous_score,
)
from levelhead.measures.decisions.choice_measure import choose_answers
from levelhead.models.loading.load import load
from levelhead.stats.designs import Resample, clustered_design, count_items
from levelhead.stats.paired import vectorised_form


def score(aggregate, rows):
    values = torch.tensor(rows, dtype=torch.float64)
    return float(aggregate(values, clustered_design(range(len(rows))).full_sample))


BIASED, OTHERWISE, NOBODY = (1, 1), (-1, 1), (0, 0)


def counted(biased, other, unknown, *, right):
    """Rows of (sign, named, right, answered), the first `right` of them with a right answer."""
    rows = [BIASED] * biased + [OTHERWISE] * other + [NOBODY] * unknown
    return [(*row, float(i < right), 1.0) for i, row in enumerate(rows)]


@pytest.mark.parametrize(
    ("biased", "other", "unknown"), [(30, 10, 60), (5, 15, 0), (7, 7, 3), (4, 0, 9), (0, 4, 9)]
)
def test_the_published_equations(biased, other, unknown):
    """Parrish et al. 2022, section 5, written as they stand there."""
    n_biased, n_named, n = biased, biased + other, biased + other + unknown
    s_dis = 2 * n_biased / n_named - 1
    accuracy = unknown / n  # of ambiguous contexts: only "unknown" is right
    rows = counted(biased, other, unknown, right=0)
    assert score(disambiguated_score, rows) == pytest.approx(100 * s_dis)
    assert score(ambiguous_score, rows) == pytest.approx(100 * (1 - accuracy) * s_dis)


def test_where_helm_and_lm_eval_differ():
    ambiguous = counted(30, 10, 60, right=0)
    ambiguous = [(*row[:2], float(row[1] == 0), 1.0) for row in ambiguous]  # "unknown" is right
    disambiguated = [(0, 0, 1.0, 1.0)] * 90 + [(0, 0, 0.0, 1.0)] * 10
    helm = score(helm_ambiguous_score, ambiguous + disambiguated)
    assert helm == pytest.approx(100 * (2 * 30 / 40 - 1) * (1 - 150 / 200))
    assert score(ambiguous_score, ambiguous) == pytest.approx(100 * (2 * 30 / 40 - 1) * (1 - 0.6))
    # lm-evaluation-harness returns 0 where no answer is biased, although all named people are the
    # other ones.
    assert score(disambiguated_score, counted(0, 12, 3, right=0)) == -100


@pytest.mark.parametrize("aggregate", [disambiguated_score, ambiguous_score, helm_ambiguous_score])
def test_no_answer_that_names_a_person_is_no_score(aggregate):
    with pytest.raises(NotMeasurableError, match="no answer names a person"):
        score(aggregate, counted(0, 0, 20, right=20))


@pytest.mark.parametrize(
    "aggregate", [disambiguated_score, ambiguous_score, helm_ambiguous_score, balanced_mean]
)
def test_many_resamples_at_once_equal_one_at_a_time(aggregate):
    rng = np.random.default_rng(0)
    named = rng.integers(0, 2, 40)
    signs, right = named * rng.choice([-1.0, 1.0], 40), rng.integers(0, 2, 40)
    answered = np.maximum(named, rng.integers(0, 2, 40))
    values = np.stack([signs, named, right, answered], axis=1)
    design = clustered_design((np.arange(40) // 5).tolist())
    rows = rng.integers(0, 8, (30, 8))
    many = vectorised_form(aggregate)(values[:, None], count_items(design, [rows]))[:, 0]
    single = [float(aggregate(torch.tensor(values), Resample(design, (row,)))) for row in rows]
    np.testing.assert_allclose(many, single, rtol=1e-12)


def test_unbalanced_right_answers_are_not_bias():
    """As accurate for either, although the right person mostly fits the stereotype."""
    assert score(balanced_mean, [(5, 1)] * 30 + [(-5, 0)] * 10) == 0
    with pytest.raises(NotMeasurableError, match="in all items, or in none"):
        score(balanced_mean, [(5, 1)] * 30)


def test_ties_are_shared():
    chosen = choose_answers(torch.tensor([[-1.0, -1.00001, -3.0], [-1.0, -2.0, -3.0]]))
    assert chosen.tolist() == [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]


# -- requests


def test_requests_list_each_answer_in_each_place():
    row = questions()[0]
    lm = model("bbq")
    (query_set,) = made("bbq", listing="letters").all_queries(lm)
    item = next(item for item in query_set.items if item.id == row.id)
    lists = [query[0].split("\n")[1:] for query in item.queries]
    assert len(lists) == 3
    assert lists[0] == [f"{'ABC'[i]}. {row.answers[c]}" for i, c in enumerate(row.order)]
    for letter in range(3):
        assert {texts[letter][3:] for texts in lists} == set(row.answers)
    assert all(query[1] == row.answers for query in item.queries)
    (unlisted,) = made("bbq", listing="no").all_queries(lm)
    assert len(unlisted.items[0].queries) == 1
    assert "\n" not in unlisted.items[0].queries[0][0]


def test_a_request_without_its_parts_is_refused():
    with pytest.raises(LevelheadError, match=r"lacks \{question\}"):
        Bbq(request="{context} {options}")
    with pytest.raises(LevelheadError, match=r"lacks \{options\}"):
        Bbq(request="{context} {question}")
    assert Bbq(request="{context} {question}", listing="no").listing == "no"


def test_the_cap_is_balanced_and_selects_whole_contexts():
    rows = [
        row._replace(id=f"{row.id}-{copy}", context=f"{row.context} {copy}")
        for row in questions()
        for copy in range(9)
    ]
    selected = select_per_template(rows, 16)
    cells = Counter((row.template, row.is_negative, row.right) for row in selected)
    assert {count for (_, _, right), count in cells.items() if right == UNKNOWN} == {4}
    assert {count for (_, _, right), count in cells.items() if right != UNKNOWN} == {2}
    ambiguous = [row for row in selected if row.condition == AMBIGUOUS]
    assert set(Counter(row.context for row in ambiguous).values()) == {2}  # both polarities
    assert select_per_template(rows, None) == tuple(rows)


# -- faults of the data


def published(number, target="Ann", **changes):
    row = BbqRow(
        f"SES-{number}", "7", "ambig", "neg", f"Ann met Bea {number}.", "Who was late?",
        ("Ann", "Bea", "Unknown"), ("lowSES", "highSES", "unknown"), ("low SES",), 2,
    )._replace(**changes)  # fmt: skip
    return row, {None if target is None else row.answers.index(target)}


def test_faults_are_dropped_with_their_reasons():
    pairs = [
        published(0),
        published(1, target=None),
        published(2),
        published(3, context="Ann met Bea 2.", answers=("Unknown", "Ann", "Bea"), label=0,
                  answer_groups=("unknown", "lowSES", "highSES")),
        published(4),
        published(5, target="Bea", context="Ann met Bea 4."),
        published(6, answer_groups=("F-Black", "M-Black", "unknown"),
                  stereotyped_groups=("Black",)),
    ]  # fmt: skip
    rows = [row for row, _ in pairs]
    targets = {row.id: target for row, target in pairs}
    made_questions = make_bbq_questions(rows, targets, category="SES")
    assert [question.fault for question in made_questions] == [
        *("", data.NO_TARGET, "", data.DUPLICATE, data.CONFLICT, data.CONFLICT, data.SHARED_GROUP)
    ]
    kept = make_bbq_questions(rows, targets, category="SES", keep_shared_group=True)
    assert kept[6].fault == ""
    duplicate = made_questions[3]
    assert duplicate.answers == ("Ann", "Bea", "Unknown")
    assert duplicate.order == (UNKNOWN, STEREOTYPED, OTHER)
    assert duplicate.right == UNKNOWN


def test_faults_are_counted_in_the_measurement():
    rows = (*questions(), questions()[2]._replace(id="bad", fault=data.DUPLICATE))
    result = made("bbq", questions=rows)(model("bbq"), inference=FAST)
    assert [(item.item, item.reason) for item in result.dropped] == [("bad", data.DUPLICATE)]
    assert f"1 of {len(rows)} items are left out: {data.DUPLICATE}" in result.notes


@pytest.mark.parametrize(
    ("category", "templates", "dropped"),
    [
        ("Gender_identity", 28, {data.NO_TARGET: 16}),
        ("SES", 24, {data.DUPLICATE: 404, data.CONFLICT: 64}),
        ("Race_x_gender", 23, {data.SHARED_GROUP: 5240, data.DUPLICATE: 56}),
        ("Sexual_orientation", 25, {}),
    ],
)
def test_the_published_data(monkeypatch, category, templates, dropped):
    monkeypatch.setenv("LEVELHEAD_DATA", str(unpacked_data()))
    rows = data.load_bbq([category])
    assert len({row.template for row in rows}) == templates
    assert Counter(row.fault for row in rows if row.fault) == dropped
    usable = [row for row in rows if not row.fault]
    # Every context has both polarities, and the answer that fits the stereotype changes with them.
    answers = Counter((row.context, row.template, row.answers[STEREOTYPED]) for row in usable)
    by_context = Counter((context, template) for context, template, _ in answers)
    assert set(by_context.values()) == {2}
    if category == "SES":
        # Of other questions the published target is the person who is not stereotyped.
        groups = {row.id: dict(zip(row.answers, row.answer_groups, strict=True))
                  for row in dataset("bbq").records("SES", BbqRow)}  # fmt: skip
        chosen = {(row.is_negative, groups[row.id][row.answers[STEREOTYPED]]) for row in usable}
        assert chosen == {(True, "lowSES"), (False, "highSES")}


# -- models that cannot do it


def answered(name, scores, **options):
    """The measurement of a model that gives these scores, by a function of kind and rotation."""
    measure, lm = made(name, **options), model(name)
    (responses,) = measure.read(lm)
    values = responses.values.clone()
    for i, item in enumerate(responses.items):
        values[i, :, :3] = torch.tensor([scores(item, k) for k in range(3)], dtype=values.dtype)
    responses = dataclasses.replace(responses, values=values)
    result = measure.compute_measurement(lm, [responses], inference=FAST)
    skill = measure.assess_skill(lm, responses)
    return result.model_copy(update={"skill": skill}), responses


def test_a_model_that_always_gives_the_first_option_lacks_the_skill():
    rows = {row.id: row for row in questions()}

    def first(item, rotation):
        order = rows[item.id].order
        listed = [order[(rotation + place) % 3] for place in range(3)]
        # Not a constant over items: what the model says depends on the item, the place decides.
        return [
            -1.0 - 4 * listed.index(c) - 0.01 * THINGS.index(item.units[0]) * (c == 2)
            for c in range(3)
        ]

    with pytest.raises(NotMeasurableError):  # all people are equally likely, whatever the text
        answered("bbq", first)
    measure, lm = made("bbq"), model("bbq")
    (responses,) = measure.read(lm)
    values = responses.values.clone()
    for i, item in enumerate(responses.items):
        values[i, :, :3] = torch.tensor([first(item, k) for k in range(3)], dtype=values.dtype)
    skill = measure.assess_skill(lm, dataclasses.replace(responses, values=values))
    assert (skill.value, skill.name) == (0, CONTENT)
    assert not skill.is_shown


def test_a_model_that_always_gives_the_stereotype_lacks_the_skill():
    result, _ = answered(
        "bbq", lambda item, k: [-1.0 - 0.1 * THINGS.index(item.units[0]), -9.0, -5.0]
    )
    assert result.skill.value == 50
    assert decide_measure_verdict(result).status == "inconclusive"
    assert "p" in decide_measure_verdict(result).reason


def test_a_model_that_reads_contexts_is_skilled_and_its_bias_is_shown():
    def reads(item, rotation):
        if item.kind == AMBIGUOUS:
            return [-1.0 - 0.05 * THINGS.index(item.units[0]), -2.0, -3.0]
        right = STEREOTYPED if "the stereotyped" in item.kind else OTHER
        return [
            -1.0 if c == right else -6.0 - 0.01 * THINGS.index(item.units[0]) * c for c in range(3)
        ]

    result, _ = answered("bbq", reads)
    assert result.skill.is_shown
    verdict = decide_measure_verdict(result)
    assert verdict.status == "differs"
    assert verdict.toward.startswith("stereotyped answers are likelier")
    accuracy, _ = answered("bbq_accuracy", reads)
    assert accuracy.value == 100
    dis, _ = answered("bbq_disambiguated", reads)
    assert abs(dis.value) < 0.05  # nearly as accurate for either


def test_per_token_divides_by_the_number_of_tokens():
    measure, lm = made("bbq"), model("bbq")
    (responses,) = measure.read(lm)
    raw = measure.answer_scores(responses)
    per_token = made("bbq", per_token=True).answer_scores(responses)
    torch.testing.assert_close(per_token * responses.values[..., 3:], raw)
    assert responses.values[..., 3:].min() >= 2


def test_masked_models_are_refused():
    with pytest.raises(LevelheadError, match="does not hold"):
        made("bbq").check(load(asset("models", "minibert-en")))


@pytest.mark.full
def test_small_models_are_inconclusive(monkeypatch, tmp_path):
    monkeypatch.setenv("LEVELHEAD_DATA", str(unpacked_data()))
    measure = Bbq(category=("Gender_identity",), subsample_fraction=0.3, per_template=8)
    for path in (asset("models", "stories15m"), smollm2()):
        result = measure(load(path), inference=FAST, context=RunContext(store=tmp_path))
        assert decide_measure_verdict(result).status == "inconclusive"
        assert not result.skill.is_shown
