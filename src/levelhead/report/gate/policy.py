"""Policies: bounds on measures that a model must satisfy, from a strictly validated TOML file."""

from __future__ import annotations

import hashlib
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, Self

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from levelhead.core.errors import LevelheadError
from levelhead.core.results import Record
from levelhead.core.toml import parse_toml

if TYPE_CHECKING:
    import os

BoundedQuantity = Literal["value", "distance"]
IntervalSide = Literal["both", "worse", "better", "value"]
EARLIER_FORMAT = "levelhead-gate-1"
"""The former format, whose keys had other names."""


def _tuple(value: object) -> object:
    # TOML has arrays, but strict records accept only tuples.
    return tuple(value) if isinstance(value, list) else value


class Rule(Record):
    """A bound on one measure."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        json_schema_extra={"oneOf": [{"required": ["at_most"]}, {"required": ["at_least"]}]},
    )

    measure: str
    """The measure's name in the study, or the name of the measure itself."""
    model: str | None = None
    """The model's name in the study, if the run has several models."""
    quantity: BoundedQuantity = "value"
    """The bounded quantity: the value, or its distance from parity in either direction."""
    at_most: float | None = None
    at_least: float | None = None
    interval_side: IntervalSide = "both"
    """The side of the interval that must satisfy the bound.

    both: the full interval must satisfy the bound to pass and violate it to fail; else the result
    is inconclusive. worse: the worse end decides. better: the rule fails only if the better end
    violates the bound. value: the interval is ignored.
    """
    min_coverage: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Minimum share of the queried items that were used."""
    min_share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Minimum share of the full data set that was used; None: any, and the result states the
    share. Sampling is no failure: the interval is wider."""
    min_items: Annotated[int, Field(ge=1)] = 1
    """Minimum number of items."""
    allow_uncalibrated: bool = False
    """Whether a measure that failed on models with planted bias may decide; else the result is
    inconclusive."""
    allow_unchecked_skill: bool = False
    """Whether a measure of bias may pass if the model's skill for it was not checked."""
    baseline: str | None = None
    """Folder of a baseline run; the bound then holds for the difference run minus baseline."""
    purpose: str = ""
    """Purpose of the rule, which the report prints."""

    @model_validator(mode="after")
    def _one_bound(self) -> Self:
        if (self.at_most is None) == (self.at_least is None):
            raise ValueError("a rule has one bound: give at_most, or at_least")
        if self.quantity == "distance" and (self.at_least is not None or self.baseline is not None):
            raise ValueError("a distance from parity is bounded by at_most, without a baseline")
        return self

    @property
    def description(self) -> str:
        """The rule in words."""
        what = (
            f"distance of {self.measure} from parity"
            if self.quantity == "distance"
            else self.measure
        )
        if self.baseline is not None:
            what += f" less that of {self.baseline}"
        bound = (
            f"at most {self.at_most:g}"
            if self.at_most is not None
            else f"at least {self.at_least:g}"
        )
        return f"{what} {bound}"


class Policy(Record):
    """All rules of a gate."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )

    format: Literal["levelhead-gate-2"]
    allow_uncalibrated: bool = False
    """Default for every rule."""
    allow_unchecked_skill: bool = False
    """Default for every rule."""
    rule: Annotated[tuple[Rule, ...], BeforeValidator(_tuple), Field(min_length=1)]

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules, with the policy's defaults applied."""
        both = ("allow_uncalibrated", "allow_unchecked_skill")
        return tuple(
            rule.model_copy(
                update={name: getattr(self, name) or getattr(rule, name) for name in both}
            )
            for rule in self.rule
        )


class LoadedPolicy(NamedTuple):
    """A policy, and the hash of the file it was read from."""

    policy: Policy
    sha256: str


def read_policy(path: str | os.PathLike[str]) -> LoadedPolicy:
    """Read and validate a policy from a TOML file."""
    try:
        raw = Path(path).read_bytes()
        text = raw.decode("utf-8")
    except (OSError, UnicodeError) as error:
        raise LevelheadError(f"cannot read {path}: {error}", hint="check the path") from None
    table = parse_toml(text, path)
    if table.get("format") == EARLIER_FORMAT:
        raise LevelheadError(
            (
                f"{path} is a policy of an earlier version ({EARLIER_FORMAT}): keys have "
                "other names now"
            ),
            hint='say format = "levelhead-gate-2", then rename the keys that are refused',
        )
    try:
        return LoadedPolicy(Policy.model_validate(table), hashlib.sha256(raw).hexdigest())
    except ValidationError as error:
        first = error.errors()[0]
        key_path = ".".join(map(str, first["loc"]))
        if first["type"] != "extra_forbidden":
            raise LevelheadError(f"{path}: {key_path}: {first['msg']}", hint="correct it") from None
        known_keys = sorted((Rule if "rule" in first["loc"] else Policy).model_fields)
        close = get_close_matches(str(first["loc"][-1]), known_keys, n=1)
        hint = f"did you mean {close[0]}?" if close else f"known here: {', '.join(known_keys)}"
        raise LevelheadError(f"{path}: no such key: {key_path}", hint=hint) from None
