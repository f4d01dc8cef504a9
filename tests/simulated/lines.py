"""Which lines of hotlap's functions a process ran, and all that it starts: ``TRACED_LINES`` names the receiver.

That is a socket, since what children of trials write into files is thrown away; and every line is told when it first
runs, since they end without a farewell. Modules are compiled with a probe before each statement of a function: an item
of a table, of which the first look-up misses and tells. So only hotlap's own code becomes slower, and that by little;
:func:`sys.settrace` would slow down every call that the process makes. ``TRACED_CODE`` is a folder for what was
compiled.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.abc
import importlib.machinery
import marshal
import os
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, ModuleType

TOLD, CODE = "TRACED_LINES", "TRACED_CODE"
_PACKAGE = "hotlap"
_PART = f"{os.sep}src{os.sep}{_PACKAGE}{os.sep}"
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_PRELUDE = "__ran__ = __import__('simulated.lines', fromlist=('points',)).points({name!r})"

_tell: Callable[[bytes], object] = len


def start() -> None:
    """Send ``<file>:<line>`` for every line that runs from here on. Without a receiver nothing is sent."""
    global _tell
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        receiver.connect(f"\0{os.environ[TOLD]}")
    except ConnectionRefusedError:
        return
    _tell = receiver.send
    sys.meta_path.insert(0, _Finder())


def points(name: str) -> _Points:
    """What the probes of a file look their lines up in."""
    return _Points(name)


def compile_all(sources: Path, folder: Path) -> None:
    """Compile every module below ``sources`` into ``folder``: children of trials could not keep what they compile."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(sources.rglob("*.py")):
        _compiled(path, folder)


def with_probes(source: bytes, name: str, path: str = "") -> CodeType:
    """The code of a module that tells which lines of its functions run."""
    tree = ast.parse(source)
    _add_probes(tree, within=False)
    future = [at for at, it in enumerate(tree.body) if isinstance(it, ast.ImportFrom) and it.module == "__future__"]
    first = future[-1] + 1 if future else int(ast.get_docstring(tree, clean=False) is not None)
    tree.body[first:first] = ast.parse(_PRELUDE.format(name=name)).body
    code: CodeType = compile(tree, path or name, "exec", dont_inherit=True)
    return code


class _Points(dict[int, None]):
    """The lines of a file that have run in this process."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def __missing__(self, line: int) -> None:
        self[line] = None
        with contextlib.suppress(OSError):  # a script may close what it did not open
            _tell(f"{self._name}:{line}".encode())


class _Finder(importlib.abc.MetaPathFinder):
    """Find hotlap's modules as usual, and load them with probes."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] != _PACKAGE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.origin is not None and _PART in spec.origin:
            spec.loader = _Loader(name, spec.origin)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        folder = os.environ.get(CODE)
        return _compiled(Path(self.path), Path(folder) if folder else None)


def _compiled(path: Path, folder: Path | None) -> CodeType:
    source = path.read_bytes()
    name = str(path)[str(path).rindex(_PART) + len(_PART) :]
    kept = folder / hashlib.sha256(str(path).encode() + source).hexdigest()[:24] if folder is not None else None
    if kept is not None:
        with contextlib.suppress(OSError, EOFError, ValueError, TypeError):
            code: CodeType = marshal.loads(kept.read_bytes())
            return code
    code = with_probes(source, name, str(path))
    if kept is not None:
        with contextlib.suppress(OSError):
            unfinished = kept.with_suffix(f".{os.getpid()}")
            unfinished.write_bytes(marshal.dumps(code))
            unfinished.replace(kept)
    return code


def _add_probes(node: ast.AST, *, within: bool) -> None:
    """Put a probe before each statement of all functions below ``node``; module and class bodies run at an import."""
    within = within or isinstance(node, _FUNCTIONS)
    for field, value in ast.iter_fields(node):
        if isinstance(value, list):
            if within and value and isinstance(value[0], ast.stmt):
                setattr(node, field, [one for it in value for one in (*_probe(it), it)])
            for it in value:
                if isinstance(it, ast.stmt | ast.excepthandler | ast.match_case):
                    _add_probes(it, within=within)


def _probe(statement: ast.stmt) -> list[ast.stmt]:
    """None before a docstring, which would be none any more, and none where nothing runs."""
    is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    if is_text or isinstance(statement, ast.Global | ast.Nonlocal | ast.Pass):
        return []
    look_up = ast.Subscript(ast.Name("__ran__", ast.Load()), ast.Constant(statement.lineno), ast.Load())
    return [ast.fix_missing_locations(ast.copy_location(ast.Expr(look_up), statement))]
