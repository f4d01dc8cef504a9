"""The tables of ``docs/study-format.md``, made from the records: `python docs/_site/study_format.py` writes them again.

What stands between the two markers of the page is replaced; a test fails when it differs from the records.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect as types

from hotlap.diagnose.profile import Profile
from hotlap.evidence import RunEvidence
from hotlap.records import ArtefactProof, Assignment, Check, Patch, Study
from hotlap.study.records import CollectivesAnswer, Header, LaunchAnswer, MachineAnswer, TurnAnswer
from hotlap.study.trust import Signatures

PAGE = Path(__file__).parents[1] / "study-format.md"
BEGIN, END = "<!-- records: begin -->", "<!-- records: end -->"
ROOTS = (
    Header, MachineAnswer, LaunchAnswer, TurnAnswer, CollectivesAnswer, Study, Profile, Check, Patch, Assignment,
    RunEvidence, ArtefactProof, Signatures
)  # fmt: skip
"""What the files hold; all other records are parts of these."""

_ROLE = re.compile(r":\w+:`~?([\w.]+)(?:\(\))?`")


def written_page() -> str:
    """The page with its tables as the records have it."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{tables()}\n{END}{after}"


def tables() -> str:
    """A section for each record, those first that a file holds as a whole."""
    known = [it for it in reachable() if it not in ROOTS]
    parts = []
    for title, records in (("Whole files and lines", ROOTS), ("Their parts", tuple(known))):
        parts += [f"## {title}", *(_section(it) for it in records)]
    return "\n\n".join(parts) + "\n"


@cache
def reachable() -> list[type[msgspec.Struct]]:
    """Every record that some file holds, in the order in which it is first named."""
    found: dict[type[msgspec.Struct], None] = {}
    waiting: list[type[msgspec.Struct]] = list(ROOTS)
    while waiting:
        record = waiting.pop(0)
        if record not in found:
            found[record] = None
            fields = _info(record).fields
            waiting += [
                part.cls for field in fields for part in _flat(field.type) if isinstance(part, types.StructType)
            ]
    return list(found)


def _section(record: type[msgspec.Struct]) -> str:
    parts = [f"### {record.__name__}", _prose(record)]
    tag = record.__struct_config__.tag
    rows = [("`type`", f"`{tag}`", "")] if tag is not None else []
    rows += [(f"`{it.encode_name}`", _shown(it.type), _default(it)) for it in _info(record).fields]
    if not rows:
        return "\n\n".join(parts)
    lines = [("field", "JSON type", "where it is missing"), ("---", "---", "---"), *rows]
    return "\n\n".join((*parts, "\n".join("| " + " | ".join(it) + " |" for it in lines)))


@cache
def _info(record: type[msgspec.Struct]) -> types.StructType:
    found = types.type_info(record)
    assert isinstance(found, types.StructType)
    return found


def _flat(of: types.Type) -> Iterator[types.Type]:
    """A type and the types that it is made of, records not opened."""
    yield of
    if isinstance(of, types.UnionType):
        for it in of.types:
            yield from _flat(it)
    elif isinstance(of, types.VarTupleType):
        yield from _flat(of.item_type)
    elif isinstance(of, types.TupleType):
        for it in of.item_types:
            yield from _flat(it)


def _shown(of: types.Type) -> str:
    plain = {
        types.IntType: "integer", types.FloatType: "number", types.StrType: "string", types.BoolType: "boolean",
        types.NoneType: "null", types.RawType: "any", types.AnyType: "any",
    }  # fmt: skip
    if isinstance(of, types.StructType):
        return f"[{of.cls.__name__}](#{of.cls.__name__.lower()})"
    if isinstance(of, types.LiteralType):
        return "one of " + ", ".join(f"`{it}`" for it in of.values)
    if isinstance(of, types.UnionType):
        return " or ".join(_shown(it) for it in of.types)
    if isinstance(of, types.VarTupleType):
        several = isinstance(of.item_type, (types.UnionType, types.LiteralType))
        return f"list of ({_shown(of.item_type)})" if several else f"list of {_shown(of.item_type)}"
    if isinstance(of, types.TupleType):
        return "pair of " + " and ".join(_shown(it) for it in of.item_types)
    return plain[type(of)]


def _default(field: types.Field) -> str:
    if field.required:
        return "damaged"
    value: Any = field.default
    if value is msgspec.NODEFAULT:
        value = field.default_factory() if callable(field.default_factory) else None
    if isinstance(value, msgspec.Struct):
        return f"{type(value).__name__} with its defaults"
    if isinstance(value, msgspec.Raw):
        return f"`{bytes(value).decode()}`"
    return f"`{msgspec.json.encode(value).decode()}`"


def _prose(record: type[msgspec.Struct]) -> str:
    """The record's docstring in Markdown."""
    text = inspect.cleandoc(record.__doc__ or "")
    linked = {it.__name__ for it in reachable()}

    def reference(match: re.Match[str]) -> str:
        name = match[1].rpartition(".")[2]
        return f"[{name}](#{name.lower()})" if name in linked else f"`{name}`"

    return _ROLE.sub(reference, text).replace("``", "`")


if __name__ == "__main__":
    PAGE.write_text(written_page(), encoding="utf-8")
