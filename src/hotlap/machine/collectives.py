"""What collectives between processes of this machine take, by size: latency and bandwidth, fitted with their errors.

Runs in several processes that a launcher starts::

    torchrun --standalone --nproc-per-node 2 -m hotlap.machine.collectives --device cpu --seconds 6

of which the first writes one JSON object of :class:`hotlap.records.CollectiveRates`. The backend is gloo on the
processor and NCCL on CUDA devices. A time is that of the slowest process, the median of many tries between barriers.
Bytes are those of the whole buffer: what all processes have after an all-gather and before a reduce-scatter. With
``--parts`` what strategies do with parts of a model is measured too (:mod:`hotlap.machine.exchanges`).
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import msgspec

from hotlap.errors import UsageError
from hotlap.machine.exchanges import Points, added_seconds
from hotlap.machine.slowest import Stopwatch
from hotlap.records import CollectiveName, CollectiveRate, CollectiveRates, TrainedParts

SIZES = tuple(4**power for power in range(5, 13))
"""In bytes, from 1 KiB to 16 MiB: gloo and NCCL choose other algorithms outside of it."""
_NAMES: tuple[CollectiveName, ...] = ("all-reduce", "all-gather", "reduce-scatter")
_FEWEST_TRIES, _MOST_TRIES = 5, 200
_SHARE_OF_OVERLAP = 0.2
_OVERLAP_BYTES = 1 << 24
_OVERLAP_TRIES = 5
_SIDE = 512


@dataclass(frozen=True, slots=True)
class Line:
    """``seconds = latency + bytes * seconds_per_byte``, with standard errors, and the largest relative error."""

    latency: float
    seconds_per_byte: float
    latency_error: float
    slope_error: float
    largest_error: float


def fitted(points: Sequence[tuple[int, float]]) -> Line:
    """Fit a line to (bytes, seconds) by least squares of the relative errors, so that small sizes count too.

    Neither latency nor slope is negative: where the best fit has one below zero it is zero and the other is fitted
    alone. Raises :class:`ValueError` with fewer than three points.
    """
    if len(points) < 3:
        raise ValueError("a line needs three points")
    weights = [1 / seconds**2 for _, seconds in points]
    total = math.fsum(weights)
    mean_x = math.fsum(w * x for w, (x, _) in zip(weights, points, strict=True)) / total
    mean_y = math.fsum(w * y for w, (_, y) in zip(weights, points, strict=True)) / total
    spread = math.fsum(w * (x - mean_x) ** 2 for w, (x, _) in zip(weights, points, strict=True))
    slope = math.fsum(w * (x - mean_x) * (y - mean_y) for w, (x, y) in zip(weights, points, strict=True)) / spread
    latency = mean_y - slope * mean_x
    if slope <= 0:
        slope, latency = 0.0, mean_y
    elif latency <= 0:
        squares = math.fsum(w * x * x for w, (x, _) in zip(weights, points, strict=True))
        slope, latency = math.fsum(w * x * y for w, (x, y) in zip(weights, points, strict=True)) / squares, 0.0
    errors = [(latency + slope * x) / y - 1 for x, y in points]
    variance = math.fsum(it * it for it in errors) / (len(points) - 2)
    return Line(
        latency=latency,
        seconds_per_byte=slope,
        latency_error=math.sqrt(variance * (1 / total + mean_x**2 / spread)),
        slope_error=math.sqrt(variance / spread),
        largest_error=max(map(abs, errors)),
    )


def rate_of(name: CollectiveName, backend: str, processes: int, points: Sequence[tuple[int, float]]) -> CollectiveRate:
    """The fitted rate of a collective."""
    line = fitted(points)
    slope = max(line.seconds_per_byte, 1e-18)
    return CollectiveRate(
        name=name,
        backend=backend,
        processes=processes,
        latency_seconds=line.latency,
        bytes_per_second=1 / slope,
        latency_error_seconds=line.latency_error,
        bandwidth_error=line.slope_error / slope,
        largest_error=line.largest_error,
        seconds_by_bytes=tuple(points),
    )


def measure(device: str, seconds: float, parts: TrainedParts | None = None) -> CollectiveRates:
    """Measure the collectives of the process group that is initialised; all of its processes must call this.

    On the processor, what strategies do with ``parts`` of a model is measured for as long again. Raises
    :class:`UsageError` for seconds below 0.5 or above 600.
    """
    import torch
    import torch.distributed as dist

    if not 0.5 <= seconds <= 600:
        raise UsageError(f"{seconds} seconds is out of range.", remedy="Give between 0.5 and 600 seconds.")
    stopwatch = Stopwatch(torch, dist, device)
    bench = _Bench(torch, dist, stopwatch)
    share = seconds * (1 - _SHARE_OF_OVERLAP) / (len(_NAMES) * len(SIZES))
    points = {name: [(it, bench.median_seconds(bench.collective(name, it), share)) for it in SIZES] for name in _NAMES}
    hidden = bench.hidden_share()
    if parts is not None and device == "cpu":
        points |= _added(stopwatch, seconds, parts)
    backend = str(dist.get_backend())
    rates = tuple(rate_of(name, backend, stopwatch.processes, it) for name, it in points.items())
    return CollectiveRates(rates=rates, hidden_share=hidden)


def _added(stopwatch: Stopwatch, seconds: float, parts: TrainedParts) -> Points:
    """What strategies add; nothing where this torch refuses a strategy with such an optimizer, in all processes."""
    try:
        return added_seconds(stopwatch, seconds, parts)
    except (ImportError, RuntimeError, TypeError, ValueError) as error:
        sys.stderr.write(f"What strategies add was not measured: {error}\n")
        return {}


class _Bench:
    def __init__(self, torch: Any, dist: Any, stopwatch: Stopwatch) -> None:
        self._torch, self._dist, self._stopwatch = torch, dist, stopwatch
        self._size, self._place = stopwatch.processes, stopwatch.place

    def collective(self, name: CollectiveName, size: int) -> Callable[[], None]:
        """A call of the collective over a buffer of ``size`` bytes."""
        torch, dist = self._torch, self._dist
        elements = max(1, size // 4 // self._size) * self._size
        whole = torch.ones(elements, device=self._place)
        part = torch.ones(elements // self._size, device=self._place)
        if name == "all-reduce":
            return lambda: dist.all_reduce(whole.fill_(1.0))
        if name == "all-gather":
            return lambda: dist.all_gather_into_tensor(whole, part)
        return lambda: dist.reduce_scatter_tensor(part, whole)

    def median_seconds(self, call: Callable[[], None], seconds: float) -> float:
        """The median over as many tries as the time allows, each as long as on the slowest process."""
        first = self._times(call, 2)
        tries = max(_FEWEST_TRIES, min(_MOST_TRIES, int(seconds / max(first[-1], 1e-7))))
        return median(self._times(call, tries))

    def hidden_share(self) -> float:
        """By how much a computation and an all-reduce at the same time are shorter than one after the other."""
        torch, dist = self._torch, self._dist
        buffer = torch.ones(_OVERLAP_BYTES // 4, device=self._place)
        matrix = torch.ones(_SIDE, _SIDE, device=self._place)
        exchange = median(self._times(lambda: dist.all_reduce(buffer.fill_(1.0)), 3))
        product = median(self._times(lambda: matrix @ matrix, 3))
        products = max(1, round(exchange / product))

        def compute() -> None:
            for _ in range(products):
                matrix @ matrix

        def both() -> None:
            work = dist.all_reduce(buffer.fill_(1.0), async_op=True)
            compute()
            work.wait()

        apart = [exchange, median(self._times(compute, _OVERLAP_TRIES))]
        together = median(self._times(both, _OVERLAP_TRIES))
        return max(0.0, min(1.0, (sum(apart) - together) / min(apart)))

    def _times(self, call: Callable[[], Any], tries: int) -> list[float]:
        return self._stopwatch.slowest([self._stopwatch.timed(call) for _ in range(tries)])


def main(words: list[str]) -> int:
    """Measure within the group that the launcher's variables describe; the first process prints the result."""
    import torch
    import torch.distributed as dist

    parser = argparse.ArgumentParser(prog="python -m hotlap.machine.collectives")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--parts", help="JSON of hotlap.records.TrainedParts: also what strategies do with these")
    choices = parser.parse_args(words)
    parts = msgspec.json.decode(choices.parts, type=TrainedParts) if choices.parts else None
    torch.set_num_threads(1)
    if choices.device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if choices.device == "cuda" else "gloo")
    try:
        found = measure(choices.device, choices.seconds, parts)
        if dist.get_rank() == 0:
            sys.stdout.write(msgspec.json.encode(found).decode())
            sys.stdout.flush()
        dist.barrier()
    finally:
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    status = main(sys.argv[1:])
    # Without the destructors of torch: threads of its process groups that outlive them end a process by SIGABRT
    # ("terminate called without an active exception"), about once in ten times after FSDP2.
    os._exit(status)
