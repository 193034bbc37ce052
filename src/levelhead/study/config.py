"""A study as a TOML file: models, measures, maps of heads, edits, and what is measured of what.

Read strictly: an unknown key or a name that is not in the file is an error before anything is
loaded. In paths `${LEVELHEAD_...}` stands for that environment variable, and for nothing else.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError, create_model

from levelhead.core.errors import LevelheadError
from levelhead.study.steps.config import Key, PlanBase
from levelhead.study.steps.kinds import STEP_KINDS

VARIABLE = re.compile(r"\$\{(\w+)\}")

if TYPE_CHECKING:

    class Plan(PlanBase):
        """A whole study."""

else:
    # A table for every kind of step: a new kind is listed in STEP_KINDS only.
    _TABLES: dict[str, Any] = {
        kind.table: (dict[Key, kind.definition.config], Field(default_factory=dict))
        for kind in STEP_KINDS
    }
    Plan = create_model(
        "Plan", __base__=PlanBase, __module__=__name__, __doc__="A whole study.", **_TABLES
    )


def read_plan(path: str | os.PathLike[str]) -> Plan:
    """The study that a TOML file writes down, or JSON as an audit keeps it, checked."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        told = json.loads(text) if str(path).endswith(".json") else tomllib.loads(_expanded(text))
    except (OSError, UnicodeError) as error:
        raise LevelheadError(f"cannot read {path}: {error}", mend="check the path") from None
    except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
        kind = "JSON" if isinstance(error, json.JSONDecodeError) else "TOML"
        raise LevelheadError(f"{path} is no {kind}: {error}", mend="mend that line") from None
    try:
        plan = Plan.model_validate(told)
    except ValidationError as error:
        raise _refused(str(path), error) from None
    plan.check()
    return plan


def _expanded(text: str) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1]
        if not name.startswith("LEVELHEAD_"):
            raise LevelheadError(
                f"${{{name}}} in a study", mend="only variables named LEVELHEAD_... are read"
            )
        if name not in os.environ:
            raise LevelheadError(f"{name} is not set", mend=f"export {name}=<folder>")
        return os.environ[name].replace("\\", "\\\\").replace('"', '\\"')

    return VARIABLE.sub(value, text)


def _refused(path: str, error: ValidationError) -> LevelheadError:
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    if first["type"] != "extra_forbidden":
        return LevelheadError(f"{path}: {where}: {first['msg']}", mend="mend that value")
    place: object = Plan
    known = sorted(Plan.model_fields)
    for step in first["loc"][:-1]:
        fields = getattr(place, "model_fields", {})
        if step in fields:
            inner = fields[step].annotation
            place = inner.__args__[1] if getattr(inner, "__origin__", None) is dict else inner
            known = sorted(getattr(place, "model_fields", {}))
    close = get_close_matches(str(first["loc"][-1]), known, n=1)
    mend = f"did you mean {close[0]}?" if close else f"known here: {', '.join(known)}"
    return LevelheadError(f"{path}: no such key: {where}", mend=mend)
