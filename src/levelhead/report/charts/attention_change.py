"""Attention in sentences and their twins (Yang et al. 2025, Figure 4), and what it rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from levelhead.report.head_map_labels import data, model_name
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import INK, OKABE_ITO, PALE, column, ends, finished, number, panel

if TYPE_CHECKING:
    from altair.typing import ChartType

    from levelhead.core.results import Estimate
    from levelhead.explain.attention.changes import AttentionChange
    from levelhead.explain.attention.counterstereotype import CounterStereotype

SENTENCES = ("original", "counter")
COLOURS = (OKABE_ITO[0], OKABE_ITO[6])
TITLE = {
    "attention": "attention, as the model computes it",
    "value-weighted": "attention times the norm of what it moves",
}


def counterstereotyped(found: CounterStereotype) -> ChartType:
    """Figure 4, and below it the differences with their controls, for both kinds of attention."""
    drawn = alt.vconcat(
        alt.hconcat(*(_means(one) for one in (found.attention, found.weighted)), spacing=50),
        alt.vconcat(*(_forest(one) for one in (found.attention, found.weighted)), spacing=24),
        spacing=34,
    )
    return finished(
        drawn,
        f"Counter-stereotype experiment: heads of {model_name(found.provenance)}",
        [
            f"{found.n} sentences of {len(found.targets)} targets, {len(found.dropped)} dropped; "
            "attention of the target on the attribute, min-max normalised; intervals redraw "
            "targets",
            *_paper(found.attention),
            "the claim is the difference biased - regular, beside a placebo twin and random heads",
        ],
        width=700,
    )


def _paper(change: AttentionChange) -> list[str]:
    told = [
        f"{one.group} ({one.heads} heads): t = {one.paper.t:.2f}, p {number(one.paper.p.value)}"
        for one in change.groups
    ]
    return [f"as the paper tests, one-sided over sentences: {'; '.join(told)}"]


def _means(change: AttentionChange) -> ChartType:
    rows = [
        {
            "group": f"{one.group} heads",
            "sentence": sentence,
            "value": own.value,
            "low": own.interval.low,
            "high": own.interval.high,
            "told": f"{number(own.value)} {ends(own.interval.low, own.interval.high)}",
        }
        for one in change.groups
        for sentence, own in zip(SENTENCES, (one.original, one.counter), strict=True)
    ]
    base = alt.Chart(data(rows)).encode(
        x=alt.X("group:N", title=None, sort=None, axis=alt.Axis(labelAngle=0)),
        xOffset=alt.XOffset("sentence:N", sort=list(SENTENCES)),
        tooltip=[
            alt.Tooltip("group:N", title="heads"),
            alt.Tooltip("sentence:N", title="sentence"),
            alt.Tooltip("told:N", title="mean attention"),
        ],
    )
    bars = base.mark_bar().encode(
        y=alt.Y("value:Q", title="mean attention, share of the row's range"),
        color=alt.Color(
            "sentence:N",
            title="sentence",
            sort=list(SENTENCES),
            scale=alt.Scale(domain=list(SENTENCES), range=list(COLOURS)),
        ),
    )
    reach = base.mark_rule(color=INK, strokeWidth=1.5).encode(y="low:Q", y2="high:Q")
    caps = [
        base.mark_tick(color=INK, size=10, thickness=1.5).encode(y=f"{end}:Q")
        for end in ("low", "high")
    ]
    return alt.layer(bars, reach, *caps).properties(
        width=230, height=220, title=panel(TITLE[change.weighting])
    )


def _forest(change: AttentionChange) -> ChartType:
    """Differences as points with intervals; where random groups of heads lie as a grey band."""
    biased, regular = (one.change for one in change.groups)
    named: list[tuple[str, Estimate | None]] = [
        ("biased heads: original - counter", biased),
        ("regular heads: original - counter", regular),
        ("biased - regular", change.difference),
        ("the same, as many tokens", change.same_length),
        ("the same, placebo twins", change.placebo),
        ("the same, less its placebo", change.net),
    ]
    rows = [_row(name, one) for name, one in named if one is not None]
    order = [one["name"] for one in rows]
    layers: list[alt.Chart] = [
        alt.Chart(data([{"x": 0}])).mark_rule(color=PALE).encode(x="x:Q"),
    ]
    random = change.relabelled
    if random is not None:
        name = "where random groups of heads lie"
        order.insert(3, name)
        band = {
            "name": name,
            "low": random.random.low,
            "high": random.random.high,
            "told": ends(random.random.low, random.random.high),
            "told p": number(random.p.value),
            "n": "",
        }
        layers.append(_band(band, order))
        rows.insert(3, {**band, "value": random.difference, "low": None, "high": None})
    x = alt.X(
        "low:Q",
        title="difference in attention, share of the row's range",
        scale=alt.Scale(padding=14),
        axis=alt.Axis(tickCount=5),
    )
    y = alt.Y("name:N", title=None, sort=order, scale=alt.Scale(domain=order))
    base = alt.Chart(data(rows)).encode(y=y.axis(ticks=False, labelPadding=8))
    layers += [
        base.mark_rule(color=INK, strokeWidth=2).encode(x=x, x2="high:Q"),
        base.mark_point(filled=True, size=70, color=OKABE_ITO[1], opacity=1).encode(
            x="value:Q", tooltip=_tips()
        ),
    ]
    p = alt.Chart(data(rows)).mark_text(align="left", fontSize=11, color=INK)
    told = p.encode(x=alt.value(0), y=y.axis(None), text="told p:N")
    tall = 24 * len(order)
    return alt.hconcat(
        alt.layer(*layers).properties(
            width=400, height=tall, title=panel(f"differences: {TITLE[change.weighting]}")
        ),
        told.properties(width=60, height=tall, title=column("p")),
        spacing=14,
    )


def _row(name: str, one: Estimate) -> dict[str, Any]:
    return {
        "name": name,
        "value": one.value,
        "low": one.interval.low,
        "high": one.interval.high,
        "told": f"{number(one.value)} {ends(one.interval.low, one.interval.high)}",
        "told p": "none" if one.p is None else number(one.p.value),
        "n": str(one.n),
    }


def _band(band: dict[str, Any], order: list[str]) -> alt.Chart:
    y = alt.Y("name:N", sort=order, scale=alt.Scale(domain=order))
    bar = alt.Chart(data([band])).mark_bar(color="#cfcfcf", height=12)
    drawn: alt.Chart = bar.encode(x="low:Q", x2="high:Q", y=y, tooltip=_tips())
    return drawn


def _tips() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("name:N", title="which"),
        alt.Tooltip("told:N", title="value, interval"),
        alt.Tooltip("told p:N", title="p"),
        alt.Tooltip("n:N", title="sentences"),
    ]
