"""Studies as the search writes them."""

from __future__ import annotations

import math

import msgspec

from hotlap.measure.disturbance import disturbance_text
from hotlap.objective import for_memory
from hotlap.records import (
    Accelerator,
    CallSite,
    Ceiling,
    Ceilings,
    Comparison,
    CompileReport,
    Crashed,
    Disturbance,
    Estimate,
    Failed,
    FileWrite,
    Finding,
    GateResult,
    GraphBreak,
    Kept,
    Machine,
    MetricComparison,
    NoGain,
    NotVerified,
    Outcome,
    OutOfMemory,
    Parity,
    PhaseAccount,
    Plan,
    Protection,
    Quality,
    QualityLost,
    Run,
    Seen,
    Setting,
    Skipped,
    SpeedComparison,
    SpeedVerdict,
    Study,
    Workload,
)

WORKLOAD = Workload(
    kind="script", target="train.py", arguments=("--epochs", "1"), directory="/home/ada/work", python="/usr/bin/python3"
)

MACHINE = Machine(
    processor="AMD EPYC 7742",
    cores=16,
    physical_cores=8,
    memory_bytes=64 * 2**30,
    shared_memory_bytes=8 * 2**30,
    native_dtypes=("float32",),
    accelerators=(
        Accelerator(
            kind="cuda",
            name="NVIDIA A10",
            memory_bytes=24 * 2**30,
            capability="8.6",
            driver="570.1",
            native_dtypes=("float32", "bfloat16"),
            power_limit_watts=150.0,
            pcie="4.0 x16",
        ),
    ),
    system="Linux 6.8",
    python_version="3.12.4",
    library_versions=(("torch", "2.13.0"),),
    ceilings=Ceilings(
        matmul_flops_per_second=(("cuda:float32", 21.3e12), ("cuda:bfloat16", 98.4e12)),
        memory_bytes_per_second=480e9,
        host_to_device_pageable_bytes_per_second=6.1e9,
        host_to_device_pinned_bytes_per_second=25.2e9,
    ),
    warnings=("The processor's governor is powersave.",),
    protection=Protection(
        mode="namespaces",
        pid_namespace=True,
        shared_folders=("~/.cache",),
        gaps=("The script's network requests are sent, except those of trackers, which are silenced.",),
    ),
)
FENCED = msgspec.structs.replace(
    MACHINE,
    protection=Protection(
        mode="fence",
        network="none",
        gaps=("Programs that the script starts may change modes, owners, times and extended attributes of files.",),
        reasons=("namespaces: Operation not permitted (unshare) EPERM",),
    ),
)
UNPROTECTED = msgspec.structs.replace(
    MACHINE,
    protection=Protection(
        mode="none",
        gaps=("Programs that the script starts, and libraries that write files without Python, change your files.",),
        reasons=(
            "namespaces: Operation not permitted (unshare) EPERM",
            "fence: the kernel has no Landlock, or it is switched off",
        ),
    ),
)

LOADER = Setting(lever="loader", values=(("num_workers", 4), ("persistent_workers", True), ("pin_memory", True)))
MIXED = Setting(lever="mixed-precision", values=(("dtype", "bfloat16"),))
COMPILE = Setting(lever="compile", values=(("dynamic", False), ("mode", "default")))
FUSED = Setting(lever="fused-optimizer", values=(("implementation", "fused"),))
LAST = Setting(lever="channels-last")


def estimate(value: float, half: float) -> Estimate:
    """A speedup with an interval that is even on the log scale, as measured ones are."""
    return Estimate(value=value, low=value * math.exp(-half), high=value * math.exp(half), unit="x")


def speed(value: float, half: float = 0.025, verdict: SpeedVerdict = "faster", **more: object) -> SpeedComparison:
    comparison = SpeedComparison(
        speedup=estimate(value, half),
        verdict=verdict,
        replicates=5,
        rounds=15,
        confidence=0.95,
        noise_floor=0.008,
        smallest_detectable=0.011,
        baseline_agrees=True,
        baseline_speedup=estimate(1.002, 0.008),
    )
    return msgspec.structs.replace(comparison, **more)


WITHIN = Parity(
    verdict="within",
    proof="rounding",
    steps=300,
    gates=(
        GateResult(gate="G0", passed=True),
        GateResult(gate="G2", passed=True, found=2e-5, limit=1e-3),
        GateResult(gate="G3", passed=True, found=3e-4, limit=1e-3),
    ),
)
EXACT = Parity(verdict="exact", proof="exact", steps=300, gates=(GateResult(gate="G1", passed=True),))
LOST = Parity(
    verdict="lost", proof="rounding", steps=300, gates=(GateResult(gate="G3", passed=False, found=0.014, limit=1e-3),)
)
UNKNOWN = Parity(verdict="not-verified", proof="rounding", text="The loss could not be read.")


def comparison(
    candidate: tuple[Setting, ...],
    measured: SpeedComparison,
    quality: Quality | None = WITHIN,
    *,
    baseline: tuple[Setting, ...] = (),
    peaks: tuple[int, int] = (8 * 2**30, 8 * 2**30),
) -> Comparison:
    return Comparison(
        baseline=Plan(settings=baseline),
        candidate=Plan(settings=candidate),
        speed=measured,
        quality=quality,
        baseline_peak_bytes=peaks[0],
        candidate_peak_bytes=peaks[1],
    )


BEFORE = PhaseAccount(
    wall=0.2120,
    phases=(
        ("data_wait", 0.1010),
        ("host_to_device", 0.0062),
        ("forward", 0.0341),
        ("backward", 0.0603),
        ("optimizer", 0.0082),
        ("other", 0.0022),
    ),
    outside=0.004,
    samples_per_step=32,
)
AFTER = PhaseAccount(
    wall=0.0581,
    phases=(
        ("data_wait", 0.0012),
        ("host_to_device", 0.0009),
        ("forward", 0.0180),
        ("backward", 0.0291),
        ("optimizer", 0.0071),
        ("other", 0.0018),
    ),
    outside=0.004,
    samples_per_step=32,
)

BREAK = GraphBreak(reason="data-dependent branch on a tensor", file="train.py", line=41, count=2)

FINDINGS = (
    Finding(
        rule="loader-bound",
        share=Estimate(value=0.48, low=0.46, high=0.5, unit="of the step"),
        title="A step of 212 ms waits 101 ms for its batch.",
        evidence=("num_workers is 0: every batch is fetched while the device idles.",),
        remedy="Fetch batches in worker processes: DataLoader(..., num_workers=4).",
        site=CallSite(role="loader", file="train.py", line=12),
        levers=("loader",),
    ),
    Finding(
        rule="eager-attention",
        share=Estimate(value=0.09, low=0.0, high=0.09, unit="of the step"),
        title="Attention materialises its weights in 12 layers.",
        remedy="Use scaled_dot_product_attention.",
        levers=("sdpa-attention", "channels-last"),
    ),
    Finding(
        rule="close-to-limit",
        kind="risk",
        share=Estimate(value=0.0, low=0.0, high=0.0, unit="of the step"),
        title="Training holds 22 GiB of 24 GiB of the device's memory.",
        evidence=("The peak is reached in step 14.",),
        remedy="Make the batch smaller, or checkpoint activations.",
    ),
)

OUTCOMES = (
    Outcome(
        lever="loader",
        setting=LOADER,
        verdict=Kept(
            comparison=comparison((LOADER,), speed(1.91), EXACT, peaks=(8 * 2**30, 8 * 2**30 + 2**20)),
            reason="Fewest workers within 2 % of the best.",
        ),
        trial_seconds=61.0,
    ),
    Outcome(
        lever="mixed-precision",
        setting=MIXED,
        verdict=Kept(
            comparison=comparison((LOADER, MIXED), speed(1.62), baseline=(LOADER,), peaks=(8 * 2**30, 5 * 2**30))
        ),
    ),
    Outcome(
        lever="compile",
        setting=COMPILE,
        verdict=Kept(
            comparison=comparison(
                (LOADER, MIXED, COMPILE), speed(1.18, 0.04), baseline=(LOADER, MIXED), peaks=(5 * 2**30, 4 * 2**30)
            )
        ),
        compile=CompileReport(seconds=41.0, graphs=2, graph_breaks=(BREAK,)),
    ),
    Outcome(
        lever="fused-optimizer",
        setting=FUSED,
        verdict=NoGain(
            comparison=comparison((LOADER, MIXED, FUSED), speed(1.003, 0.006, "no-effect"), None),
            reason="The optimizer is 4 % of a step.",
        ),
    ),
    Outcome(
        lever="sdpa-attention",
        setting=Setting(lever="sdpa-attention"),
        verdict=NoGain(comparison=comparison((), speed(1.04, 0.09, "inconclusive"), None)),
    ),
    Outcome(
        lever="matmul-precision",
        setting=Setting(lever="matmul-precision", values=(("precision", "high"),)),
        verdict=QualityLost(
            comparison=comparison((), speed(1.21), LOST), reason="The loss is off by up to 1.4 %; 0.1 % is allowed."
        ),
    ),
    Outcome(
        lever="device-prefetch",
        verdict=NotVerified(comparison=comparison((), speed(1.07), UNKNOWN), reason="The loss could not be read."),
    ),
    Outcome(
        lever="cudnn-benchmark",
        setting=Setting(lever="cudnn-benchmark"),
        verdict=Failed(ending=OutOfMemory(error="CUDA out of memory. Tried to allocate 2.00 GiB")),
    ),
    Outcome(lever="channels-last", verdict=Skipped(reason="The model has no convolution.")),
    Outcome(lever="cpu-threads", verdict=Skipped(reason="The model is on an accelerator.", bound=1.01)),
    Outcome(lever="pinned-copies", verdict=Skipped(reason="train.py:12 pins its batches.", already=True)),
)

FINISHED = Study(
    identifier="20260131-142501-337",
    hotlap_version="0.1.0",
    started="2026-01-31T14:25:01+00:00",
    status="finished",
    workload=WORKLOAD,
    machine=MACHINE,
    budget_seconds=900.0,
    spent_seconds=612.0,
    account_before=BEFORE,
    account_after=AFTER,
    ceilings=(
        Ceiling(name="loader-alone", seconds_per_sample=0.0031, bound_speedup=2.12),
        Ceiling(name="model-alone", seconds_per_sample=0.0034, bound_speedup=1.94),
    ),
    model_flop_utilisation=0.34,
    profiled_steps=40,
    findings=FINDINGS,
    outcomes=OUTCOMES,
    plan=Plan(settings=(LOADER, MIXED, COMPILE)),
    verification=comparison((LOADER, MIXED, COMPILE), speed(3.65, 0.02), peaks=(8 * 2**30, 4 * 2**30)),
    files=(FileWrite(path="checkpoints/last.pt", redirected=True), FileWrite(path="/tmp/log.txt", redirected=False)),
    warnings=("Another process used 12 % of the processor.",),
    directory="/home/ada/work/.hotlap/20260131-142501-337",
)

NOTHING = msgspec.structs.replace(
    FINISHED,
    plan=Plan(),
    verification=None,
    account_after=None,
    findings=(),
    outcomes=OUTCOMES[3:],
    machine=FENCED,
)
INTERRUPTED = msgspec.structs.replace(
    FINISHED,
    status="interrupted",
    verification=None,
    account_after=None,
    outcomes=OUTCOMES[:2],
    plan=Plan(settings=(LOADER, MIXED)),
    spent_seconds=133.0,
)
OUT_OF_BUDGET = msgspec.structs.replace(INTERRUPTED, status="out-of-budget", spent_seconds=900.0, machine=UNPROTECTED)
QUICK_LOOK = msgspec.structs.replace(
    INTERRUPTED,
    status="quick-look",
    status_text="The budget of 240 s is too small for a proof. A proof needs --budget 540s.",
    budget_seconds=240.0,
    spent_seconds=212.0,
    needed_seconds=540.0,
    plan=Plan(),
    outcomes=(
        Outcome(
            lever="loader",
            setting=LOADER,
            verdict=Seen(speedup=1.84, rounds=8, reason="Seen in one set of 8 rounds, not proved."),
            trial_seconds=31.0,
        ),
        Outcome(
            lever="mixed-precision",
            setting=MIXED,
            verdict=Seen(speedup=0.97, rounds=8, reason="Seen in one set of 8 rounds, not proved."),
            trial_seconds=31.0,
        ),
        Outcome(
            lever="compile",
            verdict=Skipped(reason="Even one replicate takes about 60 s, and 28 s of the budget are left."),
        ),
        *OUTCOMES[-3:],
    ),
)
SCRIPT_FAILED = Study(
    status="script-failed",
    workload=WORKLOAD,
    machine=MACHINE,
    baseline=Run(
        ending=Crashed(
            exit_code=3,
            error="ValueError: data/train.bin is empty",
            output_tail='Traceback:\n  File "train.py", line 7\nValueError: data/train.bin is empty\n',
        ),
        output_path=".hotlap/20260131-142501-337/runs/0/output.txt",
    ),
    spent_seconds=3.0,
    directory=".hotlap/20260131-142501-337",
)
DENIED = msgspec.structs.replace(
    SCRIPT_FAILED,
    status_text="The script failed in isolation: the kernel denied writing out/t.parquet (mode fence).",
    baseline=Run(
        ending=Crashed(
            exit_code=1,
            error="PermissionError: [Errno 13] Failed to open local file 'out/t.parquet'.",
            output_tail="PermissionError: [Errno 13] Failed to open local file 'out/t.parquet'.\n",
            denied_path="out/t.parquet",
        )
    ),
)
METRICS = (
    MetricComparison(
        metric="device_peak_bytes",
        baseline=Estimate(value=8.0 * 2**30, low=7.9 * 2**30, high=8.1 * 2**30, unit="B"),
        candidate=Estimate(value=4.2 * 2**30, low=4.1 * 2**30, high=4.3 * 2**30, unit="B"),
        ratio=estimate(0.52, 0.01),
        verdict="better",
        replicates=5,
        confidence=0.95,
    ),
    MetricComparison(
        metric="host_peak_bytes", ratio=estimate(1.0, 0.01), verdict="no-effect", replicates=5, confidence=0.95
    ),
)
SAVES_MEMORY = msgspec.structs.replace(
    FINISHED,
    objective=for_memory(1.3),
    account_after=msgspec.structs.replace(BEFORE.with_seconds(("forward", 0.0501)), wall=0.2280),
    outcomes=(),
    findings=(),
    plan=Plan(settings=(MIXED,)),
    verification=msgspec.structs.replace(
        comparison((MIXED,), speed(0.93, 0.01, "slower")),
        candidate_peak_bytes=int(4.2 * 2**30),
        baseline_seconds_per_sample=Estimate(value=0.0066, low=0.0065, high=0.0067, unit="s"),
        metrics=METRICS,
    ),
)
DISTURBED = msgspec.structs.replace(
    FINISHED,
    verification=comparison(
        (LOADER,),
        speed(1.2, 0.1, "inconclusive", baseline_agrees=False, baseline_speedup=estimate(1.06, 0.03)),
    ),
)
NOT_CONFIRMED = msgspec.structs.replace(
    FINISHED, verification=comparison((LOADER,), speed(1.02, 0.04, "inconclusive"), None)
)
PROFILED = msgspec.structs.replace(
    FINISHED,
    kind="profile",
    budget_seconds=None,
    spent_seconds=48.0,
    account_after=None,
    trace_path="/home/ada/work/.hotlap/profile/20260131-142501-337/runs/0004/trace.json.gz",
    outcomes=(),
    plan=Plan(),
    verification=None,
    directory="/home/ada/work/.hotlap/profile/20260131-142501-337",
)
CLEAN = msgspec.structs.replace(
    PROFILED,
    account_before=AFTER,
    ceilings=(
        Ceiling(name="loader-alone", seconds_per_sample=0.0004, bound_speedup=4.5),
        Ceiling(name="model-alone", seconds_per_sample=0.0018, bound_speedup=1.01),
    ),
    findings=(),
    files=(),
    warnings=(),
)
_OTHERS = tuple(
    Disturbance(measured=it, other_load=load, cores=2, waited_share=0.4)  # type: ignore[arg-type]
    for it, load in (("account", 1.3), ("loader-alone", 1.1), ("profile", 0.9))
)
BUSY = msgspec.structs.replace(
    PROFILED,
    findings=tuple(msgspec.structs.replace(it, disturbed=it.kind == "cost") for it in PROFILED.findings),
    disturbances=_OTHERS,
    warnings=(*PROFILED.warnings, disturbance_text(_OTHERS)),
)
HOSTILE_TEXT = "[red]bold[/red]\x1b[2J\x1b]0;title\x07\r\x00\u202eevil\u2066 [/] [link=x]"
HOSTILE = msgspec.structs.replace(
    FINISHED,
    workload=msgspec.structs.replace(WORKLOAD, target=HOSTILE_TEXT, arguments=(HOSTILE_TEXT, "a b")),
    warnings=(HOSTILE_TEXT,),
    files=(FileWrite(path=HOSTILE_TEXT, redirected=False),),
    findings=(
        Finding(
            rule="host-sync",
            share=estimate(0.1, 0.1),
            title=HOSTILE_TEXT,
            evidence=(HOSTILE_TEXT,),
            remedy=HOSTILE_TEXT,
            site=CallSite(role="model", file=HOSTILE_TEXT, line=3),
            levers=("loader", HOSTILE_TEXT),
        ),
    ),
    outcomes=(
        Outcome(
            lever="loader",
            setting=LOADER,
            verdict=Failed(ending=Crashed(exit_code=1, error=HOSTILE_TEXT), reason=HOSTILE_TEXT),
        ),
    ),
)

STUDIES = {
    "finished": FINISHED,
    "nothing-faster": NOTHING,
    "interrupted": INTERRUPTED,
    "saves-memory": SAVES_MEMORY,
    "out-of-budget": OUT_OF_BUDGET,
    "quick-look": QUICK_LOOK,
    "script-failed": SCRIPT_FAILED,
    "disturbed": DISTURBED,
    "not-confirmed": NOT_CONFIRMED,
    "profiled": PROFILED,
    "profiled-clean": CLEAN,
    "profiled-busy": BUSY,
    "hostile": HOSTILE,
}
