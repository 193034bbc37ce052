"""Write charts to files: SVG, PNG, PDF, JSON, and HTML that needs no network."""

from __future__ import annotations

import json
import os
import re
from functools import cache
from typing import TYPE_CHECKING

from levelhead.core.errors import UnknownNameError
from levelhead.core.files import write_atomic
from levelhead.report.lazy_altair import alt, vl_convert

if TYPE_CHECKING:
    from collections.abc import Callable

    from altair.typing import ChartType

    from levelhead.core.files import Url

PNG_SCALE = 2.0
"""PNG pixels per chart pixel: sharp in print and on high-density screens."""

_NUMBERED = re.compile(r'(id="|url\(#)((?:gradient_|clip)\d+)')

# Vega compiles expressions with `Function`, which a policy without 'unsafe-eval' forbids.
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
"""The page loads nothing: its content security policy forbids it."""


def save(chart: ChartType, path: Url) -> None:
    """Write a chart atomically, in the format of the file extension.

    Args:
        chart: chart from `chart` or another function of this package.
        path: file name that ends in .svg, .png, .pdf, .html or .json.
    """
    write_atomic(path, renderer_for(path)(chart))


def renderer_for(path: Url) -> Callable[[ChartType], bytes]:
    """The renderer of a file extension; raises `UnknownNameError` if there is none."""
    ending = os.path.splitext(os.fspath(path))[1].lower()
    if ending not in RENDERERS:
        raise UnknownNameError("kind of picture", ending, RENDERERS)
    return RENDERERS[ending]


def render_svg(chart: ChartType) -> bytes:
    """Render a chart as SVG."""
    return _renumber_ids(
        vl_convert.vegalite_to_svg(vega_lite_spec(chart), vl_version=vega_lite_version())
    ).encode()


def _renumber_ids(svg: str) -> str:
    """Renumber ids of gradients and clips from 0, so that equal charts give equal files.

    The renderer counts them up over the lifetime of the process.
    """
    new_ids: dict[str, str] = {}

    def name(match: re.Match[str]) -> str:
        return match[1] + new_ids.setdefault(match[2], f"drawn_{len(new_ids)}")

    # Only within tags: the text of a corpus must not change.
    return re.sub(r"<[^>]+>", lambda tag: _NUMBERED.sub(name, tag[0]), svg)


def _render_png(chart: ChartType) -> bytes:
    png = vl_convert.vegalite_to_png(
        vega_lite_spec(chart), vl_version=vega_lite_version(), scale=PNG_SCALE
    )
    return bytes(png)


def _render_pdf(chart: ChartType) -> bytes:
    return bytes(vl_convert.vegalite_to_pdf(vega_lite_spec(chart), vl_version=vega_lite_version()))


def _render_html(chart: ChartType) -> bytes:
    return PAGE.format(bundle=vega_bundle(), spec=to_script_json(chart)).encode()


def to_script_json(chart: ChartType) -> str:
    """The chart as JSON for a script, escaped: text of a corpus may contain "</script>"."""
    return json.dumps(vega_lite_spec(chart), sort_keys=True).replace("<", "\\u003c")


@cache
def vega_bundle() -> str:
    """The JavaScript bundle with `vegaEmbed`; cached, because bundling takes seconds."""
    bundle = vl_convert.javascript_bundle(
        "window.vegaEmbed = vegaEmbed;", vl_version=vega_lite_version()
    )
    return str(bundle)


def _render_json(chart: ChartType) -> bytes:
    return (json.dumps(vega_lite_spec(chart), indent=1, sort_keys=True) + "\n").encode()


def vega_lite_version() -> str:
    """The version of Vega-Lite that altair writes."""
    # vl-convert names versions by their first two numbers.
    return ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])


def vega_lite_spec(chart: ChartType) -> dict[str, object]:
    """The Vega-Lite specification of a chart."""
    return dict(chart.to_dict())


RENDERERS: dict[str, Callable[[ChartType], bytes]] = {
    ".svg": render_svg,
    ".png": _render_png,
    ".pdf": _render_pdf,
    ".html": _render_html,
    ".json": _render_json,
}
