"""The base class of all records, and the values that plans hold."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

Value: TypeAlias = bool | int | float | str
Values: TypeAlias = tuple[tuple[str, Value], ...]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all records: immutable, keyword-only, compared by value.

    Unknown fields of JSON are ignored, and new ones have defaults. Names carry units.
    """
