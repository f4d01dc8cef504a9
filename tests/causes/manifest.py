"""What was planted in which script, and what else is true of it.

A line that a finding must name ends in the comment ``# planted: rule, rule``; what is read off a trace names the
function, by its first line, since torch's profiler records no other. ``first`` is what must be found and be
ranked before everything else that costs time; ``also`` must be found too; ``true`` may be found, since it is true of
the script as well. Whatever else is found is a false alarm.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

FOLDER = Path(__file__).parent
_PLANTED = re.compile(r"# planted: ([a-z, -]+)$")

Need = Literal["", "two-cores", "bfloat16", "compiler", "device", "two-processes"]


@dataclass(frozen=True)
class Planted:
    """One script. ``need`` is what the machine must have for the cause to be there at all."""

    file: str
    first: str = ""
    also: tuple[str, ...] = ()
    true: tuple[str, ...] = ()
    need: Need = ""
    slow: bool = True

    @property
    def name(self) -> str:
        return self.file.removesuffix(".py")

    @property
    def wanted(self) -> frozenset[str]:
        """The rules that must fire."""
        return frozenset((self.first, *self.also)) - {""}

    def lines(self) -> dict[str, int]:
        """The line that each of these rules must name, where one is marked."""
        found = {}
        for number, text in enumerate((FOLDER / self.file).read_text(encoding="utf-8").splitlines(), start=1):
            marked = _PLANTED.search(text)
            for rule in marked.group(1).split(",") if marked else ():
                found[rule.strip()] = number
        return found


LOADING = ("loader-bound", "no-workers")
ON_HOST = (
    Planted("slow_transform.py", "loader-bound", ("slow-transform",), ("worker-startup", "oversubscribed")),
    Planted("no_workers.py", "loader-bound", ("no-workers",), ("slow-transform",), need="two-cores"),
    Planted("worker_startup.py", "loader-bound", ("worker-startup",), ("oversubscribed",)),
    Planted("too_many_workers.py", "too-many-workers", (), (*LOADING, "dominant-operator"), need="two-cores"),
    Planted("short_queue.py", "loader-bound", ("short-queue",), ("slow-transform",), need="two-cores"),
    Planted("logging_cost.py", "logging-cost", (), ("python-overhead",), slow=False),
    Planted("logging_module.py", "logging-cost", (), ("python-overhead",)),
    Planted("anomaly_detection.py", "anomaly-detection", (), ("python-overhead",)),
    Planted("python_overhead.py", "python-overhead"),
    Planted("dominant_operator.py", "dominant-operator"),
    Planted("bias_before_norm.py", "bias-before-norm"),
    Planted("eager_attention.py", "eager-attention", (), ("dominant-operator",)),
    Planted("unfused_optimizer.py", "unfused-optimizer", (), ("python-overhead",)),
    Planted("slow_matmul_precision.py", "slow-matmul-precision", need="bfloat16"),
    Planted("graph_breaks.py", "graph-breaks", (), ("slow-matmul-precision", "reads-in-every-step"), need="compiler"),
    Planted("recompiles.py", "recompiles", (), ("slow-matmul-precision",), need="compiler"),
    Planted("silent_fallback.py", "silent-fallback", ("recompiles",), ("slow-matmul-precision",), need="compiler"),
    Planted("compile_never_pays.py", "compile-never-pays", (), (*LOADING, "slow-transform"), need="compiler"),
    Planted("memory_growth.py", "memory-growth", (), ("dominant-operator", "python-overhead")),
    Planted("growing_sum.py", "memory-growth", (), ("dominant-operator",)),
    Planted("non_finite_loss.py", "non-finite-loss"),
    Planted("gradient_spikes.py", "gradient-spikes", (), ("python-overhead",)),
    Planted("scaler_skips.py", "scaler-skips", (), ("unfused-optimizer", "python-overhead")),
    Planted("oversubscribed.py", "oversubscribed"),
    Planted("evaluation_cost.py", "evaluation-cost", (), (*LOADING, "slow-transform", "slow-matmul-precision")),
    Planted("checkpoint_cost.py", "checkpoint-cost", (), ("dominant-operator", "slow-matmul-precision")),
    Planted("startup_cost.py", "startup-cost", (), ("dominant-operator", "slow-matmul-precision")),
    Planted("other_time.py", "other-time", (), ("straggler",), need="two-processes"),
    Planted("straggler.py", "straggler", (), ("exposed-communication",), need="two-processes"),
)
CLEAN_ON_HOST = (
    Planted("clean_resident.py"),
    Planted("clean_loader.py", true=("reads-in-every-step",), need="two-cores"),
    Planted("clean_convolutions.py"),
    Planted("clean_attention.py", true=("reads-in-every-step",)),
)
COPYING = ("pageable-copies", "blocking-copies")
SMALL = ("room-for-batch", "python-overhead")
"""True of every script whose batches are small for a device."""

ON_DEVICE = (
    Planted("device_host_sync.py", "host-sync", (), ("launch-bound", *SMALL), need="device"),
    Planted("device_launch_bound.py", "launch-bound", (), ("slow-matmul-precision", *SMALL), need="device"),
    Planted("device_empty_cache.py", "empty-cache", (), ("launch-bound", *SMALL), need="device"),
    Planted("device_tensor_on_host.py", "tensor-on-host", (), (*COPYING, *SMALL), need="device"),
    Planted("device_pageable_copies.py", "loader-bound", ("pageable-copies",), (*LOADING, *SMALL), need="device"),
    Planted("device_blocking_copies.py", "loader-bound", ("blocking-copies",), (*LOADING, *SMALL), need="device"),
    Planted(
        "device_accelerator_in_dataset.py",
        "loader-bound",
        ("accelerator-in-dataset",),
        (*LOADING, *COPYING, *SMALL, "slow-transform"),
        need="device",
    ),
    Planted("device_slow_matmul_precision.py", "slow-matmul-precision", need="device"),
    Planted("device_unaligned_sizes.py", "unaligned-sizes", need="device"),
    Planted("device_cudnn_benchmark.py", "cudnn-benchmark-off", (), ("launch-bound", *SMALL), need="device"),
    Planted("device_memory_growth.py", "memory-growth", (), ("tensor-on-host", *SMALL), need="device"),
    Planted("device_close_to_limit.py", "close-to-limit", need="device"),
    Planted("device_room_for_batch.py", "room-for-batch", (), ("launch-bound", "python-overhead"), need="device"),
    Planted("device_clean.py", need="device"),
)
ALL = (*ON_HOST, *CLEAN_ON_HOST, *ON_DEVICE)
