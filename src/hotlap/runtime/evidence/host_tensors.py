"""Find tensors that are created on the host: copied to a device (``torch.zeros(n).to(device)``) where they could have
been created, or read (``int(torch.randint(n, ()))``), which does not wait for a device.

This uses the user's source, at the line that copies or reads, once for each such line. Following every tensor from its
creation would require replacing torch's functions, which torch identifies by identity. Anything that the source does
not show clearly counts as data, which must be copied.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from itertools import islice
from types import CodeType
from typing import Literal, TypeAlias

from hotlap.runtime.evidence.callers import Caller

# Functions that need no data of the host. `tensor` is one of them only if its numbers are literals.
_FACTORIES = frozenset(
    {
        *("arange", "empty", "eye", "full", "hamming_window", "hann_window", "linspace", "logspace", "ones", "zeros"),
        *("normal", "rand", "randint", "randn", "randperm", "tril_indices", "triu_indices"),
    }
)
_COPIES = ("to", "cuda")
_NUMBERS = ("bool", "float", "int")
_LONGEST_FILE_LINES = 20_000
_BYTES_PER_UNIT_OF_CODE = 2

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Module, *_COMPREHENSIONS)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)

_Use: TypeAlias = Literal["copied", "read"]
_Position: TypeAlias = tuple[int | None, int | None, int | None, int | None]
"""The first and last line, and the first and last column, of an instruction."""


class HostTensors:
    """Classifies lines that copy or read; parses each of the user's files once."""

    def __init__(self) -> None:
        self._sources: dict[str, _Source | None] = {}
        # By identity of the code object, which is therefore kept alive.
        self._answers: dict[tuple[int, int], tuple[CodeType, bool]] = {}

    def made_for(self, caller: Caller, use: _Use) -> bool:
        """Whether the tensor that this call copies or reads was just created on the host."""
        if not caller.directly or caller.instruction is None:
            return False
        code, offset = caller.instruction
        key = (id(code), offset)  # one instruction either copies or reads
        known = self._answers.get(key)
        if known is None:
            known = self._answers[key] = (code, self._look_up(code, offset, use))
        return known[1]

    def _look_up(self, code: CodeType, offset: int, use: _Use) -> bool:
        position = next(islice(code.co_positions(), offset // _BYTES_PER_UNIT_OF_CODE, None), (None,) * 4)
        if code.co_filename not in self._sources:
            self._sources[code.co_filename] = _read(code.co_filename)
        source = self._sources[code.co_filename]
        return source is not None and source.uses_what_it_makes(use, position)


def _read(file: str) -> _Source | None:
    lines = linecache.getlines(file)
    if not 0 < len(lines) <= _LONGEST_FILE_LINES:
        return None
    try:
        return _Source(ast.parse("".join(lines)))
    except (SyntaxError, ValueError, RecursionError):
        return None


class _Source:
    """One file of the user's, with what it calls torch and torch's factories."""

    def __init__(self, tree: ast.Module) -> None:
        self._parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        self._modules: set[str] = set()
        self._functions: dict[str, str] = {}
        self._comparisons: dict[_Position, list[ast.expr]] = {}
        # By where they end alone: an instruction that calls a method over several lines begins at the method's name.
        self._calls: dict[tuple[_Use, int | None, int | None], ast.expr] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                self._modules.update(it.asname or it.name for it in node.names if it.name == "torch")
            elif isinstance(node, ast.ImportFrom) and node.module == "torch" and not node.level:
                self._functions.update({it.asname or it.name: it.name for it in node.names})
            elif isinstance(node, ast.Compare):
                position = (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset)
                self._comparisons[position] = [node.left, *node.comparators]
            elif isinstance(node, ast.Call) and (used := _used_by(node)) is not None:
                use, tensor = used
                self._calls[use, node.end_lineno, node.end_col_offset] = tensor

    def uses_what_it_makes(self, use: _Use, position: _Position) -> bool:
        """Whether the call or comparison there uses a tensor that one of torch's factories created on the host, in the
        same expression or just before in the same iteration of the same loop."""
        if use == "read" and position in self._comparisons:
            return any(map(self._is_made, self._comparisons[position]))
        _, end_line, _, end_column = position
        tensor = self._calls.get((use, end_line, end_column))
        return tensor is not None and self._is_made(tensor)

    def _is_made(self, node: ast.expr) -> bool:
        match node:
            case ast.Call(func=function, args=arguments) if name := self._name_in_torch(function):
                if name in _FACTORIES:
                    return not _has_device(node)
                if name == "tensor":
                    return not _has_device(node) and bool(arguments) and _is_literal(arguments[0])
                return bool(arguments) and self._is_made(arguments[0])  # torch.tril(torch.ones(n, n))
            case ast.Call(func=ast.Attribute(value=receiver, attr=attribute)):
                return attribute not in _COPIES and self._is_made(receiver)  # .unsqueeze(0)
            case ast.Attribute(value=receiver) | ast.Subscript(value=receiver) | ast.UnaryOp(operand=receiver):
                return self._is_made(receiver)
            case ast.BinOp(left=left, right=right):
                return (self._is_made(left) and _is_literal(right)) or (_is_literal(left) and self._is_made(right))
            case ast.Name():
                value = self._last_value(node)
                return value is not None and self._is_made(value)
        return False

    def _name_in_torch(self, function: ast.expr) -> str:
        """torch's own name of a function; empty for other functions."""
        match function:
            case ast.Attribute(value=ast.Name(id=module), attr=name) if module in self._modules:
                return name
            case ast.Name(id=name):
                return self._functions.get(name, "")
        return ""

    # -- names ---------------------------------------------------------------------------------

    def _last_value(self, use: ast.Name) -> ast.expr | None:
        """The value last assigned to a name in the same iteration as its use; None if that is unclear."""
        statements = [it for it in (use, *self._ancestors(use)) if isinstance(it, ast.stmt)]
        scope = self._scope(use)
        earlier = [
            self._statement(it)
            for it in ast.walk(scope)
            if isinstance(it, ast.Name) and it.id == use.id and isinstance(it.ctx, ast.Store)
            if self._scope(it) is scope and it.lineno < statements[0].lineno
        ]
        last = max(earlier, key=lambda it: it.lineno, default=None)
        if last is None or self._loop(last) is not self._loop(statements[0]):
            return None
        if not any(self._block(it) is self._block(last) for it in statements):  # perhaps in a branch not taken
            return None
        match last:
            case ast.Assign(targets=[ast.Name()], value=value) | ast.AnnAssign(target=ast.Name(), value=value):
                return value
        return None

    def _ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        while node in self._parents:
            node = self._parents[node]
            yield node

    def _scope(self, node: ast.AST) -> ast.AST:
        return next(it for it in self._ancestors(node) if isinstance(it, _SCOPES))

    def _statement(self, node: ast.AST) -> ast.stmt:
        return next(it for it in self._ancestors(node) if isinstance(it, ast.stmt))

    def _loop(self, statement: ast.stmt) -> ast.AST:
        """The innermost loop around a statement, else its function."""
        return next(it for it in self._ancestors(statement) if isinstance(it, (*_LOOPS, *_SCOPES)))

    def _block(self, statement: ast.stmt) -> object:
        """The list of statements that contains this one."""
        blocks = (getattr(self._parents[statement], name, None) for name in ("body", "orelse", "finalbody"))
        return next((it for it in blocks if isinstance(it, list) and statement in it), None)


def _used_by(call: ast.Call) -> tuple[_Use, ast.expr] | None:
    """The tensor that a call copies or reads, if any."""
    match call:
        case ast.Call(func=ast.Attribute(value=receiver, attr=name)):
            return "copied" if name in _COPIES else "read", receiver
        case ast.Call(func=ast.Name(id=name), args=[number]) if name in _NUMBERS:
            return "read", number
    return None


def _has_device(call: ast.Call) -> bool:
    """Whether the call sets the tensor's device, or may do so by ``**``."""
    return any(it.arg in (None, "device") for it in call.keywords)


def _is_literal(node: ast.expr) -> bool:
    """Whether an expression consists of literal numbers."""
    match node:
        case ast.Constant():
            return True
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return all(_is_literal(it) for it in parts)
        case ast.UnaryOp(operand=operand):
            return _is_literal(operand)
        case ast.BinOp(left=left, right=right):
            return _is_literal(left) and _is_literal(right)
    return False
