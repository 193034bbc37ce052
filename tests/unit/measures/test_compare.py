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
    found = compare(made(name), lm, lm.edited(MASK), inference=INFERENCE)
    assert found.difference.value == pytest.approx(found.second.value - found.first.value)
    assert found.difference.n == found.first.n == found.second.n
    assert Comparison.from_json(found.to_json()) == found


def test_pairing_narrows_the_interval():
    lm, ruler = model("crows_margin"), made("crows_margin")
    slight = HeadScale([Site("head_out", 2, 0)], 0.97)
    found = compare(ruler, lm, lm.edited(slight), inference=INFERENCE)
    apart = found.first.interval.high - found.first.interval.low
    assert found.difference.interval.high - found.difference.interval.low < apart / 5


def test_the_same_model_twice_is_no_comparison():
    lm = model("crows")
    with pytest.raises(LevelheadError, match="the two models are the same"):
        run_measures(lm, [made("crows")], against=lm)


def test_other_options_are_not_compared():
    lm = model("strength")
    rulers = made("strength"), made("strength", scale="logit")
    found = [ruler.read(lm) for ruler in rulers]
    both = tuple(
        r.compute_measurement(lm, f, inference=INFERENCE)
        for r, f in zip(rulers, found, strict=True)
    )
    with pytest.raises(LevelheadError, match="are different measures"):
        compare_responses(rulers[0], *found, both, inference=INFERENCE)


def test_likelihoods_of_other_vocabularies_are_not_compared():
    ruler = made("ppl")
    lm = load(zoo.folder("llama", "LlamaForCausalLM"))
    other = load(zoo.folder("gpt2", "GPT2LMHeadModel"), bos="always")
    found = [ruler.read(one) for one in (lm, other)]
    found[1][0].values[..., 1] += 1
    both = tuple(
        ruler.compute_measurement(m, f, inference=INFERENCE)
        for m, f in zip((lm, other), found, strict=True)
    )
    with pytest.raises(LevelheadError, match="cut the texts differently"):
        compare_responses(ruler, *found, both, inference=INFERENCE)


def difference(name, value, reach):
    interval = Interval(low=value - reach, high=value + reach, level=0.95, method="by hand")
    return Estimate(name=name, value=value, interval=interval, n=9, detectable=2 * reach)


AND = "and the difference of means is"


@pytest.mark.parametrize(
    ("seat", "means", "said"),
    [
        ((-0.5, 0.2), (-0.1, 0.02), f"nearer to parity (lower), {AND} lower too"),
        ((0.5, 0.2), (0.1, 0.02), f"nearer to parity (higher), {AND} higher too"),
        ((-0.5, 0.2), (-0.1, 0.2), "does not show the same: no claim"),
        ((-0.5, 0.2), (0.1, 0.02), "does not show the same: no claim"),
        ((-0.1, 0.2), (-0.1, 0.02), "no difference shown (one of 0.4 would have been)"),
    ],
)
def test_seat_makes_a_claim_only_with_the_difference_of_means(seat, means, said):
    differences = [
        difference("difference of seat", *seat),
        difference("difference of difference of means", *means),
    ]
    nearer = difference("change of the distance", -0.5, 0.2)
    assert verdict(made("seat"), differences, nearer).endswith(said)


@dataclass(frozen=True)
class Shares(simulated.Plain):
    """The share of items above 0, in percent."""

    parity: float | None = 50.0

    @property
    def formulas(self):
        (plain,) = super().formulas
        above = "one is preferred", "the other is preferred"
        return (replace(plain, aggregate=percent, above=above[0], below=above[1]),)


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
    ruler = Shares(**options)
    lm = model("crows")
    found = [[simulated.read(margins(share))] for share in (first, second)]
    both = tuple(ruler.compute_measurement(lm, one, inference=INFERENCE) for one in found)
    return compare_responses(ruler, *found, both, inference=INFERENCE)


@pytest.mark.parametrize(
    ("first", "second", "said"),
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
def test_a_difference_is_told_by_its_way_to_parity(first, second, said):
    found = by_share(first, second)
    assert found.verdict == said
    assert found.distance.value == pytest.approx(100 * (abs(second - 0.5) - abs(first - 0.5)))
    assert found.difference.value == pytest.approx(100 * (second - first))
    assert Comparison.from_json(found.to_json()) == found


@pytest.mark.parametrize(
    ("role", "said"),
    [
        ("utility", "lower"),
        ("bias", "lower: less bias by this measure"),
        ("parity", "lower: more bias by this measure"),
    ],
)
def test_without_a_parity_the_way_is_told(role, said):
    worse = "lower" if role == "utility" else None
    found = by_share(0.8, 0.6, parity=None, role=role, worse=worse)
    assert found.distance is None
    assert found.verdict == said


def test_a_lean_is_what_is_set_against_parity():
    """Both models have one spread; the second leans less, and to the anti-stereotype's side."""
    ruler, lm = made("strength"), model("strength")
    found = compare(ruler, lm, lm.edited(MASK), inference=INFERENCE)
    leans = [each.value - each.parity for each in (found.first, found.second)]
    assert found.distance.value == pytest.approx(abs(leans[1]) - abs(leans[0]), abs=1e-12)


def test_an_excess_over_a_control_is_set_against_parity():
    lm, ruler = model("distance"), made("distance", triples=triples(40))
    found = compare(ruler, lm, lm.edited(MASK), inference=INFERENCE)
    own, other = (each.excess.value for each in (found.first, found.second))
    assert found.distance.value == pytest.approx(abs(other) - abs(own), abs=1e-12)
    few = compare(made("distance"), lm, lm.edited(MASK), inference=INFERENCE)
    assert few.first.parity is None
    assert few.distance is None  # too few controls for a parity


def test_several_measures_tell_what_is_left_after_correction():
    one = by_share(0.8, 0.6)
    p = PValue(value=0.03, method="made up", alternative="two-sided")
    weak = one.model_copy(update={"difference": one.difference.model_copy(update={"p": p})})
    assert holm_corrected_comparisons([weak]) == (weak,)
    three = holm_corrected_comparisons([weak] * 3)
    assert three[0].difference.p.adjusted == pytest.approx(0.09)
    least = three[0].difference.detectable
    assert least > one.difference.detectable
    assert three[0].verdict == (
        f"no difference shown among 3 measures (one of {least:.3g} would have been)"
    )


def test_nothing_in_common_is_no_comparison():
    lm, ruler = model("crows"), made("crows")
    (found,) = ruler.read(lm)
    first = found.select(lambda item: item.id in ("p0", "p1", "p2"))
    second = found.select(lambda item: item.id in ("p3", "p4", "p5"))
    both = tuple(ruler.compute_measurement(lm, [f], inference=INFERENCE) for f in (found, found))
    with pytest.raises(NotMeasurableError, match="no item could be read by both"):
        compare_responses(ruler, [first], [second], both, inference=INFERENCE)
