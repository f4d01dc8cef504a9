"""The rules about memory: at their thresholds, and on memory curves like those of real runs."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from hotlap.diagnose import Profile
from hotlap.diagnose.api import all_rules
from hotlap.evidence import MemoryHolder, MemoryTimeline, RunEvidence
from hotlap.records import Accelerator, CallSite, Finding, Machine, PhaseAccount, ScriptFacts

MIB, GIB = 1 << 20, 1 << 30
SITE = CallSite(role="step", file="/home/someone/train.py", line=31)


def found(rule: str, profile: Profile) -> list[Finding]:
    return list(all_rules()[rule].check(profile))


def growing(column: Callable[[int], float], *, steps: int = 60, where: str = "host", **fields: object) -> Profile:
    rows = tuple(int(column(step)) for step in range(steps))
    memory = MemoryTimeline(**{f"{where}_bytes": rows, **fields})  # type: ignore[arg-type]
    return Profile(
        facts=ScriptFacts(device="cpu" if where == "host" else "cuda:0"),
        machine=Machine(memory_bytes=16 * GIB),
        evidence=RunEvidence(observed_steps=steps, memory=memory),
    )


def holder(tensors: int = 60, per_step: float = 1.0, *, holds_graph: bool = True, name: str = "losses") -> MemoryHolder:
    return MemoryHolder(
        name=name, tensors=tensors, bytes=4 * tensors, tensors_per_step=per_step, holds_graph=holds_graph, site=SITE
    )


def on_device(**memory: object) -> Profile:
    return Profile(
        facts=ScriptFacts(device="cuda:0"),
        account=PhaseAccount(wall=0.1, phases=(("forward", 0.1),)),
        evidence=RunEvidence(observed_steps=40, memory=MemoryTimeline(**memory)),  # type: ignore[arg-type]
    )


# ---------------------------------------------------------------------------------------------
# memory-growth
# ---------------------------------------------------------------------------------------------


def test_growth_names_the_variable_the_line_and_the_rate() -> None:
    profile = growing(lambda step: GIB + 3 * MIB * step, where="allocated", limit_bytes=2 * GIB, holders=(holder(),))
    (finding,) = found("memory-growth", profile)
    assert finding.title == "Device memory grows by 3.0 MiB with every step."
    assert finding.site == SITE
    assert finding.kind == "risk"
    assert "`losses` (train.py:31) holds 60 tensors (240 B), each with the graph" in finding.evidence[1]
    assert "2.0 GiB are full after about 280 more steps" in finding.evidence[0]
    assert "`.detach()` of what goes into `losses`" in finding.remedy


def test_a_holder_of_a_graph_is_named_before_larger_holders() -> None:
    holders = (holder(600, 10.0, holds_graph=False, name="predictions"), holder())
    (finding,) = found("memory-growth", growing(lambda step: GIB + 3 * MIB * step, holders=holders))
    assert [line.split()[0] for line in finding.evidence[1:]] == ["`losses`", "`predictions`"]


def test_without_a_known_holder_the_remedy_says_where_to_look() -> None:
    (finding,) = found("memory-growth", growing(lambda step: GIB + 2 * MIB * step))
    assert finding.site is None
    assert "Find what is kept across steps" in finding.remedy


def test_one_accumulated_graph_suffices_on_a_cpu_only() -> None:
    level = growing(lambda step: GIB, holders=(holder(name="total"),))
    (finding,) = found("memory-growth", level)
    assert finding.title == "`total` keeps the graphs of 60 tensors, and of more with every step."
    assert not found("memory-growth", growing(lambda step: GIB, where="allocated", holders=(holder(),)))


@pytest.mark.parametrize(
    ("kept", "why"),
    [
        (holder(holds_graph=False), "plain numbers"),
        (holder(per_step=0.1), "one in ten steps"),
        (holder(tensors=20), "fewer than half of the steps"),
    ],
)
def test_small_holders_are_no_evidence_of_growth(kept: MemoryHolder, why: str) -> None:
    assert not found("memory-growth", growing(lambda step: GIB, holders=(kept,))), why


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_not_growth(seed: int) -> None:
    draw = random.Random(seed)
    assert not found("memory-growth", growing(lambda step: GIB + draw.uniform(0, 60 * MIB)))


@pytest.mark.parametrize("seed", range(10))
def test_growth_is_detected_with_batches_of_many_lengths(seed: int) -> None:
    draw = random.Random(seed)
    profile = growing(lambda step: GIB + 4 * MIB * step + draw.uniform(0, 60 * MIB), where="allocated")
    (finding,) = found("memory-growth", profile)
    assert finding.title.startswith("Device memory grows by ")


@pytest.mark.parametrize("half_life", [2, 4, 8])
def test_caches_that_settle_are_not_growth(half_life: int) -> None:
    assert not found("memory-growth", growing(lambda step: GIB + 400 * MIB * (1 - 0.5 ** (step / half_life))))


def test_a_few_steps_are_not_enough_to_detect_growth() -> None:
    assert not found("memory-growth", growing(lambda step: GIB + 50 * MIB * step, steps=11))
    assert found("memory-growth", growing(lambda step: GIB + 50 * MIB * step, steps=12))


def test_host_and_device_are_reported_in_one_finding() -> None:
    rows = tuple(GIB + 4 * MIB * step for step in range(60))
    profile = growing(lambda step: GIB + 4 * MIB * step, where="allocated", host_bytes=rows)
    (finding,) = found("memory-growth", profile)
    assert finding.title.startswith("Device")
    assert [line.split()[0] for line in finding.evidence] == ["Device", "Host"]


def test_malicious_names_are_shortened_and_cleaned() -> None:
    profile = growing(lambda step: GIB + 4 * MIB * step, holders=(holder(name="x" * 10_000 + "\n\x1b[2J"),))
    (finding,) = found("memory-growth", profile)
    assert all(len(line) < 300 and "\n" not in line for line in (*finding.evidence, finding.remedy))


# ---------------------------------------------------------------------------------------------
# fragmentation, allocator-retries, close-to-limit, room-for-batch
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reserved", "peak", "fires"),
    [(15, 10, True), (14.7, 10, False), (23, 18.1, False), (10, 5, True), (4, 1, False)],
    ids=["a fifth of 24 GiB lost", "just less", "well filled", "twice the peak", "little lost on a large device"],
)
def test_fragmentation_at_its_thresholds(reserved: float, peak: float, fires: bool) -> None:
    column = (int(reserved * GIB),) * 12
    profile = on_device(reserved_bytes=column, peak_allocated_bytes=int(peak * GIB), limit_bytes=24 * GIB)
    assert bool(found("fragmentation", profile)) is fires


def test_fragmentation_judges_the_last_steps() -> None:
    """Ignore memory that autotuning reserved and freed."""
    column = (20 * GIB,) * 30 + (10 * GIB,) * 10
    profile = on_device(reserved_bytes=column, peak_allocated_bytes=9 * GIB, limit_bytes=24 * GIB)
    assert not found("fragmentation", profile)


def test_fragmentation_does_not_advise_what_is_already_set() -> None:
    advised = [
        it.remedy for example in all_rules()["fragmentation"].fires.values() for it in found("fragmentation", example)
    ]
    assert "PYTORCH_CUDA_ALLOC_CONF" in advised[0]
    assert "PYTORCH_CUDA_ALLOC_CONF" not in advised[1]


@pytest.mark.parametrize(("retries", "fires"), [(0, False), (2, False), (3, True)])
def test_retries_at_their_threshold(retries: int, fires: bool) -> None:
    assert bool(found("allocator-retries", on_device(retries=retries))) is fires


@pytest.mark.parametrize(("share", "fires"), [(0.91, False), (0.92, False), (0.93, True), (1.0, True)])
def test_close_to_the_limit_of_the_device(share: float, fires: bool) -> None:
    profile = on_device(peak_allocated_bytes=int(share * 24 * GIB), limit_bytes=24 * GIB)
    assert bool(found("close-to-limit", profile)) is fires


def test_the_device_that_trains_gives_the_limit() -> None:
    devices = tuple(Accelerator(kind="cuda", name=name, memory_bytes=it * GIB) for name, it in (("a", 80), ("b", 24)))
    profile = Profile(
        facts=ScriptFacts(device="cuda:1"), machine=Machine(accelerators=devices), device_peak_bytes=23 * GIB
    )
    (finding,) = found("close-to-limit", profile)
    assert finding.title == "At its peak, training holds 96 % of the memory of b."


def test_advice_on_a_larger_batch_warns_that_training_changes() -> None:
    for example in all_rules()["room-for-batch"].fires.values():
        (finding,) = found("room-for-batch", example)
        assert finding.kind == "hint"
        assert "changes what is learned" in finding.remedy
        assert "the loader's batch size is 32" in finding.evidence
