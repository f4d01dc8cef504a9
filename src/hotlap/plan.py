"""Plans: their stable key, and their TOML form, which people read, edit and commit.

A plan file holds one table per lever, in the order of installation::

    [hotlap]
    format = 3
    torch = "2.13.0"

    [hotlap.gain]
    speedup = 1.62
    ...

    [levers.loader]
    num_workers = 4
    pin_memory = true

``gain`` is the verified gain of the plan. It names the plan it belongs to, and does not apply to an edited one.
"""

from __future__ import annotations

import hashlib
import math
import os
import tomllib
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from hotlap import files
from hotlap.errors import PlanError
from hotlap.levers.api import Lever, Parameter, find, levers_of_any_work, validate
from hotlap.levers.support.situations import make_setting
from hotlap.records import Estimate, Move, NoSourceForm, Plan, RecordedGain, ScriptFacts, Setting

FORMAT = 3
"""The written format. Older ones are read too: format 1 has other names for the values of the lever ``loader``, and
both call the ``replicates`` of a recorded gain ``sets``."""

_NAMES_IN_FORMAT_1: Final = MappingProxyType(
    {
        "workers": "num_workers",
        "pin-memory": "pin_memory",
        "persistent-workers": "persistent_workers",
        "prefetch-factor": "prefetch_factor",
    }
)

EMPTY = Plan()
setting = make_setting

LARGEST_PLAN_BYTES = files.MEBIBYTE
"""A plan of every lever takes a few kilobytes."""


def with_setting(plan: Plan, added: Setting) -> Plan:
    """The plan with that setting at its end, without an older one of the same lever."""
    return Plan(settings=(*without(plan, added.lever).settings, added))


def with_move(plan: Plan, move: Move) -> Plan:
    """The plan with all settings of the move, each as :func:`with_setting` adds one."""
    for it in move.settings:
        plan = with_setting(plan, it)
    return plan


def without(plan: Plan, lever: str) -> Plan:
    """The plan without that lever."""
    return Plan(settings=tuple(it for it in plan.settings if it.lever != lever))


def key(plan: Plan) -> str:
    """A key of twelve hexadecimal digits, equal for equal plans on every machine."""
    return hashlib.sha256(msgspec.json.encode(plan)).hexdigest()[:12]


def describe(of: Setting) -> str:
    """The setting as text: ``loader (num_workers 4, pin_memory)``."""
    parts = [name if it is True else f"{name} {it}" for name, it in of.values if it is not False]
    return f"{of.lever} ({', '.join(parts)})" if parts else of.lever


def has_source_form(plan: Plan, facts: ScriptFacts) -> bool:
    """Whether any of its settings can be written into the source of such a script, as far as the levers know."""
    return any(_has_source_form(it, facts) for it in plan.settings)


def _has_source_form(of: Setting, facts: ScriptFacts) -> bool:
    try:
        validate(of)
    except PlanError:  # of another version of hotlap
        return False
    return not all(isinstance(it, NoSourceForm) for it in find(of.lever).rewrite(facts, of))


def to_toml(plan: Plan, *, torch_version: str = "", study: str = "", gain: RecordedGain | None = None) -> str:
    """The plan as TOML text, with what it gave where that is known."""
    head: dict[str, object] = {"format": FORMAT}
    if torch_version:
        head["torch"] = torch_version
    if study:
        head["study"] = study
    if gain is not None:
        head["gain"] = _gain_table(plan, gain)
    levers = {it.lever: dict(it.values) for it in plan.settings}
    import tomli_w  # here, since a script's interpreter reads plans and need not have it

    return tomli_w.dumps({"hotlap": head, "levers": levers})


def save(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Write a plan file, without what the plan gave; raises :class:`PlanError` when it cannot be written."""
    try:
        files.replace(Path(path), to_toml(plan).encode("utf-8"))
    except OSError as error:
        raise PlanError(
            f"The plan {os.fspath(path)} cannot be written: {error.strerror or error}.", remedy="Give another path."
        ) from None


def from_toml(text: str, *, where: str = "the plan") -> Plan:
    """Read and check a plan.

    Raises :class:`PlanError` for text that is no TOML, a format from the future, a lever that does
    not exist, and a key or value that its lever does not take.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PlanError(f"The plan is not valid TOML: {error}.", where=where, remedy="Correct that line.") from None
    except RecursionError:
        raise PlanError(
            "The plan is nested too deeply.", where=where, remedy="Use [levers.NAME] tables, which need no nesting."
        ) from None
    _check_head(document, where)
    tables = document.get("levers", {})
    if not isinstance(tables, dict):
        raise PlanError("`levers` is not a table.", where=where, remedy="Write [levers.NAME] tables.")
    version = _format_of(document)
    settings = tuple(_read_setting(name, table, version, where) for name, table in tables.items())
    return Plan(settings=settings)


def read(path: Path) -> Plan:
    """Read a plan file; raises :class:`PlanError`, also when there is no such file."""
    return from_toml(_text_of(path), where=str(path))


def read_head(path: Path) -> dict[str, object]:
    """The table ``[hotlap]`` of a plan file; raises :class:`PlanError` as :func:`read` does."""
    text = _text_of(path)
    from_toml(text, where=str(path))
    head = tomllib.loads(text).get("hotlap", {})
    return head if isinstance(head, dict) else {}


def _text_of(path: Path) -> str:
    try:
        return files.read_bounded(path, LARGEST_PLAN_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(
            f"The plan {path} cannot be read: {getattr(error, 'strerror', None) or error}.",
            remedy="`hotlap tune` writes one, by default hotlap.toml.",
        ) from None


def read_gain(path: Path) -> RecordedGain | None:
    """What the plan in that file gave when it was verified; None where that is not recorded, or of another plan.

    Raises :class:`PlanError` as :func:`read` does, and for a record that makes no sense.
    """
    plan = read(path)
    head = read_head(path)
    if "gain" not in head:
        return None
    gain = head["gain"]
    if head.get("format") in (1, 2) and isinstance(gain, dict):
        gain = {"replicates" if name == "sets" else name: it for name, it in gain.items()}
    try:
        table = msgspec.convert(gain, type=_GainTable)
    except msgspec.ValidationError as error:
        raise _senseless_gain(path, str(error)) from None
    if table.plan not in (key(plan), _key_in_format_1(plan)):
        return None
    if not (
        0 < table.low <= table.speedup <= table.high < math.inf and 0 < table.confidence < 1 and table.replicates >= 2
    ):
        raise _senseless_gain(path, "its interval is none")
    return RecordedGain(
        speedup=Estimate(value=table.speedup, low=table.low, high=table.high, unit="x"),
        confidence=table.confidence,
        replicates=table.replicates,
        machine=table.machine,
        torch_version=str(head.get("torch", "")),
    )


class _GainTable(msgspec.Struct, frozen=True, kw_only=True):
    """``[hotlap.gain]``; ``plan`` is the key of the plan it belongs to."""

    plan: str
    speedup: float
    low: float
    high: float
    confidence: float
    replicates: int
    machine: str = ""


def plan_schema() -> tuple[dict[str, object], dict[str, object]]:
    """What a plan file of the present format holds as JSON Schema (2020-12), and the parts that it refers to."""
    (gain,), parts = msgspec.json.schema_components([_GainTable], ref_template="#/$defs/{name}")
    head = {"format": {"const": FORMAT}, "torch": {"type": "string"}, "study": {"type": "string"}, "gain": gain}
    levers = {name: _lever_schema(it) for name, it in levers_of_any_work().items()}
    tables = {
        "hotlap": {"type": "object", "properties": head},
        "levers": {"type": "object", "properties": levers, "additionalProperties": False},
    }
    return {"type": "object", "properties": tables, "additionalProperties": False}, parts


def _lever_schema(lever: Lever) -> dict[str, object]:
    return {
        "type": "object",
        "description": lever.title,
        "properties": {name: _parameter_schema(it) for name, it in lever.parameters.items()},
        "required": [name for name, it in lever.parameters.items() if it.required],
        "additionalProperties": False,
    }


def _parameter_schema(it: Parameter) -> dict[str, object]:
    if it.choices:
        return {"enum": list(it.choices)}
    limits = {"minimum": it.minimum, "maximum": it.maximum}
    kind = {bool: "boolean", int: "integer", float: "number", str: "string"}[it.kind]
    return {"type": kind} | {name: limit for name, limit in limits.items() if limit is not None}


def _gain_table(plan: Plan, gain: RecordedGain) -> dict[str, object]:
    of = gain.speedup
    table = _GainTable(
        plan=key(plan),
        speedup=float(f"{of.value:.6g}"),
        low=float(f"{of.low:.6g}"),
        high=float(f"{of.high:.6g}"),
        confidence=gain.confidence,
        replicates=gain.replicates,
        machine=gain.machine,
    )
    return msgspec.structs.asdict(table)


def _senseless_gain(path: Path, how: str) -> PlanError:
    return PlanError(
        f"The gain recorded in the plan is invalid: {how}.",
        where=str(path),
        remedy="Remove the table [hotlap.gain], or have `hotlap tune` write the plan again.",
    )


def _check_head(document: dict[str, object], where: str) -> None:
    unknown = set(document) - {"hotlap", "levers"}
    if unknown:
        raise PlanError(f"Unknown table {sorted(unknown)[0]!r}.", where=where, remedy="Use [levers.NAME] tables.")
    version = _format_of(document)
    if version not in range(1, FORMAT + 1):
        raise PlanError(
            f"The plan has format {version!r}; this hotlap reads formats up to {FORMAT}.",
            where=where,
            remedy="Tune again, or use the hotlap that wrote it.",
        )


def _format_of(document: dict[str, object]) -> object:
    """What the head says. A plan without one was written by hand, in the present format."""
    head = document.get("hotlap", {})
    return head.get("format", FORMAT) if isinstance(head, dict) else None


def _key_in_format_1(plan: Plan) -> str:
    """The key that the plan had when it was written with the names of format 1."""
    return key(Plan(settings=tuple(map(_as_in_format_1, plan.settings))))


def _as_in_format_1(of: Setting) -> Setting:
    if of.lever != "loader":
        return of
    names = {new: old for old, new in _NAMES_IN_FORMAT_1.items()}
    return setting(of.lever, **{names.get(name, name): it for name, it in of.values})


def _read_setting(name: str, table: object, version: object, where: str) -> Setting:
    if not isinstance(table, dict):
        raise PlanError(f"`levers.{name}` is not a table.", where=where, remedy=f"Write [levers.{name}].")
    for name_of_key, it in table.items():
        if not isinstance(it, (bool, int, float, str)):
            raise PlanError(
                f"levers.{name}.{name_of_key} is {it!r}.", where=where, remedy="Give a number, a text or true / false."
            )
    if version == 1 and name == "loader":
        table = {_NAMES_IN_FORMAT_1.get(key_of, key_of): it for key_of, it in table.items()}
    read_setting = setting(name, **table)
    try:
        validate(read_setting)
    except PlanError as error:
        raise PlanError(error.what, where=where, remedy=error.remedy) from None
    return read_setting
