"""One sentence and its counterfactual, by word and head (Yang et al. 2025, Figure 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from levelhead.report.lazy_altair import alt
from levelhead.report.theme import (
    INK,
    PUOR,
    apply_theme,
    format_number,
    inline_data,
    model_name,
    panel_title,
)

if TYPE_CHECKING:
    from altair.typing import ChartType

    from levelhead.explain.attention.example import (
        AttentionExample,
        AttentionStrip,
        HeadAttentionStrip,
    )

COLUMNS = 2
ROW_HEIGHT = 20
MAX_LETTERS = 24
"""Number of characters of a word that the chart shows."""
LIGHT_FROM = 0.6
"""Attention above which the cell is dark and its word is white."""


def attention_example_chart(result: AttentionExample) -> ChartType:
    """Plot the target's attention to every word of the original and the counterfactual, by head."""
    width = _width(result)
    panels = [_head_panel(result, strip, width) for strip in result.heads]
    columns = min(COLUMNS, len(panels))
    return apply_theme(
        alt.concat(*panels, columns=columns, spacing=30),
        f"One sentence and its counterfactual: heads of {model_name(result.provenance)}",
        [
            "attention of the target (dashed frame) on every word, scaled from 0 (smallest) to 1 "
            "(largest); without special tokens and punctuation; number: attention on the "
            "attribute (frame); heads counted from 1",
        ],
        width=columns * (2 * width + 60),
    )


def _width(result: AttentionExample) -> int:
    words = (*result.original.words, *result.counter.words)
    return 46 + 7 * min(MAX_LETTERS, max(len(word) for word in words))


def _head_panel(result: AttentionExample, strip: HeadAttentionStrip, width: int) -> ChartType:
    rows = [
        *_cells("original", result.original, strip.original),
        *_cells("counter", result.counter, strip.counter),
    ]
    tall = ROW_HEIGHT * max(len(result.original.words), len(result.counter.words))
    base = alt.Chart(inline_data(rows)).encode(
        x=alt.X(
            "sentence:N",
            title=None,
            sort=["original", "counter"],
            axis=alt.Axis(orient="top", labelAngle=0, ticks=False, domain=False),
            scale=alt.Scale(paddingInner=0.04, paddingOuter=0),
        ),
        # By position, because a word may occur twice in a sentence.
        y=alt.Y("place:O", title=None, axis=None),
    )
    cells = base.mark_rect(stroke="#dddddd", strokeWidth=0.5).encode(
        color=alt.Color(
            "attention:Q",
            title="attention",
            # One half of the scale for signed numbers: attention has no sign.
            scale=alt.Scale(domain=_steps(), range=list(PUOR[5:]), interpolate="rgb"),
            legend=alt.Legend(gradientLength=100, values=[0, 0.5, 1]),
        ),
        tooltip=[
            alt.Tooltip("word:N", title="word"),
            alt.Tooltip("formatted:N", title="attention"),
            alt.Tooltip("sentence:N", title="sentence"),
        ],
    )
    ink = alt.condition(f"datum.attention > {LIGHT_FROM}", alt.value("white"), alt.value(INK))
    # Text is placed from the centre of a cell: half of its width to the left is its edge.
    words = base.mark_text(align="left", dx=6 - width / 2, fontSize=11).encode(
        text="shown:N", color=ink
    )
    numbers = (
        base.transform_filter("datum.role == 'attribute'")
        .mark_text(align="right", dx=width / 2 - 6, fontSize=11, fontWeight="bold")
        .encode(text="formatted:N", color=ink)
    )
    frames = [
        base.transform_filter(f"datum.role == '{role}'").mark_rect(
            fill=None, stroke=INK, strokeWidth=1.5, strokeDash=dash
        )
        for role, dash in (("attribute", [1, 0]), ("target", [4, 3]))
    ]
    return alt.layer(cells, *frames, words, numbers).properties(
        width=2 * width,
        height=tall,
        title=panel_title(f"{strip.group} head {strip.layer + 1}-{strip.head + 1}"),
    )


def _steps() -> list[float]:
    count = len(PUOR[5:])
    return [i / (count - 1) for i in range(count)]


def _cells(
    sentence: str, strip: AttentionStrip, attention: tuple[float, ...]
) -> list[dict[str, Any]]:
    role = {strip.target: "target", strip.attribute: "attribute"}
    return [
        {
            "sentence": sentence,
            "place": position,
            "word": word,
            "shown": word if len(word) <= MAX_LETTERS else word[: MAX_LETTERS - 1] + "…",
            "attention": value,
            "formatted": format_number(value),
            "role": role.get(position, ""),
        }
        for position, (word, value) in enumerate(zip(strip.words, attention, strict=True))
    ]
