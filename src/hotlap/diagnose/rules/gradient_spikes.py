"""In some steps the gradients are many times as large as in neighbouring steps.

## What it is
Several times in the observed steps, the norm of all gradients jumps to many times its usual value, and the script does
not clip it.

## Why it is slow
Such a step moves the weights far in one direction and undoes the progress of earlier steps; with Adam it distorts the
running means for many steps. Training takes more steps than it needs, and may end in NaN.

## How to see it
Plot the norm over the steps. A step counts as a spike if the logarithm of its norm is more than six robust standard
deviations (median absolute deviation) above the median of its neighbours, and the norm is at least five times that
median.

## What to do
Clip: `torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)` after `backward` (and after `scaler.unscale_`),
with a limit somewhat above the usual norm. Inspect the batches of these steps, and the learning rate's warm-up.

## When it is fine
With rewards or rare classes whose gradients are large by nature; then clipping changes what is learned.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median

from hotlap.diagnose.operators import site_with
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import exactly
from hotlap.diagnose.wording import count
from hotlap.evidence import Numbers, RunEvidence
from hotlap.records import Finding, OptimizerFacts, ScriptFacts

title = "The gradients jump in single steps"
group = "numbers"

FEWEST_STEPS = 40
FIRST_STEPS = 10
"""The first steps are ignored: gradients decrease from those of random weights."""

FEWEST_SPIKES = 3
FEWEST_LARGE_SPIKES = 2
LARGE_RATIO = 20.0
"""Two spikes of at least this factor are enough."""

LARGEST_PART = 0.1
"""If more than this share of the steps are spikes, they are normal for this training."""

ROBUST_DEVIATIONS = 6.0
LEAST_RATIO = 5.0

_NEIGHBOURS = 10
_TO_STANDARD_DEVIATION = 1.4826  # of the median absolute deviation of normal numbers
_ROWS_SHOWN = 5


def check(profile: Profile) -> Iterator[Finding]:
    """Only with one optimizer: several take turns, with gradients of different size."""
    facts, numbers = profile.facts, profile.evidence.numbers
    if facts.clips_gradients or len(facts.optimizers) != 1:
        return
    norms = [(row, it) for row, it in enumerate(numbers.gradient_norms) if it and row >= FIRST_STEPS]
    if len(norms) < FEWEST_STEPS:
        return
    spikes = _spikes([math.log(it) for _, it in norms])
    large = sum(ratio >= LARGE_RATIO for _, ratio in spikes)
    several = len(spikes) >= FEWEST_SPIKES or large >= FEWEST_LARGE_SPIKES
    if not several or len(spikes) > LARGEST_PART * len(norms):
        return
    usual = median(it for _, it in norms)
    index, ratio = max(spikes, key=lambda it: it[1])
    shown = ", ".join(str(norms[it][0] + 1) for it, _ in spikes[:_ROWS_SHOWN])
    yield Finding(
        rule="gradient-spikes",
        kind="risk",
        share=exactly(0.0),
        title=f"The gradients jumped in {len(spikes)} of {count(len(norms), 'step')}, up to {ratio:,.0f}-fold.",
        evidence=(
            f"Steps {shown}{' and others' if len(spikes) > _ROWS_SHOWN else ''}; the largest norm was "
            f"{norms[index][1]:.3g}, in step {norms[index][0] + 1}.",
            f"Half of all norms are below {usual:.3g}.",
        ),
        remedy=(
            f"Clip the gradients' norm, with a limit between the usual norm ({usual:.2g}) and the spikes, and inspect "
            "the batches of these steps."
        ),
        site=site_with(profile, "backward", "step", "model"),
    )


def _spikes(logarithms: Sequence[float]) -> list[tuple[int, float]]:
    """Yield the steps with outlying norms, and the ratios to their neighbours' norms."""
    above = [it - _around(logarithms, index) for index, it in enumerate(logarithms)]
    deviation = _TO_STANDARD_DEVIATION * median(abs(it) for it in above)
    limit = max(ROBUST_DEVIATIONS * deviation, math.log(LEAST_RATIO))
    return [(index, math.exp(it)) for index, it in enumerate(above) if it > limit]


def _around(logarithms: Sequence[float], index: int) -> float:
    """Return the median of up to ten steps on either side: a slow rise or fall is no spike."""
    return median(logarithms[max(0, index - _NEIGHBOURS) : index + _NEIGHBOURS + 1])


def _norms(
    spikes: dict[int, float], *, steps: int = 120, spread: float = 0.2, optimizers: int = 1, **facts: bool
) -> Profile:
    """Norms that fall slowly and waver, with spikes at some rows."""
    usual = [2.0 * math.exp(-it / 200 + spread * math.sin(2.4 * it)) for it in range(steps)]
    optimizer = OptimizerFacts(kind="Adam", parameters=10, learning_rate=1e-3)
    return Profile(
        facts=ScriptFacts(optimizers=(optimizer,) * optimizers, clips_gradients=facts.get("clips_gradients", False)),
        evidence=RunEvidence(
            observed_steps=steps,
            numbers=Numbers(gradient_norms=tuple(it * spikes.get(row, 1.0) for row, it in enumerate(usual))),
        ),
    )


_SPIKES = {40: 30.0, 61: 100.0, 90: 25.0, 111: 40.0}

fires = {
    "four spikes": _norms(_SPIKES),
    "two large spikes": _norms({40: 30.0, 61: 100.0}),
    "three spikes on hardly wavering norms": _norms({30: 8.0, 60: 8.0, 90: 8.0}, spread=0.01),
}
silent = {
    "nothing was measured": Profile(),
    "norms that fall and waver": _norms({}),
    "one large spike": _norms({61: 100.0}),
    "two spikes": _norms({40: 10.0, 61: 10.0}),
    "spikes in the first steps": _norms({1: 30.0, 3: 50.0, 5: 100.0, 8: 30.0}),
    "norms that vary a lot": _norms(_SPIKES, spread=2.0),
    "less than fivefold": _norms({30: 4.0, 60: 4.0, 90: 4.0}, spread=0.01),
    "the script clips": _norms(_SPIKES, clips_gradients=True),
    "two optimizers in turns": _norms(_SPIKES, optimizers=2),
    "few steps": _norms({20: 30.0, 30: 30.0, 40: 30.0}, steps=45),
    "every sixth step": _norms(dict.fromkeys(range(0, 120, 6), 30.0)),
}
