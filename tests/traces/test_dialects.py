"""Every dialect that profilers have written since 2020 gives the same account."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_writer import LEGACY, MODERN, TraceWriter, kineto_text, training_trace, write_text

from hotlap.traces import Breakdown, analyse, read_trace
from hotlap.traces.events import decoder
from hotlap.traces.reader import Timeline
from hotlap.traces.times import LATEST_TIME, DigitsLostError, nanoseconds

EPOCH = 1_695_835_542_514_261
HIP = {**MODERN, "call": "hip_runtime"}


def account(breakdown: Breakdown) -> dict[str, Any]:
    (device,) = breakdown.devices
    return {
        "time": device.time,
        "in_steps": device.in_steps,
        "kernels": [(it.name, it.launches, it.nanoseconds) for it in device.kernels if it.kind == "kernel"],
        "copies": [(it.direction, it.memory, it.copies, it.nanoseconds, it.bytes) for it in device.copies],
        "idle": [(it.cause, it.nanoseconds, it.gaps) for it in device.idle.causes],
        "streams": device.streams,
        "linked": breakdown.coverage.linked_events,
    }


DIALECTS = {
    "modern": TraceWriter(),
    "legacy": TraceWriter(categories=LEGACY, origin=EPOCH),
    "hip": TraceWriter(categories=HIP, calls="hip", origin=EPOCH),
    "fractional": TraceWriter(origin=1_419_116_104_994.671),
}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("ending", [".json", ".json.gz"])
def test_all_dialects_give_the_same_account(dialect: str, ending: str, tmp_path: Path) -> None:
    plain = analyse(read_trace(training_trace().write(tmp_path / "plain.json")))
    it = DIALECTS[dialect]
    writer = training_trace(TraceWriter(categories=it.categories, origin=it.origin, calls=it.calls))
    found = analyse(read_trace(writer.write(tmp_path / f"trace{ending}")))
    assert account(found) == account(plain)
    assert [it.number for it in found.steps] == [0, 1, 2]


def test_the_account_matches_the_written_events(tmp_path: Path) -> None:
    breakdown = analyse(read_trace(training_trace().write(tmp_path / "trace.json")))
    (device,) = breakdown.devices
    time = device.time
    assert time.window_nanoseconds == (2000 + 740 - 330) * 1000
    assert time.compute_nanoseconds == 3 * 5 * 60 * 1000
    assert time.copy_nanoseconds == 3 * 40 * 1000
    assert time.busy_nanoseconds == time.compute_nanoseconds + time.copy_nanoseconds
    causes = {it.cause: it.nanoseconds for it in device.idle.causes}
    assert causes["data_loader"] == 2 * 300_000
    assert causes["queued"] == 3 * 4 * 10_000
    assert [it.loader_nanoseconds for it in breakdown.steps] == [300_000] * 3
    assert [it.kernels for it in breakdown.steps] == [5] * 3
    assert device.kernel_summary.per_step == 5


@pytest.mark.parametrize("fields", [{}, {"deviceProperties": [{"id": 0, "name": "Some GPU"}, {"id": 1, "name": "B"}]}])
def test_compact_json_and_a_bare_list_are_read_too(fields: dict[str, Any], tmp_path: Path) -> None:
    writer = training_trace()
    expected = account(analyse(read_trace(writer.write(tmp_path / "spread.json"))))
    behind = {"traceEvents": writer.events, **fields, "baseTimeNanoseconds": 7}
    for name, document in {"compact": behind, "list": writer.events}.items():
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(document, separators=(",", ":")), encoding="utf-8")
        line = read_trace(path)
        assert account(analyse(line)) == expected
        assert line.coverage.ended_early == ""
    assert read_trace(tmp_path / "compact.json").facts.base_nanoseconds == 7


def test_arguments_with_lists_of_objects_do_not_end_events(tmp_path: Path) -> None:
    writer = training_trace(steps=40)
    for index, event in enumerate(writer.events):
        event["args"]["nested"] = [{"a": 1}, {"b": [{"c": "},{"}, {"d": index}]}]
    path = tmp_path / "nested.json"
    path.write_text(json.dumps(writer.document(), separators=(",", ":")) * 1, encoding="utf-8")
    plain = account(analyse(read_trace(training_trace(steps=40).write(tmp_path / "plain.json"))))
    assert account(analyse(read_trace(path))) == plain


def test_input_may_be_split_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = training_trace()
    path = writer.write(tmp_path / "trace.json", deviceProperties=[{"id": 0, "name": "}, {"}])
    expected = account(analyse(read_trace(path)))
    for size in (1, 2, 3, 7, 64, 1000):
        monkeypatch.setattr("hotlap.traces.source.PIECE_BYTES", size)
        line = read_trace(path)
        assert account(analyse(line)) == expected
        assert (line.coverage.events, line.coverage.repaired_events) == (len(writer.events), 0)
        assert line.facts.device_names == ("}, {",)


def test_devices_and_streams_are_kept_apart(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.launch("matmul", 0, 10, 100, stream=7, device=0)
    writer.launch("ncclDevKernel_AllReduce_Sum_f32", 5, 60, 100, stream=20, device=0)
    writer.launch("matmul", 8, 30, 50, stream=7, device=1)
    breakdown = analyse(read_trace(writer.write(tmp_path / "trace.json")))
    zero, one = breakdown.devices
    assert (zero.device, one.device) == (0, 1)
    assert [it.stream for it in zero.streams] == [7, 20]
    assert zero.time.busy_nanoseconds == 150_000
    assert zero.time.communication_nanoseconds == 100_000
    assert zero.time.exposed_communication_nanoseconds == 50_000
    assert zero.time.overlapped_communication_nanoseconds == 50_000
    assert one.time.busy_nanoseconds == 50_000


@pytest.mark.parametrize("tracks", [(0, 1), (0, 0)])
def test_ranks_merged_into_one_file_keep_their_own_launches(tracks: tuple[int, int], tmp_path: Path) -> None:
    """Both ranks count correlations from one, and both may call their device 0."""
    merged: list[dict[str, Any]] = []
    for rank, device in enumerate(tracks):
        writer = TraceWriter(origin=rank * 7)
        for step in range(4):
            begin = step * 1000
            writer.launch("gemm", begin, begin + 20, 100 + 300 * rank, device=device)
            writer.launch("add", begin + 500, begin + 510, 100, device=device)
        for event in writer.events:
            on_device = event["cat"] == "kernel"
            event["pid"] = rank * 100 if on_device else 4242 + rank
        merged += writer.events
    path = write_text(tmp_path / "merged.json", kineto_text(merged))
    line = read_trace(path)
    breakdown = analyse(line)
    assert [it.device for it in breakdown.devices] == [0, 1]
    assert breakdown.coverage.unlinked_events == 0
    for device, compute in zip(breakdown.devices, (800, 2000), strict=True):  # type: ignore[assignment]
        assert device.time.compute_nanoseconds == compute * 1000  # type: ignore[attr-defined]
        assert {it.cause for it in device.idle.causes} == {"launch_bound"}  # type: ignore[attr-defined]
    processes = [line.threads[line.calls.thread[it]][0] for it in line.device.launch]
    assert set(zip(line.device.device, processes, strict=True)) == {(0, "4242"), (1, "4243")}


def test_tracks_of_one_process_share_their_device(tmp_path: Path) -> None:
    writer = training_trace()
    for event in writer.events:
        if event["cat"] == "gpu_memcpy":
            event["pid"] = "copies"
    (device,) = analyse(read_trace(writer.write(tmp_path / "trace.json"))).devices
    assert (device.device, device.time.events) == (0, 18)


@pytest.mark.parametrize(
    ("properties", "device", "name"),
    [
        ([{"id": 0, "name": "A"}, {"id": 1, "name": "B"}], 1, "B"),
        ([{"id": 4, "name": "A"}, {"id": 5, "name": "B"}], 5, "B"),
        ([{"id": 4, "name": "A"}, {"id": 5, "name": "B"}], 1, ""),
        (
            [{"id": 0, "name": "AMD Instinct MI300X"}, {"id": 1, "name": "AMD Instinct MI300X"}],
            8,
            "AMD Instinct MI300X",
        ),
        ([{"name": "A"}, {"name": "B"}], 1, "B"),
        ([], 0, ""),
    ],
)
def test_devices_are_named_by_their_number(
    properties: list[dict[str, Any]], device: int, name: str, tmp_path: Path
) -> None:
    writer = TraceWriter()
    writer.launch("matmul", 0, 10, 100, device=device)
    (found,) = analyse(read_trace(writer.write(tmp_path / "trace.json", deviceProperties=properties))).devices
    assert found.name == name


def test_work_of_mtia_is_work_of_a_device(tmp_path: Path) -> None:
    categories = {**MODERN, "kernel": "mtia_ccp_events", "call": "mtia_runtime"}
    (device,) = analyse(
        read_trace(training_trace(TraceWriter(categories=categories)).write(tmp_path / "t.json"))
    ).devices
    assert device.time.compute_nanoseconds == 3 * 5 * 60 * 1000


def test_graph_launches_link_all_their_kernels(tmp_path: Path) -> None:
    for calls, call in (("cuda", "GraphLaunch"), ("hip", "GraphLaunch")):
        writer = TraceWriter(calls=calls)
        for replay in range(3):
            begin = replay * 500
            writer.launch("first", begin, begin + 20, 50, call=call, **{"graph id": 1})
            writer.device("kernel", "second", begin + 75, 50, correlation=writer.correlation, **{"graph id": 1})
        breakdown = analyse(read_trace(writer.write(tmp_path / f"{calls}.json")))
        seen = breakdown.coverage
        assert (seen.linked_events, seen.unlinked_events) == (6, 0)
        assert (seen.graph_launches, seen.graph_launches_without_kernels) == (3, 0)
        assert breakdown.unreliable == ""


def test_graph_launches_without_kernels_make_a_trace_unreliable(tmp_path: Path) -> None:
    writer = training_trace()
    writer.host("call", "cudaGraphLaunch", 900, 10, correlation=9_000)
    writer.host("call", "cudaGraphLaunch", 1900, 10, correlation=9_001)
    breakdown = analyse(read_trace(writer.write(tmp_path / "trace.json")))
    assert breakdown.coverage.graph_launches_without_kernels == 2
    assert "2 of 2 graph launches" in breakdown.unreliable


@pytest.mark.parametrize("lost", [0, 1, 3])
def test_partly_recorded_graph_replays_make_a_trace_unreliable(lost: int, tmp_path: Path) -> None:
    writer = TraceWriter()
    for replay in range(3):
        begin = replay * 500
        for graph, nodes in ((1, 4), (2, 2)):
            writer.launch("first", begin, begin + 20, 10, call="GraphLaunch", **{"graph id": graph})
            recorded = nodes - lost if (replay, graph) == (1, 1) else nodes
            for node in range(1, recorded):
                place = {"correlation": writer.correlation, "graph id": graph}
                writer.device("kernel", f"node {node}", begin + 20 + 20 * node, 10, **place)
    breakdown = analyse(read_trace(writer.write(tmp_path / "trace.json")))
    seen = breakdown.coverage
    assert (seen.graph_launches, seen.graph_launches_without_kernels) == (6, 0)
    assert seen.graph_launches_in_part == bool(lost)
    assert ("1 of 6 graph launches have fewer kernels" in breakdown.unreliable) == bool(lost)


def test_device_work_is_known_by_its_category_alone(tmp_path: Path) -> None:
    writer = training_trace()
    expected = account(analyse(read_trace(writer.write(tmp_path / "plain.json"))))
    # A host operator named after a stream, a wait that carries a stream, a mark that covers the whole device.
    writer.host("operator", "stream_join", 5, 900, stream=7, correlation=101, device=0)
    for category, name in (("cuda_sync", "Stream Sync"), ("gpu_user_annotation", "ProfilerStep#0")):
        writer.events.append(
            {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": 7, "ts": 0, "dur": 3000,
             "args": {"stream": 7, "device": 0, "correlation": 102}}
        )  # fmt: skip
    found = analyse(read_trace(writer.write(tmp_path / "more.json")))
    assert account(found) == expected
    assert dict(found.coverage.other) == {"cuda_sync": 1, "gpu_user_annotation": 1}


def test_device_events_without_a_launch_count(tmp_path: Path) -> None:
    writer = training_trace()
    writer.device("kernel", "orphan", 800, 100)
    writer.device("kernel", "orphan", 950, 20, correlation=777)
    breakdown = analyse(read_trace(writer.write(tmp_path / "trace.json")))
    assert breakdown.coverage.unlinked_events == 2
    assert any("2 device events have no launch" in it for it in breakdown.notes)
    (device,) = breakdown.devices
    assert next(it for it in device.kernels if it.name == "orphan").nanoseconds == 120_000
    assert {it.cause for it in device.idle.causes} >= {"unknown"}


def test_a_trace_without_accelerator_reports_its_steps(tmp_path: Path) -> None:
    writer = TraceWriter()
    for number in range(2):
        writer.step(number, number * 100, 90)
        writer.host("operator", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", number * 100 + 5, 30)
    breakdown = analyse(read_trace(writer.write(tmp_path / "trace.json")))
    assert breakdown.devices == ()
    assert [it.loader_nanoseconds for it in breakdown.steps] == [30_000, 30_000]
    assert any("no accelerator work" in it for it in breakdown.notes)


def written_times(line: Timeline) -> list[int]:
    return line.operators.start


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("1419116104994.671", 1_419_116_104_994_671),
        ("1695835542514261", 1_695_835_542_514_261_000),
        ("1695835542514261.123", 1_695_835_542_514_261_123),
        ("1695835542514261.9995", 1_695_835_542_514_262_000),
        ("7948800000000.001", 7_948_800_000_000_001),
        ("0.001", 1),
        ("-5.5", -5_500),
        ("1.5e3", 1_500_000),
        ('"12.345"', 12_345),
    ],
)
def test_times_are_exact(written: str, expected: int, tmp_path: Path) -> None:
    event = '{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "dur": 0.002, "ts": ' + written + "}"
    path = tmp_path / "trace.json"
    path.write_text(f'{{"traceEvents": [{event}]}}', encoding="utf-8")
    line = read_trace(path)
    assert written_times(line) == [expected]
    assert line.operators.end == [expected + 2]


def nanoseconds_of(written: str) -> list[int]:
    """Parse a time of a file: as a double where that is exact, else as a decimal."""
    batch = decoder().decode(b'[{"ph":"X","ts":%s,"dur":1.5}]' % written.encode())
    try:
        return nanoseconds([it.ts for it in batch.elements])
    except DigitsLostError:
        assert batch.exact is not None
        return nanoseconds([it.ts for it in batch.exact().elements])


@given(st.integers(0, 92 * 86_400 * 10**9), st.sampled_from(["trimmed", "three digits"]))
def test_every_nanosecond_of_a_base_time_trace_survives(time: int, style: str) -> None:
    """Round-trip microseconds with three digits since a base at most three months ago, as Kineto writes them."""
    text = f"{time // 1000}.{time % 1000:03d}"
    text = text.rstrip("0").rstrip(".") if style == "trimmed" else text
    assert nanoseconds_of(text) == [time]


@given(st.decimals(-(10**15), 10**16, places=3))
def test_every_nanosecond_since_1970_survives(microseconds: Decimal) -> None:
    assert nanoseconds_of(format(microseconds, "f")) == [int(microseconds * 1000)]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_of_any_size_become_nanoseconds(microseconds: float) -> None:
    try:
        (found,) = nanoseconds([microseconds])
    except DigitsLostError:
        (found,) = nanoseconds([Decimal(microseconds)])
    if abs(found) <= LATEST_TIME:
        assert abs(found - Decimal(microseconds) * 1000) <= Decimal("0.501")


def test_facts_next_to_the_events(tmp_path: Path) -> None:
    text = kineto_text(
        training_trace().events,
        deviceProperties=[{"id": 0, "name": "NVIDIA H100"}],
        distributedInfo={"backend": "nccl", "rank": 3, "world_size": 8},
        baseTimeNanoseconds=1_751_410_836_000_000_000,
    )
    facts = read_trace(write_text(tmp_path / "trace.json.gz", text)).facts
    assert (facts.rank, facts.world_size, facts.device_names) == (3, 8, ("NVIDIA H100",))
    assert facts.base_nanoseconds == 1_751_410_836_000_000_000
    assert facts.name == "small.json"


def test_many_devices_and_streams_cost_no_more_than_their_events(tmp_path: Path) -> None:
    writer = TraceWriter()
    for index in range(3000):
        writer.device("kernel", f"k{index}", index, 1, stream=index, device=index % 200)
        writer.device("copy", f"Memcpy HtoD {index}", index, 1, stream=index)
    breakdown = analyse(read_trace(writer.write(tmp_path / "trace.json")))
    assert len(breakdown.devices) == 64
    assert any("200 devices" in it for it in breakdown.notes)
    first = breakdown.devices[0]
    assert len(first.streams) == 3000
    assert [(it.direction, it.copies) for it in first.copies] == [("HtoD", 3000)]
