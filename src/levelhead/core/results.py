"""What a measurement says: value, interval, p-value, coverage, and where it came from.

All of these are frozen, refuse NaN and unknown fields, and have one canonical JSON form: reading it
back gives an equal value, writing it again the same bytes. Nothing in them depends on the clock.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    PlainSerializer,
    PlainValidator,
    field_validator,
    model_validator,
)

from levelhead.core.canonical_json import canonical, content_hash
from levelhead.core.errors import LevelheadError, UnknownName
from levelhead.core.frozen import Frozen
from levelhead.core.versions import installed_versions

if TYPE_CHECKING:
    from collections.abc import Mapping

Alternative = Literal["two-sided", "greater", "less"]
Probability = Annotated[float, Field(ge=0, le=1)]
SHA256 = r"^[0-9a-f]{64}$"
Sha256 = Annotated[str, Field(pattern=SHA256)]


def _frozen(value: Mapping[str, object]) -> Frozen:
    try:
        return Frozen(value)
    except LevelheadError as error:
        raise ValueError(str(error)) from error  # pydantic adds the field's name


def _hashes(value: Frozen) -> Frozen:
    for name, digest in value.items():
        if not re.fullmatch(SHA256, str(digest)):
            raise ValueError(f"{name!r} has no SHA-256 but {digest!r}")
    return value


def _plain(settings: Frozen) -> dict[str, object]:
    """The mapping in plain dictionaries, for pydantic to write."""
    return {
        key: _plain(value) if isinstance(value, Frozen) else value
        for key, value in settings.items()
    }


FrozenMapping = Annotated[Frozen, PlainValidator(_frozen), PlainSerializer(_plain)]


class Record(BaseModel):
    """A frozen value with one canonical JSON form. Abstract."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    def to_json(self) -> str:
        """The canonical JSON text: the same value always gives the same bytes."""
        return canonical(self.model_dump()).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read back what `to_json` wrote."""
        return cls.model_validate_json(text)

    def model_copy(self, *, update: Mapping[str, object] | None = None, deep: bool = False) -> Self:
        """A copy with some fields changed, checked like any other value."""
        return type(self)(**(dict(self) | dict(update or {})))

    @property
    def content_hash(self) -> str:
        """SHA-256 of the canonical JSON form."""
        return content_hash(self.model_dump())


class Interval(Record):
    """A confidence interval and how it was made."""

    low: float
    high: float
    level: Annotated[float, Field(gt=0, lt=1)]
    method: str

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"the interval ends before it begins: {self.low} > {self.high}")
        return self

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"[{self.low:.4g}, {self.high:.4g}]"


class PValue(Record):
    """A p-value, the test it comes from, and its correction if it is one of a family."""

    value: Probability
    method: str
    alternative: Alternative
    draws: Annotated[int, Field(ge=1)] | None = None
    """How many random rearrangements; None for an exact or parametric test."""
    adjusted: Probability | None = None
    correction: str | None = None
    family: Annotated[int, Field(ge=1)] | None = None
    """How many tests were corrected together."""

    @model_validator(mode="after")
    def _whole_correction(self) -> Self:
        parts = (self.adjusted, self.correction, self.family)
        if any(part is None for part in parts) and any(part is not None for part in parts):
            raise ValueError("adjusted, correction and family belong together")
        return self


class Dropped(NamedTuple):
    """An item that was asked and not used, and why."""

    item: str
    reason: str


class ItemValue(NamedTuple):
    """What one item contributed."""

    item: str
    value: FiniteFloat


class Precision(Record):
    """How well a tested number is known: what its minimum detectable effect is computed from.

    Kept because the level of a test changes when it is corrected for its family.
    """

    standard_error: Annotated[float, Field(gt=0)]
    """Of what is tested, such as a lean."""
    df: Annotated[int, Field(ge=1)]
    """Degrees of freedom of the standard error."""
    least_p: Probability = 0.0
    """The smallest p that the test can give: of few rearrangements, none is very small."""
    margin: Annotated[float, Field(ge=0)] = 0.0
    """The largest distance from parity that the null of a minimum-effect test still holds."""


class Estimate(Record):
    """A number that stands beside a measurement: on other items, or another aspect of the same."""

    name: str
    value: float
    interval: Interval
    parity: float | None = None
    p: PValue | None = None
    n: Annotated[int, Field(ge=1)]
    unit: str = ""
    detectable: Annotated[float, Field(gt=0)] | None = None
    """The distance from parity that this test at 0.05, after its correction if it is one of a
    family, would have found four times out of five; None where no distance would have been."""
    precision: Precision | None = None
    """What `detectable` is computed from; None where it has another source."""

    def __str__(self) -> str:
        return f"{self.name} {self.value:.4g} {self.interval} (n {self.n})"


class Skill(Record):
    """Evidence that a model can do what a measure needs.

    A null result of a model without the skill says nothing: an untrained model treats all groups
    alike.
    """

    name: str
    """What the model was asked to do, such as "prefers sentences to their words shuffled"."""
    value: float
    interval: Interval
    chance: float
    """What guessing reaches."""
    threshold: float
    """The least value that counts as having the skill; above chance."""
    n: Annotated[int, Field(ge=1)]
    unit: str = ""

    @model_validator(mode="after")
    def _above_chance(self) -> Self:
        if self.threshold <= self.chance:
            raise ValueError(f"the threshold {self.threshold} is not above chance {self.chance}")
        return self

    @property
    def is_shown(self) -> bool:
        """Whether the value reaches the threshold and the whole interval lies above chance."""
        return self.value >= self.threshold and self.interval.low > self.chance

    def __str__(self) -> str:
        return (
            f"{self.name} {self.value:.4g} {self.interval} {self.unit}".rstrip()
            + f" (chance {self.chance:.4g}, needed {self.threshold:.4g}, n {self.n})"
        )


class Provenance(Record):
    """Everything a value depends on. Made with `Provenance.of`; versions are read, not given."""

    model: str
    revision: str | None
    model_hash: Sha256
    edits: tuple[Sha256, ...]
    data: Annotated[FrozenMapping, AfterValidator(_hashes)]
    """SHA-256 of every data file, by name."""
    equation: str
    """Paper and equation number."""
    seed: int | None
    settings: FrozenMapping
    versions: FrozenMapping

    @classmethod
    def of(
        cls,
        model: str,
        model_hash: str,
        *,
        revision: str | None = None,
        edits: tuple[str, ...] = (),
        data: Mapping[str, str],
        equation: str,
        seed: int | None = None,
        settings: Mapping[str, object],
    ) -> Self:
        """The provenance of a value computed now, with the installed versions."""
        return cls(
            model=model,
            revision=revision,
            model_hash=model_hash,
            edits=edits,
            data=Frozen(data),
            equation=equation,
            seed=seed,
            settings=Frozen(settings),
            versions=installed_versions(),
        )


class Inconclusive(Record):
    """A step that gave no number, and why: never a number in its place."""

    what: str
    mend: str


class Measurement(Record):
    """A value with its interval, coverage and provenance: no bare float leaves a measure.

    It cannot be made of nothing: without a used item, or with NaN anywhere, it does not exist.
    """

    measure: str
    value: float
    interval: Interval
    parity: float | None
    """The value if the groups were treated alike; None for a price, which has no such value."""
    p: PValue | None = None
    unit: str = ""
    direction: str = ""
    """What a larger value means."""
    above: str = ""
    """What a value above parity says of the model, in words; empty where it has no parity."""
    below: str = ""
    """What a value below parity says of the model, in words; empty where it cannot be below."""
    comparable: str = ""
    """Values may be compared where this is the same."""
    groups: tuple[str, ...] = ()
    """The groups that are compared, where one may choose them: the first less the second."""
    detectable: Annotated[float, Field(gt=0)] | None = None
    """The distance from parity that this test at 0.05, after its correction if it is one of a
    family, would have found four times out of five; None where no distance would have been."""
    precision: Precision | None = None
    """What `detectable` is computed from."""
    n: Annotated[int, Field(ge=1)]
    """Items used; `n + len(dropped)` is the number of items asked."""
    population: Annotated[int, Field(ge=1)] | None = None
    """Items that the data set holds, asked or not; None where the measure does not know it."""
    excess: Estimate | None = None
    """The value less its parity, where parity is estimated from the same items. Its interval is
    that of the difference itself: shifting the value's interval by an estimated parity covers the
    difference far less often than its level says."""
    skill: Skill | None = None
    """Whether the model can do what the measure needs; None: it was not checked."""
    dropped: tuple[Dropped, ...]
    per_item: tuple[ItemValue, ...] = ()
    beside: tuple[Estimate, ...] = ()
    """Numbers without which the value can be misread."""
    notes: tuple[str, ...] = ()
    """What a reader must know, in plain words."""
    provenance: Provenance

    @field_validator("dropped", "per_item")
    @classmethod
    def _by_item(cls, rows: tuple[tuple[str, object], ...]) -> tuple[tuple[str, object], ...]:
        # The order of arrival is an accident of the run; the bytes must not show it.
        return tuple(sorted(rows, key=lambda row: row[0]))

    @model_validator(mode="after")
    def _each_item_once(self) -> Self:
        names = [row.item for row in self.dropped] + [row.item for row in self.per_item]
        twice = sorted(name for name, times in Counter(names).items() if times > 1)
        if twice:
            raise ValueError(f"items counted twice: {', '.join(twice[:3])}")
        if self.per_item and len(self.per_item) != self.n:
            raise ValueError(f"{len(self.per_item)} values for n = {self.n} items")
        return self

    @property
    def items(self) -> int:
        """How many items were asked."""
        return self.n + len(self.dropped)

    @property
    def coverage(self) -> float:
        """The share of asked items that was used."""
        return self.n / self.items

    @property
    def sampled(self) -> float | None:
        """The share of the data set that was used; None where its size is not known."""
        return None if self.population is None else self.n / self.population

    @property
    def effect(self) -> tuple[float, float, float] | None:
        """Value less parity, and the interval of that difference; None without a parity."""
        if self.parity is None:
            return None
        if self.excess is not None:
            own = self.excess
            return own.value, own.interval.low, own.interval.high
        low, high = (end - self.parity for end in (self.interval.low, self.interval.high))
        return self.value - self.parity, low, high

    def __str__(self) -> str:
        p = self.p
        shown = "" if p is None else f", p {p.value if p.adjusted is None else p.adjusted:.3g}"
        parity = "" if self.parity is None else f"parity {self.parity:.4g}{shown}, "
        used = f"n {self.n} of {self.items}"
        if self.population is not None and self.population > self.items:
            # A part of the data set was asked: coverage of that part is no coverage of the whole.
            asked = "" if self.n == self.items else f", {self.items} asked"
            used = f"n {self.n} of {self.population}{asked}"
        return f"{self.measure} {self.value:.4g} {self.interval} ({parity}{used})"

    def aside(self, name: str) -> Estimate:
        """One of the numbers beside, by name."""
        for estimate in self.beside:
            if estimate.name == name:
                return estimate
        raise UnknownName("number beside", name, [estimate.name for estimate in self.beside])
