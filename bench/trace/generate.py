"""Traces of any size that look like those of a training loop: operators, calls, arrows, kernels, Python frames."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STEP_MICROSECONDS = 40_000.0
KERNELS_PER_STEP = 1500
_PROCESS = 7000


def write_trace(path: Path, size: int) -> Path:
    """Write a trace of about ``size`` bytes (before compression), step by step."""
    compressor = zlib.compressobj(6, zlib.DEFLATED, 31) if path.suffix == ".gz" else None
    written = 0
    with path.open("wb") as out:

        def put(text: str) -> None:
            nonlocal written
            data = text.encode()
            written += len(data)
            out.write(compressor.compress(data) if compressor else data)

        put('\n{\n  "schemaVersion": 1,\n  "deviceProperties": [\n    {"id": 0, "name": "Generated"}\n  ],\n')
        put('  "baseTimeNanoseconds": 1751410836000000000,\n  "traceEvents": [\n  ')
        step = 0
        while written < size:
            put(",\n  ".join(_spread(it) for it in _events_of_step(step)) + ",\n  ")
            step += 1
        put('{\n    "name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": 0.000\n  }\n  ],\n')
        put(f'  "traceName": "{path.name}"\n}}\n')
        if compressor:
            out.write(compressor.flush())
    return path


def _spread(event: dict[str, Any]) -> str:
    """An event over several lines, as Kineto writes it."""
    args = event.pop("args", None)
    head = json.dumps(event)[1:-1]
    tail = "" if args is None else ',\n    "args": {\n      ' + json.dumps(args)[1:-1] + "\n    }"
    return "{\n    " + head + tail + "\n  }"


def _events_of_step(step: int) -> Iterator[dict[str, Any]]:
    begin = step * STEP_MICROSECONDS
    yield _host("user_annotation", f"ProfilerStep#{step}", begin, STEP_MICROSECONDS - 50, {"External id": step})
    loader = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    yield _host("user_annotation", loader, begin + 5, 4000, {"External id": step})
    yield _host("python_function", "train.py(31): main", begin, STEP_MICROSECONDS - 60, {"Python id": step})
    for index in range(KERNELS_PER_STEP):
        yield from _operation(step * KERNELS_PER_STEP + index, begin + 4100 + index * 22, begin + 4400 + index * 23.5)


def _operation(number: int, launched: float, start: float) -> Iterator[dict[str, Any]]:
    """An operator with its Python frame, its launch, both arrow ends, a memory mark and the kernel."""
    shapes = {"Input Dims": [[64, 512, 7, 7], [512, 512, 3, 3]], "Input type": ["float", "float"], "Ev Idx": number}
    yield _host(
        "python_function", f"torch/nn/modules/conv.py({number % 90}): forward", launched, 18, {"Python id": number}
    )
    yield _host("cpu_op", f"aten::convolution_{number % 40}", launched + 1, 15, {"External id": number, **shapes})
    yield _host("cuda_runtime", "cudaLaunchKernel", launched + 6, 5.125, {"cbid": 211, "correlation": number})
    arrow = {"cat": "ac2g", "name": "ac2g", "id": number}
    yield {"ph": "s", **arrow, "pid": _PROCESS, "tid": _PROCESS, "ts": launched + 6}
    name = f"void cudnn::engines_precompiled::nchwToNhwcKernel<float, float, {number % 60}>(int, float const*, float*)"
    where = {"device": 0, "context": 1, "stream": 7, "correlation": number, "registers per thread": 32,
             "grid": [512, 1, 1], "block": [256, 1, 1], "est. achieved occupancy %": 62}  # fmt: skip
    length = 1.5 + number % 23
    yield {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": start, "dur": length, "args": where}
    yield {"ph": "f", **arrow, "pid": 0, "tid": 7, "ts": start, "bp": "e"}
    yield {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": _PROCESS, "tid": _PROCESS,
           "ts": launched + 2, "args": {"Total Allocated": number * 512, "Device Id": 0, "Bytes": 512}}  # fmt: skip


def _host(category: str, name: str, start: float, length: float, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": _PROCESS, "tid": _PROCESS, "ts": round(start, 3),
            "dur": round(length, 3), "args": args}  # fmt: skip
