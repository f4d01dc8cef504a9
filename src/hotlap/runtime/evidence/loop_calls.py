"""Calls in the training loop that take time without training, and two switches that make every step slower."""

from __future__ import annotations

import builtins
import functools
import gc
import logging
import os
from collections.abc import Callable
from typing import Any, cast

from hotlap.evidence import LoopCall, LoopCallKind
from hotlap.records import CallSite
from hotlap.runtime.call_sites import user_site
from hotlap.runtime.evidence.callers import Caller
from hotlap.runtime.evidence.calls import Look, Seen, watch_of
from hotlap.runtime.evidence.reporters import ReporterWatch
from hotlap.runtime.interception import Interception
from hotlap.runtime.unit_clock import UnitClock

_DEVICE_MODULES = ("cuda", "xpu", "mps", "accelerator")


class LoopCallWatch:
    """Counts and times such calls by line, where they are made in training steps.

    Of what is printed, logged and collected only the user's own lines count, not what a library does by itself (Dynamo
    collects garbage whenever it compiles). The time of a call leaves out the waits for a device in it, which
    :mod:`hotlap.runtime.evidence.syncs` counts. That one also sees the copies to the device, among which it finds the
    tensors that were made on the host.
    """

    def __init__(self, interception: Interception, clock: UnitClock) -> None:
        self._torch = interception.hooks.torch
        self._replace = interception.patches.replace
        self._watch = watch_of(interception, clock)
        self.pause = self._watch.pause
        self._backwards = 0
        self._backwards_checked = 0
        self._anomaly_site: CallSite | None = None
        self._parallel = False
        self._parallel_site: CallSite | None = None
        self._reporters = ReporterWatch(self._watch)
        self._watch_calls()
        self._watch_anomaly_detection()
        interception.hooks.before_backward.append(self._backward_begins)
        interception.hooks.step_ended.append(self._reporters.look)
        parallel = self._torch.nn.DataParallel
        self._replace(parallel, "__init__", self._before(parallel.__init__, self._parallel_made))

    def resume(self) -> None:
        """Count what comes from now on."""
        self._reporters.look()
        self._watch.resume()

    def result(self) -> dict[str, object]:
        """The ``calls``, what took longest first, and whether anomaly detection and ``DataParallel`` were at work."""
        return {
            "calls": tuple(
                LoopCall(
                    kind=cast(LoopCallKind, place.kind),
                    phase=place.phase,
                    calls=count.calls,
                    steps=count.steps,
                    seconds=count.seconds,
                    bytes=count.bytes,
                    site=place.site,
                )
                for place, count in self._watch.counts("loop")
            ),
            # One step that was looked into does not make a run slow.
            "anomaly_detection": 2 * self._backwards_checked > self._backwards,
            "anomaly_site": self._anomaly_site if 2 * self._backwards_checked > self._backwards else None,
            "data_parallel": self._parallel,
            "data_parallel_site": self._parallel_site,
        }

    # -- calls ---------------------------------------------------------------------------------

    def _watch_calls(self) -> None:
        for name in _DEVICE_MODULES:
            module = getattr(self._torch, name, None)
            for place in (module, getattr(module, "memory", None)):
                if place is not None:
                    self._watch.wrap(place, "empty_cache", "loop", _any("empty-cache"))
        self._watch.wrap_builtin(gc, "collect", "loop", _users_own("garbage-collection"))
        self._watch.wrap_builtin(builtins, "print", "loop", _users_own("print"))
        self._watch.wrap_builtin(os, "fsync", "loop", _users_own("file-write"))
        self._watch.wrap(logging.Logger, "handle", "loop", _users_own("logging"))

    # -- switches ------------------------------------------------------------------------------

    def _watch_anomaly_detection(self) -> None:
        """Only the lines are noted here. ``detect_anomaly`` warns from its constructor, in the name of who called that,
        so it is met where it is entered."""
        modes = self._torch.autograd
        for kind, method in ((modes.set_detect_anomaly, "__init__"), (modes.detect_anomaly, "__enter__")):
            self._replace(kind, method, self._before(getattr(kind, method), self._anomaly_requested))

    def _anomaly_requested(self, mode: Any = None, enabled: bool = True, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("mode", enabled):
            self._anomaly_site = user_site("call", "anomaly detection")

    def _backward_begins(self, loss: Any) -> Any:
        if self._watch.counting:
            self._backwards += 1
            self._backwards_checked += bool(self._torch.is_anomaly_enabled())
        return loss

    def _parallel_made(self, *args: Any, **kwargs: Any) -> None:
        if not self._parallel:
            self._parallel, self._parallel_site = True, user_site("call", "DataParallel")

    def _before(self, method: Callable[..., Any], tell: Callable[..., None]) -> Callable[..., Any]:
        is_compiling = self._torch.compiler.is_compiling

        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not is_compiling():
                tell(*args, **kwargs)
            return method(*args, **kwargs)

        return call


def _any(kind: LoopCallKind) -> Look:
    """A call counts wherever it came from."""

    def look(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, caller: Caller) -> Seen:
        return Seen(kind)

    return look


def _users_own(kind: LoopCallKind) -> Look:
    """A call counts if the user's line made it, and not a library."""

    def look(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, caller: Caller) -> Seen | None:
        return Seen(kind) if caller.directly else None

    return look
