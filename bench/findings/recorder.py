"""``python recorder.py OUT SECONDS MEASURE script.py ...``: run a script and record its steps.

It does not use hotlap. Optimizer steps are counted by torch's own hook; losses and gradients are read only for a
MEASURE that is about them. After SECONDS of training (0: when the script ends) it writes ``OUT`` and ends the process.
A script that fails before leaves no ``OUT``. Of several ranks the first one writes; the others end when it is gone.
With the MEASURE ``turns`` it goes on, and ``OUT`` has the moments at which steps ended, as they come.
"""

from __future__ import annotations

import json
import math
import os
import runpy
import statistics
import struct
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

_BEGAN = time.perf_counter()
_PAGE = os.sysconf("SC_PAGE_SIZE")
_WARM_UP = 0.2
"""The part of the time after the first step that does not count."""

_NEXT_TO_NOTHING = 0.02
_OF_VALUES = frozenset({"finite", "skipped", "spikes", "idle"})
"""Measures for which losses and gradients are read. That costs time, which the other measures are about."""


class Recorder:
    """The figures so far: one row per optimizer step."""

    def __init__(self, out: Path, seconds: float) -> None:
        self._out = out
        self._seconds = seconds
        self._is_first = os.environ.get("RANK", "0") == "0"
        self._times: list[float] = []
        self._resident: list[int] = []
        self._norms: list[float] = []
        self._parts: list[list[float]] = []
        self._losses: list[float] = []

    def stepped(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Called after each step of an optimizer."""
        self._times.append(time.perf_counter())
        self._resident.append(int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE)
        if self._is_first and self._seconds and self._times[-1] - self._times[0] > self._seconds:
            self.write()
            os._exit(0)

    def backward(self, loss: torch.Tensor) -> None:
        """Called before each backward pass, with its loss."""
        if loss.numel() == 1:
            self._losses.append(loss.item())

    def normed(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Called before each step of an optimizer."""
        grads = [it.grad for group in optimizer.param_groups for it in group["params"] if it.grad is not None]
        if grads:
            self._norms.append(float(torch.nn.utils.get_total_norm(grads)))
            self._parts.append([float(it.norm()) for it in grads])

    def write(self) -> None:
        """Write all figures, those that were not observed as None; of several ranks only the first does."""
        if not self._is_first:
            return
        rows = {
            "step": self._seconds_per_step(),
            "run": time.perf_counter() - _BEGAN,
            "growth": self._growth(),
            "finite": sum(map(math.isfinite, self._losses)) / len(self._losses) if self._losses else None,
            "spikes": _spread([it for it in self._norms if math.isfinite(it)]),
            "idle": self._idle(),
            "breaks": _graph_breaks(),
            "recompiles": _recompilations(),
            "skipped": 1.0 - min(len(self._times) / len(self._losses), 1.0) if self._losses else None,
        }
        self._out.write_text(json.dumps(rows), encoding="utf-8")

    def _seconds_per_step(self) -> float | None:
        if len(self._times) < 3:
            return None
        begin = self._times[0] + _WARM_UP * (self._times[-1] - self._times[0])
        kept = [it for it in self._times if it >= begin]
        return (kept[-1] - kept[0]) / (len(kept) - 1) if len(kept) > 1 else None

    def _idle(self) -> float | None:
        """The number of parameters that have next to no gradient, next to what is usual in the model."""
        if not self._parts or len({len(it) for it in self._parts}) > 1:
            return None
        usual = [statistics.median(norms) for norms in zip(*self._parts, strict=True)]
        return float(sum(it < _NEXT_TO_NOTHING * statistics.median(usual) for it in usual))

    def _growth(self) -> float | None:
        half = self._resident[len(self._resident) // 2 :]
        return (half[-1] - half[0]) / (len(half) - 1) if len(half) > 1 else None


def _graph_breaks() -> float:
    """How many times Dynamo had to leave a graph, so far."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return float(sum(dynamo.counters["graph_break"].values())) if dynamo is not None else 0.0


def _recompilations() -> float:
    """How many times Dynamo compiled something again, so far, since a guard failed."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    compilations = dynamo.get_compilation_metrics() if dynamo is not None else []
    return float(sum(bool(getattr(it, "recompile_reason", None)) for it in compilations))


def _spread(norms: list[float]) -> float | None:
    middle = statistics.median(norms) if norms else 0.0
    return max(norms) / middle if middle else None


def main(out: str, seconds: str, measure: str, script: str, *arguments: str) -> None:
    """Run the script under the recorder. Whatever the script raises is raised, and nothing is written."""
    recorder = Recorder(Path(out), float(seconds))
    if measure == "turns":
        _write_moments(Path(out))
    else:
        register_optimizer_step_post_hook(recorder.stepped)
    if measure in _OF_VALUES:
        _watch_values(recorder)
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).parent)
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as ended:
        if ended.code:
            raise
    if measure != "turns":
        recorder.write()


def _write_moments(out: Path) -> None:
    if os.environ.get("RANK", "0") != "0":
        return
    file = out.open("wb", buffering=0)
    pack, clock = struct.Struct("d").pack, time.monotonic

    def stepped(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        file.write(pack(clock()))

    register_optimizer_step_post_hook(stepped)


def _watch_values(recorder: Recorder) -> None:
    backward = torch.Tensor.backward

    def watched(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        recorder.backward(self.detach())
        return backward(self, *args, **kwargs)

    torch.Tensor.backward = watched  # type: ignore[method-assign]
    register_optimizer_step_pre_hook(recorder.normed)


if __name__ == "__main__":
    main(*sys.argv[1:])
