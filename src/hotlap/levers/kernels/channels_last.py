"""Images with their channels last in memory.

## What it does
Converts the model's four-dimensional weights with `model.to(memory_format=torch.channels_last)` when the model is
found, and its image inputs before each training forward. Shapes and indices do not change; only the memory format does,
to the one that convolution kernels on tensor cores and in oneDNN use without repacking.

## When it helps
Convolutional networks on images, especially with mixed precision.

## What it costs
Converting each input batch, unless it is already converted. Layers without a kernel for this format convert back and
forth, which can cancel the gain. A model that calls `.view` on a convolution's output fails, and must use `.reshape` or
`.flatten`.

## Before
    model = ResNet().cuda()
    output = model(images)

## After
    model = ResNet().cuda().to(memory_format=torch.channels_last)
    output = model(images.to(memory_format=torch.channels_last))

## What is proved
`rounding`: the kernels for this format sum in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from hotlap.levers.api import Work
from hotlap.levers.support.situations import bound_without, device_kind, make_setting, models_with, without_model
from hotlap.levers.support.switching import Switch
from hotlap.records import ModelInputs, ModelStatement, Proof, ScriptFacts, Setting, Situation, Skipped, SourceChange

if TYPE_CHECKING:
    from hotlap.levers.api import Parameter
    from hotlap.runtime.hooks import Hooks

title = "Images with their channels last in memory"
proof: Proof = "rounding"
work: tuple[Work, ...] = ("training", "inference")
addresses = ("layout-conversions",)
parameters: dict[str, Parameter] = {}

IMAGE_DIMENSIONS = 4  # batch, channels, height, width


def obstacle(situation: Situation) -> Skipped | None:
    """Require a model with image convolutions that is not in this format yet."""
    if without_model(situation):
        return without_model(situation)
    if device_kind(situation) not in ("cpu", "cuda"):
        return Skipped(reason=f"Channels last is known to help on CPUs and GPUs, not on {situation.facts.device}.")
    convolutional = models_with(situation, "convolutions")
    if not convolutional:
        return Skipped(reason="The model has no convolution layer of torch.")
    if all(model.channels_last for model in convolutional):
        return Skipped(reason="The model's weights are channels last already.", already=True)
    shapes = [shape for model in convolutional for shape in model.input_shapes]
    if shapes and not any(len(shape) == IMAGE_DIMENSIONS for shape in shapes):
        return Skipped(reason="No model input is a 4-D image tensor.")
    return None


def bound(situation: Situation) -> float | None:
    """Only forward and backward can become faster."""
    return bound_without(situation, "forward", "backward")


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """There are no parameters."""
    return (make_setting("channels-last"),)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """Convert the models that convolve images, and their inputs."""
    needs = ("torch.channels_last",)
    return (
        ModelStatement(code="_.to(memory_format=torch.channels_last)", needs=needs, convolutions_only=True),
        ModelInputs(code="_.to(memory_format=torch.channels_last)", needs=needs, dimensions=IMAGE_DIMENSIONS),
    )


def install(hooks: Hooks, setting: Setting) -> None:
    """Convert each root that convolves images, and from then on its inputs."""
    order = hooks.torch.channels_last
    converted: WeakSet[Any] = WeakSet()

    def convert_model(root: Any) -> None:
        if _convolves(hooks, root):
            root.to(memory_format=order)  # keeps every Parameter object, so an optimizer's references stay valid
            converted.add(root)

    hooks.model_found.append(convert_model)
    hooks.before_forward.append(_converted_inputs(hooks, converted))


def switch(hooks: Hooks, setting: Setting) -> Switch:
    """Weights and buffers change their order in memory, with their gradients and what optimizers keep for them; going
    back, all get the strides that the weight had."""
    torch = hooks.torch
    roots: WeakSet[Any] = WeakSet()
    optimizers: WeakSet[Any] = WeakSet()
    converted: WeakSet[Any] = WeakSet()
    strides: list[tuple[Any, tuple[int, ...]]] = []

    def on() -> None:
        for root in roots:
            converted.add(root)
            for tensor in (*root.parameters(), *root.buffers()):
                if tensor.dim() == IMAGE_DIMENSIONS:
                    strides.append((tensor, tensor.stride()))
                    for it in _held_with(tensor, optimizers):
                        it.data = it.data.contiguous(memory_format=torch.channels_last)

    def off() -> None:
        converted.clear()
        while strides:
            tensor, its_strides = strides.pop()
            for it in _held_with(tensor, optimizers):
                it.data = torch.empty_strided(it.shape, its_strides, dtype=it.dtype, device=it.device).copy_(it.data)

    hooks.model_found.append(lambda root: roots.add(root) if _convolves(hooks, root) else None)
    hooks.after_optimizer.append(optimizers.add)
    hooks.before_forward.append(_converted_inputs(hooks, converted))
    return Switch(on, off)


def _convolves(hooks: Hooks, root: Any) -> bool:
    convolutions = (hooks.torch.nn.Conv2d, hooks.torch.nn.ConvTranspose2d)
    return any(isinstance(it, convolutions) for it in root.modules())


def _converted_inputs(hooks: Hooks, roots: Collection[Any]) -> Callable[..., Any]:
    """Make a hook that converts the inputs of these roots."""
    torch = hooks.torch

    def convert(value: Any) -> Any:
        is_image = isinstance(value, torch.Tensor) and value.dim() == IMAGE_DIMENSIONS and value.is_floating_point()
        return value.contiguous(memory_format=torch.channels_last) if is_image else value

    def convert_inputs(
        root: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if root not in roots:
            return args, kwargs
        return tuple(convert(it) for it in args), {name: convert(it) for name, it in kwargs.items()}

    return convert_inputs


def _held_with(tensor: Any, optimizers: Iterable[Any]) -> list[Any]:
    """Yield the tensor, its gradient, and optimizer state of its shape."""
    states = [optimizer.state[tensor] for optimizer in optimizers if tensor in optimizer.state]
    kept = [it for state in states for it in state.values() if getattr(it, "shape", None) == tensor.shape]
    return [tensor, *([tensor.grad] if tensor.grad is not None else []), *kept]
