"""Steering: vectors are differences of means, detectors are right on words they have not seen."""

import contrasts
import numpy as np
import pytest
import torch

from levelhead.core.errors import LevelheadError, NotMeasurableError, UnknownNameError
from levelhead.data.counterfactuals.contrast_pairs import ContrastPair
from levelhead.mitigate.projection.baselines import training_half
from levelhead.mitigate.projection.subspace import read_activations
from levelhead.mitigate.steering.candidates import steering_candidates, steering_sites
from levelhead.mitigate.steering.detectors import NEUTRAL, LabelledRows, fit_group_detectors
from levelhead.mitigate.steering.fit import SteeringConfig, fit_steering, steer
from levelhead.models.edits.conditional_shift import ConditionalShift
from levelhead.models.edits.files import load_edits, save_edits
from levelhead.models.edits.shift import Shift
from levelhead.models.sites import Site

FRAMES = (
    *("{} was here .", "that is {} .", "there {} said that .", "a {} is quick and tired ."),
    *("{} is here", "the nurse said that {} was tired", "{} works as a doctor ."),
    *("there is the house and {}", "in the river {} was quick", "{} was lazy"),
)
WORDS = (("she", "he"), ("woman", "man"))
INNER, NEXT = Site("block_out", 0), Site("block_out", 1)
AT_WORD = SteeringConfig(pooling="word", split_by="words")


def pairs(words=WORDS):
    """Pairs whose sampled units are the frames: random models know nothing common to words."""
    result = []
    for frame in FRAMES:
        for first, second in words:
            start = frame.index("{}")
            spans = ((start, start + len(first)), (start, start + len(second)))
            texts = (frame.format(first), frame.format(second))
            result.append(ContrastPair(f"{first}: {frame}", *texts, spans, frame))
    return tuple(result)


def planted(gap=4.0, n_units=20, texts=4, width=8, n_groups=2, neutral=0, seed=0):
    """Rows of groups that differ along one axis each, with words in all groups."""
    rng = np.random.default_rng(seed)
    n_labels = n_groups + (neutral > 0)
    labels = np.tile(np.repeat(np.arange(n_labels), texts), n_units)
    units = [f"unit {i}" for i in range(n_units) for _ in range(n_labels * texts)]
    rows = rng.normal(size=(len(labels), width)) + 3
    for group in range(n_groups):
        rows[labels == group, group] += gap
    labels[labels == n_groups] = NEUTRAL
    return LabelledRows(torch.from_numpy(rows), labels, units)


# -- detectors


@pytest.mark.parametrize("method", ["logistic", "lda"])
@pytest.mark.parametrize(("n_groups", "neutral"), [(2, 0), (2, 1), (3, 0), (4, 1)])
def test_a_detector_is_right_on_other_words_and_its_accuracy_is_counted(method, n_groups, neutral):
    data = planted(n_groups=n_groups, neutral=neutral)
    names = [f"group {i}" for i in range(n_groups)]
    result = fit_group_detectors(data, names, method=method, seed=1)
    train = training_half(data.units, 1)
    for i, accuracy in enumerate(result.accuracies):
        # Literal: text by text, and words weigh alike because they have as many texts.
        right = {True: [], False: []}
        for row, label, is_training in zip(data.rows, data.labels, train, strict=True):
            if not is_training:
                fires = float(result.weights[i] @ row) + float(result.biases[i]) > 0
                right[bool(label == i)].append(fires == (label == i))
        assert accuracy.group == names[i]
        assert accuracy.sensitivity.value == pytest.approx(np.mean(right[True]))
        assert accuracy.specificity.value == pytest.approx(np.mean(right[False]))
        assert accuracy.accuracy.value == pytest.approx(
            (np.mean(right[True]) + np.mean(right[False])) / 2
        )
        assert accuracy.accuracy.value > 0.9
        assert accuracy.accuracy.value in accuracy.accuracy.interval
        assert accuracy.accuracy.interval.low > 0.5
        assert accuracy.accuracy.n == len(right[True]) + len(right[False]) == (~train).sum()
        torch.testing.assert_close(
            result.means[i], data.rows[torch.from_numpy(train & (data.labels == i))].mean(0)
        )


def test_two_groups_without_neutral_texts_have_one_plane():
    result = fit_group_detectors(planted(), ["a", "b"])
    assert torch.equal(result.weights[0], -result.weights[1])
    assert torch.equal(result.biases[0], -result.biases[1])
    apart = fit_group_detectors(planted(neutral=1), ["a", "b"])
    cosine = torch.nn.functional.cosine_similarity(*apart.weights, dim=0)
    assert cosine > -0.9  # neither fires in neutral texts


def test_the_training_half_alone_decides():
    data = planted()
    train = torch.from_numpy(training_half(data.units, 0))
    changed = data.rows.clone()
    changed[~train] += 0.01
    first, second = (
        fit_group_detectors(data._replace(rows=rows), ["a", "b"]) for rows in (data.rows, changed)
    )
    assert torch.equal(first.weights, second.weights)
    assert torch.equal(first.means, second.means)


@pytest.mark.parametrize("seed", range(5))
def test_labels_without_a_meaning_are_not_detected(seed):
    with pytest.raises(NotMeasurableError, match="at the site no linear detector reads a: it fi"):
        fit_group_detectors(planted(gap=0.0, seed=seed), ["a", "b"], seed=seed)


def test_a_half_without_a_group_is_refused():
    data = planted(n_units=4)
    train = training_half(data.units, 0)
    lacking = data._replace(labels=np.where(train, data.labels, 0))
    with pytest.raises(NotMeasurableError, match="the held-out half has no text of b"):
        fit_group_detectors(lacking, ["a", "b"])


# -- fits


@pytest.fixture(scope="module", params=["bert", "gpt2"])
def lm(request):
    name = {"bert": "BertForPreTraining", "gpt2": "GPT2LMHeadModel"}[request.param]
    return contrasts.lm(request.param, name)


def word_activations(lm, site, side, some=None):
    given = pairs() if some is None else some
    texts = [(pair.first, pair.second)[side] for pair in given]
    return read_activations(
        lm, texts, [pair.spans[side] for pair in given], [site], pooling="word"
    )[site]


def test_vectors_are_the_differences_of_the_means_of_the_training_half(lm):
    fit = fit_steering(lm, pairs(), [INNER, NEXT], config=AT_WORD)[NEXT]
    train = torch.from_numpy(training_half([pair.unit for pair in pairs()], 0))
    first, second = (word_activations(lm, NEXT, side)[train].mean(0) for side in (0, 1))
    torch.testing.assert_close(fit.vector("first"), first - second)
    torch.testing.assert_close(fit.vector("second"), second - first)
    assert (fit.pooling, fit.tokens, fit.n_texts) == ("word", "all", 4 * len(FRAMES))
    edit = fit.to_edit("shift", group="second", strength=0.5)
    assert edit == Shift(NEXT, fit.vector("second"), strength=0.5)
    assert fit.to_edit("shift") == fit.to_shift("first")
    assert fit.to_edit("conditional", group="second") == fit.to_conditional("second")
    assert fit.to_edit("mean_matching", strength=2) == fit.to_mean_matching(strength=2)


def test_mean_matching_makes_the_means_equal(lm):
    fit = fit_steering(lm, pairs(), [INNER], config=AT_WORD)[INNER]
    edited = lm.edited(fit.to_mean_matching())
    train = torch.from_numpy(training_half([pair.unit for pair in pairs()], 0))
    before, after = (
        [word_activations(model, INNER, side)[train].mean(0) for side in (0, 1)]
        for model in (lm, edited)
    )
    gap = (before[0] - before[1]).norm()
    assert gap > 0.1
    assert (after[0] - after[1]).norm() < 1e-4 * gap
    torch.testing.assert_close(after[0], sum(before) / 2, rtol=1e-4, atol=1e-4)


def test_conditional_steering_moves_one_group_to_the_other(lm):
    fit = fit_steering(lm, pairs(), [INNER], config=AT_WORD)[INNER]
    edited = lm.edited(fit.to_conditional("first"))
    train = torch.from_numpy(training_half([pair.unit for pair in pairs()], 0))
    first, second = (word_activations(edited, INNER, side)[train] for side in (0, 1))
    before = word_activations(lm, INNER, 1)[train]
    torch.testing.assert_close(second, before, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(first.mean(0), before.mean(0), rtol=1e-4, atol=1e-4)


def test_neutral_texts_teach_a_detector_to_be_silent(lm):
    other = pairs([("river", "house")])
    with_neutral = SteeringConfig(pooling="word", neutral=other, split_by="words")
    shares = []
    for config in (AT_WORD, with_neutral):
        fit = fit_steering(lm, pairs(), [INNER], config=config)[INNER]
        rows = torch.cat([word_activations(lm, INNER, side, other) for side in (0, 1)])
        shares.append(float(fit.to_mean_matching().fires(rows).any(-1).float().mean()))
    assert shares[0] == 1  # two groups part all texts among themselves
    assert shares[1] < 0.5


def test_edits_of_several_layers_are_fitted_one_after_the_other(lm):
    sites, given = [INNER, NEXT], {"group": "second", "strength": 2, "config": AT_WORD}
    cumulative = steer(lm, pairs(), sites, "conditional", **given | {"strength": 0.3})
    first = fit_steering(lm, pairs(), [INNER], config=AT_WORD)[INNER]
    first = first.to_conditional("second", strength=0.3)
    second = fit_steering(lm.edited(first), pairs(), [NEXT], config=AT_WORD)[NEXT]
    assert cumulative == (first, second.to_conditional("second", strength=0.3))
    base = steer(lm, pairs(), sites, "shift", fit_on="base", **given)
    fits = fit_steering(lm, pairs(), sites, config=AT_WORD)
    assert base == tuple(fits[site].to_shift("second", strength=2) for site in sites)


def test_a_site_where_earlier_edits_leave_nothing_is_named():
    lm = contrasts.lm("bert", "BertForPreTraining")
    with pytest.raises(
        NotMeasurableError, match="after the edits at block_out 0: at block_out 1 n"
    ):
        steer(lm, pairs(), [INNER, NEXT], config=AT_WORD)


def test_edits_are_saved_and_applied_alike(lm, tmp_path):
    edits = (
        *steer(lm, pairs(), [INNER], "conditional", group="second", config=AT_WORD),
        *steer(lm, pairs(), [NEXT], "shift", strength=-2, config=AT_WORD),
    )
    save_edits(edits, tmp_path / "edit")
    assert load_edits(tmp_path / "edit") == edits
    assert [type(edit) for edit in edits] == [ConditionalShift, Shift]
    texts = ["the nurse was here"]
    again = lm.edited(*load_edits(tmp_path / "edit")).embed(texts)
    assert torch.equal(again, lm.edited(*edits).embed(texts))
    assert not torch.equal(again, lm.embed(texts))


def test_more_groups_have_a_detector_each_and_a_text_is_in_one_half(lm):
    named = {
        ("a", "b"): pairs([("she", "he")]),
        # Other names of the units: the texts of "a" are those of the pairs before.
        ("a", "c"): tuple(
            pair._replace(unit=f"other {pair.unit}") for pair in pairs([("she", "doctor")])
        ),
    }
    fit = fit_steering(lm, named, [INNER], config=AT_WORD)[INNER]
    assert fit.groups == ("a", "b", "c")
    assert fit.n_texts == 3 * len(FRAMES)
    torch.testing.assert_close(fit.vector("a"), fit.means[0] - (fit.means[1] + fit.means[2]) / 2)
    # Half of the frames: were "a" in both halves, these would be other texts.
    held_out = [accuracy.sensitivity.n for accuracy in fit.accuracies]
    assert held_out == [len(FRAMES) // 2] * 3
    edit = fit.to_mean_matching()
    assert edit.vectors.shape == (3, 24)
    torch.testing.assert_close(
        edit.vectors.sum(0), torch.zeros(24, dtype=torch.float64), atol=1e-9, rtol=0
    )


def test_few_words_are_split_by_their_texts_and_this_is_told(lm):
    few = tuple(pair._replace(unit=pair.id.split(":")[0]) for pair in pairs())  # two words
    config = SteeringConfig(pooling="word")
    fit = fit_steering(lm, few, [INNER], config=config)[INNER]
    assert fit.split_by == "contexts"
    train = torch.from_numpy(training_half([pair.id for pair in few], 0))
    first, second = (word_activations(lm, INNER, side, few)[train].mean(0) for side in (0, 1))
    torch.testing.assert_close(fit.vector("first"), first - second)
    many = tuple(pair._replace(unit=f"{i} {pair.unit}") for i in range(2) for pair in pairs())
    assert len({pair.unit for pair in many}) == 2 * len(FRAMES)
    # The same texts under two names are one unit: there are ten, and not twenty.
    assert fit_steering(lm, many, [INNER], config=config)[INNER].split_by == "contexts"
    apart = tuple(pair._replace(unit=pair.id) for pair in pairs())
    assert fit_steering(lm, apart, [INNER], config=config)[INNER].split_by == "words"


def test_what_cannot_be_read_is_told(lm):
    strange = ContrastPair("x", "gloop is here", "he is here", ((0, 5), (0, 2)), "x")
    fit = fit_steering(lm, (*pairs(), strange), [INNER], config=AT_WORD)[INNER]
    assert [dropped.item for dropped in fit.dropped] == ["x"]
    assert fit.n_texts == 4 * len(FRAMES)
    with pytest.raises(NotMeasurableError, match="can read no text of first: "):
        fit_steering(lm, [strange], [INNER])
    with pytest.raises(NotMeasurableError, match="can read no text of first"):
        fit_steering(lm, (), [INNER])


def test_swapped_labels_are_not_detected(lm):
    """Every other frame has its sides exchanged: nothing common is left."""
    mixed = tuple(
        pair if i // 2 % 2 else pair._replace(first=pair.second, second=pair.first, spans=swapped)
        for i, pair in enumerate(pairs())
        for swapped in (pair.spans[::-1],)
    )
    with pytest.raises(NotMeasurableError, match="at block_out 0 no linear detector reads first"):
        fit_steering(lm, mixed, [INNER], config=AT_WORD)


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda fit: fit.to_shift("third"), "no group named 'third'"),
        (lambda fit: fit.to_edit("mean_matching", group="first"), "mean matching moves all groups"),
        (lambda fit: fit.to_edit("push"), "no steering method named 'push'"),
        (lambda fit: SteeringConfig(detector="svm"), "no detector named 'svm'"),
    ],
)
def test_impossible_edits_are_refused(call, problem):
    fit = fit_steering(contrasts.lm("bert"), pairs(), [INNER], config=AT_WORD)[INNER]
    with pytest.raises((LevelheadError, UnknownNameError), match=problem):
        call(fit)


def test_without_a_site_there_is_no_edit(lm):
    for fit_on in ("base", "cumulative"):
        with pytest.raises(LevelheadError, match="there is no site"):
            steer(lm, pairs(), [], fit_on=fit_on)


# -- candidates


def test_candidates_are_every_method_site_group_and_strength(lm):
    result = steering_candidates(lm, pairs(), strengths=(1, 2), config=AT_WORD)
    (site,) = steering_sites(lm)
    assert site == Site("block_out", 1)  # the middle of three layers is the one before the last
    assert [candidate.name for candidate in result.candidates] == [
        *("shift to first 1 at block_out 1", "shift to first 2 at block_out 1"),
        *("shift to second 1 at block_out 1", "shift to second 2 at block_out 1"),
        *("shift from first 1 at block_out 1", "shift from first 2 at block_out 1"),
        *("shift from second 1 at block_out 1", "shift from second 2 at block_out 1"),
        *("mean matching 1 at block_out 1", "mean matching 2 at block_out 1"),
    ]
    assert {candidate.kind for candidate in result.candidates} == {"steering"}
    fit = fit_steering(lm, pairs(), [site], config=AT_WORD)[site]
    assert result.edits["mean matching 2 at block_out 1"] == (fit.to_mean_matching(strength=2),)
    assert result.edits["shift to second 1 at block_out 1"] == (fit.to_shift("second"),)
    assert [note.split(" [")[0] for note in result.notes] == [
        f"held-out accuracy of the detector of {accuracy.group} {accuracy.accuracy.value:.4g}"
        for accuracy in fit.accuracies
    ]
    with pytest.raises(LevelheadError, match="give strengths above 0"):
        steering_candidates(lm, pairs(), strengths=(-1,))


@pytest.mark.parametrize(("layers", "expected"), [(1, [0]), (2, [0]), (3, [1]), (5, [2, 3])])
def test_sites_are_in_the_middle_and_before_the_last_layer(layers, expected):
    lm = contrasts.lm("bert", num_hidden_layers=layers)
    assert [site.layer for site in steering_sites(lm)] == expected
