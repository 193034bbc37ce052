"""One sentence and its twin, word by word, as some heads see them (Yang et al. 2025, Figure 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from levelhead.report.head_map_labels import data, model_name
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import INK, PUOR, finished, number, panel

if TYPE_CHECKING:
    from altair.typing import ChartType

    from levelhead.explain.attention.example import Example, HeadStrip, Strip

COLUMNS = 2
ROW = 20
LONGEST = 24
"""Letters of a word that are drawn."""
LIGHT_FROM = 0.6
"""On cells darker than this, words are white."""


def exampled(found: Example) -> ChartType:
    """Two strips of words a head: how much the target attends to each, original and counter."""
    width = _width(found)
    panels = [_head(found, one, width) for one in found.heads]
    columns = min(COLUMNS, len(panels))
    return finished(
        alt.concat(*panels, columns=columns, spacing=30),
        f"One sentence and its twin: heads of {model_name(found.provenance)}",
        [
            "attention of the target (dashed frame) on every word, from 0, the least, to 1, the "
            "most; without special tokens and punctuation; number: that on the attribute "
            "(frame); heads counted from 1",
        ],
        width=columns * (2 * width + 60),
    )


def _width(found: Example) -> int:
    words = (*found.original.words, *found.counter.words)
    return 46 + 7 * min(LONGEST, max(len(word) for word in words))


def _head(found: Example, own: HeadStrip, width: int) -> ChartType:
    rows = [
        *_cells("original", found.original, own.original),
        *_cells("counter", found.counter, own.counter),
    ]
    tall = ROW * max(len(found.original.words), len(found.counter.words))
    base = alt.Chart(data(rows)).encode(
        x=alt.X(
            "sentence:N",
            title=None,
            sort=["original", "counter"],
            axis=alt.Axis(orient="top", labelAngle=0, ticks=False, domain=False),
            scale=alt.Scale(paddingInner=0.04, paddingOuter=0),
        ),
        y=alt.Y("place:O", title=None, axis=None),
    )
    cells = base.mark_rect(stroke="#dddddd", strokeWidth=0.5).encode(
        color=alt.Color(
            "attention:Q",
            title="attention",
            scale=alt.Scale(domain=_steps(), range=list(PUOR[5:]), interpolate="rgb"),
            legend=alt.Legend(gradientLength=100, values=[0, 0.5, 1]),
        ),
        tooltip=[
            alt.Tooltip("word:N", title="word"),
            alt.Tooltip("told:N", title="attention"),
            alt.Tooltip("sentence:N", title="sentence"),
        ],
    )
    ink = alt.condition(f"datum.attention > {LIGHT_FROM}", alt.value("white"), alt.value(INK))
    words = base.mark_text(align="left", dx=6 - width / 2, fontSize=11).encode(
        text="shown:N", color=ink
    )
    numbers = (
        base.transform_filter("datum.role == 'attribute'")
        .mark_text(align="right", dx=width / 2 - 6, fontSize=11, fontWeight="bold")
        .encode(text="told:N", color=ink)
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
        title=panel(f"{own.group} head {own.layer + 1}-{own.head + 1}"),
    )


def _steps() -> list[float]:
    count = len(PUOR[5:])
    return [i / (count - 1) for i in range(count)]


def _cells(sentence: str, strip: Strip, attention: tuple[float, ...]) -> list[dict[str, Any]]:
    role = {strip.target: "target", strip.attribute: "attribute"}
    return [
        {
            "sentence": sentence,
            "place": place,
            "word": word,
            "shown": word if len(word) <= LONGEST else word[: LONGEST - 1] + "…",
            "attention": value,
            "told": number(value),
            "role": role.get(place, ""),
        }
        for place, (word, value) in enumerate(zip(strip.words, attention, strict=True))
    ]
