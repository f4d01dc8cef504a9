"""Write a full dotted name at a place in a file, by an import that it has or one to add.

An import is used only if it certainly took effect: it is at the top level of the file (or of the function around the
place), before the place if both run in one pass, and no other binding of its name is visible there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import libcst as cst
from libcst import metadata

from hotlap.source.edits.insertions import dotted
from hotlap.source.edits.refusals import CannotEdit
from hotlap.source.edits.tree import Statement, Tree

# Submodules that `import torch` also imports, among those that edits use.
_COME_WITH = {
    "torch": frozenset(
        {
            "amp", "autograd", "backends", "backends.mkldnn", "backends.mkldnn.conv",
            "backends.mkldnn.rnn", "backends.cudnn", "backends.cuda", "backends.cuda.matmul", "compiler",
            "cuda", "cuda.amp", "distributed", "mps", "nn", "nn.functional", "nn.utils", "optim", "optim.lr_scheduler",
            "profiler", "utils", "utils.data",
        }
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bound:
    """A name bound by an import, and the import."""

    name: str
    path: str
    statement: Statement


@dataclass(frozen=True, slots=True)
class NewImport:
    """An import to add: its text, and the module-level statement it goes before or after (None: the file's start)."""

    text: str
    anchor: Statement | None
    before: bool


class Names:
    """The imports of one tree. ``given`` maps names that earlier code has bound, such as previous cells of a notebook,
    to their full names."""

    def __init__(self, tree: Tree, given: Mapping[str, str]) -> None:
        self._tree = tree
        self._given = given
        self._bound = tuple(_imports(tree))
        self.top = _TopLevel(tree)

    def is_known(self, name: str, at: cst.CSTNode | None) -> bool:
        """Whether a name is bound at the node."""
        return name in self._given or bool(self._assignments(name, at))

    def reach(self, name: str, at: cst.CSTNode | None, added: Mapping[str, str]) -> tuple[str, NewImport | None]:
        """How the name is written at the node (None: right after the imports), and the import that has to be added
        first. ``added`` are the names that other edits' imports will bind. Raises :class:`CannotEdit`."""
        for bound in self._bound:
            rest = _rest(name, bound.path)
            if rest is not None and self._holds(bound, at):
                return bound.name + rest, None
        for given, path in {**self._given, **added}.items():
            rest = _rest(name, path)
            if rest is not None and not self._assignments(given, at):
                return given + rest, None
        return self._with_new_import(name, at, added)

    def _with_new_import(
        self, name: str, at: cst.CSTNode | None, added: Mapping[str, str]
    ) -> tuple[str, NewImport | None]:
        for local, path, text in _possible_imports(name):
            taken = self._assignments(local, at) or self._assignments(local, None) or local in self.top.declared_global
            if taken or added.get(local, path) != path:
                continue
            anchor, before = self.top.place_for_import(text)
            if at is not None and not self._runs_later(at, anchor):
                continue
            return local + (_rest(name, path) or ""), NewImport(text, anchor, before)
        raise CannotEdit("name-taken", f"The name that {name} would need is used for something else in this file.")

    # -- which binding is in force ----------------------------------------------------------------

    def _holds(self, bound: Bound, at: cst.CSTNode | None) -> bool:
        """Whether the name always refers to that import's module when the node runs."""
        found = self._assignments(bound.name, at)
        nodes = {getattr(it, "node", None) for it in found}
        same = {it.statement for it in self._bound if it.name == bound.name and it.path == bound.path}
        if not found or not nodes <= same:
            return False
        block = self._tree.block_of(bound.statement)
        if at is None:
            return block is self._tree.module and self.top.is_import_at_top(bound.statement)
        if not isinstance(block, cst.Module) and block not in set(self._tree.parents(at)):
            return False
        if isinstance(block, cst.Module) or isinstance(self._tree.parent(block), cst.FunctionDef):
            return self._runs_later(at, bound.statement)
        return False

    def _runs_later(self, at: cst.CSTNode, statement: Statement | None) -> bool:
        """Whether the node runs after the statement: below it, or in a function that is called later."""
        if statement is None or self._tree.range_of(at)[0] > self._tree.range_of(statement)[0]:
            return True
        around = list(self._tree.parents(at))
        block = self._tree.block_of(statement)
        inside = around[: around.index(block)] if block in around else around
        if not any(isinstance(it, cst.FunctionDef) for it in inside):
            return False
        # A function above the import may be called above it as well, at the top level.
        return isinstance(block, cst.Module) and not self.top.calls_before(statement)

    def _assignments(self, name: str, at: cst.CSTNode | None) -> list[metadata.BaseAssignment]:
        scope = self._tree.module_scope if at is None else self._tree.scope_of(at)
        return [it for it in scope[name] if not isinstance(it, metadata.BuiltinAssignment)]


class _TopLevel:
    """The statements of the module, and where its imports are."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.lines: list[cst.SimpleStatementLine | cst.BaseCompoundStatement] = list(tree.module.body)
        self.declared_global = {item.name.value for it in tree.nodes(cst.Global) for item in it.names}
        self._docstring = 1 if self.lines and _is_docstring(self.lines[0]) else 0

    def is_import_at_top(self, statement: Statement) -> bool:
        """Whether the statement is one of the imports after which code for the top is inserted."""
        end = self._end_of_imports()
        return any(statement in _statements_of(line) for line in self.lines[:end])

    def after_imports(self) -> Statement | None:
        """The last import at the top; without imports the docstring, or None."""
        end = self._end_of_imports() or self._docstring
        return _statements_of(self.lines[end - 1])[-1] if end else None

    def must_stay_first(self, statement: Statement) -> bool:
        """Whether the statement is the file's docstring, or an import from ``__future__``, or above one."""
        last = max((number for number, it in enumerate(self.lines) if _is_future(it)), default=self._docstring - 1)
        return any(statement in _statements_of(line) for line in self.lines[: last + 1])

    def calls_before(self, statement: Statement) -> bool:
        """Whether top-level code above the statement may call functions: it holds anything but imports, definitions,
        docstrings and assignments of constants."""
        for line in self.lines:
            if statement in _statements_of(line):
                return False
            if _is_importish(line) or isinstance(line, (cst.FunctionDef, cst.ClassDef)) or _is_docstring(line):
                continue
            return True
        return False

    def place_for_import(self, text: str) -> tuple[Statement | None, bool]:
        """The statement next to which an import goes, and whether before it: sorted into the group of imports that has
        others of its package, or of packages of its kind."""
        group = self._group_for(text)
        if not group:
            anchor = self._before_imports()
            return anchor, False
        key = import_order(text)
        later = [it for it in group if import_order(self._text(it)) > key and _section(self._text(it)) >= key[0]]
        if later and later[0] is not None:
            return _statements_of(later[0])[0], True
        return _statements_of(group[-1])[-1], False

    def _text(self, line: cst.CSTNode) -> str:
        return self._tree.module.code_for_node(line).strip().splitlines()[-1] if line else ""

    def _group_for(self, text: str) -> list[cst.SimpleStatementLine]:
        """The run of neighbouring plain imports to sort into: the first with the same package, else the last run before
        the first definition."""
        package = _package(text)
        runs = self._runs()
        for run in runs:
            if any(package in _packages(it) for it in run):
                return run
        return runs[-1] if runs else []

    def _runs(self) -> list[list[cst.SimpleStatementLine]]:
        runs: list[list[cst.SimpleStatementLine]] = []
        current: list[cst.SimpleStatementLine] = []
        for line in self.lines:
            if isinstance(line, cst.SimpleStatementLine) and all(map(is_plain_import, line.body)):
                current.append(line)
                continue
            if current:
                runs.append(current)
                current = []
            if isinstance(line, (cst.FunctionDef, cst.ClassDef)):
                return runs
        return [*runs, current] if current else runs

    def _before_imports(self) -> Statement | None:
        """The place of a file's first import: after the docstring and ``__future__``."""
        last: Statement | None = None
        for number, line in enumerate(self.lines):
            if number >= self._docstring and not _is_future(line):
                break
            last = _statements_of(line)[-1]
        return last

    def _end_of_imports(self) -> int:
        """How many leading statements lie before the place that is after the imports: up to the end of the run that has
        torch's, where there is one, else of the first run."""
        ends = [0]
        torch_end = 0
        for number, line in enumerate(self.lines):
            if isinstance(line, (cst.FunctionDef, cst.ClassDef)):
                break
            if _is_importish(line):
                if ends[-1] == number or number == self._docstring:
                    ends[-1] = number + 1
                else:
                    ends.append(number + 1)
                if not torch_end and "torch" in _packages(line):
                    torch_end = len(ends)
        return ends[torch_end - 1] if torch_end else ends[0]


def _imports(tree: Tree) -> Iterator[Bound]:
    """Every name that an import binds, the longest paths first so that the shortest way to write a name wins."""
    found: list[Bound] = []
    for node in tree.nodes(cst.Import):
        for alias in node.names:
            path = dotted(alias.name)
            local = alias.asname.name.value if alias.asname and isinstance(alias.asname.name, cst.Name) else ""
            found.append(Bound(local or path.partition(".")[0], path if local else path.partition(".")[0], node))
    for origin in tree.nodes(cst.ImportFrom):
        if isinstance(origin.names, cst.ImportStar) or origin.relative or origin.module is None:
            continue
        for alias in origin.names:
            name = dotted(alias.name)
            local = alias.asname.name.value if alias.asname and isinstance(alias.asname.name, cst.Name) else name
            found.append(Bound(local, f"{dotted(origin.module)}.{name}", origin))
    return iter(sorted(found, key=lambda it: -len(it.path)))


def _rest(name: str, path: str) -> str | None:
    """The suffix that leads from ``path`` to ``name``; None if ``name`` is not below it."""
    if name == path:
        return ""
    if not name.startswith(path + "."):
        return None
    rest = name[len(path) :]
    package, _, attributes = name.partition(".")
    between = attributes.rpartition(".")[0]  # the modules on the way, which have to be imported
    if "." not in rest[1:] or between in _COME_WITH.get(package, ()) or _starts_a_class(name, path):
        return rest
    return None


def _starts_a_class(name: str, path: str) -> bool:
    """``DataLoader.method``: a part after a capitalised one is an attribute, not a module."""
    first = name[len(path) + 1 :].partition(".")[0]
    return first[:1].isupper()


def _possible_imports(name: str) -> Iterator[tuple[str, str, str]]:
    """Local name, its full name, and the import: of the package if that suffices, else of the name itself."""
    package, _, rest = name.partition(".")
    if not rest or _rest(name, package) is not None:
        yield package, package, f"import {package}"
    if rest:
        module, _, last = name.rpartition(".")
        yield last, name, f"from {module} import {last}"


def _statements_of(line: cst.CSTNode) -> list[Statement]:
    if isinstance(line, cst.SimpleStatementLine):
        return list(line.body)
    assert isinstance(line, cst.BaseCompoundStatement)
    return [line]


def _is_docstring(line: cst.CSTNode) -> bool:
    return (
        isinstance(line, cst.SimpleStatementLine)
        and isinstance(line.body[0], cst.Expr)
        and isinstance(line.body[0].value, (cst.SimpleString, cst.ConcatenatedString))
    )


def is_plain_import(statement: cst.CSTNode) -> bool:
    """Whether it is an import, other than from ``__future__``, which comes first."""
    if isinstance(statement, cst.ImportFrom):
        return statement.module is None or dotted(statement.module) != "__future__"
    return isinstance(statement, cst.Import)


def _is_future(line: cst.CSTNode) -> bool:
    parts = line.body if isinstance(line, cst.SimpleStatementLine) else ()
    return any(isinstance(it, cst.ImportFrom) and not is_plain_import(it) for it in parts)


def _is_importish(line: cst.CSTNode) -> bool:
    """Whether it is an import, or an ``if`` or ``try`` that contains only imports."""
    if isinstance(line, cst.SimpleStatementLine):
        return all(isinstance(it, (cst.Import, cst.ImportFrom)) for it in line.body)
    if isinstance(line, (cst.If, cst.Try)) and isinstance(line.body, cst.IndentedBlock):
        return all(_is_importish(it) for it in line.body.body)
    return False


def _packages(line: cst.CSTNode) -> set[str]:
    found: set[str] = set()
    for it in line.body if isinstance(line, cst.SimpleStatementLine) else ():
        if isinstance(it, cst.Import):
            found |= {dotted(alias.name).partition(".")[0] for alias in it.names}
        elif isinstance(it, cst.ImportFrom) and it.module is not None and not it.relative:
            found.add(dotted(it.module).partition(".")[0])
    return found


def _package(text: str) -> str:
    words = text.split()
    return words[1].partition(".")[0] if len(words) > 1 else ""


def _section(text: str) -> int:
    """0 for the standard library, 1 for other packages, 2 for the file's own."""
    package = _package(text)
    if not package:
        return 2
    return 0 if package in sys.stdlib_module_names else 1


def import_order(text: str) -> tuple[int, bool, str]:
    """The sort key of an import: section, plain before ``from``, module name."""
    words = text.split()
    return _section(text), words[0] == "from", words[1].lower() if len(words) > 1 else ""
