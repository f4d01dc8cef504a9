"""Tensors without data: shapes, types and storages that take no memory.

``torch._subclasses.fake_tensor`` is private; it is used here and nowhere else. What a program reads from such a tensor
is 1, or 0 where a gradient scaler looks for infinities. oneDNN's recurrent kernel chooses the size of its workspace
when it runs, and torch's meta function returns an empty one, so the kernel is run on a short sequence of zeros.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map_only

_READS = torch.ops.aten._local_scalar_dense.default
_LOOKS = (torch.ops.aten.equal.default, torch.ops.aten.allclose.default)
_RECURRENT = getattr(torch.ops.aten, "mkldnn_rnn_layer", None)
_WORKSPACE, _TRAIN = 3, 15
"""Where the kernel's results have the workspace, and its arguments whether it trains."""
_SHORT, _LONG = 16, 32
"""Steps of a sequence that are run; the workspace of a longer one follows, as it has an equal part for each step."""

_SCALER = "grad_scaler.py"
_FRAMES = 6


class Fakes:
    """Turns tensors into fake ones; whatever is computed from one is fake, and everything else stays real."""

    def __init__(self) -> None:
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._reads = _Reads()
        self._reads.__enter__()  # type: ignore[no-untyped-call]

    def stop(self) -> None:
        """Answer no more reads."""
        self._reads.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def of(self, tree: Any) -> Any:
        """The same tree with fake tensors in place of real ones."""
        return tree_map_only(torch.Tensor, self._of_one, tree)

    def converted(self, module: Any, function: Callable[[Any], Any]) -> Any:
        """The module after ``function``, which ``to`` and its like apply to each tensor of it. torch exchanges tensors
        in place there, which fake ones do not allow; parameters that several modules share stay shared."""
        known: dict[int, Any] = {}
        for part in module.modules():
            for tensors in (part._parameters, part._buffers):
                for name, tensor in list(tensors.items()):
                    if tensor is not None:
                        if id(tensor) not in known:
                            known[id(tensor)] = _like(tensor, function)
                        tensors[name] = known[id(tensor)]
        return module

    def _of_one(self, tensor: Any) -> Any:
        return tensor if isinstance(tensor, FakeTensor) else self._mode.from_tensor(tensor)


def _like(tensor: Any, function: Callable[[Any], Any]) -> Any:
    with torch.no_grad():
        made = function(tensor)
    if made is tensor or not isinstance(tensor, torch.nn.Parameter):
        return made
    return torch.nn.Parameter(made, tensor.requires_grad)


class _Reads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._workspaces: dict[Any, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _READS and isinstance(args[0], FakeTensor):
            number = 0 if _scaler_reads() else 1
            return float(number) if args[0].dtype.is_floating_point else number
        if func in _LOOKS and any(isinstance(it, FakeTensor) for it in args):
            return True
        result = func(*args, **(kwargs or {}))
        if _RECURRENT is not None and func is _RECURRENT.default and isinstance(args[0], FakeTensor) and args[_TRAIN]:
            missing = self._workspace_bytes(args)
            return (*result[:_WORKSPACE], result[_WORKSPACE].new_empty(missing), *result[_WORKSPACE + 1 :])
        return result

    def _workspace_bytes(self, args: Sequence[Any]) -> int:
        """The bytes that the kernel keeps for the backward pass at these sizes."""
        key = tuple((tuple(it.shape), it.dtype) if isinstance(it, torch.Tensor) else str(it) for it in args)
        if key not in self._workspaces:
            steps = int(args[0].shape[0])
            with _disable_current_modes(), torch.enable_grad():  # without it the kernel keeps nothing
                if steps <= _LONG:
                    found = _run_recurrent(args, steps)
                else:
                    short, longer = _run_recurrent(args, _SHORT), _run_recurrent(args, _LONG)
                    found = longer + (steps - _LONG) * (longer - short) // (_LONG - _SHORT)
            self._workspaces[key] = found
        return self._workspaces[key]


def _run_recurrent(args: Sequence[Any], steps: int) -> int:
    """The bytes of the workspace after a real call with so many steps; its memory is free again when this returns."""
    made = [torch.zeros(it.shape, dtype=it.dtype) if isinstance(it, torch.Tensor) else it for it in args]
    made[0] = torch.zeros((steps, *args[0].shape[1:]), dtype=args[0].dtype)
    return int(_RECURRENT.default(*made)[_WORKSPACE].untyped_storage().nbytes())  # type: ignore[union-attr]


def _scaler_reads() -> bool:
    """A scaler that finds no infinity takes the step."""
    frame = sys._getframe(2)
    for _ in range(_FRAMES):
        if frame.f_code.co_filename.endswith(_SCALER):
            return True
        if frame.f_back is None:
            return False
        frame = frame.f_back
    return False
