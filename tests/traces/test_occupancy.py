"""Occupancy, grids, registers and shared memory of kernels, as Kineto writes them; and grids that are too small."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from test_reference import REFERENCE, TRACES
from test_verdicts import busy_with, rules, verdict
from trace_writer import TraceWriter, kineto_text, training_trace, write_text

from hotlap.cli.main import main
from hotlap.traces import analyse, read_trace
from hotlap.traces.records import KernelRow


def launched(
    *, blocks: float | None = 4.0, warps: float | None = 16.0, occupancy: float | None = 50, registers: int = 32,
    memory: int = 0,
) -> dict[str, Any]:  # fmt: skip
    found = {
        "registers per thread": registers, "shared memory": memory, "blocks per SM": blocks, "warps per SM": warps,
        "grid": [320, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %": occupancy,
    }  # fmt: skip
    return {name: it for name, it in found.items() if it is not None}


def rows(writer: TraceWriter, folder: Path) -> dict[str, KernelRow]:
    (device,) = analyse(read_trace(writer.write(folder / "trace.json"), with_inputs=True)).devices
    return {it.name: it for it in device.kernels}


def test_means_are_weighted_by_time(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.launch("gemm", 0, 100, 30, **launched(blocks=2.0, warps=8.0, occupancy=20, registers=64))
    writer.launch("gemm", 10, 200, 10, **launched(blocks=6.0, warps=24.0, occupancy=60, memory=49152))
    writer.launch("relu", 20, 300, 10, **launched())
    row = rows(writer, tmp_path)["gemm"]
    assert row.occupancy == pytest.approx(0.3)
    assert (row.blocks_per_multiprocessor, row.warps_per_multiprocessor) == (3.0, 12.0)
    assert (row.registers_per_thread, row.shared_memory_bytes) == (64, 49152)
    assert rows(writer, tmp_path)["relu"].occupancy == 0.5


def test_time_with_too_few_blocks(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.launch("gemm", 0, 100, 40, **launched(blocks=0.25, warps=1.0, occupancy=2))
    writer.launch("gemm", 10, 200, 60, **launched(blocks=0.5, warps=2.0, occupancy=4))
    row = rows(writer, tmp_path)["gemm"]
    assert (row.few_blocks_nanoseconds, row.without_block_nanoseconds) == (40_000, 30_000)


@pytest.mark.parametrize(
    ("warps", "percent", "expected"),
    [
        (10.2, 0, None),  # Kineto could not compute it: this grid has ten warps for each multiprocessor.
        (0.1, 0, 0.0),
        (None, 0, None),
        (2.0, -100, None),
        (2.0, 101, None),
        (2.0, None, None),
        (64.0, 100, 1.0),
    ],
)
def test_an_occupancy_that_kineto_did_not_compute_is_unknown(
    warps: float | None, percent: float | None, expected: float | None, tmp_path: Path
) -> None:
    writer = TraceWriter()
    writer.launch("gemm", 0, 100, 30, **launched(warps=warps, occupancy=percent))
    writer.launch("gemm", 10, 200, 10, **launched(warps=warps, occupancy=percent))
    assert rows(writer, tmp_path)["gemm"].occupancy == expected


def test_copies_and_kernels_without_the_fields_have_none(tmp_path: Path) -> None:
    writer = training_trace()
    writer.launch("Memset (Device)", 5000, 5010, 5, kind="memset", **launched())
    for row in rows(writer, tmp_path).values():
        assert (row.occupancy, row.blocks_per_multiprocessor, row.registers_per_thread) == (None, None, None)


def test_invalid_occupancy_figures_are_left_out(tmp_path: Path) -> None:
    """Kineto writes ``inf`` if the number of multiprocessors is unknown."""
    writer = TraceWriter()
    writer.launch("gemm", 0, 100, 30, **launched(blocks=-3.0, warps=1e300))
    text = kineto_text(writer.events).replace(b'"registers per thread": 32', b'"registers per thread": inf')
    (device,) = analyse(read_trace(write_text(tmp_path / "trace.json", text), with_inputs=True)).devices
    (row,) = device.kernels
    assert (row.blocks_per_multiprocessor, row.warps_per_multiprocessor, row.registers_per_thread) == (None, None, None)
    assert row.occupancy == 0.5


def test_a_trace_read_without_inputs_has_no_occupancy(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.launch("gemm", 0, 100, 30, **launched())
    (device,) = analyse(read_trace(writer.write(tmp_path / "trace.json"))).devices
    assert device.kernels[0].occupancy is None


@pytest.mark.skipif(not REFERENCE.exists(), reason=f"the reference traces are not at {TRACES}")
@pytest.mark.parametrize("file", ["kineto_v100_resnet50_nw0.pt.trace.json.gz", "hta_v100x2_ddp_216k.json.gz"])
def test_a_real_trace(file: str) -> None:
    with gzip.open(TRACES / file) as opened:
        events = json.load(opened)["traceEvents"]
    (device,) = analyse(read_trace(TRACES / file, with_inputs=True)).devices
    for row in device.kernels[:10]:
        launches = [it for it in events if it["name"] == row.name and it.get("cat") in ("kernel", "Kernel")]
        if row.kind != "kernel":
            continue
        whole = sum(it["dur"] for it in launches)
        percent = sum(it["dur"] * it["args"]["est. achieved occupancy %"] for it in launches) / whole
        blocks = sum(it["dur"] * it["args"]["blocks per SM"] for it in launches) / whole
        assert row.occupancy == pytest.approx(percent / 100)
        assert row.blocks_per_multiprocessor == pytest.approx(blocks)
        assert row.registers_per_thread == max(it["args"]["registers per thread"] for it in launches)


# ---------------------------------------------------------------------------------------------
# The verdict and the page
# ---------------------------------------------------------------------------------------------


def with_grid(writer: TraceWriter, **figures: Any) -> TraceWriter:
    for event in writer.events:
        if event["cat"] == "kernel":
            event["args"].update(launched(**figures))
    return writer


def test_too_few_blocks_are_a_cause(tmp_path: Path) -> None:
    found = verdict(with_grid(busy_with("reduce_kernel"), blocks=0.25, warps=1.0, occupancy=2), tmp_path)
    (finding,) = [it for it in found.findings if it.rule == "small-grids"]
    # Three quarters of the multiprocessors have nothing to do for 98 % of the time.
    assert finding.share.high == pytest.approx(0.75 * 0.98, rel=0.02)
    assert finding.share.low == 0
    assert finding.title == "Kernels with too few blocks for half of the multiprocessors take 98 % of the step."
    assert finding.evidence == ("reduce_kernel: 29.4 ms of 30 launches, 0.25 blocks per multiprocessor",)


@pytest.mark.parametrize(
    ("kernel", "blocks"), [("reduce_kernel", 0.5), ("reduce_kernel", None), ("ncclDevKernel_AllReduce", 0.1)]
)
def test_enough_or_unknown_blocks_and_collectives_are_no_cause(
    kernel: str, blocks: float | None, tmp_path: Path
) -> None:
    assert "small-grids" not in rules(verdict(with_grid(busy_with(kernel), blocks=blocks), tmp_path))


def test_the_page_and_the_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(with_grid(training_trace(), blocks=0.25, warps=1.0, occupancy=2).write(tmp_path / "trace.json"))
    assert main(["trace", "--full", path]) == 0
    page = capsys.readouterr().out
    table = page[page.index("\nKernels\n") :]
    assert "occupancy  blocks/SM" in table
    assert "2 %       0.25" in table
    assert main(["trace", "--json", path]) == 0
    (device,) = json.loads(capsys.readouterr().out)["traces"][0]["devices"]
    kernel = next(it for it in device["kernels"] if it["kind"] == "kernel")
    assert (kernel["occupancy"], kernel["few_blocks_seconds"]) == (pytest.approx(0.02), pytest.approx(540e-6))


def test_the_page_omits_columns_of_unrecorded_fields(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "--full", str(training_trace().write(tmp_path / "trace.json"))]) == 0
    page = capsys.readouterr().out
    assert "occupancy" not in page
    assert "blocks/SM" not in page
