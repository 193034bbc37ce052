"""Results of a sweep of projections that were made up, for charts and tables."""

import numpy as np
from maps import provenance

from levelhead.core.results import DroppedItem, Estimate, Interval, PValue
from levelhead.mitigate.controls.confidence_control import ConfidenceControl
from levelhead.mitigate.controls.placebo_edits import VarianceMatch
from levelhead.mitigate.controls.placebo_report import PlaceboReport
from levelhead.mitigate.controls.placebo_test import PlaceboTest
from levelhead.mitigate.evaluation.gain import PairedResamples
from levelhead.mitigate.evaluation.knowledge_front import EditPoint, KnowledgeFront
from levelhead.mitigate.evaluation.pareto import ParetoFront, ParetoPoint, is_non_dominated
from levelhead.mitigate.evaluation.sweep import SweepReport, VariantRow
from levelhead.mitigate.probing.concept_removal import RemovalReport, SiteRemoval
from levelhead.mitigate.probing.probe_report import ClusterResult, ProbeReport, ProbeResult
from levelhead.mitigate.projection.config_grid import projection_grid
from levelhead.mitigate.projection.subspace_stability import SIZES, StabilityAtSize, StabilityReport
from levelhead.mitigate.selection.select_on_dev import DevSelection
from levelhead.mitigate.selection.selection_report import (
    CandidateResult,
    HeldOutResult,
    SelectionReport,
)
from levelhead.replication.dawkins2024.claims import run_claim_tests
from levelhead.replication.dawkins2024.downstream import ColumnInfo, compare_downstream
from levelhead.replication.dawkins2024.pair_budget import (
    AtPairCount,
    PairBudgetCurve,
    SubspaceStabilityReport,
)
from levelhead.replication.yang2025.glue_masking import GlueMaskingResult
from levelhead.stats.designs import grouped_design

DEPTH = {"sent": 1.0, "last": 1.1, "penultimate": 1.5, "penultimate+attn": 1.8}
UNIT = "difference of probabilities"


def estimate_of(name, value, reach=0.02, *, p=None, family=None, unit=UNIT, n=234):
    pvalue = None
    if p is not None:
        corrected = {"adjusted": min(1.0, 3 * p), "correction": "romano-wolf", "family": family}
        pvalue = PValue(
            value=p,
            method="made up",
            alternative="two-sided",
            n_resamples=199,
            **(corrected if family else {}),
        )
    return Estimate(
        name=name,
        value=value,
        interval=Interval(low=value - reach, high=value + reach, level=0.95, method="made up"),
        parity=0.0,
        p=pvalue,
        n=n,
        unit=unit,
    )


def effect(setting, rng):
    """Deeper edits and hard ones change more, by and large."""
    steps = [setting.step(part) for part in setting.site_groups]
    hard = np.mean([0.4 if step.weighted else 1.0 for step in steps])
    return DEPTH[setting.edit_point] * hard * 0.07 + 0.008 * rng.standard_normal()


def swept_settings(*, levels=tuple(DEPTH), behind=(), idle=(), sent=True):
    rng = np.random.default_rng(0)
    rows = []
    for item in projection_grid(pooled=sent):
        change, reach = -effect(item, rng), 0.015 + 0.02 * rng.random()
        if item.edit_point not in levels or item.name in behind:
            continue
        p = 0.005 if abs(change) > reach else 0.2
        subset = None if item.name in idle else estimate_of("change", change, reach, p=p, family=74)
        value = 0.139 if subset is None else 0.139 + change
        rows.append(VariantRow(name=item.name, value=value, change=subset))
    base = estimate_of("strength", 0.139, 0.04).model_copy(update={"parity": 0.16})
    settings, behind = tuple(rows), tuple(behind)
    return SweepReport(
        measure="strength", unit=UNIT, base=base, variants=settings, unaffected_variants=behind
    )


def front_of(count=74):
    rng = np.random.default_rng(1)
    settings = projection_grid()[:count]
    gains = np.array([0.0, *(effect(setting, rng) - 0.05 for setting in settings)])
    costs = 1.2 * np.abs(gains) * (0.6 + rng.random(len(gains))) + 0.004 * rng.random(len(gains))
    costs[0] = 0.0
    on = is_non_dominated(gains, costs)
    points = [ParetoPoint(name="base", is_on_front=bool(on[0]), share=0.98)]
    points += [
        ParetoPoint(
            name=setting.name,
            gain=estimate_of("gain", float(gain), 0.02),
            cost=estimate_of("price", float(cost), 0.01, unit="nats"),
            is_on_front=bool(held),
            share=0.71 if held else 0.05,
        )
        for setting, gain, cost, held in zip(settings, gains[1:], costs[1:], on[1:], strict=True)
    ]
    return ParetoFront(points=tuple(points), n_resamples=199)


def choice_of(*, priced=True, chosen=True):
    subset = front_of()
    best = max(subset.points[1:], key=lambda point: point.gain.value)
    output = {"n_variants": 74, "n_considered": 74, "pareto_front": subset if priced else None}
    if not chosen:
        return DevSelection(
            chosen=None, notes=("no setting within the price gains anything",), **output
        )
    return DevSelection(
        chosen=best.name,
        selection_frequency=0.21,
        on_dev=estimate_of("gain on dev", best.gain.value),
        out_of_bag_gain=estimate_of(
            "gain of the best on items left out", best.gain.value - 0.02, 0.025
        ),
        optimism=0.02,
        on_test=estimate_of("gain on test", best.gain.value - 0.03, 0.015, p=0.02, n=749),
        cost=best.cost if priced else None,
        notes=() if priced else ("no utility was measured: what the edit costs is not known",),
        **output,
    )


def placebo_judged(
    gain=0.05, *, count=200, reach=0.02, spread=0.012, collapse=True, base_p=0.001, effective=120.0
):
    rng = np.random.default_rng(2)
    placebos = (0.004 + spread * rng.standard_normal(count)).tolist()
    quantile = float(np.quantile(placebos, 0.95, method="higher"))
    p = (sum(placebo >= gain for placebo in placebos) + 1) / (count + 1)
    beyond = gain > quantile
    judged = PlaceboTest(
        measure="strength",
        gain=estimate_of("gain of strength", gain, reach, p=0.005, family=1, n=749),
        placebo_gains=tuple(placebos),
        quantile=quantile,
        p=PValue(value=p, method="placebo edits", alternative="greater", n_resamples=count),
        base=estimate_of("strength of the base, from parity", 0.1, 0.02, p=base_p, n=749),
        effective_placebos=effective,
        exceeds_placebos=beyond,
        item_correlation=0.1,
        mitigates=beyond and gain > reach,
        significant_share=estimate_of("an effect", 0.31, 0.06, n=count, unit=""),
        significant_gain_share=estimate_of("a gain", 0.22, 0.05, n=count, unit=""),
    )
    tempered = ConfidenceControl(
        measure="strength",
        confidence=(2.58, 1.9),
        temperature=1.36,
        gain_from_temperature=estimate_of("gain of temperature", 0.3 * gain, reach / 2),
        gain=estimate_of("gain beyond confidence", 0.7 * gain, reach),
        p=PValue(value=0.03, method="placebo edits", alternative="greater", n_resamples=count),
        exceeds_confidence_loss=True,
    )
    return PlaceboReport(
        variant="penultimate 0,0,1,1,1",
        placebo_test=judged,
        confidence_control=tempered if collapse else None,
        variance_match=VarianceMatch(
            n_placebos=count, variance_error=1e-4, max_cosine=0.31, effective_placebos=7.2
        ),
    )


def stable_sites():
    sites = []
    for i, site in enumerate(
        (("block_out", 10, None), ("block_out", 11, None), ("pooled", 0, None))
    ):
        by_size = []
        for size in SIZES:
            middle = 1 - (0.3 + 0.15 * i) / size**0.6
            estimate = Estimate(
                name="cosine",
                value=middle,
                interval=Interval(
                    low=middle - 0.5 * (1 - middle) - 0.02,
                    high=min(1.0, middle + 0.4 * (1 - middle)),
                    level=0.95,
                    method="range of resamples, made up",
                ),
                n=500,
            )
            share = estimate_of("share", 0.35 + 0.1 * i + 0.4 / size**0.5, 0.1 / size**0.2, unit="")
            by_size.append(StabilityAtSize(n_pairs=size, cosine=estimate, share=share))
        sites.append(
            StabilityReport(
                site=site,
                pooling="first" if i else "word",
                n_components=2,
                share=estimate_of("share", 0.4 + 0.1 * i, 0.05, unit=""),
                cosine=estimate_of("cosine", 0.985 - 0.02 * i, 0.01, unit=""),
                angle=estimate_of("angle", 9.0 + i, 3.0, unit="degrees"),
                by_size=tuple(by_size),
                n=500,
                words=44,
                dropped=(),
                provenance=provenance(),
            )
        )
    return SubspaceStabilityReport(sites=tuple(sites))


def handful_of(*, idle=()):
    rows = []
    for size in SIZES:
        change = -0.13 * (1 - 0.7 / size**0.5)
        subset = None if size in idle else estimate_of("change of strength", change, 0.02, p=0.005)
        value = 0.165 if subset is None else 0.165 + change
        rows.append(AtPairCount(pairs=size, value=value, change=subset))
    base = estimate_of("strength", 0.165, 0.03)
    return PairBudgetCurve(variant="last 1,0,0", measure="strength", base=base, sizes=tuple(rows))


def _redrawn(values, n=60, spread=0.02):
    """The base at 1 and settings at these values, of n units."""
    rng = np.random.default_rng(3)
    noise = spread * rng.standard_normal((99, len(values) + 1))
    full = np.array([1.0, *values])
    return PairedResamples(full, full + noise, full + noise, grouped_design(n), 0.95, ("a",))


def claims_of(measure="strength"):
    rng = np.random.default_rng(0)
    values = [1 - effect(item, rng) for item in projection_grid()]
    names = [item.name for item in projection_grid()]
    return run_claim_tests(_redrawn(values), names, measure=measure, better="lower", unit=UNIT)


def downstream_of():
    rng = np.random.default_rng(4)
    names = ["sent-debias", *(item.name for item in projection_grid())]
    inner, outer = rng.normal(0.9, 0.1, size=(2, len(names)))
    price = np.where(rng.random(len(names)) < 0.3, 0.8, 1.0)
    inside = {
        ColumnInfo(name=name, better="lower"): _redrawn(inner + 0.1 * i)
        for i, name in enumerate(("strength", "distance"))
    }
    outside = {
        ColumnInfo(name="fairness", better="higher"): [_redrawn(outer), _redrawn(outer + 0.01)],
        ColumnInfo(name="snli", better="higher", unit="%"): [_redrawn(price)] * 2,
    }
    return compare_downstream(names, inside, outside, utility_measure="snli", viability="relative")


def masked_task():
    change = estimate_of("change of task", -1.2, 0.9, unit="%")
    return GlueMaskingResult(
        task="rte",
        metric="accuracy",
        unit="% of texts",
        mask="after",
        seeds=(0, 1),
        heads={"top 3": ("1-1", "2-3", "4-1"), "all positive": ("1-1", "2-3", "4-1", "6-2")},
        full=61.0,
        sets=(
            VariantRow(name="top 3", value=59.8, change=change),
            VariantRow(name="all positive", value=61.0, change=None),
        ),
        per_seed=(
            {"full": 60.0, "top 3": 58.5, "all positive": 60.0},
            {"full": 62.0, "top 3": 61.1, "all positive": 62.0},
        ),
        random={"top 3": (60.5, 59.7, 60.9), "all positive": (60.0, 61.0, 58.0)},
    )


def _found_by_probes(auc):
    def probe(name, value):
        return ProbeResult(
            probe=name,
            auc=estimate_of("auc", value, 0.04).model_copy(update={"parity": 0.5}),
            permuted_auc=estimate_of("dealt", 0.5, 0.05),
            control=None,
            selectivity=None,
        )

    return ProbeReport(
        probes=(probe("linear", auc), probe("non-linear", auc - 0.02)),
        clusters=ClusterResult(accuracy=estimate_of("clusters", 60.0, 5.0), v_measure=0.1),
    )


def removed_or_hidden(measure=True):
    places = [
        SiteRemoval(
            site=site,
            pooling="first",
            verdict=verdict,
            reason=f"as if the AUC were {auc}",
            before=_found_by_probes(0.95),
            after=_found_by_probes(auc),
        )
        for site, verdict, auc in (
            (("pooled", 0, None), "removed", 0.5),
            (("block_out", 5, None), "hidden", 0.8),
        )
    ]
    return RemovalReport(
        verdict="hidden",
        reason="layer 6: as if the AUC were 0.8",
        sites=tuple(places),
        bias_reduction=estimate_of("gain of seat", 0.3, 0.1) if measure else None,
        words=107,
        n=642,
        dropped=(DroppedItem("a", "an unknown word"),) if measure else (),
        provenance=provenance(),
    )


def tuned_edit(recommended=True, candidates=24):
    tried = [
        CandidateResult(
            name=f"last {i}",
            kind="projection",
            description="made up",
            gain=estimate_of("gain", 0.1 - 0.01 * i, 0.05, p=0.01, family=candidates),
            lower_bound=0.05 - 0.01 * i,
            loss=None if i % 2 else estimate_of("loss", 1.0, 0.5),
            exclusion_reason="" if i < 5 else "no gain shown: the lower bound is below 0",
        )
        for i in range(candidates)
    ]
    on_test = HeldOutResult(
        gain=estimate_of("gain", 0.08, 0.05),
        loss=None,
        max_utility_loss=4.0,
        is_gain_confirmed=recommended,
        is_utility_kept=True,
    )
    return SelectionReport(
        bias_measure="counterfactual",
        utility_measure="accuracy",
        min_utility_kept=0.95,
        max_utility_loss=4.2,
        base=estimate_of("counterfactual", 12.0, 3.0, unit="%"),
        base_utility=estimate_of("accuracy", 84.0, 2.0, unit="%"),
        chosen="last 0",
        is_recommended=recommended,
        reason="made up",
        candidates=tuple(tried),
        on_test=on_test,
        provenance=provenance(),
    )


def edits_by_knowledge():
    """Edits that remove bias, with and without the knowledge."""
    points = [
        EditPoint(
            name=name,
            gain=estimate_of("gain", gain, 0.02),
            change=estimate_of("change", change, 2.0, unit="percentage points"),
            knowledge_measure="definitional_gender",
            verdict=verdict,
            is_on_front=name == "cda",
        )
        for name, gain, change, verdict in (
            ("cda", 0.06, -0.5, "mitigation"),
            ("mask all", 0.05, -45.0, "bias reduced, knowledge lost"),
            ("dropout", 0.01, -3.5, "not shown"),
        )
    ]
    return KnowledgeFront(bias_measure="seat", margin=5.0, points=tuple(points))
