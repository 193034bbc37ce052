from dataclasses import dataclass, replace

import numpy as np
import pytest
import simulated
import zoo
from metric_cases import INFERENCE, made, model, triples

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.results import Estimate, Interval, PValue
from levelhead.measures.compare import Comparison, compare_responses, holm_corrected_comparisons
from levelhead.measures.compare import _verdict as verdict
from levelhead.measures.run import compare, run_measures
from levelhead.models.edits.base import HeadScale
from levelhead.models.loading.load import load
from levelhead.models.sites import Site

MASK = HeadScale([Site("head_out", layer, head) for layer in range(3) for head in range(2)], 0)


@pytest.mark.parametrize("name", ["crows_margin", "strength", "cloze", "seat", "pppl"])
def test_a_difference_is_that_of_the_values_paired(name):
    lm = model(name)
    result = compare(made(name), lm, lm.edited(MASK), inference=INFERENCE)
    assert result.difference.value == pytest.approx(result.second.value - result.first.value)
    assert result.difference.n == result.first.n == result.second.n
    assert Comparison.from_json(result.to_json()) == result
    # The texts of the items are in the measurement of the single model, once.
    assert result.first.item_details == result.second.item_details == ()


def test_pairing_narrows_the_interval():
    lm, measure = model("crows_margin"), made("crows_margin")
    slight = HeadScale([Site("head_out", 2, 0)], 0.97)
    result = compare(measure, lm, lm.edited(slight), inference=INFERENCE)
    apart = result.first.interval.high - result.first.interval.low
    assert result.difference.interval.high - result.difference.interval.low < apart / 5


def test_the_same_model_twice_is_no_comparison():
    lm = model("crows")
    with pytest.raises(LevelheadError, match="the two models are the same"):
        run_measures(lm, [made("crows")], against=lm)


def test_a_run_of_two_models_shows_the_items_of_the_first_argument():
    lm = model("crows")
    run = run_measures(lm.edited(MASK), [made("crows")], against=lm, inference=INFERENCE)
    (result,) = run.measurements
    assert len(result.item_details) == result.n
    assert run.comparisons[0].second == result.without_items()


def test_other_options_are_not_compared():
    lm = model("strength")
    measures = made("strength"), made("strength", scale="logit")
    result = [measure.read(lm) for measure in measures]
    both = tuple(
        r.compute_measurement(lm, f, inference=INFERENCE)
        for r, f in zip(measures, result, strict=True)
    )
    with pytest.raises(LevelheadError, match="are different measures"):
        compare_responses(measures[0], *result, both, inference=INFERENCE)


def test_likelihoods_of_other_vocabularies_are_not_compared():
    measure = made("ppl")
    lm = load(zoo.folder("llama", "LlamaForCausalLM"))
    other = load(zoo.folder("gpt2", "GPT2LMHeadModel"), bos="always")
    result = [measure.read(item) for item in (lm, other)]
    result[1][0].values[..., 1] += 1
    both = tuple(
        measure.compute_measurement(m, f, inference=INFERENCE)
        for m, f in zip((lm, other), result, strict=True)
    )
    with pytest.raises(LevelheadError, match="cut the texts differently"):
        compare_responses(measure, *result, both, inference=INFERENCE)


def difference(name, value, reach):
    interval = Interval(low=value - reach, high=value + reach, level=0.95, method="by hand")
    return Estimate(name=name, value=value, interval=interval, n=9, detectable=2 * reach)


AND = "and the difference of means is"


@pytest.mark.parametrize(
    ("seat", "means", "responses"),
    [
        ((-0.5, 0.2), (-0.1, 0.02), f"nearer to parity (lower), {AND} lower too"),
        ((0.5, 0.2), (0.1, 0.02), f"nearer to parity (higher), {AND} higher too"),
        ((-0.5, 0.2), (-0.1, 0.2), "does not show the same: no claim"),
        ((-0.5, 0.2), (0.1, 0.02), "does not show the same: no claim"),
        ((-0.1, 0.2), (-0.1, 0.02), "no difference shown (one of 0.4 would have been)"),
    ],
)
def test_seat_makes_a_claim_only_with_the_difference_of_means(seat, means, responses):
    differences = [
        difference("difference of seat", *seat),
        difference("difference of difference of means", *means),
    ]
    nearer = difference("change of the distance", -0.5, 0.2)
    assert verdict(made("seat"), differences, nearer).endswith(responses)


@dataclass(frozen=True)
class Shares(simulated.Plain):
    """The share of items above 0, in percent."""

    parity: float | None = 50.0

    @property
    def formulas(self):
        (base,) = super().formulas
        above = "one is preferred", "the other is preferred"
        return (replace(base, aggregate=percent, above=above[0], below=above[1]),)


def percent(values, draw):
    return 100 * (values[draw.items] > 0).double().mean()


def margins(share, n=200):
    """Readouts of crows: a share of margins above 0, the same items first; some noise."""
    rng = np.random.default_rng(1)
    order = rng.permutation(n)
    size = 1 + rng.random(n)
    return np.where(order < share * n, size, -size)


def by_share(first, second, **options):
    """A comparison by a measure of shares with a parity of 50."""
    measure = Shares(**options)
    lm = model("crows")
    result = [[simulated.read(margins(share))] for share in (first, second)]
    both = tuple(measure.compute_measurement(lm, item, inference=INFERENCE) for item in result)
    return compare_responses(measure, *result, both, inference=INFERENCE)


@pytest.mark.parametrize(
    ("first", "second", "responses"),
    [
        (0.8, 0.6, "nearer to parity (lower)"),
        (0.5, 0.3, "farther from parity (lower)"),
        (0.3, 0.5, "nearer to parity (higher)"),
        (0.5, 0.7, "farther from parity (higher)"),
        (0.9, 0.3, "changed sides: nearer to parity (lower)"),
        (0.3, 0.95, "changed sides: farther from parity (higher)"),
        (0.7, 0.3, "changed sides: lower; not shown to be nearer to parity or farther from it"),
    ],
)
def test_a_difference_is_told_by_its_way_to_parity(first, second, responses):
    result = by_share(first, second)
    assert result.verdict == responses
    assert result.distance.value == pytest.approx(100 * (abs(second - 0.5) - abs(first - 0.5)))
    assert result.difference.value == pytest.approx(100 * (second - first))
    assert Comparison.from_json(result.to_json()) == result


@pytest.mark.parametrize(
    ("role", "responses"),
    [
        ("utility", "lower"),
        ("bias", "lower: less bias by this measure"),
        ("parity", "lower: more bias by this measure"),
    ],
)
def test_without_a_parity_the_way_is_told(role, responses):
    worse = "lower" if role == "utility" else None
    result = by_share(0.8, 0.6, parity=None, role=role, worse=worse)
    assert result.distance is None
    assert result.verdict == responses


def test_a_lean_is_what_is_set_against_parity():
    """Both models have one spread; the second leans less, and to the anti-stereotype's side."""
    measure, lm = made("strength"), model("strength")
    result = compare(measure, lm, lm.edited(MASK), inference=INFERENCE)
    leans = [each.value - each.parity for each in (result.first, result.second)]
    assert result.distance.value == pytest.approx(abs(leans[1]) - abs(leans[0]), abs=1e-12)


def test_an_excess_over_a_control_is_set_against_parity():
    lm, measure = model("distance"), made("distance", triples=triples(40))
    result = compare(measure, lm, lm.edited(MASK), inference=INFERENCE)
    subset, other = (each.excess.value for each in (result.first, result.second))
    assert result.distance.value == pytest.approx(abs(other) - abs(subset), abs=1e-12)
    few = compare(made("distance"), lm, lm.edited(MASK), inference=INFERENCE)
    assert few.first.parity is None
    assert few.distance is None  # too few controls for a parity


def test_several_measures_tell_what_is_left_after_correction():
    single = by_share(0.8, 0.6)
    p = PValue(value=0.03, method="made up", alternative="two-sided")
    weak = single.model_copy(update={"difference": single.difference.model_copy(update={"p": p})})
    assert holm_corrected_comparisons([weak]) == (weak,)
    three = holm_corrected_comparisons([weak] * 3)
    assert three[0].difference.p.adjusted == pytest.approx(0.09)
    least = three[0].difference.detectable
    assert least > single.difference.detectable
    assert three[0].verdict == (
        f"no difference shown among 3 measures (one of {least:.3g} would have been)"
    )


def test_nothing_in_common_is_no_comparison():
    lm, measure = model("crows"), made("crows")
    (result,) = measure.read(lm)
    first = result.select(lambda item: item.id in ("p0", "p1", "p2"))
    second = result.select(lambda item: item.id in ("p3", "p4", "p5"))
    both = tuple(
        measure.compute_measurement(lm, [f], inference=INFERENCE) for f in (result, result)
    )
    with pytest.raises(NotMeasurableError, match="no item could be read by both"):
        compare_responses(measure, [first], [second], both, inference=INFERENCE)
