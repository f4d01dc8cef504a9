"""Evidence of a launch on a device: its memory, its copies, its trace, which are gathered without waiting for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from hotlap.evidence import RunEvidence
from hotlap.records import CollectEvidence, LaunchRequest, Run, Stopped
from hotlap.traces import analyse, read_trace

pytestmark = pytest.mark.gpu

HELD = 64 * 2**20
STEPS, PROFILED = 45, 5


def launched(lab: Any, *words: str) -> tuple[Run, RunEvidence]:
    assignment = msgspec.structs.replace(
        lab.assignment(*words), instruments=(CollectEvidence(profiled_steps=PROFILED),)
    )
    run = lab.executor.launch(LaunchRequest(assignment=assignment, steps=STEPS))
    assert isinstance(run.ending, Stopped), run.ending
    return run, msgspec.json.decode(Path(run.evidence_path).read_bytes(), type=RunEvidence)


def test_memory_copies_and_trace(lab) -> None:
    run, evidence = launched(lab, "--hold", str(HELD))
    memory = evidence.memory
    assert len(memory.allocated_bytes) == len(memory.reserved_bytes) == evidence.observed_steps == STEPS - 1 - PROFILED
    rows = zip(memory.allocated_bytes, memory.reserved_bytes, strict=True)
    assert all(HELD < used <= reserved for used, reserved in rows)
    assert max(memory.allocated_bytes) <= memory.peak_allocated_bytes < memory.limit_bytes
    assert [(it.name, it.holds_graph) for it in memory.holders] == [("losses", False)]

    (use,) = evidence.loaders
    assert use.blocking_copies == 0
    assert use.pageable_copies >= evidence.observed_steps - 1
    assert use.copy_site is not None and use.copy_site.file.endswith("trainer.py")

    assert evidence.window is not None
    breakdown = analyse(read_trace(evidence.window.trace_path))
    assert len(breakdown.steps) == PROFILED
    assert breakdown.devices and breakdown.devices[0].kernels
    plain = lab.launch("--hold", str(HELD), steps=STEPS)
    assert run.steps.loss == plain.steps.loss


def test_gathering_it_waits_for_nothing(lab, told) -> None:
    run, evidence = launched(lab, "--pinned", "--forbid-waiting")
    assert told(run)["would_notice"]
    (use,) = evidence.loaders
    assert (use.pageable_copies, use.blocking_copies) == (0, 0)
