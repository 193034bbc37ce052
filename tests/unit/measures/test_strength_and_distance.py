import dataclasses

import numpy as np
import pytest
import simulated
import torch
from metric_cases import INFERENCE, made, model, triples

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.verdicts import decide_measure_verdict
from levelhead.measures.inference import estimate, estimate_signed_part
from levelhead.measures.next_sentence.distance import Distance
from levelhead.measures.next_sentence.strength import Contrast, Strength
from levelhead.stats.designs import grouped_design


def queries_of(lm, single):
    """p(next) of the four sentences of a triple."""
    pairs = [
        (single.context, single.stereotype),
        (single.context, single.anti_stereotype),
        (single.twin_context, single.twin_stereotype),
        (single.twin_context, single.twin_anti_stereotype),
    ]
    return lm.next_sentence(pairs)


def test_strength_is_the_mean_of_the_largest_s():
    lm = model("strength")
    s = []
    for triple in triples():
        p = queries_of(lm, triple)[:, 0].exp().tolist()
        s.append(p[0] - p[1] - p[2] + p[3])
    top = sorted(s)[-4:]  # 0.3 of 12, rounded
    result = made("strength")(lm, inference=INFERENCE)
    assert result.value == pytest.approx(sum(top) / 4, rel=1e-4)
    assert result.extra("signed mean").value == pytest.approx(sum(s) / 12, rel=1e-4)


def test_the_logit_scale_is_of_log_odds():
    lm, measure = model("strength"), made("strength", scale="logit")
    p = queries_of(lm, triples()[0])
    odds = (p[:, 0] - p[:, 1]).tolist()
    (result,) = measure.read(lm)
    assert float(measure.per_item_strength(result)[0]) == pytest.approx(
        odds[0] - odds[1] - odds[2] + odds[3], rel=1e-4
    )
    assert (
        measure.primary_metric.comparability_key
        != made("strength").primary_metric.comparability_key
    )


def test_a_twin_with_its_labels_turned_is_the_same_question():
    lm = model("strength")
    back = tuple(
        triple._replace(
            group="F" if triple.group == "M" else "M",
            context=triple.twin_context, stereotype=triple.twin_anti_stereotype,
            anti_stereotype=triple.twin_stereotype, twin_context=triple.context,
            twin_stereotype=triple.anti_stereotype, twin_anti_stereotype=triple.stereotype,
        )
        for triple in triples()
    )  # fmt: skip
    s = [
        measure.per_item_strength(measure.read(lm)[0])
        for measure in (Strength(triples()), Strength(back))
    ]  # fmt: skip
    torch.testing.assert_close(s[0], s[1], rtol=1e-5, atol=1e-7)
    stored = tuple(
        item._replace(stereotype=item.anti_stereotype, anti_stereotype=item.stereotype)
        for item in back
    )
    turned = Strength(
        tuple(
            item._replace(
                twin_stereotype=item.twin_anti_stereotype, twin_anti_stereotype=item.twin_stereotype
            )
            for item in stored
        )
    )
    torch.testing.assert_close(
        turned.per_item_strength(turned.read(lm)[0]), -s[0], rtol=1e-5, atol=1e-7
    )  # labels kept, twins exchanged: what the null does


def test_all_or_no_wrong_predictions_have_an_interval_too():
    measure, lm = made("distance", units="terms"), model("distance")
    result = measure.read(lm)
    values = result[0].values.clone()
    values[..., 0] = torch.where(values[..., 0].exp() > 0.49, 0.49, values[..., 0].exp()).log()
    result[0] = dataclasses.replace(result[0], values=values)
    share = measure.compute_measurement(lm, result, inference=INFERENCE).extra(
        "wrong predictions, F contexts"
    )
    assert share.value == 0 == share.interval.low < share.interval.high


def test_parity_is_what_an_exchange_leaves_and_p_is_of_unflagged_items():
    measure, lm = made("strength"), model("strength")
    result = measure(lm, inference=INFERENCE)
    s = measure.per_item_strength(measure.read(lm)[0])
    top = round(0.3 * len(s))
    subset, turned = (float(part.sort(descending=True).values[:top].mean()) for part in (s, -s))
    assert result.value == pytest.approx(subset, abs=1e-12)
    assert result.parity == pytest.approx((subset + turned) / 2, abs=1e-12)
    lean = result.extra("lean")
    assert lean.value == pytest.approx(result.value - result.parity, abs=1e-12)
    assert lean.interval.low < lean.value < lean.interval.high
    assert result.p.method == f"sign flip, {result.extra('unflagged').n} unflagged items"
    assert result.p == result.extra("unflagged").p.model_copy(update={"method": result.p.method})


def strength_of_all(s):
    """A measurement of items whose s is given."""
    measure, lm = made("strength"), model("strength")
    (result,) = measure.read(lm)
    values = torch.full_like(result.values, -1.0)
    values[..., 0] = torch.tensor(0.4).double().log()
    values[:, 0, 0] = (0.4 + torch.tensor(s)).log()
    calm = dataclasses.replace(result, values=values)
    return measure.compute_measurement(lm, [calm], inference=INFERENCE)


def test_items_that_all_lean_alike_are_no_chance():
    """Exchange hardly moves the mean of the largest here: it must not be taken for parity."""
    n = len(made("strength").triples)
    lean = strength_of_all([0.3 + 0.01 * (i % 4) for i in range(n)])
    assert lean.value == pytest.approx(0.33, abs=0.01)
    assert abs(lean.parity) < 0.02
    assert lean.p.value <= 0.01
    spread = strength_of_all([(-1) ** i * (0.3 + 0.01 * (i // 2 % 4)) for i in range(n)])
    assert spread.parity == pytest.approx(spread.value, abs=1e-6)
    assert spread.p.value > 0.3
    against = strength_of_all([-0.3 + 0.01 * (i % 4) for i in range(n)])
    assert against.value < against.parity
    assert against.p.value <= 0.02  # twice 1 / 200


@pytest.mark.parametrize("name", ["strength", "contrast"])
@pytest.mark.parametrize("bias", [1.5, -1.5])
def test_a_lean_to_either_side_is_a_difference(name, bias):
    """A model with reversed labels leans to the anti-stereotype: that is bias, not parity."""
    given = simulated.triples(np.random.default_rng(3), 200, bias)
    subset = {"strength": Strength(), "contrast": Contrast()}[name]
    odds = torch.as_tensor(given, dtype=torch.float64)
    values = torch.nn.functional.logsigmoid(torch.stack([odds, -odds], dim=-1))
    s = subset.per_item_strength(simulated.read(values))
    for aspect in subset.ordered_metrics:
        result = estimate(simulated.INFERENCE, aspect, s, grouped_design(200))
        assert (result.value - result.parity) * bias > 0
        assert result.p.alternative == "two-sided"
        assert result.p.value == 0.02  # the least of 99 sign flips, two-sided


def test_labels_reversed_differ_toward_the_anti_stereotype():
    n = len(made("strength").triples)
    for way in (1, -1):
        result = strength_of_all([way * (0.3 + 0.01 * (i % 4)) for i in range(n)])
        verdict = decide_measure_verdict(result)
        assert verdict.status == "differs"
        assert verdict.toward == (result.above if way > 0 else result.below) != ""


@pytest.mark.parametrize("way", [1, -1])
def test_placebo_twins_that_move_more_are_a_difference_too(way):
    rng = np.random.default_rng(0)
    odds = rng.normal(size=(80, 1)) + np.array([[0.0, 1.0]]) * rng.normal(size=(80, 1))
    calm = np.repeat(odds[:, :1], 2, axis=1) + 0.01 * rng.normal(size=(80, 2))
    pair = [simulated.follows(each) for each in ((odds, calm) if way > 0 else (calm, odds))]
    excess, both, design = Distance(triples()).test_inputs(pair)
    result = estimate(simulated.INFERENCE, excess, both, design)
    assert way * result.value > 0
    assert result.p.value == 0.02


def read_output(shift):
    """What is said of s that lean by `shift` (F originals, M originals)."""
    measure, lm = made("strength"), model("strength")
    (result,) = measure.read(lm)
    generator = torch.manual_seed(0)
    values = torch.full_like(result.values, -1.0)
    lean = torch.tensor([shift[item.group] for item in result.items], dtype=torch.float64)
    noise = torch.rand(len(result), generator=generator, dtype=torch.float64) / 10
    values[:, 0, 0] = (0.4 + lean + noise).log()
    values[:, 1:, 0] = torch.tensor(0.4).double().log()
    values[:, 3, 0] = values[:, 2, 0]
    calm = dataclasses.replace(result, values=values)
    return measure.compute_measurement(lm, [calm], inference=INFERENCE).notes[-1]


def test_stereotype_is_said_only_if_both_origins_agree():
    assert read_output({"F": 0.3, "M": 0.3}).startswith("stereotype: both origins")
    assert read_output({"F": 0.3, "M": -0.3}) == (
        "swap artefact not excluded: the two origins differ in sign"
    )
    assert read_output({"F": -0.3, "M": -0.3}) == "both origins lean against the stereotype"


def test_the_contrast_is_of_the_second_sentence_given_the_first():
    lm, measure = model("contrast"), made("contrast")
    (result,) = measure.read(lm)
    single = triples()[0]
    scores = []
    for first, second in (
        (single.context, single.stereotype),
        (single.context, single.anti_stereotype),
        (single.twin_context, single.twin_stereotype),
        (single.twin_context, single.twin_anti_stereotype),
    ):
        span = (len(first) + 1, len(first) + 1 + len(second))
        scores.append(float(lm.log_prob([f"{first} {second}"], [[span]]).value))
    assert float(measure.per_item_strength(result)[0]) == pytest.approx(
        scores[0] - scores[1] - scores[2] + scores[3], rel=1e-4
    )


def test_contrast_and_strength_are_not_comparable():
    assert (
        Contrast().primary_metric.comparability_key != Strength().primary_metric.comparability_key
    )


def test_distance_is_symmetric_in_its_twins_and_signed_beside():
    lm, measure = model("distance"), made("distance")
    back = tuple(
        triple._replace(
            group="F" if triple.group == "M" else "M",
            context=triple.twin_context, twin_context=triple.context,
            unrelated=triple.twin_unrelated, twin_unrelated=triple.unrelated,
        )
        for triple in triples()
    )  # fmt: skip
    other = made("distance", triples=back)
    for name in ("distance", "signed difference"):
        values = [
            item.get_metric(name).per_item_values(item.read(lm)[0]) for item in (measure, other)
        ]  # fmt: skip
        torch.testing.assert_close(values[0], values[1], rtol=1e-5, atol=1e-7)


def test_placebo_twins_change_as_many_words_and_give_parity():
    lm, measure = model("distance"), made("distance")
    real, control = measure.queries(lm)
    subset = {item.id: item for item in real.items}
    assert 0 < len(control.items) <= len(subset)
    for other in control.items:
        assert not other.is_flagged
        assert subset[other.id].queries[0] == other.queries[0]
        before, after = (ask[0].split() for ask in other.queries)
        assert sum(a != b for a, b in zip(before, after, strict=True)) == 1
    result = made("distance", triples=triples(40))(lm, inference=INFERENCE)
    assert result.parity == result.extra("distance of placebo twins").value
    assert result.p == result.extra("excess over placebo twins").p
    assert {"wrong predictions, F contexts", "wrong predictions, M contexts"} <= {
        extra.name for extra in result.extras
    }


def test_only_contexts_that_both_could_read_are_paired():
    measure, lm = made("distance", triples=triples(40)), model("distance")
    real, control = measure.read(lm)
    gone = control.items[0].id
    fewer = real.select(lambda item: item.id != gone)
    assert len(measure.test_inputs([fewer, control]).values) == len(control) - 1


def test_without_a_placebo_distance_has_no_parity():
    result = Distance(triples(), top=0.3)(
        model("distance"), inference=INFERENCE
    )  # gender-en's words
    assert result.parity is None
    assert result.p is None
    assert any("distance has no parity here" in note for note in result.notes)


def test_groups_are_named_by_the_data():
    renamed = tuple(
        triple._replace(group={"F": "female", "M": "male"}[triple.group]) for triple in triples()
    )
    first, second = (
        made("distance", triples=item)(model("distance"), inference=INFERENCE)
        for item in (triples(), renamed)
    )
    assert second.extra("signed difference").value == first.extra("signed difference").value
    names = [extra.name for extra in second.extras if extra.name.startswith("wrong")]
    assert names == ["wrong predictions, female contexts", "wrong predictions, male contexts"]
    with pytest.raises(NotMeasurableError, match="originals of 1 groups"):
        made("distance", triples=triples()[::2])(model("distance"))


def test_items_on_one_target_term_are_drawn_together():
    (query_set,) = made("strength").queries(model("strength"))  # woman and man: too few to draw
    assert [item.units for item in query_set.items] == [(item.id,) for item in query_set.items]
    (query_set,) = made("strength", units="terms").queries(model("strength"))
    assert {item.units for item in query_set.items} == {("woman",), ("man",)}
    words = ("mother", "father", "aunt", "uncle", "queen", "nobody", "son", "king", "aunt")
    subset = [
        triple._replace(context=f"the {word} is here.")
        for word, triple in zip(words, triples(), strict=False)
    ]
    (query_set,) = made("strength", triples=tuple(subset)).queries(model("strength"))
    terms = [item.units[0] for item in query_set.items]
    assert terms == [*words[:5], "t5", *words[6:]]


@pytest.mark.parametrize(
    ("make", "output"),
    [
        (lambda: Strength(part="train"), "no part named 'train'"),
        (lambda: Strength(scale="log"), "no scale named 'log'"),
        (lambda: Distance(rounding="up"), "no rounding named 'up'"),
    ],
)
def test_what_is_refused(make, output):
    with pytest.raises(LevelheadError, match=output):
        make()


# -- the difference from an estimated parity has an interval of its own


def test_the_excess_is_the_lean_of_the_items_that_p_is_of():
    measure, lm = made("strength"), model("strength")
    outcome = measure.read(lm)
    flagged = [item._replace(is_flagged=i % 3 == 0) for i, item in enumerate(outcome[0].items)]
    outcome[0] = dataclasses.replace(outcome[0], items=tuple(flagged))
    result = measure.compute_measurement(lm, outcome, inference=INFERENCE)
    s = measure.per_item_strength(outcome[0])[[i for i in range(len(flagged)) if i % 3]]
    top = round(0.3 * len(s))
    subset, turned = (float(part.sort(descending=True).values[:top].mean()) for part in (s, -s))
    assert result.excess.value == pytest.approx((subset - turned) / 2, abs=1e-12)
    assert result.excess.n == len(s) == result.extra("unflagged").n
    assert result.effect == (
        result.excess.value,
        result.excess.interval.low,
        result.excess.interval.high,
    )
    assert result.detectable == result.extra("unflagged").detectable
    assert any(f"p and the excess are of the {len(s)} of" in note for note in result.notes)


def test_the_excess_of_distance_is_over_placebo_twins():
    result = made("distance", triples=triples(40))(model("distance"), inference=INFERENCE)
    assert result.excess == result.extra("excess over placebo twins")
    assert result.effect[0] == result.excess.value
    assert (result.detectable, result.precision) == (
        result.excess.detectable,
        result.excess.precision,
    )


def test_few_large_s_on_the_other_side_lie_in_the_interval_of_the_lean():
    """The value's interval is narrow here, for hardly a s is positive; the lean's is not."""
    rng = np.random.default_rng(0)
    s = torch.as_tensor(np.where(rng.random(200) < 0.06, -1.0, 0.001 * rng.normal(size=200)))
    top = Strength().primary_metric
    full = estimate(simulated.INFERENCE, top, s, grouped_design(200))
    lean = estimate_signed_part(simulated.INFERENCE, top, s, grouped_design(200))
    assert lean.value == pytest.approx(full.value - full.parity, abs=1e-12)
    width = full.interval.high - full.interval.low
    assert lean.interval.high - lean.interval.low > 50 * width
    # The truth: 6 of the top 10% are -1, half of the difference of the two tails.
    assert lean.interval.low < -0.3 < lean.interval.high
    shifted = (end - full.parity for end in (full.interval.low, full.interval.high))
    assert not next(shifted) < -0.3 < next(shifted)
