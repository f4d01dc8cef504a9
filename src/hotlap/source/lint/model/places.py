"""The places of tensors: certainly on the host, or on a requested device."""

from __future__ import annotations

import ast
from typing import Literal, TypeAlias

from hotlap.source.lint.model import torch_names as known
from hotlap.source.lint.model.names import Binding, Names

Place: TypeAlias = Literal["host", "device"]
_DEEPEST = 25


class Places:
    """Places of the tensors of one file."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def place(self, expression: ast.expr | None) -> Place | None:
        """Whether a tensor is on the host or on a requested device; None if unknown."""
        return self._place(expression, _DEEPEST)

    def _place(self, node: ast.expr | None, depth: int) -> Place | None:
        if node is None or depth == 0:
            return None
        depth -= 1
        match node:
            case ast.Constant():
                return "host"
            case ast.Name():
                places = {self._of_binding(it, depth) for it in self._names.reaching(node)}
                return places.pop() if len(places) == 1 else None
            case ast.Call(func=ast.Attribute(value=base, attr=method)) if self._names.qualified_name(node.func) is None:
                if method in known.MOVES_TO_DEVICE:
                    return "device"
                if method in ("cpu", "numpy", "tolist", "item"):
                    return "host"
                if method == "to" and not self._names_a_type_alone(node):
                    return None
                return None if method in ("type_as", "new_tensor") else self._place(base, depth)
            case ast.Call():
                return self._place_of_call(node, depth)
            case ast.BinOp(left=left, right=right) | ast.Compare(left=left, comparators=[right]):
                places = {self._place(left, depth), self._place(right, depth)}
                return "device" if "device" in places else "host" if places == {"host"} else None
            case ast.Subscript(value=value) | ast.UnaryOp(operand=value) | ast.Attribute(value=value):
                return self._place(value, depth)
        return None

    def _of_binding(self, binding: Binding, depth: int) -> Place | None:
        if binding.how == "assign":
            return self._place(binding.value, depth)
        return self._of_element(binding.value, binding.index, depth) if binding.how == "loop" else None

    def _of_element(self, over: ast.expr | None, index: tuple[int, ...], depth: int) -> Place | None:
        """The place of the elements of a tensor that a loop runs over, also through ``zip`` and ``enumerate``."""
        if not isinstance(over, ast.Call):
            return self._place(over, depth) if not index else None
        name = self._names.qualified_name(over.func)
        match index:
            case (0, *_) if name == "builtins.enumerate":
                return "host"
            case (1, *inner) if name == "builtins.enumerate" and over.args:
                return self._of_element(over.args[0], tuple(inner), depth)
            case (number, *inner) if name == "builtins.zip" and not any(
                isinstance(it, ast.Starred) for it in over.args
            ):
                return self._of_element(over.args[number], tuple(inner), depth) if number < len(over.args) else None
            case ():
                return self._place(over, depth)
        return None

    def _names_a_type_alone(self, call: ast.Call) -> bool:
        """Whether ``.to(...)`` changes the type and not the device."""
        given = [*call.args, *(it.value for it in call.keywords if it.arg == "dtype")]
        if len(given) != 1 or len(call.args) + len(call.keywords) != 1:
            return False
        module, _, last = (self._names.qualified_name(given[0]) or "").rpartition(".")
        return module == "torch" and last in known.TYPES

    def _place_of_call(self, call: ast.Call, depth: int) -> Place | None:
        name = self._names.qualified_name(call.func) or ""
        module, _, last = name.rpartition(".")
        if module != "torch":
            return None
        if last in known.CREATORS:
            if any(it.arg is None for it in call.keywords):
                return None
            device = next((it.value for it in call.keywords if it.arg == "device"), None)
            if device is not None:
                cpu = isinstance(device, ast.Constant) and device.value in ("cpu", None)
                return "host" if cpu else "device"
            if last in ("tensor", "as_tensor", "asarray", "normal"):
                # as_tensor of a tensor on a device leaves it there.
                return self._place(call.args[0], depth) if call.args else None
            return "host"
        if last in known.OPERATIONS and call.args:
            return self._place(call.args[0], depth)
        return None
