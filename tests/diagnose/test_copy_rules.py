"""The rules about copies between host and device: their thresholds and costs."""

from __future__ import annotations

import msgspec
import pytest
from feeding import LOADER, account

from hotlap.diagnose.example_traces import STEP_SECONDS, idle_for, trace_of
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.rules import (
    blocking_copies,
    pageable_copies,
)
from hotlap.evidence import (
    LoaderUse,
    RunEvidence,
)
from hotlap.records import (
    Ceilings,
    Machine,
    PhaseAccount,
    ScriptFacts,
)
from hotlap.traces.records import CopyRow


def copying(share: float, *, pageable: int = 0, blocking: int = 0, **fields: object) -> Profile:
    use = LoaderUse(dataset="Images", pageable_copies=pageable, blocking_copies=blocking, copy_site=LOADER)
    known = Profile(
        account=account(host_to_device=share),
        facts=ScriptFacts(device="cuda"),
        evidence=RunEvidence(observed_steps=40, observed_seconds=4.0, loaders=(use,)),
    )
    return msgspec.structs.replace(known, **fields)


def rates(pageable: float, pinned: float) -> Machine:
    return Machine(
        ceilings=Ceilings(
            host_to_device_pageable_bytes_per_second=pageable, host_to_device_pinned_bytes_per_second=pinned
        )
    )


@pytest.mark.parametrize(("share", "fires"), [(0.0199, False), (0.0201, True)])
def test_pageable_copies_from_two_percent_on(share: float, fires: bool) -> None:
    assert bool(list(pageable_copies.check(copying(share, pageable=40)))) is fires


@pytest.mark.parametrize(("batches", "fires"), [(19, False), (20, True)])
def test_pageable_copies_in_half_of_the_steps(batches: int, fires: bool) -> None:
    assert bool(list(pageable_copies.check(copying(0.2, pageable=batches)))) is fires


def test_pageable_copies_cost_what_pinned_copies_would_save() -> None:
    (found,) = pageable_copies.check(copying(0.2, pageable=40, machine=rates(5e9, 20e9)))
    assert (found.share.low, found.share.value, found.share.high) == pytest.approx((0.15, 0.15, 0.2))
    (bound,) = pageable_copies.check(copying(0.2, pageable=40))
    assert (bound.share.low, bound.share.value) == (0.0, pytest.approx(0.2))


@pytest.mark.parametrize(("nanoseconds", "fires"), [(19_000_000, False), (21_000_000, True)])
def test_pageable_copies_may_be_seen_only_in_the_trace(nanoseconds: int, fires: bool) -> None:
    """Two percent of the traced second is 20 ms."""
    row = CopyRow(direction="HtoD", memory="pageable", copies=10, nanoseconds=nanoseconds, bytes=1 << 20)
    other = CopyRow(direction="DtoH", memory="pageable", copies=10, nanoseconds=10**9, bytes=1 << 20)
    profile = copying(0.0, pageable=40, breakdowns=(trace_of(copies=(row, other)),))
    assert bool(list(pageable_copies.check(profile))) is fires


def test_blocking_copies_cost_the_idle_time_they_cause() -> None:
    untouched = PhaseAccount(
        wall=STEP_SECONDS,
        phases=(
            ("host_to_device", 0.001),
            ("forward", STEP_SECONDS - 0.001),
        ),
    )
    traced = copying(0.0, blocking=40, account=untouched, breakdowns=(trace_of(idle_for("blocking_copy", 5.0)),))
    (found,) = blocking_copies.check(traced)
    assert found.share.value == pytest.approx(0.05) and found.share.low > 0
    assert found.site == LOADER and "device-prefetch" in found.levers


@pytest.mark.parametrize(("idle", "fires"), [(1.9, False), (2.1, True)])
def test_blocking_copies_from_two_percent_on(idle: float, fires: bool) -> None:
    traced = copying(0.001, blocking=40, breakdowns=(trace_of(idle_for("blocking_copy", idle)),))
    assert bool(list(blocking_copies.check(traced))) is fires
