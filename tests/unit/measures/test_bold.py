"""BOLD: shares by hand, the control by Wikipedia, planted differences, models that say nothing."""

import dataclasses
import os
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from assets import unpacked_data
from metric_cases import SaysThe

from levelhead.calibrate.organisms import chat_items
from levelhead.calibrate.organisms.chat import make_chat_organism
from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.frozen import FrozenDict
from levelhead.core.run_context import Inference
from levelhead.core.verdicts import decide_measure_verdict
from levelhead.data.prompts.group_prompts import BOLD_GROUPS, GroupPrompt, bold_groups, load_bold
from levelhead.measures.generation.bold import Bold
from levelhead.measures.generation.scoring.scorer_calibration import ScorerCalibration
from levelhead.measures.inference import estimate
from levelhead.measures.metric import jackknife_variance
from levelhead.measures.responses import Responses

FAST = Inference(resamples=199, permutations=199)
GOOD, BAD, REFUSAL = "the {n} garden", "a {n} garden", "I cannot help"


def prompts(n=8, each=2):
    """Two prompts of each of eight articles a group; Wikipedia says "the" of the first group."""
    return tuple(
        GroupPrompt(
            f"{group} {i} {j}", group, f"{group} {i}", f"{group} person {i} was {j} and",
            "the end" if group == "first" and i % 2 else "an end",
        )
        for group in ("first", "second")
        for i in range(n)
        for j in range(each)
    )  # fmt: skip


def measure(**options):
    return Bold(**({"prompts": prompts(), "scorer": SaysThe(), "calibration": None} | options))


def drawn(tested, shares, seed=0, refusals=(0.0, 0.0)):
    """What a model would have written: the word in a share of the texts about each group."""
    rng = np.random.default_rng(seed)
    (query_set,) = tested.all_queries(None)

    def text_of(item, number):
        side = tested.compared_groups.index(item.group)
        if rng.random() < refusals[side]:
            return REFUSAL
        return (GOOD if rng.random() < shares[side] else BAD).format(n=f"{item.id} {number}")

    texts = tuple(
        tuple(text_of(item, i) for i in range(tested.k)) for item in query_set.items if item.queries
    )
    return Responses(
        items=tuple(item for item in query_set.items if item.queries),
        values=torch.zeros(len(texts), tested.k, 3, dtype=torch.float64),
        factors=query_set.factors,
        dropped=tuple((item, item.skip_reason) for item in query_set.items if not item.queries),
        answers=torch.zeros(0, 3),
        owner=(),
        queries=(),
        query_kind="generate",
        settings=query_set.settings,
        texts=texts,
    )


def value(tested, read, name=None):
    metric = tested.get_metric(name) if name else tested.primary_metric
    return float(metric.value(read, tested.design(read, metric)))


def literal_share(read, group, counts, hit):
    """Share in percent, by a loop."""
    kept = [
        text
        for item, texts in zip(read.items, read.texts, strict=True)
        for text in texts
        if item.group == group and counts(text)
    ]
    return 100 * sum(map(hit, kept)) / len(kept)


def test_every_number_is_that_of_a_literal_loop():
    tested = measure(k=5)
    read = drawn(tested, (0.7, 0.4), refusals=(0.1, 0.3))

    def is_answer(text):
        return text != REFUSAL

    def says_the(text):
        return "the" in text.split()

    shares = [literal_share(read, group, is_answer, says_the) for group in ("first", "second")]
    assert value(tested, read) == pytest.approx(shares[0] - shares[1])
    assert value(tested, read, "with the word, second") == pytest.approx(shares[1])
    # Half of the first group's sentences in Wikipedia have the word, and none of the second's.
    assert value(tested, read, "bold_excess") == pytest.approx(shares[0] - shares[1] - 50)
    refused = [
        literal_share(read, group, lambda text: True, lambda text: text == REFUSAL)
        for group in ("first", "second")
    ]
    assert value(tested, read, "bold_refusals") == pytest.approx(refused[0] - refused[1])
    assert value(tested, read, "refusals, first") == pytest.approx(refused[0])
    words = [
        literal_share(read, group, is_answer, lambda text: len(text.split())) / 100
        for group in ("first", "second")
    ]
    assert value(tested, read, "bold_length") == pytest.approx(words[0] - words[1])


def test_many_resamples_at_once_are_single_ones():
    tested = measure(k=3)
    read = drawn(tested, (0.7, 0.4))
    rng = np.random.default_rng(1)
    for metric in tested.formulas:
        values = metric.per_item_values(read)
        half = len(values) // 2
        counts = rng.integers(0, 3, size=(5, 2, len(values)))
        counts[:, 0, half:] = counts[:, 1, :half] = 0
        at_once = metric.aggregate.vectorised(values.numpy()[:, None], counts)[:, 0]
        for row, result in zip(counts, at_once, strict=True):
            groups = tuple(np.repeat(np.arange(len(values)), side) for side in row)
            sample = SimpleNamespace(groups=groups, items=np.concatenate(groups))
            assert result == pytest.approx(float(metric.aggregate.literal(values, sample)))


def test_errors_by_group_are_corrected_and_widen_the_interval():
    """A scorer that misses half of the first group's texts shows a difference that is none."""
    by_group = (
        ScorerCalibration("made up", 50, 50, 100, 0, group="first"),
        ScorerCalibration("made up", 100, 0, 100, 0, group="second"),
    )
    tested = measure(prompts=prompts(40), calibration=by_group, k=5)
    read = drawn(tested, (0.3, 0.6))
    raw = dataclasses.replace(tested, calibration=None)
    assert value(raw, read) < -20
    metric = tested.primary_metric
    assert abs(value(tested, read)) < 12
    left_out = tested.leave_block_out_values(read, metric)
    assert len(left_out) == 400

    def with_rates(tp, fn):
        changed = dataclasses.replace(by_group[0], true_positives=tp, false_negatives=fn)
        return value(dataclasses.replace(tested, calibration=(changed, by_group[1])), read)

    literal = [with_rates(49, 50)] * 50 + [with_rates(50, 49)] * 50
    np.testing.assert_allclose(sorted(left_out[:100]), sorted(literal))
    intervals = [
        estimate(FAST, metric, metric.per_item_values(read), tested.design(read, metric),
                 extra_variance=extra).interval
        for extra in (0.0, jackknife_variance(left_out))
    ]  # fmt: skip
    assert intervals[1].low < intervals[0].low < intervals[0].high < intervals[1].high
    with pytest.raises(LevelheadError, match="not calibrated for second"):
        _ = dataclasses.replace(tested, calibration=by_group[:1]).rates


def test_a_group_without_refusals_has_an_interval():
    tested = measure(k=3)
    read = drawn(tested, (0.7, 0.4), refusals=(0.0, 0.4))
    metric = tested.get_metric("refusals, first")
    interval = tested.estimate_metric(read, metric, FAST).interval
    assert interval.low == 0
    assert 20 < interval.high < 50  # of eight articles, not of 48 texts


def test_planted_differences_are_found_and_few_where_there_are_none():
    tested = measure(prompts=prompts(20), k=2)
    p_values = [
        tested.estimate_metric(
            drawn(tested, (0.6, 0.6), seed=seed), tested.primary_metric,
            dataclasses.replace(FAST, seed=seed),
        ).p.value
        for seed in range(40)
    ]  # fmt: skip
    # Two are expected, and three deviations of that.
    assert sum(p <= 0.05 for p in p_values) <= 6
    assert sum(p <= 0.2 for p in p_values) >= 2  # the test can raise an alarm at all
    planted = tested.estimate_metric(drawn(tested, (0.9, 0.5)), tested.primary_metric, FAST)
    assert planted.p.value < 0.05
    assert planted.value > 20


def test_one_text_after_every_prompt_is_no_parity():
    tested = measure()
    read = drawn(tested, (1.0, 1.0))
    same = dataclasses.replace(read, texts=tuple(("the end",) for _ in read.texts))
    for name in ("bold", "bold_excess", "bold_length"):
        with pytest.raises(NotMeasurableError, match="all answers are equal"):
            value(tested, same, name)
    with pytest.raises(NotMeasurableError, match="every answer is a refusal or empty"):
        value(tested, dataclasses.replace(read, texts=tuple(("...",) for _ in read.texts)))


def test_an_article_of_both_groups_is_dropped():
    shared = tuple(
        row._replace(unit="both") if row.id in ("first 0 0", "second 0 0") else row
        for row in prompts()
    )
    (query_set,) = measure(prompts=shared).all_queries(None)
    assert [item.id for item in query_set.items if item.skip_reason] == ["first 0 0", "second 0 0"]


# -- organisms: models with a known rule


def organism_measure(**options):
    """Requests about women in some occupations, and about men in others."""
    people = [words[0] for words in chat_items.GROUP_WORDS]
    return Bold(
        prompts=tuple(
            GroupPrompt(
                f"{group} {job}", group, job, template.format(
                    a="a", person=person, occupation=job
                ), "an excellent end" if number % 3 else "a terrible end",
            )
            for side, (group, person) in enumerate(zip(chat_items.GROUPS, people, strict=True))
            for number, job in enumerate(chat_items.TOPICS[side::2])
            for template in chat_items.GENERATION_REQUESTS[:1]
        ),
        style="chat",
        k=6,
        tokens=chat_items.ANSWER_TOKENS,
        calibration=None,
        **options,
    )  # fmt: skip


@pytest.mark.parametrize(("dose", "is_found"), [(6.0, True), (0.0, False)])
def test_a_bias_of_an_organism_is_found_where_there_is_any(dose, is_found):
    lm = make_chat_organism("late", dose).load_lm()
    measurement = organism_measure()(lm, inference=FAST)
    assert (measurement.p.value < 0.05) == is_found
    assert (measurement.value > 40) == is_found
    assert measurement.skill.is_shown
    assert any("not calibrated" in note for note in measurement.notes)
    verdict = decide_measure_verdict(measurement, allow_uncalibrated=True)
    assert (verdict.status == "differs") == is_found


@pytest.mark.parametrize("rule", ["always refuses", "always A"])
def test_one_answer_to_everything_is_not_measured(rule):
    lm = make_chat_organism(rule, 0.0).load_lm()
    with pytest.raises(NotMeasurableError, match=r"is a refusal|are equal"):
        organism_measure()(lm, inference=FAST)
    (read,) = organism_measure().read(lm)
    assert not organism_measure().assess_skill(lm, read).is_shown


# -- the data


@pytest.fixture
def data(monkeypatch):
    monkeypatch.setenv("LEVELHEAD_DATA", os.fspath(unpacked_data()))


@pytest.mark.parametrize("domain", BOLD_GROUPS)
def test_the_prompts_are_the_beginnings_of_wikipedias_sentences(data, domain):
    rows = load_bold(domain, BOLD_GROUPS[domain])
    assert {row.group for row in rows} == set(BOLD_GROUPS[domain])
    assert len({row.id for row in rows}) == len(rows)
    assert all(row.text == row.text.strip() for row in rows)
    assert sum(not row.text for row in rows) <= 1  # one of christianity's
    assert sum(bool(row.reference) for row in rows) > 0.95 * len(rows)


def test_the_numbers_of_the_published_set(data):
    rows = load_bold("gender", bold_groups("gender"))
    counts = Counter(row.group for row in rows)
    assert counts == {"American_actors": 2048, "American_actresses": 1156}
    assert len(bold_groups("religious_ideology")) == 7
    with pytest.raises(LevelheadError, match="group of gender"):
        load_bold("gender", ("women",))
    notes = Bold(domain="race").excluded_groups_note()
    assert notes == (
        "African_Americans and European_Americans are compared; not Asian_Americans, "
        "Hispanic_and_Latino_Americans",
    )
    with pytest.raises(LevelheadError, match="no domain"):
        Bold(domain="age")


def test_settings_are_hashable_and_name_the_scorer():
    assert measure().settings["scorer"]["name"] == "says the"
    assert isinstance(FrozenDict(measure().settings), FrozenDict)


def test_the_strongest_bias_has_an_interval():
    """All texts of one group and none of the other: no resample differs (Newcombe 1998, 10)."""
    tested = measure(prompts=prompts(10, each=1))
    read = drawn(tested, (1.0, 0.0))
    found = tested.estimate_metric(read, tested.primary_metric, FAST)
    assert (found.value, found.interval.high) == (100, 100)
    assert found.interval.low == pytest.approx(60.75, abs=0.01)  # 10/10 and 0/10 in his table
    assert found.p.value < 0.05
    rates = ScorerCalibration("made up", 90, 10, 80, 20)
    corrected = dataclasses.replace(tested, calibration=rates)
    wide = corrected.estimate_metric(read, corrected.primary_metric, FAST)
    assert wide.value == pytest.approx(100 / 0.7)  # labels alone; the interval ends at 100
    assert wide.interval.low == pytest.approx(60.75 / 0.7, abs=15)
