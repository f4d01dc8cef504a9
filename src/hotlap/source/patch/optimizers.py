"""Arguments of the optimizers."""

from __future__ import annotations

import ast

from hotlap.records import OptimizerArguments
from hotlap.source.patch.code import Code, Edits, NotPossible, Sources, keyword_of, last_part
from hotlap.source.patch.values import set_arguments


def edits_for(sources: Sources, change: OptimizerArguments) -> Edits:
    """Edit each call that made a torch optimizer and leaves the choice open. Raises :class:`NotPossible`."""
    names = {name for name, _ in change.values}
    supported = {"fused": "supports_fused", "foreach": "supports_foreach"}
    facts = [
        it
        for it in sources.facts.optimizers
        if it.fused is None and it.foreach is None and all(getattr(it, supported[name]) for name in names)
    ]
    edits: Edits = []
    done: set[tuple[Code, ast.Call]] = set()
    for optimizer in facts:
        code, call = sources.of_site(optimizer.site, f"The optimizer ({optimizer.kind})")
        if (code, call) in done:
            continue
        done.add((code, call))
        if last_part(call.func) not in {optimizer.kind, *_aliases(code, optimizer.kind)}:
            raise NotPossible(f"The optimizer is made by {code.text(call.func)}, which may make others as well.")
        if any(keyword_of(call, it) is not None for it in change.alternatives):
            continue
        edits += set_arguments(sources, code, call, dict(change.values), {})
    if not done:
        raise NotPossible("No optimizer of torch was seen that leaves its implementation open.")
    return edits


def _aliases(code: Code, kind: str) -> set[str]:
    return {alias.asname for it in code.of(ast.ImportFrom) for alias in it.names if alias.name == kind and alias.asname}
