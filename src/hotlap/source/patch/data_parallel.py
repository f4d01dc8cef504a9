"""Arguments of ``DistributedDataParallel``, and statements below the lines that make one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from hotlap.records import DataParallelArguments, DataParallelStatement
from hotlap.source.edits.kinds import Code as NewCode
from hotlap.source.edits.kinds import InsertAfter, Span
from hotlap.source.patch.code import Code, Edits, NotPossible, Sources, last_part
from hotlap.source.patch.values import set_arguments

_KIND = "DistributedDataParallel"


def argument_edits(sources: Sources, change: DataParallelArguments) -> Edits:
    """Set the arguments at each call that made a wrapper. Raises :class:`NotPossible`."""
    return [
        edit for code, call in _calls(sources) for edit in set_arguments(sources, code, call, dict(change.values), {})
    ]


def statement_edits(sources: Sources, change: DataParallelStatement) -> Edits:
    """Insert the statement below each line that made a wrapper. Raises :class:`NotPossible`."""
    edits: Edits = []
    for code, call in _calls(sources):
        statement = code.statement(call)
        if not isinstance(statement, ast.Assign) or statement.value is not call or len(statement.targets) != 1:
            raise NotPossible(f"The model wrapped in line {call.lineno} is not assigned to a variable of its own.")
        name = code.text(statement.targets[0])
        if not re.fullmatch(r"\w+(\.\w+)*", name):
            raise NotPossible(f"The model wrapped in line {call.lineno} is assigned to {name}.")
        text = re.sub(r"\b_\b", name, change.code)
        new = NewCode(text, change.needs, (name.partition(".")[0],))
        edits.append((code.path, InsertAfter(Span.of(statement), new)))
    return edits


def _calls(sources: Sources) -> Iterator[tuple[Code, ast.Call]]:
    if not sources.facts.data_parallel:
        raise NotPossible(f"No {_KIND} was observed.")
    done: set[tuple[Code, ast.Call]] = set()
    for it in sources.facts.data_parallel:
        code, call = sources.of_site(it.site, f"The {_KIND}")
        if last_part(call.func) not in {_KIND, *_aliases(code)}:
            raise NotPossible(f"The wrapper is made by {code.text(call.func)}, which may not take its arguments.")
        if (code, call) not in done:
            done.add((code, call))
            yield code, call


def _aliases(code: Code) -> set[str]:
    return {
        alias.asname for it in code.of(ast.ImportFrom) for alias in it.names if alias.name == _KIND and alias.asname
    }
