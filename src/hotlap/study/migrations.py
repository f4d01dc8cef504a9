"""Convert a study from the format that it was written in to the present one.

A format changes only if a field changes its meaning, its type or its name; new fields have defaults and need no step.
Each step from one format to the next is one function. It takes the part of the study that a JSON object is, and the
object, and returns the object in the next format::

    def from_1_to_2(part: Part, document: Document) -> Document:
        ...

    STEPS: Mapping[int, Step] = {1: from_1_to_2}

A step depends on nothing but its own two formats, and never changes after a release: a study of the first format goes
through all of them. An attachment does not record its format, so it goes through all steps too; a step must leave one
of a later format unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

Document: TypeAlias = dict[str, Any]

Part: TypeAlias = Literal["summary", "header", "answer", "attachment"]
"""``study.json``, the journal's first line, one of its others, or an attachment."""

Step: TypeAlias = Callable[[Part, Document], Document]

_LOADER_NAMES: Final = MappingProxyType(
    {
        "workers": "num_workers",
        "pin-memory": "pin_memory",
        "persistent-workers": "persistent_workers",
        "prefetch-factor": "prefetch_factor",
    }
)

_NAMES_OF_3: Final = MappingProxyType({"parity": "quality"})
_PHASES_OF_2: Final = ("data_wait", "host_to_device", "forward", "backward", "optimizer", "other")
_PARITY_OF_2: Final = frozenset({"verdict", "proof", "steps", "gates", "text"})


def from_1_to_2(part: Part, document: Document) -> Document:
    """Give settings of the lever ``loader`` the names of torch's arguments."""
    found: Document = _renamed(document)
    return found


def _renamed(value: Any) -> Any:
    if isinstance(value, list):
        return [_renamed(it) for it in value]
    if not isinstance(value, dict):
        return value
    if value.get("lever") == "loader" and isinstance(value.get("values"), list):
        values = sorted([_LOADER_NAMES.get(name, name), it] for name, it in value["values"])
        return {**value, "values": values}
    return {name: _renamed(it) for name, it in value.items()}


def from_2_to_3(part: Part, document: Document) -> Document:
    """Store quality as one of two tagged records, and phases as pairs.

    What is known about the results becomes the field ``quality``, whose ``type`` tags the record. The phases of a step
    become pairs of a name and seconds instead of a field each.
    """
    found: Document = _of_3(document)
    return found


def _of_3(value: Any) -> Any:
    if isinstance(value, list):
        return [_of_3(it) for it in value]
    if not isinstance(value, dict):
        return value
    found = {_NAMES_OF_3.get(name, name): _of_3(it) for name, it in value.items()}
    if found.get("type") == "parity-lost":
        return {**found, "type": "quality-lost"}
    for ending, whole in (("_seconds", "wall_seconds"), ("", "wall")):
        fields = [f"{it}{ending}" for it in _PHASES_OF_2]
        if whole in found and set(fields) & found.keys():
            phases = zip(_PHASES_OF_2, fields, strict=True)
            found["phases"] = [[it, found.pop(field)] for it, field in phases if field in found]
    if not found.keys() >= _PARITY_OF_2 or "type" in found:
        return found
    if found.get("quality") is None:
        return {"type": "parity", **{name: it for name, it in found.items() if name != "quality"}}
    return {"type": "task-quality", **{it: found[it] for it in ("verdict", "proof", "text")}, **found["quality"]}


def from_3_to_4(part: Part, document: Document) -> Document:
    """Store the number of replicates that an interval rests on as ``replicates``; it was ``sets``."""
    found: Document = _of_4(document)
    return found


def _of_4(value: Any) -> Any:
    if isinstance(value, list):
        return [_of_4(it) for it in value]
    if not isinstance(value, dict):
        return value
    names = {"sets": "replicates"} if "confidence" in value else {}
    return {names.get(name, name): _of_4(it) for name, it in value.items()}


STEPS: Mapping[int, Step] = {1: from_1_to_2, 2: from_2_to_3, 3: from_3_to_4}
"""Each step, by the format that it starts from."""


def migrated(part: Part, document: Document, written_in: int, steps: Mapping[int, Step] = STEPS) -> Document:
    """Return the document in the format after the last step.

    Raises :class:`KeyError`, :class:`TypeError` or :class:`ValueError` if the document does not match its format.
    """
    for start in sorted(steps):
        if start >= written_in:
            document = steps[start](part, document)
    return document
