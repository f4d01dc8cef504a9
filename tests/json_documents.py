"""Compare a JSON document with its schema, without the tolerance that readers should have."""

from __future__ import annotations

from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from hotlap.render.schemas import schema_of


def assert_valid(document: dict[str, Any]) -> None:
    """Assert that the document matches its schema, that all fields are there, and that no other is."""
    name = document["document"].removeprefix("hotlap-")
    for exact in (False, True):
        problems = [f"{it.json_path}: {it.message[:300]}" for it in _validator(name, exact).iter_errors(document)]
        assert not problems, problems[:5]


@cache
def _validator(name: str, exact: bool) -> Draft202012Validator:
    schema = schema_of(name)
    Draft202012Validator.check_schema(schema)
    if exact:
        schema = {**schema, "unevaluatedProperties": False}
        schema["$defs"] = {key: _exact(it) for key, it in schema.get("$defs", {}).items()}
        if "anyOf" in schema:  # the parts that are the document itself, next to its name and version
            for it in schema["anyOf"]:
                schema["$defs"][it["$ref"].rpartition("/")[2]].pop("additionalProperties", None)
    return Draft202012Validator(schema)


def _exact(part: dict[str, Any]) -> dict[str, Any]:
    """An object's schema with all of its fields required, and no other allowed."""
    if "properties" not in part:
        return part
    return {**part, "required": list(part["properties"]), "additionalProperties": False}
