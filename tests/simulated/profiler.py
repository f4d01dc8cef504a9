"""``torch.profiler`` with the simulated device.

There is no CUPTI here, so Kineto sees operators alone. What CUPTI would have written is added when a trace is exported,
and all of it is put on simulated time. The device records when each operator began and ended; Kineto has the same
number for it, so that its times are exact. What has no number, as the functions of Python, lies between the operators
where it was, and takes next to no time.
"""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from simulated.library import Library
from simulated.profile import DeviceProfile

_MICROSECOND = 1000
_SLOPE = 1e-3
"""Real time between operators counts so much, so that events keep their order and nesting."""

_CALLBACKS = {"cudaLaunchKernel": 211, "cudaMemcpyAsync": 41}


def install(torch: Any, library: Library, device: DeviceProfile) -> None:
    """Record what the device does while a profiler runs, and add it to the trace that it exports."""
    profile = torch.profiler.profile
    construct, start, stop, export = (
        getattr(profile, it) for it in ("__init__", "start_trace", "stop_trace", "export_chrome_trace")
    )

    def without_device(self: Any, *args: Any, activities: Any = None, **options: Any) -> None:
        wanted = [it for it in activities or () if it is not torch.profiler.ProfilerActivity.CUDA]
        self._sees_device = activities is None or len(wanted) < len(activities)
        construct(self, *args, activities=wanted or None, **options)

    def start_trace(self: Any) -> None:
        start(self)
        library.start_recording()

    def stop_trace(self: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "recorded.json")
            library.stop_recording(os.fsencode(path))
            self._recorded = json.loads(path.read_text(encoding="utf-8"))
        stop(self)

    def export_chrome_trace(self: Any, path: str) -> Any:
        result = export(self, path)
        if getattr(self, "_recorded", None) is not None:
            trace = _read(path)
            _write(path, merged(trace, Recorded(**self._recorded), device, sees_device=self._sees_device))
        return result

    profile.__init__, profile.start_trace, profile.stop_trace = without_device, start_trace, stop_trace
    profile.export_chrome_trace = export_chrome_trace


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the device did: rows of kind, name, device, stream, start, end, correlation, thread and bytes; and when the
    host's ``operations`` began and ended, by their numbers. In nanoseconds of simulated time."""

    activities: list[list[Any]]
    operations: list[list[int]]

    @property
    def origin(self) -> int:
        """The first moment of all."""
        return min((it[1] for it in self.operations), default=0)


class _Times:
    """Kineto's microseconds as simulated nanoseconds."""

    def __init__(self, events: list[dict[str, Any]], recorded: Recorded) -> None:
        self._known = {number: (start, end) for number, start, end in recorded.operations}
        edges = sorted(
            edge
            for it in events
            if (span := self.of_operator(it)) is not None
            for edge in ((it["ts"], span[0]), (it["ts"] + it["dur"], span[1]))
        )
        self._real = [real for real, _ in edges]
        self._simulated = list(accumulate((simulated for _, simulated in edges), max))

    def of_operator(self, event: dict[str, Any]) -> tuple[float, float] | None:
        """Exact, for what has a number."""
        return self._known.get(event.get("args", {}).get("Record function id"))

    def of_moment(self, real: float) -> float:
        """After what came before it, and no later than what came next."""
        after = bisect_right(self._real, real)
        if after == 0:
            return self._simulated[0] if self._simulated else 0.0
        latest = self._simulated[after] if after < len(self._simulated) else float("inf")
        return min(self._simulated[after - 1] + _SLOPE * _MICROSECOND * (real - self._real[after - 1]), latest)


def merged(trace: dict[str, Any], recorded: Recorded, device: DeviceProfile, *, sees_device: bool) -> dict[str, Any]:
    """A trace of Kineto's in simulated time, with what the device did where the profiler was to see it."""
    origin, times = recorded.origin, _Times(trace["traceEvents"], recorded)
    events = [_in_simulated_time(it, times, origin) for it in _without_doubles(trace["traceEvents"])]
    if sees_device:
        events += [event for row in recorded.activities for event in _events(row, origin)]
        events += list(_names(recorded))
        trace["deviceProperties"] = [_properties(device, it) for it in range(device.devices)]
    return {**trace, "traceEvents": events}


def _without_doubles(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without operators that another of the same name called: torch's own device has a kernel for `mm`, this one for
    the form of it that writes to a given tensor."""
    inner: set[int] = set()
    enclosing: dict[int, list[tuple[str, float]]] = {}
    operators = [it for it in events if it.get("cat") == "cpu_op" and it.get("ph") == "X"]
    for it in sorted(operators, key=lambda it: (it["ts"], -it["dur"])):
        around = enclosing.setdefault(it["tid"], [])
        while around and around[-1][1] <= it["ts"]:
            around.pop()
        if around and around[-1][0] == it["name"]:
            inner.add(id(it))
        around.append((it["name"], it["ts"] + it["dur"]))
    return [it for it in events if id(it) not in inner]


def _in_simulated_time(event: dict[str, Any], times: _Times, origin: int) -> dict[str, Any]:
    if event.get("ph") == "M" or "ts" not in event:
        return event
    begin, length = event["ts"], event.get("dur", 0.0)
    start, end = times.of_operator(event) or (times.of_moment(begin), times.of_moment(begin + length))
    moved = {**event, "ts": (start - origin) / _MICROSECOND}
    return {**moved, "dur": (end - start) / _MICROSECOND} if "dur" in event else moved


def _events(row: list[Any], origin: int) -> Iterator[dict[str, Any]]:
    kind, name, device, stream, start, end, correlation, thread, bytes_moved = row
    times = {"ts": (start - origin) / _MICROSECOND, "dur": (end - start) / _MICROSECOND}
    if kind in ("launch", "wait"):
        arguments: dict[str, Any] = {"cbid": _CALLBACKS.get(name, 131), "correlation": correlation}
        yield {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": os.getpid(), "tid": thread, "args": arguments,
               **times}  # fmt: skip
        if kind == "launch":
            yield {"ph": "s", "id": correlation, "pid": os.getpid(), "tid": thread, "ts": times["ts"], "cat": "ac2g",
                   "name": "ac2g"}  # fmt: skip
        return
    arguments = {"device": device, "context": 1, "stream": _stream_number(stream), "correlation": correlation}
    if kind == "kernel":
        arguments |= {"queued": 0, "grid": [132, 1, 1], "block": [128, 1, 1], "registers per thread": 32,
                      "shared memory": 0, "blocks per SM": 1.0, "warps per SM": 4.0,
                      "est. achieved occupancy %": 50}  # fmt: skip
    else:
        seconds = max(end - start, 1) / 1e9
        arguments |= {"bytes": bytes_moved, "memory bandwidth (GB/s)": bytes_moved / 1e9 / seconds}
    yield {"ph": "X", "cat": "kernel" if kind == "kernel" else "gpu_memcpy", "name": name, "pid": device,
           "tid": _stream_number(stream), "args": arguments, **times}  # fmt: skip
    yield {"ph": "f", "id": correlation, "pid": device, "tid": _stream_number(stream), "ts": times["ts"], "cat": "ac2g",
           "name": "ac2g", "bp": "e"}  # fmt: skip


def _stream_number(stream: int) -> int:
    """As CUPTI counts: the default stream is the seventh."""
    return 7 + stream


def _names(recorded: Recorded) -> Iterator[dict[str, Any]]:
    for device in sorted({row[2] for row in recorded.activities}):
        common = {"ph": "M", "pid": device, "tid": 0, "ts": 0}
        yield {**common, "name": "process_name", "args": {"name": "python"}}
        yield {**common, "name": "process_labels", "args": {"labels": f"GPU {device}"}}


def _properties(device: DeviceProfile, index: int) -> dict[str, Any]:
    major, minor = device.capability
    return {
        "id": index,
        "name": device.name,
        "totalGlobalMem": int(device.memory_bytes),
        "computeMajor": major,
        "computeMinor": minor,
        "maxThreadsPerBlock": 1024,
        "maxThreadsPerMultiprocessor": 2048,
        "regsPerBlock": 65536,
        "warpSize": 32,
        "sharedMemPerBlock": 49152,
        "numSms": device.multiprocessors,
        "regsPerMultiprocessor": 65536,
        "sharedMemPerBlockOptin": 166912,
        "sharedMemPerMultiprocessor": 167936,
    }


def _read(path: str) -> dict[str, Any]:
    data = Path(path).read_bytes()
    trace: dict[str, Any] = json.loads(gzip.decompress(data) if path.endswith(".gz") else data)
    return trace


def _write(path: str, trace: dict[str, Any]) -> None:
    data = json.dumps(trace).encode()
    Path(path).write_bytes(gzip.compress(data) if path.endswith(".gz") else data)
