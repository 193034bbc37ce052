"""A study as a TOML file: models, measures, head maps, edits, and the steps that combine them.

Validation is strict: an unknown key or an undefined name is an error before anything is loaded. In
paths `${LEVELHEAD_...}` is replaced by that environment variable; no other variable is.
"""

from __future__ import annotations

import json
import os
import re
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError, create_model

from levelhead.core.errors import LevelheadError
from levelhead.core.toml import parse_toml
from levelhead.models.serving.addresses import KEY_VARIABLE
from levelhead.study.steps.config import Key, StudyConfigBase
from levelhead.study.steps.kinds import STEP_KINDS

VARIABLE = re.compile(r"\$\{(\w+)\}")
EARLIER_FORMAT = "levelhead-study-1"
"""The former format, whose tables and keys had other names."""

if TYPE_CHECKING:

    class StudyConfig(StudyConfigBase):
        """A complete study."""

else:
    # A table for every kind of step: a new kind is listed in STEP_KINDS only.
    _TABLES: dict[str, Any] = {
        kind.config_table: (dict[Key, kind.definition.config], Field(default_factory=dict))
        for kind in STEP_KINDS
    }
    StudyConfig = create_model(
        "StudyConfig",
        __base__=StudyConfigBase,
        __module__=__name__,
        __doc__="A complete study.",
        **_TABLES,
    )


def read_study_config(path: str | os.PathLike[str]) -> StudyConfig:
    """Read and validate a study from TOML, or from the JSON that an audit writes."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise LevelheadError(f"cannot read {path}: {error}", hint="check the path") from None
    raw = (
        _parse_json(text, path)
        if str(path).endswith(".json")
        else parse_toml(_expand_variables(text), path)
    )
    if raw.get("format") == EARLIER_FORMAT:
        raise LevelheadError(
            (
                f"{path} is a study of an earlier version ({EARLIER_FORMAT}): keys have "
                "other names now"
            ),
            hint='say format = "levelhead-study-2", then rename the keys that are refused',
        )
    try:
        config = StudyConfig.model_validate(raw)
    except ValidationError as error:
        raise _validation_error(str(path), error) from None
    config.check()
    return config


def _parse_json(text: str, path: object) -> dict[str, Any]:
    try:
        raw = json.loads(text)
    # RecursionError: brackets without end.
    except (ValueError, RecursionError) as error:
        raise LevelheadError(
            f"{path} is not valid JSON: {error}", hint="correct that line"
        ) from None
    if not isinstance(raw, dict):
        raise LevelheadError(f"{path} holds no study", hint="give a study file")
    return raw


def _expand_variables(text: str) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1]
        # A study file from someone else must not read keys and tokens of the environment, and this
        # one would send them to the address that it names.
        # Windows knows no case in names of variables.
        if not name.startswith("LEVELHEAD_") or name.upper().startswith(KEY_VARIABLE):
            raise LevelheadError(
                f"${{{name}}} in a study",
                hint="only variables named LEVELHEAD_... are read, and never a key",
            )
        if name not in os.environ:
            raise LevelheadError(f"{name} is not set", hint=f"export {name}=<folder>")
        # The value is put into a TOML string, where a backslash of a path would be an escape.
        return os.environ[name].replace("\\", "\\\\").replace('"', '\\"')

    return VARIABLE.sub(value, text)


def _validation_error(path: str, error: ValidationError) -> LevelheadError:
    first = error.errors()[0]
    key_path = ".".join(map(str, first["loc"]))
    if first["type"] != "extra_forbidden":
        return LevelheadError(f"{path}: {key_path}: {first['msg']}", hint="correct that value")
    schema: object = StudyConfig
    known_keys = sorted(StudyConfig.model_fields)
    for step in first["loc"][:-1]:
        fields = getattr(schema, "model_fields", {})
        if step in fields:
            inner = fields[step].annotation
            schema = inner.__args__[1] if getattr(inner, "__origin__", None) is dict else inner
            known_keys = sorted(getattr(schema, "model_fields", {}))
    close = get_close_matches(str(first["loc"][-1]), known_keys, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known here: {', '.join(known_keys)}"
    return LevelheadError(f"{path}: no such key: {key_path}", hint=hint)
