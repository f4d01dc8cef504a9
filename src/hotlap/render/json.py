"""Records as JSON documents for other programs, without secrets, and with the home directory as ``~``.

Every document has a name (``document``) and a version (``document_version``); all times are in seconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from hotlap.records import Costs, Study
from hotlap.render.presentable import portable

VERSIONS: Mapping[str, int] = {
    "artefact": 1,
    "check": 1,
    "diff": 1,
    "doctor": 1,
    "export": 1,
    "findings": 1,
    "history": 1,
    "levers": 1,
    "lint": 1,
    "nan": 1,
    "new": 1,
    "nodes": 1,
    "page": 1,
    "patch": 1,
    "rules": 1,
    "study": 1,
    "trace": 1,
}
"""The documents that commands print. A version increases if a field changes its meaning, type, unit or name, but not if
a field is added."""

Json: TypeAlias = dict[str, "Json"] | list["Json"] | str | int | float | bool | None
_NANOSECONDS = re.compile(r"(?:^|(?<=_))nanoseconds$")


def study_json(study: Study, costs: Costs | None = None) -> str:
    """The whole study, indented, readable as a :class:`hotlap.records.Study`, with its costs as the field ``costs``."""
    document = msgspec.to_builtins(study) | ({"costs": msgspec.to_builtins(costs)} if costs is not None else {})
    return document_json("study", document)


def document_json(kind: str, what: object, *, exact: bool = False) -> str:
    """A record, or the fields of a document of that kind (a key of :data:`VERSIONS`), as JSON, indented.

    With ``exact`` all text is unchanged, for programs that edit files by it.
    """
    fields = in_seconds(msgspec.to_builtins(what))
    fields = fields if exact else portable(fields)
    assert isinstance(fields, dict), "a document must be an object to contain its name and version"
    head = {"document": f"hotlap-{kind}", "document_version": VERSIONS[kind]}
    return msgspec.json.format(msgspec.json.encode(head | fields), indent=2).decode()


def in_seconds(value: Json) -> Json:
    """The same with nanoseconds, as in traces, converted to seconds and renamed."""
    if isinstance(value, list | tuple):
        return [in_seconds(it) for it in value]
    if not isinstance(value, dict):
        return value
    fields: dict[str, Json] = {}
    for key, it in value.items():
        name = name_in_seconds(key)
        fields[name] = in_seconds(it) if name == key else _divided(it)
    return fields


def name_in_seconds(name: str) -> str:
    """The name that a field has in documents."""
    return _NANOSECONDS.sub("seconds", name)


def _divided(value: Json) -> Json:
    if isinstance(value, list | tuple):
        return [_divided(it) for it in value]
    return value / 1e9 if isinstance(value, int | float) else value
