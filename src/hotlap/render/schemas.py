"""JSON Schemas (2020-12) of the documents that commands print, generated from the records that they print.

Each is named by its document and version, and refers to nothing outside of itself. Fields may be added to a document
without a new version, so the schemas allow unknown ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import msgspec

from hotlap.compare.records import Difference
from hotlap.diagnose.trace_verdict import TraceVerdict
from hotlap.history import History
from hotlap.plan import FORMAT, plan_schema
from hotlap.records import ArtefactProof, Check, CollectiveRates, Costs, Machine, NumbersHunt, Patch, Study
from hotlap.render.isolation import IsolationDocument
from hotlap.render.json import VERSIONS, in_seconds, name_in_seconds
from hotlap.render.lever_pages import LeverPage
from hotlap.render.rule_pages import RulePage
from hotlap.source.lint.records import LintFinding, LintProblem, LintRule
from hotlap.traces.collective_records import CollectiveComparison
from hotlap.traces.records import Breakdown, RankComparison

Schema: TypeAlias = dict[str, Any]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_ROLE = re.compile(r":\w+:`~?([\w.]+)(?:\(\))?`")
_REFERENCE = "#/$defs/{name}"


_Advice: TypeAlias = tuple[Literal["problem", "warning", "note"], str, str]
"""How bad something is, what it is, and what to do about it."""


class _Skipped(msgspec.Struct):
    path: str
    reason: str


_RECORDS: Mapping[str, tuple[type, ...]] = MappingProxyType(
    {
        "artefact": (ArtefactProof,),
        "check": (Check,),
        "diff": (Difference,),
        "history": (History,),
        "nan": (NumbersHunt,),
        "page": (RulePage, LeverPage, LintRule),
        "patch": (Patch,),
        "study": (Study,),
    }
)
"""Documents that are one record, or one of several."""

_FIELDS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "doctor": {
            "machine": Machine,
            "isolation": IsolationDocument | None,
            "advice": tuple[_Advice, ...],
            "collectives": CollectiveRates | None,
        },
        "export": {"format": str, "study": str, "written": tuple[str, ...]},
        "findings": {"rules": tuple[RulePage, ...]},
        "levers": {"levers": tuple[LeverPage, ...]},
        "lint": {
            "checked_files": int,
            "findings": tuple[LintFinding, ...],
            "problems": tuple[LintProblem, ...],
            "fixed": dict[str, int],
        },
        "new": {"directory": str, "files": tuple[str, ...], "replaced": tuple[str, ...]},
        "nodes": {"nodes": dict[str, Machine], "remarks": tuple[str, ...]},
        "rules": {"rules": tuple[LintRule, ...]},
        "trace": {
            "traces": tuple[Breakdown, ...],
            "ranks": RankComparison | None,
            "collectives": CollectiveComparison | None,
            "verdicts": tuple[TraceVerdict, ...],
            "verdict_of_ranks": TraceVerdict | None,
            "skipped": tuple[_Skipped, ...],
        },
    }
)
"""Documents that a command puts together from several records."""

_OPTIONAL: Mapping[str, Mapping[str, Any]] = MappingProxyType({"study": {"costs": Costs}})
"""Fields that only some runs of a command add to the record."""

NAMES = (*sorted(VERSIONS), "plan")
"""What there are schemas of: the documents, and plan files, which are TOML."""


def schema_of(name: str) -> Schema:
    """The schema of the document ``hotlap-NAME``, or of a plan file."""
    if name == "plan":
        return _titled("hotlap-plan", FORMAT, *plan_schema())
    records, fields, optional = _RECORDS.get(name, ()), _FIELDS.get(name, {}), _OPTIONAL.get(name, {})
    types = (*records, *fields.values(), *optional.values())
    schemas, parts = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    one_of, of_fields = list(schemas[: len(records)]), schemas[len(records) :]
    head: Schema = {"document": {"const": f"hotlap-{name}"}, "document_version": {"const": VERSIONS[name]}}
    body: Schema = {
        "type": "object",
        "required": [*head, *fields],
        "properties": head | dict(zip((*fields, *optional), of_fields, strict=True)),
    }
    if one_of:
        body["anyOf"] = one_of
    return _titled(f"hotlap-{name}", VERSIONS[name], body, {key: _as_printed(it) for key, it in parts.items()})


def file_name(name: str) -> str:
    """The name of the file that the site publishes the schema in."""
    version = FORMAT if name == "plan" else VERSIONS[name]
    return f"hotlap-{name}-{version}.schema.json"


def _titled(title: str, version: int, body: Schema, parts: Schema) -> Schema:
    head = {"$schema": _DIALECT, "$id": f"urn:hotlap:{title}:{version}", "title": title}
    return head | body | ({"$defs": parts} if parts else {})


def _as_printed(part: Schema) -> Schema:
    """The schema of a record as documents have it: nanoseconds are seconds there, which are not whole numbers."""
    if "description" in part:
        part = part | {"description": _ROLE.sub(r"`\1`", part["description"]).replace("``", "`")}
    if "properties" not in part:
        return part
    renamed = {
        name_in_seconds(name): _with_fractions(it) if name_in_seconds(name) != name else it
        for name, it in part["properties"].items()
    }
    changed: Schema = {"properties": renamed}
    if "required" in part:
        changed["required"] = [name_in_seconds(name) for name in part["required"]]
    return part | changed


def _with_fractions(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_fractions(it) for it in value]
    if not isinstance(value, dict):
        return value
    changed = {name: _with_fractions(it) for name, it in value.items() if name != "default"}
    if changed.get("type") == "integer":
        changed["type"] = "number"
    if "default" in value:
        changed["default"] = in_seconds(value["default"])
    return changed
