"""Does less bias inside a model mean less bias downstream? Dawkins et al. 2024, section 5.

The same settings are measured inside the pretrained model and in classifiers trained from it, to
which the projections are added without retraining. Several classifiers, which differ in the seed of
their training, are averaged by setting. A measure's items (triples, occupations, premises) are a
sample: they are resampled, separately for each measure. The settings are a fixed grid and the
seeds are fixed: neither is resampled.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field
from scipy import stats

from levelhead.core.calibration import MeasureKey
from levelhead.core.errors import LevelheadError
from levelhead.core.results import Estimate, Interval, Provenance, Record
from levelhead.mitigate.evaluation.gain import average_resamples
from levelhead.mitigate.evaluation.rank_stability import correlate_ranks
from levelhead.mitigate.projection.config_grid import EDIT_POINTS
from levelhead.replication.dawkins2024.claims import Better, ClaimTests, run_claim_tests

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from levelhead.mitigate.evaluation.gain import PairedResamples

Viability = Literal["absolute", "relative"]
REGRET_MARGIN = 0.05
"""Share of the best value below which a loss counts as negligible."""


class MeasureColumn(Record):
    """A measure of the base and of every setting: a column of Table 7."""

    name: str
    better: Better
    unit: str = ""
    measured_by: MeasureKey | None = None
    """The measure."""
    base: float
    names: tuple[str, ...]
    values: tuple[float, ...]
    per_model: tuple[tuple[float, ...], ...] = ()
    """Values of each classifier: the base, then the settings."""

    @property
    def values_by_config(self) -> dict[str, float]:
        """The values by setting, in the order of the grid."""
        return dict(zip(self.names, self.values, strict=True))


class BestConfig(Record):
    """The best setting of a level by a measure, among those that are viable: Table 5.

    It is chosen and reported on the same items, so its value is optimistic.
    """

    edit_point: str
    """Or "base"."""
    measure: str
    n_configs: Annotated[int, Field(ge=1)]
    config: str | None
    """None: no setting of the level is viable."""
    value: float | None = None
    utility: float | None = None


class SelectionRegret(Record):
    """The extrinsic loss of a selection by an intrinsic measure, or by another objective."""

    chosen_by: str
    measure: str
    config: str
    """The best setting by the measure that chooses."""
    best_config: str
    """The best setting by the extrinsic measure, on all of its items."""
    regret: Estimate
    """How much better the best setting is than the chosen one, on units that were not used to find
    the best."""
    verdict: Literal["yes", "no", "undecided"]
    """Whether there is a loss; no: the upper end is below a twentieth of the best value."""


class DownstreamReport(Record):
    """Tables 5, 6 and 7 of Dawkins et al. 2024, and how intrinsic and extrinsic agree."""

    columns: Annotated[tuple[MeasureColumn, ...], Field(min_length=1)]
    intrinsic: tuple[str, ...]
    extrinsic: tuple[str, ...]
    models: Annotated[int, Field(ge=1)]
    """Number of averaged classifiers."""
    utility_measure: str
    viability: Viability
    max_utility_loss: float
    """Maximum utility loss of a viable setting: in the unit, or as a share of the base's value."""
    utility_limit: float
    """The worst utility value that a viable setting may have."""
    viable: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    """Settings that some model cannot have, or for which it has no value."""
    best_configs: tuple[BestConfig, ...]
    correlations: tuple[Estimate, ...]
    """Spearman correlations of every intrinsic with every extrinsic column, over settings and
    base."""
    regrets: tuple[SelectionRegret, ...]
    claim_tests: tuple[ClaimTests, ...]
    provenance: tuple[Provenance, ...] = ()
    """Provenance of every measure of every model."""

    def column(self, name: str) -> MeasureColumn:
        """Return a column by its name."""
        for column in self.columns:
            if column.name == name:
                return column
        raise LevelheadError(f"no column {name!r}", hint="see .columns")


class ColumnInfo(Record):
    """Description of a column: its name, better direction and unit."""

    name: str
    better: Better
    unit: str = ""
    measured_by: MeasureKey | None = None
    """The measure."""


def compare_downstream(
    names: Sequence[str],
    intrinsic: Mapping[ColumnInfo, PairedResamples],
    extrinsic: Mapping[ColumnInfo, Sequence[PairedResamples]],
    *,
    utility_measure: str,
    left_out: Sequence[str] = (),
    max_utility_loss: float = 0.05,
    viability: Viability = "relative",
    provenance: Sequence[Provenance] = (),
) -> DownstreamReport:
    """Compare settings by intrinsic and extrinsic measures. No model is run.

    Args:
        names: names of the settings, in the order of the columns.
        intrinsic: measures of the pretrained model, base first.
        extrinsic: measures of each classifier, base first, with out-of-bag units.
        utility_measure: one of the extrinsic measures, such as an accuracy.
        left_out: settings to report as missing.
        max_utility_loss: maximum utility loss of a viable setting.
        viability: "absolute": loss in the unit of the utility measure (points, if it is in %);
            "relative": loss as a share of the base's value.
        provenance: provenance of the responses.
    """
    if viability not in ("absolute", "relative"):
        raise LevelheadError(f"viability is {viability!r}", hint="give absolute or relative")
    if utility_measure not in {info.name for info in extrinsic}:
        raise LevelheadError(
            f"{utility_measure} is not an extrinsic measure", hint="measure the utility as well"
        )
    extrinsic_means = {info: average_resamples(per_model) for info, per_model in extrinsic.items()}
    if any(
        len(resamples.full) != 1 + len(names)
        for resamples in (*intrinsic.values(), *extrinsic_means.values())
    ):
        raise LevelheadError(
            f"{len(names)} settings, and columns of another length", hint="give every setting once"
        )
    columns = [_column(info, resamples, names) for info, resamples in intrinsic.items()]
    columns += [
        _column(info, extrinsic_means[info], names, per_model)
        for info, per_model in extrinsic.items()
    ]
    utility = next(
        resamples for info, resamples in extrinsic_means.items() if info.name == utility_measure
    )
    base, sign = (
        float(utility.full[0]),
        _sign(next(info for info in extrinsic_means if info.name == utility_measure)),
    )
    # The paper says "not more than 5%" of 0.8889. Neither reading, .8389 (absolute) nor .8445
    # (relative), reproduces its Table 5, so both are offered.
    utility_limit = base - sign * max_utility_loss * (abs(base) if viability == "relative" else 1.0)
    # A setting exactly at the limit is viable, despite rounding.
    is_viable = sign * utility.full[1:] >= sign * utility_limit - 1e-12
    all_columns = {**intrinsic, **extrinsic_means}
    best_configs = [
        row
        for info, resamples in all_columns.items()
        if info.name != utility_measure
        for row in _best_configs(
            info, resamples, names, is_viable if info in extrinsic_means else None, utility.full[1:]
        )
    ]
    return DownstreamReport(
        columns=tuple(columns),
        intrinsic=tuple(info.name for info in intrinsic),
        extrinsic=tuple(info.name for info in extrinsic),
        models=len(next(iter(extrinsic.values()))),
        utility_measure=utility_measure,
        viability=viability,
        max_utility_loss=max_utility_loss,
        utility_limit=utility_limit,
        left_out=tuple(left_out),
        provenance=tuple(provenance),
        viable=tuple(name for name, is_within in zip(names, is_viable, strict=True) if is_within),
        best_configs=tuple(best_configs),
        correlations=_correlations(intrinsic, extrinsic_means),
        regrets=_regrets(intrinsic, extrinsic_means, names, utility_measure, is_viable),
        claim_tests=tuple(
            run_claim_tests(
                resamples,
                names,
                measure=info.name,
                better=info.better,
                unit=info.unit,
                measured_by=info.measured_by,
            )
            for info, resamples in all_columns.items()
        ),
    )


def _column(
    info: ColumnInfo,
    resamples: PairedResamples,
    names: Sequence[str],
    per_model: Sequence[PairedResamples] = (),
) -> MeasureColumn:
    return MeasureColumn(
        name=info.name,
        better=info.better,
        unit=info.unit,
        measured_by=info.measured_by,
        base=float(resamples.full[0]),
        names=tuple(names),
        values=tuple(resamples.full[1:].tolist()),
        per_model=tuple(tuple(model_resamples.full.tolist()) for model_resamples in per_model),
    )


def _best_configs(
    info: ColumnInfo,
    resamples: PairedResamples,
    names: Sequence[str],
    is_viable: NDArray[np.bool_] | None,
    utility: NDArray[np.float64],
) -> list[BestConfig]:
    """The best setting of every level; by extrinsic measures, among the viable ones."""
    best_configs = []
    for edit_point in EDIT_POINTS:
        indices = [i for i, name in enumerate(names) if name.partition(" ")[0] == edit_point]
        if not indices:
            continue
        make_best = partial(
            BestConfig, edit_point=edit_point, measure=info.name, n_configs=len(indices)
        )
        candidates = [i for i in indices if is_viable is None or is_viable[i]]
        if not candidates:
            best_configs.append(make_best(config=None))
            continue
        values = _sign(info) * resamples.full[1:]
        index = max(candidates, key=lambda i: values[i])
        best_configs.append(
            make_best(
                config=names[index],
                value=float(resamples.full[1 + index]),
                utility=float(utility[index]),
            )
        )
    return best_configs


def _correlations(
    intrinsic: Mapping[ColumnInfo, PairedResamples], extrinsic: Mapping[ColumnInfo, PairedResamples]
) -> tuple[Estimate, ...]:
    estimates = []
    for info, resamples in intrinsic.items():
        for extrinsic_info, extrinsic_resamples in extrinsic.items():
            # -1: the base itself, which is one of the paper's 76 models.
            first, second = (
                column_resamples.effects(range(-1, len(column_resamples.full) - 1))
                for column_resamples in (resamples, extrinsic_resamples)
            )
            # From the published Table 7 it is -0.04 for Strength and fairness; the text prints
            # +0.040.
            estimate = correlate_ranks(
                first, second, f"spearman of {info.name} and {extrinsic_info.name}"
            )
            estimates += [] if estimate is None else [estimate]
    return tuple(estimates)


def _regrets(
    intrinsic: Mapping[ColumnInfo, PairedResamples],
    extrinsic: Mapping[ColumnInfo, PairedResamples],
    names: Sequence[str],
    utility_measure: str,
    is_viable: NDArray[np.bool_],
) -> tuple[SelectionRegret, ...]:
    """The extrinsic loss of the best setting by every other measure, among viable settings."""
    if not is_viable.any():
        return ()
    all_columns = {**intrinsic, **extrinsic}
    regrets = []
    for extrinsic_info, extrinsic_resamples in extrinsic.items():
        for info, resamples in all_columns.items():
            # A measure loses nothing by its own choice, and the utility is a constraint, not an
            # objective.
            if info.name in (extrinsic_info.name, utility_measure):
                continue
            chosen_index, best_index = (
                int(
                    np.where(
                        is_viable, _sign(column_info) * column_resamples.full[1:], -np.inf
                    ).argmax()
                )
                for column_info, column_resamples in (
                    (info, resamples),
                    (extrinsic_info, extrinsic_resamples),
                )
            )
            regret = _estimate_regret(
                extrinsic_resamples,
                _sign(extrinsic_info),
                (chosen_index, best_index),
                is_viable,
                f"{extrinsic_info.name} lost by {info.name}",
            )
            regrets.append(
                SelectionRegret(
                    chosen_by=info.name,
                    measure=extrinsic_info.name,
                    config=names[chosen_index],
                    best_config=names[best_index],
                    regret=regret,
                    verdict=_regret_verdict(
                        regret, REGRET_MARGIN * abs(float(extrinsic_resamples.full[1 + best_index]))
                    ),
                )
            )
    return tuple(regrets)


def _estimate_regret(
    resamples: PairedResamples,
    sign: int,
    indices: tuple[int, int],
    is_viable: NDArray[np.bool_],
    name: str,
) -> Estimate:
    """The mean out-of-bag difference of the resample's best setting and the chosen one.

    Its standard error is the larger of two: that of the difference of the chosen setting and the
    best one, and that of the same difference with the best setting found again in every resample.
    """
    chosen_index, best_index = indices
    if not len(resamples.out_of_bag):
        raise LevelheadError("no units were left out", hint="resample with out_of_bag=True")
    # The best setting on all units is partly luck. Found again in every resample and valued on the
    # units left out, it is not.
    resampled_best = np.where(is_viable, sign * resamples.resamples[:, 1:], -np.inf).argmax(axis=1)
    rows = np.arange(len(resampled_best))
    value = float(
        (
            sign
            * (
                resamples.out_of_bag[rows, 1 + resampled_best]
                - resamples.out_of_bag[:, 1 + chosen_index]
            )
        ).mean()
    )
    (factor,) = resamples.design.factors
    # Out-of-bag values have few units and vary more than the estimate, so the spread is that of the
    # resamples.
    spreads = [
        float(
            (
                resamples.resamples[rows, 1 + reference] - resamples.resamples[:, 1 + chosen_index]
            ).std(ddof=1)
        )
        for reference in (np.full(len(rows), best_index), resampled_best)
    ]
    # The bootstrap variance has divisor n; this rescales it to the degrees of freedom.
    error = max(spreads) * float(np.sqrt(factor.n_units / factor.df))
    half_width = float(stats.t.ppf((1 + resamples.level) / 2, factor.df)) * error
    return Estimate(
        name=name,
        value=value,
        interval=Interval(
            low=value - half_width,
            high=value + half_width,
            level=resamples.level,
            method=f"out of bag, t, {resamples.design}",
        ),
        parity=0.0,
        n=resamples.design.n_items,
    )


def _regret_verdict(regret: Estimate, margin: float) -> Literal["yes", "no", "undecided"]:
    if regret.interval.low > 0:
        return "yes"
    return "no" if regret.interval.high < margin else "undecided"


def _sign(info: ColumnInfo) -> int:
    return 1 if info.better == "higher" else -1
