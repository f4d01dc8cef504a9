"""A training function as a script: trials start it in fresh processes, which know nothing of this one.

A function of a file is imported from there. A function of a notebook is written to a file, with what it uses: other
functions and classes of the notebook as their source, modules as imports, and numbers, texts and the like as
literals. Whatever else it uses (a model, a loader, a tensor) exists in the notebook's process alone, so that it is
refused. Nothing is executed.
"""

from __future__ import annotations

import ast
import cmath
import hashlib
import inspect
import linecache
import os
import symtable
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NoReturn

from hotlap import files
from hotlap.errors import UsageError

FOLDER = "functions"
"""The folder, in that of studies, for the scripts that functions became."""

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_MOST_LITERAL_CHARACTERS = 10_000
_OWN_MAIN = "__main__"


def script_of_function(function: Callable[..., object], directory: Path) -> Path:
    """Write the script that calls ``function``, below ``directory``, and return its path.

    Equal functions give the same file, so that studies of one function have the same command. Raises
    :class:`UsageError` for what cannot be called in another process, with the reason.
    """
    if os.environ.get("HOTLAP_ASSIGNMENT"):
        raise UsageError(
            "hotlap was called in one of its own trials.",
            remedy="The file of the function is imported there: put the call under `if __name__ == '__main__':`.",
        )
    checked = _checked(function)
    file = _file_of(checked)
    text = _imported(checked, file) if file is not None else _written(checked)
    name = f"{checked.__name__}-{hashlib.sha256(text.encode()).hexdigest()[:8]}.py"
    path = directory.absolute() / FOLDER / name
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.replace(path, text.encode("utf-8"))
    except OSError as error:
        raise UsageError(
            f"The function's script {path} cannot be written: {error.strerror or error}.",
            remedy="Name another folder by `directory`.",
        ) from error
    return path


def _checked(function: Callable[..., object]) -> FunctionType:
    """The function, if another process can call it by its name and without arguments."""
    name = getattr(function, "__qualname__", repr(function))
    if not isinstance(function, FunctionType):
        _refuse(f"{name} is a {type(function).__name__}", "Write a function without parameters that calls it.")
    if function.__name__ == "<lambda>":
        _refuse("A lambda has no name by which another process could call it", "Write it with `def`.")
    if function.__closure__:
        held = ", ".join(function.__code__.co_freevars)
        _refuse(
            f"{name} is a closure over {held}, which exists in this process alone",
            "Define it outside of any function, and make there what it needs.",
        )
    if "<locals>" in name or "." in name:
        _refuse(f"{name} is defined inside of something else", "Define it at the top of its file or of a cell.")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        _refuse(f"{name} does nothing when it is called: it is a coroutine or generator", "Write a plain function.")
    needed = [it.name for it in inspect.signature(function).parameters.values() if _is_needed(it)]
    if needed:
        _refuse(f"{name} needs the arguments {', '.join(needed)}", "Give them defaults, or wrap it in a function.")
    return function


def _is_needed(parameter: inspect.Parameter) -> bool:
    variable = parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return parameter.default is inspect.Parameter.empty and not variable


def _refuse(what: str, remedy: str) -> NoReturn:
    raise UsageError(f"The training cannot be run in another process: {what}.", remedy=remedy)


# ---------------------------------------------------------------------------------------------
# A function of a file
# ---------------------------------------------------------------------------------------------


def _file_of(function: FunctionType) -> Path | None:
    """The file that another process can import the function from; None for a notebook's."""
    module = sys.modules.get(function.__module__)
    name = getattr(module, "__file__", None)
    if name is None or Path(function.__code__.co_filename).absolute() != Path(name).absolute():
        return None
    if getattr(module, function.__name__, None) is not function:
        _refuse(
            f"{function.__module__}.{function.__name__} is another object",
            "Pass the function that its file defines under this name.",
        )
    return Path(name).absolute()


def _imported(function: FunctionType, file: Path) -> str:
    name = function.__module__
    folder = file.parents[name.count(".")]
    if name == _OWN_MAIN:
        spec = getattr(sys.modules[_OWN_MAIN], "__spec__", None)
        name = spec.name if spec is not None else file.stem
        folder = file.parents[name.count(".")]
        if name == _OWN_MAIN or not all(it.isidentifier() for it in name.split(".")):
            _refuse(f"{file.name} cannot be imported under its name", "Give the file a name that Python can import.")
    lines = [f"from {name} import {function.__name__}"]
    return _script(f"{function.__name__}() of {file}", folder, lines, function.__name__)


def _script(of: str, folder: Path, lines: list[str], name: str) -> str:
    """The whole script. Modules are found as they are here: first next to the function, then on this path."""
    path = [str(folder), *(os.path.abspath(it or ".") for it in sys.path)]  # noqa: PTH100
    return "\n".join(
        (
            f'"""Written by hotlap: {_without_quotes(of)}, to be called in a process of its own."""',
            "",
            "import sys",
            "",
            f"sys.path[:1] = [{str(folder)!r}]",
            f"sys.path += [it for it in {list(dict.fromkeys(path))!r} if it not in sys.path]",
            "",
            *lines,
            "",
            'if __name__ == "__main__":',
            f"    {name}()",
            "",
        )
    )


def _without_quotes(text: str) -> str:
    return text.replace("\\", "/").replace('"', "'")


# ---------------------------------------------------------------------------------------------
# A function of a notebook
# ---------------------------------------------------------------------------------------------


@dataclass
class _Notebook:
    """What goes into the script: the imports, the literals, and the definitions in the order of their writing."""

    names: dict[str, Any]
    imports: dict[str, str] = field(default_factory=dict)
    literals: dict[str, str] = field(default_factory=dict)
    definitions: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, user: str) -> None:
        """Add what ``name`` means in the notebook; ``user`` is the function or class that uses it."""
        if name in self.imports or name in self.literals or name in self.definitions:
            return
        value = self.names[name]
        if isinstance(value, ModuleType):
            self.imports[name] = _import_of_module(name, value.__name__)
        elif isinstance(value, FunctionType | type) and value.__module__ == _OWN_MAIN:
            self._define(name, value)
        elif _is_found_by_name(value):
            self.imports[name] = f"from {value.__module__} import {value.__qualname__} as {name}"
        else:
            self.literals[name] = self._literal(name, value, user)

    def _define(self, name: str, value: FunctionType | type) -> None:
        if isinstance(value, FunctionType) and value.__closure__:
            _refuse(
                f"{name} is a closure over {', '.join(value.__code__.co_freevars)}", "Define it at the top of a cell."
            )
        if value.__name__ != name:
            _refuse(f"{name} is another name for {value.__qualname__}", f"Call {value.__qualname__} by its own name.")
        source = _source_of(value)
        self.definitions[name] = ""  # known by now: functions may call each other
        for used in sorted(_global_names(source) & self.names.keys() - {name}):
            self.add(used, name)
        del self.definitions[name]
        self.definitions[name] = source  # after what it uses: a base class, a decorator, a default

    def _literal(self, name: str, value: Any, user: str) -> str:
        shown = _as_literal(value) if _is_plain(value) else ""
        if not shown:
            _refuse(
                f"{user} uses {name}, a {type(value).__module__}.{type(value).__qualname__} of this process",
                f"Make {name} inside of {user}.",
            )
        if len(shown) > _MOST_LITERAL_CHARACTERS:
            _refuse(f"{user} uses {name}, which is too long to be written down", f"Read {name} inside of {user}.")
        return f"{name} = {shown}"


def _written(function: FunctionType) -> str:
    if function.__module__ != _OWN_MAIN:
        _refuse(f"{function.__qualname__} was defined by neither a file nor a notebook", "Define it in a file.")
    notebook = _Notebook(function.__globals__)
    notebook.add(function.__name__, function.__name__)
    lines = [*sorted(notebook.imports.values()), "", *sorted(notebook.literals.values())]
    for it in notebook.definitions.values():
        lines += ["", "", it]
    return _script(f"{function.__name__}() of a notebook", Path.cwd(), lines, function.__name__)


def _import_of_module(name: str, module: str) -> str:
    return f"import {module}" if name == module else f"import {module} as {name}"


def _is_found_by_name(value: Any) -> bool:
    """Whether an import of its name from its module gives this very object: a function or class of a library."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if not isinstance(module, str) or not isinstance(name, str) or not name.isidentifier() or module == _OWN_MAIN:
        return False
    return getattr(sys.modules.get(module), name, None) is value


def _is_plain(value: Any) -> bool:
    """Whether its text is its value: numbers, texts, and tuples, lists, sets and dictionaries of them."""
    if type(value) in (tuple, list, set, frozenset):
        return bool(value or type(value) is not set) and all(map(_is_plain, value))
    if type(value) is dict:
        return all(_is_plain(key) and _is_plain(it) for key, it in value.items())
    if isinstance(value, float | complex):
        return cmath.isfinite(value)  # `inf` and `nan` are no literals
    return type(value) in _PLAIN


def _as_literal(value: Any) -> str:
    """Its source; that of a set in an order that does not change from process to process."""
    if isinstance(value, set | frozenset):
        inside = f"{{{', '.join(sorted(map(_as_literal, value)))}}}"
        return inside if type(value) is set else f"frozenset({inside if value else ''})"
    return repr(value)


def _source_of(value: FunctionType | type) -> str:
    """The source of a function or class of a notebook. Raises :class:`UsageError` if it is not known."""
    try:
        if isinstance(value, FunctionType):
            return textwrap.dedent(inspect.getsource(value)).rstrip()
        return _source_of_class(value)
    except (OSError, TypeError, SyntaxError):
        _refuse(f"the source of {value.__qualname__} is not known", "Define it in a cell of a notebook, or in a file.")


def _source_of_class(kind: type) -> str:
    """Found through its methods: until Python 3.13 a class itself does not know its lines."""
    for method in vars(kind).values():
        function = inspect.unwrap(getattr(method, "__func__", method)) if callable(method) else None
        if not isinstance(function, FunctionType):
            continue
        lines = linecache.getlines(function.__code__.co_filename)
        for node in ast.parse("".join(lines)).body:
            if isinstance(node, ast.ClassDef) and node.name == kind.__name__ and _contains(node, function):
                first = min([node.lineno, *(it.lineno for it in node.decorator_list)])
                return "".join(lines[first - 1 : node.end_lineno]).rstrip()
    raise OSError(f"no source of {kind.__name__}")


def _contains(node: ast.ClassDef, function: FunctionType) -> bool:
    return node.lineno <= function.__code__.co_firstlineno <= (node.end_lineno or 0)


def _global_names(source: str) -> set[str]:
    """The names that a definition looks up outside of itself, also for its decorators, defaults and base classes."""
    whole = symtable.symtable(source, "<notebook>", "exec")
    found = {it.get_name() for it in whole.get_symbols() if it.is_referenced()}
    waiting = whole.get_children()
    while waiting:
        table = waiting.pop()
        found |= {it.get_name() for it in table.get_symbols() if it.is_global() and it.is_referenced()}
        waiting += table.get_children()
    return {it for it in found if not it.startswith("__")}
