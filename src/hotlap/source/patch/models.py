"""Insert statements after each model is on its device, and convert its inputs."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass

from hotlap.records import CallSite, ModelInputs, ModelStatement
from hotlap.source.edits.kinds import Code as NewCode
from hotlap.source.edits.kinds import InsertAfter, InsertBefore, Span, WrapExpression
from hotlap.source.patch.code import Code, Edits, Function, NotPossible, Sources, last_part, parameters

_LISTS_PARAMETERS = frozenset({"parameters", "named_parameters"})
_MOVES = frozenset({"to", "cuda", "cpu", "half", "bfloat16", "float"})


@dataclass(frozen=True, slots=True)
class Model:
    """How a function names a model: a variable, or an attribute of ``self``; ``optimizer`` is the statement that passes
    its parameters to the optimizer, or without training one that calls it."""

    code: Code
    function: Function
    name: str
    optimizer: ast.stmt


def statement_edits(sources: Sources, change: ModelStatement) -> Edits:
    """Insert after the last statement that makes, wraps or moves each model. Raises :class:`NotPossible`."""
    _check_kinds(sources, change.convolutions_only)
    edits: Edits = []
    called = sources.facts.step_source == "call"
    for model in _called_models(sources) if called else _models(sources):
        if _has_already(model, change):
            continue
        known = (model.name.partition(".")[0],)
        statement = NewCode(_for_model(change.code, model), change.needs, known)
        after = _made(model) if called else _last_change(sources, model)
        if after is None:
            edits.append((model.code.path, InsertBefore(Span.of(model.optimizer), statement)))
        else:
            edits.append((model.code.path, InsertAfter(Span.of(after), statement)))
    return edits


def input_edits(sources: Sources, change: ModelInputs) -> Edits:
    """Convert the inputs of each training forward. Raises :class:`NotPossible`."""
    method = change.code.split(".")[1].partition("(")[0]
    edits: Edits = []
    for site in sources.sites("model"):
        code, call = sources.of_site(site, f"The call of {site.what}")
        if is_of_library(sources, site) or last_part(call.func) in _defined(code):
            raise NotPossible(f"{site.what} is called by a library, where its inputs cannot be converted.")
        if len(call.args) != 1 or call.keywords or isinstance(call.args[0], ast.Starred):
            raise NotPossible(
                f"Which argument of {code.text(call.func)} holds the images, in line {call.lineno}, "
                "cannot be determined."
            )
        shapes = {len(it) for model in sources.facts.models for it in model.input_shapes}
        if shapes and change.dimensions not in shapes:
            raise NotPossible(f"{site.what} is given no tensor with {change.dimensions} dimensions.")
        if _is_call_with(call.args[0], {method, "contiguous"}, "memory_format"):
            continue
        edits.append((code.path, WrapExpression(Span.of(call.args[0]), NewCode(change.code, change.needs))))
    if not sources.sites("model"):
        raise NotPossible("No line was seen that calls the model.")
    return edits


def is_of_library(sources: Sources, site: CallSite) -> bool:
    """Whether the called function does the whole step, so that other roles share its call site."""
    place = (site.file, site.line, site.column)
    others = [it for it in sources.facts.sites if it.role != site.role]
    return any((it.file, it.line, it.column) == place for it in others)


def _check_kinds(sources: Sources, convolutions_only: bool) -> None:
    models = sources.facts.models
    if convolutions_only and any(not it.convolutions for it in models):
        raise NotPossible("Not all models have convolutions, and which variable is which cannot be determined.")


# -- which variable is a model --------------------------------------------------------------------


def _models(sources: Sources) -> list[Model]:
    """Find the models whose parameters the optimizers update.

    Raises :class:`NotPossible` unless these are all models that the run saw."""
    found: dict[tuple[Code, Function, str], Model] = {}
    for optimizer in sources.facts.optimizers:
        code, call = sources.of_site(optimizer.site, f"The optimizer ({optimizer.kind})")
        function, statement = code.function(call), code.statement(call)
        names = _given_parameters(code, call, function)
        if not names:
            raise NotPossible(
                f"Whose parameters {code.text(call.func)} in line {call.lineno} gets cannot be determined."
            )
        for name in names:
            found.setdefault((code, function, name), Model(code, function, name, statement))
    roots = len(sources.facts.models)
    if len({name for _, _, name in found}) != roots or not found:
        many = "one model was" if roots == 1 else f"{roots} models were"
        raise NotPossible(f"{many[:1].upper()}{many[1:]} seen, and which variable holds it cannot be determined.")
    return list(found.values())


def _given_parameters(code: Code, call: ast.Call, function: Function) -> list[str]:
    """The models in ``model.parameters()`` and the like among the arguments or the values of their variables."""
    names: dict[str, None] = {}
    pending: list[ast.AST] = [*call.args, *(it.value for it in call.keywords)]
    followed: set[str] = set()
    while pending:
        for node in ast.walk(pending.pop()):
            if isinstance(node, ast.Call) and last_part(node.func) in _LISTS_PARAMETERS:
                if isinstance(node.func, ast.Attribute):
                    names[_root(node.func.value)] = None
            elif isinstance(node, ast.Name) and node.id not in followed:
                followed.add(node.id)
                pending += _assigned(code, function, node.id)
    if "" in names:
        raise NotPossible(f"Whose parameters {code.text(call.func)} in line {call.lineno} gets cannot be determined.")
    return list(names)


def _assigned(code: Code, function: Function, name: str) -> list[ast.AST]:
    """The values of a variable of parameters or groups; a model itself is not followed."""
    found: list[ast.AST] = []
    for it in code.within(function):
        if isinstance(it, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in it.targets):
            walked = [node for node in ast.walk(it.value) if isinstance(node, ast.Call)]
            if any(last_part(node.func) in _LISTS_PARAMETERS for node in walked):
                found.append(it.value)
    return found


def _root(node: ast.expr) -> str:
    """``model`` for ``model.backbone``, ``self.model`` for ``self.model.backbone``; empty for anything but
    variables."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    if node.id == "self":
        return f"self.{parts[-1]}" if parts else ""
    return node.id


def _called_models(sources: Sources) -> list[Model]:
    """Find the models that are called and not trained, where they are made. Raises :class:`NotPossible`."""
    found: dict[tuple[Code, Function, str], Model] = {}
    for site in sources.sites("model"):
        code, call = sources.of_site(site, f"The call of {site.what}")
        name = ast.unparse(call.func)
        if not re.fullmatch(r"(self\.)?\w+", name):
            raise NotPossible(f"Which variable holds the model that line {call.lineno} calls cannot be determined.")
        function = _making_function(code, call, name)
        found.setdefault((code, function, name), Model(code, function, name, code.statement(call)))
    if not found:
        raise NotPossible("No line was seen that calls the model.")
    return list(found.values())


def _making_function(code: Code, call: ast.Call, name: str) -> Function:
    """The function that binds the model's name: the one that calls it, ``__init__``, or the module itself."""
    own = code.function(call)
    owner = code.class_of(call)
    if name.startswith("self.") and owner is not None:
        makers: list[Function] = [it for it in owner.body if isinstance(it, ast.FunctionDef) and it.name == "__init__"]
    elif isinstance(own, ast.Module) or _binds(code, own, name):
        makers = [own]
    elif name in parameters(own):
        raise NotPossible(f"The model is an argument of {own.name}, and where it is made cannot be determined.")
    else:
        makers = [code.tree]
    if not makers or not _binds(code, makers[0], name):
        raise NotPossible(f"Where {name} is made cannot be determined.")
    return makers[0]


def _binds(code: Code, function: Function, name: str) -> bool:
    return any(_changes(it, name) for it in code.within(function))


def _made(model: Model) -> ast.stmt:
    """The last statement that binds or moves a model that is not trained, with the ``if`` around several of them."""
    code = model.code
    end = model.optimizer.lineno if code.function(model.optimizer) is model.function else None
    changes = [code.statement(it) for it in code.within(model.function) if _changes(it, model.name)]
    before = [it for it in changes if end is None or it.lineno < end]
    if not before:
        raise NotPossible(f"Where {model.name} is made cannot be determined.")
    last = max(before, key=lambda it: (it.lineno, it.col_offset))
    owners = {code.owner(it) for it in before}
    if len(owners) == 1 and not isinstance(owners.pop(), (ast.For, ast.While)):
        return last
    return _outside_of_branches(code, last, [model.optimizer])


# -- where it is ready ----------------------------------------------------------------------------


def _last_change(sources: Sources, model: Model) -> ast.stmt | None:
    """Find the last statement before training that binds or moves the model, with the ``if`` around it.

    None if no such statement certainly runs before training; then the insertion goes before the optimizer's creation.
    """
    code = model.code
    calls = [code.call_at(it) for it in sources.sites("model") if it.file == str(code.path)]
    uses = [it for it in calls if code.function(it) is model.function]
    end = min((it.lineno for it in uses), default=None)
    if end is None:
        end = _training_begins(sources, model)
    changes = [
        code.statement(it)
        for it in code.within(model.function)
        if _changes(it, model.name) and getattr(it, "lineno", 0) < end
    ]
    if not changes:
        return None
    last = max(changes, key=lambda it: (it.lineno, it.col_offset))
    # The place must be run whenever the optimizer is made, and whenever the model is called: if it is in the same
    # branch as one of them, as below the main guard, it stays in it.
    found = _outside_of_branches(code, last, [*uses, model.optimizer])
    return found if (found.end_lineno or found.lineno) < end else None


def _training_begins(sources: Sources, model: Model) -> int:
    """The first line behind the optimizer that may lead to the model's call in another function. Where no statement is
    known to, the optimizer's own: what comes behind it may as well come behind the training."""
    code = model.code
    leading = _leading_to_training(sources)
    optimizer_ends = model.optimizer.end_lineno or model.optimizer.lineno
    lines = [
        it.lineno
        for it in code.within(model.function)
        if isinstance(it, ast.Call) and it.lineno > optimizer_ends and last_part(it.func) in leading
    ]
    return min(lines, default=model.optimizer.lineno)


def _leading_to_training(sources: Sources) -> set[str]:
    """The names of the functions in which the model is called, and of those that call them, in all files of the run."""
    codes = sources.readable()
    waiting: list[tuple[Code, Function]] = []
    for site in sources.sites("model"):
        waiting += [(it, it.function(it.call_at(site))) for it in codes if str(it.path) == site.file]
    names: set[str] = set()
    while waiting:
        there, function = waiting.pop()
        if isinstance(function, ast.Module) or function.name in names:
            continue
        names.add(function.name)
        owner = there.owner(function)
        if isinstance(owner, ast.ClassDef) and function.name == "__init__":
            names.add(owner.name)
        for code in codes:
            waiting += [(code, code.function(it)) for it in code.of(ast.Call) if last_part(it.func) in names]
    return names


def _changes(node: ast.AST, name: str) -> bool:
    """Whether the node assigns the variable, or moves the model in place."""
    if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
        return ast.unparse(node) == name
    moves = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _MOVES
    return moves and isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[0] == name


def _outside_of_branches(code: Code, statement: ast.stmt, uses: Sequence[ast.AST]) -> ast.stmt:
    while True:
        owner = code.owner(statement)
        if not isinstance(owner, (ast.If, ast.With, ast.Try, ast.For, ast.While)) or not isinstance(owner, ast.stmt):
            return statement
        if any(owner in code.above(it) for it in uses):
            return statement
        if isinstance(owner, (ast.For, ast.While)):
            raise NotPossible(f"The model is made in a loop, in line {statement.lineno}.")
        statement = owner


def _has_already(model: Model, change: ModelStatement) -> bool:
    """Whether the script already does it: ``model.compile()`` or ``torch.compile(model)``, a conversion of the
    format."""
    wanted = ast.parse(_for_model(change.code, model), mode="exec").body[0]
    if isinstance(wanted, ast.For):
        return any(_is_same_loop(it, wanted) for it in ast.walk(model.code.tree))
    calls = (it for it in ast.walk(wanted) if isinstance(it, ast.Call))
    method = next((last_part(it.func) for it in calls), "")
    for node in ast.walk(model.code.tree):
        if not isinstance(node, ast.Call):
            continue
        if method == "compile" and _compiles(node, model.name, "Module.compile(" not in change.code):
            return True
        if method == "to" and _is_call_with(node, {"to"}, "memory_format"):
            called_on = node.func.value if isinstance(node.func, ast.Attribute) else node.func
            holder = model.code.statement(node)
            targets = holder.targets if isinstance(holder, ast.Assign) else []
            if ast.unparse(called_on) == model.name or any(ast.unparse(it) == model.name for it in targets):
                return True
    return False


def _compiles(call: ast.Call, name: str, by_its_method: bool) -> bool:
    """Whether the call compiles the model of that name. Where its ``compile()`` is another method than torch's, a call
    of that does not."""
    if last_part(call.func) != "compile":
        return False
    receiver = ast.unparse(call.func).rpartition(".")[0]
    given = {ast.unparse(it) for it in call.args}
    by_torch = receiver.rpartition(".")[2] in ("torch", "Module")
    return (by_its_method and receiver == name) or (by_torch and not given.isdisjoint({name, f"{name}.forward"}))


def _for_model(code: str, model: Model) -> str:
    return re.sub(r"\b_\b", model.name, code)


def _is_same_loop(node: ast.AST, wanted: ast.For) -> bool:
    """Whether it does the same to the same modules; names may be shorter than the full ones in ``wanted``."""
    if not isinstance(node, ast.For) or ast.unparse(node.iter) != ast.unparse(wanted.iter):
        return False
    called = [[last_part(it.func) for it in ast.walk(loop) if isinstance(it, ast.Call)] for loop in (node, wanted)]
    return bool(called[1]) and called[0] == called[1]


def _is_call_with(node: ast.AST, methods: set[str], keyword: str) -> bool:
    return (
        isinstance(node, ast.Call)
        and last_part(node.func) in methods
        and any(it.arg == keyword for it in node.keywords)
    )


def _defined(code: Code) -> set[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {it.name for it in code.of(*kinds) if isinstance(it, kinds)}
