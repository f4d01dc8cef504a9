"""Training steps that a script captures as CUDA graphs and replays.

Within a capture nothing runs: a loss has no value, waiting for the device is forbidden, and a launched kernel becomes
part of the script's graph. So all hooks are off during a capture; only the parts of a training step in the graph are
recorded. A replay calls no module, no backward and no optimizer; :attr:`Hooks.replayed` reports it.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from hotlap.runtime.hooks import CapturedStep, Hooks
from hotlap.runtime.patches import Patches

_NOTE = (
    "This script replays training steps as CUDA graphs. Time within a graph is counted as other, and levers affect "
    "only what runs outside of it."
)


class Captures:
    """Patches ``torch.cuda.CUDAGraph``; ``fall_silent`` and ``speak_again`` are called at the
    beginning and at the end of a capture."""

    def __init__(self, hooks: Hooks, fall_silent: Callable[[], None], speak_again: Callable[[], None]) -> None:
        self._hooks = hooks
        self._suspend = fall_silent
        self._resume = speak_again
        self._within = Patches()
        self._captured: WeakKeyDictionary[Any, CapturedStep] = WeakKeyDictionary()
        self.running: CapturedStep | None = None

    def install(self, patches: Patches) -> None:
        """Patch torch; ``patches`` must not be among those that fall silent."""
        kind = self._hooks.torch.cuda.CUDAGraph
        begin, end, replay = kind.capture_begin, kind.capture_end, kind.replay

        @functools.wraps(begin)
        def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> None:
            self._begins()
            try:
                begin(graph, *args, **kwargs)
            except BaseException:  # goes on to the script; there is no capture to be silent in
                self._ends()
                raise

        @functools.wraps(end)
        def capture_end(graph: Any) -> None:
            captured = self._ends()
            end(graph)
            if captured is not None:
                self._captured[graph] = captured

        @functools.wraps(replay)
        def replayed(graph: Any) -> None:
            replay(graph)
            captured = self._captured.get(graph)
            if captured is not None and captured.backwards and self.running is None:
                self._hooks.note(_NOTE)
                for tell in self._hooks.replayed:
                    tell(captured)

        patches.replace(kind, "capture_begin", capture_begin)
        patches.replace(kind, "capture_end", capture_end)
        patches.replace(kind, "replay", replayed)

    def saw_update(self, optimizer: Any) -> None:
        """An optimizer has put its update into the running capture."""
        if self.running is not None:
            self.running.optimizers.append(id(optimizer))

    def abandon(self) -> None:
        """Forget a running capture: its end will not be reported."""
        if self.running is not None:
            self._ends()

    def _begins(self) -> None:
        self._suspend()
        self.running = CapturedStep()
        autograd = self._hooks.torch.autograd
        run_backward = autograd.backward

        @functools.wraps(run_backward)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
            if self.running is not None:
                self.running.backwards += 1
                self.running.loss = weakref.ref(tensors) if hasattr(tensors, "numel") else None
            run_backward(tensors, *args, **kwargs)

        self._within = Patches()
        self._within.replace(autograd, "backward", backward)

    def _ends(self) -> CapturedStep | None:
        captured, self.running = self.running, None
        self._within.suspend()
        self._resume()
        return captured
