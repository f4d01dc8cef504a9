"""Let cuDNN time its algorithms and use the fastest.

## What it does
Sets `torch.backends.cudnn.benchmark = True`. For each new shape of a convolution's input cuDNN times its algorithms
once and remembers the fastest; otherwise it chooses by a heuristic.

## When it helps
Convolutional networks on a GPU whose inputs keep one shape, or a few.

## What it costs
A few seconds at the first step of every new shape, so training with ever-changing shapes becomes slower. The chosen
algorithm may need more workspace memory, and two runs may choose different algorithms, which round differently.

## Before
    for images, labels in loader:
        loss = criterion(model(images), labels)

## After
    torch.backends.cudnn.benchmark = True
    for images, labels in loader:
        loss = criterion(model(images), labels)

## What is proved
`rounding`: another algorithm sums in another order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hotlap.levers.support.situations import bound_without, is_nvidia_like, make_setting, models_with, without_model
from hotlap.levers.support.switching import Switch, remembered
from hotlap.records import Proof, ScriptFacts, Setting, Situation, Skipped, SourceChange, TopStatement

if TYPE_CHECKING:
    from hotlap.levers.api import Parameter
    from hotlap.runtime.hooks import Hooks

title = "Let cuDNN time its algorithms and use the fastest"
proof: Proof = "rounding"
addresses = ("cudnn-benchmark-off",)
parameters: dict[str, Parameter] = {}

MOST_SHAPES = 4


def obstacle(situation: Situation) -> Skipped | None:
    """Require convolutions on a GPU, inputs of few shapes, and no request for determinism."""
    facts = situation.facts
    if not is_nvidia_like(situation):
        return Skipped(reason="Only NVIDIA GPUs have cuDNN, and this script does not train on one.")
    if facts.cudnn_benchmark:
        return Skipped(reason="The script already enables cuDNN's benchmark.", already=True)
    if facts.deterministic:
        return Skipped(reason="The script requests deterministic algorithms, which this would disable.")
    if without_model(situation):
        return without_model(situation)
    convolutional = models_with(situation, "convolutions")
    if not convolutional:
        return Skipped(reason="The model has no convolution layer of torch.")
    shapes = max(len(model.input_shapes) for model in convolutional)
    if shapes > MOST_SHAPES:
        return Skipped(reason=f"The inputs had {shapes} shapes, and cuDNN would time its algorithms for each of them.")
    return None


def bound(situation: Situation) -> float | None:
    """Only forward and backward can become faster."""
    return bound_without(situation, "forward", "backward")


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """There are no parameters."""
    return (make_setting("cudnn-benchmark"),)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """The switch, below the imports."""
    name = "torch.backends.cudnn.benchmark"
    return (TopStatement(code=f"{name} = True", needs=(name,)),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Set it immediately; a script that sets it later takes precedence."""
    hooks.torch.backends.cudnn.benchmark = True


def switch(hooks: Hooks, setting: Setting) -> Switch:
    """cuDNN keeps its results for the next time that it is enabled."""
    cudnn = hooks.torch.backends.cudnn
    return remembered(lambda: cudnn.benchmark, lambda value: setattr(cudnn, "benchmark", value), True)
