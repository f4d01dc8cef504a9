"""Set arguments of a call where a person would: at the call, in the dictionary passed to it, in the default of the
command-line option, in the constant or the class that it is read from."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from hotlap.records import Value
from hotlap.source.edits.kinds import (
    Code as NewCode,
)
from hotlap.source.edits.kinds import (
    RemoveKeyword,
    ReplaceExpression,
    SetEntry,
    SetKeyword,
    Span,
    WrapExpression,
)
from hotlap.source.patch import definitions
from hotlap.source.patch.code import Code, Edits, NotPossible, Sources, keyword_of, last_part, parameters

_DEEPEST = 5


def set_arguments(
    sources: Sources,
    code: Code,
    call: ast.Call,
    values: Mapping[str, Value],
    positions: Mapping[str, int],
    spared: Sequence[ast.Call] = (),
) -> Edits:
    """Edits that set these arguments of the call, but not of the ``spared`` calls, which may read the same settings.

    Raises :class:`NotPossible`.
    """
    edits: Edits = []
    hidden: dict[str, Value] = {}
    for name, value in values.items():
        given = keyword_of(call, name)
        if given is None and name in positions:
            given = _by_position(call, positions[name])
        if given is not None and _is_shared(code, given, spared):
            edits += _replaced(code, given, value)
        elif given is not None:
            edits += set_value(sources, code, given, value, name)
        elif any(it.arg is None for it in call.keywords):
            hidden[name] = value
        else:
            edits.append((code.path, SetKeyword(Span.of(call), name, NewCode(repr(value)), positions.get(name))))
    return edits + (_in_unpacked(sources, code, call, hidden, spared) if hidden else [])


def _is_shared(code: Code, given: ast.expr, spared: Sequence[ast.Call]) -> bool:
    """Whether one of the calls gets the same name or setting."""
    if isinstance(given, ast.Constant):
        return False
    text = code.text(given)
    return any(isinstance(it, ast.expr) and code.text(it) == text for call in spared for it in ast.walk(call))


def remove_argument(code: Code, call: ast.Call, name: str, positions: Mapping[str, int]) -> Edits:
    """Edits that remove the argument from the call, if it is passed. Raises :class:`NotPossible`."""
    given = keyword_of(call, name) or (_by_position(call, positions[name]) if name in positions else None)
    if given is not None:
        return [(code.path, RemoveKeyword(Span.of(call), name, positions.get(name)))]
    for unpacked in (it.value for it in call.keywords if it.arg is None):
        written = _dictionary(code, unpacked) if isinstance(unpacked, ast.Name) else unpacked
        if isinstance(written, ast.Call) and last_part(written.func) == "dict" and not written.args:
            return remove_argument(code, written, name, {})
        readable = isinstance(written, ast.Dict) and all(isinstance(it, ast.Constant) for it in written.keys)
        if not readable or name in _constant_keys(written):
            raise NotPossible(f"{name} would have to go, and is or may be in what {code.text(call.func)} gets by **.")
    return []


def set_value(sources: Sources, code: Code, given: ast.expr, value: Value, name: str, depth: int = 0) -> Edits:
    """Edits that give this expression the value, at its origin."""
    if depth > _DEEPEST:
        raise NotPossible(f"The origin of {name} is too many steps away to follow.")
    if isinstance(given, ast.Name):
        return _set_name(sources, code, given, value, name, depth)
    if isinstance(given, ast.Attribute):
        return _set_attribute(sources, code, given, value, name, depth)
    item = _item(given)
    if item is not None:
        return _set_item(sources, code, given, item, value, name, depth)
    return _replaced(code, given, value)


def _replaced(code: Code, old: ast.expr, value: Value) -> Edits:
    return [(code.path, ReplaceExpression(Span.of(old), NewCode(repr(value))))]


def _by_position(call: ast.Call, position: int) -> ast.expr | None:
    for number, argument in enumerate(call.args):
        if isinstance(argument, ast.Starred):
            raise NotPossible(f"The call is given *{ast.unparse(argument.value)}, which hides its arguments.")
        if number == position:
            return argument
    return None


# -- **kwargs -------------------------------------------------------------------------------------


def _in_unpacked(
    sources: Sources, code: Code, call: ast.Call, values: Mapping[str, Value], spared: Sequence[ast.Call]
) -> Edits:
    """Edit the dictionary if only this call uses it, else a copy of it at the call."""
    unpacked = [it.value for it in call.keywords if it.arg is None]
    if len(unpacked) != 1:
        raise NotPossible(f"{code.text(call.func)} gets several dictionaries by **.")
    written = _dictionary(code, unpacked[0]) if isinstance(unpacked[0], ast.Name) else None
    if written is None or _is_shared(code, unpacked[0], spared):
        pairs = ", ".join(f'"{name}": {value!r}' for name, value in values.items())
        already = isinstance(unpacked[0], ast.Dict)
        if already and values.keys() <= _constant_keys(unpacked[0]):
            return _entries(sources, code, unpacked[0], values)
        return [(code.path, WrapExpression(Span.of(unpacked[0]), NewCode("{**_, " + pairs + "}")))]
    return _entries(sources, code, written, values)


def _entries(sources: Sources, code: Code, written: ast.expr, values: Mapping[str, Value]) -> Edits:
    edits: Edits = []
    for name, value in values.items():
        if isinstance(written, ast.Call):
            edits += set_arguments(sources, code, written, {name: value}, {})
            continue
        present = _entry(written, name)
        if present is not None:
            edits += set_value(sources, code, present, value, name)
        else:
            edits.append((code.path, SetEntry(Span.of(written), name, NewCode(repr(value)))))
    return edits


def _dictionary(code: Code, name: ast.Name) -> ast.expr | None:
    """The display or ``dict()`` call that the name is bound to, if only loaders get it and nothing else changes it."""
    bound = definitions.value_here(code, name)
    is_call = isinstance(bound, ast.Call) and last_part(bound.func) == "dict" and not bound.args
    if not isinstance(bound, ast.Dict) and not is_call:
        return None
    if isinstance(bound, ast.Dict) and any(not isinstance(it, ast.Constant) for it in bound.keys):
        return None
    if isinstance(bound, ast.Call) and any(it.arg is None for it in bound.keywords):
        return None
    for use in code.of(ast.Name):
        if not isinstance(use, ast.Name) or use.id != name.id or not isinstance(use.ctx, ast.Load):
            continue
        above = next(code.above(use))
        holder = next((it for it in code.above(above) if isinstance(it, ast.Call)), None)
        unpacked = isinstance(above, ast.keyword) and above.arg is None
        if not unpacked or holder is None or not last_part(holder.func).endswith("DataLoader"):
            return None
    return bound


def _constant_keys(dictionary: ast.expr | None) -> set[object]:
    keys = dictionary.keys if isinstance(dictionary, ast.Dict) else []
    return {it.value for it in keys if isinstance(it, ast.Constant)}


def _entry(dictionary: ast.expr, key: str) -> ast.expr | None:
    if not isinstance(dictionary, ast.Dict):
        return None
    pairs = zip(dictionary.keys, dictionary.values, strict=True)
    found = [value for it, value in pairs if isinstance(it, ast.Constant) and it.value == key]
    return found[-1] if found else None


# -- names ----------------------------------------------------------------------------------------


def _set_name(sources: Sources, code: Code, given: ast.Name, value: Value, name: str, depth: int) -> Edits:
    function = code.function(given)
    if not isinstance(function, ast.Module) and given.id in parameters(function):
        return _set_parameter(sources, code, function, given.id, value, name, depth)
    found = definitions.value_of(sources, code, given)
    if found is None:
        raise NotPossible(
            f"{name} is read from {given.id}, and where that gets its value cannot be determined from the file."
        )
    return set_value(sources, found.code, found.node, value, name, depth + 1)


def _set_parameter(
    sources: Sources,
    code: Code,
    function: ast.FunctionDef | ast.AsyncFunctionDef,
    parameter: str,
    value: Value,
    name: str,
    depth: int,
) -> Edits:
    """Edit the argument of the function's only caller, or else the parameter's default."""
    positional = [it.arg for it in (*function.args.posonlyargs, *function.args.args)]
    calls = [it for it in code.of(ast.Call) if last_part(it.func) == function.name]
    passed: list[ast.expr] = []
    for call in calls:
        given = keyword_of(call, parameter)
        if given is None and parameter in positional:
            given = _by_position(call, positional.index(parameter))
        if any(it.arg is None for it in call.keywords):
            raise NotPossible(f"{name} is the parameter {parameter} of {function.name}, which is called with **.")
        if given is not None:
            passed.append(given)
    if len(calls) == 1 and len(passed) == 1:
        return set_value(sources, code, passed[0], value, name, depth + 1)
    default = _default_of(function, parameter)
    if passed or default is None or not calls:
        raise NotPossible(f"{name} is the parameter {parameter} of {function.name}, whose callers set it.")
    return set_value(sources, code, default, value, name, depth + 1)


def _default_of(function: ast.FunctionDef | ast.AsyncFunctionDef, parameter: str) -> ast.expr | None:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = dict(zip([it.arg for it in reversed(positional)], reversed(arguments.defaults), strict=False))
    only_named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    defaults |= {it.arg: default for it, default in only_named if default is not None}
    return defaults.get(parameter)


# -- command line, classes, dictionaries ----------------------------------------------------------


def _set_attribute(sources: Sources, code: Code, given: ast.Attribute, value: Value, name: str, depth: int) -> Edits:
    if isinstance(given.value, ast.Name) and given.value.id == "self":
        own = [it for it in code.of(ast.Assign) if any(code.text(to) == code.text(given) for to in it.targets)]
        if len(own) == 1:
            return set_value(sources, code, own[0].value, value, name, depth + 1)
    found = definitions.setting(sources, code, given.value, given.attr)
    if found is not None:
        return _set_defined(sources, found, value, name, depth)
    options = [it for it in code.of(ast.Call) if given.attr in definitions.destinations(it)]
    if len(options) == 1:
        return _set_option(sources, code, options[0], value, name)
    defaults = [
        statement.value
        for it in code.of(ast.ClassDef)
        for statement in it.body
        if isinstance(statement, (ast.Assign, ast.AnnAssign))
        and isinstance(statement.value, ast.Constant)
        and _binds(statement, given.attr)
    ]
    if len(defaults) == 1 and isinstance(defaults[0], ast.Constant) and not _passed_to_any_call(code, given.attr):
        return _replaced(code, defaults[0], value)
    raise NotPossible(f"{name} is read from {code.text(given)}, which is set elsewhere: set it to {value!r} there.")


def _set_defined(
    sources: Sources, found: definitions.Defined | definitions.Option, value: Value, name: str, depth: int
) -> Edits:
    if isinstance(found, definitions.Option):
        return _set_option(sources, found.code, found.call, value, name)
    return set_value(sources, found.code, found.node, value, name, depth + 1)


def _binds(statement: ast.Assign | ast.AnnAssign, name: str) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return any(isinstance(it, ast.Name) and it.id == name for it in targets)


def _passed_to_any_call(code: Code, name: str) -> bool:
    """Whether some call or assignment overrides the class's value of the attribute."""
    keywords = code.of(ast.keyword)
    stored = code.of(ast.Attribute)
    written = any(it.attr == name and isinstance(it.ctx, ast.Store) for it in stored)
    return written or any(it.arg == name and not _is_of_loader(code, it) for it in keywords)


def _is_of_loader(code: Code, keyword: ast.keyword) -> bool:
    above = next(code.above(keyword))
    return isinstance(above, ast.Call) and last_part(above.func).endswith("DataLoader")


def _set_option(sources: Sources, code: Code, option: ast.Call, value: Value, name: str) -> Edits:
    words = definitions.option_words(option)
    for word in words:
        if any(it == word or it.startswith(f"{word}=") for it in sources.arguments):
            raise NotPossible(f"{name} is set by {word} on the command line: say {word} {value} there.")
    if not words[0].startswith("-") or keyword_of(option, "action") is not None:
        raise NotPossible(f"{name} is set by {words[0]} on the command line, which has no default to edit.")
    default = keyword_of(option, "default")
    if default is None or isinstance(default, ast.Constant):
        return [(code.path, SetKeyword(Span.of(option), "default", NewCode(repr(value))))]
    return set_value(sources, code, default, value, name, 1)


def _item(given: ast.expr) -> tuple[ast.expr, str] | None:
    """The mapping and the key of ``cfg["key"]`` and ``cfg.get("key", 0)``."""
    match given:
        case ast.Subscript(value=holder, slice=ast.Constant(value=str() as key)):
            return holder, key
        case ast.Call(func=ast.Attribute(value=holder, attr="get"), args=[ast.Constant(value=str() as key), *_]):
            return holder, key
    return None


def _set_item(
    sources: Sources, code: Code, given: ast.expr, item: tuple[ast.expr, str], value: Value, name: str, depth: int
) -> Edits:
    found = definitions.setting(sources, code, *item)
    if found is not None:
        return _set_defined(sources, found, value, name, depth)
    raise NotPossible(f"{name} is read from {code.text(given)}, which is set elsewhere: set it to {value!r} there.")
