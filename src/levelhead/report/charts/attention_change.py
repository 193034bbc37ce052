"""Attention in sentences and their counterfactuals (Yang et al. 2025, Figure 4), with controls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from levelhead.report.lazy_altair import alt
from levelhead.report.theme import (
    INK,
    OKABE_ITO,
    PALE,
    apply_theme,
    column_title,
    format_interval,
    format_number,
    inline_data,
    interval_fields,
    model_name,
    panel_title,
)

if TYPE_CHECKING:
    from altair.typing import ChartType

    from levelhead.core.results import Estimate
    from levelhead.explain.attention.changes import AttentionChange
    from levelhead.explain.attention.counterstereotype import CounterStereotypeResult

SENTENCES = ("original", "counter")
COLOURS = (OKABE_ITO[0], OKABE_ITO[6])
TITLE = {
    "attention": "attention, as the model computes it",
    "value-weighted": "attention times the norm of what it moves",
}


def attention_change_chart(result: CounterStereotypeResult) -> ChartType:
    """Plot mean attention (Figure 4) above its differences and controls, by kind of attention."""
    panels = alt.vconcat(
        alt.hconcat(
            *(_means(change) for change in (result.attention, result.weighted)), spacing=50
        ),
        alt.vconcat(
            *(_forest(change) for change in (result.attention, result.weighted)), spacing=24
        ),
        spacing=34,
    )
    return apply_theme(
        panels,
        f"Counter-stereotype experiment: heads of {model_name(result.provenance)}",
        [
            f"{result.n} sentences of {len(result.targets)} targets, {len(result.dropped)} "
            "dropped; "
            "attention of the target on the attribute, min-max normalised; intervals resample "
            "targets",
            *_paper_tests(result.attention),
            "the claim is biased - regular, with placebo counterfactuals and random heads as "
            "controls",
        ],
        width=700,
    )


def _paper_tests(change: AttentionChange) -> list[str]:
    tests = [
        (
            f"{group.group} ({group.heads} heads): t = {group.paper_t_test.t:.2f}, p "
            f"{format_number(group.paper_t_test.p.value)}"
        )
        for group in change.groups
    ]
    # The paper's test treats sentences as independent; it is shown for comparison with its numbers.
    return [f"as the paper tests, one-sided over sentences: {'; '.join(tests)}"]


def _means(change: AttentionChange) -> ChartType:
    rows = [
        {
            "group": f"{group.group} heads",
            "sentence": sentence,
            **interval_fields(estimate),
        }
        for group in change.groups
        for sentence, estimate in zip(SENTENCES, (group.original, group.counter), strict=True)
    ]
    base = alt.Chart(inline_data(rows)).encode(
        x=alt.X("group:N", title=None, sort=None, axis=alt.Axis(labelAngle=0)),
        xOffset=alt.XOffset("sentence:N", sort=list(SENTENCES)),
        tooltip=[
            alt.Tooltip("group:N", title="heads"),
            alt.Tooltip("sentence:N", title="sentence"),
            alt.Tooltip("formatted:N", title="mean attention"),
        ],
    )
    bars = base.mark_bar().encode(
        # From 0, because bars are read by their length.
        y=alt.Y("value:Q", title="mean attention, share of the row's range"),
        color=alt.Color(
            "sentence:N",
            title="sentence",
            sort=list(SENTENCES),
            scale=alt.Scale(domain=list(SENTENCES), range=list(COLOURS)),
        ),
    )
    intervals = base.mark_rule(color=INK, strokeWidth=1.5).encode(y="low:Q", y2="high:Q")
    caps = [
        base.mark_tick(color=INK, size=10, thickness=1.5).encode(y=f"{end}:Q")
        for end in ("low", "high")
    ]
    return alt.layer(bars, intervals, *caps).properties(
        width=230, height=220, title=panel_title(TITLE[change.weighting])
    )


def _forest(change: AttentionChange) -> ChartType:
    """Plot differences with intervals; a grey band shows the range of random groups of heads."""
    # The paper's claim is the third row; the rows below it are its controls.
    biased, regular = (group.change for group in change.groups)
    estimates: list[tuple[str, Estimate | None]] = [
        ("biased heads: original - counter", biased),
        ("regular heads: original - counter", regular),
        ("biased - regular", change.difference),
        ("the same, as many tokens", change.same_length),
        ("the same, placebo counterfactuals", change.placebo),
        ("the same, less its placebo", change.net),
    ]
    rows = [_row(name, estimate) for name, estimate in estimates if estimate is not None]
    order = [row["name"] for row in rows]
    layers: list[alt.Chart] = [
        alt.Chart(inline_data([{"x": 0}])).mark_rule(color=PALE).encode(x="x:Q"),
    ]
    random = change.head_permutation_test
    if random is not None:
        name = "range of random groups of heads"
        # Next to the difference whose null distribution it is.
        order.insert(3, name)
        band = {
            "name": name,
            "low": random.random_interval.low,
            "high": random.random_interval.high,
            "formatted": format_interval(random.random_interval.low, random.random_interval.high),
            "formatted p": format_number(random.p.value),
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
    base = alt.Chart(inline_data(rows)).encode(y=y.axis(ticks=False, labelPadding=8))
    layers += [
        base.mark_rule(color=INK, strokeWidth=2).encode(x=x, x2="high:Q"),
        base.mark_point(filled=True, size=70, color=OKABE_ITO[1], opacity=1).encode(
            x="value:Q", tooltip=_tips()
        ),
    ]
    p = alt.Chart(inline_data(rows)).mark_text(align="left", fontSize=11, color=INK)
    p_values = p.encode(x=alt.value(0), y=y.axis(None), text="formatted p:N")
    tall = 24 * len(order)
    return alt.hconcat(
        alt.layer(*layers).properties(
            width=400, height=tall, title=panel_title(f"differences: {TITLE[change.weighting]}")
        ),
        p_values.properties(width=60, height=tall, title=column_title("p")),
        spacing=14,
    )


def _row(name: str, estimate: Estimate) -> dict[str, Any]:
    return {
        "name": name,
        **interval_fields(estimate),
        "formatted p": "none" if estimate.p is None else format_number(estimate.p.value),
        "n": str(estimate.n),
    }


def _band(band: dict[str, Any], order: list[str]) -> alt.Chart:
    y = alt.Y("name:N", sort=order, scale=alt.Scale(domain=order))
    bar = alt.Chart(inline_data([band])).mark_bar(color="#cfcfcf", height=12)
    layer: alt.Chart = bar.encode(x="low:Q", x2="high:Q", y=y, tooltip=_tips())
    return layer


def _tips() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("name:N", title="which"),
        alt.Tooltip("formatted:N", title="value, interval"),
        alt.Tooltip("formatted p:N", title="p"),
        alt.Tooltip("n:N", title="sentences"),
    ]
