"""Call a deployed model in place of an inference target's model, so that both can take turns."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hotlap.levers.support.engines import LOADER, Arguments, Calls, called_by_tensors, contract_of
from hotlap.records import UseArtefact
from hotlap.runtime.instruments.api import Place


def install(place: Place, asked: UseArtefact) -> None:
    """Load it by its own loader before the first call."""
    torch = place.hooks.torch
    folder = Path(asked.folder)

    def take_over(model: Any, inputs: Sequence[Arguments]) -> Callable[..., Any]:
        spec = importlib.util.spec_from_file_location("hotlap_artefact", folder / LOADER)
        if spec is None or spec.loader is None:
            raise ImportError(f"{folder / LOADER} cannot be imported.")
        loader = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loader)
        contract = contract_of(folder)
        run = loader.load(folder, contract["threads"] or torch.get_num_threads())
        return called_by_tensors(Calls(torch, model, inputs), run, takes_numpy=contract["arrays"] == "numpy")

    place.hooks.takes_over.append(take_over)
