"""Statements below the imports of the script."""

from __future__ import annotations

from hotlap.records import TopStatement
from hotlap.source.edits.kinds import Code as NewCode
from hotlap.source.edits.kinds import InsertAtTop
from hotlap.source.patch.code import Edits, NotPossible, Sources


def edits_for(sources: Sources, change: TopStatement) -> Edits:
    """Into the file that is run. Raises :class:`NotPossible` where that is not known."""
    if sources.script is None:
        raise NotPossible("Which file is the script cannot be told.")
    code = sources.code(sources.script)
    return [(code.path, InsertAtTop(NewCode(change.code, change.needs)))]
