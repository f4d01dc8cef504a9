"""Forward passes of an evaluation in a 16-bit format.

## What it does
Runs the forward passes of an evaluation under `torch.autocast`: those of a model in evaluation mode (`model.eval()`)
without gradients. Floating-point outputs are converted to float32, so that losses and metrics are computed as before.
Training steps, and an evaluation that the script itself puts under autocast, are not changed.

## When it helps
When evaluations take a visible part of the run, matrix products or convolutions dominate them, and the hardware
multiplies 16-bit numbers natively. `hotlap tune --goal evaluation` tries it.

## What it costs
Outputs of the model have two to three decimal digits, so that metrics change a little. A model that also produces
training data in evaluation mode (self-training, reinforcement learning) produces other data.

## Before
    with torch.no_grad():
        output = model(inputs)

## After
    with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
        output = model(inputs)
    output = output.float()

## What is proved
`rounding`: training losses follow the same trajectory, and the held-out losses of the same evaluations differ by at
most 0.1 %. If the script computes no loss in its evaluation, this cannot be shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hotlap.levers.api import Parameter
from hotlap.levers.support.situations import device_kind, make_setting, native_dtypes, without_model
from hotlap.levers.support.structures import in_format
from hotlap.records import (
    EVALUATION_SECONDS,
    NoSourceForm,
    Proof,
    ScriptFacts,
    Setting,
    Situation,
    Skipped,
    SourceChange,
)

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Fetch, Hooks

title = "Forward passes of an evaluation in a 16-bit format"
proof: Proof = "rounding"
improves = (EVALUATION_SECONDS,)
addresses = ("evaluation-cost",)
parameters = {"dtype": Parameter(str, choices=("bfloat16", "float16"))}
changes_evaluation = True


def obstacle(situation: Situation) -> Skipped | None:
    """Require an evaluation of a float32 model on a device that multiplies 16-bit numbers."""
    evaluation = situation.facts.evaluation
    if evaluation is None:
        return Skipped(reason="No evaluation was observed between training steps.")
    if evaluation.autocast_dtype:
        return Skipped(
            reason=f"The script already evaluates under autocast ({evaluation.autocast_dtype}).", already=True
        )
    if evaluation.with_gradients:
        return Skipped(reason="The evaluation records gradients, and is recognised only after it.")
    if without_model(situation):
        return without_model(situation)
    if "float32" not in {it.dtype for it in situation.facts.models}:
        return Skipped(reason="The model's weights are not in float32.")
    if device_kind(situation) not in ("cpu", "cuda"):
        return Skipped(reason=f"Mixed precision is known to help on CPUs and GPUs, not on {situation.facts.device}.")
    if not candidates(situation):
        return Skipped(reason="No 16-bit format is known to multiply faster than float32 on this device.")
    return None


def bound(situation: Situation) -> float | None:
    """Evaluation is no part of a step, so no step becomes faster."""
    return 1.0 if situation.account.wall > 0 else None


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """bfloat16 if the hardware has it, else float16 on GPUs: without a backward pass nothing has to be scaled."""
    native = native_dtypes(situation)
    if "bfloat16" in native:
        return (make_setting("evaluation-precision", dtype="bfloat16"),)
    if device_kind(situation) == "cuda" and "float16" in native:
        return (make_setting("evaluation-precision", dtype="float16"),)
    return ()


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """Evaluations are not edited yet."""
    device, dtype = facts.device.partition(":")[0], dict(setting.values)["dtype"]
    reason = (
        f'Put the evaluation under `torch.autocast("{device}", dtype=torch.{dtype})`, and its outputs into float32.'
    )
    return (NoSourceForm(reason=reason),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Open a region around each evaluation forward of a root in evaluation mode."""
    torch = hooks.torch
    dtype = getattr(torch, str(dict(setting.values)["dtype"]))

    def around_evaluation(root: Any, forward: Fetch) -> Any:
        kind = hooks.device_kind(root)
        if root.training or torch.is_autocast_enabled(kind):
            return forward()
        with torch.autocast(kind, dtype=dtype):
            output = forward()
        return in_format(output, lambda it: it.float() if it.dtype == dtype else it)

    hooks.around_evaluation.append(around_evaluation)
