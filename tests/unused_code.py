"""Finds functions, methods, classes and constants of a package that nothing reaches.

Whatever runs when a module is imported is reached, and so is what other programs of the project use. From there names
are followed: those of modules as Python resolves them, attributes by their name alone, since the type of an object is
not known here. A name in a string (``getattr(owner, "name")``) or in a template counts as an attribute. Python and
other libraries call what has a name of theirs: ``__enter__``, or a method of a base class. Fields of records are data
and are left alone.

A module that is found by looking into a folder (a lever, a rule, a chart) is imported by a name that a string begins,
or that the folder's ``__path__`` gives. Whoever finds it reads its members as attributes, so that these are followed
like those of objects.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True, eq=False)
class Code:
    """What some nodes of source mention: names with their dots, attributes, strings, and what imports bind to names."""

    names: frozenset[str]
    attributes: frozenset[str]
    strings: frozenset[str]
    imports: Mapping[str, str]

    @classmethod
    def of(cls, *nodes: ast.AST) -> Code:
        """All that they mention."""
        names, attributes, strings = set(), set(), set()
        imports: dict[str, str] = {}
        for node in (below for top in nodes for below in ast.walk(top)):
            match node:
                case ast.Name() | ast.Attribute():
                    names.add(dotted(node))
                    if isinstance(node, ast.Attribute):
                        attributes.add(node.attr)
                case ast.Constant(value=str(text)):
                    strings.add(text)
                case ast.Import(names=modules):
                    imports |= {it.asname or root(it.name): it.name if it.asname else root(it.name) for it in modules}
                case ast.ImportFrom(module=module, names=members, level=0):
                    imports |= {it.asname or it.name: f"{module}.{it.name}" for it in members}
        return cls(frozenset(names), frozenset(attributes), frozenset(strings), imports)


@dataclass(frozen=True, eq=False)
class Definition:
    """A module, or a member of a module or a class. ``code`` is its own, without that of its members."""

    module: str
    path: str  # "write" or "Plan.write"; empty for a module
    code: Code
    members: tuple[Definition, ...] = ()
    bases: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.module}.{self.path}" if self.path else self.module

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    def all(self) -> Iterator[Definition]:
        """It and all that it defines."""
        yield self
        for it in self.members:
            yield from it.all()


@dataclass(frozen=True)
class Package:
    """The modules of a package, programs that use it, and the words of its templates. ``imitated`` are types of other
    libraries by the names of the classes that are passed off as them."""

    modules: tuple[Definition, ...]
    users: tuple[Definition, ...] = ()
    words: frozenset[str] = frozenset()
    imitated: Mapping[str, type] = field(default_factory=dict)

    @classmethod
    def below(cls, folder: Path, *users: Path, imitated: Mapping[str, type]) -> Package:
        """The package in ``folder``, and the programs below ``users``."""
        words = (re.findall(r"\w+", it.read_text(encoding="utf-8")) for it in folder.rglob("*.html"))
        return cls(
            modules=tuple(definition(name, "", tree) for name, tree in parsed(folder)),
            users=tuple(Definition(name, "", Code.of(tree)) for it in users for name, tree in parsed(it)),
            words=frozenset(it for found in words for it in found),
            imitated=imitated,
        )

    @cached_property
    def definitions(self) -> dict[str, Definition]:
        """All modules and their members by their names in full."""
        return {str(it): it for module in (*self.modules, *self.users) for it in module.all()}

    @cached_property
    def imports(self) -> dict[str, dict[str, str]]:
        """What the names that imports bind in a module stand for, in full."""
        modules = (*self.modules, *self.users)
        return {str(it): {k: v for below in it.all() for k, v in below.code.imports.items()} for it in modules}

    @cached_property
    def found_by_looking(self) -> frozenset[str]:
        """The modules that a string names, or begins to (``f"hotlap.levers.{name}"`` names all of the folder), and
        those of a folder whose ``__path__`` is read."""
        strings = {text for it in self.definitions.values() for text in it.code.strings}
        names = ((it.module, name) for it in self.definitions.values() for name in it.code.names)
        looked_into = {
            self.meaning(module, name).removesuffix("__path__") for module, name in names if "__path__" in name
        }
        modules = {str(it) for it in self.modules}
        folders = tuple(looked_into | {it for it in strings if it.endswith(".") and it[:-1] in modules})
        return frozenset(it for it in modules if it in strings or it.startswith(folders))

    def meaning(self, module: str, name: str) -> str:
        """The name in full of what ``name``, with or without dots, stands for in a module: where it is defined."""
        first, dot, rest = name.partition(".")
        return self._home(f"{self.imports[module].get(first, f'{module}.{first}')}{dot}{rest}")

    def _home(self, name: str) -> str:
        module, _, last = name.rpartition(".")
        origin = self.imports.get(module, {}).get(last, name)  # a package may pass on what it imported
        return name if origin == name else self._home(origin)

    def foreign_bases(self, kind: Definition) -> Iterator[object]:
        """The classes of other libraries that a class is derived from, or passed off as."""
        if str(kind) in self.imitated:
            yield self.imitated[str(kind)]
        for name in (self.meaning(kind.module, it) for it in kind.bases):
            module, _, last = name.rpartition(".")
            if name in self.definitions:
                yield from self.foreign_bases(self.definitions[name])
            else:
                yield getattr(builtins if module == kind.module else importlib.import_module(module), last)


def unreached(package: Package) -> list[str]:
    """The names in full of what nothing reaches, but for members of what is not reached itself."""
    reached: set[Definition] = set()
    read = set(package.words)  # names of attributes
    fresh = {*package.modules, *package.users}
    while fresh:
        reached |= fresh
        read.update(name for it in fresh for name in it.code.attributes)
        read.update(name for it in fresh for text in it.code.strings for name in text.split("."))
        meant = {package.meaning(it.module, name) for it in fresh for name in it.code.names}
        found = {package.definitions[it] for it in meant & package.definitions.keys()}
        owned = ((owner, it) for owner in reached for it in owner.members if it not in reached)
        found.update(it for owner, it in owned if is_read(package, owner, it, read))
        fresh = found - reached
    return sorted(str(member) for it in reached for member in it.members if member not in reached)


def is_read(package: Package, owner: Definition, member: Definition, read: Collection[str]) -> bool:
    """Whether an attribute that is read may be this member, or Python or another library reads it."""
    if member.name.startswith("_") and member.name.endswith("_"):
        return True
    if not owner.path:
        return owner.module in package.found_by_looking and member.name in read
    return member.name in read or any(offers(base, member.name) for base in package.foreign_bases(owner))


def offers(base: object, name: str) -> bool:
    """Whether a library's class has that member, or calls it where there is one."""
    return hasattr(base, name) or (base is ast.NodeVisitor and hasattr(ast, name.removeprefix("visit_")))


def parsed(folder: Path) -> Iterator[tuple[str, ast.Module]]:
    """Every module below a folder, by a name in full that begins with the folder's own."""
    for path in sorted(folder.rglob("*.py")):
        name = ".".join(path.relative_to(folder.parent).with_suffix("").parts)
        yield name.removesuffix(".__init__"), ast.parse(path.read_text(encoding="utf-8"))


def definition(module: str, path: str, node: ast.Module | ast.ClassDef) -> Definition:
    """A module or a class, with its members."""
    own: list[ast.AST] = []
    members: list[Definition] = []
    prefix = f"{path}." if path else ""
    for statement in node.body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                members.append(Definition(module, prefix + name, Code.of(statement)))
            case ast.ClassDef(name=name):
                members.append(definition(module, prefix + name, statement))
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                members.append(Definition(module, prefix + name, Code.of(value)))
            case ast.AnnAssign(target=ast.Name(id=name), annotation=kind, value=ast.expr() as value) if not path:
                members.append(Definition(module, name, Code.of(kind, value)))
            case _:
                own.append(statement)
    if isinstance(node, ast.Module):
        return Definition(module, path, Code.of(*own), tuple(members))
    bases = (dotted(it.value if isinstance(it, ast.Subscript) else it) for it in node.bases)
    code = Code.of(*own, *node.decorator_list, *node.bases, *node.keywords)
    return Definition(module, path, code, tuple(members), tuple(bases))


def dotted(node: ast.AST) -> str:
    """``a.b.c``; nothing for an attribute of something else than a name."""
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value)
        return f"{owner}.{node.attr}" if owner else ""
    return node.id if isinstance(node, ast.Name) else ""


def root(name: str) -> str:
    """The first part of a name with dots."""
    return name.partition(".")[0]
