"""A study as one JSON document."""

from __future__ import annotations

import msgspec

from hotlap.records import Costs, Study


def study_json(study: Study, costs: Costs | None = None) -> str:
    """The whole study, indented; it reads back as an equal :class:`hotlap.records.Study`. Costs stand beside what was
    measured, as its field ``costs``."""
    document = msgspec.to_builtins(study) | ({"costs": msgspec.to_builtins(costs)} if costs is not None else {})
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
