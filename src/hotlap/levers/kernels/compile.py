"""The model compiled into fused kernels.

## What it does
Calls `model.compile(...)` on each model when it is found: TorchDynamo records the forward pass as a graph, AOTAutograd
derives the backward pass, and Inductor generates kernels for both that do several operations in one pass over memory.
`mode="reduce-overhead"` also replays the step as a CUDA graph; `mode="max-autotune"` times several kernels for each
matrix product and uses CUDA graphs too, `mode="max-autotune-no-cudagraphs"` only the former. In inference
`freezing=true` compiles the weights into the graph as constants, so that they are packed and converted once.
`dynamic=true` compiles for shapes that change; with `false` torch decides: it specialises first and generalises at the
first change.

`blocks=true` compiles the repeated blocks of the model instead (regional compilation): modules of one class in a
`ModuleList` or `Sequential` whose parameters have the same shapes, such as the layers of a transformer. The code that
is generated for the first one serves all others, so that compiling takes a fraction of the time. What is outside of the
blocks, or joins two of them, is not fused.

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
nothing. A class with a `compile()` of its own, as models of Keras have, is compiled by torch's:
`torch.nn.Module.compile(model)`.

With `blocks=true`:

    model = Transformer().cuda()
    for repeated in model.layers:
        repeated.compile()

## What is proved
`rounding`: fused kernels round in other places. For the comparison of numbers, Inductor uses eager's random numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from hotlap.levers.api import Parameter, Work
from hotlap.levers.support.blocks import same_blocks
from hotlap.levers.support.situations import (
    bound_without,
    device_kind,
    is_nvidia_like,
    make_setting,
    shapes_vary,
    without_model,
)
from hotlap.levers.support.switching import Switch, of_models
from hotlap.records import (
    PEAK_BYTES,
    SECONDS_PER_SAMPLE,
    ModelFacts,
    ModelStatement,
    NoSourceForm,
    Proof,
    ScriptFacts,
    Setting,
    Situation,
    Skipped,
    SourceChange,
    TopStatement,
)

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Hooks

title = "The model compiled into fused kernels"
proof: Proof = "rounding"
work: tuple[Work, ...] = ("training", "inference")
starts_slowly = True
improves = (SECONDS_PER_SAMPLE, PEAK_BYTES)
addresses = ("dominant-operator", "launch-bound", "python-overhead", "small-operators")
parameters = {
    "mode": Parameter(str, choices=("default", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")),
    "dynamic": Parameter(bool, required=False),
    "freezing": Parameter(bool, required=False),
    "blocks": Parameter(bool, required=False),
}

_FEW_SHAPES = 4
"""So few shapes may be those of a last batch that is shorter, or of an evaluation, instead of changing ones."""

_FEWEST_BLOCKS = 3
"""With fewer, the model compiles about as fast as its blocks."""


def obstacle(situation: Situation) -> Skipped | None:
    """Require an uncompiled model on a device that Inductor supports."""
    if without_model(situation):
        return without_model(situation)
    if all(model.compiled or _compiles_blocks(model) for model in situation.facts.models):
        return Skipped(reason="The script already compiles its model.", already=True)
    if situation.facts.generation is not None:
        reason = "`generate()` calls the model with a longer cache for each token; `static-cache` compiles that step."
        return Skipped(reason=reason)
    if device_kind(situation) not in ("cpu", "cuda", "xpu"):
        return Skipped(reason=f"torch.compile has no mature backend for {situation.facts.device}.")
    return None


def bound(situation: Situation) -> float | None:
    """Only forward and backward are compiled; data, copies and the optimizer do not change."""
    return bound_without(situation, "forward", "backward")


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """The plain mode first, then its blocks; the modes that are made for GPUs only there, CUDA graphs only for constant
    shapes. Weights that never change again may be compiled in."""
    models = situation.facts.models
    shapes = max((len(it.input_shapes) for it in models), default=1)
    changes = any(map(shapes_vary, models))
    settings = [make_setting("compile", mode="default", dynamic=changes)]
    if situation.facts.step_source == "call":
        settings.insert(0, make_setting("compile", mode="default", dynamic=changes, freezing=True))
    elif models and all(_count(it) >= _FEWEST_BLOCKS for it in models):
        settings.append(make_setting("compile", mode="default", dynamic=changes, blocks=True))
    if changes and shapes <= _FEW_SHAPES and situation.facts.step_source != "call":
        settings.append(make_setting("compile", mode="default", dynamic=False))
    if is_nvidia_like(situation):
        modes = ("max-autotune-no-cudagraphs",) if changes else ("reduce-overhead", "max-autotune")
        settings += [make_setting("compile", mode=it, dynamic=changes) for it in modes]
    return tuple(settings)


def environment(setting: Setting) -> dict[str, str]:
    """Freezing is read by Inductor when it is imported."""
    return {"TORCHINDUCTOR_FREEZING": "1"} if dict(setting.values).get("freezing") else {}


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """The call on each model, or on each of its blocks. ``Module.compile`` would compile nothing of a module whose
    forward is torch's own, so that the forward is compiled instead; a class may have another method of that name."""
    values = dict(setting.values)
    arguments = [] if values["mode"] == "default" else [f'mode="{values["mode"]}"']
    arguments += ["dynamic=True"] if values.get("dynamic") else []
    if values.get("blocks"):
        return _rewrite_blocks(facts, arguments)
    forms = {_Form(it.forward_of_torch, it.compile_of_its_own) for it in facts.models}
    if len(forms) > 1:
        reason = "The models are compiled by different calls, and it is unknown which variable holds which model."
        return (NoSourceForm(reason=reason),)
    (form,) = forms or {_Form()}
    code, needs = _compile_call("_", arguments, form)
    freezing = _FREEZING if values.get("freezing") else ()
    return (*freezing, ModelStatement(code=code, needs=needs))


class _Form(NamedTuple):
    """How a module is compiled: whether its forward is torch's own, and whether its ``compile()`` is not torch's."""

    forward_of_torch: bool = False
    compile_of_its_own: bool = False


_FREEZING = (TopStatement(code="torch._inductor.config.freezing = True", needs=("torch._inductor",)),)
"""What the environment variable sets (torch 2.6 to 2.13)."""


def _rewrite_blocks(facts: ScriptFacts, arguments: list[str]) -> tuple[SourceChange, ...]:
    """A loop over the blocks of each container."""
    if len(facts.models) != 1 or not facts.models[0].repeated:
        return (NoSourceForm(reason="There are several models, and not all of them have repeated blocks."),)
    changes: list[SourceChange] = []
    for blocks in facts.models[0].repeated:
        if not blocks.place:
            return (NoSourceForm(reason="The blocks have no name that Python source could use."),)
        if blocks.place.startswith(".module"):
            return (NoSourceForm(reason="The model is wrapped, and which variable holds the model itself is unknown."),)
        call, needs = _compile_call("repeated", arguments, _Form(blocks.forward_of_torch))
        changes.append(ModelStatement(code=f"for repeated in _{blocks.place}:\n    {call}", needs=needs))
    return tuple(changes)


def _compile_call(name: str, arguments: list[str], form: _Form) -> tuple[str, tuple[str, ...]]:
    """The statement that compiles the module of that name, and the names that it needs."""
    if form.forward_of_torch:
        given = ", ".join([f"{name}.forward", *arguments])
        return f"{name}.forward = torch.compile({given})", ("torch.compile",)
    if form.compile_of_its_own:
        return f"torch.nn.Module.compile({', '.join([name, *arguments])})", ("torch.nn",)
    return f"{name}.compile({', '.join(arguments)})", ()


def install(hooks: Hooks, setting: Setting) -> None:
    """Compile each root, or its blocks, in place; class, parameters and names in its state_dict do not change."""

    def compile_root(root: Any) -> None:
        for module in _targets(hooks, setting, root):
            _compile(hooks, setting, module)

    hooks.model_found.append(compile_root)


def switch(hooks: Hooks, setting: Setting) -> Switch:
    """Compiled when it is first put on; after that a module's calls go through what was compiled, or past it.

    ``Module.compile`` keeps its result in ``_compiled_call_impl``, and ``__call__`` goes by whether that is None (torch
    2.6 to 2.13). ``torch.compiler.set_stance`` is public, and would switch what the script itself compiled as well.
    """
    compiled: dict[int, tuple[Any, Any]] = {}

    def put_on(root: Any) -> None:
        for module in _targets(hooks, setting, root):
            if id(module) in compiled:
                module._compiled_call_impl = compiled[id(module)][1]
            elif _compile(hooks, setting, module):
                compiled[id(module)] = module, module._compiled_call_impl

    def take_off() -> None:
        for module, _ in compiled.values():
            module._compiled_call_impl = None

    return of_models(hooks, put_on, take_off)


def _targets(hooks: Hooks, setting: Setting, root: Any) -> list[Any]:
    """The modules that are compiled, each by itself."""
    if not dict(setting.values).get("blocks"):
        return [root]
    blocks = [block for run in same_blocks(hooks.torch, root) for block in run.blocks]
    if not blocks:
        hooks.note(f"{type(root).__name__} has no repeated blocks and was not compiled.")
    return list({id(it): it for it in blocks}.values())


def _compile(hooks: Hooks, setting: Setting, module: Any) -> bool:
    """Compile the module unless it is compiled already or cannot be; return whether it was."""
    values = dict(setting.values)
    if isinstance(module, hooks.torch.jit.ScriptModule):
        hooks.note(f"{type(module).__name__} is TorchScript already and was not compiled.")
        return False
    if getattr(module, "_compiled_call_impl", None) is not None or hasattr(module, "_orig_mod"):
        return False
    mode = None if values["mode"] == "default" else values["mode"]
    dynamic = True if values.get("dynamic") else None
    if str(type(module).forward.__module__).startswith("torch.nn."):
        module._compiled_call_impl = hooks.torch.compile(_called_from_here(module), mode=mode, dynamic=dynamic)
    else:
        hooks.torch.nn.Module.compile(module, mode=mode, dynamic=dynamic)  # its class may have another compile()
    return True


def _count(model: ModelFacts) -> int:
    return sum(it.count for it in model.repeated)


def _compiles_blocks(model: ModelFacts) -> bool:
    return bool(model.repeated) and all(it.compiled for it in model.repeated)


def _called_from_here(module: Any) -> Callable[..., Any]:
    """The call of a module whose forward is torch's own, an ``nn.Sequential`` say, from a frame that Dynamo looks at:
    ``Module.compile`` begins with a frame of torch's, which it passes over, and silently compiles nothing (torch 2.13;
    ``torch.compile(module)`` wraps it likewise)."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return module._call_impl(*args, **kwargs)

    return call


def pay_back_steps(compile_seconds: float, baseline_step_seconds: float, step_seconds: float) -> float | None:
    """Return the number of steps after which compiling pays off; None if it never does."""
    gain = baseline_step_seconds - step_seconds
    return compile_seconds / gain if gain > 0 else None
