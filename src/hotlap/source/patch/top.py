"""Insert statements below the imports of the script."""

from __future__ import annotations

from hotlap.records import TopStatement
from hotlap.source.edits.kinds import Code as NewCode
from hotlap.source.edits.kinds import InsertAtTop
from hotlap.source.patch.code import Edits, NotPossible, Sources


def edits_for(sources: Sources, change: TopStatement) -> Edits:
    """Edit the script's file. Raises :class:`NotPossible` if it is unknown."""
    if sources.script is None:
        raise NotPossible("The script's file is unknown.")
    code = sources.code(sources.script)
    return [(code.path, InsertAtTop(NewCode(change.code, change.needs)))]
