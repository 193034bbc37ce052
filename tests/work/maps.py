"""Results that were made up, for charts and tables: maps of heads and what stands beside them."""

import numpy as np

from levelhead.core.results import DroppedItem, Estimate, Interval, Measurement, Provenance, PValue
from levelhead.explain.attention.changes import AttentionChange, GroupChange, PaperTTest
from levelhead.explain.attention.counterstereotype import CounterStereotypeResult
from levelhead.explain.attention.example import AttentionExample, AttentionStrip, HeadAttentionStrip
from levelhead.explain.attention.per_head import HeadAttentionChange
from levelhead.explain.attention.relabel_heads import HeadPermutationTest
from levelhead.locate.compare_maps import ComparedMap, MapComparison
from levelhead.locate.describe import MapDescription, MapStatistic
from levelhead.locate.head_map import BiasSign, ComponentScore, HeadMap, SplitReport
from levelhead.locate.validation.random_heads import RandomHeadControl
from levelhead.locate.validation.repeated_splits import SplitRange, SplitStability
from levelhead.mitigate.evaluation.change import MeasureChange
from levelhead.mitigate.heads.mask_top_heads import MaskedHeads, MaskingReport
from levelhead.replication.yang2025.masking_curves import (
    MaskingCurve,
    MaskingCurves,
    MaskingPoint,
)

SETTINGS = {"model": {"type": "bert", "causal": False}}


def provenance(model="made-up-model"):
    return Provenance.of(
        model, "ab" * 32, data={"words": "cd" * 32}, equation="made up", seed=0, settings=SETTINGS
    )


def interval(value, reach=0.1, method="made up"):
    return Interval(low=value - reach, high=value + reach, level=0.95, method=method)


def p_value(value, adjusted=None, family=None):
    corrected = {} if adjusted is None else {"adjusted": adjusted, "correction": "max-T"}
    return PValue(
        value=value,
        method="made up",
        alternative="two-sided",
        n_resamples=199,
        family=family or (None if adjusted is None else 1),
        **corrected,
    )


def estimate(name, value, reach=0.1, p=None, n=40):
    return Estimate(
        name=name,
        value=value,
        interval=interval(value, reach),
        parity=None if p is None else 0.0,
        p=None if p is None else p_value(p),
        n=n,
    )


def measurement(value=1.35, model="made-up-model", name="seat"):
    return Measurement(
        measure=name,
        value=value,
        interval=interval(value, 0.2),
        parity=0.0,
        direction="above 0: X is nearer to A than Y is, in units of the spread",
        comparability_key="made up",
        n=40,
        dropped=(DroppedItem("word", "not in the vocabulary"),),
        provenance=provenance(model),
    )


def head_map(layers=6, heads=12, *, sign=1, seed=0, judged=True, parts=(), model="made-up-model"):
    """Scores with a heavy tail; effects near them, some of them significant."""
    rng = np.random.default_rng(seed)
    scores = 0.02 * rng.standard_t(3, size=(layers, heads)) + 0.004
    result = [
        part_score("heads", i, j, float(scores[i, j]), judged=judged, rng=rng)
        for i in range(layers)
        for j in range(heads)
    ]
    if "mlp" in parts:
        result += [
            part_score("mlp", i, None, float(rng.normal(0, 0.15)), judged=judged, rng=rng)
            for i in range(layers)
        ]
    if "embeddings" in parts:
        result.append(part_score("embeddings", 0, None, 0.4, judged=judged, rng=rng))
    value = measurement(model=model)
    why = {
        1: "1.35 [1.15, 1.55] on the find half",
        -1: "-1.35 [-1.55, -1.15] on the find half",
        0: "the interval contains parity 0: 0.5 [-0.64, 1.49] on the find half",
    }
    return HeadMap(
        method="gradient",
        ablation="zero",
        layers=layers,
        heads_per_layer=heads,
        measure="seat",
        bias_sign=BiasSign(sign=sign, reason=why[sign]),
        split=SplitReport(
            split_by="words",
            seed=0,
            claim="found on one half of the words, confirmed on the other",
            discovery=estimate("find half", value.value, 0.25),
            confirmation=estimate("confirm half", value.value, 0.25),
        ),
        scores=tuple(result),
        measurement=value,
        provenance=provenance(model),
    )


def part_score(part, layer, head, score, *, judged, rng):
    base = ComponentScore(component=part, layer=layer, head=head, score=score)
    if not judged:
        return base
    effect = score * 0.9 + float(rng.normal(0, 0.01))
    reach = 0.03
    p = min(1.0, 2 * float(np.exp(-4 * abs(effect) / reach)) + 0.005)
    return base.model_copy(
        update={
            "effect": effect,
            "interval": interval(effect, reach),
            "p": p_value(p, min(1.0, 3 * p), 72),
            "detectable": 0.04,
        }
    )


def comparison(layers=6, heads=12, children=4, counted=True):
    """A base and models trained on from it; the last one has other heads if there are four."""
    base = head_map(layers, heads)
    boxed = [head for head in reversed(base.ranked_heads) if head.score < 0][:5]
    names = ("cda, 250 steps", "dropout", "context-debias", "deeper model")[:children]
    result = []
    for seed, name in enumerate(names, 1):
        same = seed < 4
        subset = head_map(
            layers if same else layers + 2, heads, seed=seed, sign=1 if seed < 3 else 0
        )
        counts = {
            "fewer_positive": estimate("fewer positive heads", 7.0, 5.0),
            "larger_positive": estimate("darker heads", 12.0, 4.0),
            "negative_to_positive": estimate("heads turned positive", 9.0, 6.0),
            "total": estimate("difference of the total", -0.31, 0.2),
        }
        result.append(
            ComparedMap(
                name=name,
                head_map=subset,
                anti_bias_now_positive=seed if same else None,
                **(counts if counted and same else {}),
            )
        )
    return MapComparison(
        name="base",
        base=base,
        anti_bias_in_base=tuple(item.label for item in boxed),
        compared_maps=tuple(result),
        notes=() if counted else ("without stored effects there are no intervals",),
    )


def control(chosen=0.42, draws=199):
    rng = np.random.default_rng(1)
    random = tuple(rng.normal(0.08, 0.09, draws).tolist())
    b = sum(item >= chosen for item in random)
    return RandomHeadControl(
        heads=("2-7", "5-1", "6-12"),
        effect=estimate("joint mask", chosen, 0.12),
        random_effects=random,
        p=p_value((b + 1) / (draws + 1)),
        notes=("these layers allow few sets: 84 different ones were drawn",),
    )


def description(layers=6, relabellings=199):
    rng = np.random.default_rng(2)

    def figure(name, value, low=None, median=None, high=None):
        if not relabellings:
            return MapStatistic(name=name, value=value)
        return MapStatistic(
            name=name,
            value=value,
            null_low=low,
            null_median=median,
            null_high=high,
            p=p_value(0.035),
        )

    return MapDescription(
        statistics=(
            figure("positive heads", 44.0, 28.0, 36.0, 43.0),
            figure("negative heads", 28.0, 29.0, 36.0, 44.0),
            figure("share of the top 3", 0.41, 0.21, 0.27, 0.35),
            figure("share of the top 5%", 0.48, 0.25, 0.32, 0.41),
            figure("share of the top 10%", 0.66, 0.40, 0.48, 0.57),
            figure("effective number of heads", 9.4, 11.2, 16.0, 21.0),
            figure("total", 0.93, -0.4, 0.31, 0.8),
            figure("largest", 0.21, 0.06, 0.09, 0.14),
        ),
        layer_sums=tuple(
            figure(f"layer {i + 1}", float(rng.normal(0.15, 0.2)), -0.12, 0.04, 0.2)
            for i in range(layers)
        ),
        n_relabellings=relabellings,
    )


def repeated_splits(heads=24):
    rng = np.random.default_rng(3)
    chosen = [(f"{i // 6 + 1}-{i % 6 + 1}", int(rng.integers(1, 6))) for i in range(heads)]
    chosen[5], chosen[9] = ("1-6", 20), ("2-4", 17)
    return SplitStability(
        n_splits=20,
        k=3,
        joint_effect=SplitRange(
            name="effect of the top 3", median=0.31, low=0.12, high=0.49, n_splits=20
        ),
        overlap=SplitRange(name="heads shared of 3", median=2.0, low=0.0, high=3.0, n_splits=190),
        replication=SplitRange(
            name="score on find, effect on confirm", median=0.61, low=0.42, high=0.74, n_splits=20
        ),
        selection_counts=tuple(sorted(chosen, key=lambda single: (-single[1], single[0]))),
        notes=("split by words; the same heads were chosen 4 times",),
    )


def attention_change(weighting="attention", full=True):
    def group(name, before, after, t, p):
        return GroupChange(
            group=name,
            heads=44 if name == "biased" else 28,
            original=estimate("original", before, 0.012),
            counter=estimate("counter", after, 0.012),
            change=estimate("change", before - after, 0.006, p=p),
            paper_t_test=PaperTTest(t=t, p=p_value(p), n=488),
        )

    extra = {
        "head_permutation_test": HeadPermutationTest(
            difference=0.011,
            random_interval=Interval(low=-0.008, high=0.009, level=0.95, method="made up"),
            p=p_value(0.02),
        ),
        "same_length": estimate("same", 0.009, 0.007, p=0.02),
        "placebo": estimate("placebo", 0.002, 0.008, p=0.6),
        "net": estimate("net", 0.008, 0.009, p=0.07),
    }
    return AttentionChange(
        weighting=weighting,
        groups=(
            group("biased", 0.183, 0.171, 3.18, 0.0008),
            group("regular", 0.142, 0.141, -1.48, 0.93),
        ),
        difference=estimate("difference", 0.011, 0.006, p=0.001),
        heads=(
            HeadAttentionChange(
                layer=0,
                head=1,
                group="biased",
                change=0.02,
                interval=interval(0.02, 0.01),
                p=p_value(0.01, 0.04),
            ),
        ),
        **(extra if full else {}),
    )


def counter_stereotype(full=True):
    return CounterStereotypeResult(
        attention=attention_change("attention", full),
        weighted=attention_change("value-weighted", full),
        n=488,
        n_placebos=311 if full else 0,
        dropped=(DroppedItem("pair 7", "the target has no token"),),
        exclusions=(("colours", 1400),),
        targets=tuple((f"target {i}", 4) for i in range(122)),
        groups=(("female", 240), ("male", 248)),
        provenance=provenance(),
    )


def example_of(heads=2, words=("the", "way", "I", "see", "it", "women", "are", "more", "calm")):
    rng = np.random.default_rng(4)
    where = words.index("women")
    twin = tuple("men" if word == "women" else word for word in words)

    def attention():
        values = rng.beta(0.6, 2, len(words))
        return tuple(((values - values.min()) / (values.max() - values.min())).tolist())

    return AttentionExample(
        pair="a pair",
        original=AttentionStrip(words=tuple(words), attribute=where, target=len(words) - 1),
        counter=AttentionStrip(words=twin, attribute=where, target=len(words) - 1),
        heads=tuple(
            HeadAttentionStrip(
                layer=i,
                head=2 * i,
                group="biased" if i < heads / 2 else "regular",
                original=attention(),
                counter=attention(),
            )
            for i in range(heads)
        ),
        provenance=provenance(),
    )


def curves():
    """As Table 3 has them."""
    starts = {"career / family": 1.1, "math / arts": 0.7, "science / arts": -0.2}
    return tuple(
        MaskingCurve(
            name=name,
            points=tuple(
                MaskingPoint(k=k, value=value, low=value - 0.25, high=value + 0.25)
                for k in (0, 5, 10, 15, 20, 25, 30, 35, 40, 44)
                for value in [start - 0.02 * k]
            ),
        )
        for name, start in starts.items()
    )


def masked_lines():
    return MaskingCurves(map="ab" * 32, curves=curves(), notes=("a note",))


WAYS = (
    ("top 3", -0.42, 0.6),
    ("bottom 3", 0.21, 0.5),
    ("all positive (44)", -1.1, 9.0),
    ("random 3", -0.05, 0.3),
    ("random 44", -0.3, 7.5),
)


def targeted(prices=("pppl",), half=True):
    """As Table 1 has them."""

    def over_sets(name, change):
        """With all its intervals over random sets, as those of random heads are."""
        if not name.startswith("random"):
            return change
        subset = {
            key: single.model_copy(
                update={
                    "interval": interval(single.value, 0.1, "student, 5 random head sets"),
                    "n": 5,
                }
            )
            for key in ("value", "change", "confirmed_change")
            if (single := getattr(change, key)) is not None
        }
        return change.model_copy(update=subset)

    def changes(gain=None, price=None):
        full = None if gain is None else estimate("change", gain - 0.1, 0.12)
        first = MeasureChange(
            measure="seat",
            value=estimate("seat", 1.35 + (gain or 0), 0.2),
            change=full,
            confirmed_change=None
            if gain is None or not half
            else estimate("confirmed", gain, 0.15),
        )
        return (
            first,
            *(
                MeasureChange(
                    measure=name,
                    value=estimate(name, 20 + (price or 0), 1.0),
                    change=None if price is None else estimate("change", price, 0.4),
                )
                for name in prices
            ),
        )

    return MaskingReport(
        map="ab" * 32,
        base=changes(),
        rows=tuple(
            MaskedHeads(
                name=name,
                heads=(),
                changes=tuple(over_sets(name, change) for change in changes(gain, price)),
                interval_over="5 random head sets" if name.startswith("random") else "",
            )
            for name, gain, price in WAYS
        ),
        notes=("random: mean of 5 sets, interval over the sets",),
    )
