"""Devices in the source, and the copies of tensors to devices."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from hotlap.source.lint.model.calls import Calls
from hotlap.source.lint.model.names import Binding, Names

Device: TypeAlias = Literal["accelerator", "some", "host"]
"""``accelerator``: one, at least if the machine has it. ``some``: a device that is chosen elsewhere. ``host``:
certainly the processor's memory."""

ACCELERATORS = frozenset({"cuda", "mps", "xpu", "hpu", "npu", "mtia"})
_COPYING = ("to", *sorted(ACCELERATORS))
_DEVICE_NAME = re.compile(r"(^|_)(device|dev|gpu|cuda|(local_)?rank)(_?(id|idx|index|\d+))?$")
_CURRENT = frozenset(
    {"torch.accelerator.current_accelerator", "torch.accelerator.current_device_index"}
    | {f"torch.{it}.current_device" for it in ACCELERATORS}
)
_DEEPEST = 10


@dataclass(frozen=True, slots=True, eq=False)
class Copy:
    """A call that puts a tensor, or a module, on a device and changes nothing else about it.

    ``device`` is its argument; None for ``x.cuda()``, which uses the current one. ``non_blocking`` is the argument's
    value; None if it is not passed.
    """

    call: ast.Call
    tensor: ast.expr
    device: ast.expr | None
    target: Device
    non_blocking: ast.expr | None


class Devices:
    """The devices of one file."""

    def __init__(self, names: Names, calls: Calls) -> None:
        self._names = names
        self._calls = calls
        self._known: dict[tuple[ast.expr, int], Device | None] = {}

    def target(self, expression: ast.expr | None) -> Device | None:
        """The kind of device an expression names; None if unknown, or not a device, such as a type."""
        return self._target(expression, _DEEPEST)

    @cached_property
    def copies(self) -> Sequence[Copy]:
        """All calls that copy to a device and convert to no other type: ``x.to(device)``, ``x.cuda()``."""
        return tuple(self._find())

    def uses_in(self, function: ast.AST) -> Iterator[ast.Call]:
        """The calls in a function that put a tensor on a device, or make one there, in source order.

        Calls that name another tensor's device are excluded: it may be the host.
        """
        copies = {it.call for it in self.copies if it.target != "host" and not _of_a_tensor(it.device)}
        for call in (it for it in ast.walk(function) if isinstance(it, ast.Call)):
            name = self._names.qualified_name(call.func) or ""
            device = next((it.value for it in call.keywords if it.arg == "device"), None)
            made = name.startswith("torch.") and self.target(device) in ("accelerator", "some")
            if call in copies or (made and not _of_a_tensor(device)):
                yield call

    def _find(self) -> Iterator[Copy]:
        for call, function in self._calls.methods(*_COPYING):
            if self._names.qualified_name(function) is not None:
                continue  # a function of a module, such as torch.cuda
            if any(isinstance(it, ast.Starred) for it in call.args) or any(it.arg is None for it in call.keywords):
                continue
            keywords = {it.arg: it.value for it in call.keywords}
            positions: list[ast.expr] = list(call.args)
            non_blocking = keywords.pop("non_blocking", None)
            if function.attr != "to" and len(positions) == 2 and non_blocking is None:
                non_blocking = positions.pop()
            device = positions.pop(0) if positions else keywords.pop("device", None)
            if positions or keywords or (device is None and function.attr == "to"):
                continue
            target = self.target(device) if device is not None or function.attr == "to" else "accelerator"
            if function.attr != "to":
                target = "accelerator"
            if target is not None:
                yield Copy(call, function.value, device, target, non_blocking)

    def _target(self, node: ast.expr | None, depth: int) -> Device | None:
        """Visit each expression once per depth: functions that pass a device on to each other lead to the same few
        expressions on very many paths."""
        if node is None or depth == 0:
            return None
        if (node, depth) not in self._known:
            self._known[node, depth] = self._found(node, depth - 1)
        return self._known[node, depth]

    def _found(self, node: ast.expr, depth: int) -> Device | None:
        match node:
            case ast.Constant(value=str() as text):
                return _named(text)
            case ast.JoinedStr(values=[ast.Constant(value=str() as text), *_]):
                return _named(text)
            case ast.Constant(value=bool() | None):
                return None
            case ast.Constant(value=int()):
                return "accelerator"
            case ast.IfExp(body=body, orelse=orelse):
                return _either([self._target(body, depth), self._target(orelse, depth)])
            case ast.BoolOp(values=values):
                return _either([self._target(it, depth) for it in values])
            case ast.Name(id=word):
                bindings = self._names.reaching(node)
                if bindings and all(it.how == "import" for it in bindings):
                    return None
                bound = [self._of_binding(it, depth) for it in bindings]
                return _either(bound) if any(bound) else _by_word(word)
            case ast.Attribute(attr=word):
                if self._names.qualified_name(node) is not None:
                    return None
                found = [self._target(it, depth) for it in self._calls.attribute_values(node)]
                return _either(found) if any(found) else _by_word(word)
            case ast.Call():
                return self._of_call(node, depth)
        return None

    def _of_binding(self, binding: Binding, depth: int) -> Device | None:
        if binding.how == "assign":
            return self._target(binding.value, depth)
        if isinstance(binding.node, ast.arg):
            return _either([self._target(it, depth) for it in self._calls.given_to(binding.node)])
        return None

    def _of_call(self, call: ast.Call, depth: int) -> Device | None:
        name = self._names.qualified_name(call.func) or ""
        if name == "torch.device":
            given = call.args[0] if call.args else next((it.value for it in call.keywords), None)
            return self._target(given, depth) or "some"
        if name in _CURRENT:
            return "accelerator"
        definition = self._calls.callee(call)
        if definition is not None:
            return _either([self._target(it, depth) for it in self._calls.returns(definition)])
        last = name.rpartition(".")[2] or (call.func.attr if isinstance(call.func, ast.Attribute) else "")
        return "some" if last in ("get_device", "get_default_device", "select_device") else None


def _of_a_tensor(device: ast.expr | None) -> bool:
    match device:
        case ast.Attribute(value=ast.Name(id=word), attr="device"):
            return word != "self"
    return False


def _named(text: str) -> Device | None:
    root = text.partition(":")[0]
    return "accelerator" if root in ACCELERATORS else "host" if root in ("cpu", "meta") else None


def _by_word(word: str) -> Device | None:
    return "some" if _DEVICE_NAME.search(word) else None


def _either(found: list[Device | None]) -> Device | None:
    """The kind of several alternatives: an accelerator if one of them is."""
    for device in ("accelerator", "some", "host"):
        if device in found:
            mixed = device == "host" and None in found
            return None if mixed else device
    return None
