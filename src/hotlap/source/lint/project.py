"""The project around a file: the import graph of the linted files, and the files relevant to each.

Only files that train, or that are near one that trains in the graph of imports (one imports the other, or a third file
imports both), are joined with others: the files that they import, those that import them, and one step further. The
number and size of joined files are bounded. Nothing is imported; names are resolved only among the linted files.
"""

from __future__ import annotations

import ast
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hotlap.source.lint.check import TRAINING_PACKAGES, Unreadable, parsed
from hotlap.source.lint.context import Context
from hotlap.source.lint.documents import Script, read_bounded

_MOST_FILES = 8
"""The largest number of files that one file is joined with."""
_MOST_BYTES = 200_000
"""Their largest total size."""
_MOST_IMPORTERS = 6
"""The largest number of examined files that import the same one; those that train come first."""
_DEEPEST = 4
_KEPT = 96
"""The number of parsed files kept for the next file."""

_IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n#;]*)|import[ \t]+([\w., \t]+))", re.MULTILINE
)
_AT_STAKE = re.compile(
    rb"\.(?:item|tolist|cpu|numpy)\(\)|isnan|isinf|isfinite|empty_cache|synchronize\(|\+= *\w*loss"
    rb"|append\(.*loss|\* *loss|float\(|torch\.compile|print\(|\.to\(|> *loss|loss *>"
)
"""Names that appear in violations across files: a file without any of them need not be joined."""
_HELPS = re.compile(rb"loss|criterion|model|\bnn\.", re.IGNORECASE)
"""Names in a file that may explain another one: those of its losses and models."""
_TRAINS = re.compile(rb"\.backward\(|def training_step\b|\.manual_backward\(")


@dataclass(frozen=True, slots=True)
class _Import:
    """``from module import names``, or ``import module`` without names; dots count the level."""

    module: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _File:
    """The graph's data about a file."""

    path: Path
    size: int
    trains: bool
    at_stake: bool
    helps: bool
    imports: tuple[_Import, ...]


class Project:
    """The import graph of some files."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._shown: dict[Path, Path] = {}
        self._files: dict[Path, _File] = {}
        for file in files:
            if file.suffix == ".py":
                self._shown[file.absolute()] = file
        sources = {path: _source(path) for path in self._shown}
        if any(_TRAINS.search(it) for it in sources.values()):
            self._files = {path: _scanned(path, source) for path, source in sources.items()}
        self._modules = Modules(self._files)
        self._imported: dict[Path, tuple[Path, ...]] = {it: tuple(self._targets(it)) for it in self._files}
        self._importers: dict[Path, list[Path]] = {}
        for path, targets in self._imported.items():
            for it in targets:
                self._importers.setdefault(it, []).append(path)

    def around(self, file: Path) -> tuple[Path, ...]:
        """The files to join a file with, the nearest first; none if nothing near it trains."""
        path = file.absolute()
        own = self._files.get(path)
        if own is None or not own.at_stake:
            return ()
        imported, importers = self._imported[path], self._importers_of(path)
        siblings = [other for it in importers for other in self._imported[it]]
        if not any(self._files[it].trains for it in (path, *importers, *imported, *siblings)):
            return ()
        further = [other for it in importers for other in self._importers_of(it)] + siblings
        helping = [it for it in (*imported, *further) if self._files[it].trains or self._files[it].helps]
        passing = [it for it in imported if it.name == "__init__.py"]
        return tuple(self._shown[it] for it in self._within_bounds(path, [*importers, *helping, *passing]))

    def _within_bounds(self, path: Path, wanted: Sequence[Path]) -> Iterator[Path]:
        """So many of them, those that train first."""
        found, size = 0, 0
        for it in sorted(dict.fromkeys(wanted), key=lambda it: not self._files[it].trains):
            if it == path or size + self._files[it].size > _MOST_BYTES:
                continue
            if found == _MOST_FILES:
                return
            found, size = found + 1, size + self._files[it].size
            yield it

    def _importers_of(self, path: Path) -> list[Path]:
        found = sorted(self._importers.get(path, ()), key=lambda it: (not self._files[it].trains, it))
        return found[:_MOST_IMPORTERS]

    # -- resolving --------------------------------------------------------------------------------

    def _targets(self, path: Path) -> Iterator[Path]:
        """The files that a file imports, through packages that only re-export names."""
        for it in self._files[path].imports:
            yield from (found for found in self._of_import(path, it, _DEEPEST) if found != path)

    def _of_import(self, path: Path, wanted: _Import, depth: int) -> Iterator[Path]:
        found = self._modules.file(path, wanted.module)
        for name in wanted.names:
            separator = "" if wanted.module.endswith(".") else "."
            submodule = self._modules.file(path, f"{wanted.module}{separator}{name}")
            if submodule is not None:
                yield submodule
            elif found is not None and found.name == "__init__.py" and depth:
                for it in self._files[found].imports:
                    if name in it.names:
                        yield from self._of_import(found, _Import(it.module, (name,)), depth - 1)
        if found is not None:
            yield found


class Modules:
    """Map module names to files, for every possible root of the module search."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._files = {str(it): it for it in files}
        self._names = {it.parent.name if it.name == "__init__.py" else it.stem for it in self._files.values()}

    def file(self, path: Path, module: str) -> Path | None:
        """The file of a module that the file at ``path`` imports: from the nearest folder that has it."""
        name = module.lstrip(".")
        level = len(module) - len(name)
        parts = name.split(".") if name else []
        if parts and parts[-1] not in self._names:
            return None
        if level:
            roots = [str(it) for it in path.parents[level - 1 : level]]
        elif not parts or parts[0] in TRAINING_PACKAGES:
            return None
        else:
            roots = [base for it in path.parents for base in (str(it).rstrip("/"), f"{str(it).rstrip('/')}/src")]
        for root in roots:
            place = "/".join((root, *parts))
            found = self._files.get(f"{place}.py") or self._files.get(f"{place}/__init__.py")
            if found is not None and found != path:
                return found
        return None


class Parsed:
    """A cache of the last files parsed for joining."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Path, Context | None] = OrderedDict()

    def context(self, path: Path) -> Context | None:
        """Parse a file; None if it cannot be read or parsed."""
        if path in self._kept:
            self._kept.move_to_end(path)
            return self._kept[path]
        try:
            text = Script(read_bounded(path)).text
            found: Context | None = Context(parsed(text), text)
        except (Unreadable, RecursionError):
            found = None
        self._kept[path] = found
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return found


class Around:
    """The files around one file, read when a rule first looks at them."""

    def __init__(self, file: Path, others: Sequence[Path], parsed_files: Parsed) -> None:
        self._file = file
        self._others = others
        self._parsed = parsed_files
        self._modules: dict[ast.Module, Path] = {}
        self._by_path: dict[Path, ast.Module] = {}
        self._names = Modules(())
        self._links: dict[tuple[ast.Module, str], tuple[ast.Module, str] | None] = {}

    @property
    def is_empty(self) -> bool:
        """Whether there are no surrounding files."""
        return not self._others

    def join(self, context: Context) -> Context:
        """As in :class:`hotlap.source.lint.check.Surroundings`."""
        found = {it: other for it in self._others if (other := self._parsed.context(it)) is not None}
        if not found:
            return context
        self._modules = {context.tree.module: self._file}
        self._modules |= {it.tree.module: path for path, it in found.items()}
        self._by_path = {path.absolute(): module for module, path in self._modules.items()}
        self._names, self._links = Modules(self._by_path), {}
        return context.joined(list(found.values()), self._link)

    def file_of(self, module: ast.Module) -> str:
        """As in :class:`hotlap.source.lint.check.Surroundings`."""
        return str(self._modules[module])

    def _link(self, module: ast.Module, name: str) -> tuple[ast.Module, str] | None:
        if (module, name) not in self._links:
            self._links[module, name] = self._resolved(module, name)
        return self._links[module, name]

    def _resolved(self, module: ast.Module, name: str) -> tuple[ast.Module, str] | None:
        path = self._modules[module].absolute()
        dots = name[: len(name) - len(name.lstrip("."))]
        parts = name.lstrip(".").split(".")
        for count in range(len(parts) - 1, -1, -1):
            stem = dots + ".".join(parts[:count])
            found = self._names.file(path, stem) if stem else None
            if found is not None:
                return (self._by_path[found], parts[count]) if count == len(parts) - 1 else None
        return None


def _source(path: Path) -> bytes:
    try:
        return read_bounded(path)
    except Unreadable:
        return b""


def _scanned(path: Path, source: bytes) -> _File:
    imports: list[_Import] = []
    for found in _IMPORT.finditer(source):
        module, names, plain = (it.decode("ascii", "ignore") if it else "" for it in found.groups())
        if plain:
            imports += (_Import(it.split()[0]) for it in plain.split(",") if it.split())
        elif module:
            listed = (it.split() for it in re.sub(r"#[^\n]*", "", names).strip("()\\ \t\n").split(","))
            imports.append(_Import(module, tuple(it[0] for it in listed if it and it[0].isidentifier())))
    ours = (it for it in dict.fromkeys(imports) if it.module.partition(".")[0] not in TRAINING_PACKAGES)
    trains, at_stake, helps = (it.search(source) is not None for it in (_TRAINS, _AT_STAKE, _HELPS))
    return _File(path, len(source), trains, at_stake, helps, tuple(ours))
