"""Charts as files: SVG, PNG, PDF, HTML that needs no network, JSON."""

from __future__ import annotations

import json
import os
import re
from functools import cache
from typing import TYPE_CHECKING

from levelhead.core.errors import UnknownName
from levelhead.core.files import write_atomic
from levelhead.report.lazy_altair import alt, vl_convert

if TYPE_CHECKING:
    from collections.abc import Callable

    from altair.typing import ChartType

    from levelhead.core.files import Url

PIXELS = 2.0
"""Of a PNG, a pixel of the chart: sharp on paper and on dense screens."""

_NUMBERED = re.compile(r'(id="|url\(#)((?:gradient_|clip)\d+)')

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data: blob:; \
style-src 'unsafe-inline'; script-src 'unsafe-inline' 'unsafe-eval'">
<title>levelhead</title>
<style>body {{ margin: 0; background: white; color: #222222; }}</style>
</head>
<body>
<div id="chart"></div>
<script>{bundle}</script>
<script>
vegaEmbed("#chart", {spec}, {{
  renderer: "svg",
  actions: {{ export: true, source: false, compiled: false, editor: false }},
}});
</script>
</body>
</html>
"""
"""Nothing is loaded: the policy forbids it."""


def save(chart: ChartType, path: Url) -> None:
    """Write a chart, whole or not at all; the name's ending says how.

    Args:
        chart: what `chart` and the other functions of this room return.
        path: .svg, .png, .pdf, .html or .json.
    """
    write_atomic(path, drawn_as(path)(chart))


def drawn_as(path: Url) -> Callable[[ChartType], bytes]:
    """What draws a picture of that name; `UnknownName` if nothing does."""
    ending = os.path.splitext(os.fspath(path))[1].lower()
    if ending not in ENDINGS:
        raise UnknownName("kind of picture", ending, ENDINGS)
    return ENDINGS[ending]


def svg_of(chart: ChartType) -> bytes:
    """The picture as SVG."""
    return _renumbered(vl_convert.vegalite_to_svg(spec_of(chart), vl_version=vega_lite())).encode()


def _renumbered(svg: str) -> str:
    """Numbers of gradients and clips count up while a process lives; here they begin at 0."""
    found: dict[str, str] = {}

    def name(one: re.Match[str]) -> str:
        return one[1] + found.setdefault(one[2], f"drawn_{len(found)}")

    # Only within tags: words of a corpus stay as they are.
    return re.sub(r"<[^>]+>", lambda tag: _NUMBERED.sub(name, tag[0]), svg)


def _png(chart: ChartType) -> bytes:
    drawn = vl_convert.vegalite_to_png(spec_of(chart), vl_version=vega_lite(), scale=PIXELS)
    return bytes(drawn)


def _pdf(chart: ChartType) -> bytes:
    return bytes(vl_convert.vegalite_to_pdf(spec_of(chart), vl_version=vega_lite()))


def _html(chart: ChartType) -> bytes:
    return PAGE.format(bundle=runtime(), spec=script_of(chart)).encode()


def script_of(chart: ChartType) -> str:
    """The chart as JSON for a script: words of a model or a corpus may hold "</script>"."""
    return json.dumps(spec_of(chart), sort_keys=True).replace("<", "\\u003c")


@cache
def runtime() -> str:
    """What draws charts in a browser: `vegaEmbed`. Bundled once, which takes seconds."""
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=vega_lite())
    return str(bundle)


def _json(chart: ChartType) -> bytes:
    return (json.dumps(spec_of(chart), indent=1, sort_keys=True) + "\n").encode()


def vega_lite() -> str:
    """Of Vega-Lite, as altair writes it."""
    return ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])


def spec_of(chart: ChartType) -> dict[str, object]:
    """The chart as Vega-Lite has it."""
    return dict(chart.to_dict())


ENDINGS: dict[str, Callable[[ChartType], bytes]] = {
    ".svg": svg_of,
    ".png": _png,
    ".pdf": _pdf,
    ".html": _html,
    ".json": _json,
}
