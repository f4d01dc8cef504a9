"""Rules about the host, at their thresholds."""

from __future__ import annotations

from functools import partial
from typing import cast

import msgspec
import pytest

from hotlap.diagnose.example_traces import STEP_SECONDS, idle_for, many_kernels, trace_of
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.rank import diagnose
from hotlap.diagnose.rules import (
    anomaly_detection,
    empty_cache,
    host_sync,
    launch_bound,
    logging_cost,
    other_time,
    python_overhead,
    small_operators,
    tensor_on_host,
)
from hotlap.evidence import (
    HostSync,
    LineSamples,
    LoaderUse,
    LoopCall,
    LoopCallKind,
    RunEvidence,
    SampledLine,
    SampledPhase,
    SyncKind,
    Window,
)
from hotlap.records import CallSite, PhaseAccount, ScriptFacts
from hotlap.traces.records import Breakdown, Evidence, HostTime, OperatorRow

LINE = CallSite(role="step", file="/home/ada/train.py", line=44)
ELSEWHERE = CallSite(role="step", file="/home/ada/train.py", line=60)

item = partial(
    msgspec.structs.replace,
    HostSync(kind="item", calls=100, steps=100, seconds=1.0, on_device=True, site=LINE),
)


def seen(
    *syncs: HostSync,
    calls: tuple[LoopCall, ...] = (),
    loaders: tuple[LoaderUse, ...] = (),
    traces: tuple[Breakdown, ...] = (),
    device: str = "cuda",
) -> Profile:
    """Make a profile of a hundred observed steps of 0.1 s."""
    return Profile(
        facts=ScriptFacts(device=device),
        account=PhaseAccount(wall=STEP_SECONDS, phases=(("forward", STEP_SECONDS),)),
        evidence=RunEvidence(
            observed_steps=100, observed_seconds=100 * STEP_SECONDS, syncs=syncs, calls=calls, loaders=loaders
        ),
        breakdowns=traces,
    )


# ---------------------------------------------------------------------------------------------
# host-sync
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "fires"), [(0.199, False), (0.201, True)])
def test_host_sync_from_two_percent_on(seconds: float, fires: bool) -> None:
    assert bool(list(host_sync.check(seen(item(seconds=seconds))))) is fires


@pytest.mark.parametrize(("steps", "fires"), [(49, False), (50, True)])
def test_host_sync_leaves_guarded_lines_alone(steps: int, fires: bool) -> None:
    assert bool(list(host_sync.check(seen(item(steps=steps))))) is fires


def test_host_sync_without_a_trace_is_a_bound() -> None:
    (found,) = host_sync.check(seen(item()))
    assert (found.share.low, found.share.value) == (0.0, pytest.approx(0.1))
    assert found.title == "`.item()` at train.py:44 makes the host wait for the device: at most 10 % of the step."
    assert "100 calls in 100 of 100 observed steps, 10.0 ms each" in found.evidence
    assert found.site == LINE


def test_host_sync_splits_the_idle_time_among_waiting_lines() -> None:
    trace = trace_of(idle_for("host_sync", 8.0))
    found = list(
        host_sync.check(seen(item(seconds=3.0), item(kind="bool", seconds=1.0, site=ELSEWHERE), traces=(trace,)))
    )
    assert [it.share.value for it in found] == pytest.approx([0.06, 0.02])
    assert [it.share.high for it in found] == pytest.approx([0.3, 0.1]), "the effect of a wait may appear in later gaps"
    assert [it.site for it in found] == [LINE, ELSEWHERE]


def test_host_sync_leaves_out_the_share_of_waits_in_torch() -> None:
    """Let the optimizer wait just as long, so that half of the idle time is its own."""
    trace = trace_of(idle_for("host_sync", 8.0))
    (found,) = host_sync.check(seen(item(), item(phase="optimizer"), traces=(trace,)))
    assert found.share.value == pytest.approx(0.04)


def test_host_sync_costs_at_most_its_wait() -> None:
    (found,) = host_sync.check(seen(item(seconds=0.5), traces=(trace_of(idle_for("host_sync", 30.0)),)))
    assert found.share.value == found.share.high == pytest.approx(0.05)


@pytest.mark.parametrize(("milliseconds", "fires"), [(1.9, False), (2.1, True)])
def test_host_sync_is_silent_if_the_device_is_hardly_idle(milliseconds: float, fires: bool) -> None:
    trace = trace_of(idle_for("host_sync", milliseconds))
    assert bool(list(host_sync.check(seen(item(seconds=5.0), traces=(trace,))))) is fires


def test_host_sync_leaves_copies_to_their_own_rules() -> None:
    copy = item(kind="copy-to-device")
    assert list(host_sync.check(seen(copy)))
    assert not list(host_sync.check(seen(copy, loaders=(LoaderUse(dataset="Images", copy_site=LINE),))))
    made_here = LoopCall(kind="tensor-on-host", calls=100, steps=100, seconds=0.1, site=LINE)
    assert not list(host_sync.check(seen(copy, calls=(made_here,))))


@pytest.mark.parametrize("kind", ["item", "cpu", "numpy", "tolist", "bool", "nonzero", "print", "synchronize"])
def test_host_sync_has_advice_for_every_kind(kind: SyncKind) -> None:
    (found,) = host_sync.check(seen(item(kind=kind)))
    assert found.remedy and "train.py:44" in found.title


# ---------------------------------------------------------------------------------------------
# launch-bound
# ---------------------------------------------------------------------------------------------


def launching(milliseconds: float = 20.0, in_operators: float = 1.0, short_share: float = 0.5) -> Profile:
    trace = trace_of(
        idle_for("launch_bound", milliseconds, in_operators=in_operators), kernels=many_kernels(short_share=short_share)
    )
    return seen(traces=(trace,))


@pytest.mark.parametrize(("short_share", "fires"), [(0.299, False), (0.3, True)])
def test_launch_bound_needs_many_short_kernels(short_share: float, fires: bool) -> None:
    assert bool(list(launch_bound.check(launching(short_share=short_share)))) is fires


@pytest.mark.parametrize(("milliseconds", "fires"), [(1.9, False), (2.1, True)])
def test_launch_bound_from_two_percent_on(milliseconds: float, fires: bool) -> None:
    assert bool(list(launch_bound.check(launching(milliseconds)))) is fires


def test_launch_bound_costs_the_part_spent_launching() -> None:
    (found,) = launch_bound.check(launching(20.0, in_operators=0.6))
    assert found.share.value == pytest.approx(0.12)
    assert found.title == "The device idles 12 % of the step, because its kernels are launched too slowly."
    assert "100 kernels per step, 50 % of them shorter than the 6.00 us that a launch takes" in found.evidence


def test_launch_bound_names_the_operators() -> None:
    cause = msgspec.structs.replace(
        idle_for("launch_bound", 20.0, in_operators=1.0),
        evidence=(
            Evidence(role="operator", name="aten::add_", gaps=7, nanoseconds=4_000_000),
            Evidence(role="call", name="cudaLaunchKernel", gaps=7, nanoseconds=3_000_000),
        ),
    )
    (found,) = launch_bound.check(seen(traces=(trace_of(cause, kernels=many_kernels(short_share=1.0)),)))
    assert [it for it in found.evidence if "aten::add_" in it] == ["in such gaps the host was in aten::add_: 4.00 ms"]
    assert not [it for it in found.evidence if "cudaLaunchKernel" in it]


def test_launch_bound_is_silent_on_a_cpu() -> None:
    on_the_cpu = msgspec.structs.replace(trace_of(), devices=())
    assert not list(launch_bound.check(seen(traces=(on_the_cpu,), device="cpu")))


# ---------------------------------------------------------------------------------------------
# Calls that do not contribute to training
# ---------------------------------------------------------------------------------------------


def call(kind: LoopCallKind, seconds: float, steps: int = 100, site: CallSite = LINE) -> LoopCall:
    return LoopCall(kind=kind, calls=steps, steps=steps, seconds=seconds, bytes=1024 * steps, site=site)


@pytest.mark.parametrize("kind", ["empty-cache", "garbage-collection"])
@pytest.mark.parametrize(("seconds", "fires"), [(0.199, False), (0.201, True)])
def test_empty_cache_from_two_percent_on(kind: LoopCallKind, seconds: float, fires: bool) -> None:
    assert bool(list(empty_cache.check(seen(calls=(call(kind, seconds),))))) is fires


def test_empty_cache_counts_its_cost_not_its_calls() -> None:
    (found,) = empty_cache.check(seen(calls=(call("empty-cache", 1.0, steps=4),)))
    assert found.share.value == pytest.approx(0.1)
    assert found.evidence == ("4 calls in 4 of 100 observed steps, 250 ms each",)


@pytest.mark.parametrize(("seconds", "fires"), [(0.0999, False), (0.1001, True)])
def test_logging_cost_above_one_percent(seconds: float, fires: bool) -> None:
    assert bool(list(logging_cost.check(seen(calls=(call("print", seconds),))))) is fires


def test_logging_cost_adds_up_the_lines_and_names_the_costliest() -> None:
    calls = (call("print", 0.06), call("logging", 0.07, site=ELSEWHERE), call("empty-cache", 5.0))
    (found,) = logging_cost.check(seen(calls=calls, device="cpu"))
    assert found.share.value == found.share.low == pytest.approx(0.013)
    assert found.site == ELSEWHERE
    assert [it.partition(":")[0] + ":" + it.split(":")[1] for it in found.evidence] == ["train.py:60", "train.py:44"]


def test_logging_cost_is_a_bound_on_a_device() -> None:
    (found,) = logging_cost.check(seen(calls=(call("print", 1.0),)))
    assert found.share.low == 0 and "at most 10 %" in found.title


@pytest.mark.parametrize(("seconds", "steps", "fires"), [(0.199, 100, False), (0.201, 50, True), (0.3, 49, False)])
def test_tensor_on_host_from_two_percent_on_and_unguarded(seconds: float, steps: int, fires: bool) -> None:
    assert bool(list(tensor_on_host.check(seen(calls=(call("tensor-on-host", seconds, steps),))))) is fires


def test_tensor_on_host_shows_the_time_of_each_tensor() -> None:
    (found,) = tensor_on_host.check(seen(calls=(call("tensor-on-host", 1.0),)))
    assert found.evidence == ("100 tensors in 100 of 100 observed steps, 10.0 ms and 1.0 KiB each",)
    assert found.site == LINE


def test_anomaly_detection_names_its_line() -> None:
    evidence = RunEvidence(observed_steps=12, anomaly_detection=True, anomaly_site=LINE)
    (found,) = anomaly_detection.check(Profile(evidence=evidence))
    assert found.kind == "hint" and found.site == LINE
    assert found.title == "Anomaly detection was on for 12 observed steps."


# ---------------------------------------------------------------------------------------------
# python-overhead
# ---------------------------------------------------------------------------------------------


def traced_on_cpu(operators: float, *, data_wait: float = 0.0, traced_step: float = 0.2, **fields: object) -> Profile:
    """Make a step of 100 ms, and ten traced steps with this many milliseconds in operators."""
    step, inside = round(traced_step * 1e10), round(operators * 1e7)
    known = Profile(
        account=PhaseAccount(
            wall=0.1,
            phases=(
                ("data_wait", data_wait),
                ("forward", 0.1 - data_wait),
            ),
        ),
        evidence=RunEvidence(window=Window(first_step=0, steps=10, wall_seconds=1.0, trace_path="t.json")),
        host_time=HostTime(
            step_nanoseconds=step,
            operator_nanoseconds=inside,
            loader_nanoseconds=0,
            sync_nanoseconds=0,
            python_nanoseconds=step - inside,
        ),
    )
    return msgspec.structs.replace(known, **fields)


@pytest.mark.parametrize(("operators", "fires"), [(80.1, False), (79.9, True)])
def test_python_overhead_from_20_percent_on(operators: float, fires: bool) -> None:
    assert bool(list(python_overhead.check(traced_on_cpu(operators)))) is fires


@pytest.mark.parametrize(("data_wait", "fires"), [(0.0099, True), (0.0101, False)])
def test_python_overhead_is_not_the_data_wait(data_wait: float, fires: bool) -> None:
    assert bool(list(python_overhead.check(traced_on_cpu(70.0, data_wait=data_wait)))) is fires


def test_python_overhead_is_the_unmodified_step_minus_operators() -> None:
    """Ignore the Python time under the profiler, which slows down Python most."""
    (found,) = python_overhead.check(traced_on_cpu(60.0, traced_step=0.5))
    assert found.share.value == pytest.approx(0.4)
    assert found.share.low == pytest.approx(0.34)
    assert found.share.high == pytest.approx(1.0)
    (tight,) = python_overhead.check(traced_on_cpu(60.0, traced_step=0.1))
    assert tight.share.high == pytest.approx(0.4)


def test_python_overhead_needs_host_time_in_the_trace() -> None:
    profile = traced_on_cpu(10.0)
    assert list(python_overhead.check(profile))
    assert not list(python_overhead.check(msgspec.structs.replace(profile, host_time=None)))
    assert not list(python_overhead.check(msgspec.structs.replace(profile, evidence=RunEvidence())))
    distrusted = msgspec.structs.replace(trace_of(), devices=(), unreliable="it ends early")
    assert not list(python_overhead.check(msgspec.structs.replace(profile, breakdowns=(distrusted,))))


def test_python_overhead_on_a_device_adds_up_both_kinds_of_gaps() -> None:
    trace = trace_of(idle_for("launch_bound", 10.0, in_operators=0.5), idle_for("between_steps", 6.0))
    (found,) = python_overhead.check(seen(traces=(trace,)))
    assert found.share.value == pytest.approx(0.11)


def test_python_overhead_names_the_places_of_the_gaps() -> None:
    gap = msgspec.structs.replace(
        idle_for("between_steps", 20.0),
        evidence=(Evidence(role="place", name="train.py(12): metrics", gaps=10, nanoseconds=150_000_000),),
    )
    (found,) = python_overhead.check(seen(traces=(trace_of(gap),)))
    assert "in such gaps the host was at train.py(12): metrics: 150 ms" in found.evidence


def line(
    number: int, share: float, *, phase: str = "other", native: str = ".get", called: str = "", samples: int = 100
) -> SampledLine:
    """Make a line that takes this share of the 10 s that :func:`traced_on_cpu` observes."""
    return SampledLine(
        phase=cast(SampledPhase, phase),
        samples=samples,
        seconds=10.0 * share,
        native=native,
        called=called,
        site=CallSite(role="call", file="/home/ada/train.py", line=number),
    )


def sampled(profile: Profile, *lines: SampledLine) -> Profile:
    evidence = msgspec.structs.replace(
        profile.evidence,
        observed_steps=100,
        observed_seconds=10.0,
        sampled=LineSamples(interval_seconds=0.01, samples=1000, lines=lines),
    )
    return msgspec.structs.replace(profile, evidence=evidence)


def test_python_overhead_names_the_hottest_lines() -> None:
    (found,) = python_overhead.check(sampled(traced_on_cpu(60.0), line(31, 0.05), line(14, 0.3)))
    assert found.site is not None and found.site.line == 14
    assert [it for it in found.evidence if it.startswith("train.py")] == [
        "train.py:14: get, 30 % of the observed steps, by 100 samples",
        "train.py:31: get, 5.0 % of the observed steps, by 100 samples",
    ]
    assert "py-spy" not in found.remedy


def test_python_overhead_uses_samples_if_tracing_is_slow() -> None:
    """Take nine tenths of the 70 % outside of all phases, which were sampled in Python.

    The rest was sampled for 8 ms of a 100 ms step; only that much is certainly something else.
    """
    account = PhaseAccount(
        wall=0.1,
        phases=(
            ("forward", 0.03),
            ("other", 0.07),
        ),
    )
    sort = line(40, 0.08, called="torch.sort")
    profile = sampled(traced_on_cpu(250.0, traced_step=0.4, account=account), line(14, 0.72, native="int"), sort)
    (found,) = python_overhead.check(profile)
    assert found.share.value == pytest.approx(0.63)
    assert (found.share.low, found.share.high) == (pytest.approx(0.62), pytest.approx(0.7))
    assert found.site is not None and found.site.line == 14
    asleep = msgspec.structs.replace(line(14, 0.72, native=".recv"), asleep_seconds=7.0)
    assert not list(python_overhead.check(sampled(traced_on_cpu(250.0, account=account), asleep, sort)))


@pytest.mark.parametrize(("phase", "compiles"), [("other", False), ("optimizer", False), ("forward", True)])
def test_python_overhead_suggests_compile_only_within_the_model(phase: str, compiles: bool) -> None:
    (found,) = python_overhead.check(sampled(traced_on_cpu(60.0), line(14, 0.3, phase=phase)))
    assert ("compile" in found.levers, "compile" in found.remedy) == (compiles, compiles)


@pytest.mark.parametrize(
    "met",
    [
        line(14, 0.3, called="torch.nn.modules.module.Module._call_impl"),
        line(14, 0.3, native="torch.sort"),
        line(14, 0.3, native="operator"),
        line(14, 0.3, native=".write"),
        line(14, 0.3, phase="data_wait"),
        line(14, 0.3, phase="startup"),
        line(14, 0.3, samples=9),
    ],
)
def test_python_overhead_names_no_line_in_torch_or_outside_steps(met: SampledLine) -> None:
    for found in python_overhead.check(sampled(traced_on_cpu(60.0), met)):
        assert found.site is None and not any(it.startswith("train.py") for it in found.evidence)


def test_small_operators_explain_python_overhead_without_a_line() -> None:
    row = OperatorRow(name="aten::mul", shapes=((32, 64),), calls=30_000, host_nanoseconds=1000)
    profile = msgspec.structs.replace(traced_on_cpu(60.0), operators=(row,))
    (found,) = [it for it in diagnose(profile) if "small-operators" in (it.rule, *it.causes)]
    assert (found.rule, found.causes) == ("python-overhead", ("small-operators",))
    assert found.evidence[0] == "A step calls 3,000 operators, one every 33.3 us."
    assert "--batch-sizes" in found.remedy
    with_line = sampled(profile, line(14, 0.3))
    rules = [it.rule for it in diagnose(msgspec.structs.replace(with_line, operators=(row,)))]
    assert "python-overhead" in rules and "small-operators" in rules


def test_small_operators_show_the_gain_of_a_larger_batch() -> None:
    (found,) = small_operators.check(small_operators.fires["and four times the batch takes hardly longer"])
    assert found.evidence[1] == (
        "batches 4 times as large: 3.60 times the samples per second (95 % interval 3.55 to 3.65), the model alone"
    )
    assert "--batch-sizes" not in found.remedy


def test_python_overhead_names_the_line_that_unpacks_a_tensor() -> None:
    (found,) = python_overhead.check(sampled(traced_on_cpu(60.0), line(14, 0.3, native="torch.Tensor.tolist")))
    assert found.site is not None and found.site.line == 14


def test_logging_cost_adds_sampled_lines_to_counted_calls() -> None:
    profile = sampled(seen(calls=(call("tensorboard", 0.5),), device="cpu"), line(70, 0.1, native=".write"))
    (found,) = logging_cost.check(profile)
    assert found.share.value == pytest.approx(0.15)
    assert (found.share.low, found.share.high) == (pytest.approx(0.13), pytest.approx(0.17))
    assert found.site is not None and found.site.line == 70
    assert found.evidence[1].startswith("train.py:44: TensorBoard, 100 calls")


def test_logging_cost_does_not_count_a_line_twice() -> None:
    twice = line(44, 0.1, native=".write")
    (found,) = logging_cost.check(sampled(seen(calls=(call("file-write", 0.5),), device="cpu"), twice))
    assert found.share.value == pytest.approx(0.05)


def test_logging_cost_includes_preparing_the_output() -> None:
    """Include the line that reads and formats a tensor's value, which takes longer than the write itself."""
    printing = seen(calls=(call("logging", 3.0),), device="cpu")
    lines = (line(44, 0.3, native="", called="logging.info"), line(44, 0.3, native="torch.Tensor.__getitem__"))
    (found,) = logging_cost.check(sampled(printing, *lines))
    assert found.share.value == pytest.approx(0.3)
    assert "Including the arguments that they prepare, these lines take 60 %" in found.evidence[1]
    (alone,) = logging_cost.check(sampled(printing, lines[0]))
    assert len(alone.evidence) == 1


def test_a_silenced_tracker_has_no_cost() -> None:
    (found,) = logging_cost.check(seen(calls=(call("tracker", 1e-5),)))
    assert (found.kind, found.share.high, found.site) == ("hint", 0.0, LINE)
    assert found.title == "train.py:44 calls an experiment tracker in 100 of 100 observed steps."
    (costly,) = logging_cost.check(seen(calls=(call("tracker", 0.5),)))
    assert costly.kind == "cost" and "disabled" in costly.evidence[-1]


@pytest.mark.parametrize("name", ["a loss is gathered in every step", "two ranks at work"])
def test_other_time_does_not_mention_sleep_that_is_not_counted(name: str) -> None:
    profile = other_time.fires[name]
    lines = [msgspec.structs.replace(it, asleep_seconds=0.0) for it in profile.evidence.sampled.lines]
    unknown = msgspec.structs.replace(profile.evidence, sampled=LineSamples(lines=tuple(lines)))
    (found,) = other_time.check(msgspec.structs.replace(profile, evidence=unknown))
    assert not any("slept" in it for it in found.evidence) and "at work or asleep" in found.evidence[0]
    (known,) = other_time.check(profile)
    assert "at work" in known.evidence[0] and "or asleep" not in known.evidence[0]
