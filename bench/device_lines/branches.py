"""Find the lines that run only with an accelerator, from the source.

A *question* is an expression that names a kind of accelerator or its driver: a name, an attribute or a string with the
word cuda, mps, xpu, hip, rocm, nvml, nccl, accelerator or device events in it. These lines are a device's:

- branches that are taken only when a question is true: the body of an ``if`` (or of a conditional loop) that tests one,
  the ``else`` of one that is negated or compared with "cpu" or None, and what follows such a branch that leaves the
  block;
- statements that call a device (``torch.cuda.stream``, ``nvmlDeviceGetName``) and do not only test whether there is
  one, and the bodies of functions that take a driver's handle;
- the functions, classes and files that ``named.py`` lists: code that exists for devices and that no question guards, as
  a stopwatch that is made of events on a stream, or the parser of a driver's answers;
- functions and classes to which only lines of a device refer, if their name is unique.

What is AMD's and Apple's is named there too. It is counted by itself: nothing here simulates these. ``source/`` and
``traces/`` do not count: there "cuda" is a word in somebody's text, and traces of devices are read on any machine.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench.device_lines.named import DEVICE_CODE, ELSEWHERE, Definition, bodies_of, named_bodies

SOURCES = Path(__file__).resolve().parents[2] / "src" / "hotlap"
LEFT_OUT = ("source", "traces", "demo")

_WORD = re.compile(
    r"(^|_|\b|\.)(cuda|mps|xpu|hip|rocm|nvml|pynvml|nccl|accelerators?|follows_device|timed_events)(_|\b|$)"
    r"|is_cuda|on_accelerator"
)
_CALLED = re.compile(r"^(torch\.|self\._|hooks\.torch\.|self\._torch\.)?_?(cuda|mps|xpu)\.|nvmlDevice")
_QUESTIONS = re.compile(r"is_(available|initialized|built|compiled|current_stream_capturing)|device_count|amp")
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_NEGATIVE = ("cpu", "", None)

Named = Mapping[str, tuple[str, ...]]


def device_lines(sources: Path = SOURCES, named: Named = DEVICE_CODE) -> dict[str, set[int]]:
    """The lines of every file that has any, by the file's path below ``sources``; without those of
    :func:`lines_elsewhere`."""
    trees = _trees(sources)
    found = {name: {line for it in _branches(tree) for line in lines_of(it)} for name, tree in trees.items()}
    for name, tree in trees.items():
        found[name] |= set(_calling(tree))
    for name, names in named.items():
        if name in trees:
            found[name] |= {line for body in named_bodies(trees[name], names, name) for line in lines_of(body)}
    _add_what_only_they_use(trees, found)
    for (name, _), lines in lines_elsewhere(sources).items():
        found[name] -= lines
    return {name: lines for name, lines in found.items() if lines}


def lines_elsewhere(sources: Path = SOURCES) -> dict[tuple[str, str], set[int]]:
    """By file and function, the lines for devices that cannot be simulated here."""
    trees = {file: _tree(sources / file) for file in ELSEWHERE if (sources / file).exists()}
    return {
        (file, name): {line for body in named_bodies(tree, (name,), file) for line in lines_of(body)}
        for file, tree in trees.items()
        for name in ELSEWHERE[file]
    }


def _trees(sources: Path) -> dict[str, ast.Module]:
    return {
        path.relative_to(sources).as_posix(): _tree(path)
        for path in sorted(sources.rglob("*.py"))
        if path.relative_to(sources).parts[0] not in LEFT_OUT
    }


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _add_what_only_they_use(trees: dict[str, ast.Module], found: dict[str, set[int]]) -> None:
    """Add functions and classes to which only lines that were found refer, until there are no more."""
    definitions = [(name, it) for name, tree in trees.items() for it in ast.walk(tree) if isinstance(it, Definition)]
    unique = Counter(it.name for _, it in definitions)
    candidates = [(name, it) for name, it in definitions if unique[it.name] == 1 and not it.name.startswith("__")]
    references = _references(trees)
    grown = True
    while grown:
        grown = False
        for name, it in list(candidates):
            own = range(it.lineno, (it.end_lineno or it.lineno) + 1)
            others = [at for at in references.get(it.name, ()) if at[0] != name or at[1] not in own]
            if others and all(line in found[file] for file, line in others):
                found[name] |= {line for body in bodies_of(it) for line in lines_of(body)}
                candidates.remove((name, it))
                grown = True


def _references(trees: dict[str, ast.Module]) -> dict[str, list[tuple[str, int]]]:
    """Where a name is used, other than to import it."""
    found: dict[str, list[tuple[str, int]]] = {}
    for file, tree in trees.items():
        for it in ast.walk(tree):
            name = it.id if isinstance(it, ast.Name) else it.attr if isinstance(it, ast.Attribute) else None
            if name is not None:
                found.setdefault(name, []).append((file, it.lineno))
    return found


def _branches(tree: ast.AST) -> Iterator[Sequence[ast.stmt]]:
    for it in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(it, field, None)
            if isinstance(block, list):
                yield from _after_leaving(block)
        if isinstance(it, ast.If | ast.While):
            if _means_device(it.test, True):
                yield it.body
            if _means_device(it.test, False):
                yield it.orelse


def _calling(tree: ast.AST) -> Iterator[int]:
    """Statements that call a device, and functions that take a handle where the driver's library is imported."""
    imported = {one.name for it in ast.walk(tree) if isinstance(it, ast.Import) for one in it.names}
    for it in ast.walk(tree):
        takes_handle = isinstance(it, ast.FunctionDef) and any(one.arg == "handle" for one in it.args.args)
        if isinstance(it, ast.FunctionDef) and takes_handle and "pynvml" in imported:
            yield from lines_of(it.body)
        if isinstance(it, ast.stmt) and any(_calls_device(one) for one in expressions_of(it)):
            yield it.lineno


def expressions_of(statement: ast.AST) -> Iterator[ast.expr]:
    """Those that a statement evaluates itself, without those of the statements within it."""
    for it in ast.iter_child_nodes(statement):
        if isinstance(it, ast.expr):
            yield it
        if not isinstance(it, ast.stmt | ast.excepthandler | ast.match_case):
            yield from expressions_of(it)


def _calls_device(expression: ast.expr) -> bool:
    if not isinstance(expression, ast.Call):
        return False
    called = ast.unparse(expression.func)
    return _CALLED.search(called) is not None and _QUESTIONS.search(called) is None


def _after_leaving(block: list[ast.stmt]) -> Iterator[Sequence[ast.stmt]]:
    for at, it in enumerate(block):
        leaves = isinstance(it, ast.If) and not it.orelse and isinstance(it.body[-1], _LEAVES)
        if leaves and _means_device(it.test, False):
            yield block[at + 1 :]


def _means_device(test: ast.expr, answer: bool) -> bool:
    """Whether this answer to a test is given only where there is an accelerator."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _means_device(test.operand, not answer)
    if isinstance(test, ast.BoolOp):
        parts = [_means_device(it, answer) for it in test.values]
        return any(parts) if isinstance(test.op, ast.And) == answer else all(parts)
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _compares(test, answer)
    return answer and _asks(test)


def _compares(test: ast.Compare, answer: bool) -> bool:
    (operator,), (right,) = test.ops, test.comparators
    is_equal = isinstance(operator, ast.Eq | ast.Is | ast.In)
    if not isinstance(operator, ast.Eq | ast.Is | ast.In | ast.NotEq | ast.IsNot | ast.NotIn):
        return answer and _asks(test.left)  # a number of accelerators
    if isinstance(right, ast.Constant) and right.value in _NEGATIVE:
        return is_equal != answer and (_asks(test.left) or (right.value == "cpu" and not _asks(right)))
    return is_equal == answer and (_asks(right) or _asks(test.left))


def _asks(expression: ast.expr) -> bool:
    for it in ast.walk(expression):
        word = it.id if isinstance(it, ast.Name) else it.attr if isinstance(it, ast.Attribute) else None
        if word is None and isinstance(it, ast.Constant) and isinstance(it.value, str):
            word = it.value
        if word is not None and _WORD.search(word.lower()):
            return True
    return False


def lines_of(block: Sequence[ast.stmt]) -> set[int]:
    """The lines on which something of these statements runs: where each statement begins, without docstrings."""
    statements = (it for statement in block for it in ast.walk(statement) if isinstance(it, ast.stmt))
    return {it.lineno for it in statements if not _is_silent(it)}


def _is_silent(statement: ast.stmt) -> bool:
    """Whether nothing runs: a docstring, a declaration."""
    is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_text or isinstance(statement, ast.Global | ast.Nonlocal | ast.Pass)
