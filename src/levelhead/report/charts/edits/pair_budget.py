"""How many pairs are enough: directions and effects of an edit by the number of pairs.

Dawkins et al. 2024 fit on "a very small handful" of pairs; these charts compare 5 to 500.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from levelhead.core.errors import LevelheadError
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import (
    DASHES,
    INK,
    OKABE_ITO,
    SHAPES,
    apply_theme,
    category_scale,
    count_names,
    format_interval,
    format_number,
    inline_data,
    subtitle_lines,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from altair.typing import ChartType

    from levelhead.core.results import Estimate
    from levelhead.mitigate.projection.subspace_stability import StabilityReport
    from levelhead.replication.dawkins2024.pair_budget import (
        PairBudgetCurve,
        SubspaceStabilityReport,
    )

WIDTH = 460
STEP = 1.09
"""Horizontal offset between sites as a factor of pairs: without it, their lines overlap."""


def stability_chart(result: SubspaceStabilityReport, *, subject: str = "") -> ChartType:
    """Plot the first direction's cosine with that of all pairs, and its share, by number of pairs.

    Args:
        result: stability of the subspaces.
        subject: description of the model; by default the name that the result stores.
    """
    sites = [site for site in result.sites if site.by_size]
    if not sites:
        raise LevelheadError("no numbers of pairs were tried", hint="give sizes")
    names = [_site(site) for site in sites]
    sizes = sorted({size.n_pairs for site in sites for size in site.by_size})
    first = sites[0]
    words = f"{first.n} pairs of {first.words} words"
    captions = [
        f"all {words}, words resampled: |cosine| "
        + "; ".join(
            f"{name} {_format_estimate(site.cosine)}"
            for name, site in zip(names, sites, strict=True)
        ),
        f"points: medians; lines: range of {first.cosine.interval.level:.0%} of the resamples. "
        "Words are sampled with replacement, one per pair",
    ]
    if first.dropped:
        captions.append(f"{len(first.dropped)} pairs were left out")
    panels = [
        _panel(
            [
                (name, at_size.n_pairs, getattr(at_size, what))
                for name, site in named_sites
                for at_size in site.by_size
            ],
            names,
            sizes,
            title,
        )
        for named_sites in [list(zip(names, sites, strict=True))]
        for what, title in (
            # Absolute, because the sign of a fitted direction is arbitrary.
            ("cosine", "|cosine| with the direction of all pairs"),
            ("share", "share of variance, first direction"),
        )
    ]
    return apply_theme(
        alt.vconcat(*panels, spacing=24),
        "How sure a direction is, by the number of pairs it is fitted on",
        [
            *subtitle_lines(subject or first.provenance.model.rstrip("/").rpartition("/")[2]),
            *captions,
        ],
        width=WIDTH + 60,
    )


def pair_budget_chart(result: PairBudgetCurve, *, subject: str = "") -> ChartType:
    """Plot the change of a measure by the number of pairs that a setting was fitted on.

    Args:
        result: the setting and its changes.
        subject: description of the model, which the result does not store.
    """
    changed = [point for point in result.sizes if point.change is not None]
    idle = [point.pairs for point in result.sizes if point.change is None]
    base = result.base
    captions = [f"base {_format_estimate(base)}, n {base.n}"]
    captions[0] += "" if base.parity is None else f"; its parity {format_number(base.parity)}"
    if changed and changed[0].change is not None:
        level = changed[0].change.interval.level
        captions.append(f"lines: intervals of each alone over items, {level:.0%}; not over pairs")
    if idle:
        captions.append(f"no answer changes at all with {', '.join(map(str, idle))} pairs")
    if not changed:
        raise LevelheadError(
            f"{result.variant} changes nothing, with any number of pairs", hint="check the edit"
        )
    rows = [("", point.pairs, point.change) for point in changed if point.change is not None]
    points_chart = _panel(
        rows, [""], [point.pairs for point in result.sizes], f"change of {result.measure}"
    )
    return apply_theme(
        alt.layer(_base(), points_chart),
        f"{result.variant}: change of {result.measure} by the number of pairs it is fitted on",
        [*subtitle_lines(subject), *captions],
        width=WIDTH + 60,
    )


def _format_estimate(estimate: Estimate) -> str:
    return (
        f"{format_number(estimate.value)} "
        f"{format_interval(estimate.interval.low, estimate.interval.high)}"
    )


def _site(site: StabilityReport) -> str:
    """Blocks are counted from 1, as everywhere in charts."""
    stream, layer, head = site.site
    if stream == "pooled":
        return "pooled (sent)"
    name = f"{stream.replace('block_out', 'layer')} {layer + 1}"
    return name if head is None else f"{name}, head {head + 1}"


def _base() -> ChartType:
    zero = alt.Chart(inline_data([{"value": 0}])).encode(y="value:Q")
    return alt.layer(
        zero.mark_rule(color=INK, strokeWidth=1.2),
        zero.mark_text(text="base", align="left", fontSize=10, color=INK).encode(
            x=alt.value(WIDTH + 5)
        ),
    )


def _panel(
    points: Sequence[tuple[str, int, Estimate]],
    names: Sequence[str],
    sizes: Sequence[int],
    title: str,
) -> ChartType:
    """Plot values with intervals by number of pairs, one line per name."""
    count_names(names)
    rows = [_row(name, pairs, estimate, names) for name, pairs, estimate in points]
    x = alt.X(
        "at:Q",
        title="pairs",
        # Logarithmic, because the numbers of pairs grow by factors, from 5 to 500.
        scale=alt.Scale(type="log", domain=[min(sizes) / 1.25, max(sizes) * 1.25], nice=False),
        axis=alt.Axis(values=sorted(set(sizes)), format="d", grid=False, labelOverlap="greedy"),
    )
    y = alt.Y("value:Q", title=title, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=6))
    base = alt.Chart(inline_data(rows)).encode(x=x)
    several = len(names) > 1
    # Shared by colour and shape: Vega-Lite merges only equal legends.
    encoding: dict[str, Any] = {"sort": list(names), "legend": _legend() if several else None}

    def scale(values: Sequence[Any]) -> alt.Scale:
        return alt.Scale(domain=list(names), range=list(values[: len(names)]))

    colour = (
        alt.Color("of:N", scale=category_scale(names), **encoding)
        if several
        else alt.value(OKABE_ITO[0])
    )
    dashes = scale([list(pattern) for pattern in DASHES])
    dash = alt.StrokeDash("of:N", scale=dashes, sort=list(names), legend=None)
    return alt.layer(
        base.mark_rule(strokeWidth=1.6).encode(y=alt.Y("low:Q"), y2="high:Q", color=colour),
        base.mark_line(strokeWidth=1.2).encode(y=y, color=colour, strokeDash=dash),
        base.mark_point(filled=True, size=70, opacity=1).encode(
            y=y,
            color=colour,
            shape=alt.Shape("of:N", scale=scale(SHAPES), **encoding),
            tooltip=[
                alt.Tooltip("pairs:Q", title="pairs"),
                alt.Tooltip("formatted:N", title="value, interval"),
            ],
        ),
    ).properties(width=WIDTH, height=230)


def _row(name: str, pairs: int, estimate: Estimate, names: Sequence[str]) -> dict[str, Any]:
    offset = list(names).index(name) - (len(names) - 1) / 2
    return {
        "of": name,
        "pairs": pairs,
        # A factor and not a difference: on this axis it is the same distance everywhere.
        "at": pairs * STEP**offset,
        "value": estimate.value,
        "low": estimate.interval.low,
        "high": estimate.interval.high,
        "formatted": _format_estimate(estimate),
    }


def _legend() -> alt.Legend:
    return alt.Legend(
        title=None, orient="top", symbolOpacity=1, symbolSize=120, symbolStrokeWidth=0, columns=4
    )
