"""The files of a run's call sites as syntax trees: the call at each site, and the code around it."""

from __future__ import annotations

import ast
import hashlib
import os
import sysconfig
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias, TypeVar

from msgspec.structs import replace

from hotlap.files import read_bounded
from hotlap.records import CallSite, ScriptFacts
from hotlap.source.edits.files import LARGEST_SOURCE_BYTES, SourceFile, read_source
from hotlap.source.edits.kinds import Edit, Span
from hotlap.source.edits.refusals import CannotEdit

Node = TypeVar("Node", bound=ast.AST)
Edits: TypeAlias = list[tuple[Path, Edit]]
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Module

_INSTALLED = ("site-packages", "dist-packages")
_STANDARD = sysconfig.get_paths()["stdlib"]


class NotPossible(Exception):
    """A lever that cannot be written into the source; ``reason`` is a sentence for the user."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Code:
    """One of the user's files."""

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self.path = source.path
        with warnings.catch_warnings(action="ignore"):
            self.tree = ast.parse(source.text)
        self._parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    def call_at(self, site: CallSite) -> ast.Call:
        """Find the call at a site. Raises :class:`NotPossible` if there is none, or it is ambiguous."""
        in_line = [it for it in self.of(ast.Call) if it.lineno == site.line]
        if site.column is None:
            found = in_line if len(in_line) == 1 else []
        else:
            span = Span(site.line, site.column, site.end_line or site.line, site.end_column or 0)
            found = [it for it in in_line if Span.of(it) == span]
        if len(found) != 1:
            raise NotPossible(f"What was called at {self.path.name}:{site.line} cannot be determined from the source.")
        return found[0]

    def of(self, *kinds: type[Node]) -> Iterator[Node]:
        """All nodes of these kinds."""
        return (it for it in ast.walk(self.tree) if isinstance(it, kinds))

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """All nodes around this one, the innermost first."""
        while node in self._parents:
            node = self._parents[node]
            yield node

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that the node is part of."""
        return next(it for it in (node, *self.above(node)) if isinstance(it, ast.stmt))

    def function(self, node: ast.AST) -> Function:
        """The function whose body runs the node; outside of all functions the module."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)
        return next(it for it in self.above(node) if isinstance(it, kinds))

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        """The class that the node is in, if any."""
        return next((it for it in self.above(node) if isinstance(it, ast.ClassDef)), None)

    def block(self, statement: ast.stmt) -> list[ast.stmt]:
        """The list of statements that the statement is one of."""
        owner = self._parents[statement]
        for field in ("body", "orelse", "finalbody"):
            found = getattr(owner, field, None)
            if isinstance(found, list) and statement in found:
                return found
        raise NotPossible(f"The statement in line {statement.lineno} is in an unsupported kind of block.")

    def owner(self, statement: ast.stmt) -> ast.AST:
        """The node whose block the statement is in."""
        return self._parents[statement]

    def part_of(self, block: Sequence[ast.stmt], node: ast.AST) -> ast.stmt | None:
        """The statement of the block that the node is in, if any."""
        around = {id(it) for it in (node, *self.above(node))}
        return next((it for it in block if id(it) in around), None)

    def text(self, node: ast.AST) -> str:
        """The node's source, on one line."""
        return ast.unparse(node)

    def within(self, node: ast.AST) -> list[ast.AST]:
        """All nodes in the node's own code, without functions and classes in it."""
        found: list[ast.AST] = []
        stack = list(ast.iter_child_nodes(node))
        while stack:
            it = stack.pop()
            found.append(it)
            if not isinstance(it, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
                stack.extend(ast.iter_child_nodes(it))
        return found


class Sources:
    """All files of one patch, each read once. ``arguments`` are those of the script's run."""

    def __init__(self, facts: ScriptFacts, script: Path | None, arguments: Sequence[str]) -> None:
        self.facts = _with_real_paths(facts)
        self.script = script.resolve() if script is not None else None
        self.arguments = tuple(arguments)
        self._known = {Path(it.file): it.sha256 for it in self.facts.files}
        self._codes: dict[Path, Code] = {}
        self.remarks: list[str] = []
        """Notes for readers of the patch, a sentence each."""

    def code(self, path: Path) -> Code:
        """Read a file that is unchanged since the study. Raises :class:`NotPossible`."""
        if path not in self._codes:
            found = self._read(path)
            digest = digest_of(found.source.data)
            if digest != self._known.get(path, digest):
                raise NotPossible(f"{path.name} has changed since the study.")
            self._codes[path] = found
        return self._codes[path]

    def of_site(self, site: CallSite | None, what: str) -> tuple[Code, ast.Call]:
        """The file and the call of a site. Raises :class:`NotPossible`."""
        if site is None:
            raise NotPossible(f"{what} is made inside a library, where there is no line of yours to change.")
        code = self.code(Path(site.file))
        return code, code.call_at(site)

    def sites(self, role: str) -> tuple[CallSite, ...]:
        return tuple(it for it in self.facts.sites if it.role == role)

    def site_paths(self) -> tuple[Path, ...]:
        """The files with call sites, and the script."""
        made = [*(it.site for it in self.facts.loaders), *(it.site for it in self.facts.optimizers)]
        made += [it.site for it in self.facts.data_parallel]
        sites = [*self.facts.sites, *made]
        files = [Path(it.file) for it in sites if it is not None]
        return tuple(dict.fromkeys([*([self.script] if self.script else []), *files]))

    def readable(self) -> list[Code]:
        """The files that are unchanged and can be parsed."""
        found = []
        for path in self.site_paths():
            with suppress(NotPossible):
                found.append(self.code(path))
        return found

    def _read(self, path: Path) -> Code:
        if path.suffix != ".py" or any(it in _INSTALLED for it in path.parts) or path.is_relative_to(_STANDARD):
            raise NotPossible(f"The line to change is in {path}, which is not one of your files.")
        try:
            source = read_source(path)
            return Code(source)
        except CannotEdit as error:
            raise NotPossible(f"{path.name}: {error.reason}") from None
        except (SyntaxError, ValueError, RecursionError):
            raise NotPossible(f"{path.name} cannot be parsed.") from None
        except OSError as error:
            raise NotPossible(f"{path} cannot be read: {error.strerror or error}.") from None


def _with_real_paths(facts: ScriptFacts) -> ScriptFacts:
    """Give each file in the facts one name, whatever path led to it."""

    def real(site: CallSite | None) -> CallSite | None:
        return None if site is None else replace(site, file=os.path.realpath(site.file))

    return replace(
        facts,
        sites=tuple(it for it in map(real, facts.sites) if it is not None),
        loaders=tuple(replace(it, site=real(it.site)) for it in facts.loaders),
        optimizers=tuple(replace(it, site=real(it.site)) for it in facts.optimizers),
        data_parallel=tuple(replace(it, site=real(it.site)) for it in facts.data_parallel),
        files=tuple(replace(it, file=os.path.realpath(it.file)) for it in facts.files),
    )


def digest_of(data: bytes) -> str:
    """The SHA-256 of a file's bytes."""
    return hashlib.sha256(data).hexdigest()


def changed_files(facts: ScriptFacts) -> tuple[str, ...]:
    """The files with call sites that changed since the study."""
    return tuple(it.file for it in facts.files if _digest(Path(it.file)) != it.sha256)


def _digest(path: Path) -> str:
    try:
        return digest_of(read_bounded(path, LARGEST_SOURCE_BYTES))
    except OSError:
        return ""


def last_part(node: ast.expr) -> str:
    """``c`` of ``a.b.c``; empty for anything but names."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """The names of a function's parameters, ``*args`` and ``**kwargs`` excepted."""
    arguments = function.args
    return {it.arg for it in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}


def names_read(node: ast.AST) -> set[str]:
    """The names that an expression or statement reads."""
    return {it.id for it in ast.walk(node) if isinstance(it, ast.Name) and isinstance(it.ctx, ast.Load)}


def names_bound(nodes: Iterable[ast.AST]) -> set[str]:
    """The names that these nodes themselves give a value."""
    return {it.id for it in nodes if isinstance(it, ast.Name) and isinstance(it.ctx, ast.Store)}


def keyword_of(call: ast.Call, name: str) -> ast.expr | None:
    return next((it.value for it in call.keywords if it.arg == name), None)
