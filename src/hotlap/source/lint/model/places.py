"""Where tensors lie: on the host for sure, or on whatever device was asked for."""

from __future__ import annotations

import ast
from typing import Literal, TypeAlias

from hotlap.source.lint.model import torch_names as known
from hotlap.source.lint.model.names import Names

Place: TypeAlias = Literal["host", "device"]
_DEEPEST = 25


class Places:
    """Places of the tensors of one file."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def place(self, expression: ast.expr | None) -> Place | None:
        """Whether a tensor is known to lie on the host, or on whatever device was asked for; None where unknown."""
        return self._place(expression, _DEEPEST)

    def _place(self, node: ast.expr | None, depth: int) -> Place | None:
        if node is None or depth == 0:
            return None
        depth -= 1
        match node:
            case ast.Constant():
                return "host"
            case ast.Name():
                places = {
                    self._place(it.value, depth) if it.how == "assign" else None for it in self._names.reaching(node)
                }
                return places.pop() if len(places) == 1 else None
            case ast.Call(func=ast.Attribute(value=base, attr=method)) if self._names.qualified_name(node.func) is None:
                if method in known.MOVES_TO_DEVICE:
                    return "device"
                if method in ("cpu", "numpy", "tolist", "item"):
                    return "host"
                # .to(...) may name a device or only a type; what it names is not looked into.
                return None if method in ("to", "type_as", "new_tensor") else self._place(base, depth)
            case ast.Call():
                return self._place_of_call(node, depth)
            case ast.BinOp(left=left, right=right):
                places = {self._place(left, depth), self._place(right, depth)}
                return "device" if "device" in places else "host" if places == {"host"} else None
            case ast.Subscript(value=value) | ast.UnaryOp(operand=value) | ast.Attribute(value=value):
                return self._place(value, depth)
        return None

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
