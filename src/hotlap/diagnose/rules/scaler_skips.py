"""The gradient scaler skips steps long after it has found its scale.

## What it is
In float16 training a scaler multiplies the loss so that small gradients do not vanish. If gradients overflow it skips
the step and halves its scale. That is how it finds its scale in the first steps; here it continues: the scale bounces
(it rises and overflows again), it sinks without rising, or it is so low that it has no effect.

## Why it is slow
A skipped step has computed forward and backward for nothing. A scale of one or less means that gradients overflow even
without scaling, and small ones vanish as well.

## How to see it
`scaler.get_scale()` in every step: it halves when a step is skipped. The section *Loss scale* of a report has the
scale, the skipped steps and the overflow rate, and its page draws the scale step by step.

## What to do
Use bfloat16 where the hardware has it: it has float32's range and needs no scaler. Otherwise find what overflows:
compute losses, exponentials, and sums over many elements in float32; raise `growth_interval`, lower the learning rate.

## When it is fine
One step in several hundred, each time the scaler tries a larger scale (every `growth_interval` steps, 2000 by default).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hotlap.diagnose.loss_scale import ScaleHistory, scale_history
from hotlap.diagnose.operators import site_with
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import exactly, is_material
from hotlap.diagnose.wording import count, percent
from hotlap.evidence import Numbers, RunEvidence
from hotlap.levers.support.situations import native_dtypes
from hotlap.records import Finding, ScriptFacts, Steps

title = "The gradient scaler keeps skipping steps"
group = "numbers"

FEWEST_SKIPS = 3
FIRST_HALVINGS = 16
"""From torch's first scale, 65536, down to 1."""

LOWEST_USEFUL_SCALE = 1.0
CLEARLY_LOWER = 8.0
"""A scale that came down this much was not chosen by the script."""

SUNK = 16.0
"""A scale that came down this much after it was found, without rising, goes on sinking. A healthy one is halved about
once in every `growth_interval` steps, and doubled as often."""


def check(profile: Profile) -> Iterator[Finding]:
    """Use the profiled run's scaler if there is one, else the steps that the unmodified run skipped."""
    history = scale_history(profile.evidence.numbers)
    if history is None:
        skips, steps = _skips_by_count(profile)
    elif history.scales[-1] <= LOWEST_USEFUL_SCALE and max(history.scales) >= CLEARLY_LOWER * history.scales[-1]:
        yield _exhausted(profile, history.scales)
        return
    else:
        skips, steps = history.skipped_since, history.tried
    if skips >= FEWEST_SKIPS and is_material(exactly(skips / steps)):
        yield _skipping(profile, history, skips, steps)
    elif history is not None and history.sank_by >= SUNK:
        yield _sinking(profile, history)


def _skips_by_count(profile: Profile) -> tuple[int, int]:
    """Do the same with a count alone, without the skips that the first scale can explain."""
    steps = len(profile.steps.wall_seconds)
    return profile.scaler_skipped_steps - FIRST_HALVINGS, max(1, steps)


def _skipping(profile: Profile, history: ScaleHistory | None, skips: int, steps: int) -> Finding:
    share = skips / steps
    return Finding(
        rule="scaler-skips",
        share=exactly(share),
        title=f"The gradient scaler skips {percent(share)} of the steps long after it has found its scale.",
        evidence=(
            f"{skips} of {count(steps, 'step')} had gradients that were not finite, and were skipped.",
            *(() if history is None else (*_range(history.scales), *_course(history))),
        ),
        remedy=_remedy(profile),
        site=site_with(profile, "step", "backward"),
    )


def _sinking(profile: Profile, history: ScaleHistory) -> Finding:
    """Too few skips to cost much time, but a scale that only falls loses the small gradients in the end."""
    first, last = history.scales[history.found], history.scales[-1]
    return Finding(
        rule="scaler-skips",
        kind="wrong-numbers",
        share=exactly(0.0),
        title=f"The gradient scaler's scale sank from {first:g} to {last:g} and did not rise.",
        evidence=(
            f"{history.skipped_since} of {count(history.tried, 'step')} had gradients that were not finite, and were "
            "skipped.",
            "At a scale that sinks on, small gradients vanish in float16.",
        ),
        remedy=_remedy(profile),
        site=site_with(profile, "step", "backward"),
    )


def _course(history: ScaleHistory) -> Iterator[str]:
    """Whether the scale bounces or sinks."""
    falls = count(history.skipped_since, "time")
    if history.rises:
        yield f"The scale bounces: since it was found it rose {count(history.rises, 'time')} and fell {falls}."
    else:
        yield f"The scale sinks: since it was found it fell {falls} and never rose."


def _range(scales: Sequence[float]) -> Iterator[str]:
    if scales and min(scales) == max(scales):
        yield f"The steps that were taken had a scale of {scales[0]:g}, and those that were skipped a larger one."
    elif scales:
        yield f"The scales of the steps that were taken are between {min(scales):g} and {max(scales):g}."


def _exhausted(profile: Profile, scales: Sequence[float]) -> Finding:
    return Finding(
        rule="scaler-skips",
        kind="wrong-numbers",
        share=exactly(0.0),
        title=f"The gradient scaler reduced its scale to {scales[-1]:g}, at which it has no effect.",
        evidence=(
            f"Within {count(len(scales), 'step')} it came down from {max(scales):g}, skipping a step each time.",
            "The gradients overflow even without scaling.",
        ),
        remedy=_remedy(profile),
        site=site_with(profile, "step", "backward"),
    )


def _remedy(profile: Profile) -> str:
    find = "find what overflows: compute losses, exponentials and long sums in float32"
    if "bfloat16" in native_dtypes(profile.situation):
        return f"Use bfloat16, which this hardware has and which needs no scaler; or {find}."
    return f"{find[0].upper()}{find[1:]}. Then raise the scaler's `growth_interval`, or lower the learning rate."


def _scales(*skipped: int, steps: int = 200, first: float = 65536.0, grows: bool = False) -> Profile:
    """A run that left a step out before the one of each of these rows. The scale halves with it, unless it had just
    grown."""
    scales = tuple(first if grows else first / 2 ** sum(it <= row for it in skipped) for row in range(steps))
    attempts = tuple(2 if row in skipped else 1 for row in range(steps))
    return Profile(
        facts=ScriptFacts(autocast_dtype="float16", grad_scaler=True),
        evidence=RunEvidence(observed_steps=steps, numbers=Numbers(scaler_scales=scales, scaler_attempts=attempts)),
    )


def _skipped(skipped: int, steps: int = 200) -> Profile:
    return Profile(
        facts=ScriptFacts(grad_scaler=True), steps=Steps(wall_seconds=(0.1,) * steps), scaler_skipped_steps=skipped
    )


fires = {
    "a scale that sinks, with too few skips to cost much": _scales(1, 100, 200, 300, 400, steps=500),
    "a scale that grows too often": _scales(*range(3, 200, 4), grows=True),
    "skips that go on": _scales(1, 2, 3, 50, 70, 90, 130, 170, 190),
    "a scale that comes down to one": _scales(*range(1, 18)),
    "more than the first scale can explain": _skipped(40),
}
silent = {
    "nothing was measured": Profile(),
    "it found its scale": _scales(*range(1, 12)),
    "two skips later on": _scales(1, 2, 3, 80, 150),
    "a skip in every hundred steps": _scales(100, 200, 300, 400, steps=500, grows=True),
    "no more than the first scale can explain": _skipped(16),
    "a small scale that the script chose": _scales(first=1.0),
    "no scaler": Profile(steps=Steps(wall_seconds=(0.1,) * 200)),
}
