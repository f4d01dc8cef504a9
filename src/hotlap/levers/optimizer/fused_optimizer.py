"""Update all parameters in one kernel of the optimizer's step.

## What it does
Adds `fused=True` (or `foreach=True`) to the arguments of an optimizer if the script sets neither. `fused` updates all
parameters in one kernel, with all of the update's arithmetic in one pass over memory; `foreach` runs each of its
operations over all parameters at once. torch's own default is `foreach` on GPUs and a plain loop on CPUs.

## When it helps
If the optimizer takes a notable share of the step: many parameters and small batches. Adam, AdamW, Adagrad and SGD have
fused implementations.

## What it costs
`fused` needs no memory; `foreach` needs temporary copies as large as the parameters. Fused implementations need dense
floating-point parameters on one type of device.

## Before
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

## After
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

## What is proved
`rounding`: the fused formula rounds differently in the last bits.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from hotlap.levers.api import Parameter
from hotlap.levers.support.situations import bound_without, device_kind, make_setting
from hotlap.levers.support.switching import Switch
from hotlap.records import (
    PEAK_BYTES,
    SECONDS_PER_SAMPLE,
    OptimizerArguments,
    OptimizerFacts,
    Proof,
    ScriptFacts,
    Setting,
    Situation,
    Skipped,
    SourceChange,
)

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Hooks

title = "Update all parameters in one kernel of the optimizer's step"
proof: Proof = "rounding"
improves = (SECONDS_PER_SAMPLE, PEAK_BYTES)
addresses = ("unfused-optimizer", "launch-bound")
parameters = {"implementation": Parameter(str, choices=("fused", "foreach"))}


def obstacle(situation: Situation) -> Skipped | None:
    """Require an optimizer with a faster implementation, and a script that sets none."""
    optimizers = situation.facts.optimizers
    if not optimizers:
        return Skipped(reason="The script updates its weights without an optimizer of torch.")
    chosen = [it for it in optimizers if it.fused or it.foreach]
    if len(chosen) == len(optimizers):
        form = "fused" if chosen[0].fused else "foreach"
        return Skipped(reason=f"The script already uses the {form} implementation of {chosen[0].kind}.", already=True)
    if not _open(situation):
        return Skipped(reason="The script explicitly disables `fused` and `foreach`.")
    if not candidates(situation):
        kinds = " and ".join(sorted({it.kind for it in optimizers}))
        return Skipped(reason=f"{kinds} has no implementation that is faster than torch's default on this device.")
    return None


def bound(situation: Situation) -> float | None:
    """The largest gain is to remove the optimizer's time."""
    return bound_without(situation, "optimizer")


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """Try fused if it exists; otherwise foreach, unless it is torch's default."""
    optimizers = _open(situation)
    if any(it.supports_fused for it in optimizers):
        return (make_setting("fused-optimizer", implementation="fused"),)
    if device_kind(situation) == "cpu" and any(it.supports_foreach for it in optimizers):
        return (make_setting("fused-optimizer", implementation="foreach"),)
    return ()


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """Add the argument to each optimizer that sets neither."""
    implementation = str(dict(setting.values)["implementation"])
    return (OptimizerArguments(values=((implementation, True),), alternatives=("fused", "foreach")),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Add the argument when an optimizer is constructed."""
    implementation = str(dict(setting.values)["implementation"])

    def choose(kind: type, arguments: dict[str, Any]) -> None:
        if arguments.get("fused") is not None or arguments.get("foreach") is not None:
            return
        reason = _refusal(hooks, kind, arguments, implementation)
        if reason:
            hooks.note(f"{kind.__name__} is not changed: {reason}.")
        else:
            arguments[implementation] = True

    hooks.before_optimizer.append(choose)


def switch(hooks: Hooks, setting: Setting) -> Switch:
    """Set the flags of the optimizer's groups, and convert its step counts for the other implementation."""
    implementation = str(dict(setting.values)["implementation"])
    optimizers: WeakSet[Any] = WeakSet()
    changed: list[_Changed] = []

    def made(optimizer: Any) -> None:
        arguments = {**optimizer.defaults, "params": optimizer.param_groups}
        left_open = arguments.get("fused") is None and arguments.get("foreach") is None
        if left_open and not _refusal(hooks, type(optimizer), arguments, implementation):
            optimizers.add(optimizer)

    def on() -> None:
        changed.extend(_Changed(hooks, it, implementation) for it in optimizers)

    def off() -> None:
        while changed:
            changed.pop().undo()

    hooks.after_optimizer.append(made)
    return Switch(on, off)


class _Changed:
    """An optimizer that uses another implementation until it is undone.

    What is set is what its constructor would set. A fused implementation keeps its count of steps on the device of the
    weight, as float32; others on the host, in torch's default format.
    """

    _SUPPORTS_SCALING = "_step_supports_amp_scaling"

    def __init__(self, hooks: Hooks, optimizer: Any, implementation: str) -> None:
        self._torch = hooks.torch
        self._optimizer = optimizer
        self._is_fused = implementation == "fused"
        self._before = [(group, group.get("fused"), group.get("foreach")) for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group[implementation] = True
        if self._is_fused:
            setattr(optimizer, self._SUPPORTS_SCALING, True)
            self._move_steps(lambda weight, count: count.to(weight.device, hooks.torch.float32))

    def undo(self) -> None:
        """Return the implementation that torch would choose."""
        for group, fused, foreach in self._before:
            group.update({name: it for name, it in (("fused", fused), ("foreach", foreach)) if name in group})
        if self._is_fused:
            vars(self._optimizer).pop(self._SUPPORTS_SCALING, None)
            wide = self._torch.get_default_dtype() == self._torch.float64
            number_format = self._torch.float64 if wide else self._torch.float32
            self._move_steps(lambda weight, count: count.to("cpu", number_format))

    def _move_steps(self, moved: Callable[[Any, Any], Any]) -> None:
        capturable = any(group.get("capturable") for group in self._optimizer.param_groups)
        for weight, state in self._optimizer.state.items():
            if hasattr(state.get("step"), "device") and not capturable:
                state["step"] = moved(weight, state["step"])


def _open(situation: Situation) -> tuple[OptimizerFacts, ...]:
    return tuple(it for it in situation.facts.optimizers if it.fused is None and it.foreach is None)


def _refusal(hooks: Hooks, kind: type, arguments: dict[str, Any], implementation: str) -> str:
    """Return why this optimizer cannot take the argument; empty if it can."""
    if implementation not in inspect.signature(kind.__init__).parameters:  # type: ignore[misc]
        return f"its constructor takes no `{implementation}`"
    if arguments.get("differentiable"):
        return "it is differentiable"
    if implementation == "foreach":
        return "its learning rate is a tensor" if hasattr(arguments.get("lr"), "device") else ""
    tensors = list(_tensors(arguments))
    if not all(it.is_floating_point() for it in tensors):
        return "not all of its parameters are floating-point numbers"
    if any(it.is_sparse for it in tensors):
        return "it has sparse parameters"
    supported = _devices_with_fused_kernels(hooks)
    unsupported = sorted({it.device.type for it in tensors} - supported)
    return f"there are no fused kernels for {unsupported[0]}" if unsupported else ""


def _devices_with_fused_kernels(hooks: Hooks) -> set[str]:
    from torch.utils import _foreach_utils

    return set(_foreach_utils._get_fused_kernels_supported_devices())


def _tensors(arguments: dict[str, Any]) -> Iterator[Any]:
    """Return the parameters of the constructor's first argument, generators as lists, as in torch."""
    given = arguments.get("params")
    if given is None:
        return
    if not hasattr(given, "device") and not isinstance(given, list):
        given = arguments["params"] = list(given)
    for entry in given if isinstance(given, list) else ():
        if isinstance(entry, dict):
            group = entry.get("params", ())
            if not hasattr(group, "device") and not isinstance(group, (list, tuple)):
                group = entry["params"] = list(group)
            yield from (_without_name(it) for it in ([group] if hasattr(group, "device") else group))
        else:
            yield _without_name(entry)


def _without_name(entry: Any) -> Any:
    return entry[1] if isinstance(entry, tuple) else entry
