"""CUDA graphs: what is captured is recorded operator by operator, and executed by every replay.

While a stream captures nothing runs: what its operators changed is put back when the capture ends. A replay costs the
host one launch; its kernels follow each other on the device. Whoever waits for the device within a capture gets CUDA's
error, as does who asks for random numbers' state or for the time of an event that was captured.
"""

from __future__ import annotations

from typing import Any

LAUNCH_NANOSECONDS = 10_000.0
NOT_PERMITTED = "CUDA error: operation not permitted when stream is capturing"


def install(torch: Any, device: Any) -> None:
    """Give torch's own ``CUDAGraph`` a base class. ``device.capture`` is the graph that is being captured."""
    recorder = _recorder(torch)

    class Graph:
        def __new__(cls, keep_graph: bool = False) -> Any:
            return object.__new__(cls)

        def __init__(self, keep_graph: bool = False) -> None:
            self._calls: list[_Call] = []
            self._recorder: Any = None

        def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
            if device.capture is not None:
                raise device.torch.AcceleratorError(NOT_PERMITTED)
            device.capture = self
            device.library.set_sync_debug_mode(2)
            self._recorder = recorder()
            self._recorder.__enter__()

        def capture_end(self) -> None:
            self._recorder.__exit__(None, None, None)
            device.capture = None
            device.library.set_sync_debug_mode(device.debug_mode)
            self._calls = self._recorder.calls
            self._recorder.put_back()

        def replay(self) -> None:
            if device.capture is not None:
                raise device.torch.AcceleratorError(NOT_PERMITTED)
            device.library.spend(LAUNCH_NANOSECONDS)
            device.library.set_replaying(1)
            try:
                with torch.no_grad():
                    _replay(torch, self._calls)
            finally:
                device.library.set_replaying(0)

        def reset(self) -> None:
            self._calls = []

        def pool(self) -> tuple[int, int]:
            return 0, id(self)

    torch.cuda.graphs.CUDAGraph.__bases__ = (Graph,)
    torch._C._host_emptyCache = lambda: None
    torch.cuda.graph_pool_handle = torch.cuda.graphs.graph_pool_handle = lambda: (0, 1)


class _Call:
    """One operator with what it was given, and what came out of it."""

    def __init__(self, operator: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], result: Any) -> None:
        self.operator, self.arguments, self.keywords, self.result = operator, arguments, keywords, result


def _recorder(torch: Any) -> type:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Recorder(TorchDispatchMode):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.calls: list[_Call] = []
            self._made: set[int] = set()
            self._before: dict[int, tuple[Any, Any]] = {}

        def __torch_dispatch__(
            self, operator: Any, types: Any, arguments: tuple[Any, ...] = (), keywords: dict[str, Any] | None = None
        ) -> Any:
            keywords = keywords or {}
            for it in _written(torch, operator, arguments, keywords):
                if _address(it) not in self._made and id(it) not in self._before:
                    self._before[id(it)] = (it, it.detach().clone())
            result = operator(*arguments, **keywords)
            given = {_address(it) for it in _tensors(torch, (arguments, keywords))}
            self._made |= {_address(it) for it in _tensors(torch, result)} - given
            self.calls.append(_Call(operator, arguments, keywords, result))
            return result

        def put_back(self) -> None:
            with torch.no_grad():
                for it, before in self._before.values():
                    it.copy_(before)

    return Recorder


def _address(tensor: Any) -> int:
    """Where the memory begins that a tensor is a view of."""
    return int(tensor.untyped_storage().data_ptr())


def _written(torch: Any, operator: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> list[Any]:
    """The tensors that an operator changes, by its schema."""
    found: list[Any] = []
    for place, argument in enumerate(operator._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        given = arguments[place] if place < len(arguments) else keywords.get(argument.name)
        found += _tensors(torch, given)
    return found


def _tensors(torch: Any, value: Any) -> list[Any]:
    from torch.utils._pytree import tree_leaves

    return [it for it in tree_leaves(value) if isinstance(it, torch.Tensor)]


def _replay(torch: Any, calls: list[_Call]) -> None:
    """Do everything again, and let every tensor that came out of the capture hold what came out now."""
    from torch.utils._pytree import tree_map

    now: dict[int, tuple[Any, Any]] = {}

    def current(value: Any) -> Any:
        return now[id(value)][1] if isinstance(value, torch.Tensor) and id(value) in now else value

    for call in calls:
        result = call.operator(*tree_map(current, call.arguments), **tree_map(current, call.keywords))
        for captured, fresh in zip(_tensors(torch, call.result), _tensors(torch, result), strict=True):
            if captured is not fresh:
                now[id(captured)] = (captured, fresh)
    for captured, fresh in now.values():
        captured.data = fresh
