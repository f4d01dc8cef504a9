"""The model compiled into fused kernels.

## What it does
Calls `model.compile(...)` on each model when it is found: TorchDynamo records the forward pass as a graph, AOTAutograd
derives the backward pass, and Inductor generates kernels for both that do several operations in one pass over memory.
`mode="reduce-overhead"` also replays the step as a CUDA graph; `mode="max-autotune"` times several kernels for each
matrix product. In inference `freezing=true` compiles the weights into the graph as constants, so that they are packed
and converted once. `dynamic=true` compiles for shapes that change; with `false` torch decides: it specialises first and
generalises at the first change.

## When it helps
Many small operations between matrix products (normalisation, activation, dropout), and steps that are bound by
launching kernels rather than by running them.

## What it costs
Seconds to minutes before the first step, and again for inputs that do not match the graphs. Python that depends on
values in tensors breaks the graph; beyond a limit of recompilations torch silently continues uncompiled. The report
lists each such place with its reason. Dropout draws other random numbers. On CPUs it needs a C++ compiler.

## Before
    model = Transformer().cuda()

## After
    model = Transformer().cuda()
    model.compile()

If the model's class is torch's own, such as `nn.Sequential`, its forward is compiled instead: `model.forward =
torch.compile(model.forward)`. Its `compile()` begins in a frame of torch, which TorchDynamo skips, and compiles
nothing.

## What is proved
`rounding`: fused kernels round in other places. For the comparison of numbers, Inductor uses eager's random numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hotlap.levers.api import Parameter, Work
from hotlap.levers.support.situations import bound_without, device_kind, is_nvidia_like, make_setting, without_model
from hotlap.levers.support.switching import Switch, of_models
from hotlap.records import (
    PEAK_BYTES,
    SECONDS_PER_SAMPLE,
    ModelStatement,
    NoSourceForm,
    Proof,
    ScriptFacts,
    Setting,
    Situation,
    Skipped,
    SourceChange,
)

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Hooks

title = "The model compiled into fused kernels"
proof: Proof = "rounding"
work: tuple[Work, ...] = ("training", "inference")
improves = (SECONDS_PER_SAMPLE, PEAK_BYTES)
addresses = ("dominant-operator", "launch-bound", "python-overhead", "small-operators")
parameters = {
    "mode": Parameter(str, choices=("default", "reduce-overhead", "max-autotune")),
    "dynamic": Parameter(bool, required=False),
    "freezing": Parameter(bool, required=False),
}


def obstacle(situation: Situation) -> Skipped | None:
    """Require an uncompiled model on a device that Inductor supports."""
    if without_model(situation):
        return without_model(situation)
    if all(model.compiled for model in situation.facts.models):
        return Skipped(reason="The script already compiles its model.", already=True)
    if device_kind(situation) not in ("cpu", "cuda", "xpu"):
        return Skipped(reason=f"torch.compile has no mature backend for {situation.facts.device}.")
    return None


def bound(situation: Situation) -> float | None:
    """Only forward and backward are compiled; data, copies and the optimizer do not change."""
    return bound_without(situation, "forward", "backward")


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """The plain mode first; the modes that are made for GPUs only there, CUDA graphs only for constant shapes. Weights
    that never change again may be compiled in."""
    dynamic = any(len(model.input_shapes) > 1 for model in situation.facts.models)
    modes = ["default"]
    if is_nvidia_like(situation):
        modes += ["max-autotune"] if dynamic else ["reduce-overhead", "max-autotune"]
    plain = tuple(make_setting("compile", mode=mode, dynamic=dynamic) for mode in modes)
    if situation.facts.step_source != "call":
        return plain
    return (make_setting("compile", mode="default", dynamic=dynamic, freezing=True), *plain)


def environment(setting: Setting) -> dict[str, str]:
    """Freezing is read by Inductor when it is imported."""
    return {"TORCHINDUCTOR_FREEZING": "1"} if dict(setting.values).get("freezing") else {}


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """The call on each model. ``Module.compile`` would compile nothing of one whose forward is torch's own, so that its
    forward is compiled instead."""
    of_torch = {it.forward_of_torch for it in facts.models}
    if len(of_torch) == 2:
        reason = "Some models use torch's own forward, and it is unknown which variable holds which model."
        return (NoSourceForm(reason=reason),)
    values = dict(setting.values)
    arguments = [] if values["mode"] == "default" else [f'mode="{values["mode"]}"']
    arguments += ["dynamic=True"] if values.get("dynamic") else []
    if of_torch == {True}:
        code = f"_.forward = torch.compile({', '.join(['_.forward', *arguments])})"
        return (ModelStatement(code=code, needs=("torch.compile",)),)
    return (ModelStatement(code=f"_.compile({', '.join(arguments)})"),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Compile each root in place; class, parameters and names in its state_dict do not change."""

    def compile_root(root: Any) -> None:
        _compile(hooks, setting, root)

    hooks.model_found.append(compile_root)


def switch(hooks: Hooks, setting: Setting) -> Switch:
    """Compiled when it is first put on; after that a root's calls go through what was compiled, or past it.

    ``Module.compile`` keeps its result in ``_compiled_call_impl``, and ``__call__`` goes by whether that is None (torch
    2.6 to 2.13). ``torch.compiler.set_stance`` is public, and would switch what the script itself compiled as well.
    """
    compiled: dict[int, tuple[Any, Any]] = {}

    def put_on(root: Any) -> None:
        if id(root) in compiled:
            root._compiled_call_impl = compiled[id(root)][1]
        elif _compile(hooks, setting, root):
            compiled[id(root)] = root, root._compiled_call_impl

    def take_off() -> None:
        for root, _ in compiled.values():
            root._compiled_call_impl = None

    return of_models(hooks, put_on, take_off)


def _compile(hooks: Hooks, setting: Setting, root: Any) -> bool:
    """Compile the root unless it is compiled already or cannot be; return whether it was."""
    values = dict(setting.values)
    if isinstance(root, hooks.torch.jit.ScriptModule):
        hooks.note(f"{type(root).__name__} is TorchScript already and was not compiled.")
        return False
    if getattr(root, "_compiled_call_impl", None) is not None or hasattr(root, "_orig_mod"):
        return False
    mode = None if values["mode"] == "default" else values["mode"]
    dynamic = True if values.get("dynamic") else None
    if type(root).forward.__module__.startswith("torch.nn."):
        root._compiled_call_impl = hooks.torch.compile(_called_from_here(root), mode=mode, dynamic=dynamic)
    else:
        root.compile(mode=mode, dynamic=dynamic)
    return True


def _called_from_here(root: Any) -> Callable[..., Any]:
    """The call of a module whose forward is torch's own, an ``nn.Sequential`` say, from a frame that Dynamo looks at:
    ``Module.compile`` begins with a frame of torch's, which it passes over, and silently compiles nothing (torch 2.13;
    ``torch.compile(module)`` wraps it likewise)."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return root._call_impl(*args, **kwargs)

    return call


def pay_back_steps(compile_seconds: float, baseline_step_seconds: float, step_seconds: float) -> float | None:
    """Return the number of steps after which compiling pays off; None if it never does."""
    gain = baseline_step_seconds - step_seconds
    return compile_seconds / gain if gain > 0 else None
