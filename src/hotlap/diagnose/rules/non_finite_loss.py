"""The loss, or the gradient that updates the weights, is not finite.

## What it is
In some steps the loss was NaN or infinite. Or the loss was finite, but the gradients with which the optimizer updated
the weights were not, and there was no gradient scaler to skip the step.

## Why it is slow
It is not slow, but wrong. One NaN in a weight makes every later output NaN, so all later steps are wasted. The speed of
such a run means little: levers cannot be verified against a loss that is NaN.

## How to see it
`hotlap profile train.py` counts the steps and names the first. `torch.autograd.set_detect_anomaly(True)` in a short run
names the operation whose gradient is NaN first.

## What to do
Check the first such step's batch for empty or corrupt samples. Lower the learning rate or add a warm-up; keep
logarithms, roots and divisions away from zero; compute softmax and loss together (`cross_entropy` on logits); in
float16 use a gradient scaler, or use bfloat16.

## When it is fine
A single infinite loss that the script detects and skips.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hotlap.diagnose.operators import site_with
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import exactly
from hotlap.diagnose.wording import count
from hotlap.evidence import Numbers, RunEvidence
from hotlap.records import Finding, OptimizerFacts, ScriptFacts, Steps

title = "The loss or the gradients are not finite"
group = "numbers"

_ROWS_SHOWN = 5


def check(profile: Profile) -> Iterator[Finding]:
    """Check the loss of the unmodified run, and the gradients if nothing protects the weights."""
    steps = len(profile.steps.wall_seconds)
    lost = sorted({it for it in profile.steps.not_finite if 0 <= it < steps})
    if lost:
        yield _finding(profile, "loss was", lost, steps)
        return
    norms = len(profile.evidence.numbers.gradient_norms)
    broken = sorted({it for it in profile.evidence.numbers.gradient_not_finite if 0 <= it < norms})
    if broken and not _is_guarded(profile.facts):
        yield _finding(profile, "gradients were", broken, norms)


def _finding(profile: Profile, what: str, rows: Sequence[int], steps: int) -> Finding:
    shown = ", ".join(str(it + 1) for it in rows[:_ROWS_SHOWN])
    more = ", and others" if len(rows) > _ROWS_SHOWN else ""
    return Finding(
        rule="non-finite-loss",
        kind="wrong-numbers",
        share=exactly(0.0),
        title=f"The {what} not finite in {len(rows)} of {count(steps, 'step')}, first in step {rows[0] + 1}.",
        evidence=(f"These steps: {shown}{more}.", _afterwards(rows, steps), *_precision(profile.facts)),
        remedy=(
            "Check the batch of the first such step, and run it under `torch.autograd.set_detect_anomaly(True)`; "
            "lower the learning rate, and keep logarithms, roots and divisions away from zero."
        ),
        site=site_with(profile, "backward", "step", "model"),
    )


def _afterwards(rows: Sequence[int], steps: int) -> str:
    after = steps - 1 - rows[0]
    finite = after - (len(rows) - 1)
    if not after:
        return "It was the last observed step."
    if not finite:
        return f"Nor was it in any of the {count(after, 'step')} after it, so the weights are probably lost too."
    return f"Of the {count(after, 'step')} after it {finite} were finite again."


def _precision(facts: ScriptFacts) -> Iterator[str]:
    if facts.autocast_dtype == "float16" and not facts.grad_scaler:
        yield "The script computes in float16, which ends at 65504, without a gradient scaler."


def _is_guarded(facts: ScriptFacts) -> bool:
    """Whether such steps are skipped: by a scaler, or possibly by a third-party optimizer."""
    return facts.grad_scaler or not facts.optimizers or any(not it.from_torch for it in facts.optimizers)


def _run(*rows: int, steps: int = 100, **facts: str | bool) -> Profile:
    loss = tuple(None if it in rows else 1.0 for it in range(steps))
    return Profile(
        facts=ScriptFacts(autocast_dtype=str(facts.get("autocast_dtype", ""))),
        steps=Steps(wall_seconds=(0.1,) * steps, loss=loss, not_finite=rows),
    )


def _gradients(*rows: int, grad_scaler: bool = False, from_torch: bool = True) -> Profile:
    norms = tuple(None if it in rows else 1.0 for it in range(100))
    optimizer = OptimizerFacts(kind="Adam", parameters=10, learning_rate=0.1, from_torch=from_torch)
    return Profile(
        facts=ScriptFacts(optimizers=(optimizer,), grad_scaler=grad_scaler),
        evidence=RunEvidence(observed_steps=100, numbers=Numbers(gradient_norms=norms, gradient_not_finite=rows)),
    )


fires = {
    "it never comes back": _run(*range(40, 100)),
    "one step": _run(7),
    "the last step": _run(99, autocast_dtype="float16"),
    "gradients that change the weights": _gradients(50, 51),
}
silent = {
    "nothing was measured": Profile(),
    "every loss is finite": _run(),
    "the loss could not be read": Profile(steps=Steps(wall_seconds=(0.1,) * 3, loss=(None, None, None))),
    "a gradient scaler leaves such steps out": _gradients(50, grad_scaler=True),
    "another library's optimizer may leave them out": _gradients(50, from_torch=False),
}
