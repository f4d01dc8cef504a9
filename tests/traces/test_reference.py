"""The figures of four real traces match an exact and independent computation."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from hotlap.traces import Timeline, analyse, read_trace
from hotlap.traces.usage import DeviceSpans, kernel_table, kernels_of, stream_idle

TRACES = Path(__file__).parents[3] / "shared" / "traces"
REFERENCE = TRACES / "reference.json"
pytestmark = pytest.mark.skipif(not REFERENCE.exists(), reason=f"the reference traces are not at {TRACES}")

SELECTIONS = ("all_gpu_events", "hta_default_selection", "hta_include_last_selection")


def references() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(REFERENCE.read_text(encoding="utf-8")) if REFERENCE.exists() else []
    return found


def cases() -> list[Any]:
    return [
        pytest.param(it, selection, id=f"{it['file'].split('.')[0]}-{selection}")
        for it in references()
        for selection in SELECTIONS
        if selection in it
    ]


@functools.cache
def timeline(file: str) -> Timeline:
    return read_trace(TRACES / file)


def selected(line: Timeline, selection: str) -> Any:
    if selection == "all_gpu_events":
        return range(len(line.device))
    dropped = 1 if selection == "hta_default_selection" else 0
    return [event for event, step in enumerate(line.device.step) if 0 <= step < len(line.steps) - dropped]


def nanoseconds(microseconds: float) -> int:
    return round(microseconds * 1000)


@pytest.mark.parametrize(("reference", "selection"), cases())
def test_device_time(reference: dict[str, Any], selection: str) -> None:
    line = timeline(reference["file"])
    expected = reference[selection]
    events = selected(line, selection)
    found = DeviceSpans(line, events, kernels_of(line, events)).whole()
    assert found.events == expected["n_gpu"]
    assert found.window_nanoseconds == nanoseconds(expected["span_us"])
    assert found.busy_nanoseconds == nanoseconds(expected["busy_us"])
    assert found.idle_nanoseconds == nanoseconds(expected["idle_us"])
    assert found.compute_nanoseconds == nanoseconds(expected["compute_us"])
    assert found.communication_nanoseconds == nanoseconds(expected["comm_us"])
    assert found.memory_nanoseconds == nanoseconds(expected["mem_us"])
    share = 100 * found.idle_nanoseconds / found.window_nanoseconds
    assert round(share, 2) == expected["idle_pct"]
    if expected["comm_comp_overlap_pct"] is not None:
        overlap = 100 * found.overlapped_communication_nanoseconds / found.communication_nanoseconds
        assert round(overlap, 2) == expected["comm_comp_overlap_pct"]


@pytest.mark.parametrize(("reference", "selection"), cases())
def test_waits_within_streams(reference: dict[str, Any], selection: str) -> None:
    line = timeline(reference["file"])
    found = {str(it.stream): it for it in stream_idle(line, selected(line, selection))}
    expected = reference[selection]["idle_per_stream"]
    assert set(found) == set(expected)
    for stream, waits in expected.items():
        it = found[stream]
        assert it.host_wait_nanoseconds == nanoseconds(waits["host_wait_us"])
        assert it.kernel_wait_nanoseconds == nanoseconds(waits["kernel_wait_us"])
        assert it.other_nanoseconds == nanoseconds(waits["other_us"])
        assert [it.host_waits, it.kernel_waits, it.others] == waits["n"]


@pytest.mark.parametrize(("reference", "selection"), cases())
def test_kernel_table(reference: dict[str, Any], selection: str) -> None:
    line = timeline(reference["file"])
    expected = reference[selection]["top_kernels"]
    rows = kernel_table(line, selected(line, selection))
    found = [[it.name[:90], it.nanoseconds, it.launches] for it in rows[: len(expected)]]
    assert found == [[name, nanoseconds(length), launches] for name, length, launches in expected]


@pytest.mark.parametrize("reference", references(), ids=lambda it: it["file"].split(".")[0])
def test_no_event_is_lost_and_times_add_up(reference: dict[str, Any]) -> None:
    breakdown = analyse(timeline(reference["file"]))
    seen = breakdown.coverage
    assert seen.events == reference["n_events"]
    assert seen.events == (
        seen.device_events + seen.host_events + seen.other_events + seen.invalid_events + seen.unreadable_events
    )
    assert seen.linked_events + seen.unlinked_events == seen.device_events
    assert (seen.repaired_events, seen.unreadable_events, seen.ended_early) == (0, 0, "")
    assert len(breakdown.steps) == reference["n_steps"]
    for device in breakdown.devices:
        assert (
            sum(it.nanoseconds for it in device.idle.causes) == device.idle.nanoseconds == device.time.idle_nanoseconds
        )
        if "step_window_gpu_busy_pct" in reference:
            assert device.in_steps is not None
            busy = 100 * device.in_steps.busy_nanoseconds / device.in_steps.window_nanoseconds
            assert round(busy, 2) == reference["step_window_gpu_busy_pct"]


@pytest.mark.parametrize(
    ("file", "cause"),
    [
        ("kineto_v100_resnet50_nw0.pt.trace.json.gz", "data_loader"),  # num_workers=0
        ("tracelens_h100_owlv2.json.gz", "data_loader"),
        ("hta_v100x2_ddp_216k.json.gz", "launch_bound"),  # 3874 kernels per step
    ],
)
def test_the_largest_cause(file: str, cause: str) -> None:
    (device,) = analyse(timeline(file)).devices
    assert device.idle.causes[0].cause == cause
    assert device.idle.causes[0].nanoseconds > device.idle.nanoseconds / 2
