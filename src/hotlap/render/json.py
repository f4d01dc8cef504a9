"""A study as one JSON document."""

from __future__ import annotations

import msgspec

from hotlap.records import Study


def study_json(study: Study) -> str:
    """The whole study, indented; it reads back as an equal :class:`hotlap.records.Study`."""
    return msgspec.json.format(msgspec.json.encode(study), indent=2).decode()
