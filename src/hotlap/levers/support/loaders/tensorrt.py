"""Load the model of this folder, which Torch-TensorRT compiled: tensors by name in, tensors by name out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch_tensorrt  # noqa: F401  # it registers the operator that runs an engine


def load(folder: str | Path = Path(__file__).parent, threads: int = 0) -> Callable[..., dict[str, Any]]:
    """A function of the model's inputs by name; 0 threads are those of contract.json, or else torch's."""
    contract = json.loads((Path(folder) / "contract.json").read_text())
    if threads or contract["threads"]:
        torch.set_num_threads(threads or contract["threads"])
    model = torch.export.load(Path(folder) / "model.pt2").module()
    inputs, outputs = ([it["name"] for it in contract[side]] for side in ("inputs", "outputs"))

    def call(**tensors: Any) -> dict[str, Any]:
        with torch.inference_mode():
            found = model(*(tensors[name] for name in inputs))
        found = (found,) if isinstance(found, torch.Tensor) else found
        return dict(zip(outputs, found, strict=True))

    return call
