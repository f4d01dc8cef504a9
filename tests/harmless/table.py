"""The table: every row, with its topic."""

from __future__ import annotations

import dataclasses
from types import ModuleType

from harmless.operation import Operation
from harmless.rows import (
    dataframes,
    descriptors,
    folders,
    libraries,
    links,
    locks,
    memory_and_holes,
    modules,
    open_files,
    permissions,
    places,
    processes,
    programs,
    sqlite,
    training,
)

_TOPICS: dict[str, ModuleType] = {
    "files opened by Python": open_files,
    "descriptors and paths around open": descriptors,
    "the standard library": modules,
    "folders": folders,
    "links and renames": links,
    "memory maps and sparse files": memory_and_holes,
    "permissions, times and attributes": permissions,
    "locks, pipes and sockets": locks,
    "SQLite": sqlite,
    "other programs": programs,
    "other Python processes and threads": processes,
    "temporary files, home and data elsewhere": places,
    "data frames": dataframes,
    "other libraries": libraries,
    "torch, tensorboard and transformers": training,
}

TABLE: tuple[Operation, ...] = tuple(
    dataclasses.replace(row, topic=topic) for topic, module in _TOPICS.items() for row in module.ROWS
)
