"""JSON Schemas of the files that users write, from the models that validate them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import BaseModel

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def make_schema(model: type[BaseModel]) -> str:
    """Return the JSON Schema of a file's model, with which editors complete and validate files.

    Names that refer to other tables of the same file are checked by levelhead alone.
    """
    schema = {"$schema": DIALECT, **model.model_json_schema(mode="validation")}
    return json.dumps(_correct_lengths(schema), indent=1, ensure_ascii=False) + "\n"


def _correct_lengths(node: object) -> object:
    """Name the smallest length of arrays `minItems`.

    pydantic writes `minLength`, which is one of texts, where a converter comes before the check.
    """
    if isinstance(node, list):
        return [_correct_lengths(child) for child in node]
    if not isinstance(node, dict):
        return node
    is_array = node.get("type") == "array"
    return {
        "minItems" if is_array and key == "minLength" else key: _correct_lengths(child)
        for key, child in node.items()
    }
