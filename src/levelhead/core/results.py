"""Results of a measurement: value, interval, p-value, coverage and provenance.

All records are frozen, reject NaN and unknown fields, and have one canonical JSON form: a record
that is read back is equal, and writing it again gives the same bytes. No field depends on the time.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    field_validator,
    model_validator,
)

from levelhead.core.canonical_json import content_hash, to_canonical_json
from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.core.frames import make_frame, make_number_row
from levelhead.core.frozen import FrozenDict
from levelhead.core.item_records import DroppedItem as DroppedItem
from levelhead.core.item_records import ItemDetail as ItemDetail
from levelhead.core.item_records import ItemValue as ItemValue
from levelhead.core.item_records import QueryDetail as QueryDetail
from levelhead.core.item_records import make_item_rows
from levelhead.core.notebook import VERDICT, NotebookResult, import_by_name
from levelhead.core.versions import installed_versions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from levelhead.core.frames import Backend

Alternative = Literal["two-sided", "greater", "less"]
Probability = Annotated[float, Field(ge=0, le=1)]
SHA256 = r"^[0-9a-f]{64}$"
Sha256 = Annotated[str, Field(pattern=SHA256)]


def _to_frozen_dict(value: Mapping[str, object]) -> FrozenDict:
    try:
        return FrozenDict(value)
    except LevelheadError as error:
        # pydantic turns a ValueError into a ValidationError with the field's name.
        raise ValueError(str(error)) from error


def _check_hashes(value: FrozenDict) -> FrozenDict:
    for name, digest in value.items():
        if not re.fullmatch(SHA256, str(digest)):
            raise ValueError(f"{name!r} has {digest!r} instead of a SHA-256")
    return value


def _to_dict(settings: FrozenDict) -> dict[str, object]:
    """Convert the mapping to plain dictionaries, which pydantic can serialise."""
    return {
        key: _to_dict(value) if isinstance(value, FrozenDict) else value
        for key, value in settings.items()
    }


FrozenMapping = Annotated[FrozenDict, PlainValidator(_to_frozen_dict), PlainSerializer(_to_dict)]


class Record(BaseModel):
    """Abstract base class of frozen values with one canonical JSON form."""

    # strict: a number given as text, or True given as 1, is an error in a result, not a conversion.
    # extra: a misspelt field is an error, not a value that is silently lost.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    def to_json(self) -> str:
        """Return the canonical JSON text: equal values always give the same bytes."""
        return to_canonical_json(self.model_dump()).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read a record from the text that `to_json` wrote."""
        return cls.model_validate_json(text)

    def model_copy(self, *, update: Mapping[str, object] | None = None, deep: bool = False) -> Self:
        """Return a copy with some fields changed; the copy is validated again."""
        # pydantic's model_copy does not validate, so a copy could hold NaN.
        return type(self)(**(dict(self) | dict(update or {})))

    @property
    def content_hash(self) -> str:
        """Return the SHA-256 of the canonical JSON form."""
        return content_hash(self.model_dump())


class Interval(Record):
    """A confidence interval and the method that computed it."""

    low: float
    high: float
    level: Annotated[float, Field(gt=0, lt=1)]
    method: str

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.low > self.high:
            raise ValueError(
                f"the lower end of the interval is above its upper end: {self.low} > {self.high}"
            )
        return self

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"[{self.low:.4g}, {self.high:.4g}]"


class PValue(Record):
    """A p-value, its test, and its correction if the test belongs to a family."""

    value: Probability
    method: str
    alternative: Alternative
    n_resamples: Annotated[int, Field(ge=1)] | None = None
    """Number of random rearrangements; None for an exact or parametric test."""
    adjusted: Probability | None = None
    correction: str | None = None
    family: Annotated[int, Field(ge=1)] | None = None
    """Number of tests that were corrected together."""

    @model_validator(mode="after")
    def _check_correction(self) -> Self:
        fields = (self.adjusted, self.correction, self.family)
        # A corrected p-value without its method and family size cannot be interpreted.
        if any(field is None for field in fields) and any(field is not None for field in fields):
            raise ValueError("adjusted, correction and family belong together")
        return self


class Precision(Record):
    """Precision of a tested number, from which its minimum detectable effect is computed.

    It is stored because the level of a test changes when it is corrected for its family.
    """

    standard_error: Annotated[float, Field(gt=0)]
    """Standard error of the tested number, such as a signed part."""
    df: Annotated[int, Field(ge=1)]
    """Degrees of freedom of the standard error."""
    min_p: Probability = 0.0
    """Smallest p-value that the test can give; few rearrangements cannot give a small one."""
    margin: Annotated[float, Field(ge=0)] = 0.0
    """Largest distance from parity under the null hypothesis of a minimum-effect test."""


class Estimate(Record):
    """A number that is reported with a measurement: on other items, or another metric."""

    name: str
    value: float
    interval: Interval
    parity: float | None = None
    p: PValue | None = None
    n: Annotated[int, Field(ge=1)]
    unit: str = ""
    detectable: Annotated[float, Field(gt=0)] | None = None
    """Distance from parity that this test at level 0.05, after correction if it belongs to a
    family, detects four times out of five; None if it detects no distance."""
    precision: Precision | None = None
    """Precision from which `detectable` is computed; None if it has another source."""

    def __str__(self) -> str:
        return f"{self.name} {self.value:.4g} {self.interval} (n {self.n})"


class Skill(Record):
    """Evidence that a model can do what a measure needs.

    A null result of a model without the skill is no evidence: an untrained model also treats all
    groups alike.
    """

    name: str
    """The task of the model, such as "prefers sentences to their words shuffled"."""
    value: float
    interval: Interval
    chance: float
    """Value that guessing reaches."""
    threshold: float
    """Smallest value that counts as having the skill; above the level of guessing."""
    n: Annotated[int, Field(ge=1)]
    unit: str = ""

    @model_validator(mode="after")
    def _check_threshold(self) -> Self:
        # A threshold at the level of guessing would count a guessing model as skilled.
        if self.threshold <= self.chance:
            raise ValueError(f"the threshold {self.threshold} is not above chance {self.chance}")
        return self

    @property
    def is_shown(self) -> bool:
        """Return whether the value reaches the threshold and the interval lies above guessing."""
        # Both conditions: a large value of few items may be due to randomness, and a value that is
        # significantly above guessing may still be too small.
        return self.value >= self.threshold and self.interval.low > self.chance

    def __str__(self) -> str:
        return (
            f"{self.name} {self.value:.4g} {self.interval} {self.unit}".rstrip()
            + f" (chance {self.chance:.4g}, needed {self.threshold:.4g}, n {self.n})"
        )


class Provenance(Record):
    """Everything that a value depends on. `Provenance.of` creates it and reads the versions."""

    model: str
    revision: str | None
    model_hash: Sha256
    edits: tuple[Sha256, ...]
    data: Annotated[FrozenMapping, AfterValidator(_check_hashes)]
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
        """Create the provenance of a value that is computed now, with the installed versions.

        Args:
            model: name or path of the model.
            model_hash: SHA-256 of the model.
            revision: revision of the model, if it has one.
            edits: SHA-256 of every edit of the model.
            data: SHA-256 of every data file, by name.
            equation: paper and equation number.
            seed: seed of the random numbers; None if no random numbers were used.
            settings: options of the computation.
        """
        return cls(
            model=model,
            revision=revision,
            model_hash=model_hash,
            edits=edits,
            data=FrozenDict(data),
            equation=equation,
            seed=seed,
            settings=FrozenDict(settings),
            versions=installed_versions(),
        )


class StepFailure(Record):
    """A step that gave no number, and why; no number replaces it."""

    problem: str
    hint: str


class Measurement(NotebookResult, Record):
    """A value with its interval, coverage and provenance; measures never return a bare float.

    A measurement without a used item, or with NaN in any field, cannot be constructed.
    """

    measure: str
    value: float
    interval: Interval
    parity: float | None
    """Value if the groups were treated alike; None for a utility, which has no such value."""
    p: PValue | None = None
    unit: str = ""
    direction: str = ""
    """Meaning of a larger value."""
    above: str = ""
    """Meaning of a value above parity, in words; empty if the measure has no parity."""
    below: str = ""
    """Meaning of a value below parity, in words; empty if no value can be below parity."""
    comparability_key: str = ""
    """Values may be compared only if their keys are equal."""
    groups: tuple[str, ...] = ()
    """Compared groups, if they can be chosen: the first minus the second."""
    detectable: Annotated[float, Field(gt=0)] | None = None
    """Distance from parity that this test at level 0.05, after correction if it belongs to a
    family, detects four times out of five; None if it detects no distance."""
    precision: Precision | None = None
    """Precision from which `detectable` is computed."""
    n: Annotated[int, Field(ge=1)]
    """Number of used items; `n + len(dropped)` is the number of queried items."""
    population: Annotated[int, Field(ge=1)] | None = None
    """Number of items of the data set, queried or not; None if the measure does not know it."""
    excess: Estimate | None = None
    """Value minus parity, if parity is estimated from the same items. Its interval is that of the
    difference: an interval of the value that is shifted by an estimated parity covers the
    difference far less often than its level states."""
    skill: Skill | None = None
    """Evidence that the model can do what the measure needs; None if it was not checked."""
    dropped: tuple[DroppedItem, ...]
    per_item_values: tuple[ItemValue, ...] = ()
    item_details: tuple[ItemDetail, ...] = ()
    """Content of the items, or of those that contribute most; empty if it was not recorded."""
    extras: tuple[Estimate, ...] = ()
    """Numbers without which the value can be misinterpreted."""
    notes: tuple[str, ...] = ()
    """Cautions for the reader, in plain words."""
    provenance: Provenance

    @field_validator("dropped", "per_item_values", "item_details")
    @classmethod
    def _sort_by_item(cls, rows: tuple[tuple[str, object], ...]) -> tuple[tuple[str, object], ...]:
        # The order in which results arrive differs between runs; the bytes must not depend on it.
        return tuple(sorted(rows, key=lambda row: row[0]))

    @model_validator(mode="after")
    def _check_items_unique(self) -> Self:
        names = [row.item for row in self.dropped] + [row.item for row in self.per_item_values]
        duplicates = sorted(name for name, times in Counter(names).items() if times > 1)
        # An item that counts twice would make the interval too narrow.
        if duplicates:
            raise ValueError(f"items counted twice: {', '.join(duplicates[:3])}")
        if self.per_item_values and len(self.per_item_values) != self.n:
            raise ValueError(f"{len(self.per_item_values)} values for n = {self.n} items")
        described = [detail.item for detail in self.item_details]
        unused = sorted(set(described) - {row.item for row in self.per_item_values})
        # The content of a dropped item would read as if it had counted.
        if unused or len(set(described)) < len(described):
            names_text = ", ".join(unused[:3]) or "one item twice"
            raise ValueError(f"content of items without a value: {names_text}")
        return self

    def without_items(self) -> Self:
        """Return the measurement without the content of its items."""
        return self.model_copy(update={"item_details": ()}) if self.item_details else self

    @property
    def title(self) -> str:
        """The measure, and what a larger value means."""
        return f"{self.measure} ({self.direction})" if self.direction else self.measure

    def to_rows(self) -> list[dict[str, object]]:
        """The value with its verdict, the excess over an estimated parity, and the extras."""
        status = str(import_by_name(VERDICT)(self))
        main = make_number_row(self.measure, self) | {"status": status}
        others = (*([self.excess] if self.excess else []), *self.extras)
        return [main, *(make_number_row(estimate.name, estimate) for estimate in others)]

    def per_item(self, backend: Backend | None = None) -> Any:
        """Make a data frame of the items: item, group, value, texts and responses.

        The texts and responses are those of `item_details`; other items have none. If the queries
        of an item are several, their columns are numbered: `text_1`, `text_2`.

        Args:
            backend: pandas, polars or dict; by default the first that is installed.
        """
        return make_frame(make_item_rows(self.per_item_values, self.item_details), backend)

    @property
    def n_items(self) -> int:
        """Number of queried items."""
        return self.n + len(self.dropped)

    @property
    def coverage(self) -> float:
        """Share of the queried items that was used."""
        return self.n / self.n_items

    @property
    def sampled_fraction(self) -> float | None:
        """Share of the data set that was used; None if its size is not known."""
        return None if self.population is None else self.n / self.population

    @property
    def effect(self) -> tuple[float, float, float] | None:
        """Value minus parity and the interval of this difference; None without a parity."""
        if self.parity is None:
            return None
        # The parity is itself an estimate here; see `excess`.
        if self.excess is not None:
            excess = self.excess
            return excess.value, excess.interval.low, excess.interval.high
        low, high = (end - self.parity for end in (self.interval.low, self.interval.high))
        return self.value - self.parity, low, high

    def __str__(self) -> str:
        p = self.p
        p_text = "" if p is None else f", p {p.value if p.adjusted is None else p.adjusted:.3g}"
        parity_text = "" if self.parity is None else f"parity {self.parity:.4g}{p_text}, "
        count_text = f"n {self.n} of {self.n_items}"
        if self.population is not None and self.population > self.n_items:
            # Only a part of the data set was queried, and coverage of that part is not coverage of
            # the full data set.
            queried_text = "" if self.n == self.n_items else f", {self.n_items} asked"
            count_text = f"n {self.n} of {self.population}{queried_text}"
        return f"{self.measure} {self.value:.4g} {self.interval} ({parity_text}{count_text})"

    def extra(self, name: str) -> Estimate:
        """Return one of the numbers that are reported with the value, by name."""
        for estimate in self.extras:
            if estimate.name == name:
                return estimate
        raise UnknownNameError("extra number", name, [estimate.name for estimate in self.extras])
