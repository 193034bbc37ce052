"""Names that belong to several groups, each with a probability."""

import csv

import numpy as np
import pytest
import torch
import zoo
from assets import asset
from metric_cases import CALLBACK_OPTIONS, model

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.run_context import Inference
from levelhead.data.lexicons.name_lists import CountedName, NameList, read_name_list
from levelhead.data.prompts.decisions import ApplicantName
from levelhead.data.records import LabelledExample
from levelhead.measures.classification.counterfactual import Counterfactual
from levelhead.measures.classification.name_pairs import draw_trios
from levelhead.measures.decisions.callback import Callback
from levelhead.measures.embedding.seat import Seat, seat_effect_size
from levelhead.measures.group_tables.weighted_groups import (
    group_signal,
    values_of_drawn_groups,
    weighted_difference,
    weighted_effect_size,
    weighted_ratio,
)
from levelhead.measures.inference import estimate
from levelhead.measures.metric import jackknife_variance
from levelhead.stats.designs import Resample, clustered_design, count_items, grouped_design

QUICK = Inference(seed=0, resamples=199, permutations=199)
WORDS = zoo.WORDS[:12]  # words that the tiny tokenizers know
OPTIONS = {key: CALLBACK_OPTIONS[key] for key in CALLBACK_OPTIONS if key != "groups"} | {
    "groups": ("black", "white")
}


def write_names(path, rows, groups=("black", "white")):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows((("name", *groups), *((name, *c) for name, c in rows)))
    return str(path)


def test_counts_become_probabilities(tmp_path):
    path = write_names(
        tmp_path / "names.csv", [("Ann", (9, 1, 10)), ("Bo", (0, 4, 0))], ("x", "y", "z")
    )
    names = read_name_list(path)
    assert names.probabilities(("x", "y")) == {"Ann": (0.45, 0.05), "Bo": (0.0, 1.0)}
    draws = names.draw_probabilities(("x", "y"), 4000, np.random.default_rng(0))
    assert draws["Ann"].mean(0) == pytest.approx([9.5 / 21.5, 1.5 / 21.5], abs=0.01)
    drawn = [names.draw_groups(("x", "y"), np.random.default_rng(i)) for i in range(400)]
    assert all("Bo" in row["y"] for row in drawn)
    assert np.mean(["Ann" in row["x"] for row in drawn]) == pytest.approx(0.45, abs=0.08)
    assert np.mean(["Ann" in row["y"] for row in drawn]) == pytest.approx(0.05, abs=0.04)


def test_published_names_are_of_one_group_and_have_no_counts(monkeypatch):
    monkeypatch.setenv("LEVELHEAD_DATA", str(asset("data")))
    names = read_name_list("bloomberg-names")
    assert names.groups == ("white", "black", "hispanic", "asian")
    assert {sum(row.counts) for row in names.names} == {1.0}
    assert names.draw_probabilities(("black", "white"), 5, np.random.default_rng(0)) == {}


@pytest.mark.parametrize(
    ("rows", "groups", "text"),
    [
        ([("Ann", (1, 2)), ("Ann", (3, 4))], ("x", "y"), "lists a name twice"),
        ([("Ann", (0, 0))], ("x", "y"), "say nothing of its group"),
        ([("Ann", (-1, 2))], ("x", "y"), "say nothing of its group"),
        ([("Ann", ("nan", 2))], ("x", "y"), "say nothing of its group"),
        ([("", (1, 2))], ("x", "y"), "row 1 of"),
        ([("Ann", (1,))], ("x",), "counts of two groups"),
    ],
)
def test_faulty_lists_are_refused(tmp_path, rows, groups, text):
    with pytest.raises(LevelheadError, match=text):
        read_name_list(write_names(tmp_path / "names.csv", rows, groups))


def test_many_resamples_at_once_equal_the_literal_form():
    rng = np.random.default_rng(1)
    p = rng.beta(0.5, 0.5, (12, 3))
    tables = np.stack([5 + rng.standard_normal((12, 3)), p, 1 - p], axis=2)
    design, rows = grouped_design(12), rng.integers(0, 12, (4, 12))
    for reduction in (weighted_difference, weighted_ratio, weighted_effect_size):
        literal = [
            [
                float(reduction(torch.from_numpy(tables[:, i]), Resample(design, (row,))))
                for i in range(3)
            ]
            for row in rows
        ]
        assert np.allclose(reduction.vectorised(tables, count_items(design, [rows])), literal)


def metric_of_names(tmp_path):
    rows = [(f"n{i}", (i % 2, 1 - i % 2)) for i in range(12)]
    return Callback(names=write_names(tmp_path / "names.csv", rows)).primary_metric


def simulate(metric, *, effect, repeats, seed, n_names=24, people=4):
    """Coverage and rejections for names whose people are counted, of few people each."""
    rng = np.random.default_rng(seed)
    p_all = rng.beta(0.4, 0.4, 400_000)
    truth = effect * (
        (p_all * p_all).mean() / p_all.mean() - (p_all * (1 - p_all)).mean() / (1 - p_all).mean()
    )
    covered = rejected = 0
    for number in range(repeats):
        p = rng.beta(0.4, 0.4, n_names)
        total = 1 + rng.poisson(people - 1, n_names)
        first = rng.binomial(total, p)
        names = NameList(
            ("black", "white"),
            tuple(
                CountedName(f"n{i}", (float(a), float(b)))
                for i, (a, b) in enumerate(zip(first, total - first, strict=True))
            ),
        )
        y = effect * p + rng.standard_normal(n_names)
        values = torch.from_numpy(np.stack([y, first / total, 1 - first / total], axis=1))
        draws = values_of_drawn_groups(
            metric, values, [row.name for row in names.names], (names, names.groups)
        )
        result = estimate(
            Inference(seed=number, resamples=199),
            metric,
            values,
            clustered_design(range(n_names), within=list(2 * first > total)),
            extra_variance=jackknife_variance(draws),
        )
        covered += result.interval.low <= truth <= result.interval.high
        rejected += result.p.value <= 0.05
    return covered / repeats, rejected / repeats


def test_intervals_cover_and_tests_hold_their_level(tmp_path):
    metric = metric_of_names(tmp_path)
    # Bounds of about three standard errors of 100 samples.
    covered, _ = simulate(metric, effect=1.0, repeats=100, seed=3)
    assert 0.88 <= covered <= 1
    covered, rejected = simulate(metric, effect=0.0, repeats=100, seed=4)
    assert 0.88 <= covered <= 1
    assert rejected <= 0.12


@pytest.mark.full
@pytest.mark.parametrize("people", [4, 100])
@pytest.mark.parametrize("n_names", [24, 60])
def test_coverage_and_level_at_full_size(tmp_path, n_names, people):
    metric = metric_of_names(tmp_path)
    covered, _ = simulate(metric, effect=1.0, repeats=600, seed=5, n_names=n_names, people=people)
    # With few names of few people each, the intervals are wider than they need be.
    assert 0.92 <= covered <= (0.97 if n_names * people > 100 else 0.99)
    _, rejected = simulate(metric, effect=0.0, repeats=600, seed=6, n_names=n_names, people=people)
    assert abs(rejected - 0.05) <= 2 * (0.05 * 0.95 / 600) ** 0.5


# -- call-backs


def test_names_of_one_group_give_the_ordinary_value(tmp_path):
    lm = model("callback")
    people = [(word, "black" if i % 2 else "white") for i, word in enumerate(WORDS)]
    given = tuple(ApplicantName(name, group, "") for name, group in people)
    path = write_names(
        tmp_path / "names.csv",
        [(name, (7 * (group == "black"), 7 * (group == "white"))) for name, group in people],
    )
    plain = Callback(names=given, **OPTIONS)
    counted = Callback(names=path, **OPTIONS)
    for metric in ("callback", "callback_impact_ratio"):
        expected, got = (
            measure.with_options(metric=metric)(lm, inference=QUICK) for measure in (plain, counted)
        )
        assert got.value == pytest.approx(expected.value, abs=1e-9)
        assert got.n == expected.n == 12
    assert any("carry 100% of the difference" in note for note in got.notes)
    # Counts of two people say less than counts of seven hundred.
    few, many = (
        Callback(
            names=write_names(
                tmp_path / f"{size}.csv",
                [(n, (size * (g == "black"), size * (g == "white"))) for n, g in people],
            ),
            **OPTIONS,
        )(lm, inference=QUICK)
        for size in (1, 700)
    )
    assert few.interval.high - few.interval.low > many.interval.high - many.interval.low


def test_names_that_say_nothing_of_the_group_are_no_parity(tmp_path):
    lm = model("callback")
    rows = [(word, (5, 5 + i % 2)) for i, word in enumerate(WORDS)]
    with pytest.raises(NotMeasurableError, match="of the difference between the groups"):
        Callback(names=write_names(tmp_path / "names.csv", rows), **OPTIONS)(lm)
    few = [(word, (1 * (i < 3), 9 * (i > 2))) for i, word in enumerate(WORDS)]
    with pytest.raises(NotMeasurableError, match="names in expectation"):
        Callback(names=write_names(tmp_path / "few.csv", few), **OPTIONS)(lm)
    with pytest.raises(LevelheadError, match="gender would change nothing"):
        Callback(names=write_names(tmp_path / "g.csv", rows), gender="men")
    assert group_signal(np.array([[1.0, 0.0], [0.0, 1.0]])) == 1
    assert group_signal(np.array([[0.5, 0.5], [0.2, 0.2]])) == 0


# -- SEAT


def test_names_replace_the_targets_of_a_test(tmp_path, monkeypatch):
    monkeypatch.setenv("LEVELHEAD_DATA", str(asset("data")))
    sides = (
        (("he is here.", "he"), ("she is here.", "she")),
        (("he was in.", "he"), ("a man", "man")),
    )
    sets = dict(zip(("targ1", "targ2", "attr1", "attr2"), ((), (), *sides), strict=True))
    monkeypatch.setattr("levelhead.measures.embedding.seat.make_weat_sentences", lambda name: sets)
    lm = model("seat")
    rows = [(word, (5 * (i % 2), 5 * (1 - i % 2))) for i, word in enumerate(WORDS)]
    path = write_names(tmp_path / "names.csv", rows)
    measure = Seat(weat_test="weat3", names=path, groups=("black", "white"), pooling="mean")
    (responses,) = measure.read(lm)
    assert str(measure.design(responses, measure.primary_metric)) in ("5+5 words", "6+6 words")
    sides = {
        group: [
            row
            for item, row in zip(responses.items, responses.values, strict=True)
            if item.group in "XY" and WORDS.index(item.units[0]) % 2 == number
        ]
        for group, number in (("black", 1), ("white", 0))
    }
    expected = seat_effect_size(
        *(torch.stack(rows) for rows in sides.values()),
        responses.group_values("A"),
        responses.group_values("B"),
    )
    result = measure.compute_measurement(lm, [responses], inference=QUICK)
    assert result.value == pytest.approx(expected, rel=1e-6)
    assert result.above.startswith("names of black sit closer to")
    assert result.interval.low < result.value < result.interval.high
    with pytest.raises(LevelheadError, match="attributes of a WEAT test"):
        Seat(names=path)


# -- counterfactual classification


def test_texts_get_names_of_both_groups(tmp_path):
    rows = [(f"{word}{i}", (9, 1) if i % 2 else (0, 5)) for i in range(5) for word in WORDS]
    path = write_names(tmp_path / "names.csv", rows)
    trios = draw_trios(path, ("black", "white"), np.random.default_rng(0))
    used = [name for trio in trios for name in trio[1:]]
    assert len(set(used)) == len(used)
    assert {trio.group for trio in trios} == {"black", "white"}
    # A name of nobody in a group is never drawn for it.
    shares = read_name_list(path).probabilities(("black", "white"))
    column = {"black": 0, "white": 1}
    for trio in trios:
        assert shares[trio.name][column[trio.group]] > 0
        assert shares[trio.placebo][column[trio.group]] > 0
        assert shares[trio.other][1 - column[trio.group]] > 0


def test_decisions_change_with_names(tmp_path):
    lm = model("counterfactual")
    rows = [(word, (5 * (i % 2), 5 * (1 - i % 2))) for i, word in enumerate(WORDS)]
    path = write_names(tmp_path / "names.csv", rows)
    texts = tuple(
        LabelledExample(f"t{i}", f"{{name}} is {WORDS[i % 9]} there .", "") for i in range(40)
    )
    texts += (LabelledExample("none", "the river .", ""),)
    measure = Counterfactual(
        texts, names=path, groups=("black", "white"), metric="counterfactual_shift"
    )
    real, control = measure.queries(lm)
    assert len(control.items) == 40
    for item, placebo in zip(real.items, control.items, strict=False):
        (first,), (second,) = item.queries
        (again,), (third,) = placebo.queries
        assert first == again
        assert len({first, second, third}) == 3
    result = measure(lm, inference=QUICK)
    assert result.n == 40
    assert any("the text has no {name}" in note for note in result.notes)
    assert result.interval.low <= result.value <= result.interval.high
    with pytest.raises(LevelheadError, match="no text has"):
        Counterfactual(texts[-1:], names=path, groups=("black", "white")).queries(lm)
    with pytest.raises(LevelheadError, match="names without groups"):
        Counterfactual(texts, names=path)
