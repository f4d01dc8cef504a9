"""Write a region's device as the script names it if the script chooses one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotlap.source.edits.kinds import Code as NewCode
from hotlap.source.patch.code import Code, Function, Sources, keyword_of, last_part, names_bound, names_read, parameters

_WORDS = ("device", "cuda", "rank")
_CHOOSES = frozenset({"is_available", "current_accelerator", "device_count", "current_device"})


def for_device(sources: Sources, code: Code, at: ast.stmt, forward: ast.Call | None, context: NewCode) -> NewCode:
    """Replace the study's device in a region's code by the script's own.

    ``forward`` is the call of the model in the region, if there is one. If the script chooses its device and no name of
    it is usable there, the code stays unchanged and the patch notes it.
    """
    quoted = f'"{sources.facts.device.partition(":")[0]}"'
    if quoted not in context.text:
        return context
    for named in _named_at(code, at):
        value = _value(code, named)
        if isinstance(value, ast.Constant):
            return context
        text = code.text(named)
        made = isinstance(value, ast.Call) and last_part(value.func) == "device"
        kind = f"{text}.type" if made else f"torch.device({text}).type"
        needs = context.needs if made else (*context.needs, "torch.device")
        return _with(context, quoted, kind, needs, names_read(named))
    if not _chooses(sources):
        return context
    if forward is not None and isinstance(forward.func, (ast.Name, ast.Attribute)) and last_part(forward.func):
        model = code.text(forward.func)
        return _with(
            context, quoted, f"next({model}.parameters()).device.type", context.needs, names_read(forward.func)
        )
    sources.remarks.append(
        f"{code.path.name}:{at.lineno}: the script chooses its device, and the region names {quoted}, the one that the "
        "study ran on. On another device write that one."
    )
    return context


def _with(context: NewCode, quoted: str, kind: str, needs: tuple[str, ...], there: set[str]) -> NewCode:
    known = (*context.knows, *sorted(there | {"next"} if kind.startswith("next(") else there))
    return NewCode(context.text.replace(quoted, kind, 1), needs, known)


def _named_at(code: Code, at: ast.stmt) -> Iterator[ast.expr]:
    """The names of devices that tensors are copied to in the file and that are bound at a statement."""
    seen: set[str] = set()
    calls = sorted(code.of(ast.Call), key=lambda it: (it.lineno, it.col_offset))
    for call in calls:
        given = _device_of_copy(call)
        if given is None or code.text(given) in seen:
            continue
        seen.add(code.text(given))
        if _in_force(code, given, call, at):
            yield given


def _device_of_copy(call: ast.Call) -> ast.expr | None:
    """``device`` of ``x.to(device)``, if it is a name or an attribute with such a name."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "to":
        return None
    given = keyword_of(call, "device") or (call.args[0] if call.args else None)
    if not isinstance(given, (ast.Name, ast.Attribute)):
        return None
    root = given
    while isinstance(root, ast.Attribute):
        root = root.value  # type: ignore[assignment]
    word = last_part(given).lower()
    return given if isinstance(root, ast.Name) and any(it in word for it in _WORDS) else None


def _in_force(code: Code, named: ast.expr, use: ast.Call, at: ast.stmt) -> bool:
    """Whether the name has the same value at the statement: in the same function, the module, or the same object."""
    function = code.function(at)
    (name,) = names_read(named)
    if isinstance(named, ast.Attribute) and name != "self" and not isinstance(named.value, ast.Name):
        return False
    if name == "self":
        owner = code.class_of(at)
        return isinstance(named, ast.Attribute) and owner is not None and owner is code.class_of(use)
    if isinstance(named, ast.Attribute) and name not in ("args", "config", "cfg", "opt", "options", "hparams"):
        return False
    if _bound_in(code, function, name):
        return code.function(use) is function and use.lineno <= at.lineno
    return _bound_in(code, code.tree, name)


def _bound_in(code: Code, function: Function, name: str) -> bool:
    given = not isinstance(function, ast.Module) and name in parameters(function)
    return given or name in names_bound(code.within(function))


def _value(code: Code, named: ast.expr) -> ast.expr | None:
    """The only expression that the file assigns to the name."""
    text = code.text(named)
    found = [it.value for it in code.of(ast.Assign) if any(code.text(to) == text for to in it.targets)]
    return found[0] if len(found) == 1 else None


def _chooses(sources: Sources) -> bool:
    """Whether the script chooses its device by the available hardware or an argument."""
    calls = (call for code in sources.readable() for call in code.of(ast.Call))
    return any(last_part(it.func) in _CHOOSES or _device_of_copy(it) is not None for it in calls)
