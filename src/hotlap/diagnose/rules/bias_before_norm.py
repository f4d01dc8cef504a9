"""Layers add a bias that the following batch-norm subtracts again.

## What it is
A convolution or linear layer has a bias, and its output goes directly into a batch-norm. The batch-norm subtracts the
mean of each channel, and with it whatever constant the bias added.

## Why it is slow
The bias is added, its gradient (zero except for rounding) is summed over the whole output, and the optimizer updates
it, all without effect.

## How to see it
`hotlap profile train.py` counts such layers; they are those whose output went unchanged into a batch-norm.

## What to do
Give these layers `bias=False`; the batch-norm has a shift of its own.

## When it is fine
If older checkpoints must still load strictly, or if the batch-norm is in evaluation mode while training (frozen
statistics), since it then does not subtract this batch's mean. The model can represent the same functions without the
bias, but its initial random numbers differ.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from hotlap.diagnose.examples import CPU, run_on
from hotlap.diagnose.operators import site_with
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import exactly
from hotlap.diagnose.wording import count, name
from hotlap.evidence import LayerUse, RunEvidence
from hotlap.records import Finding

title = "Layers add a bias that a batch-norm subtracts again"
group = "compute"

_SHOWN = 3


def check(profile: Profile) -> Iterator[Finding]:
    """The cost cannot be measured separately: the bias is added inside the layers' own kernels."""
    useless = [it for it in profile.evidence.layers if it.bias and it.normalised_after and it.weight_shape]
    if not useless:
        return
    layers = sum(it.count for it in useless)
    numbers = sum(_outputs(it) * it.count for it in useless)
    yield Finding(
        rule="bias-before-norm",
        kind="hint",
        share=exactly(0.0),
        title=f"{count(layers, 'layer adds', 'layers add')} a bias that the following batch-norm subtracts again.",
        evidence=(
            f"Together they have {count(numbers, 'parameter')} without effect on the output.",
            *(_in_words(it) for it in sorted(useless, key=lambda it: -it.count)[:_SHOWN]),
        ),
        remedy="Pass `bias=False` to these layers. Older checkpoints then contain entries that the model no "
        "longer has.",
        site=site_with(profile, "model"),
    )


def _outputs(layer: LayerUse) -> int:
    """Return the number of biases, one per output channel; transposed convolutions store inputs first."""
    transposed = "Transpose" in layer.kind and len(layer.weight_shape) > 1
    return layer.weight_shape[1 if transposed else 0]


def _in_words(layer: LayerUse) -> str:
    alike = f", and {layer.count - 1} like it" if layer.count > 1 else ""
    return f"{name(layer.kind)} {name(layer.name)} with weights of {'x'.join(map(str, layer.weight_shape))}{alike}."


def _with_layers(*layers: LayerUse) -> Profile:
    return msgspec.structs.replace(run_on(CPU), evidence=RunEvidence(observed_steps=10, layers=layers))


_CONVOLUTION = LayerUse(kind="Conv2d", name="stem.conv", weight_shape=(64, 3, 7, 7), bias=True, normalised_after=True)

fires = {
    "one convolution": _with_layers(_CONVOLUTION),
    "many alike, and a linear layer": _with_layers(
        msgspec.structs.replace(_CONVOLUTION, name="blocks.0.conv", weight_shape=(128, 64, 3, 3), count=12),
        LayerUse(kind="Linear", name="head.0", weight_shape=(256, 512), bias=True, normalised_after=True),
    ),
}
silent = {
    "nothing was measured": Profile(),
    "no bias": _with_layers(msgspec.structs.replace(_CONVOLUTION, bias=False)),
    "no batch-norm takes its output": _with_layers(msgspec.structs.replace(_CONVOLUTION, normalised_after=False)),
}
