import pytest
import zoo
from rulers import JUDGE, made, model

from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.results import Estimate, Interval
from levelhead.measure.compare import Comparison, compared
from levelhead.measure.compare import _verdict as verdict
from levelhead.measure.run import compare, run
from levelhead.models.edits import HeadScale
from levelhead.models.load import load
from levelhead.models.sites import Site

MASK = HeadScale([Site("head_out", layer, head) for layer in range(3) for head in range(2)], 0)


@pytest.mark.parametrize("name", ["crows_margin", "strength", "cloze", "seat", "pppl"])
def test_a_difference_is_that_of_the_values_paired(name):
    lm = model(name)
    found = compare(made(name), lm, lm.edited(MASK), judge=JUDGE)
    assert found.difference.value == pytest.approx(found.second.value - found.first.value)
    assert found.difference.n == found.first.n == found.second.n
    assert Comparison.from_json(found.to_json()) == found


def test_pairing_narrows_the_interval():
    lm, ruler = model("crows_margin"), made("crows_margin")
    slight = HeadScale([Site("head_out", 2, 0)], 0.97)
    found = compare(ruler, lm, lm.edited(slight), judge=JUDGE)
    apart = found.first.interval.high - found.first.interval.low
    assert found.difference.interval.high - found.difference.interval.low < apart / 5


def test_the_same_model_twice_is_no_comparison():
    lm = model("crows")
    with pytest.raises(LevelheadError, match="the two models are the same"):
        run(lm, [made("crows")], against=lm)


def test_other_options_are_not_compared():
    lm = model("strength")
    rulers = made("strength"), made("strength", scale="logit")
    found = [ruler.read(lm) for ruler in rulers]
    both = tuple(r.measured(lm, f, judge=JUDGE) for r, f in zip(rulers, found, strict=True))
    with pytest.raises(LevelheadError, match="are different measures"):
        compared(rulers[0], *found, both, judge=JUDGE)


def test_likelihoods_of_other_vocabularies_are_not_compared():
    ruler = made("ppl")
    lm = load(zoo.folder("llama", "LlamaForCausalLM"))
    other = load(zoo.folder("gpt2", "GPT2LMHeadModel"), bos="always")
    found = [ruler.read(one) for one in (lm, other)]
    found[1][0].values[..., 1] += 1
    both = tuple(ruler.measured(m, f, judge=JUDGE) for m, f in zip((lm, other), found, strict=True))
    with pytest.raises(LevelheadError, match="cut the texts differently"):
        compared(ruler, *found, both, judge=JUDGE)


def difference(name, value, reach):
    interval = Interval(low=value - reach, high=value + reach, level=0.95, method="by hand")
    return Estimate(name=name, value=value, interval=interval, n=9, detectable=2 * reach)


@pytest.mark.parametrize(
    ("seat", "means", "said"),
    [
        ((-0.5, 0.2), (-0.1, 0.02), "lower, and so is the difference of means"),
        ((0.5, 0.2), (0.1, 0.02), "higher, and so is the difference of means"),
        ((-0.5, 0.2), (-0.1, 0.2), "does not show the same: no claim"),
        ((-0.5, 0.2), (0.1, 0.02), "does not show the same: no claim"),
        ((-0.1, 0.2), (-0.1, 0.02), "no difference shown (one of 0.4 would have been)"),
    ],
)
def test_seat_says_lower_only_with_the_difference_of_means(seat, means, said):
    differences = [
        difference("difference of seat", *seat),
        difference("difference of difference of means", *means),
    ]
    assert verdict(made("seat"), differences).endswith(said)


def test_nothing_in_common_is_no_comparison():
    lm, ruler = model("crows"), made("crows")
    (found,) = ruler.read(lm)
    first = found.some(lambda item: item.id in ("p0", "p1", "p2"))
    second = found.some(lambda item: item.id in ("p3", "p4", "p5"))
    both = tuple(ruler.measured(lm, [f], judge=JUDGE) for f in (found, found))
    with pytest.raises(NotMeasurable, match="no item could be read by both"):
        compared(ruler, [first], [second], both, judge=JUDGE)
