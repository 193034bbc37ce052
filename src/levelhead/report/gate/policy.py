"""What a model must satisfy, as a TOML file: bounds on measures, read strictly."""

from __future__ import annotations

import hashlib
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, Self

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from levelhead.core.errors import LevelheadError
from levelhead.core.results import Record

if TYPE_CHECKING:
    import os

Of = Literal["value", "distance"]
Side = Literal["both", "worse", "better", "value"]


def _tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


class Rule(Record):
    """A bound on one measure."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    measure: str
    """As the study names it, or the measure's own name."""
    model: str | None = None
    """Of which model, if the run has several."""
    of: Of = "value"
    """What is bounded: the value, or its distance from parity, whichever way."""
    most: float | None = None
    least: float | None = None
    side: Side = "both"
    """Which side of the interval must keep within the bound.

    both: all of it passes, none of it fails, else it is inconclusive. worse: the worse end decides.
    better: it fails only if even the better end is beyond. value: the interval is not looked at.
    """
    coverage: Annotated[float, Field(gt=0, le=1)] = 0.9
    """The least share of asked items that must have been used."""
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """The least share of the whole data set that must have been used; None: any, and it is said in
    the ruling. A run that samples is no failure: its interval is wider."""
    n: Annotated[int, Field(ge=1)] = 1
    """The least number of items."""
    allow_uncalibrated: bool = False
    """Let a measure decide that failed on models with planted bias; else it is inconclusive."""
    allow_unchecked_skill: bool = False
    """Let a measure of bias pass whose model was not checked for the skill that it needs."""
    against: str | None = None
    """The folder of a baseline run: the bound is then on this run's value less that one's."""
    why: str = ""
    """What the rule is for; it is printed."""

    @model_validator(mode="after")
    def _one_bound(self) -> Self:
        if (self.most is None) == (self.least is None):
            raise ValueError("a rule has one bound: give most, or least")
        if self.of == "distance" and (self.least is not None or self.against is not None):
            raise ValueError("a distance from parity is bounded by most, without a baseline")
        return self

    @property
    def told(self) -> str:
        """The rule in words."""
        what = f"distance of {self.measure} from parity" if self.of == "distance" else self.measure
        if self.against is not None:
            what += f" less that of {self.against}"
        bound = f"at most {self.most:g}" if self.most is not None else f"at least {self.least:g}"
        return f"{what} {bound}"


class Policy(Record):
    """All rules of a gate."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    format: Literal["levelhead-gate-1"]
    allow_uncalibrated: bool = False
    """Of every rule."""
    allow_unchecked_skill: bool = False
    """Of every rule."""
    rule: Annotated[tuple[Rule, ...], BeforeValidator(_tuple), Field(min_length=1)]

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules, each with what holds for all."""
        both = ("allow_uncalibrated", "allow_unchecked_skill")
        return tuple(
            rule.model_copy(
                update={name: getattr(self, name) or getattr(rule, name) for name in both}
            )
            for rule in self.rule
        )


class ReadPolicy(NamedTuple):
    """A policy, and the hash of the file it was read from."""

    policy: Policy
    sha256: str


def read_policy(path: str | os.PathLike[str]) -> ReadPolicy:
    """The policy that a TOML file writes down."""
    try:
        raw = Path(path).read_bytes()
        told = tomllib.loads(raw.decode("utf-8"))
    except (OSError, UnicodeError) as error:
        raise LevelheadError(f"cannot read {path}: {error}", mend="check the path") from None
    except tomllib.TOMLDecodeError as error:
        raise LevelheadError(f"{path} is no TOML: {error}", mend="mend that line") from None
    try:
        return ReadPolicy(Policy.model_validate(told), hashlib.sha256(raw).hexdigest())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        if first["type"] != "extra_forbidden":
            raise LevelheadError(f"{path}: {where}: {first['msg']}", mend="mend it") from None
        known = sorted((Rule if "rule" in first["loc"] else Policy).model_fields)
        close = get_close_matches(str(first["loc"][-1]), known, n=1)
        mend = f"did you mean {close[0]}?" if close else f"known here: {', '.join(known)}"
        raise LevelheadError(f"{path}: no such key: {where}", mend=mend) from None
