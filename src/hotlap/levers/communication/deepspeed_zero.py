"""Divide more or less between processes with DeepSpeed (the stage of ZeRO).

## What it does
Sets `zero_optimization.stage` of the configuration that the script passes to `deepspeed.initialize`. Stage 0 holds
everything on every process; stage 1 divides the optimizer's state, stage 2 the gradients too, stage 3 the weights too.

## When it helps
A lower stage exchanges less, if memory has room for it: from stage 3 to 2 or 1 above all. A higher one frees memory.

## What it costs
A checkpoint of `engine.save_checkpoint` loads into the same stage (and through DeepSpeed's universal format into
others), so that a run which goes on from an earlier checkpoint must keep its stage. Under stage 3 each process holds a
part of each weight: a script that reads weights itself, as by `model.state_dict()`, is then stopped by an error instead
of saving parts (`engine.save_checkpoint` and `engine.save_16bit_model` do save them). The files of a configuration are
not changed.

## Before
    {"zero_optimization": {"stage": 3}}

## After
    {"zero_optimization": {"stage": 2}}

## What is proved
`rounding`: gradients are added up in another order. The losses of every process, and the whole gradients, are compared.
"""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotlap.errors import ScriptError
from hotlap.levers.api import Parameter
from hotlap.levers.support.situations import bound_without, make_setting
from hotlap.records import (
    PEAK_BYTES,
    SECONDS_PER_SAMPLE,
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

title = "Divide more or less between processes with DeepSpeed (the stage of ZeRO)"
proof: Proof = "rounding"
improves = (SECONDS_PER_SAMPLE, PEAK_BYTES)
addresses = ("exposed-communication", "close-to-limit", "allocator-retries")
parameters = {"stage": Parameter(int, minimum=0, maximum=3)}

_STAGES = (1, 2, 0, 3)
"""Those that divide the optimizer's state alone exchange least per step for what they save."""

_OWN_SAVING = ("save_checkpoint", "load_checkpoint", "save_16bit_model")
"""The engine's methods that know of divided weights."""

_WHOLE_WEIGHTS = 2
"""Up to this stage a process holds whole weights."""


def obstacle(situation: Situation) -> Skipped | None:
    """Require one engine of several processes that keeps nothing in host memory."""
    engines = situation.facts.deepspeed
    if not engines:
        return Skipped(reason="The script does not use DeepSpeed.")
    if situation.facts.processes < 2:
        return Skipped(reason="One process trains: there is nothing to divide.")
    if len(engines) > 1:
        return Skipped(reason="The script makes several engines of DeepSpeed.")
    if engines[0].pipeline:
        return Skipped(reason="The script uses DeepSpeed's pipeline, which allows stages 0 and 1 only.")
    if engines[0].offloads:
        return Skipped(reason="The script keeps state in host memory (offload), which each stage does otherwise.")
    return None


def bound(situation: Situation) -> float | None:
    """Gathering and exchanging are in all phases but the loader's."""
    return bound_without(situation, "forward", "backward", "optimizer")


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """The stages that the script does not use."""
    used = {it.stage for it in situation.facts.deepspeed}
    return tuple(make_setting("deepspeed-zero", stage=it) for it in _STAGES if used and it not in used)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """No edit: the configuration is a file, or made by code."""
    stage = dict(setting.values)["stage"]
    return (NoSourceForm(reason=f'Set "zero_optimization": {{"stage": {stage}}} in the configuration of DeepSpeed.'),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Change the configuration when an engine is made."""
    stage = int(str(dict(setting.values)["stage"]))

    def configure(arguments: dict[str, Any]) -> None:
        name, config = _configuration(arguments)
        zero = config.setdefault("zero_optimization", {})
        if not isinstance(zero, dict):
            zero = config["zero_optimization"] = {}
        if zero.get("stage", 0) > _WHOLE_WEIGHTS >= stage and _is_divided(arguments.get("model")):
            hooks.note("The stage of ZeRO was not changed, since the script makes its model under deepspeed.zero.Init.")
            return
        zero["stage"] = stage
        arguments[name] = config
        if name != "args" and getattr(arguments.get("args"), "deepspeed_config", None) is not None:
            arguments["args"].deepspeed_config = None  # DeepSpeed takes one configuration only
        if stage > _WHOLE_WEIGHTS:
            _save_no_parts(hooks, arguments.get("model"))

    hooks.before_deepspeed.append(configure)


def _configuration(arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The argument that carries it from now on, and a copy of it."""
    given = arguments.get("config") or arguments.pop("config_params", None)
    if given is None:
        given = getattr(arguments.get("args"), "deepspeed_config", None)
    if isinstance(given, dict):
        return "config", copy.deepcopy(given)
    if given is not None and Path(given).is_file():
        found = json.loads(Path(given).read_text(encoding="utf-8"))
        if isinstance(found, dict):
            return "config", found
    raise ScriptError(
        "The configuration of DeepSpeed cannot be read, so its stage of ZeRO cannot be changed.",
        remedy="Pass a dictionary or a JSON file to deepspeed.initialize, or leave the lever deepspeed-zero out.",
    )


def _is_divided(model: Any) -> bool:
    """Whether the weights were divided when they were made. DeepSpeed marks them by ``ds_id``."""
    return model is not None and any(hasattr(it, "ds_id") for it in model.parameters())


def _save_no_parts(hooks: Hooks, model: Any) -> None:
    """``state_dict()`` of a model whose weights are divided raises an error, outside of DeepSpeed's own saving."""
    saving: list[str] = []

    def permit(engine: Any) -> None:
        for name in _OWN_SAVING:
            if hasattr(engine, name):
                setattr(engine, name, _noted(getattr(engine, name), saving))

    hooks.after_deepspeed.append(permit)

    def refuse(module: Any, state: Any, prefix: str, metadata: Any) -> None:
        own = [it for it in module.parameters(recurse=False) if hasattr(it, "ds_id")]
        if not saving and any(not it.numel() for it in own):
            raise RuntimeError(
                "hotlap: under the lever deepspeed-zero (stage 3) this process holds parts of the weights only. Save "
                "them by engine.save_checkpoint or engine.save_16bit_model."
            )

    for it in model.modules() if model is not None else ():
        it.register_state_dict_post_hook(refuse)


def _noted(call: Callable[..., Any], running: list[str]) -> Callable[..., Any]:
    @functools.wraps(call)
    def noted(*args: Any, **kwargs: Any) -> Any:
        running.append(call.__name__)
        try:
            return call(*args, **kwargs)
        finally:
            running.pop()

    return noted
