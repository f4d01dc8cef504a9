"""Memory and critical path of real traces, compared with figures computed directly from the files."""

from __future__ import annotations

import functools
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from hotlap.traces import Timeline, read_trace
from hotlap.traces.critical_path import critical_path
from hotlap.traces.memory import memory_use
from hotlap.traces.usage import DeviceSpans, kernels_of

TRACES = Path(__file__).parents[3] / "shared" / "traces"
WITH_TOTALS = ("hta_v100x2_ddp_216k.json.gz", "tracelens_h100_owlv2.json.gz")
STEPPED = (*WITH_TOTALS, "kineto_v100_resnet50_nw0.pt.trace.json.gz")
pytestmark = pytest.mark.skipif(not TRACES.exists(), reason=f"the reference traces are not at {TRACES}")


@functools.cache
def timeline(file: str) -> Timeline:
    return read_trace(TRACES / file, with_inputs=True)


@functools.cache
def changes(file: str) -> list[dict[str, Any]]:
    document = json.loads(gzip.decompress((TRACES / file).read_bytes()))
    found = [it for it in document["traceEvents"] if it.get("name") == "[memory]" and it["args"]["Device Type"] == 1]
    return sorted(found, key=lambda it: float(it["ts"]))


@pytest.mark.parametrize("file", WITH_TOTALS)
def test_the_peak_of_memory(file: str) -> None:
    (use,) = memory_use(timeline(file))
    raw = changes(file)
    assert use.changes == len(raw)
    assert use.peak.allocated_bytes == max(it["args"]["Total Allocated"] for it in raw)
    assert use.peak_reserved_bytes == max(it["args"]["Total Reserved"] for it in raw)
    assert use.held_before_bytes is not None
    assert use.held_before_bytes + sum(it.bytes for it in use.holders) == use.peak.allocated_bytes


def test_the_peak_of_a_legacy_trace_is_the_largest_sum() -> None:
    file = STEPPED[2]
    (use,) = memory_use(timeline(file))
    level = highest = 0
    for it in changes(file):
        level += it["args"]["Bytes"]
        highest = max(highest, level)
    assert use.peak.allocated_bytes == highest
    assert len(use.steps) == len(timeline(file).steps)


@pytest.mark.parametrize("file", STEPPED)
def test_the_path_covers_the_steps(file: str) -> None:
    line = timeline(file)
    path = critical_path(line)
    assert path is not None
    assert sum(it.nanoseconds for it in path.parts) == path.nanoseconds
    assert sum(it.nanoseconds for it in path.steps) == path.nanoseconds
    on_device = sum(it.nanoseconds for it in path.parts if it.kind in ("compute", "communication", "copy"))
    events = range(len(line.device))
    assert on_device <= DeviceSpans(line, events, kernels_of(line, events)).whole().busy_nanoseconds
    steps = line.steps
    assert path.nanoseconds >= steps[-1].end - steps[0].start


def test_a_loader_without_workers_is_on_the_path() -> None:
    """The device waits for the loader half of the time and computes otherwise; the host waits for the device."""
    path = critical_path(timeline("tracelens_h100_owlv2.json.gz"))
    assert path is not None
    shares = {it.kind: it.nanoseconds / path.nanoseconds for it in path.parts}
    assert shares["loader"] == pytest.approx(0.51, abs=0.01)
    assert shares["compute"] == pytest.approx(0.45, abs=0.01)
