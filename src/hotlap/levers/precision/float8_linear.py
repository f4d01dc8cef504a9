"""Matrix products of linear layers in 8-bit floating point, by torchao.

## What it does
Replaces each `nn.Linear` whose sides are multiples of 16 by torchao's `Float8Linear`, which keeps the same weight: its
inputs, weights and gradients are scaled and converted to 8 bits right before each of the three matrix products of a
training step. `recipe="tensorwise"` has one scale for a tensor, `"rowwise"` one for a row, which is slower and more
precise. The model is compiled, since the conversions must be fused to pay.

## When it helps
Large linear layers on GPUs with float8 units (compute capability 8.9 and up: Ada, Hopper, Blackwell), next to mixed
precision. Layers with sides below a few thousand rarely gain.

## What it costs
Products have one to two decimal digits. Compiling takes tens of seconds. Checkpoints keep their names and shapes.

## Before
    loss = criterion(model(inputs), targets)

## After
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    convert_to_float8_training(model, config=Float8LinearConfig.from_recipe_name("tensorwise"))
    model.compile()
    loss = criterion(model(inputs), targets)

## What is proved
`rounding`: the first gradient keeps its direction, and the loss follows the same trajectory within 0.1 %. A model that
needs more precision does not pass, and the lever is then refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hotlap.levers.api import Parameter, find
from hotlap.levers.support.situations import (
    accelerator,
    bound_without,
    is_nvidia_like,
    make_setting,
    native_dtypes,
    without_model,
)
from hotlap.records import ModelStatement, Proof, ScriptFacts, Setting, Situation, Skipped, SourceChange

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Hooks

title = "Matrix products of linear layers in 8-bit floating point"
proof: Proof = "rounding"
addresses = ("slow-matmul-precision",)
parameters = {
    "dtype": Parameter(str, choices=("float8_e4m3fn",)),
    "recipe": Parameter(str, choices=("tensorwise", "rowwise")),
    "compile": Parameter(bool),
}

PACKAGE = "torchao"
_MULTIPLE = 16
"""What the hardware's products need of both sides of a weight."""


def obstacle(situation: Situation) -> Skipped | None:
    """Require linear layers, a GPU with float8 units, and torchao."""
    if without_model(situation):
        return without_model(situation)
    if not is_nvidia_like(situation) or accelerator(situation) is None:
        return Skipped(reason="Training in float8 needs a GPU with float8 units.")
    if "float8" not in native_dtypes(situation):
        return Skipped(reason="This GPU has no float8 units (compute capability 8.9 and up has).")
    if not any(it.linears for it in situation.facts.models):
        return Skipped(reason="The model has no linear layer.")
    if situation.facts.processes > 1:
        return Skipped(reason="Several processes train, which torchao's scales would have to agree on.")
    if PACKAGE not in situation.facts.packages:
        return Skipped(reason=f"The package {PACKAGE} is not installed: pip install {PACKAGE}.")
    return None


def bound(situation: Situation) -> float | None:
    """Only forward and backward can become faster."""
    return bound_without(situation, "forward", "backward")


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """The faster recipe, then the more precise one; a model that the script compiled is not compiled again."""
    compiled = any(it.compiled for it in situation.facts.models)
    return tuple(
        make_setting("float8-linear", dtype="float8_e4m3fn", recipe=it, compile=not compiled)
        for it in ("tensorwise", "rowwise")
    )


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """The two statements on the model."""
    values = dict(setting.values)
    names = ("torchao.float8.convert_to_float8_training", "torchao.float8.Float8LinearConfig")
    config = f'config={names[1]}.from_recipe_name("{values["recipe"]}")'
    only = "module_filter_fn=lambda module, name: all(it % 16 == 0 for it in module.weight.shape)"
    compile_it: tuple[SourceChange, ...] = (ModelStatement(code="_.compile()"),) if values["compile"] else ()
    return (ModelStatement(code=f"{names[0]}(_, {config}, {only})", needs=names), *compile_it)


def install(hooks: Hooks, setting: Setting) -> None:
    """Convert each root when it is found: its optimizer holds the same weights afterwards."""
    values = dict(setting.values)

    def convert(root: Any) -> None:
        from torchao.float8 import convert_to_float8_training

        convert_to_float8_training(root, config=config_of(str(values["recipe"])), module_filter_fn=_fits)
        if not any(type(it).__name__ == "Float8Linear" for it in root.modules()):
            hooks.note("No linear layer of the model has sides that are multiples of 16.")

    hooks.model_found.append(convert)
    if values["compile"]:
        find("compile").install(hooks, make_setting("compile", mode="default", dynamic=False))


def config_of(recipe: str) -> Any:
    """torchao's configuration of that name."""
    from torchao.float8 import Float8LinearConfig

    return Float8LinearConfig.from_recipe_name(recipe)


def _fits(module: Any, name: str) -> bool:
    return all(it % _MULTIPLE == 0 for it in module.weight.shape)
