"""Write small traces in every dialect, as the profilers do."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HOST_PROCESS = 4242
MAIN_THREAD = 4242

MODERN = {
    "kernel": "kernel", "copy": "gpu_memcpy", "memset": "gpu_memset", "call": "cuda_runtime", "operator": "cpu_op",
    "annotation": "user_annotation", "python": "python_function",
}  # fmt: skip
LEGACY = {
    "kernel": "Kernel", "copy": "Memcpy", "memset": "Memset", "call": "Runtime", "operator": "Operator",
    "annotation": "Operator", "python": "python_function",
}  # fmt: skip


@dataclass
class TraceWriter:
    """Collects events; times are microseconds and are written as they are given (whole, fractional or as text)."""

    categories: dict[str, str] = field(default_factory=lambda: dict(MODERN))
    origin: int | float = 0
    calls: str = "cuda"
    events: list[dict[str, Any]] = field(default_factory=list)
    correlation: int = 100

    def host(
        self, kind: str, name: str, start: float, length: float, *, thread: int | str = MAIN_THREAD, **args: Any
    ) -> None:
        self.events.append(
            {"ph": "X", "cat": self.categories[kind], "name": name, "pid": HOST_PROCESS, "tid": thread,
             "ts": self.origin + start, "dur": length, "args": args}
        )  # fmt: skip

    def device(
        self, kind: str, name: str, start: float, length: float, *, stream: int = 7, device: int = 0, **args: Any
    ) -> None:
        tid = f"stream {stream}" if self.categories["kernel"] == "Kernel" else stream
        self.events.append(
            {"ph": "X", "cat": self.categories[kind], "name": name, "pid": device, "tid": tid,
             "ts": self.origin + start, "dur": length, "args": {"device": device, "stream": stream, **args}}
        )  # fmt: skip

    def launch(
        self, name: str, launched: float, start: float, length: float, *, kind: str = "kernel",
        call: str = "LaunchKernel", call_length: float = 5, thread: int | str = MAIN_THREAD, **where: Any,
    ) -> None:  # fmt: skip
        """Add a device event with the host call that launched it."""
        self.correlation += 1
        self.host("call", self.calls + call, launched, call_length, thread=thread, correlation=self.correlation)
        self.device(kind, name, start, length, correlation=self.correlation, **where)

    def instant(self, name: str, moment: float, *, thread: int | str = MAIN_THREAD, **args: Any) -> None:
        """Add a mark without a duration."""
        self.events.append(
            {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": name, "pid": HOST_PROCESS, "tid": thread,
             "ts": self.origin + moment, "args": args}
        )  # fmt: skip

    def memory(
        self, moment: float, change: int, allocated: int | None = None, *, reserved: int = 0, address: int | None = 1,
        device: int = 0, device_type: int = 1, thread: int | str = MAIN_THREAD,
    ) -> None:  # fmt: skip
        """Add a change of memory; without ``allocated`` as old profilers wrote it."""
        args = {"Device Type": device_type, "Device Id": device, "Bytes": change}
        if allocated is not None:
            args |= {"Total Allocated": allocated, "Total Reserved": reserved}
            args |= {} if address is None else {"Addr": address}
        self.instant("[memory]", moment, thread=thread, **args)

    def step(self, number: int, start: float, length: float) -> None:
        self.host("annotation", f"ProfilerStep#{number}", start, length)

    def steps(self, number: int, every: int, length: int | None = None) -> Iterator[int]:
        """Yield the starts of this many steps, each marked until 10 us before the next, or for ``length``."""
        for step in range(number):
            self.step(step, step * every, every - 10 if length is None else length)
            yield step * every

    def document(self, **fields: Any) -> dict[str, Any]:
        return {"schemaVersion": 1, **fields, "traceEvents": self.events}

    def write(self, path: Path, **fields: Any) -> Path:
        """Write the trace like Kineto, one field group per line; compressed if the suffix says so."""
        return write_text(path, kineto_text(self.events, **fields))


def kineto_text(events: Iterable[dict[str, Any]], **fields: Any) -> bytes:
    """Lay out a document as Kineto does."""
    head = "".join(f'  "{name}": {json.dumps(value)},\n' for name, value in {"schemaVersion": 1, **fields}.items())
    body = ",\n  ".join("{\n    " + json.dumps(it)[1:-1] + "\n  }" for it in events)
    return f'\n{{\n{head}  "traceEvents": [\n  {body}\n  ],\n  "traceName": "small.json"\n}}\n'.encode()


def write_text(path: Path, text: bytes) -> Path:
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def training_trace(writer: TraceWriter | None = None, steps: int = 3, kernels: int = 5) -> TraceWriter:
    """Write steps of 1000 microseconds: 300 in the loader, an upload, then kernels of 60 launched ahead."""
    it = writer or TraceWriter()
    for number in range(steps):
        begin = number * 1000
        it.step(number, begin, 990)
        it.host("operator", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", begin + 10, 300)
        it.launch(
            "Memcpy HtoD (Pageable -> Device)",
            begin + 320,
            begin + 330,
            40,
            kind="copy",
            call="MemcpyAsync",
            bytes=4096,
        )
        for index in range(kernels):
            start = begin + 400 + index * 70
            it.host("operator", "aten::mm", begin + 380 + index * 10, 9)
            it.launch(f"ampere_sgemm_{index % 2}", begin + 382 + index * 10, start, 60)
    return it
