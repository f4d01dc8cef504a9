"""The program of an inference target: make the model and its inputs, then call the model on one input after the other.

``python -m hotlap.runtime.inference module:make_model --inputs module:make_inputs`` is what a trial starts; in place of
a function there may be a path (:mod:`hotlap.runtime.saved_models`). Calls go on, under ``torch.no_grad()``, until the
controller ends the process: the inputs are used again and again, in their order, or with ``--lengths`` all of them in
each unit of work. Inputs that are arguments of ``generate()`` go there. If the user's functions raise an exception or
return something unusable, the trial ends as a crash of the script.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from hotlap.runtime import shared_calls
from hotlap.runtime.outputs import consume
from hotlap.runtime.passes import NoLengths, Passes, Sequences
from hotlap.runtime.prompts import calls_of, facts_of
from hotlap.runtime.resting import resting_bytes
from hotlap.runtime.saved_models import model_from
from hotlap.runtime.tokens import Tokens, are_prompts

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Hooks

MOST_INPUTS = 256
"""How many inputs are taken from ``make_inputs``, which may yield any number."""

Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]


def main(words: Sequence[str]) -> None:
    """Call the model until the process is ended. Raises what the user's functions and the model raise."""
    parser = argparse.ArgumentParser(prog="hotlap infer", allow_abbrev=False)
    parser.add_argument("model")
    parser.add_argument("--inputs", required=True)
    parser.add_argument("--metric", default="")
    parser.add_argument("--lengths", action="store_true")
    choices = parser.parse_args(words)
    is_function = ":" in choices.model
    make_model = function_named(choices.model) if is_function else None
    make_inputs = function_named(choices.inputs)
    evaluate = function_named(choices.metric) if choices.metric else None
    import torch

    from hotlap.runtime.boot import active

    interception = active()
    if interception is None:
        raise RuntimeError("This program is a part of hotlap's trials; run `hotlap infer` instead.")
    model = make_model() if make_model is not None else model_from(torch, choices.model)
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"{choices.model} returned a {type(model).__name__}, which is no torch.nn.Module.")
    inputs = taken_inputs(make_inputs(), choices.inputs)
    hooks = interception.hooks
    hooks.inputs = len(inputs)
    hooks.metric = (choices.metric, evaluate) if evaluate is not None else None
    if are_prompts(model, inputs) and not choices.lengths:
        hooks.generation = Tokens(torch, facts_of(model, inputs))
    sequences = _sequences(torch, inputs, required=choices.lengths) if hooks.generation is None else None
    hooks.lengths = sequences.facts(whole_passes=choices.lengths) if sequences is not None else None
    if hooks.generation is None and not choices.lengths:
        hooks.shared_calls = shared_calls.possible_sizes(inputs)
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        # Before levers change the model: which of its outputs have the length of the input.
        passes = Passes(sequences, model, hooks.batching) if choices.lengths and sequences is not None else None
        interception.roots.settle(model)
        for enter in hooks.around_calls:
            stack.enter_context(enter())
        if hooks.generation is not None:
            _generate_from_each(hooks, hooks.generation, model, inputs)
        elif passes is not None:
            _pass_over_all(hooks, model, passes)
        else:
            _call_on_each(hooks, model, inputs)


def _call_on_each(hooks: Hooks, model: Any, inputs: Sequence[Arguments]) -> None:
    calls = shared_calls.calls_of(hooks.torch, inputs, hooks.inputs_per_call)
    call = _taken_over(hooks, model, [it.arguments for it in calls])
    _count_calibrated_inputs(hooks, calls)
    if hooks.artefact is not None:  # which is called with what shares a call here
        hooks.inputs = len(calls)
    hooks.found["resting_bytes"] = resting_bytes(hooks.torch, model)
    for number, it in enumerate(itertools.cycle(calls)):
        args, kwargs = it.arguments
        for prepare in hooks.before_forward:
            args, kwargs = prepare(model, args, kwargs)
        output = call(*args, **kwargs)
        consume(output)
        if hooks.after_forward or not number:
            for answer in (output,) if hooks.artefact is not None else it.answers(output):
                for tell in hooks.after_forward:
                    tell(model, answer)
        for finish in hooks.call_ended:
            finish()


def _count_calibrated_inputs(hooks: Hooks, calls: Sequence[shared_calls.SharedCall]) -> None:
    """An engine calibrates with calls, and what calibrated it is left out by inputs."""
    engine = hooks.found.get("engine")
    if engine is not None and engine.calibrated_inputs and hooks.artefact is None:
        count = sum(len(it.parts) for it in calls[: engine.calibrated_inputs])
        hooks.found["engine"] = msgspec.structs.replace(engine, calibrated_inputs=count)


def _generate_from_each(hooks: Hooks, tokens: Tokens, model: Any, inputs: Sequence[Arguments]) -> None:
    """A call of ``generate()``, for one prompt or as many as a lever puts together, is a unit of work."""
    hooks.found["resting_bytes"] = resting_bytes(hooks.torch, model)
    for it in itertools.cycle(calls_of(hooks.torch, model, inputs, hooks.prompts_per_call)):
        args, kwargs = it.arguments
        for prepare in hooks.before_forward:
            args, kwargs = prepare(model, args, kwargs)
        output = tokens.call(type(model).generate, model, *args, **kwargs)
        consume(output)
        if hooks.after_forward:
            for answer in it.answers(hooks.torch, tokens, model, output):
                for tell in hooks.after_forward:
                    tell(model, answer)
        for finish in hooks.call_ended:
            finish()


def _pass_over_all(hooks: Hooks, model: Any, passes: Passes) -> None:
    """All sequences, in batches of the requested kind, are one unit of work."""
    call = _taken_over(hooks, model, [it.arguments for it in passes.batches])
    hooks.found["resting_bytes"] = resting_bytes(hooks.torch, model)
    last = len(passes.batches) - 1
    while True:
        for number, it in enumerate(passes.batches):
            args, kwargs = it.arguments
            for prepare in hooks.before_forward:
                args, kwargs = prepare(model, args, kwargs)
            output = call(*args, **kwargs)
            consume(output)
            passes.keep(it, output)
            if number < last:
                for part_ended in hooks.part_ended:
                    part_ended()
        if hooks.after_forward:
            for output in passes.outputs():
                for tell in hooks.after_forward:
                    tell(model, output)
        for finish in hooks.call_ended:
            finish()


def _taken_over(hooks: Hooks, model: Any, inputs: Sequence[Arguments]) -> Callable[..., Any]:
    call: Callable[..., Any] = model
    for take_over in hooks.takes_over:
        call = take_over(model, inputs)
    return call


def _sequences(torch: ModuleType, inputs: Sequence[Arguments], *, required: bool) -> Sequences | None:
    """The inputs as sequences with lengths; None if they are not, which is an error if it is ``required``."""
    try:
        return Sequences(torch, inputs)
    except NoLengths:
        if required:
            raise
        return None


def function_named(target: str) -> Callable[..., Any]:
    """What ``module:function`` names. Raises ImportError, AttributeError, or TypeError for what cannot be called."""
    module, colon, name = target.partition(":")
    if not (module and colon and name):
        raise ValueError(f"{target!r} names no function: write it as module:function.")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if not callable(found):
        raise TypeError(f"{target} is a {type(found).__name__}, which cannot be called.")
    made: Callable[..., Any] = found
    return made


def taken_inputs(made: Any, target: str) -> list[Arguments]:
    """The first inputs of what the user's function returned, as arguments of a call each.

    A tensor or a mapping is a single input; of anything else each item is one. A tuple or list holds positional
    arguments, a mapping named ones, and anything else is the only argument.
    """
    if hasattr(made, "dim") or isinstance(made, Mapping):
        return [as_arguments(made)]
    try:
        items: Iterator[Any] = iter(made)
    except TypeError as error:
        raise TypeError(f"{target} returned a {type(made).__name__}, which holds no inputs.") from error
    inputs = [as_arguments(it) for it in itertools.islice(items, MOST_INPUTS)]
    if not inputs:
        raise ValueError(f"{target} gave no inputs.")
    return inputs


def as_arguments(item: Any) -> Arguments:
    """What the model is called with for one input."""
    if isinstance(item, Mapping):
        return (), {str(key): value for key, value in item.items()}
    if isinstance(item, (tuple, list)):
        return tuple(item), {}
    return (item,), {}


if __name__ == "__main__":
    main(sys.argv[1:])
