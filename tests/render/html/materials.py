"""Materials of pages: one in which everything was measured, and one in which every text is an attack."""

from __future__ import annotations

import math
import random
from pathlib import Path

import fakes
import msgspec
from records_of_other_kinds import padded, process_scaling, scale_prediction
from trace_writer import TraceWriter, training_trace

from hotlap.diagnose.profile import Profile
from hotlap.evidence import LineSamples, MemoryTimeline, Numbers, RunEvidence, SampledLine
from hotlap.measure.parity.curves import loss_curves
from hotlap.records import (
    AllocatorUse,
    BatchRate,
    BatchSearch,
    CallSite,
    Candidate,
    Ceiling,
    Costs,
    Crashed,
    EngineReport,
    Estimate,
    EstimatedPeak,
    Failed,
    FileWrite,
    Finding,
    GraphBreak,
    Kept,
    LoaderRate,
    MemoryAccount,
    MemoryAmounts,
    MemoryEstimate,
    MemoryGrowth,
    MemoryOverStep,
    ModuleMemory,
    OperatorShare,
    Outcome,
    OutputQuality,
    Plan,
    Price,
    Refused,
    Run,
    Setting,
    Skipped,
    Steps,
    StrategyChoice,
    StrategyForecast,
    TaskQuality,
    Timings,
    WatchedRun,
)
from hotlap.render.material import Material
from hotlap.traces import read_trace
from hotlap.traces.lanes import Lanes, lanes_of, lanes_of_both

ATTACK = (
    "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=1'>\"'`{{7*7}}${window.hacked=1}"
    "<!--\u2028\u202e]]>&lt;b&gt;"
)
PATCH = """\
--- a/train.py
+++ b/train.py
@@ -10,2 +10,2 @@
 import torch
-loader = DataLoader(data, batch_size=32)
+loader = DataLoader(data, batch_size=32, num_workers=4)
"""


def losses(difference: float = 0.0, steps: int = 300) -> Run:
    """Make a run whose loss falls; ``difference`` is the relative amplitude of its deviation."""
    draw = random.Random(0)
    return Run(
        steps=Steps(
            loss=tuple(
                (4 / (1 + it / 60) + 0.1 * draw.gauss(0, 1)) * (1 + difference * math.sin(it / 30))
                for it in range(steps)
            )
        )
    )


def loader_rates() -> tuple[LoaderRate, ...]:
    shared = (("persistent_workers", True), ("prefetch_factor", 2))
    rates = [
        LoaderRate(
            setting=Setting(
                lever="loader", values=(("num_workers", workers), ("pin_memory", pin), *shared[: 2 * workers])
            ),
            seconds_per_sample=0.0031 / (workers or 0.9) ** 0.8 * (0.98 if pin else 1),
            first_batch_seconds=0.1,
            batches=50,
        )
        for workers in (0, 1, 2, 4)
        for pin in (False, True)
    ]
    return (*rates, LoaderRate(setting=Setting(lever="loader"), seconds_per_sample=0.0, error="A worker was killed."))


def batch_rates() -> tuple[BatchRate, ...]:
    def speedup(value: float) -> Estimate:
        return Estimate(value=value, low=0.97 * value, high=1.03 * value, unit="x")

    return (
        BatchRate(scale=0.5, samples_per_step=16, seconds_per_sample=0.0055, speedup=speedup(0.62), peak_bytes=2**32),
        BatchRate(scale=1.0, samples_per_step=32, seconds_per_sample=0.0034, peak_bytes=2**33),
        BatchRate(scale=2.0, samples_per_step=64, seconds_per_sample=0.0026, speedup=speedup(1.31), peak_bytes=2**34),
        BatchRate(scale=4.0, samples_per_step=128, error="It ran out of memory: <b>CUDA</b>"),
    )


def batch_search() -> BatchSearch:
    rates = [msgspec.structs.replace(it, batch_size=int(it.samples_per_step)) for it in batch_rates()]
    failed = msgspec.structs.replace(rates.pop(), out_of_memory=True)
    return BatchSearch(own=32, rates=(*rates, failed), knee=64, bound_by="memory", largest_fitting=64, launches=12)


def memory_account() -> MemoryAccount:
    moments = [
        MemoryAmounts(parameters=2**30, optimizer_state=2**31, activations=it * 2**27, temporaries=2**20)
        for it in (0, 1, 2, 3, 4, 3, 1)
    ]
    return MemoryAccount(
        device="cuda",
        peak=moments[4],
        peak_phase="backward",
        timeline=MemoryOverStep(
            step=2, operations=tuple(range(7)), amounts=tuple(moments), phases=((0, "data"), (4, "backward"))
        ),
        modules=(ModuleMemory(name="head", kind="Linear", amounts=MemoryAmounts(parameters=2**30, activations=2**29)),),
        step_peak_bytes=(2**32,) * 12,
        step_end_bytes=tuple(2**31 + it * 2**20 for it in range(12)),
        growth_bytes_per_step=2.0**20,
        growing=(
            MemoryGrowth(
                name="outputs",
                tensors=11,
                tensors_per_step=1.0,
                holds_graph=True,
                site=CallSite(role="step", file="train.py", line=13),
                made_at=CallSite(role="operation", file="train.py", line=10),
            ),
            MemoryGrowth(tensors=9, tensors_per_step=1.0),
        ),
        allocator=AllocatorUse(
            peak_allocated_bytes=2**32,
            peak_reserved_bytes=2**33,
            fragmented_bytes=2**28,
            retries=2,
            limit_bytes=2**34,
            snapshot_path="runs/1/memory-snapshot.pickle",
        ),
    )


def estimate() -> MemoryEstimate:
    halved = Plan(settings=(Setting(lever="mixed-precision", values=(("dtype", "bfloat16"),)),))
    peaks = (
        EstimatedPeak(batch_size=32, peak_bytes=2**34),
        EstimatedPeak(batch_size=32, plan=halved, peak_bytes=2**33),
        EstimatedPeak(batch_size=32, ranks=4, peak_bytes=2**32),
        EstimatedPeak(batch_size=64, error="RuntimeError: planted"),
    )
    return MemoryEstimate(peaks=peaks, device_memory_bytes=2**34)


def numbers(steps: int = 40) -> Numbers:
    """Make the numbers of a run whose scale is halved every tenth step."""
    return Numbers(
        scaler_scales=tuple(65536.0 / 2 ** (it // 10) for it in range(steps)),
        scaler_attempts=tuple(2 if it and it % 10 == 0 else 1 for it in range(steps)),
    )


def memory(steps: int = 40, bytes_less: int = 0) -> MemoryTimeline:
    return MemoryTimeline(
        allocated_bytes=tuple(6 * 2**30 - bytes_less + it * 2**24 for it in range(steps)),
        reserved_bytes=(8 * 2**30 - bytes_less,) * steps,
        host_bytes=(3 * 2**30 + bytes_less,) * steps,
        peak_allocated_bytes=9 * 2**30,
        limit_bytes=12 * 2**30,
        retries=2,
    )


def lanes(folder: Path, writer: TraceWriter | None = None) -> Lanes:
    found = lanes_of(read_trace((writer or training_trace()).write(folder / "trace.json")))
    assert found is not None
    return found


def lanes_before_and_after(folder: Path) -> tuple[Lanes, Lanes]:
    """The training trace, and one whose steps take a fifth of that, without its loader."""
    short = TraceWriter()
    for number in range(3):
        short.step(number, number * 200, 190)
        short.host("operator", "aten::mm", number * 200 + 10, 100)
        short.launch("gemm", number * 200 + 20, number * 200 + 60, 100)
    traces = [
        read_trace(it.write(folder / name)) for it, name in ((training_trace(), "trace.json"), (short, "after.json"))
    ]
    before, after = lanes_of_both(*traces)
    assert before is not None and after is not None
    return before, after


def costs() -> Costs:
    return Costs(
        confidence=0.95,
        samples_per_step=32,
        seconds_per_sample_before=Estimate(value=0.0066, low=0.0065, high=0.0067),
        seconds_per_sample_after=Estimate(value=0.0018, low=0.0017, high=0.0019),
        price=Price(per_hour=2.5, currency="EUR"),
        million_before=Estimate(value=4.6, low=4.6, high=4.6, unit="EUR"),
        million_after=Estimate(value=1.26, low=1.24, high=1.28, unit="EUR"),
    )


def candidates() -> tuple[Candidate, ...]:
    """Make candidates of an engine, which is fastest, and of torch; neither is better in all metrics."""
    engine = EngineReport(
        engine="OpenVINO",
        version="2026.1",
        precision="int8",
        operators=120,
        quantized=40,
        by_provider=(OperatorShare(name="CPU", operators=120),),
        by_precision=(OperatorShare(name="int8", operators=40), OperatorShare(name="float32", operators=80)),
    )
    return tuple(
        Candidate(
            plan=Plan(settings=(Setting(lever=name),)),
            comparison=fakes.comparison((Setting(lever=name),), fakes.speed(speedup), quality_of_outputs(cosine)),
            engine=ran,
        )
        for name, speedup, cosine, ran in (("openvino", 3.0, 0.995, engine), ("inference-mode", 1.1, 1.0, None))
    )


def refused() -> tuple[Refused, ...]:
    """Make a form of a model whose outputs were wrong before it was timed."""
    setting = Setting(lever="openvino", values=(("precision", "int8-dynamic"),))
    quality = msgspec.structs.replace(quality_of_outputs(0.93), verdict="lost")
    return (Refused(plan=Plan(settings=(setting,)), quality=quality, gain=3.4),)


def quality_of_outputs(cosine: float) -> TaskQuality:
    """Outputs with this cosine, on forty inputs."""
    outputs = (OutputQuality(name="output", cosine=cosine),)
    return TaskQuality(verdict="within", proof="rounding", level=0.99, inputs=40, outputs=outputs)


def timings() -> Timings:
    """Make five replicates of fifteen rounds that agree with the fakes' headline, and the steps of the last one."""
    draw = random.Random(1)

    def rounds(seconds: float) -> tuple[tuple[float, ...], ...]:
        launches = (seconds * math.exp(0.008 * draw.gauss(0, 1)) for _ in range(5))
        return tuple(tuple(it * math.exp(0.02 * draw.gauss(0, 1)) for _ in range(15)) for it in launches)

    def steps(seconds: float) -> tuple[float, ...]:
        return tuple(seconds * math.exp(0.05 * draw.gauss(0, 1)) * (2 if it % 40 == 39 else 1) for it in range(200))

    return Timings(
        baseline=rounds(0.0066),
        repeat=rounds(0.0066),
        plan=rounds(0.0066 / 3.65),
        baseline_steps=steps(0.211),
        plan_steps=steps(0.058),
        baseline_samples=32,
        plan_samples=32,
    )


def sampled(faster: float = 1.0) -> LineSamples:
    """Make samples of three lines: two phases of steps, and start-up, which is no part of a step.

    The loader's line takes less time by that factor.
    """
    step = CallSite(role="call", file="train.py", line=40, function="main")
    data = CallSite(role="call", file="train.py", line=12, function="load")
    call = "torch.nn.Module.__call__"
    return LineSamples(
        interval_seconds=0.01,
        samples=700,
        lines=(
            SampledLine(
                phase="data_wait", samples=round(300 / faster), seconds=3.0 / faster, site=data, called="PIL.Image.open"
            ),
            SampledLine(phase="forward", samples=100, seconds=1.0, site=step, called=call, innermost="torch.conv2d"),
            SampledLine(phase="forward", samples=50, seconds=0.5, site=step, called=call, innermost="torch.relu"),
            SampledLine(phase="forward", samples=50, seconds=0.5),
            SampledLine(phase="startup", samples=200, seconds=2.0, site=step, called="import"),
        ),
    )


def strategy_choice(reason: str = "Its estimated memory exceeds that of the device.") -> StrategyChoice:
    sharded = Setting(lever="sharded-optimizer", values=())
    whole = Setting(lever="fully-sharded", values=(("reshard", True),))
    forecasts = (
        StrategyForecast(strategy="zero-1", setting=sharded, ratio=0.97, error=0.26, peak_bytes=2**30, order=1),
        StrategyForecast(strategy="fsdp2", reshards=True, setting=whole, ratio=1.3, error=0.54, reason=reason),
    )
    return StrategyChoice(ranks=2, strategy="ddp", step_seconds=0.2, peak_bytes=2**31, forecasts=forecasts)


def full_material(folder: Path) -> Material:
    rates = loader_rates()
    study = msgspec.structs.replace(
        fakes.FINISHED,
        losses=loss_curves(losses(), losses(0.0004), fakes.WITHIN),
        timings=timings(),
        hosts=("models.example:443",),
        verification=fakes.FINISHED.verification
        and msgspec.structs.replace(fakes.FINISHED.verification, metrics=fakes.METRICS),
        loader_rates=rates,
        batch_rates=batch_rates(),
        batch_search=batch_search(),
        memory=memory_account(),
        memory_estimate=estimate(),
        scale=scale_prediction(),
        process_scaling=process_scaling(),
        strategies=strategy_choice(),
        candidates=candidates(),
        refused=refused(),
        baseline=padded(),
        watch=WatchedRun(seconds=60.0, steps=300, remarks=("Steps were timed in bunches.",)),
        ceilings=(
            Ceiling(name="loader-alone", seconds_per_sample=rates[0].seconds_per_sample, bound_speedup=2.12),
            Ceiling(name="model-alone", seconds_per_sample=0.0034, bound_speedup=1.94),
            Ceiling(name="matmul", seconds_per_sample=0.00001, bound_speedup=600.0),
        ),
        trace_path="/home/ada/work/.hotlap/20260131-142501-337/runs/0004/window.json.gz",
        plan_profiled_steps=10,
        plan_trace_path="/home/ada/work/.hotlap/20260131-142501-337/runs/0061/window.json.gz",
    )
    before, after = lanes_before_and_after(folder)
    return Material(
        study=study,
        profile=Profile(evidence=RunEvidence(memory=memory(), sampled=sampled(), numbers=numbers(), observed_steps=10)),
        plan_profile=Profile(
            plan=study.plan,
            evidence=RunEvidence(memory=memory(bytes_less=2**30), sampled=sampled(faster=4.0), observed_steps=10),
        ),
        lanes=before,
        plan_lanes=after,
        command="hotlap tune --seed 3 train.py --epochs 1",
        seed=3,
        patch=PATCH,
        source_lines=("loader = DataLoader(data, batch_size=32)", "", ""),
        costs=costs(),
    )


def hostile_material(folder: Path) -> Material:
    """Make every text of a script, a trace, an environment or a file an attack."""
    setting = Setting(lever=ATTACK, values=((ATTACK, ATTACK), ("num_workers", 2)))
    comparison = fakes.comparison((setting,), fakes.speed(1.5, remarks=(ATTACK,)), fakes.EXACT)
    machine = msgspec.structs.replace(
        fakes.MACHINE,
        processor=ATTACK,
        system=ATTACK,
        library_versions=((ATTACK, ATTACK),),
        environment=((ATTACK, ATTACK),),
        warnings=(ATTACK,),
    )
    study = msgspec.structs.replace(
        fakes.FINISHED,
        batch_search=BatchSearch(
            changed_by="flag",
            flag=ATTACK,
            obstacle=ATTACK,
            rates=(BatchRate(scale=2.0, samples_per_step=2, batch_size=2, error=ATTACK),),
        ),
        memory_estimate=MemoryEstimate(peaks=(EstimatedPeak(error=ATTACK),)),
        scale=msgspec.structs.replace(scale_prediction(), assumptions=(ATTACK,)),
        strategies=strategy_choice(ATTACK),
        refused=(Refused(plan=Plan(settings=(setting,)), quality=quality_of_outputs(0.5), gain=2.0),),
        candidates=(
            Candidate(
                plan=Plan(settings=(setting,)),
                comparison=comparison,
                engine=EngineReport(
                    engine=ATTACK,
                    version=ATTACK,
                    precision=ATTACK,
                    operators=1,
                    by_provider=(OperatorShare(name=ATTACK, operators=1),),
                    by_precision=(OperatorShare(name=ATTACK, operators=1),),
                ),
            ),
        ),
        memory=msgspec.structs.replace(
            memory_account(),
            device=ATTACK,
            modules=(ModuleMemory(name=ATTACK, kind=ATTACK),),
            growing=(MemoryGrowth(name=ATTACK, site=CallSite(role="step", file=ATTACK, line=1)),),
        ),
        watch=WatchedRun(steps=3, reference=ATTACK, remarks=(ATTACK,)),
        identifier=ATTACK,
        hotlap_version=ATTACK,
        started=ATTACK,
        status_text=ATTACK,
        workload=msgspec.structs.replace(fakes.WORKLOAD, target=ATTACK, arguments=(ATTACK,), directory=ATTACK),
        machine=machine,
        ceilings=(Ceiling(name="loader-alone", seconds_per_sample=0.003, bound_speedup=2.0, text=ATTACK),),
        findings=(
            Finding(
                rule=ATTACK,
                share=fakes.estimate(0.1, 0.1),
                title=ATTACK,
                evidence=(ATTACK, "`a` `b"),
                remedy=f"`{ATTACK}`",
                site=CallSite(role="model", file=ATTACK, line=3),
                levers=(ATTACK,),
            ),
        ),
        outcomes=(
            Outcome(lever=ATTACK, setting=setting, verdict=Kept(comparison=comparison, reason=ATTACK)),
            Outcome(
                lever="compile",
                setting=setting,
                verdict=Failed(ending=Crashed(exit_code=1, error=ATTACK), reason=ATTACK),
                compile=fakes.OUTCOMES[2].compile
                and msgspec.structs.replace(
                    fakes.OUTCOMES[2].compile, graph_breaks=(GraphBreak(reason=ATTACK, file=ATTACK, line=1),)
                ),
            ),
            Outcome(lever=f"{ATTACK}2", verdict=Skipped(reason=ATTACK)),
        ),
        plan=fakes.Plan(settings=(setting,)),
        verification=comparison,
        losses=loss_curves(losses(), losses(0.0004), fakes.WITHIN),
        loader_rates=(
            LoaderRate(setting=setting, seconds_per_sample=0.001),
            LoaderRate(setting=Setting(lever="loader"), seconds_per_sample=0.003, error=ATTACK),
        ),
        files=(FileWrite(path=ATTACK, redirected=False),),
        warnings=(ATTACK,),
        directory=ATTACK,
        trace_path=ATTACK,
    )
    writer = TraceWriter()
    for number in range(3):
        writer.step(number, number * 1000, 990)
        writer.host("operator", ATTACK, number * 1000 + 10, 300)
        writer.launch(ATTACK, number * 1000 + 320, number * 1000 + 330, 40)
    line = SampledLine(
        phase="forward",
        samples=1,
        seconds=1.0,
        site=CallSite(role="call", file=ATTACK, line=1, function=ATTACK),
        called=ATTACK,
        innermost=f"{ATTACK}2",
        native=ATTACK,
    )
    profile = Profile(evidence=RunEvidence(observed_steps=1, sampled=LineSamples(samples=1, lines=(line,))))
    return Material(
        profile=profile,
        source_lines=(ATTACK,),
        study=study,
        lanes=lanes(folder, writer),
        command=ATTACK,
        seed=1,
        patch=f"--- {ATTACK}\n+{ATTACK}\n",
    )
