"""Compiling takes longer than training is likely to save.

## What it is
The script compiles, and compile time is a large part of the run, or as long as many passes over the training data or
thousands of steps. Or a trial has measured the gain of compiling per step, and the run or the data are too short for it
to pay off.

## Why it is slow
The cost is paid once, the gain accumulates step by step. With small models and small data, training may be over before
compiling pays off. The cost is paid again in every run without a cache, and for every new shape.

## How to see it
The seconds are those that torch reports for Dynamo and Inductor (`torch._dynamo.utils.compile_times()`). If the script
ended by itself, they are compared with the length of the run; otherwise with a pass over the training data, or with the
compiled steps if no loader has a length. The number of steps until compiling pays off is its seconds divided by the
seconds that each step saves; without a trial the saving is unknown, and only the cost is shown.

## What to do
Disable `torch.compile` in short experiments, and enable it for long training runs. Compile only the slow part, or keep
the cache between runs (`TORCHINDUCTOR_CACHE_DIR`).

## When it is fine
If training takes many more steps than the measured run, or the next run finds the compiled code in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from hotlap.diagnose.compiled import compiled_with, is_compiled
from hotlap.diagnose.operators import site_with
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import exactly
from hotlap.diagnose.wording import duration, percent
from hotlap.levers.kernels.compile import pay_back_steps
from hotlap.records import (
    Comparison,
    CompileReport,
    Estimate,
    Finding,
    Kept,
    LoaderFacts,
    Outcome,
    PhaseAccount,
    Plan,
    ScriptFacts,
    SpeedComparison,
    Steps,
)

title = "Compiling takes longer than training is likely to save"
group = "compile"

MANY_PASSES = 10
"""Passes over the training data. A compiled step that takes half as long as before wins itself once more, so it needs
as many passes to win back what compiling took."""

LARGE_PART = 0.2
"""A share of the run. Compiling then pays off only if a step would take a quarter longer without it."""

MANY_STEPS = 1000
"""A number of compiled steps, used if the length of the run and of a pass are unknown."""

SHORTEST_SECONDS = 5.0
"""Shorter compile times are not reported."""


def check(profile: Profile) -> Iterator[Finding]:
    """Yield one finding if the script or a trial compiled: the cost, and the gain if it is known."""
    if profile.account.wall <= 0:
        return
    if is_compiled(profile) or profile.compile.graphs > 0:
        yield from _in_the_script(profile)
    else:
        yield from _in_a_trial(profile)


def _in_the_script(profile: Profile) -> Iterator[Finding]:
    """Compare the cost alone: the gain is unknown, since nothing ran uncompiled."""
    seconds, step_seconds = profile.compile.seconds, profile.account.wall
    pass_steps = _steps_of_a_pass(profile)
    if seconds < SHORTEST_SECONDS:
        return
    if profile.run_seconds > 0:
        if seconds >= LARGE_PART * profile.run_seconds:
            yield _part_of_the_run(profile)
    elif pass_steps > 0:
        if seconds / step_seconds / pass_steps >= MANY_PASSES:
            yield _many_passes(profile, pass_steps)
    elif seconds / step_seconds >= MANY_STEPS:
        yield _many_steps(profile)


def _part_of_the_run(profile: Profile) -> Finding:
    seconds, run_seconds, step_seconds = profile.compile.seconds, profile.run_seconds, profile.account.wall
    steps = max(1, len(profile.steps.wall_seconds))
    return _finding(
        profile,
        title=f"Compiling took {duration(seconds)} of the {duration(run_seconds)} that the script ran "
        f"({percent(seconds / run_seconds)}).",
        evidence=(
            f"Compiled graphs: {profile.compile.graphs}. Steps: {steps:,}, of {duration(step_seconds)} each after "
            "warm-up.",
            f"In {steps:,} steps compiling pays for itself only if a step without it takes more than "
            f"{duration(step_seconds + seconds / steps)}.",
            _GAIN_UNKNOWN,
        ),
    )


def _many_passes(profile: Profile, pass_steps: float) -> Finding:
    seconds, step_seconds = profile.compile.seconds, profile.account.wall
    passes = seconds / step_seconds / pass_steps
    return _finding(
        profile,
        title=f"Compiling took {duration(seconds)}, as long as {passes:,.0f} passes over the training data.",
        evidence=(
            f"A step takes {duration(step_seconds)}, and a pass has {pass_steps:,.0f} of them.",
            f"If uncompiled steps took twice as long, {passes:,.0f} passes would pay off compiling.",
        ),
    )


def _many_steps(profile: Profile) -> Finding:
    seconds, step_seconds = profile.compile.seconds, profile.account.wall
    steps = seconds / step_seconds
    return _finding(
        profile,
        title=f"Compiling took {duration(seconds)}, as long as {steps:,.0f} compiled steps.",
        evidence=(
            f"A compiled step takes {duration(step_seconds)}.",
            f"If uncompiled steps took twice as long, {steps:,.0f} steps would pay off compiling.",
            _GAIN_UNKNOWN,
        ),
    )


def _in_a_trial(profile: Profile) -> Iterator[Finding]:
    """Compare the cost with the gain that a trial measured.

    The upper end of the gain counts, for an unmodified step: with other levers a step may be shorter, and so may the
    gain.
    """
    outcome = next((it for it in profile.outcomes if it.lever == "compile"), None)
    if outcome is None or not isinstance(outcome.verdict, Kept) or outcome.compile is None:
        return
    speed = outcome.verdict.comparison.speed
    wall, seconds = profile.account.wall, outcome.compile.seconds
    steps = _to_win_back(seconds, wall, speed.speedup.high)
    if seconds < SHORTEST_SECONDS or steps is None:
        return
    pass_steps, run_steps = _steps_of_a_pass(profile), len(profile.steps.wall_seconds)
    if profile.run_seconds > 0 and steps > run_steps:
        than, length = f"the script takes {run_steps:,}", f"The script ended after {run_steps:,} steps."
    elif profile.run_seconds <= 0 and pass_steps > 0 and steps >= MANY_PASSES * pass_steps:
        than = f"{steps / pass_steps:,.0f} passes"
        length = f"A pass over the training data has {pass_steps:,.0f} steps."
    else:
        return
    yield _finding(
        profile,
        title=f"Compiling pays off after {steps:,.0f} steps at the earliest, {than}.",
        evidence=(
            f"Compiling took {duration(seconds)}. A step of {duration(wall)} became {speed.speedup.value:.2f} times as "
            f"fast ({100 * speed.confidence:.3g} % interval {speed.speedup.low:.2f} to {speed.speedup.high:.2f}).",
            length,
        ),
    )


def _finding(profile: Profile, *, title: str, evidence: tuple[str, ...]) -> Finding:
    return Finding(
        rule="compile-never-pays",
        kind="hint",
        share=exactly(0.0),
        title=title,
        evidence=evidence,
        remedy=_REMEDY,
        site=site_with(profile, "compile", "model"),
    )


_GAIN_UNKNOWN = "What a step takes without compiling was not measured."
_REMEDY = (
    "For shorter runs, do not use `torch.compile`; for longer ones keep its cache between runs with "
    "`TORCHINDUCTOR_CACHE_DIR`."
)


def _to_win_back(seconds: float, wall: float, speedup: float) -> float | None:
    return pay_back_steps(seconds, wall, wall / speedup) if speedup > 0 else None


def _steps_of_a_pass(profile: Profile) -> float:
    """Return optimizer steps per pass over the longest loader; 0 if no loader has a length."""
    lengths = [it.length for it in profile.facts.loaders if it.length]
    return max(lengths, default=0) / max(1.0, profile.facts.backwards_per_step)


def _small_data(seconds: float, batches: int | None) -> Profile:
    profile = compiled_with(CompileReport(seconds=seconds, graphs=1))
    loader = LoaderFacts(dataset="Digits", batch_size=64, length=batches)
    facts = msgspec.structs.replace(profile.facts, loaders=(loader,))
    return msgspec.structs.replace(profile, facts=facts)


def _tried(gain: float, seconds: float, batches: int) -> Profile:
    speedup = Estimate(value=gain, low=gain - 0.01, high=gain + 0.01, unit="x")
    speed = SpeedComparison(
        speedup=speedup,
        verdict="faster",
        replicates=5,
        rounds=15,
        confidence=0.95,
        noise_floor=0.01,
        smallest_detectable=0.02,
    )
    verdict = Kept(comparison=Comparison(baseline=Plan(), candidate=Plan(), speed=speed))
    return Profile(
        facts=ScriptFacts(loaders=(LoaderFacts(dataset="Digits", length=batches),)),
        account=PhaseAccount(wall=0.1, phases=(("forward", 0.1),)),
        outcomes=(Outcome(lever="compile", verdict=verdict, compile=CompileReport(seconds=seconds, graphs=1)),),
    )


def _whole_run(seconds: float, run_seconds: float, steps: int) -> Profile:
    """A script without a loader that came to its own end."""
    profile = compiled_with(CompileReport(seconds=seconds, graphs=1))
    return msgspec.structs.replace(profile, run_seconds=run_seconds, steps=Steps(wall_seconds=(0.1,) * steps))


def _tried_in_a_whole_run(gain: float, steps: int) -> Profile:
    profile = _tried(gain, 40.0, 1)
    return msgspec.structs.replace(profile, run_seconds=0.1 * steps, steps=Steps(wall_seconds=(0.1,) * steps))


fires = {
    "twenty passes of ten steps": _small_data(20.0, 10),
    "a small gain that a trial measured": _tried(1.05, 40.0, 100),
    "nearly all of a run without a loader": _whole_run(24.5, 26.0, 15),
    "as long as a thousand steps, and no length is known": _small_data(100.0, None),
    "a trial's gain, in a run that is over before": _tried_in_a_whole_run(1.5, 600),
}
silent = {
    "nothing was measured": Profile(),
    "a long pass": _small_data(20.0, 1000),
    "just below ten passes": _small_data(9.9, 10),
    "compiled in no time": _small_data(4.0, 1),
    "the data's length is not known, nor the run's": _small_data(20.0, None),
    "a small part of a run": _whole_run(19.0, 100.0, 800),
    "a large gain that a trial measured": _tried(1.5, 20.0, 100),
    "a trial's gain, in a run that lasts": _tried_in_a_whole_run(1.5, 2000),
    "the gain's best end is soon won back": _tried(1.02, 20.0, 1000),
}
