"""Storages as they are made and freed, whichever operation does it.

A dispatch mode stands below autograd, so it sees what the forward pass, the backward pass and the optimizer make. It
changes no argument and no result, draws no random number, and keeps nothing alive: that a storage is freed is known
from a weak reference, which torch preserves for as long as the storage exists.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hotlap.records import CallSite, MemoryKind, MemoryPhase
from hotlap.runtime.batches import tensors as tensors_in
from hotlap.runtime.call_sites import user_site


class Held:
    """One storage: its bytes, and what is known of why it exists.

    ``step`` and ``phase`` are when it was made, ``layer`` is the id of the module that made it or that it belongs to
    (0: none); ``kind`` may become known later.
    """

    __slots__ = ("bytes", "device", "kind", "layer", "phase", "site", "step")

    def __init__(self, size: int, device: str, kind: MemoryKind, step: int, phase: MemoryPhase) -> None:
        self.bytes = size
        self.device = device
        self.kind = kind
        self.step = step
        self.phase = phase
        self.layer = 0
        self.site: CallSite | None = None


class StorageCount(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """All storages that operations made or used since :meth:`start`, until :meth:`stop` in the same thread.

    ``events`` are those of the present step: after how many of its operations a storage came (1) or went (-1).
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.started = False
        self.step = 0
        self.phase: MemoryPhase = "data"
        self.operations = 0
        self.events: list[tuple[int, int, Held]] = []
        self._live: dict[int, tuple[weakref.ref[Any], Held]] = {}
        self._layers: list[Any] = []
        self._handles: list[Any] = []
        os.register_at_fork(after_in_child=self._forked)

    def start(self) -> None:
        """Count from now on, and know which module runs."""
        from torch.nn.modules import module

        self.started = True
        self._handles = [
            module.register_module_forward_pre_hook(self._layer_begins),
            module.register_module_forward_hook(self._layer_ends, always_call=True),
        ]
        self.__enter__()  # type: ignore[no-untyped-call]

    def stop(self) -> None:
        """Stop counting, and remove everything from torch."""
        if self.started:
            self.started = False
            self.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            for handle in self._handles:
                handle.remove()
            self._live.clear()

    def next_step(self) -> None:
        """Begin a step without events."""
        self.step += 1
        self.operations = 0
        self.events = []

    def live(self) -> Iterator[Held]:
        """The storages that exist now."""
        return (held for _, held in list(self._live.values()))

    def of(self, tensor: Any) -> Held | None:
        """What is counted for a tensor's storage, from now on where it was not; None where it has none of its own."""
        storage = _storage(tensor)
        return None if storage is None else self._held(storage, tensor, "other")

    def leave_out(self, tensor: Any) -> None:
        """Count nothing for a tensor that hotlap itself made."""
        held = self.of(tensor)
        if held is not None:
            held.bytes = 0

    # -- what torch calls ----------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self.started:
            return func(*args, **(kwargs or {}))
        for tensor in args:
            if isinstance(tensor, torch.Tensor):
                self.of(tensor)
        result = func(*args, **(kwargs or {}))
        self.operations += 1
        for tensor in (result,) if isinstance(result, torch.Tensor) else tensors_in(result):
            storage = _storage(tensor)
            if storage is not None:
                self._held(storage, tensor, "temporaries")
        return result

    def _held(self, storage: Any, tensor: Any, kind: MemoryKind) -> Held:
        key = int(storage._cdata)
        known = self._live.get(key)
        if known is not None:
            return known[1]
        held = Held(int(storage.nbytes()), tensor.device.type, kind, self.step, self.phase)
        if self._layers:
            held.layer = id(self._layers[-1])
            if self.phase == "backward" and kind == "temporaries":
                held.kind = "activations"  # a module that is called within a backward pass recomputes them
        if self.phase != "backward":
            held.site = user_site("operation")
        self._live[key] = weakref.ref(storage, lambda _: self._freed(key, held)), held
        self.events.append((self.operations, 1, held))
        return held

    def _freed(self, key: int, held: Held) -> None:
        known = self._live.get(key)
        if known is not None and known[1] is held:
            del self._live[key]
            self.events.append((self.operations, -1, held))

    def _layer_begins(self, layer: Any, args: Any) -> None:
        self._layers.append(layer)

    def _layer_ends(self, layer: Any, args: Any, output: Any) -> None:
        if layer in self._layers:
            while self._layers.pop() is not layer:
                continue

    def _forked(self) -> None:
        """A worker of a loader counts nothing."""
        self.started = False


def _storage(tensor: Any) -> Any:
    try:
        return tensor.untyped_storage()
    except (RuntimeError, NotImplementedError):  # sparse tensors and wrappers have none
        return None
