"""Set ``non_blocking=True`` for copies of batches from the training loader."""

from __future__ import annotations

import ast

from hotlap.source.edits.kinds import Code as NewCode
from hotlap.source.edits.kinds import SetKeyword, Span
from hotlap.source.patch.code import Code, Edits, NotPossible, Sources, last_part

_POSITION = {"cuda": 1}  # the position of non_blocking, if it may be passed by position


def edits_for(sources: Sources) -> Edits:
    """Edit the copies in the loops that call the model. Copies elsewhere stay unchanged."""
    edits: Edits = []
    seen: set[ast.Call] = set()
    for site in sources.sites("model"):
        try:
            code, forward = sources.of_site(site, "")
        except NotPossible:
            continue
        for call in _copies_before(code, forward):
            if call not in seen:
                seen.add(call)
                edit = SetKeyword(Span.of(call), "non_blocking", NewCode("True"), _POSITION.get(last_part(call.func)))
                edits.append((code.path, edit))
    return edits


def _copies_before(code: Code, forward: ast.Call) -> list[ast.Call]:
    """Copies of loop variables: ``x.to(device)`` and ``x.cuda()`` within the innermost loop over the forward."""
    loop = next((it for it in code.above(forward) if isinstance(it, (ast.For, ast.AsyncFor))), None)
    if loop is None or loop not in code.within(code.function(forward)):
        return []
    from_batch = {it.id for it in ast.walk(loop.target) if isinstance(it, ast.Name)}
    found: list[ast.Call] = []
    nodes = [it for it in code.within(loop) if hasattr(it, "lineno")]
    for node in sorted(nodes, key=lambda it: (it.lineno, it.col_offset)):  # type: ignore[attr-defined]
        if isinstance(node, ast.comprehension):
            continue
        reads = {it.id for it in ast.walk(node) if isinstance(it, ast.Name)}
        if isinstance(node, ast.Assign) and reads & from_batch and isinstance(node.value, (ast.Call, ast.Tuple)):
            from_batch |= {it.id for target in node.targets for it in ast.walk(target) if isinstance(it, ast.Name)}
        if not isinstance(node, ast.Call) or node.lineno > forward.lineno or not _is_copy(code, node):
            continue
        if _root(node) in from_batch | _comprehension_names(code, node, from_batch):
            found.append(node)
    return found


def _is_copy(code: Code, call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute) or any(it.arg is None for it in call.keywords):
        return False
    if call.func.attr == "cuda":
        return len(call.args) <= 1
    if call.func.attr != "to" or len(call.args) != 1 or isinstance(call.args[0], ast.Starred):
        return False
    named = code.text(call.args[0]).lower()
    return "device" in named or "cuda" in named or "rank" in named


def _root(call: ast.Call) -> str:
    node: ast.expr = call.func
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _comprehension_names(code: Code, call: ast.Call, from_batch: set[str]) -> set[str]:
    """Names that a comprehension around the copy takes out of the batch."""
    found: set[str] = set()
    for it in code.above(call):
        for part in getattr(it, "generators", ()):
            over = {name.id for name in ast.walk(part.iter) if isinstance(name, ast.Name)}
            if over & from_batch:
                found |= {name.id for name in ast.walk(part.target) if isinstance(name, ast.Name)}
    return found
