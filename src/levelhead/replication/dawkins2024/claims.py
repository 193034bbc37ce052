"""What Dawkins et al. 2024 say of settings, tested on a measure: section 5, over the fixed grid.

Every claim is a list of settings that differ in one thing: with it, and without. The paper counts
how many of them are better with it; here the mean difference over the list stands beside the
count, with an interval over the measure's units. The settings are all there are: they are not
redrawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field

from levelhead.core.calibration import Ruler
from levelhead.core.errors import LevelheadError
from levelhead.core.results import Estimate, Provenance, Record
from levelhead.locate.effects import Effects
from levelhead.mitigate.controls.placebo_test import NO_EFFECT, has_no_effect
from levelhead.mitigate.evaluation.gain import bias_of
from levelhead.mitigate.projection.config_grid import STEPS, Setting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from levelhead.measures.metric import Aspect, Over
    from levelhead.mitigate.evaluation.gain import Redrawn

Better = Literal["lower", "higher"]
Verdict = Literal["yes", "no", "undecided", "untestable"]
TWO_HARD, TWO_WEIGHTED = STEPS[1], STEPS[3]
SHALLOWER = {"penultimate+attn": "penultimate", "penultimate": "last", "last": "sent"}


class Compared(Record):
    """Settings with one thing, beside the same ones without it."""

    claim: str
    level: str
    """Of the settings with it; "all": of every level."""
    pairs: Annotated[int, Field(ge=1)]
    without: float
    """The measure, on average over the settings without it."""
    with_it: float
    difference: Estimate | None
    """With it, less without, on average; None: it changes nothing."""
    spread: float | None = None
    """The standard deviation of the differences over the pairs of settings."""
    better: Annotated[int, Field(ge=0)]
    """In how many pairs the measure is better with it."""
    holds: Verdict
    """Better on average, with an interval and a p, corrected for all claims on the measure, that
    say so; no: worse, likewise; else undecided. Untestable where the model itself shows no effect:
    then less of the measure is not less bias."""


class Findings(Record):
    """The claims on one measure."""

    measure: str
    unit: str = ""
    better: Better
    claims: Annotated[tuple[Compared, ...], Field(min_length=1)]
    measured_by: Ruler | None = None
    """What it is measured by."""
    base: Estimate | None = None
    """The model itself, from parity, tested two-sided; None: not tested."""
    provenance: Provenance | None = None

    @property
    def untestable(self) -> str:
        """Why no claim can be tested; empty where they can."""
        return f"{NO_EFFECT} ({self.base})" if has_no_effect(self.base) else ""

    def of(self, claim: str, level: str = "all") -> Compared:
        """A claim by its name."""
        for one in self.claims:
            if (one.claim, one.level) == (claim, level):
                return one
        raise LevelheadError(f"no claim {claim!r} at {level}", mend="see .claims")


def _sent_weighted(one: Setting) -> Setting | None:
    return _instead(one, sent=STEPS[0]) if one.sent == STEPS[2] else None


def _weighted_at(part: Literal["penultimate", "last"]) -> Callable[[Setting], Setting | None]:
    def without(one: Setting) -> Setting | None:
        return _instead(one, **{part: TWO_HARD}) if getattr(one, part) == TWO_WEIGHTED else None

    return without


def _shallower(one: Setting) -> Setting | None:
    """The setting that this one extends by a level."""
    level = SHALLOWER.get(one.level)
    if level is None or (level == "sent" and one.sent is None):
        return None
    inner = one.penultimate if level == "penultimate" else None
    last = None if level == "sent" else one.last
    return Setting(level=level, penultimate=inner, last=last, sent=one.sent)  # type: ignore[arg-type]


def _attention(two_hard: bool) -> Callable[[Setting], Setting | None]:
    def without(one: Setting) -> Setting | None:
        if one.level != "penultimate+attn" or (one.penultimate == TWO_HARD) != two_hard:
            return None
        return _shallower(one)

    return without


class Claim(NamedTuple):
    """What the paper says, and for a setting with the thing the one without it."""

    name: str
    without: Callable[[Setting], Setting | None]


CLAIMS = (
    Claim("one level deeper", _shallower),
    Claim("weighting at sent", _sent_weighted),
    Claim("weighting of two dimensions at last", _weighted_at("last")),
    Claim("weighting of two dimensions at penultimate", _weighted_at("penultimate")),
    Claim("attention, unless two hard dimensions at its layer", _attention(two_hard=False)),
    Claim("attention, with two hard dimensions at its layer", _attention(two_hard=True)),
)


def column_of(aspect: Aspect) -> tuple[Over, Better]:
    """What is compared of settings, and which way it is better.

    The value, as the paper does; of a measure with one parity for all models the distance from it,
    since beyond parity it is bias again.
    """
    if aspect.parity is not None:
        return bias_of(aspect), "lower"
    return aspect.over, better_way(aspect)


def better_way(aspect: Aspect) -> Better:
    """Which way a value is better: less bias, more parity, a lower price."""
    return "lower" if aspect.worse == "higher" else "higher"


def findings(
    found: Redrawn,
    names: Sequence[str],
    *,
    measure: str,
    better: Better,
    unit: str = "",
    measured_by: Ruler | None = None,
    provenance: Provenance | None = None,
    base: Estimate | None = None,
) -> Findings:
    """Test every claim that the settings allow.

    Args:
        found: the measure's value of the base (first) and of the settings, of units redrawn.
        names: the settings, in its order; names that are no settings of the grid are passed over.
        measure: its name.
        better: which way it is better.
        unit: of the values.
        measured_by: the measure, asked of such a model.
        provenance: of what was asked.
        base: the model itself, from parity, with its two-sided test.
    """
    place = {name: i + 1 for i, name in enumerate(names)}
    lists = [
        (claim.name, level, pairs)
        for claim in CLAIMS
        for level, pairs in _by_level(_pairs(claim, _settings(names), place))
    ]
    if not lists:
        raise LevelheadError(
            "no two settings differ in one thing only", mend="give the whole grid of settings"
        )
    tested = _effects(found, [pairs for *_, pairs in lists])
    told = tested.estimates([f"{name}, {level}" for name, level, _ in lists], unit=unit)
    return Findings(
        measure=measure,
        unit=unit,
        better=better,
        claims=tuple(
            _compared(found, name, level, np.array(pairs), estimate, better, base)
            for (name, level, pairs), estimate in zip(lists, told, strict=True)
        ),
        measured_by=measured_by,
        base=base,
        provenance=provenance,
    )


Pair = tuple[int, int]
"""Columns: with it, without it."""


def _settings(names: Iterable[str]) -> list[Setting]:
    found = []
    for name in names:
        try:
            found.append(Setting.named(name))
        except LevelheadError:
            continue  # a baseline
    return found


def _pairs(
    claim: Claim, settings: Iterable[Setting], place: dict[str, int]
) -> list[tuple[str, Pair]]:
    found: list[tuple[str, Pair]] = []
    for one in settings:
        other = claim.without(one)
        if other is not None and other.name in place:
            found.append((one.level, (place[one.name], place[other.name])))
    return found


def _by_level(pairs: list[tuple[str, Pair]]) -> list[tuple[str, list[Pair]]]:
    """All of them, and those of each level where there are several levels."""
    levels = list(dict.fromkeys(level for level, _ in pairs))
    parts = [(level, [pair for own, pair in pairs if own == level]) for level in levels]
    every = [("all", [pair for _, pair in pairs])] if pairs else []
    return every + (parts if len(levels) > 1 else [])


def _effects(found: Redrawn, lists: Sequence[Sequence[Pair]]) -> Effects:
    """The mean difference over each list, of all units and of units redrawn."""
    columns = [np.array(pairs) for pairs in lists]

    def means(values: NDArray[np.float64]) -> NDArray[np.float64]:
        each = [(values[..., own[:, 0]] - values[..., own[:, 1]]).mean(axis=-1) for own in columns]
        return np.stack(each, axis=-1)

    return Effects(
        values=means(found.whole),
        draws=means(found.draws),
        base=found.draws[:, 0],
        design=found.design,
        level=found.level,
        items=found.items,
    )


def _compared(
    found: Redrawn,
    claim: str,
    level: str,
    pairs: NDArray[np.intp],
    difference: Estimate | None,
    better: Better,
    base: Estimate | None,
) -> Compared:
    way = -1 if better == "lower" else 1
    own, other = found.whole[pairs[:, 0]], found.whole[pairs[:, 1]]
    return Compared(
        claim=claim,
        level=level,
        pairs=len(pairs),
        without=float(other.mean()),
        with_it=float(own.mean()),
        difference=difference,
        spread=float((own - other).std(ddof=1)) if len(pairs) > 1 else None,
        better=int((way * (own - other) > 0).sum()),
        holds="untestable" if has_no_effect(base) else _verdict(difference, way),
    )


def _verdict(difference: Estimate | None, way: int) -> Verdict:
    if difference is None or difference.interval.low <= 0 <= difference.interval.high:
        return "undecided"
    p = difference.p
    if p is None or (p.adjusted or p.value) > 1 - difference.interval.level + 1e-12:
        return "undecided"
    return "yes" if way * difference.value > 0 else "no"


def _instead(one: Setting, **steps: object) -> Setting:
    return Setting.model_validate(one.model_dump() | steps)
