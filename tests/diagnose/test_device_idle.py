"""Idle time of a traced step, scaled to the unmodified step."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "traces"))

from trace_writer import TraceWriter

from hotlap.diagnose.device_idle import idle_cause, idle_share, in_operators, traced_device
from hotlap.diagnose.example_traces import STEP_SECONDS, idle_for, trace_of
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.rules import launch_bound
from hotlap.diagnose.shares import UNIT, exactly
from hotlap.records import PhaseAccount
from hotlap.traces import analyse, read_trace
from hotlap.traces.records import Breakdown


def profile_of(trace: Breakdown, step_seconds: float = STEP_SECONDS) -> Profile:
    return Profile(account=PhaseAccount(wall=step_seconds, phases=(("forward", step_seconds),)), breakdowns=(trace,))


def test_without_profiling_overhead_the_share_is_the_traced_one() -> None:
    share = idle_share(profile_of(trace_of(idle_for("host_sync", 20.0), idle_for("launch_bound", 10.0))), "host_sync")
    assert share is not None
    assert (share.low, share.value, share.high) == pytest.approx((0.2, 0.2, 0.2))


def test_idle_time_is_at_most_what_the_device_leaves() -> None:
    """Traced: 100 ms, 60 busy, 30 of sync and 10 of launches. Unmodified: 80 ms, of which 20 can be idle."""
    trace = trace_of(idle_for("host_sync", 30.0), idle_for("launch_bound", 10.0))
    share = idle_share(profile_of(trace, 0.08), "host_sync")
    assert share is not None
    assert share.value == pytest.approx(0.015 / 0.08), "three quarters of the 20 ms"
    assert share.low == pytest.approx(0.015 / 0.08)
    assert share.high == pytest.approx(0.02 / 0.08)


def test_a_cause_that_profiling_lengthened_more_than_others() -> None:
    """Unmodified: 90 ms, 30 idle. A cause of 10 in 40 traced keeps its part (7.5) or shrinks like the step (9)."""
    trace = trace_of(idle_for("launch_bound", 10.0), idle_for("host_sync", 30.0))
    share = idle_share(profile_of(trace, 0.09), "launch_bound")
    assert share is not None
    assert (share.low, share.value, share.high) == pytest.approx((0.0075 / 0.09, 0.0075 / 0.09, 0.01 / 0.09))


def test_a_step_that_keeps_the_device_busy_has_no_idle_time() -> None:
    trace = trace_of(idle_for("host_sync", 30.0))
    assert idle_share(profile_of(trace, 0.07), "host_sync") == exactly(0.0)
    assert idle_share(profile_of(trace, 0.01), "host_sync") == exactly(0.0)


@given(
    st.floats(min_value=0.0, max_value=50.0),
    st.floats(min_value=0.0, max_value=50.0),
    st.floats(min_value=1e-4, max_value=1.0),
)
def test_shares_stay_within_the_idle_time(one: float, other: float, step_seconds: float) -> None:
    profile = profile_of(trace_of(idle_for("host_sync", one), idle_for("launch_bound", other)), step_seconds)
    busy = STEP_SECONDS - (one + other) / 1e3
    idle = max(0.0, step_seconds - busy) / step_seconds
    shares = [idle_share(profile, cause) for cause in ("host_sync", "launch_bound")]
    for share in shares:
        assert share is not None and share.unit == UNIT
        assert 0 <= share.low <= share.value <= share.high <= min(1.0, idle + 1e-6)
    assert sum(share.value for share in shares if share) <= idle + 1e-6


def test_without_a_time_account_the_traced_window_counts() -> None:
    assert idle_share(Profile(breakdowns=(trace_of(idle_for("host_sync", 20.0)),)), "host_sync") == exactly(0.2)


def test_without_a_trace_there_is_no_answer() -> None:
    assert idle_share(Profile(), "host_sync") is None
    distrusted = msgspec.structs.replace(trace_of(idle_for("host_sync", 20.0)), unreliable="kernels are missing")
    assert idle_share(profile_of(distrusted), "host_sync") is None
    on_the_cpu = msgspec.structs.replace(trace_of(), devices=())
    assert idle_share(profile_of(on_the_cpu), "host_sync") is None


def test_a_cause_that_was_not_seen_costs_nothing() -> None:
    profile = profile_of(trace_of(idle_for("host_sync", 20.0)))
    assert idle_share(profile, "data_loader") == exactly(0.0)
    assert idle_cause(profile, "data_loader") is None


def test_the_busiest_device_counts() -> None:
    idle, busy = trace_of(idle_for("host_sync", 50.0)), trace_of(idle_for("host_sync", 10.0))
    both = msgspec.structs.replace(idle, devices=(*idle.devices, *busy.devices))
    assert traced_device(profile_of(both)) == busy.devices[0]


def test_the_part_of_a_cause_in_operators() -> None:
    assert in_operators(idle_for("launch_bound", 10.0, in_operators=0.25)) == pytest.approx(0.25)
    assert in_operators(idle_for("launch_bound", 0.0)) == 0


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("python", "torch/_dynamo/eval_frame.py(1076): compile_wrapper"),
        ("operator", "TorchDynamo Cache Lookup"),
        ("annotation", "DistributedDataParallel.forward"),
    ],
)
def test_wrappers_that_span_a_call_do_not_hide_launches(kind: str, name: str, tmp_path: Path) -> None:
    """A compiled model, or one under DDP, whose host issues small kernels too slowly is launch-bound, nothing else."""
    writer = TraceWriter()
    for step in range(3):
        writer.step(step, step * 2000, 1990)
        writer.host(kind, name, step * 2000, 1980)
        for kernel in range(95):
            begin = step * 2000 + kernel * 20
            writer.host("operator", "aten::add", begin, 18)
            writer.launch("elementwise", begin + 5, begin + 12, 3)
    profile = Profile(breakdowns=(analyse(read_trace(writer.write(tmp_path / "trace.json"))),))
    for other in ("capture_or_compile", "communication"):
        assert idle_cause(profile, other) is None
    (finding,) = launch_bound.check(profile)
    assert finding.share.value > 0.5
