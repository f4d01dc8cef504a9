"""The model of an inference target as files that can be deployed: in the form that the plan's levers give it.

An engine writes its own files where ``hooks.artefact`` says; a model that torch runs is exported here. The inputs go
into ``inputs.npz`` next to the folder: they are needed to examine what was written, and are no part of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from hotlap.levers.support.engines import CONTRACT, Arguments, Calls, build
from hotlap.levers.support.programs import as_called, device_of, program_engine, uncompiled
from hotlap.records import WriteArtefact
from hotlap.runtime.instruments.api import Place

FOLDER_NAME, INPUTS_NAME = "artefact", "inputs.npz"


def install(place: Place, asked: WriteArtefact) -> None:
    """Before the first call, when levers have changed the model."""
    hooks = place.hooks
    torch = hooks.torch
    folder = place.directory / FOLDER_NAME
    folder.mkdir()
    hooks.artefact = folder
    hooks.found["artefact_path"] = str(folder)
    others = len(hooks.before_forward)
    device = "cpu"

    def write(model: Any, inputs: Sequence[Arguments]) -> Callable[..., Any]:
        nonlocal device
        device = device_of(model)
        numbers = range(len(inputs))
        engine_follows = len(hooks.takes_over) > 1
        prepares = () if engine_follows else hooks.before_forward[others:]
        # An export records no tensors of inference mode.
        with torch.inference_mode(mode=False), torch.no_grad(), uncompiled(model):
            called = model if engine_follows else as_called(torch, model, prepares, inputs[0])
            with torch.autocast(device, enabled=False):
                calls = Calls(torch, called, inputs)
                if not engine_follows:
                    build(program_engine(asked.compile_mode), calls, folder)
        rows = {f"{number}/{name}": it for number in numbers for name, it in calls.named(*inputs[number]).items()}
        _save(torch, place.directory / INPUTS_NAME, rows)
        return model  # type: ignore[no-any-return]

    def complete() -> None:
        path = folder / CONTRACT
        if path.is_file():
            contract = {**json.loads(path.read_text()), "threads": asked.threads, "device": device}
            path.write_text(json.dumps(contract, indent=2) + "\n")

    hooks.takes_over.append(write)
    hooks.before_exit.append(complete)


def _save(torch: Any, path: Any, rows: dict[str, Any]) -> None:
    """Write tensors as numpy has them: 16-bit formats that it lacks as float32, which holds each of their values."""
    import numpy

    held = {name: it.detach().cpu() for name, it in rows.items()}
    wide = {name: it.float() if it.dtype is torch.bfloat16 else it for name, it in held.items()}
    numpy.savez(path, **{name: it.numpy() for name, it in wide.items()})
