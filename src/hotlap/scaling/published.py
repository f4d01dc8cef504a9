"""Data that ships with hotlap: published figures of devices, and the errors of predictions that were compared with
real runs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources

import msgspec

from hotlap.records import Record, ValidatedError


class Device(Record, frozen=True, kw_only=True):
    """A device's published figures: dense operations per second in bfloat16, its memory, and bytes per second to the
    others of its node, in each direction."""

    name: str
    flops_per_second: float
    memory_bytes: int
    node_link_bytes_per_second: float
    source: str


@cache
def devices() -> Mapping[str, Device]:
    """The devices by the names that ``--device`` takes."""
    return msgspec.json.decode(_text("devices.json"), type=dict[str, Device])


@cache
def validated_errors() -> tuple[ValidatedError, ...]:
    """What ``bench.scale`` measured; empty where it was not yet."""
    return msgspec.json.decode(_text("validated.json"), type=tuple[ValidatedError, ...])


def _text(name: str) -> bytes:
    return resources.files(__package__).joinpath(name).read_bytes()
