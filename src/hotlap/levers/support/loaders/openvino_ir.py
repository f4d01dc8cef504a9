"""Load the model of this folder with OpenVINO: numpy arrays by name in, numpy arrays by name out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openvino


def load(folder: str | Path = Path(__file__).parent, threads: int = 0) -> Callable[..., dict[str, Any]]:
    """A function of the model's inputs by name; 0 threads are those of contract.json, or else OpenVINO's."""
    contract = json.loads((Path(folder) / "contract.json").read_text())
    options = {"INFERENCE_PRECISION_HINT": contract["hint"], "PERFORMANCE_HINT": "LATENCY"}
    threads = threads or contract["threads"]
    options |= {"INFERENCE_NUM_THREADS": threads} if threads else {}
    model = openvino.Core().compile_model(Path(folder) / "model.xml", "CPU", options)
    inputs, outputs = ([it["name"] for it in contract[side]] for side in ("inputs", "outputs"))

    def call(**arrays: Any) -> dict[str, Any]:
        found = model([arrays[name] for name in inputs])
        return {name: found[index] for index, name in enumerate(outputs)}

    return call
