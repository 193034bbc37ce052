"""The report of an audit: one file that needs nothing else, the verdict first."""

from __future__ import annotations

import base64
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from levelhead import __version__
from levelhead.calibrate.tables import cited
from levelhead.core.calibration import MISSED, calibrated, mark_of, marked, verdict_of
from levelhead.core.errors import LevelheadError, MissingExtra
from levelhead.core.results import Inconclusive, Measurement, Record
from levelhead.data.catalog.datasets import datasets
from levelhead.data.lexicons.published import any_lexicon
from levelhead.explain.attention.counterstereotype import CounterStereotype
from levelhead.explain.attention.example import Example
from levelhead.explain.prompting.knowledge import Knowledge
from levelhead.locate.head_map import HeadMap
from levelhead.measures.base import UNFLAGGED
from levelhead.mitigate.heads.mask_top_heads import Targeted
from levelhead.mitigate.probing.concept_removal import Removed
from levelhead.report.audit_page.head_table import Grid, grid
from levelhead.report.audit_page.verdict import NOT_SHOWN, SIGNS, p_of, unreached, verdict
from levelhead.report.charts.forest import forest
from levelhead.report.charts.registry import chart, distribution
from levelhead.report.head_map_labels import lines
from levelhead.report.save import runtime, script_of, svg_of
from levelhead.report.theme import ends, number
from levelhead.study.steps.measurements import Paired
from levelhead.study.table import rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from altair.typing import ChartType

    from levelhead.report.audit_page.verdict import Ruled, Verdict
    from levelhead.study.audit.audit import Audit

LONGEST = 400
"""Letters of a text that are shown."""
TEMPLATES = files("levelhead.report") / "templates"


class Table(NamedTuple):
    """Numbers in rows."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Figure(NamedTuple):
    """A picture, and what it was drawn from."""

    id: str
    caption: str
    alt: str
    svg: str
    """As base64."""
    spec: str
    """As JSON for a script."""
    width: int


class Part(NamedTuple):
    """A part of the report."""

    id: str
    title: str
    lines: tuple[str, ...] = ()
    folded: tuple[Table, ...] = ()
    """Tables that are opened by whoever wants them."""
    grids: tuple[Grid, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    code: str = ""


def page(audit: Audit, results: Mapping[str, Record], *, command: str) -> bytes:
    """The report as HTML.

    Args:
        audit: what was asked, and what was not.
        results: what was found, by step.
        command: what repeats it.
    """
    jinja2, markup = _jinja()
    told = verdict(audit, results)
    parts = [
        Part("verdict", "Verdict"),
        _rulers(told),
        *_beside(told, audit),
        *_heads(results),
        *_knowledge(results),
        *_removed(results),
        _limits(audit, results),
        _data(results),
        _provenance(audit, results, command),
    ]
    env = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    text = env.from_string(_file("audit.html")).render(
        title=shortened(audit.plan.about),
        about=shortened(audit.about),
        verdict=told._replace(sentences=tuple(map(shortened, told.sentences))),
        not_shown=NOT_SHOWN,
        parts=[_marked(part, markup) for part in parts],
        version=__version__,
        style=markup(_file("audit.css")),
        keys=markup(_file("keys.js")),
        draw=markup(_file("draw.js")),
        bundle=markup(runtime()),
    )
    return str(text).encode()


def _jinja() -> tuple[Any, Any]:
    try:
        return import_module("jinja2"), import_module("markupsafe").Markup
    except ImportError:
        raise MissingExtra("writing a report", "report") from None


def _file(name: str) -> str:
    return (TEMPLATES / name).read_text("utf-8")


def _marked(part: Part, markup: Any) -> Part:
    """Charts' data stand in the page's scripts as they are: nothing there can end a script."""
    return part._replace(figures=tuple(one._replace(spec=markup(one.spec)) for one in part.figures))


def shortened(text: str) -> str:
    """A text as it can be shown; what is left out is said."""
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}… ({len(text):,} characters)"


def figure(name: str, drawn: ChartType, caption: str, alt: str) -> Figure:
    """A picture for the page."""
    svg = svg_of(drawn)
    width = int(float(svg.split(b'width="', 1)[1].split(b'"', 1)[0]))
    return Figure(name, caption, alt, base64.b64encode(svg).decode(), script_of(drawn), width)


# -- parts


MEASURES = (
    "measure",
    "what it shows",
    "value",
    "interval",
    "parity",
    "p",
    "minimum detectable effect",
    "items used",
    "validation on planted bias",
    "a larger value means",
)


def _rulers(told: Verdict) -> Part:
    core = [row for row in told.rulers if row.is_core]
    added = [row for row in told.rulers if not row.is_core]
    biases = [row for row in (*core, *told.derived, *added) if row.role == "bias"]
    drawn = [
        (marked(row.name, row.measurement), row.measurement)
        for row in biases
        if row.measurement is not None
    ]
    figures: tuple[Figure, ...] = ()
    if drawn:
        plot = forest(drawn, title="Measures of bias")
        alt = f"Values and intervals of {len(drawn)} measures; the numbers are in the table below."
        caption = "Every measure of bias, with its interval and parity."
        figures = (figure("forest", plot, caption, alt),)
    tables = [
        Table(
            f"Core suite: {told.coverage}; p is corrected for the number of its tests (Holm)",
            MEASURES,
            tuple(_ruled(row) for row in (*core, *told.derived)),
        )
    ]
    if added:
        caption = "Beyond the core suite; p is corrected apart, and the headline counts none of it"
        tables.append(Table(caption, MEASURES, tuple(map(_ruled, added))))
    notes = tuple(
        (row.name, shortened(note))
        for row in told.rulers
        if row.measurement is not None
        for note in (*_calibrated(row.measurement), *row.measurement.notes)
    )
    known = Table("Notes and caveats", ("measure", "note"), notes)
    folded = (known, *_beside_numbers(told))
    return Part("rulers", "Measures", folded=folded, figures=figures, tables=tuple(tables))


def _beside_numbers(told: Verdict) -> Iterator[Table]:
    """What numbers can be misread without."""
    found = tuple(
        (
            one.name,
            marked(shortened(beside.name), one.measurement, beside.name),
            *_numbers(beside),
            str(beside.n),
        )
        for one in told.rulers
        if one.measurement is not None
        for beside in one.measurement.beside
    )
    columns = ("measure", "number", "value", "interval", "parity", "p")
    if found:
        yield Table("Supporting statistics", (*columns, "minimum detectable effect", "n"), found)


def _ruled(one: Ruled) -> tuple[str, ...]:
    if one.measurement is None:
        sign = f"{SIGNS[one.status]}: {one.reason}" if one.reason else SIGNS[one.status]
        return (one.name, sign, *[""] * 7, shortened(one.why))
    own = one.measurement
    sign = "capability" if one.role == "price" else SIGNS[one.status]
    if one.toward:
        sign += f": {one.toward}"
    elif one.status == "inconclusive":
        sign += f": {one.reason}"
    return (
        marked(one.name, own),
        sign,
        *_numbers(own),
        used_of(own),
        verdict_of(own),
        own.direction,
    )


def used_of(one: Measurement) -> str:
    """How many items were used, of all that the data set holds; else of those asked.

    >>> from types import SimpleNamespace as Shown
    >>> used_of(Shown(n=46, items=46, population=1508, sampled=46 / 1508))
    '46 of 1,508 (3%)'
    >>> used_of(Shown(n=45, items=46, population=None, sampled=None))
    '45 of 46 asked'
    """
    if one.population is None or one.sampled is None:
        return f"{one.n:,} of {one.items:,} asked"
    lost = one.items - one.n
    share = f"{one.sampled:.0%}" if one.sampled >= 0.01 else "below 1%"
    dropped = f", {lost:,} dropped" if lost else ""
    return f"{one.n:,} of {one.population:,} ({share}){dropped}"


def _calibrated(one: Measurement) -> tuple[str, ...]:
    """How the measure did on models with planted bias."""
    found = calibrated(one)
    return () if found is None else (f"validation on planted bias: {cited(found)}",)


def _numbers(one: Any) -> tuple[str, ...]:
    p = p_of(one)
    return (
        number(one.value),
        _interval(one.interval.low, one.interval.high),
        number(one.parity, missing=""),
        _p(p),
        number(one.detectable, missing=""),
    )


def _interval(low: float | None, high: float | None) -> str:
    """An interval that no line breaks."""
    return "" if low is None or high is None else ends(low, high).replace(" ", "\u00a0")


def _p(p: float | None) -> str:
    if p is None:
        return ""
    return "< 0.0001" if p < 1e-4 else f"{p:.4f}"


def _beside(told: Verdict, audit: Audit) -> Iterator[Part]:
    if not told.comparisons:
        return
    which = (
        ("the other model", "this model")
        if audit.plan.rows(Paired)
        else ("this model", "the edited model")
    )
    found = [(f"{one.measure} {one.mark}".rstrip(), one.difference) for one in told.comparisons]
    drawn = forest(found, title=f"Second minus first: {which[1]} - {which[0]}")
    alt = f"Differences by {len(found)} measures; the numbers are in the table below."
    columns = ("measure", "first", "second", "difference", "interval", "parity", "p")
    table = Table(
        "Paired item by item; p corrected for their number (Holm)",
        (*columns, "minimum detectable effect", "what it says"),
        tuple(
            (
                name,
                number(one.first.value),
                number(one.second.value),
                *_numbers(one.difference),
                one.verdict,
            )
            for one, (name, _) in zip(told.comparisons, found, strict=True)
        ),
    )
    yield Part(
        "against",
        "Item by item",
        (f"First: {which[0]}. Second: {which[1]}.",),
        figures=(figure("differences", drawn, "Differences, with intervals.", alt),),
        tables=(table,),
    )


def _heads(results: Mapping[str, Record]) -> Iterator[Part]:
    for step, heads in results.items():
        if not isinstance(heads, HeadMap):
            continue
        name = step.partition(".")[2]
        figures = [
            figure(
                f"spread-{name}",
                distribution(heads),
                "How scores are spread over heads.",
                f"Distribution of the scores of {len(heads.heads)} heads.",
            )
        ]
        figures += _of_heads(results)
        ranked = heads.ranked
        differ = sorted(
            (one for one in ranked if one.is_significant), key=lambda one: -abs(one.effect or 0)
        )
        wanted = {one.label for one in (*ranked[:5], *ranked[-5:], *differ[:10])}
        shown = [one for one in ranked if one.label in wanted]
        table = Table(
            "The heads that add or take most, and the largest effects that differ from 0",
            ("head", "score", "effect of ablation", "interval", "corrected p"),
            tuple(
                (
                    one.label,
                    number(one.score),
                    number(one.effect, missing="not ablated"),
                    "" if one.interval is None else _interval(one.interval.low, one.interval.high),
                    "" if one.p is None else _p(one.p.adjusted),
                )
                for one in shown
            ),
        )
        told = tuple(
            shortened(f"{line}.")
            for line in (*lines(heads), f"heads: {heads.verdict}", *heads.notes)
        )
        grids = (grid(heads),)
        yield Part("heads", "Heads", told, (), grids, tuple(figures), (table,))


def _of_heads(results: Mapping[str, Record]) -> Iterator[Figure]:
    captions: tuple[tuple[type[Record], str, str], ...] = (
        (Targeted, "masking", "What masking heads changes, and what it costs."),
        (CounterStereotype, "explain", "Attention on a group's word, original and counter."),
        (Example, "example", "One sentence and its twin, as single heads see them."),
    )
    for kind, name, caption in captions:
        for one in results.values():
            if isinstance(one, kind):
                alt = f"{caption} Its numbers stand in table.csv."
                yield figure(name, chart(one), caption, alt)


def _knowledge(results: Mapping[str, Record]) -> Iterator[Part]:
    for step, one in results.items():
        if isinstance(one, Knowledge):
            caption = "What knowledge before a sentence does to whom the model puts into it."
            drawn = figure("knowledge", chart(one), caption, f"{caption} Numbers: table.csv.")
            numbers = [row for row in rows(step, one) if ", top " not in row.name]
            table = Table(
                "Counterexamples (Zhang 2023)",
                ("", "number", "value", "interval", "p"),
                tuple(
                    (
                        row.name,
                        row.what,
                        number(row.value),
                        _interval(row.low, row.high),
                        _p(row.p if row.adjusted is None else row.adjusted),
                    )
                    for row in numbers
                ),
            )
            yield Part("knowledge", "Counterexamples", figures=(drawn,), folded=(table,))


def _removed(results: Mapping[str, Record]) -> Iterator[Part]:
    for one in results.values():
        if isinstance(one, Removed):
            drawn = figure("removed", chart(one), "What probes still read.", "Probes' AUC.")
            said = [f"{one.verdict}: {one.why}", *one.notes]
            said += [f"The measure that fell or did not: {MISSED}."] if mark_of(one.gain_by) else []
            yield Part("removed", "Removed or hidden", tuple(said), figures=(drawn,))


def _limits(audit: Audit, results: Mapping[str, Record]) -> Part:
    left: list[tuple[str, str, str]] = [
        (one.what, one.reason, shortened(one.why)) for one in audit.left_out
    ]
    left += [
        (step, "not measured", shortened(f"{one.what} ({one.mend})"))
        for step, one in {**results, **unreached(audit, results)}.items()
        if isinstance(one, Inconclusive)
    ]
    tables = [Table("Skipped", ("what", "reason", "details"), tuple(left))] * bool(left)
    if audit.cut:
        budget = f" in {audit.budget:g} seconds" if audit.budget else ""
        cut = tuple((one.what, f"{one.asked:,} of {one.whole:,}") for one in audit.cut)
        tables.append(Table(f"Sampled{budget}", ("what", "questions"), cut))
    said = () if tables else ("Everything that fits this model was asked whole.",)
    return Part("limits", "Skipped and sampled", said, tables=tuple(tables))


def _data(results: Mapping[str, Record]) -> Part:
    names: dict[str, None] = {}
    flagged = []
    for step, one in results.items():
        if isinstance(one, Measurement):
            names |= dict.fromkeys(one.provenance.data)
            clean = next((own.n for own in one.beside if own.name == UNFLAGGED), None)
            if clean is not None:
                key = step.rpartition(".")[2]
                flagged.append((key, f"{one.n - clean:,} of {one.n:,}"))
    cards = tuple(_cards(list(names)))
    tables = [Table("What was asked, and what it cannot tell", _CARD, cards)] if cards else []
    if flagged:
        columns = ("measure", "items the linter finds something wrong with")
        tables.append(Table("Flags", columns, tuple(flagged)))
    return Part("data", "Data", tables=tuple(tables))


_CARD = ("data", "licence", "what it is", "what it cannot tell")


def _cards(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The data sets and lexicons that these sources name, each once."""
    known = datasets()
    seen: set[str] = set()
    for name in names:
        words = name.replace("/", " ").replace(":", " ").split()
        for word in words:
            if word in known and word not in seen:
                one = known[word]
                yield one.name, one.licence, one.about, one.cannot
                seen.add(word)
        if name.startswith("lexicon ") and (own := name.removeprefix("lexicon ")) not in seen:
            seen.add(own)
            try:
                lexicon = any_lexicon(own)
            except LevelheadError:  # a lexicon of the user's, which is not here any more
                yield shortened(own), "", "a lexicon", "it is not here any more"
                continue
            yield lexicon.name, lexicon.licence, "a lexicon", lexicon.limits


def _provenance(audit: Audit, results: Mapping[str, Record], command: str) -> Part:
    found = next((one for one in results.values() if isinstance(one, Measurement)), None)
    told: list[tuple[str, str]] = [("what was asked", audit.request)]
    if found is not None:
        own = found.provenance
        told += [
            ("model", shortened(own.model)),
            ("SHA-256 of its files and edits", own.model_hash),
            ("revision", own.revision or "none"),
            *((f"edit {i}", one) for i, one in enumerate(own.edits, 1)),
            *((f"version of {name}", str(one)) for name, one in own.versions.items()),
        ]
    plan = audit.plan
    told += [(key, str(getattr(plan, key))) for key in ("seed", "threads", "draws", "permutations")]
    told += [(f"measure {name}", shortened(text)) for name, text in plan.measures.items()]
    table = Table("Everything the numbers depend on", ("what", "which"), tuple(told))
    return Part("provenance", "Provenance", tables=(table,), code=command)
