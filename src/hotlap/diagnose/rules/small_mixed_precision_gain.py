"""Mixed precision gains little, so arithmetic is not the bottleneck of the step.

## What it is
The lever mixed-precision ran in paired trials, and even the upper end of its interval is below a gain of 20 %.

## Why it is slow
On suitable hardware, 16-bit numbers make matrix products and convolutions at least twice as fast, and little else. A
step that gains little spends its time elsewhere: waiting for data, launching many small operators, in element-wise work
that is limited by memory, in the optimizer, or in Python.

## How to see it
`hotlap lab train.py` runs the script with and without mixed precision, in turns. `hotlap profile train.py` splits the
step into phases; the largest one is where to look. The 20 % are a rule of thumb.

## What to do
Speed up the largest phase first, and try mixed precision again afterwards: its gain grows as the rest shrinks. If
forward and backward are the largest, fuse small operators (torch.compile), use a larger batch, or pad matrices to sizes
that suit the hardware.

## When it is fine
On hardware without fast 16-bit arithmetic, and for models so small that a step is mostly overhead.
"""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import exactly
from hotlap.diagnose.wording import levers_for, name, percent
from hotlap.records import (
    PHASES,
    STEP_PHASES,
    Comparison,
    Estimate,
    Finding,
    NoGain,
    Outcome,
    PhaseAccount,
    Plan,
    Setting,
    Skipped,
    SpeedComparison,
    SpeedVerdict,
    StepPhase,
)
from hotlap.traces.records import OperatorRow

title = "Mixed precision gives little, so the bottleneck is elsewhere"
group = "compute"

RULE_OF_THUMB = 1.2
"""A mixed-precision gain below this is taken to mean that the bottleneck is elsewhere."""

_LEVER = "mixed-precision"
_OPERATORS_SHOWN = 3
_COMPUTE = ("forward", "backward")


def check(profile: Profile) -> Iterator[Finding]:
    """Yield a finding if a trial's whole interval is below the rule of thumb."""
    measured = _measured(profile.outcomes)
    if measured is None or measured.speedup.high >= RULE_OF_THUMB:
        return
    gain = measured.speedup
    interval = f"{gain.value:.2f}x ({100 * measured.confidence:.3g} % interval {gain.low:.2f} to {gain.high:.2f})"
    yield Finding(
        rule="small-mixed-precision-gain",
        kind="hint",
        share=exactly(0.0),
        title=f"Mixed precision gives only {interval}, so the bottleneck is elsewhere.",
        evidence=tuple(_evidence(profile)),
        remedy=_remedy(profile.account),
        levers=levers_for("small-mixed-precision-gain"),
    )


def bottleneck(account: PhaseAccount) -> str:
    """Name the phase that takes the largest share of a step."""
    if account.wall <= 0:
        return "the step's time could not be split into phases"
    largest = _largest_phase(account)
    share = account.seconds_in(largest) / account.wall
    return f"{PHASES[largest].work} takes the largest share of a step, {percent(share)}"


def _measured(outcomes: tuple[Outcome, ...]) -> SpeedComparison | None:
    """Return a trial's gain, whatever its outcome; None if the baseline was unstable."""
    verdict = next((it.verdict for it in outcomes if it.lever == _LEVER), None)
    comparison = getattr(verdict, "comparison", None)
    if not isinstance(comparison, Comparison) or not comparison.speed.baseline_agrees:
        return None
    return comparison.speed


def _evidence(profile: Profile) -> Iterator[str]:
    yield f"As a rule of thumb, a gain under {percent(RULE_OF_THUMB - 1)} means that the bottleneck is elsewhere."
    if profile.account.wall > 0:
        yield f"In the unmodified script, {bottleneck(profile.account)}."
    if profile.account.wall > 0 and _largest_phase(profile.account) in _COMPUTE:
        yield from _costliest_operators(profile.operators, on_device=profile.on_accelerator)


def _costliest_operators(operators: tuple[OperatorRow, ...], *, on_device: bool) -> Iterator[str]:
    """The operators with most time of their own, as a share of all operators' time."""
    seconds: dict[str, int] = {}
    for it in operators:
        own = it.device_nanoseconds if on_device else it.host_nanoseconds
        seconds[it.name] = seconds.get(it.name, 0) + own
    whole = sum(seconds.values())
    if whole <= 0:
        return
    costliest = sorted(seconds, key=lambda it: -seconds[it])[:_OPERATORS_SHOWN]
    shown = ", ".join(f"{name(it)} {percent(seconds[it] / whole)}" for it in costliest)
    yield f"The costliest operators by own time in the profiled steps: {shown}."


def _remedy(account: PhaseAccount) -> str:
    if account.wall <= 0:
        return "Run `hotlap profile` to see where the time goes."
    largest = _largest_phase(account)
    if largest in _COMPUTE:
        return (
            "Check the operators that are not matrix products: fuse them (torch.compile), or give each more work "
            "with a larger batch."
        )
    return f"Speed up {PHASES[largest].work} first; the gain of mixed precision grows as the rest of the step shrinks."


def _largest_phase(account: PhaseAccount) -> StepPhase:
    return max(STEP_PHASES, key=account.seconds_in)


def _tried(value: float, half: float, *, agrees: bool = True) -> tuple[Outcome, ...]:
    verdict: SpeedVerdict = "faster" if value - half > 1 else "inconclusive"
    speed = SpeedComparison(
        speedup=Estimate(value=value, low=value - half, high=value + half, unit="x"),
        verdict=verdict,
        replicates=3,
        rounds=15,
        confidence=0.95,
        noise_floor=0.01,
        smallest_detectable=0.02,
        baseline_agrees=agrees,
    )
    setting = Setting(lever=_LEVER, values=(("dtype", "bfloat16"),))
    comparison = Comparison(baseline=Plan(), candidate=Plan(settings=(setting,)), speed=speed)
    return (Outcome(lever=_LEVER, setting=setting, verdict=NoGain(comparison=comparison)),)


_WAITS = PhaseAccount(
    wall=0.1,
    phases=(
        ("data_wait", 0.06),
        ("forward", 0.02),
        ("backward", 0.02),
    ),
)
_COMPUTES = PhaseAccount(
    wall=0.1,
    phases=(
        ("forward", 0.03),
        ("backward", 0.07),
    ),
)

fires = {
    "a step that waits for data": Profile(account=_WAITS, outcomes=_tried(1.03, 0.02)),
    "many small operators": Profile(
        account=_COMPUTES,
        outcomes=_tried(1.08, 0.05),
        operators=(OperatorRow(name="aten::mul", host_nanoseconds=700), OperatorRow(name="aten::mm")),
    ),
}
silent = {
    "nothing measured": Profile(),
    "nothing was tried": Profile(account=_WAITS),
    "it could not be tried": Profile(
        account=_WAITS, outcomes=(Outcome(lever=_LEVER, verdict=Skipped(reason="no hardware")),)
    ),
    "the interval reaches beyond 20 %": Profile(account=_COMPUTES, outcomes=_tried(1.15, 0.06)),
    "the script differed from itself": Profile(account=_WAITS, outcomes=_tried(1.03, 0.02, agrees=False)),
    "a large gain": Profile(account=_COMPUTES, outcomes=_tried(1.6, 0.1)),
}
