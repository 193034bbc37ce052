import numpy as np
import pytest
import torch
from scipy import stats

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.measures.reductions import half_difference, mean
from levelhead.stats.bootstrap import bootstrap, default_method
from levelhead.stats.designs import clustered_design, crossed_design, grouped_design
from levelhead.stats.intervals import weat_effect_size

X = np.random.default_rng(1).gamma(2.0, size=60)


def mean_of_x(draw):
    return float(X[draw.items].mean())


@pytest.mark.parametrize(("method", "scipys"), [("percentile", "percentile"), ("bca", "BCa")])
def test_independent_items_are_the_ordinary_bootstrap(method, scipys):
    ours = bootstrap(mean_of_x, grouped_design(60), rng=np.random.default_rng(3), method=method)
    # BCa is moved out as if by Student's t with the unbiased variance; percentiles are not.
    wide = 2 * stats.norm.cdf(np.sqrt(60 / 59) * stats.t.ppf(0.975, 59)) - 1
    theirs = stats.bootstrap(
        (X,),
        np.mean,
        n_resamples=1999,
        method=scipys,
        confidence_level=wide if method == "bca" else 0.95,
        rng=np.random.default_rng(3),
    )
    assert ours.value == pytest.approx(X.mean())
    assert ours.interval.low == pytest.approx(theirs.confidence_interval.low)
    assert ours.interval.high == pytest.approx(theirs.confidence_interval.high)
    assert ours.standard_error == pytest.approx(theirs.standard_error * np.sqrt(60 / 59))
    assert ours.df == 59


def test_the_same_chance_gives_the_same_interval():
    first, second = (
        bootstrap(mean_of_x, grouped_design(60), rng=np.random.default_rng(3)) for _ in range(2)
    )
    assert first.interval.to_json() == second.interval.to_json()


def test_clusters_of_one_item_are_independent_items():
    alone = bootstrap(mean_of_x, grouped_design(60), rng=np.random.default_rng(3), method="bca")
    each = bootstrap(
        mean_of_x, clustered_design(range(60)), rng=np.random.default_rng(3), method="bca"
    )
    assert (each.interval.low, each.interval.high) == (alone.interval.low, alone.interval.high)


def test_expanded_intervals_are_those_of_t_for_means():
    # For a normal mean the expanded percentile interval is Student's, up to resampling noise.
    x = stats.norm.ppf((np.arange(12) + 0.5) / 12)
    interval = bootstrap(
        lambda draw: float(x[draw.items].mean()),
        grouped_design(12),
        rng=np.random.default_rng(0),
        n_resamples=40_000,
        method="expanded",
    ).interval
    half = stats.t.ppf(0.975, 11) * x.std(ddof=1) / np.sqrt(12)
    assert interval.high == pytest.approx(half, rel=0.06)
    assert interval.low == pytest.approx(-half, rel=0.06)


def test_the_variance_of_crossed_means_is_owens():
    # Owen 2007: the pigeonhole variance of a full table's mean, in expectation over resamples, is
    # that of redrawing row means and column means, and both at once.
    rng = np.random.default_rng(5)
    z = rng.normal(size=(30, 12)) + rng.normal(size=(30, 1)) + rng.normal(size=(1, 12))
    rows, columns = np.indices(z.shape).reshape(2, -1)
    flat = z.ravel()
    result = bootstrap(
        lambda draw: float(flat[draw.items].mean()),
        crossed_design({"rows": rows.tolist(), "columns": columns.tolist()}),
        rng=rng,
        n_resamples=20_000,
        method="percentile",
    )
    row, column = z.mean(1) - z.mean(), z.mean(0) - z.mean()
    rest = z - z.mean() - row[:, None] - column[None, :]
    exact = (row**2).sum() / 30**2 + (column**2).sum() / 12**2 + (rest**2).sum() / 360**2
    assert result.standard_error**2 == pytest.approx(exact * 12 / 11, rel=0.04)
    assert result.df == 11


def test_the_multiway_variance_counts_each_source_once():
    # Cameron, Gelbach and Miller: rows + columns - cells, each with its own degrees of freedom.
    rng = np.random.default_rng(5)
    z = rng.normal(size=(30, 12)) + rng.normal(size=(30, 1)) + rng.normal(size=(1, 12))
    rows, columns = np.indices(z.shape).reshape(2, -1)
    flat = z.ravel()
    result = bootstrap(
        lambda draw: float(flat[draw.items].mean()),
        crossed_design({"rows": rows.tolist(), "columns": columns.tolist()}),
        rng=rng,
        n_resamples=40_000,
    )
    exact = z.mean(1).var(ddof=1) / 30 + z.mean(0).var(ddof=1) / 12 - flat.var(ddof=1) / 360
    assert result.standard_error**2 == pytest.approx(exact, rel=0.04)
    half = stats.t.ppf(0.975, 11) * np.sqrt(exact)
    assert result.interval.low == pytest.approx(flat.mean() - half, rel=0.05, abs=0.05)
    assert result.interval.high == pytest.approx(flat.mean() + half, rel=0.05, abs=0.05)


def test_the_multiway_variance_is_at_least_that_of_any_factor():
    # Without any factor's effect the difference may fall below: then the largest one stands.
    rng = np.random.default_rng(11)
    flat = rng.normal(size=200)
    rows, columns = np.indices((20, 10)).reshape(2, -1).tolist()

    def mean(draw):
        return float(flat[draw.items].mean())

    table = crossed_design({"rows": rows, "columns": columns})
    both = bootstrap(mean, table, rng=rng, n_resamples=20_000)
    rows_only = bootstrap(mean, clustered_design(rows), rng=rng, n_resamples=20_000)
    columns_only = bootstrap(mean, clustered_design(columns), rng=rng, n_resamples=20_000)
    alone = max(rows_only.standard_error, columns_only.standard_error)
    assert both.standard_error >= 0.97 * alone


def test_statistics_over_units_work_in_crossed_designs():
    """In a full table the mean of the rows' means is the mean, whatever is redrawn and held."""
    flat = np.random.default_rng(2).normal(size=60)
    rows, columns = np.indices((10, 6)).reshape(2, -1).tolist()
    table = crossed_design({"rows": rows, "columns": columns})

    def mean(draw):
        return float(flat[draw.items].mean())

    def mean_of_means(draw):
        units = draw.unit_numbers("rows")
        return float(np.mean([flat[draw.items[units == unit]].mean() for unit in np.unique(units)]))

    base, by_unit = (
        bootstrap(reduce, table, rng=np.random.default_rng(1), n_resamples=99, method="percentile")
        for reduce in (mean, mean_of_means)
    )
    assert by_unit.interval.low == pytest.approx(base.interval.low)
    assert by_unit.interval.high == pytest.approx(base.interval.high)
    # With "multiway" each factor is redrawn alone, then the cells: there the rows are held.
    assert bootstrap(mean_of_means, table, rng=np.random.default_rng(1), n_resamples=99).df == 5


def test_the_method_follows_the_design():
    assert default_method(grouped_design(84, 84)) == "bca"
    assert default_method(grouped_design(84, 8)) == "expanded"
    assert default_method(clustered_design([0, 0, 1, 1])) == "expanded"
    assert default_method(crossed_design({"a": [0, 0, 1, 1], "b": [0, 1, 0, 1]})) == "multiway"


def test_selection_is_made_again_in_every_resample():
    # The mean of the largest item has no spread if the item is chosen once.
    result = bootstrap(
        lambda draw: float(X[draw.items].max()),
        grouped_design(60),
        rng=np.random.default_rng(0),
        method="percentile",
    )
    assert result.standard_error > 0


def test_p_is_students():
    result = bootstrap(mean_of_x, grouped_design(60), rng=np.random.default_rng(3))
    t = (result.value - 1.5) / result.standard_error
    assert result.p(1.5).value == pytest.approx(2 * stats.t.sf(abs(t), 59))
    assert result.p(1.5, alternative="greater").value == pytest.approx(stats.t.sf(t, 59))
    assert result.p(1.5, alternative="less").value == pytest.approx(stats.t.cdf(t, 59))


@pytest.mark.parametrize("method", ["percentile", "bca", "expanded"])
@pytest.mark.parametrize(
    ("reduce", "what"),
    [
        (lambda draw: 1.0, "every resample gives the same value"),
        # 0.1 summed in different orders: rounding is not spread.
        (lambda draw: float(np.full(60, 0.1)[draw.items].sum() / 60), "the same value"),
        (lambda draw: np.nan, "not a finite number"),
        (lambda draw: np.inf if draw.items[0] == draw.items[1] else 1.0, "not a finite number"),
    ],
)
def test_what_cannot_be_judged_is_refused(method, reduce, what):
    with pytest.raises(NotMeasurableError, match=what):
        bootstrap(reduce, grouped_design(60), rng=np.random.default_rng(0), method=method)


def test_a_nearly_empty_table_is_refused():
    diagonal = crossed_design({"rows": [0, 1], "columns": [0, 1]})
    with pytest.raises(NotMeasurableError, match="nearly empty"):
        bootstrap(lambda draw: float(draw.items.mean()), diagonal, rng=np.random.default_rng(0))


def test_bca_says_where_it_breaks_down():
    """|d| of two lists that hardly differ: nearly every resample is larger."""
    x = np.random.default_rng(8).normal(size=168)
    x[:84] -= x[:84].mean()
    x[84:] -= x[84:].mean()

    def size(draw):
        first, second = (x[group] for group in draw.groups)
        return abs(weat_effect_size(first, second) + 0.01)

    with pytest.raises(NotMeasurableError, match="% of the resamples lie below the value itself"):
        bootstrap(size, grouped_design(84, 84), rng=np.random.default_rng(0))


def test_bca_without_a_jackknife_is_refused():
    """A median of many ties moves in resamples and not when one item is left out."""
    x = np.repeat([0.0, 1.0, 2.0], [20, 21, 20])
    with pytest.raises(NotMeasurableError, match="the value is the same without any one unit"):
        bootstrap(
            lambda draw: float(np.median(x[draw.items])),
            grouped_design(61),
            rng=np.random.default_rng(0),
        )


def test_very_few_units_get_students_interval():
    labels = np.repeat(np.arange(3), 20)
    x = np.random.default_rng(3).normal(size=3)[labels] + np.random.default_rng(4).normal(size=60)
    result = bootstrap(
        lambda draw: float(x[draw.items].mean()),
        clustered_design(labels.tolist()),
        rng=np.random.default_rng(0),
    )
    half = stats.t.ppf(0.975, 2) * result.standard_error
    assert result.interval.low == pytest.approx(result.value - half)
    means = x.reshape(3, 20).mean(1)
    assert result.standard_error == pytest.approx(means.std(ddof=1) / np.sqrt(3), rel=0.08)


def test_strata_count_their_degrees_of_freedom_together():
    lopsided = clustered_design(range(42), within=[0] * 40 + [1] * 2)
    x = np.random.default_rng(3).normal(size=42)
    result = bootstrap(
        lambda draw: float(x[draw.items].mean()), lopsided, rng=np.random.default_rng(0)
    )
    assert result.df == 40


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"level": 95}, "level 95 with 1999 resamples"),
        ({"n_resamples": 1}, "with 1 resamples"),
        ({"method": "BCa"}, "did you mean 'bca'"),
        ({"rng": None}, "numpy Generator, not NoneType"),
        ({"rng": 7}, "numpy Generator, not int"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong, what):
    with pytest.raises(LevelheadError, match=what):
        bootstrap(mean_of_x, grouped_design(60), **({"rng": np.random.default_rng(0)} | wrong))


@pytest.mark.parametrize(
    ("design", "over"),
    [
        (grouped_design(60), mean),  # bca
        (grouped_design(8, 52), mean),
        (grouped_design(30, 30), half_difference),
        (clustered_design([i % 7 for i in range(60)]), mean),
        (
            crossed_design(
                {"row": [i // 10 for i in range(60)], "column": [i % 10 for i in range(60)]}
            ),
            mean,
        ),
    ],
    ids=["items", "groups", "difference", "clusters", "crossed"],
)
def test_many_draws_at_once_are_those_of_one_after_the_other(design, over):
    values = torch.from_numpy(X)
    literal, quick = (
        bootstrap(
            lambda draw: float(over(values, draw)),
            design,
            rng=np.random.default_rng(5),
            n_resamples=299,
            vectorised=at_once,
        )
        for at_once in (None, lambda times: over.vectorised(X[:, None], times)[:, 0])
    )
    assert quick.value == literal.value
    assert quick.interval.low == pytest.approx(literal.interval.low, rel=1e-12)
    assert quick.interval.high == pytest.approx(literal.interval.high, rel=1e-12)
    assert quick.standard_error == pytest.approx(literal.standard_error, rel=1e-12)


def test_a_draw_without_items_is_refused_at_once_too():
    sparse = crossed_design({"rows": [0, 1, 2], "columns": [0, 1, 2]})
    with pytest.raises(NotMeasurableError, match="has no items"):
        bootstrap(
            mean_of_x,
            sparse,
            rng=np.random.default_rng(0),
            vectorised=lambda times: mean.vectorised(X[:3, None], times)[:, 0],
        )
