"""Recompute the activations of the model's blocks in the backward pass.

## What it does
Finds the model's repeated blocks (the largest run of modules of one class in a `ModuleList` or `Sequential`) and runs
each of them under `torch.utils.checkpoint.checkpoint(..., use_reentrant=False)`: only a block's inputs are kept, and
the block's forward pass runs again when backward reaches it. The state of the random number generators is restored for
it, so that dropout drops the same values. A model of `transformers` uses its own switch. `share="half"` does it for
every second block, `share="chosen"` for those that `blocks` lists: the ones that free most memory while their forward
passes, measured block by block, keep the step within the allowed slowdown. In a model that the script compiles,
`share="compiler"` has the compiler choose what to recompute, to keep `memory_budget` percent of the activations.

## When it helps
If activations, rather than weights and optimizer state, fill the memory: long sequences, large images, many layers. It
is tried if the goal is memory (`hotlap tune --goal memory`).

## What it costs
One more forward pass of these blocks in each step. Blocks that change their own
buffers in a forward pass, as batch norm does, are skipped: they would change them twice.

## Before
    model = Transformer()

## After
    model = Transformer()
    for block in model.layers:
        block.forward = functools.partial(torch.utils.checkpoint.checkpoint, block.forward, use_reentrant=False)

## What is proved
`rounding`: the same operations run on the same values; kernels whose sums depend on timing may differ in the last bits.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hotlap.levers.api import Parameter
from hotlap.levers.support.block_budget import blocks_to_recompute, listed, numbers_of
from hotlap.levers.support.blocks import own_switch, repeated_blocks, updates_statistics
from hotlap.levers.support.compilers import set_activation_memory_budget
from hotlap.levers.support.situations import make_setting, without_model
from hotlap.records import (
    PEAK_BYTES,
    BlockFacts,
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

title = "Activations of the model's blocks are recomputed in the backward pass"
proof: Proof = "rounding"
improves = (PEAK_BYTES,)
addresses = ("close-to-limit", "allocator-retries")
parameters = {
    "share": Parameter(str, choices=("all", "half", "chosen", "compiler")),
    "blocks": Parameter(str, required=False),
    "memory_budget": Parameter(int, minimum=1, maximum=99, required=False),
}

NAME = "activation-checkpointing"
_MEMORY_BUDGETS = (50, 20)


def obstacle(situation: Situation) -> Skipped | None:
    """Require repeated blocks that are not recomputed yet and have no state of their own."""
    if without_model(situation):
        return without_model(situation)
    blocks = _blocks(situation.facts)
    if not blocks:
        return Skipped(reason="No model has a ModuleList or Sequential of repeated blocks.")
    if all(it.recomputed for it in blocks):
        return Skipped(reason="The script already recomputes the model's blocks in the backward pass.", already=True)
    if not _usable(situation.facts):
        kind = blocks[0].kind
        return Skipped(reason=f"{kind} changes its buffers in each forward pass, and would change them twice.")
    return None


def bound(situation: Situation) -> float | None:
    """It does not make steps faster."""
    return None


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """The blocks that fit the allowed slowdown, where they were measured; else all blocks, and every second one where
    the model's own switch, if it has one, can do that. Of a compiled model, budgets for the compiler."""
    usable = _usable(situation.facts)
    if any(it.compiled and it.blocks in usable for it in situation.facts.models):
        return tuple(make_setting(NAME, share="compiler", memory_budget=it) for it in _MEMORY_BUDGETS)
    can_halve = all(not it.switch or it.switch_skips for it in usable)
    usual = tuple(make_setting(NAME, share=it) for it in (("all", "half") if can_halve else ("all",)))
    chosen = _within_slowdown(situation) if len(usable) == 1 and not usable[0].switch else None
    if chosen is None or len(chosen) == len(situation.block_costs):
        return usual
    return (make_setting(NAME, share="chosen", blocks=listed(chosen)),) if chosen else usual[1:]


def _within_slowdown(situation: Situation) -> tuple[int, ...] | None:
    """The blocks that are worth recomputing; None if that was not measured."""
    if not situation.block_costs or situation.most_slowdown is None:
        return None
    return blocks_to_recompute(situation.block_costs, (situation.most_slowdown - 1) * situation.account.wall)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """The model's own switch, or a loop over its blocks."""
    if len(facts.models) != 1 or not _usable(facts):
        return (NoSourceForm(reason="There are several models, and not all of them have such blocks."),)
    (blocks,) = _usable(facts)
    values = dict(setting.values)
    half = values["share"] == "half"
    if values["share"] == "compiler":
        name = "torch._functorch.config.activation_memory_budget"
        return (NoSourceForm(reason=f"Set {name} = {_budget(values):g} before the model is compiled; it is private."),)
    place = blocks.switch_place if blocks.switch else blocks.place
    if place.startswith(".module"):
        return (NoSourceForm(reason="The model is wrapped, and which variable holds the model itself is unknown."),)
    if blocks.switch:
        keyword = f"{blocks.switch.removesuffix('_enable')}_kwargs"
        every = ", every_n_layers=2" if half else ""
        return (ModelStatement(code=f'_{place}.{blocks.switch}({keyword}={{"use_reentrant": False}}{every})'),)
    if not place:
        return (NoSourceForm(reason="The blocks have no name that Python source could use."),)
    checkpoint = "torch.utils.checkpoint.checkpoint"
    repeated = f"_{_every_second(place) if half else place}"
    if values["share"] == "chosen":
        repeated = f"[_{place}[number] for number in ({values['blocks']},)]"
    code = (
        f"for repeated in {repeated}:\n"
        f"    repeated.forward = functools.partial({checkpoint}, repeated.forward, use_reentrant=False)"
    )
    return (ModelStatement(code=code, needs=("functools.partial", checkpoint)),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Once for each root, before its first training forward."""
    values = dict(setting.values)
    if values["share"] == "compiler":
        set_activation_memory_budget(_budget(values))
        return
    half = values["share"] == "half"
    numbers = numbers_of(str(values.get("blocks", ""))) if values["share"] == "chosen" else None
    done: set[int] = set()  # a root may be inside another one that was found later

    def recompute(root: Any) -> None:
        switch = own_switch(hooks.torch, root)
        if switch is not None and numbers is None:
            _switch_on(hooks, switch.owner, switch.method, half=half, done=done)
            return
        run = repeated_blocks(hooks.torch, root)
        for block in _those(run.blocks, half, numbers) if run else ():
            if updates_statistics(hooks.torch, block):
                hooks.note(f"{type(block).__name__} is not recomputed: its batch norm would be updated twice.")
            elif id(block) not in done:
                done.add(id(block))
                block.forward = checkpointed(block.forward)

    hooks.model_found.append(recompute)


def _those(blocks: Sequence[Any], half: bool, numbers: tuple[int, ...] | None) -> Sequence[Any]:
    """The blocks that a setting names."""
    if numbers is None:
        return blocks[:: 2 if half else 1]
    return [blocks[it] for it in numbers if it < len(blocks)]


def _budget(values: Mapping[str, Any]) -> float:
    return float(values.get("memory_budget", _MEMORY_BUDGETS[0])) / 100


def checkpointed(forward: Any) -> Any:
    """The bound method under a checkpoint. Deep copies and pickles of its module bind it to the copy, and need nothing
    of hotlap."""
    from torch.utils.checkpoint import checkpoint

    return functools.partial(checkpoint, forward, use_reentrant=False)


def _switch_on(hooks: Hooks, owner: Any, method: str, *, half: bool, done: set[int]) -> None:
    if id(owner) in done:
        return
    done.add(id(owner))
    more = {"every_n_layers": 2} if half else {}
    try:
        getattr(owner, method)(**{f"{method.removesuffix('_enable')}_kwargs": {"use_reentrant": False}}, **more)
    except (ValueError, TypeError) as error:
        hooks.note(f"{type(owner).__name__} keeps its activations: {error}")


def _every_second(place: str) -> str:
    """``.layers[::2]`` for ``.layers``, ``[1:5:2]`` for ``[1:5]``."""
    return f"{place[:-1]}:2]" if re.search(r"\[\d*:\d*\]$", place) else f"{place}[::2]"


def _blocks(facts: ScriptFacts) -> list[BlockFacts]:
    return [it.blocks for it in facts.models if it.blocks is not None]


def _usable(facts: ScriptFacts) -> list[BlockFacts]:
    return [it for it in _blocks(facts) if not it.updates_buffers and not it.recomputed]
