"""Find the lines that run only with an accelerator, from the source.

A *question* is an expression that names a kind of accelerator or its driver: a name, an attribute or a string with the
word cuda, mps, xpu, hip, nvml, accelerator or device events in it. A branch is a device's if it is taken only when such
a question is true: the body of an ``if`` (or of a conditional loop) that tests one, the ``else`` of one that is negated
or compared with "cpu" or None, and what follows such a branch that leaves the block. So is a statement that calls a
device (``torch.cuda.stream``, ``nvmlDeviceGetName``) and does not only test whether there is one, and the body of a
function that takes a driver's handle. A function or class is a device's if its name is unique and
everything that refers to it is. Branches of ``source/`` do not count: there "cuda" is a word in somebody's text.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2] / "src" / "hotlap"
LEFT_OUT = ("source", "demo")

_WORD = re.compile(
    r"(^|_|\b|\.)(cuda|mps|xpu|hip|nvml|pynvml|accelerators?|follows_device|timed_events)(_|\b|$)"
    r"|is_cuda|on_accelerator"
)
_CALLED = re.compile(r"^(torch\.|self\._|hooks\.torch\.|self\._torch\.)?_?(cuda|mps|xpu)\.|nvmlDevice")
_QUESTIONS = re.compile(r"is_(available|initialized|built|compiled|current_stream_capturing)|device_count|amp")
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_NEGATIVE = ("cpu", "", None)

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def device_lines(sources: Path = SOURCES) -> dict[str, set[int]]:
    """The lines of every file that has any, by the file's path below ``sources``."""
    trees = {
        path.relative_to(sources).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(sources.rglob("*.py"))
        if path.relative_to(sources).parts[0] not in LEFT_OUT
    }
    blocks = {name: list(_branches(tree)) for name, tree in trees.items()}
    found = {name: {line for it in of_file for line in _lines(it)} for name, of_file in blocks.items()}
    for name, tree in trees.items():
        found[name] |= set(_calling(tree))
    definitions = [(name, it) for name, tree in trees.items() for it in ast.walk(tree) if isinstance(it, Function)]
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
                found[name] |= _lines(it.body)
                candidates.remove((name, it))
                grown = True
    return {name: lines for name, lines in found.items() if lines}


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
    """Statements that call a device, and functions that take a handle."""
    for it in ast.walk(tree):
        if isinstance(it, ast.FunctionDef) and any(one.arg == "handle" for one in it.args.args):
            yield from _lines(it.body)
        if isinstance(it, ast.Call):
            called = ast.unparse(it.func)
            if _CALLED.search(called) and not _QUESTIONS.search(called):
                yield it.lineno


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


def _lines(block: Sequence[ast.stmt]) -> set[int]:
    """The lines on which something of these statements runs: where each statement begins, without docstrings."""
    statements = (it for statement in block for it in ast.walk(statement) if isinstance(it, ast.stmt))
    return {it.lineno for it in statements if not _is_silent(it)}


def _is_silent(statement: ast.stmt) -> bool:
    """Whether nothing runs: a docstring, a declaration."""
    is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_text or isinstance(statement, ast.Global | ast.Nonlocal | ast.Pass)
