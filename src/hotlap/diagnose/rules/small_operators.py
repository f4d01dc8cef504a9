"""A step calls very many small operators.

## What it is
On a CPU: a step of many operators, one every few microseconds, on tensors of a few thousand elements.

## Why it is slow
Each call takes torch a few microseconds before it computes anything: finding the kernel, checking shapes, allocating
the result, recording it for the backward pass. If the tensors are small, the step consists mostly of that, and neither
more cores nor cheaper arithmetic makes it shorter.

## How to see it
The time of the unprofiled step's forward, backward and optimizer, which must be half of the step, is divided by the
number of operators in a traced step, including those that other operators call. Four fifths of the calls must be on
tensors of at most 16,384 elements, and these must take half of all operators' time. Only a larger batch shows which
part of the time is overhead: `hotlap profile --batch-sizes` measures it, and if that gives less than a fifth more
samples per second, this rule is silent. It is also silent if the traced rank waits for a rank that begins its backward
pass later: then the other rank's operators make the step long.

## What to do
A larger batch needs the same number of calls for more samples, but it changes what is learned. A fused optimizer
(`fused=True`) and a compiled model call fewer.

## When it is fine
Small models for which a step of a few milliseconds is fast enough.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

import msgspec

from hotlap.diagnose.api import Group
from hotlap.diagnose.examples import CPU, GPU, operator, run_on
from hotlap.diagnose.operators import is_traced_file, profiled_steps, site_of
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import exactly
from hotlap.diagnose.wording import duration, levers_for, percent
from hotlap.evidence import DatasetProfile, FunctionTime
from hotlap.records import BatchRate, Estimate, Finding, PhaseAccount
from hotlap.traces.records import OperatorRow

title = "A step calls very many small operators"
group: Group = "host"
explains = ("python-overhead",)

_NAME = "small-operators"
_FEWEST_CALLS = 50
_LONGEST_SECONDS = 6e-5
"""The time from one operator to the next: a call with almost no computation takes about this long."""

_SMALL_ELEMENTS = 16_384
_MOST_CALLS = 0.8
_HALF = 0.5
_WORTH_IT = 1.2
_CLEARLY_EARLIER = 0.8
_COMPUTING = 0.5
"""Where forward, backward and update take less of a step, what makes the step long is elsewhere, and so may be most of
the operators."""


def check(profile: Profile) -> Iterator[Finding]:
    """One finding; none on an accelerator, where `launch-bound` reports it, nor for compiled code, which calls no
    operators."""
    calls = _calls_per_step(profile)
    if profile.on_accelerator or calls < _FEWEST_CALLS or any(it.compiled for it in profile.facts.models):
        return
    account = profile.account
    computing = account.seconds_in("forward") + account.seconds_in("backward") + account.seconds_in("optimizer")
    each = computing / calls
    small = _small_share(profile)
    rates = [it for it in profile.batch_rates if it.scale > 1 and not it.error and it.speedup is not None]
    gains = any(it.speedup is not None and it.speedup.low >= _WORTH_IT for it in rates)
    if (
        computing < _COMPUTING * account.wall
        or not 0 < each <= _LONGEST_SECONDS
        or small < _MOST_CALLS
        or _small_time_share(profile) < _HALF
        or (rates and not gains)
        or _waits_for_another_rank(profile)
    ):
        return
    yield Finding(
        rule=_NAME,
        kind="hint",
        share=exactly(0.0),
        title=f"A step calls {calls:,.0f} operators, one every {duration(each)}.",
        evidence=(
            f"{percent(small)} of the calls, including those between operators, are on tensors of at most "
            f"{_SMALL_ELEMENTS:,} elements",
            *(_in_words(it) for it in rates),
        ),
        remedy="A larger batch needs the same number of calls for more samples"
        f"{'' if rates else ' (`hotlap profile --batch-sizes` measures what it gives)'}; a fused optimizer and a "
        "compiled model call fewer.",
        levers=levers_for(_NAME),
    )


def _calls_per_step(profile: Profile) -> float:
    steps = profiled_steps(profile)
    return sum(it.calls for it in _of_most_steps(profile)) / steps if steps else 0.0


def _small_share(profile: Profile) -> float:
    """Return the share of calls whose largest input is small."""
    rows = _of_most_steps(profile)
    calls = sum(it.calls for it in rows)
    return sum(it.calls for it in rows if _is_small(it)) / calls if calls else 0.0


def _small_time_share(profile: Profile) -> float:
    """The part of all operators' time that those calls take: a few large ones may be what makes the step long."""
    rows = _of_most_steps(profile)
    nanoseconds = sum(it.host_nanoseconds for it in rows)
    return sum(it.host_nanoseconds for it in rows if _is_small(it)) / nanoseconds if nanoseconds else 0.0


def _of_most_steps(profile: Profile) -> list[OperatorRow]:
    """What is called in at least half of the profiled steps, but not by those that make samples: an evaluation between
    two of them is not the step's, and a loader without workers has findings of its own."""
    steps = profiled_steps(profile)
    rows = [it for it in profile.operators if it.steps == 0 or 2 * it.steps >= steps]
    return [it for it in rows if not _makes_samples(profile, it)]


def _waits_for_another_rank(profile: Profile) -> bool:
    """Whether the traced (first) rank begins its backward pass clearly before another."""
    until_backward = [statistics.median(it) for it in profile.rank_forward_seconds if it]
    return len(until_backward) > 1 and until_backward[0] < _CLEARLY_EARLIER * max(until_backward)


def _makes_samples(profile: Profile, row: OperatorRow) -> bool:
    """Whether one of the user's functions called it that were met when samples were made."""
    site = site_of(row)
    functions = (it for dataset in profile.evidence.datasets for it in dataset.functions if it.file)
    return site is not None and any(
        (it.line, it.name) == (site.line, site.function) and is_traced_file(it.file, site.file) for it in functions
    )


def _is_small(row: OperatorRow) -> bool:
    return all(math.prod(shape) <= _SMALL_ELEMENTS for shape in row.shapes)


def _in_words(rate: BatchRate) -> str:
    speedup = rate.speedup
    assert speedup is not None
    return (
        f"batches {rate.scale:g} times as large: {speedup.value:.2f} times the samples per second "
        f"({100 * rate.confidence:.3g} % interval {speedup.low:.2f} to {speedup.high:.2f}), the model alone"
    )


_MANY = operator("aten::mul", 40, [(32, 64)], calls=3000)
_READ = FunctionTime(name="read", file="/home/ada/project/data.py", line=30, own_seconds=0.1, total_seconds=0.1)
_DATASET = DatasetProfile(dataset="Scans", samples=64, seconds=0.1, functions=(_READ,))
_MANY_LARGE = operator("aten::mul", 40, [(3200, 64)], calls=3000)


def _measured(speedup: float) -> Profile:
    estimate = Estimate(value=speedup, low=speedup - 0.05, high=speedup + 0.05, unit="x")
    rates = (BatchRate(scale=4.0, samples_per_step=128.0, speedup=estimate),)
    return msgspec.structs.replace(run_on(CPU, _MANY), batch_rates=rates)


fires = {
    "three thousand in a tenth of a second": run_on(CPU, _MANY),
    "and four times the batch takes hardly longer": _measured(3.6),
    "two ranks that are as fast": msgspec.structs.replace(
        run_on(CPU, _MANY), rank_forward_seconds=((0.039,) * 9, (0.04,) * 9)
    ),
}
silent = {
    "nothing measured": Profile(),
    "a few operators": run_on(CPU, operator("aten::mul", 40, [(32, 64)], calls=40)),
    "a thousand, each of which takes its time": run_on(CPU, operator("aten::mul", 40, [(32, 64)], calls=1000)),
    "on large tensors": run_on(CPU, _MANY_LARGE),
    "next to a few that take most of the time": run_on(
        CPU, _MANY, operator("aten::mkldnn_convolution", 50, [(128, 24, 8, 8)], calls=4)
    ),
    "a larger batch was measured to give nothing": _measured(1.05),
    "a data set's, in the training process": msgspec.structs.replace(
        run_on(CPU, msgspec.structs.replace(_MANY, place="project/data.py(30): read")),
        evidence=msgspec.structs.replace(run_on(CPU, _MANY).evidence, datasets=(_DATASET,)),
    ),
    "an evaluation's, between two of the profiled steps": run_on(CPU, msgspec.structs.replace(_MANY, steps=1)),
    "a step that is mostly outside of forward, backward and update": msgspec.structs.replace(
        run_on(CPU, _MANY),
        account=PhaseAccount(
            wall=0.1,
            phases=(
                ("forward", 0.02),
                ("backward", 0.02),
                ("optimizer", 0.009),
                ("other", 0.051),
            ),
        ),
    ),
    "the traced rank waits for another": msgspec.structs.replace(
        run_on(CPU, _MANY), rank_forward_seconds=((0.01,) * 9, (0.04,) * 9)
    ),
    "on a device": run_on(GPU, _MANY),
}
