"""Where a setting is defined: in a dictionary, in the arguments or the class of an object, in a command line's option;
in this file, or in one of the project's that it imports."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from hotlap.source.patch.code import Code, NotPossible, Sources, keyword_of, last_part, parameters

Definition = TypeVar("Definition", ast.ClassDef, ast.FunctionDef)

_DEEPEST = 8
_MAPPINGS = frozenset({"dict", "SimpleNamespace", "Namespace", "EasyDict", "AttrDict", "DotDict", "Box", "ConfigDict"})
"""Callables that make a mapping or namespace from keywords or a dictionary."""
_PASS_ON = frozenset({"deepcopy", "copy", "vars", "create", "asdict", "dict"})
_PARSES = frozenset({"parse_args", "parse_known_args"})
_LOADS = frozenset({"load", "safe_load", "full_load", "loads", "unsafe_load", "compose", "from_file", "fromfile"})


@dataclass(frozen=True, slots=True)
class Defined:
    """An expression, and the file it is in."""

    code: Code
    node: ast.expr


@dataclass(frozen=True, slots=True)
class Option:
    """The ``add_argument`` call of a command line's option, and the file it is in."""

    code: Code
    call: ast.Call


def setting(sources: Sources, code: Code, holder: ast.expr, key: str) -> Defined | Option | None:
    """Find where ``holder[key]`` or ``holder.key`` gets its value; None if unknown.

    Raises :class:`NotPossible` if it is known to come from elsewhere: a file of settings, a second assignment.
    """
    found = _definition(sources, code, holder, _DEEPEST)
    if found is None:
        return None
    entry = _entry(sources, found, key, _DEEPEST)
    if entry is not None:
        _check_set_once(code, key)
        if entry.code is not code:
            _check_set_once(entry.code, key)
    return entry


def value_here(code: Code, name: ast.Name) -> ast.expr | None:
    """The only value assigned to the name in the function that reads it, or else at the top level."""
    return _only(_assigned(code, name))


def value_of(sources: Sources, code: Code, name: ast.Name) -> Defined | None:
    """The same, or the definition that the name is imported from."""
    values = _assigned(code, name)
    origin = _imported(sources, code, name.id) if not values else None
    if origin is not None:
        code, values = origin[0], _assigned_in(origin[0], origin[0].tree, origin[1])
    found = _only(values)
    return Defined(code, found) if found is not None else None


def _imported(sources: Sources, code: Code, name: str) -> tuple[Code, str] | None:
    """The project's file that a name was imported from, and what it is called there."""
    for it in code.of(ast.ImportFrom):
        for alias in it.names:
            if (alias.asname or alias.name) == name:
                path = _module_file(sources, code, it.module or "", it.level)
                return (sources.code(path), alias.name) if path is not None else None
    return None


# -- values of expressions ------------------------------------------------------------------------


def _definition(sources: Sources, code: Code, node: ast.expr, depth: int) -> Defined | None:
    """The display or call that made a value, through names, parameters, attributes and functions."""
    if depth == 0:
        return None
    match node:
        case ast.Name():
            return _of_name(sources, code, node, depth - 1)
        case ast.Attribute(value=ast.Name(id="self")):
            values = _assigned_to_self(code, node)
            return _definition(sources, code, values[0], depth - 1) if len(values) == 1 else None
        case ast.Attribute(value=base, attr=key) | ast.Subscript(value=base, slice=ast.Constant(value=str() as key)):
            holder = _definition(sources, code, base, depth - 1)
            entry = _entry(sources, holder, key, depth - 1) if holder is not None else None
            return _definition(sources, entry.code, entry.node, depth - 1) if isinstance(entry, Defined) else None
        case ast.Dict():
            return Defined(code, node)
        case ast.Call():
            return _of_call(sources, code, node, depth - 1)
    return None


def _of_name(sources: Sources, code: Code, name: ast.Name, depth: int) -> Defined | None:
    function = code.function(name)
    if not isinstance(function, ast.Module) and name.id in parameters(function):
        return _of_parameter(sources, code, function, name.id, depth)
    found = value_of(sources, code, name)
    return _definition(sources, found.code, found.node, depth) if found is not None else None


def _of_parameter(
    sources: Sources, code: Code, function: ast.FunctionDef | ast.AsyncFunctionDef, name: str, depth: int
) -> Defined | None:
    """The argument of the function's only call, in this file or another that the run saw."""
    called = function.name
    owner = code.owner(function)
    positions = [it.arg for it in (*function.args.posonlyargs, *function.args.args)]
    if isinstance(owner, ast.ClassDef):
        positions = positions[1:]
        called = owner.name if called == "__init__" else called
    found: list[Defined] = []
    for path in dict.fromkeys((code.path, *sources.site_paths())):
        other = sources.code(path)
        for call in other.of(ast.Call):
            if last_part(call.func) != called:
                continue
            given = keyword_of(call, name)
            plain = not any(isinstance(it, ast.Starred) for it in call.args)
            if given is None and plain and name in positions and positions.index(name) < len(call.args):
                given = call.args[positions.index(name)]
            if given is None:
                return None
            made = _definition(sources, other, given, depth)
            if made is None:
                return None
            found.append(made)
    return found[0] if found and len(set(found)) == 1 else None


def _of_call(sources: Sources, code: Code, call: ast.Call, depth: int) -> Defined | None:
    name = last_part(call.func)
    if name in _PARSES or _called(sources, code, call, ast.ClassDef) is not None:
        return Defined(code, call)
    if name in _MAPPINGS or name in _PASS_ON:
        if call.args and not call.keywords:
            return _definition(sources, code, call.args[0], depth)
        if isinstance(call.func, ast.Attribute) and not call.args and name in ("copy", "deepcopy"):
            return _definition(sources, code, call.func.value, depth)
        return Defined(code, call) if name in _MAPPINGS and not call.args else None
    made = _called(sources, code, call, ast.FunctionDef)
    if made is None:
        return Defined(code, call) if name in _LOADS else None
    other, function = made
    returns = [it.value for it in other.within(function) if isinstance(it, ast.Return) and it.value is not None]
    return _definition(sources, other, returns[0], depth) if len(returns) == 1 else None


# -- entries --------------------------------------------------------------------------------------


def _entry(sources: Sources, holder: Defined, key: str, depth: int) -> Defined | Option | None:
    code, node = holder.code, holder.node
    if isinstance(node, ast.Dict):
        return _entry_of_dict(sources, code, node, key, depth)
    if not isinstance(node, ast.Call):
        return None
    name = last_part(node.func)
    if name in _PARSES:
        options = [it for it in code.of(ast.Call) if key in destinations(it)]
        return Option(code, options[0]) if len(options) == 1 else None
    owner = _called(sources, code, node, ast.ClassDef)
    if owner is None and name in _LOADS and name not in _MAPPINGS:
        raise NotPossible(
            f"{key} is read from what {code.text(node.func)} loads in line {node.lineno} of {code.path.name}: "
            "set it in that file."
        )
    if any(it.arg is None for it in node.keywords) or any(isinstance(it, ast.Starred) for it in node.args):
        return None
    given = keyword_of(node, key)
    if given is not None:
        return Defined(code, given)
    return _entry_of_class(*owner, node, code, key) if owner is not None else None


def _entry_of_dict(sources: Sources, code: Code, node: ast.Dict, key: str, depth: int) -> Defined | Option | None:
    for name, value in reversed(list(zip(node.keys, node.values, strict=True))):
        if name is None:
            inner = _definition(sources, code, value, depth)
            entry = _entry(sources, inner, key, depth - 1) if inner is not None and depth else None
            if inner is None or entry is not None:
                return entry
        elif not isinstance(name, ast.Constant):
            return None
        elif name.value == key:
            return Defined(code, value)
    return None


def _entry_of_class(there: Code, owner: ast.ClassDef, call: ast.Call, code: Code, key: str) -> Defined | None:
    """A field of a data class, an attribute of a class: the call's positional argument, or the class's own value."""
    if any(getattr(it, "name", "") == "__init__" for it in owner.body):
        return None
    fields = [it for it in owner.body if isinstance(it, ast.AnnAssign) and isinstance(it.target, ast.Name)]
    names = [it.target.id for it in fields if isinstance(it.target, ast.Name)]
    if key in names and names.index(key) < len(call.args):
        return Defined(code, call.args[names.index(key)])
    for statement in owner.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        value = statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
        if value is None or not any(isinstance(it, ast.Name) and it.id == key for it in targets):
            continue
        if isinstance(value, ast.Call) and last_part(value.func) == "field":
            value = keyword_of(value, "default")
        return Defined(there, value) if value is not None else None
    return None


def _check_set_once(code: Code, key: str) -> None:
    """Raise :class:`NotPossible` if the file assigns the setting again."""
    again: list[ast.expr] = [
        it for it in code.of(ast.Subscript) if isinstance(it.slice, ast.Constant) and it.slice.value == key
    ]
    again += [it for it in code.of(ast.Attribute) if it.attr == key and last_part(it.value) != "self"]
    for node in again:
        if isinstance(getattr(node, "ctx", None), ast.Store):
            raise NotPossible(f"{key} is set again in line {node.lineno} of {code.path.name}: change it there.")


# -- options --------------------------------------------------------------------------------------


def destinations(call: ast.Call) -> set[str]:
    """The attribute that an ``add_argument`` call defines; empty for another call."""
    if last_part(call.func) != "add_argument":
        return set()
    destination = keyword_of(call, "dest")
    if isinstance(destination, ast.Constant):
        return {str(destination.value)}
    words = option_words(call)
    long = [it for it in words if it.startswith("--")] or words
    return {long[0].lstrip("-").replace("-", "_")} if long else set()


def option_words(call: ast.Call) -> list[str]:
    """The ways in which the option is written: ``-j``, ``--workers``."""
    return [it.value for it in call.args if isinstance(it, ast.Constant) and isinstance(it.value, str)]


# -- details --------------------------------------------------------------------------------------


def _assigned(code: Code, name: ast.Name) -> list[ast.expr | None]:
    """All values of the name in the innermost scope that assigns it."""
    scopes = dict.fromkeys((code.function(name), code.tree))
    return next((found for it in scopes if (found := _assigned_in(code, it, name.id))), [])


def _only(values: list[ast.expr | None]) -> ast.expr | None:
    return values[0] if len(values) == 1 else None


def _assigned_in(code: Code, scope: ast.AST, name: str) -> list[ast.expr | None]:
    """The values that a scope's own code assigns to a name; None for a value other than by plain assignment."""
    found: list[ast.expr | None] = []
    for it in code.within(scope):
        if not isinstance(it, ast.Name) or it.id != name or isinstance(it.ctx, ast.Load):
            continue
        above = next(code.above(it))
        plain = (isinstance(above, ast.Assign) and above.targets == [it]) or isinstance(above, ast.AnnAssign)
        found.append(above.value if plain and isinstance(above, (ast.Assign, ast.AnnAssign)) else None)
    return found


def _assigned_to_self(code: Code, attribute: ast.Attribute) -> list[ast.expr]:
    owner = code.class_of(attribute)
    if owner is None:
        return []
    return [
        it.value
        for it in ast.walk(owner)
        if isinstance(it, ast.Assign) and any(ast.unparse(target) == ast.unparse(attribute) for target in it.targets)
    ]


def _called(sources: Sources, code: Code, call: ast.Call, kind: type[Definition]) -> tuple[Code, Definition] | None:
    """The class or function that a call names, at the top level of this file or of the one it is imported from; and
    that file."""
    if not isinstance(call.func, ast.Name):
        return None
    here = _at_top_level(code, call.func.id, kind)
    origin = _imported(sources, code, call.func.id) if here is None else None
    return _at_top_level(*origin, kind) if origin is not None else here


def _at_top_level(code: Code, name: str, kind: type[Definition]) -> tuple[Code, Definition] | None:
    found = [it for it in code.tree.body if isinstance(it, kind) and it.name == name]
    return (code, found[-1]) if found else None


def _module_file(sources: Sources, code: Code, module: str, level: int) -> Path | None:
    """The file of a module as this file imports it, next to it or next to the script."""
    parts = module.split(".") if module else []
    if level:
        roots = [code.path.parents[level - 1]] if level <= len(code.path.parents) else []
    else:
        roots = [*([sources.script.parent] if sources.script else []), *list(code.path.parents)[:3]]
    for root in roots:
        place = root.joinpath(*parts)
        for path in (place.with_suffix(".py") if parts else None, place / "__init__.py"):
            if path is not None and path.is_file():
                return path
    return None
