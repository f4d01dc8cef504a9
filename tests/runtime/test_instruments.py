"""Every instrument is a file of its folder, or recorded by the session."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import get_args

import msgspec
import pytest

from hotlap.records import Assignment, Instrument, NudgeWeights, Observe, Workload
from hotlap.runtime import instruments
from hotlap.runtime.instruments.api import WITHOUT_A_FILE

KINDS = get_args(Instrument)
FILES = {it.name for it in pkgutil.iter_modules(instruments.__path__)} - {"api"}
WORKLOAD = Workload(kind="script", target="train.py", directory="/", python="python")


def file_name(kind: type[msgspec.Struct]) -> str:
    return str(kind.__struct_config__.tag).replace("-", "_")


every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda it: str(it.__struct_config__.tag).replace("-", "_"))


@every_kind
def test_an_instrument_has_a_file_or_is_the_sessions(kind: type[msgspec.Struct]) -> None:
    assert (file_name(kind) in FILES) is not (kind in WITHOUT_A_FILE)
    assert kind.__doc__


@every_kind
def test_an_assignment_carries_it_into_the_child(kind: type[msgspec.Struct]) -> None:
    """Whatever its fields are, they are read as they were written."""
    plain = {float: 1.5, int: 2, str: "bfloat16"}
    fields = {it.name: plain.get(it.type, ()) for it in msgspec.structs.fields(kind) if it.required}
    asked = Assignment(workload=WORKLOAD, instruments=(kind(**fields),))  # type: ignore[arg-type]
    assert msgspec.json.decode(msgspec.json.encode(asked), type=Assignment) == asked


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_file_installs_the_instrument_of_its_name(name: str) -> None:
    module = importlib.import_module(f"hotlap.runtime.instruments.{name}")
    place, asked = inspect.signature(module.install).parameters.values()
    (kind,) = [it for it in KINDS if file_name(it) == name]
    assert (place.annotation, asked.annotation) == ("Place", kind.__name__) and module.__doc__


def test_an_assignment_finds_an_instrument_by_its_kind() -> None:
    asked = Assignment(workload=WORKLOAD, instruments=(Observe(epoch_end_seconds=3.0),))
    again = msgspec.json.decode(msgspec.json.encode(asked), type=Assignment)
    assert again == asked and again.instrument(Observe) == Observe(epoch_end_seconds=3.0)
    assert again.instrument(NudgeWeights) is None
