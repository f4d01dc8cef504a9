"""Collectives of one trace: their kind and their bandwidth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trace_writer import TraceWriter

from hotlap.render.lines import Paper
from hotlap.render.trace_collectives import collective_lines
from hotlap.traces import CollectiveRow, collective_log, read_trace
from hotlap.traces.collectives import bus_factor, collective_rows, kind_of

KERNEL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def message(name: str = "allreduce", elements: int = 250_000, ranks: int = 4, **more: Any) -> dict[str, Any]:
    """Describe a message of this many float32 elements, in and out."""
    return {
        "Collective name": name, "In msg nelems": elements, "Out msg nelems": elements, "Group size": ranks,
        "dtype": "Float", "Process Group Name": "0", **more,
    }  # fmt: skip


def rows(writer: TraceWriter, folder: Path) -> tuple[CollectiveRow, ...]:
    line = read_trace(writer.write(folder / "trace.json"), with_inputs=True)
    return collective_rows(collective_log(line).calls)


def test_bandwidth_of_an_all_reduce(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.launch(KERNEL, 0, 10, 100, **message())
    writer.launch(KERNEL, 200, 210, 300, **message())
    writer.launch("gemm", 600, 610, 50)
    (row,) = rows(writer, tmp_path)
    assert (row.collective, row.group, row.group_size, row.dtype) == ("all-reduce", "0", 4, "Float")
    assert (row.message_bytes, row.calls, row.nanoseconds, row.shortest_nanoseconds) == (10**6, 2, 400_000, 100_000)
    # 2 MB in 400 us; an all-reduce among n sends 2 (n - 1) / n of its size over each link.
    assert row.algorithm_bytes_per_second == pytest.approx(5e9)
    assert row.bus_bytes_per_second == pytest.approx(7.5e9)
    assert row.best_bus_bytes_per_second == pytest.approx(15e9)


@pytest.mark.parametrize(
    ("kind", "factor"),
    [
        ("all-reduce", 1.75), ("all-gather", 0.875), ("reduce-scatter", 0.875), ("all-to-all", 0.875),
        ("gather", 0.875), ("scatter", 0.875), ("broadcast", 1.0), ("reduce", 1.0), ("send and receive", 1.0),
        ("collective", None),
    ],
)  # fmt: skip
def test_factors_of_eight_ranks(kind: str, factor: float | None) -> None:
    assert bus_factor(kind, 8) == factor
    assert bus_factor(kind, 1) is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("allreduce", "all-reduce"), ("allreduce_coalesced", "all-reduce"), ("_allgather_base", "all-gather"),
        ("_reduce_scatter_base", "reduce-scatter"), ("all_to_allv", "all-to-all"), ("broadcast", "broadcast"),
        ("reduce", "reduce"), ("send", "send and receive"), ("barrier", "all-reduce"), ("gather", "gather"),
        ("ncclKernel_ReduceScatter_RING_LL_Sum_half(ncclDevComm*)", "reduce-scatter"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "send and receive"),
        ("ncclDevKernel_Generic", "collective"),
    ],
)  # fmt: skip
def test_kinds_by_name(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_the_size_is_the_total_over_all_ranks(tmp_path: Path) -> None:
    writer = TraceWriter()
    gather = {**message("_allgather_base"), "In msg nelems": 1000, "Out msg nelems": 4000, "dtype": "BFloat16"}
    scatter = {**message("_reduce_scatter_base"), "In msg nelems": 4000, "Out msg nelems": 1000, "dtype": "Float8_e5m2"}
    writer.launch("ncclDevKernel_AllGather_RING_LL", 0, 10, 100, **gather)
    writer.launch("ncclDevKernel_ReduceScatter_Sum_f8", 200, 210, 50, **scatter)
    assert [it.message_bytes for it in rows(writer, tmp_path)] == [8000, 4000]


def test_sizes_and_groups_are_kept_apart(tmp_path: Path) -> None:
    writer = TraceWriter()
    for index, more in enumerate(({}, {"elements": 10}, {"ranks": 2, "Process Group Name": "tp"}, {})):
        writer.launch(KERNEL, index * 200, index * 200 + 10, 100, **message(**more))  # type: ignore[arg-type]
    found = rows(writer, tmp_path)
    assert [(it.group, it.message_bytes, it.calls) for it in found] == [("0", 10**6, 2), ("0", 40, 1), ("tp", 10**6, 1)]


def test_a_kernel_without_arguments_takes_those_of_its_operator(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.host("operator", "c10d::allreduce_", 0, 100)
    writer.host("operator", "record_param_comms", 10, 60, **message())
    writer.launch(KERNEL, 20, 40, 100)
    writer.host("operator", "record_param_comms", 110, 20, **message(elements=1))
    assert [it.message_bytes for it in rows(writer, tmp_path)] == [10**6]


def test_collectives_of_unknown_size_have_no_bandwidth(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.launch(KERNEL, 0, 10, 100)
    writer.launch(KERNEL, 200, 210, 100, **{**message(), "dtype": "Strange"})
    writer.launch("ncclDevKernel_Broadcast", 400, 410, 100, **message("broadcast", ranks=1))
    found = rows(writer, tmp_path)
    assert [it.bus_bytes_per_second for it in found] == [None, None, None]
    assert [it.group_size for it in found] == [0, 4, 1]


def test_the_page_shows_bandwidth_if_sizes_are_known(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.launch(KERNEL, 0, 10, 100, **message())
    page = "\n".join(collective_lines(rows(writer, tmp_path), Paper(width=120)))
    assert "all-reduce  0          4  Float  977 KiB" in page
    assert "15.0 GB/s" in page
    assert list(collective_lines((), Paper())) == []


def test_the_page_reports_unknown_sizes(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.launch(KERNEL, 0, 10, 100)
    page = "\n".join(collective_lines(rows(writer, tmp_path), Paper(width=120)))
    assert "the trace does not record message sizes" in page
    assert "B/s" not in page
