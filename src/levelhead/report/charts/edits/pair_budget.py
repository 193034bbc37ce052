"""How many pairs are enough: directions, and what an edit changes, by the number of pairs.

Dawkins et al. 2024 fit on "a very small handful" of pairs; here are 5 to 500 side by side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from levelhead.core.errors import LevelheadError
from levelhead.report.head_map_labels import data
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import (
    DASHES,
    INK,
    OKABE_ITO,
    SHAPES,
    categories,
    ends,
    few,
    finished,
    named,
    number,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from altair.typing import ChartType

    from levelhead.core.results import Estimate
    from levelhead.mitigate.projection.subspace_stability import Stability
    from levelhead.study.steps.projection_sweep import Handful, Stable

WIDTH = 460
STEP = 1.09
"""By which factor of pairs the sites stand apart: else their lines would hide each other."""


def stable(found: Stable, *, of: str = "") -> ChartType:
    """The first direction's cosine with that of all pairs, and its share, by number of pairs.

    Args:
        found: how sure the subspaces are.
        of: the model, if it is to be told in other words than theirs.
    """
    sites = [one for one in found.sites if one.by_size]
    if not sites:
        raise LevelheadError("no numbers of pairs were tried", mend="give sizes")
    names = [_site(one) for one in sites]
    sizes = sorted({size.pairs for one in sites for size in one.by_size})
    first = sites[0]
    words = f"{first.n} pairs of {first.words} words"
    told = [
        f"all {words}, words drawn anew: |cosine| "
        + "; ".join(f"{name} {_range(one.cosine)}" for name, one in zip(names, sites, strict=True)),
        f"points: medians; lines: where {first.cosine.interval.level:.0%} of the draws lie. A pair "
        "is of a word drawn anew; beyond the words there are, words come again",
    ]
    if first.dropped:
        told.append(f"{len(first.dropped)} pairs were left out")
    panels = [
        _panel(
            [(name, one.pairs, getattr(one, what)) for name, own in each for one in own.by_size],
            names,
            sizes,
            title,
        )
        for each in [list(zip(names, sites, strict=True))]
        for what, title in (
            ("cosine", "|cosine| with the direction of all pairs"),
            ("share", "share of variance, first direction"),
        )
    ]
    return finished(
        alt.vconcat(*panels, spacing=24),
        "How sure a direction is, by the number of pairs it is fitted on",
        [*named(of or first.provenance.model.rstrip("/").rpartition("/")[2]), *told],
        width=WIDTH + 60,
    )


def handful(found: Handful, *, of: str = "") -> ChartType:
    """What a setting changes, by the number of pairs it was fitted on.

    Args:
        found: the setting and its changes.
        of: the model, which it does not carry.
    """
    some = [one for one in found.sizes if one.change is not None]
    idle = [one.pairs for one in found.sizes if one.change is None]
    base = found.base
    told = [f"base {_range(base)}, n {base.n}"]
    told[0] += "" if base.parity is None else f"; its parity {number(base.parity)}"
    if some and some[0].change is not None:
        level = some[0].change.interval.level
        told.append(f"lines: intervals of each alone over items, {level:.0%}; not over pairs")
    if idle:
        told.append(f"no answer changes at all with {', '.join(map(str, idle))} pairs")
    if not some:
        raise LevelheadError(
            f"{found.setting} changes nothing, whatever it is fitted on", mend="check the edit"
        )
    rows = [("", one.pairs, one.change) for one in some if one.change is not None]
    drawn = _panel(rows, [""], [one.pairs for one in found.sizes], f"change of {found.measure}")
    return finished(
        alt.layer(_base(), drawn),
        f"{found.setting}: change of {found.measure} by the number of pairs it is fitted on",
        [*named(of), *told],
        width=WIDTH + 60,
    )


def _range(one: Estimate) -> str:
    return f"{number(one.value)} {ends(one.interval.low, one.interval.high)}"


def _site(one: Stability) -> str:
    """Blocks are counted from 1, as everywhere in charts."""
    stream, layer, head = one.site
    if stream == "pooled":
        return "pooled (sent)"
    name = f"{stream.replace('block_out', 'layer')} {layer + 1}"
    return name if head is None else f"{name}, head {head + 1}"


def _base() -> ChartType:
    zero = alt.Chart(data([{"value": 0}])).encode(y="value:Q")
    return alt.layer(
        zero.mark_rule(color=INK, strokeWidth=1.2),
        zero.mark_text(text="base", align="left", fontSize=10, color=INK).encode(
            x=alt.value(WIDTH + 5)
        ),
    )


def _panel(
    found: Sequence[tuple[str, int, Estimate]],
    names: Sequence[str],
    sizes: Sequence[int],
    title: str,
) -> ChartType:
    """A value with its interval by number of pairs, one line a name."""
    few(names)
    rows = [_row(name, pairs, own, names) for name, pairs, own in found]
    x = alt.X(
        "at:Q",
        title="pairs",
        scale=alt.Scale(type="log", domain=[min(sizes) / 1.25, max(sizes) * 1.25], nice=False),
        axis=alt.Axis(values=sorted(set(sizes)), format="d", grid=False, labelOverlap="greedy"),
    )
    y = alt.Y("value:Q", title=title, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=6))
    base = alt.Chart(data(rows)).encode(x=x)
    several = len(names) > 1
    told: dict[str, Any] = {"sort": list(names), "legend": _legend() if several else None}

    def scale(values: Sequence[Any]) -> alt.Scale:
        return alt.Scale(domain=list(names), range=list(values[: len(names)]))

    colour = (
        alt.Color("of:N", scale=categories(names), **told) if several else alt.value(OKABE_ITO[0])
    )
    dashes = scale([list(one) for one in DASHES])
    dash = alt.StrokeDash("of:N", scale=dashes, sort=list(names), legend=None)
    return alt.layer(
        base.mark_rule(strokeWidth=1.6).encode(y=alt.Y("low:Q"), y2="high:Q", color=colour),
        base.mark_line(strokeWidth=1.2).encode(y=y, color=colour, strokeDash=dash),
        base.mark_point(filled=True, size=70, opacity=1).encode(
            y=y,
            color=colour,
            shape=alt.Shape("of:N", scale=scale(SHAPES), **told),
            tooltip=[
                alt.Tooltip("pairs:Q", title="pairs"),
                alt.Tooltip("told:N", title="value, interval"),
            ],
        ),
    ).properties(width=WIDTH, height=230)


def _row(name: str, pairs: int, own: Estimate, names: Sequence[str]) -> dict[str, Any]:
    aside = list(names).index(name) - (len(names) - 1) / 2
    return {
        "of": name,
        "pairs": pairs,
        "at": pairs * STEP**aside,
        "value": own.value,
        "low": own.interval.low,
        "high": own.interval.high,
        "told": _range(own),
    }


def _legend() -> alt.Legend:
    return alt.Legend(
        title=None, orient="top", symbolOpacity=1, symbolSize=120, symbolStrokeWidth=0, columns=4
    )
