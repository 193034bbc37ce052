"""Tests of the claims of Dawkins et al. 2024 about settings: section 5, over the fixed grid.

Every claim is a list of pairs of settings that differ in one thing: with it, and without. The paper
counts how many pairs are better with it. Here the mean difference over the list is reported with
the count, with an interval over the measure's units. The settings are a fixed grid: they are not
resampled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field

from levelhead.core.calibration import MeasureKey
from levelhead.core.errors import LevelheadError
from levelhead.core.results import Estimate, Provenance, Record
from levelhead.mitigate.controls.placebo_test import NO_EFFECT, has_no_effect
from levelhead.mitigate.evaluation.gain import bias_aggregate
from levelhead.mitigate.projection.config_grid import ALL_STEPS, EditPoint, ProjectionConfig
from levelhead.stats.paired_effects import PairedEffects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from levelhead.measures.metric import Aggregate, Metric
    from levelhead.mitigate.evaluation.gain import PairedResamples

Better = Literal["lower", "higher"]
ClaimVerdict = Literal["yes", "no", "undecided", "untestable"]
TWO_HARD, TWO_WEIGHTED = ALL_STEPS[1], ALL_STEPS[3]
# Projections are nested: an earlier level includes all later ones (Dawkins et al. 2024, section 4).
SHALLOWER: dict[EditPoint, EditPoint] = {
    "penultimate+attn": "penultimate",
    "penultimate": "last",
    "last": "sent",
}


class ClaimTest(Record):
    """Settings with one thing, compared with the same settings without it."""

    claim: str
    edit_point: str
    """Level of the settings with it; "all": every level."""
    n_pairs: Annotated[int, Field(ge=1)]
    mean_without: float
    """Mean of the measure over the settings without it."""
    mean_with: float
    difference: Estimate | None
    """Mean difference, with it minus without it; None: it changes nothing."""
    spread: float | None = None
    """The standard deviation of the differences over the pairs of settings."""
    improved_pairs: Annotated[int, Field(ge=0)]
    """Number of pairs in which the measure is better with it."""
    verdict: ClaimVerdict
    """yes: better on average by the interval and by p, corrected for all claims on the measure;
    no: worse by the same criteria; else undecided. Untestable if the unedited model shows no
    effect: then a smaller value of the measure is not less bias."""


class ClaimTests(Record):
    """The claims on one measure."""

    measure: str
    unit: str = ""
    better: Better
    claims: Annotated[tuple[ClaimTest, ...], Field(min_length=1)]
    measured_by: MeasureKey | None = None
    """The measure."""
    base: Estimate | None = None
    """The unedited model's difference from parity, tested two-sided; None: not tested."""
    provenance: Provenance | None = None

    @property
    def untestable_reason(self) -> str:
        """The reason why no claim can be tested; empty if they can."""
        return f"{NO_EFFECT} ({self.base})" if has_no_effect(self.base) else ""

    def claim_test(self, claim: str, edit_point: str = "all") -> ClaimTest:
        """Return a claim by its name."""
        for test in self.claims:
            if (test.claim, test.edit_point) == (claim, edit_point):
                return test
        raise LevelheadError(f"no claim {claim!r} at {edit_point}", hint="see .claims")


def _without_pooled_weighting(config: ProjectionConfig) -> ProjectionConfig | None:
    return _replace_steps(config, pooled=ALL_STEPS[0]) if config.pooled == ALL_STEPS[2] else None


def _without_weighting_at(
    group: Literal["penultimate", "last"],
) -> Callable[[ProjectionConfig], ProjectionConfig | None]:
    def counterpart(config: ProjectionConfig) -> ProjectionConfig | None:
        return (
            _replace_steps(config, **{group: TWO_HARD})
            if getattr(config, group) == TWO_WEIGHTED
            else None
        )

    return counterpart


def _shallower(config: ProjectionConfig) -> ProjectionConfig | None:
    """Return the setting that this one extends by a level."""
    edit_point = SHALLOWER.get(config.edit_point)
    if edit_point is None or (edit_point == "sent" and config.pooled is None):
        return None
    inner = config.penultimate if edit_point == "penultimate" else None
    last = None if edit_point == "sent" else config.last
    return ProjectionConfig(
        edit_point=edit_point,
        penultimate=inner,
        last=last,
        pooled=config.pooled,
    )


def _without_attention(two_hard: bool) -> Callable[[ProjectionConfig], ProjectionConfig | None]:
    def counterpart(config: ProjectionConfig) -> ProjectionConfig | None:
        # The paper's claim exempts two hard dimensions at attention's layer, so those settings are
        # tested apart.
        if config.edit_point != "penultimate+attn" or (config.penultimate == TWO_HARD) != two_hard:
            return None
        return _shallower(config)

    return counterpart


class GridClaim(NamedTuple):
    """A claim of the paper, and the function that maps a setting to the one without the thing."""

    name: str
    counterpart: Callable[[ProjectionConfig], ProjectionConfig | None]


CLAIMS = (
    GridClaim("one level deeper", _shallower),
    # Section 5: "in all cases (n = 37 models)" accuracy improves; Table 6 has the means.
    GridClaim("weighting at sent", _without_pooled_weighting),
    # Section 5: two dimensions without weighting are the exception that does not reduce the bias.
    GridClaim("weighting of two dimensions at last", _without_weighting_at("last")),
    GridClaim("weighting of two dimensions at penultimate", _without_weighting_at("penultimate")),
    GridClaim(
        "attention, unless two hard dimensions at its layer", _without_attention(two_hard=False)
    ),
    GridClaim(
        "attention, with two hard dimensions at its layer", _without_attention(two_hard=True)
    ),
)


def comparison_aggregate(metric: Metric) -> tuple[Aggregate, Better]:
    """The quantity that settings are compared by, and the better direction.

    It is the value, as in the paper. For a measure with one parity for all models it is the
    distance from parity, since a value beyond parity is bias in the other direction.
    """
    # For a value that can pass parity, lower is not better: the distance counts.
    if metric.parity is not None:
        return bias_aggregate(metric), "lower"
    return metric.aggregate, better_direction(metric)


def better_direction(metric: Metric) -> Better:
    """The better direction of a value: less bias, more parity, a lower utility cost."""
    return "lower" if metric.worse == "higher" else "higher"


def run_claim_tests(
    resamples: PairedResamples,
    names: Sequence[str],
    *,
    measure: str,
    better: Better,
    unit: str = "",
    measured_by: MeasureKey | None = None,
    provenance: Provenance | None = None,
    base: Estimate | None = None,
) -> ClaimTests:
    """Test every claim that the settings allow.

    Args:
        resamples: values of the base (first) and of the settings, on resampled units.
        names: names of the settings, in the same order; names outside the grid are skipped.
        measure: name of the measure.
        better: better direction of the measure.
        unit: unit of the values.
        measured_by: the measure as queried on this model.
        provenance: provenance of the responses.
        base: the unedited model's difference from parity, with its two-sided test.
    """
    columns = {name: i + 1 for i, name in enumerate(names)}
    claim_pairs = [
        (claim.name, edit_point, pairs)
        for claim in CLAIMS
        for edit_point, pairs in _by_edit_point(
            _config_pairs(claim, _parse_configs(names), columns)
        )
    ]
    if not claim_pairs:
        raise LevelheadError(
            "no two settings differ in one thing only", hint="give the full grid of settings"
        )
    # All claims on one measure are one family: many lists of settings give many chances of a
    # difference.
    effects = _mean_effects(resamples, [pairs for *_, pairs in claim_pairs])
    estimates = effects.to_estimates(
        [f"{name}, {edit_point}" for name, edit_point, _ in claim_pairs], unit=unit
    )
    return ClaimTests(
        measure=measure,
        unit=unit,
        better=better,
        claims=tuple(
            _test_claim(resamples, name, edit_point, np.array(pairs), estimate, better, base)
            for (name, edit_point, pairs), estimate in zip(claim_pairs, estimates, strict=True)
        ),
        measured_by=measured_by,
        base=base,
        provenance=provenance,
    )


ConfigPair = tuple[int, int]
"""Columns: with it, without it."""


def _parse_configs(names: Iterable[str]) -> list[ProjectionConfig]:
    configs = []
    for name in names:
        try:
            configs.append(ProjectionConfig.from_name(name))
        except LevelheadError:
            continue  # a baseline
    return configs


def _config_pairs(
    claim: GridClaim, configs: Iterable[ProjectionConfig], columns: dict[str, int]
) -> list[tuple[str, ConfigPair]]:
    pairs: list[tuple[str, ConfigPair]] = []
    for config in configs:
        counterpart = claim.counterpart(config)
        if counterpart is not None and counterpart.name in columns:
            pairs.append((config.edit_point, (columns[config.name], columns[counterpart.name])))
    return pairs


def _by_edit_point(pairs: list[tuple[str, ConfigPair]]) -> list[tuple[str, list[ConfigPair]]]:
    """All pairs, and those of each level if there are several levels."""
    edit_points = list(dict.fromkeys(edit_point for edit_point, _ in pairs))
    by_point = [
        (edit_point, [pair for pair_point, pair in pairs if pair_point == edit_point])
        for edit_point in edit_points
    ]
    all_points = [("all", [pair for _, pair in pairs])] if pairs else []
    return all_points + (by_point if len(edit_points) > 1 else [])


def _mean_effects(
    resamples: PairedResamples, pair_lists: Sequence[Sequence[ConfigPair]]
) -> PairedEffects:
    """The mean difference over each list, on all units and on resampled units."""
    columns = [np.array(pairs) for pairs in pair_lists]

    def mean_differences(values: NDArray[np.float64]) -> NDArray[np.float64]:
        differences = [
            (values[..., pair_columns[:, 0]] - values[..., pair_columns[:, 1]]).mean(axis=-1)
            for pair_columns in columns
        ]
        return np.stack(differences, axis=-1)

    return PairedEffects(
        values=mean_differences(resamples.full),
        resamples=mean_differences(resamples.resamples),
        base=resamples.resamples[:, 0],
        design=resamples.design,
        level=resamples.level,
        items=resamples.items,
    )


def _test_claim(
    resamples: PairedResamples,
    claim: str,
    edit_point: str,
    pairs: NDArray[np.intp],
    difference: Estimate | None,
    better: Better,
    base: Estimate | None,
) -> ClaimTest:
    sign = -1 if better == "lower" else 1
    with_values, without_values = resamples.full[pairs[:, 0]], resamples.full[pairs[:, 1]]
    return ClaimTest(
        claim=claim,
        edit_point=edit_point,
        n_pairs=len(pairs),
        mean_without=float(without_values.mean()),
        mean_with=float(with_values.mean()),
        difference=difference,
        spread=float((with_values - without_values).std(ddof=1)) if len(pairs) > 1 else None,
        improved_pairs=int((sign * (with_values - without_values) > 0).sum()),
        verdict="untestable" if has_no_effect(base) else _verdict(difference, sign),
    )


def _verdict(difference: Estimate | None, sign: int) -> ClaimVerdict:
    if difference is None or difference.interval.low <= 0 <= difference.interval.high:
        return "undecided"
    p = difference.p
    # 1e-12 absorbs the rounding of 1 - level: 1 - 0.9 is slightly below 0.1.
    if p is None or (p.adjusted or p.value) > 1 - difference.interval.level + 1e-12:
        return "undecided"
    return "yes" if sign * difference.value > 0 else "no"


def _replace_steps(config: ProjectionConfig, **steps: object) -> ProjectionConfig:
    return ProjectionConfig.model_validate(config.model_dump() | steps)
