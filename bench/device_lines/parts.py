"""The parts of hotlap that must have run somewhere: its levers, rules, collectors of evidence and phases, each with the
statements that show it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from bench.device_lines.branches import SOURCES, expressions_of
from hotlap.records import Ceilings

_INSTALLING = ("install", "environment", "build", "_build")
"""The functions of a lever that apply it."""

Ran = Mapping[str, Set[int]]
"""Lines by file."""

CEILINGS = tuple(it for it in Ceilings.__struct_fields__ if it not in ("other_load", "doubts", "threads"))
"""The rates; the other fields say how reliable they are."""


@dataclass(frozen=True)
class Part:
    """It ran where any line of its ``statements`` did."""

    kind: str
    name: str
    statements: dict[str, frozenset[int]]

    def ran(self, lines: Ran) -> bool:
        """Whether one of its statements is among these lines."""
        return any(own & lines.get(file, frozenset()) for file, own in self.statements.items())


def parts(sources: Path = SOURCES) -> list[Part]:
    """All of them, in the order of the table."""
    return [*_levers(sources), *_rules(sources), *_collectors(sources), *_phases(sources)]


def _levers(sources: Path) -> Iterator[Part]:
    """A lever ran where it was installed, or where an engine built the model."""
    for path in sorted(sources.glob("levers/*/*.py")):
        tree = _tree(path)
        if any(isinstance(it, ast.FunctionDef) and it.name == "obstacle" for it in tree.body):
            lines = _lines(tree, lambda it: isinstance(it, ast.FunctionDef) and it.name in _INSTALLING)
            yield Part("lever", path.stem.replace("_", "-"), {_name(path, sources): lines})


def _rules(sources: Path) -> Iterator[Part]:
    """A rule ran where it made a finding."""
    for path in sorted(sources.glob("diagnose/rules/*.py")):
        if path.stem == "__init__":
            continue
        tree = _tree(path)
        made = {
            line
            for it in ast.walk(tree)
            if isinstance(it, ast.Call) and isinstance(it.func, ast.Name) and it.func.id == "Finding"
            for line in range(it.lineno, (it.end_lineno or it.lineno) + 1)
        }
        yield Part("rule", path.stem.replace("_", "-"), {_name(path, sources): frozenset(made)})


def _collectors(sources: Path) -> Iterator[Part]:
    """A collector ran where it gave its result."""
    for path in sorted(sources.glob("runtime/evidence/*.py")):
        for it in _tree(path).body:
            if isinstance(it, ast.ClassDef) and it.name not in ("Collector", "Counter") and it.name[0] != "_":
                lines = _lines(it, lambda one: isinstance(one, ast.FunctionDef) and one.name == "result")
                if lines:
                    yield Part("evidence", it.name, {_name(path, sources): lines})


def _phases(sources: Path) -> Iterator[Part]:
    """A phase ran where time was attributed to it."""
    stopwatch = _tree(sources / "runtime" / "stopwatch.py")
    users = [it for it in sorted((sources / "runtime").glob("*.py")) if it.stem != "stopwatch"]
    for phase in _phase_names(stopwatch):
        uses = {
            _name(path, sources): frozenset(
                it.lineno
                for it in ast.walk(_tree(path))
                if isinstance(it, ast.stmt)
                and any(isinstance(one, ast.Name) and one.id == phase for one in expressions_of(it))
            )
            for path in users
        }
        yield Part("phase", phase.lower().replace("_", "-"), {file: lines for file, lines in uses.items() if lines})


def _phase_names(stopwatch: ast.Module) -> list[str]:
    """The constants that stand for phases: what is assigned before the phases' names are."""
    names: list[str] = []
    for it in stopwatch.body:
        if isinstance(it, ast.AnnAssign) and isinstance(it.target, ast.Name) and it.target.id == "PHASE_NAMES":
            return names
        if isinstance(it, ast.Assign):
            names += [one.id for target in it.targets for one in ast.walk(target) if isinstance(one, ast.Name)]
    raise LookupError("The stopwatch has no phases.")


def _lines(tree: ast.AST, is_wanted: Callable[[ast.AST], bool]) -> frozenset[int]:
    """The lines of the bodies of these functions."""
    return frozenset(
        line
        for it in ast.walk(tree)
        if isinstance(it, ast.FunctionDef) and is_wanted(it)
        for statement in it.body
        for line in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
    )


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _name(path: Path, sources: Path) -> str:
    return path.relative_to(sources).as_posix()
