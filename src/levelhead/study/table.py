"""One tidy table of a study: a row a number, with all that belongs to it."""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING, Any

from levelhead.core.calibration import mark_of
from levelhead.core.results import Estimate, Inconclusive, Interval, Measurement, PValue, Record
from levelhead.explain.counterstereotype import CounterStereotype
from levelhead.explain.example import Example
from levelhead.explain.knowledge import Knowledge
from levelhead.locate.compare import MapComparison
from levelhead.locate.controls import Control
from levelhead.locate.describe import Description
from levelhead.locate.greedy import Greedy
from levelhead.locate.headmap import HeadMap
from levelhead.locate.repeated import Repeated, Spread
from levelhead.measure.compare import Comparison
from levelhead.mitigate.amplify import Amplified
from levelhead.mitigate.children import Child
from levelhead.mitigate.choose import Choice
from levelhead.mitigate.claims import Findings
from levelhead.mitigate.downstream import Downstream
from levelhead.mitigate.judged import NO_EFFECT
from levelhead.mitigate.placeboed import Placeboed
from levelhead.mitigate.removed import Removed
from levelhead.mitigate.swept import Swept
from levelhead.mitigate.targeted import SETS, Lines, Targeted
from levelhead.study.projecting import Handful, Stable
from levelhead.study.tuning import MaskedTask, Trained

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from levelhead.explain.contrasts import Top
    from levelhead.mitigate.changes import Change


class Row(Record):
    """One number."""

    step: str
    """Which part of the study it comes from."""
    name: str
    what: str
    value: float
    low: float | None = None
    high: float | None = None
    level: float | None = None
    method: str = ""
    over: str = ""
    """What the interval is over: kinds of items that were resampled ("words"), or repetitions with
    their number ("3 random head sets"). Intervals of the two kinds are not comparable."""
    parity: float | None = None
    p: float | None = None
    adjusted: float | None = None
    detectable: float | None = None
    n: int | None = None
    dropped: int | None = None
    unit: str = ""
    mark: str = ""
    """Of a ruler that failed where the truth is known."""

    @property
    def is_over_items(self) -> bool:
        """Whether the interval is over items, as those of measures are; True without one."""
        return not self.over[:1].isdigit() and self.over not in REPEATED.values()


REPEATED = {
    "heads relabelled within layers": "random groups of heads",
    "bootstrap of models": "models",
}
"""What intervals are over whose method names no number of units."""


def interval_over(interval: Interval) -> str:
    """What an interval is over, as its method says it: resampled items, without their number.

    >>> told = {"low": 0.0, "high": 1.0, "level": 0.95}
    >>> interval_over(Interval(method="bootstrap t, 20+20 words; contexts held", **told))
    'words; contexts held'
    >>> interval_over(Interval(method="student, 3 random head sets", **told))
    '3 random head sets'
    """
    units = re.search(r"(?<![\w.])\d[\d+]* [a-z].*", interval.method)
    if units is None:
        # The closed forms ("wilson", "t", "bonett-price") are all over single items.
        return REPEATED.get(interval.method, "items")
    if units[0].endswith(SETS):
        return units[0]
    return re.sub(r"\b\d[\d+]* (of (?=\d))?", "", units[0])


def blocks(table: Iterable[Row]) -> list[tuple[str, list[Row]]]:
    """Rows in blocks whose intervals are of one kind: over items first, then each repetition.

    Printed in one column, an interval over three sets reads like one over all words.
    """
    parted: dict[str, list[Row]] = {"": []}
    for row in table:
        parted.setdefault("" if row.is_over_items else row.over, []).append(row)
    return [(over, own) for over, own in parted.items() if own]


def rows(step: str, result: Record) -> list[Row]:
    """A result's rows; those of a result that is of one ruler have its mark."""
    own = {"step": step, "mark": mark_of(getattr(result, "measured_by", None))}
    return [Row(**own | told) for told in ROWS[type(result)](result)]


def to_csv(table: list[Row]) -> str:
    """The table as CSV text; empty cells where a number has no such thing."""
    file = io.StringIO()
    writer = csv.DictWriter(file, list(Row.model_fields), lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {key: "" if value is None else value for key, value in row.model_dump().items()}
        for row in table
    )
    return file.getvalue()


def _of(
    name: str, one: Estimate | Measurement, what: str | None = None, mark: str | None = None
) -> dict[str, Any]:
    """The cells of an estimate; without a mark, it has that of its result."""
    if mark is None and isinstance(one, Measurement):
        mark = mark_of(one)
    return {
        "name": name,
        "what": what or (one.measure if isinstance(one, Measurement) else one.name),
        "value": one.value,
        "parity": one.parity,
        "detectable": one.detectable,
        "n": one.n,
        "dropped": len(one.dropped) if isinstance(one, Measurement) else None,
        "unit": one.unit,
        **({} if mark is None else {"mark": mark}),
        **_ends(one.interval),
        **_p(one.p),
    }


def _ends(one: Interval | None) -> dict[str, Any]:
    if one is None:
        return {}
    told = {"low": one.low, "high": one.high, "level": one.level, "method": one.method}
    return told | {"over": interval_over(one)}


def _p(p: PValue | None) -> dict[str, Any]:
    return {} if p is None else {"p": p.value, "adjusted": p.adjusted}


def _measurement(one: Measurement) -> Iterator[dict[str, Any]]:
    yield _of("", one)
    for beside in one.beside:
        yield _of("", beside, mark=mark_of(one, beside.name))


def _comparison(one: Comparison) -> Iterator[dict[str, Any]]:
    yield _of("first", one.first)
    yield _of("second", one.second)
    for estimate in (one.difference, *one.beside):
        yield _of("second less first", estimate, mark=one.mark)


def _removed(one: Removed) -> Iterator[dict[str, Any]]:
    for place in one.places:
        where = " ".join(str(part) for part in place.site if part is not None)
        for when, found in (("before", place.before), ("after", place.after)):
            for estimate in (*(probe.auc for probe in found.probes), found.clusters.accuracy):
                yield _of(f"{where}, {when}: {one.verdict}", estimate)


def _map(one: HeadMap) -> Iterator[dict[str, Any]]:
    yield _of("find half", one.halves.find, one.measure)
    if one.halves.confirm:
        yield _of("confirm half", one.halves.confirm, one.measure)
    yield {"name": "map", "what": "sign", "value": one.direction.sign}
    positive = sum(score.score > 0 for score in one.heads)
    yield {"name": "map", "what": "positive scores", "value": positive, "n": len(one.heads)}
    for score in one.scores:
        yield {"name": score.label, "what": "score", "value": score.score}
        if score.effect is not None:
            told = {"detectable": score.detectable, **_ends(score.interval), **_p(score.p)}
            yield {"name": score.label, "what": "effect", "value": score.effect, **told}
    for estimate in (one.agreement, one.replication):
        if estimate is not None:
            yield _of("map", estimate)


def _description(one: Description) -> Iterator[dict[str, Any]]:
    for figure in (*one.figures, *one.layers):
        told = {"low": figure.null_low, "high": figure.null_high, "parity": figure.null_median}
        yield {
            "name": "description",
            "what": figure.name,
            "value": figure.value,
            "method": f"{one.relabellings} relabellings" if one.relabellings else "",
            "over": f"{one.relabellings} relabellings" if one.relabellings else "",
            **told,
            **_p(figure.p),
        }


def _control(one: Control) -> Iterator[dict[str, Any]]:
    name = f"{len(one.heads)} heads"
    yield _of(name, one.effect)
    told = {"value": one.median, "p": one.p.value, "n": len(one.random)}
    yield {"name": name, "what": "random heads, median", **told}
    yield {"name": name, "what": "random heads, 95%", "value": one.top, "n": len(one.random)}


def _spread(one: Spread) -> dict[str, Any]:
    told = {"low": one.low, "high": one.high, "method": "range over splits", "n": one.splits}
    told["over"] = f"{one.splits} splits"
    return {"name": "splits", "what": one.name, "value": one.median, **told}


def _repeated(one: Repeated) -> Iterator[dict[str, Any]]:
    for spread in (one.joint, one.overlap, one.replication):
        if spread is not None:
            yield _spread(spread)
    for head, count in one.chosen:
        yield {"name": head, "what": f"splits with it in the top {one.k}", "value": count}


def _greedy(one: Greedy) -> Iterator[dict[str, Any]]:
    yield {"name": "greedy", "what": "heads", "value": len(one.steps)}
    for step in one.steps:
        yield _of(step.head, step.gain, "gain")
    for estimate in (one.joint, one.top):
        if estimate is not None:
            yield _of("confirm half", estimate)


def _change(name: str, one: Change) -> Iterator[dict[str, Any]]:
    failed = mark_of(one.measured_by)
    yield _of(name, one.value, one.measure, failed)
    for estimate in (one.change, one.confirmed, *one.beside):
        if estimate is not None:
            yield _of(name, estimate, mark=failed)


def _targeted(one: Targeted) -> Iterator[dict[str, Any]]:
    for change in one.base:
        yield from _change("none", change)
    for row in one.rows:
        for change in row.changes:
            yield from _change(row.name, change)


def _lines(one: Lines) -> Iterator[dict[str, Any]]:
    for curve in one.curves:
        failed = mark_of(curve.measured_by)
        for point in curve.points:
            told = {"low": point.low, "high": point.high, "mark": failed, "over": "items"}
            yield {"name": f"top {point.k}", "what": curve.name, "value": point.value, **told}
            if point.change is not None:
                yield _of(f"top {point.k}", point.change, f"change of {curve.name}", failed)


def _amplified(one: Amplified) -> Iterator[dict[str, Any]]:
    for setting in (one.masking, *one.tried):
        name = f"{len(setting.heads)} heads x {setting.factor:g}"
        yield {"name": name, "what": "gain, find half", "value": setting.gain}
        yield {"name": name, "what": "price, find half", "value": setting.price, "mark": ""}
    gains = (one.masking_gain, one.gain, one.difference)
    for estimate in (one.masking_gain, one.masking_price, one.gain, one.price, one.difference):
        if estimate is not None:
            yield _of("confirm half", estimate, mark=None if estimate in gains else "")


def _counterstereotype(one: CounterStereotype) -> Iterator[dict[str, Any]]:
    for change in (one.attention, one.weighted):
        for group in change.groups:
            for estimate in (group.original, group.counter, group.change):
                yield _of(f"{group.group} heads", estimate)
            told = {"value": group.paper.t, "n": group.paper.n, **_p(group.paper.p)}
            yield {"name": f"{group.group} heads", "what": "t as the paper's", **told}
        several = (change.difference, change.same_length, change.placebo, change.net)
        for beside in several:
            if beside is not None:
                yield _of("biased - regular", beside)
        if change.relabelled is not None:
            random = change.relabelled
            told = {"value": random.difference, **_ends(random.random), **_p(random.p)}
            what = f"{change.weighting}: random groups of heads"
            yield {"name": "biased - regular", "what": what, **told}


def _knowledge(one: Knowledge) -> Iterator[dict[str, Any]]:
    for estimate in (one.base, one.preference, one.mass):
        yield _of("base", estimate)
    if one.labour is not None:
        for estimate in (one.labour.slope, one.labour.at_half, one.labour.correlation):
            yield _of(f"labour: {one.labour.verdict}", estimate)
    for own in one.contrasts:
        for estimate in (own.margin, own.change, own.shift, own.flipped):
            yield _of(f"{own.kind}: {own.verdict}", estimate)
    for cell in one.factorial.cells if one.factorial else ():
        yield _of(", ".join(cell.levels), cell.change)
    for effect in one.factorial.effects if one.factorial else ():
        yield _of("main effect", effect)
    yield from _tops("base", one.tops)
    for own in one.contrasts:
        yield from _tops(own.kind, own.tops)
    for found in one.findings:
        yield _of(f"{found.holds}: {found.claim}", found.number)


def _tops(kind: str, tops: Iterable[Top]) -> Iterator[dict[str, Any]]:
    """The paper's numbers at its three k."""
    for top in tops:
        name = f"{kind}, top {top.k}"
        for estimate in (top.first, top.second, top.margin, top.ratio, top.other_ratio):
            if estimate is not None:
                yield _of(name, estimate)
        if top.words is not None:
            yield {"name": name, "what": "words of Eq. 1", "value": top.words}


def _compared(one: MapComparison) -> Iterator[dict[str, Any]]:
    for child in one.children:
        failed = mark_of(one.base.measured_by) or mark_of(child.map.measured_by)
        if child.boxed_flipped is not None:  # None: of models with other heads
            boxed = {"what": "anti-bias heads turned positive", "value": child.boxed_flipped}
            yield {"name": child.name, **boxed, "n": len(one.boxed), "mark": failed}
        for estimate in (child.fewer, child.darker, child.flipped, child.total):
            if estimate is not None:
                yield _of(child.name, estimate, mark=failed)


def _child(one: Child) -> Iterator[dict[str, Any]]:
    for what in ("texts", "twins", "shown"):
        yield {"name": one.how, "what": what, "value": getattr(one, what)}


def _swept(one: Swept) -> Iterator[dict[str, Any]]:
    yield _of("base", one.base, one.measure)
    for setting in one.settings:
        yield {"name": setting.name, "what": one.measure, "value": setting.value, "unit": one.unit}
        if setting.change is not None:
            yield _of(setting.name, setting.change)


def _findings(one: Findings) -> Iterator[dict[str, Any]]:
    if one.base is not None:
        what = NO_EFFECT if one.untestable else one.base.name
        yield _of("base", one.base, what)
    for claim in one.claims:
        name = f"{claim.claim}, {claim.level}"
        if claim.difference is not None:
            yield _of(name, claim.difference, f"difference of {one.measure}")
        told = {"value": claim.better, "n": claim.pairs}
        yield {"name": name, "what": f"settings with {one.better} {one.measure}", **told}


def _choice(one: Choice) -> Iterator[dict[str, Any]]:
    name = one.chosen or "none"
    if one.base is not None:
        yield _of("base", one.base)
    for estimate in (one.on_dev, one.corrected, one.on_test, one.change):
        if estimate is not None:
            yield _of(name, estimate)
    if one.price is not None:
        yield _of(name, one.price, mark="")
    for agreement in one.agreement:
        for estimate in (agreement.overlap, agreement.spearman, agreement.kendall):
            if estimate is not None:
                yield _of(f"top {agreement.share:.0%} on dev", estimate)
    for point in one.front.points if one.front else ():
        told = {"value": point.share, "n": one.front.draws if one.front else None}
        yield {"name": point.name, "what": "share of resamples on the front", **told}


def _placeboed(one: Placeboed) -> Iterator[dict[str, Any]]:
    for own, by in ((one.judged, ""), (one.by_value, "by value: ")):
        if own is None:
            continue
        yield _of(one.setting, own.gain, f"{by}{own.gain.name}")
        if own.base is not None:
            yield _of("base", own.base, f"{by}{own.base.name}")
        told = {"n": len(own.placebos), **_p(own.p)}
        yield {"name": one.setting, "what": f"{by}placebos, 95%", "value": own.quantile, **told}
        if own.effective is not None:
            what = f"{by}independent placebos that they amount to"
            yield {"name": "placebos", "what": what, "value": own.effective, **told}
        if own.is_testable:
            mitigates = own.mitigates if by else one.mitigates
            yield {"name": one.setting, "what": f"{by}mitigates", "value": int(mitigates)}
        else:
            # A 0 would read as "does not mitigate".
            yield {"name": one.setting, "what": f"{by}{own.outcome}", "value": 1}
        for estimate in (own.significant, own.significant_gains):
            over = {"over": f"{len(own.placebos)} placebos"}
            yield _of("placebos", estimate, f"{by}{estimate.name}") | over
    angles = {"what": "as many at right angles", "value": one.matched.effective}
    yield {"name": "placebos", **angles, "mark": ""}
    if one.collapse is not None:
        found = one.collapse
        warm = {"what": "temperature", "value": found.temperature}
        yield {"name": one.setting, **warm, "mark": ""}
        if found.gain is not None:
            yield _of(one.setting, found.gain) | _p(found.p)
        if found.over_alike is not None:
            yield _of(one.setting, found.over_alike)
        yield {"name": one.setting, "what": "beyond lost confidence", "value": int(found.beyond)}


def _trained(one: Trained) -> Iterator[dict[str, Any]]:
    yield {"name": one.task, "what": f"texts shown, seed {one.seed}", "value": one.rows}


def _masked_task(one: MaskedTask) -> Iterator[dict[str, Any]]:
    told = {"what": one.metric, "unit": one.unit}
    yield {"name": f"{one.task}, full", "value": one.full, **told}
    for setting in one.sets:
        name = f"{one.task}, {setting.name} {one.mask} training"
        yield {"name": name, "value": setting.value, **told}
        if setting.change is not None:
            yield _of(name, setting.change, f"change of {one.metric}")
        if random := one.random.get(setting.name):
            yield {
                "name": f"{one.task}, random heads of the layers of {setting.name}",
                "what": f"{one.metric}, mean and range; p: that they leave as little",
                "value": sum(random) / len(random),
                "low": min(random),
                "high": max(random),
                "over": f"{len(random)} {SETS}",
                "n": len(random),
                "unit": one.unit,
                "p": one.p(setting.name),
            }


def _downstream(one: Downstream) -> Iterator[dict[str, Any]]:
    failed = {column.name: mark_of(column.measured_by) for column in one.columns}
    for column in one.columns:
        told = {"what": column.name, "unit": column.unit, "mark": failed[column.name]}
        for name, value in {"base": column.base, **column.settings}.items():
            yield {"name": name, "value": value, **told}
    for best in one.best:
        if best.value is not None:
            told = {"what": f"best by {best.measure}", "mark": failed[best.measure]}
            named = f"{best.level}: {best.setting}"
            yield {"name": named, "value": best.value, "n": best.among, **told}
    what = f"least {one.price} of a viable setting, and how many are"
    yield {"name": "viable", "what": what, "value": one.limit, "n": len(one.viable)}
    both = {
        f"spearman of {a} and {b}": failed[a] or failed[b] for a in one.inside for b in one.outside
    }
    for estimate in one.correlations:
        yield _of("inside and outside", estimate, mark=both[estimate.name])
    for regret in one.regrets:
        name = f"{regret.setting}, not {regret.best}; they differ: {regret.differ}"
        yield _of(name, regret.lost, mark=failed[regret.chosen_by] or failed[regret.measure])
    for found in one.findings:
        for row in _findings(found):
            yield {"mark": mark_of(found.measured_by), **row}


def _stable(one: Stable) -> Iterator[dict[str, Any]]:
    for site in one.sites:
        name = " ".join(str(part) for part in site.site if part is not None)
        for estimate in (site.share, site.cosine, site.angle):
            yield _of(name, estimate)
        for size in site.by_size:
            yield _of(f"{name}, {size.pairs} pairs", size.cosine)


def _handful(one: Handful) -> Iterator[dict[str, Any]]:
    yield _of("base", one.base, one.measure)
    for size in one.sizes:
        name = f"{one.setting}, {size.pairs} pairs"
        yield {"name": name, "what": one.measure, "value": size.value}
        if size.change is not None:
            yield _of(name, size.change)


def _nothing(one: Inconclusive | Example) -> Iterator[dict[str, Any]]:
    yield from ()


ROWS: Mapping[type[Record], Callable[[Any], Iterator[dict[str, Any]]]] = {
    Inconclusive: _nothing,
    Example: _nothing,  # a picture
    Measurement: _measurement,
    Comparison: _comparison,
    Removed: _removed,
    HeadMap: _map,
    Description: _description,
    Control: _control,
    Repeated: _repeated,
    Greedy: _greedy,
    Targeted: _targeted,
    Lines: _lines,
    Amplified: _amplified,
    CounterStereotype: _counterstereotype,
    Knowledge: _knowledge,
    MapComparison: _compared,
    Child: _child,
    Swept: _swept,
    Findings: _findings,
    Choice: _choice,
    Placeboed: _placeboed,
    Trained: _trained,
    MaskedTask: _masked_task,
    Downstream: _downstream,
    Stable: _stable,
    Handful: _handful,
}
