"""The calls by which the host reads what a device computes, and so waits for it.

On a CPU they are recorded as not waiting. Masks as indices, and copies between host and device, are watched only where
torch was built for an accelerator.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, cast

from hotlap.evidence import HostSync, SyncKind
from hotlap.runtime.evidence.callers import Caller
from hotlap.runtime.evidence.calls import Look, Seen, watch_of
from hotlap.runtime.evidence.host_tensors import HostTensors
from hotlap.runtime.evidence.unnoticed import known_to_torchscript
from hotlap.runtime.interception import Interception
from hotlap.runtime.unit_clock import UnitClock

_TENSOR_METHODS: tuple[tuple[str, SyncKind], ...] = (
    ("item", "item"),
    ("__float__", "item"),
    ("__int__", "item"),
    ("__index__", "item"),
    ("__bool__", "bool"),
    ("cpu", "cpu"),
    ("numpy", "numpy"),
    ("tolist", "tolist"),
    ("nonzero", "nonzero"),
    ("__repr__", "print"),  # `str` and `print` come here too
    ("__format__", "print"),
)
_DEVICE_MODULES = ("cuda", "xpu", "mps", "accelerator")
_HOST_DEVICES = ("cpu", "meta")


class SyncWatch:
    """Counts them by line, where they are made in training steps."""

    def __init__(self, interception: Interception, clock: UnitClock) -> None:
        torch = interception.hooks.torch
        self._torch = torch
        self._watch = watch_of(interception, clock)
        self._host_tensors = HostTensors()
        self.pause = self._watch.pause
        self.resume = self._watch.resume
        for name, kind in _TENSOR_METHODS:
            self._watch.wrap(torch.Tensor, name, "sync", self._reading(kind))
        self._watch_functions()
        self._watch_waiting()
        if built_for_accelerator(torch):
            self._watch.wrap(torch.Tensor, "__getitem__", "sync", self._reading("nonzero"), self._is_masked)
            for name in ("to", "cuda"):
                self._watch.wrap(torch.Tensor, name, "sync", self._copying)

    def result(self) -> dict[str, object]:
        """The ``syncs``, what took longest first; a line that reads from host and device alike has one of each."""
        return {
            "syncs": tuple(
                HostSync(
                    kind=cast(SyncKind, place.kind),
                    phase=place.phase,
                    calls=count.calls,
                    steps=count.steps,
                    seconds=count.seconds,
                    on_device=place.on_device,
                    site=place.site,
                    within=place.within,
                )
                for place, count in self._watch.counts("sync")
            )
        }

    # -- where they are made -------------------------------------------------------------------

    def _watch_functions(self) -> None:
        """``torch.nonzero``, and ``torch.where`` where it is given nothing but a condition and does the same."""
        torch = self._torch
        for name, interesting in (("nonzero", _any_arguments), ("where", _only_a_condition)):
            self._watch.wrap(torch, name, "sync", self._reading("nonzero"), interesting)
            known_to_torchscript(torch, getattr(torch, name), f"aten::{name}")

    def _watch_waiting(self) -> None:
        """Waits that are asked for in so many words."""
        modules = [getattr(self._torch, name) for name in _DEVICE_MODULES if hasattr(self._torch, name)]
        for module in modules:
            self._watch.wrap(module, "synchronize", "sync", _waiting)
            for kind in ("Event", "Stream"):
                if isinstance(getattr(module, kind, None), type):
                    self._watch.wrap(getattr(module, kind), "synchronize", "sync", _waiting)

    # -- what they are -------------------------------------------------------------------------

    def _reading(self, kind: SyncKind) -> Look:
        def look(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, caller: Caller) -> Seen | None:
            tensor = args[0] if args else next(iter(kwargs.values()), None)
            on_device = self._device(tensor) not in _HOST_DEVICES
            if not on_device and self._host_tensors.made_for(caller, "read"):
                return None  # it would lie on the host wherever the script trains
            return Seen(kind, on_device=on_device, within="" if on_device else caller.within)

        return look

    def _copying(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, caller: Caller) -> Seen | None:
        """A copy for which the host waits, in whichever direction, or one that need not be."""
        tensor, before, after = args[0], self._device(args[0]), self._device(result)
        if before == after or "meta" in (before, after):
            return None
        if before == "cpu" and self._host_tensors.made_for(caller, "copied"):
            return Seen("tensor-on-host", on_device=True, bytes=tensor.numel() * tensor.element_size(), group="loop")
        if _non_blocking(args, kwargs) or "cpu" not in (before, after):
            return None
        return Seen("cpu" if after == "cpu" else "copy-to-device", on_device=True)

    def _is_masked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a tensor is indexed with a mask, whose true elements must be counted first."""
        index = args[1] if len(args) > 1 else None
        parts = index if isinstance(index, tuple) else (index,)
        return any(type(it) is self._torch.Tensor and it.dtype == self._torch.bool for it in parts)

    def _device(self, tensor: Any) -> str:
        """The kind of device a tensor lies on, without its class or a mode of torch's being asked, which may act upon
        it. Plain tensors on the host, the many, are told apart first."""
        torch = self._torch
        if type(tensor) is torch.Tensor and not torch._C._len_torch_function_stack() and tensor.is_cpu:
            return "cpu"
        if not isinstance(tensor, torch.Tensor):
            return "cpu"
        with torch._C.DisableTorchFunction():
            return str(tensor.device.type)


def built_for_accelerator(torch: ModuleType) -> bool:
    """Whether this torch could use an accelerator. Looks for none, since that would start a device's runtime."""
    version = torch.version
    named = (getattr(version, name, None) for name in ("cuda", "hip", "xpu"))
    return any(it is not None for it in named) or bool(torch.backends.mps.is_built())


def _any_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return True


def _only_a_condition(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return len(args) + len(kwargs) == 1


def _waiting(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, caller: Caller) -> Seen:
    return Seen("synchronize", on_device=True)


def _non_blocking(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether ``to`` or ``cuda`` was told not to wait: in all their forms the first argument that is a truth value."""
    return bool(kwargs.get("non_blocking", next((it for it in args if isinstance(it, bool)), False)))
