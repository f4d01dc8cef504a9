"""Records as JSON documents for other programs, fit to be passed on: no secrets, and the home directory as ``~``."""

from __future__ import annotations

import msgspec

from hotlap.records import Costs, Study
from hotlap.render.presentable import portable


def study_json(study: Study, costs: Costs | None = None) -> str:
    """The whole study, indented; it reads back as a :class:`hotlap.records.Study`. Costs stand beside what was
    measured, as its field ``costs``."""
    document = msgspec.to_builtins(study) | ({"costs": msgspec.to_builtins(costs)} if costs is not None else {})
    return document_json(document)


def document_json(what: object) -> str:
    """Records as one JSON document, indented."""
    document = portable(msgspec.to_builtins(what))
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
