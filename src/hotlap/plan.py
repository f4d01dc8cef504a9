"""Plans: their stable key, and their TOML form, which people read, edit and commit.

A plan file holds one table per lever, in the order of installation::

    [hotlap]
    format = 1
    torch = "2.13.0"

    [levers.loader]
    workers = 4
    pin-memory = true
"""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path

import msgspec
import tomli_w

from hotlap.errors import PlanError
from hotlap.levers.api import validate
from hotlap.records import Plan, Setting, Value

FORMAT = 1
EMPTY = Plan()


def setting(lever: str, **values: Value) -> Setting:
    """A setting with its values sorted, so that equal settings compare equal."""
    return Setting(lever=lever, values=tuple(sorted(values.items())))


def value(of: Setting, key: str, default: Value | None = None) -> Value | None:
    """The value of one key of a setting, or the default."""
    return dict(of.values).get(key, default)


def with_setting(plan: Plan, added: Setting) -> Plan:
    """The plan with that setting at its end, in place of an older one of the same lever."""
    return Plan(settings=(*without(plan, added.lever).settings, added))


def without(plan: Plan, lever: str) -> Plan:
    """The plan without that lever."""
    return Plan(settings=tuple(it for it in plan.settings if it.lever != lever))


def key(plan: Plan) -> str:
    """Twelve hexadecimal digits that are the same for equal plans on every machine."""
    return hashlib.sha256(msgspec.json.encode(plan)).hexdigest()[:12]


def describe(of: Setting) -> str:
    """``loader (workers 4, pin-memory)`` for a person."""
    parts = [name if it is True else f"{name} {it}" for name, it in of.values if it is not False]
    return f"{of.lever} ({', '.join(parts)})" if parts else of.lever


def to_toml(plan: Plan, *, torch_version: str = "", study: str = "") -> str:
    """The plan as TOML text."""
    head: dict[str, object] = {"format": FORMAT}
    if torch_version:
        head["torch"] = torch_version
    if study:
        head["study"] = study
    levers = {it.lever: dict(it.values) for it in plan.settings}
    return tomli_w.dumps({"hotlap": head, "levers": levers})


def from_toml(text: str, *, where: str = "the plan") -> Plan:
    """Read and check a plan.

    Raises :class:`PlanError` for text that is no TOML, a format from the future, a lever that does
    not exist, and a key or value that its lever does not take.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PlanError(f"The plan is not valid TOML: {error}.", where=where, remedy="Mend that line.") from None
    _check_head(document, where)
    tables = document.get("levers", {})
    if not isinstance(tables, dict):
        raise PlanError("`levers` is not a table.", where=where, remedy="Write [levers.NAME] tables.")
    settings = tuple(_read_setting(name, table, where) for name, table in tables.items())
    return Plan(settings=settings)


def read(path: Path) -> Plan:
    """Read a plan file; raises :class:`PlanError`, also when there is no such file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(
            f"The plan {path} cannot be read: {getattr(error, 'strerror', None) or error}.",
            remedy="`hotlap tune` writes one, by default hotlap.toml.",
        ) from None
    return from_toml(text, where=str(path))


def _check_head(document: dict[str, object], where: str) -> None:
    unknown = set(document) - {"hotlap", "levers"}
    if unknown:
        raise PlanError(f"Unknown table {sorted(unknown)[0]!r}.", where=where, remedy="Use [levers.NAME] tables.")
    head = document.get("hotlap", {})
    version = head.get("format", FORMAT) if isinstance(head, dict) else None
    if version != FORMAT:
        raise PlanError(
            f"The plan has format {version!r}; this hotlap reads format {FORMAT}.",
            where=where,
            remedy="Tune again, or use the hotlap that wrote it.",
        )


def _read_setting(name: str, table: object, where: str) -> Setting:
    if not isinstance(table, dict):
        raise PlanError(f"`levers.{name}` is not a table.", where=where, remedy=f"Write [levers.{name}].")
    for name_of_key, it in table.items():
        if not isinstance(it, (bool, int, float, str)):
            raise PlanError(
                f"levers.{name}.{name_of_key} is {it!r}.", where=where, remedy="Give a number, a text or true / false."
            )
    read_setting = setting(name, **table)
    try:
        validate(read_setting)
    except PlanError as error:
        raise PlanError(error.what, where=where, remedy=error.remedy) from None
    return read_setting
