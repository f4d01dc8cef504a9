"""The gradient scaler skips steps long after it has found its scale.

## What it is
In float16 training a scaler multiplies the loss so that small gradients do not vanish. If gradients overflow it skips
the step and halves its scale. That is how it finds its scale in the first steps; here it continues, or the scale is so
low that it has no effect.

## Why it is slow
A skipped step has computed forward and backward for nothing. A scale of one or less means that gradients overflow even
without scaling, and small ones vanish as well.

## How to see it
`scaler.get_scale()` in every step: it halves when a step is skipped.

## What to do
Use bfloat16 where the hardware has it: it has float32's range and needs no scaler. Otherwise find what overflows:
compute losses, exponentials, and sums over many elements in float32; raise `growth_interval`, lower the learning rate.

## When it is fine
One step in several hundred, each time the scaler tries a larger scale (every `growth_interval` steps, 2000 by default).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

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
CALM_STEPS = 10
"""The scale counts as found after this many steps without a skip."""

LONGEST_SEARCH = 30
"""Steps after which a scaler has found its scale: by then it has been halved to a billionth."""

FIRST_HALVINGS = 16
"""From torch's first scale, 65536, down to 1."""

LOWEST_USEFUL_SCALE = 1.0
CLEARLY_LOWER = 8.0
"""A scale that came down this much was not chosen by the script."""


def check(profile: Profile) -> Iterator[Finding]:
    """Use the profiled run's scaler if there is one, else the steps that the unmodified run skipped."""
    numbers = profile.evidence.numbers
    scales = numbers.scaler_scales
    if scales and scales[-1] <= LOWEST_USEFUL_SCALE and max(scales) >= CLEARLY_LOWER * scales[-1]:
        yield _exhausted(profile, scales)
        return
    skips, steps = _skips(numbers) if scales else _skips_by_count(profile)
    if skips >= FEWEST_SKIPS and is_material(exactly(skips / steps)):
        yield _skipping(profile, skips, steps)


def _skips(numbers: Numbers) -> tuple[int, int]:
    """Return the steps skipped since the scale was found, and the steps tried since."""
    left_out = _left_out(numbers)
    found = 0
    for row, skips in enumerate((*left_out, 1)):
        if skips and (row - found > CALM_STEPS or row > LONGEST_SEARCH):
            break
        found = row if skips else found
    later = left_out[found + 1 :]
    return sum(later), sum(max(1, attempts) for attempts in _attempts(numbers)[found + 1 :])


def _left_out(numbers: Numbers) -> tuple[int, ...]:
    """Return how many steps were skipped in each row.

    Those before an executed step are attempts of its row. A fused optimizer is also called for a skipped step: then
    that has its own row, and the scale of the next row is lower.
    """
    attempts, scales = _attempts(numbers), numbers.scaler_scales
    lowered = (False, *(after < before for before, after in pairwise(scales)))
    return tuple(max(tried - 1, int(lower)) for tried, lower in zip(attempts, lowered, strict=True))


def _attempts(numbers: Numbers) -> tuple[int, ...]:
    known = numbers.scaler_attempts
    return known if len(known) == len(numbers.scaler_scales) else (1,) * len(numbers.scaler_scales)


def _skips_by_count(profile: Profile) -> tuple[int, int]:
    """Do the same with a count alone, without the skips that the first scale can explain."""
    steps = len(profile.steps.wall_seconds)
    return profile.scaler_skipped_steps - FIRST_HALVINGS, max(1, steps)


def _skipping(profile: Profile, skips: int, steps: int) -> Finding:
    share, scales = skips / steps, profile.evidence.numbers.scaler_scales
    return Finding(
        rule="scaler-skips",
        share=exactly(share),
        title=f"The gradient scaler skips {percent(share)} of the steps long after it has found its scale.",
        evidence=(
            f"{skips} of {count(steps, 'step')} had gradients that were not finite, and were skipped.",
            *_range(scales),
        ),
        remedy=_remedy(profile),
        site=site_with(profile, "step", "backward"),
    )


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
