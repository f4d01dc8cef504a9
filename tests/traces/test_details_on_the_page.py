"""Collectives, memory and the critical path in ``hotlap trace``, and traces without them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from json_documents import assert_valid
from trace_writer import TraceWriter, training_trace

from hotlap.cli.main import main

TITLES = ("Critical path of", "Collectives", "Memory of", "Last rank to reach", "Floating-point operations")


def ranks(folder: Path) -> Path:
    """Write two ranks of one run; rank 1 reaches each step's all-reduce 300 microseconds late."""
    for rank, compute in enumerate((500, 800)):
        writer = TraceWriter()
        for begin in writer.steps(3, 1000, 1000):
            writer.launch("gemm", begin + 1, begin + 10, compute)
            message = {
                "Collective name": "allreduce", "In msg nelems": 10**6, "Out msg nelems": 10**6, "Group size": 2,
                "dtype": "Half", "Process Group Name": "0", "Process Group Ranks": "[0, 1]", "Seq": begin,
            }  # fmt: skip
            writer.launch(
                "ncclDevKernel_AllReduce", begin + 5, begin + 10 + compute, 980 - compute, stream=20, **message
            )
            writer.memory(begin + 7, 4096, 2**20 + 4096)
            writer.memory(begin + 900, -4096, 2**20)
        writer.write(folder / f"rank{rank}.json", distributedInfo={"rank": rank, "world_size": 2})
    return folder


def shown(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["trace", "--full", str(path)]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_two_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = shown(ranks(tmp_path), capsys)
    assert [it in page for it in TITLES] == [True, True, True, True, False]
    assert "1 3 of 3 900 us 0 ms rank1.json" in page
    assert "Peak: 1.0 MiB allocated" in page


def test_the_document_is_in_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "--json", str(ranks(tmp_path))]) == 0
    document = json.loads(capsys.readouterr().out)
    assert_valid(document)
    assert document["collectives"]["ranks"][1]["waited_for_seconds"] == pytest.approx(900e-6)
    first = document["traces"][0]
    assert first["collectives"][0]["seconds"] == pytest.approx(3 * 480e-6)
    assert first["memory"][0]["peak"]["allocated_bytes"] == 2**20 + 4096
    path = first["critical_path"]
    assert path["seconds"] == pytest.approx(sum(it["seconds"] for it in path["parts"]))
    assert [it["number"] for it in path["steps"]] == [0, 1, 2]


def test_a_trace_without_any_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = shown(training_trace().write(tmp_path / "trace.json"), capsys)
    assert [it in page for it in TITLES] == [True, False, False, False, False]
    writer = TraceWriter()
    writer.host("operator", "aten::mm", 0, 10)
    page = shown(writer.write(tmp_path / "host.json"), capsys)
    assert not any(it in page for it in TITLES)


def test_a_trace_without_device_work_has_no_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = training_trace()
    writer.host("call", "cudaGraphLaunch", 3500, 10, correlation=7777)
    page = shown(writer.write(tmp_path / "trace.json"), capsys)
    assert "Do not trust these figures" in page
    assert "Critical path of" not in page
