"""Compiling takes longer than training is likely to win back.

## What it is
The script compiles its model, and the time for that is many passes over the training data. Or a trial has shown what
compiling gains here in each step, and it takes as many passes to win back what compiling costs.

## Why it is slow
Compiling is paid once, its gain is earned step by step. With small models and small data the whole training may be over
before the two are even. It is paid again in every run that finds no cache, and for every new shape.

## How to see it
Compare the run's first steps with its later ones. The number of steps to win it back is the seconds of compiling
divided by the seconds that each step gains.

## What to do
Leave `torch.compile` out while you try things, and put it in for long trainings. Compile only the part that takes the
time, or keep the cache between runs (`TORCHINDUCTOR_CACHE_DIR`).

## When it is fine
Where training takes hundreds of passes, or the same compiled code is found in the cache next time.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from hotlap.diagnose.compiled import compiled_with, is_compiled
from hotlap.diagnose.operators import site_with
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import exactly
from hotlap.diagnose.wording import duration
from hotlap.levers.compile import pay_back_steps
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
)

title = "Compiling takes longer than training is likely to win back"
group = "compile"

MANY_PASSES = 10
"""Passes over the training data. A compiled step that takes half as long as before wins itself once more, so it needs
as many passes to win back what compiling took."""

SHORTEST_SECONDS = 5.0
"""Compiling that takes no longer is nobody's trouble."""


def check(profile: Profile) -> Iterator[Finding]:
    """Only where the loader says how long a pass is. How many there will be nobody but the user knows."""
    pass_steps = _steps_of_a_pass(profile)
    if pass_steps <= 0 or profile.account.wall <= 0:
        return
    if is_compiled(profile):
        yield from _in_the_script(profile, pass_steps)
    else:
        yield from _in_a_trial(profile, pass_steps)


def _in_the_script(profile: Profile, pass_steps: float) -> Iterator[Finding]:
    """The gain is not known, since nothing ran uncompiled: the cost alone is held against the data."""
    seconds, step_seconds = profile.compile.seconds, profile.account.wall
    passes = seconds / step_seconds / pass_steps
    if seconds < SHORTEST_SECONDS or passes < MANY_PASSES:
        return
    yield Finding(
        rule="compile-never-pays",
        kind="hint",
        share=exactly(0.0),
        title=f"Compiling took {duration(seconds)}, as long as {passes:,.0f} passes over the training data.",
        evidence=(
            f"A step takes {duration(step_seconds)}, and a pass has {pass_steps:,.0f} of them.",
            f"If uncompiled steps took twice as long, {passes:,.0f} passes would win back what compiling took.",
        ),
        remedy=_REMEDY,
        site=site_with(profile, "model"),
    )


def _in_a_trial(profile: Profile, pass_steps: float) -> Iterator[Finding]:
    """A trial has measured the gain, so the steps that win the cost back are known. The gain's best end counts, of an
    untouched step: beside other levers a step may be shorter, and the gain with it."""
    outcome = next((it for it in profile.outcomes if it.lever == "compile"), None)
    if outcome is None or not isinstance(outcome.verdict, Kept) or outcome.compile is None:
        return
    speed = outcome.verdict.comparison.speed
    wall, seconds = profile.account.wall, outcome.compile.seconds
    steps = _to_win_back(seconds, wall, speed.speedup.high)
    if seconds < SHORTEST_SECONDS or steps is None or steps < MANY_PASSES * pass_steps:
        return
    passes = steps / pass_steps
    yield Finding(
        rule="compile-never-pays",
        kind="hint",
        share=exactly(0.0),
        title=f"Compiling wins back its own time after {steps:,.0f} steps at the earliest, {passes:,.0f} passes.",
        evidence=(
            f"Compiling took {duration(seconds)}. A step of {duration(wall)} became {speed.speedup.value:.2f} times as "
            f"fast ({100 * speed.confidence:.3g} % interval {speed.speedup.low:.2f} to {speed.speedup.high:.2f}).",
            f"A pass over the training data has {pass_steps:,.0f} steps.",
        ),
        remedy=_REMEDY,
        site=site_with(profile, "model"),
    )


_REMEDY = (
    "For trainings that are shorter, leave `torch.compile` out; for longer ones keep its cache between runs with "
    "`TORCHINDUCTOR_CACHE_DIR`."
)


def _to_win_back(seconds: float, wall: float, speedup: float) -> float | None:
    return pay_back_steps(seconds, wall, wall / speedup) if speedup > 0 else None


def _steps_of_a_pass(profile: Profile) -> float:
    """Optimizer steps in a pass over the longest loader; 0 where no loader tells its length."""
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
        sets=5,
        rounds=15,
        confidence=0.95,
        noise_floor=0.01,
        smallest_detectable=0.02,
    )
    verdict = Kept(comparison=Comparison(baseline=Plan(), candidate=Plan(), speed=speed))
    return Profile(
        facts=ScriptFacts(loaders=(LoaderFacts(dataset="Digits", length=batches),)),
        account=PhaseAccount(wall=0.1, forward=0.1),
        outcomes=(Outcome(lever="compile", verdict=verdict, compile=CompileReport(seconds=seconds, graphs=1)),),
    )


fires = {
    "twenty passes of ten steps": _small_data(20.0, 10),
    "a small gain that a trial measured": _tried(1.05, 40.0, 100),
}
silent = {
    "nothing was measured": Profile(),
    "a long pass": _small_data(20.0, 1000),
    "just below ten passes": _small_data(9.9, 10),
    "compiled in no time": _small_data(4.0, 1),
    "the data's length is not known": _small_data(20.0, None),
    "a large gain that a trial measured": _tried(1.5, 20.0, 100),
    "the gain's best end is soon won back": _tried(1.02, 20.0, 1000),
}
