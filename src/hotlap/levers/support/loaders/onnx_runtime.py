"""Load the model of this folder with ONNX Runtime: numpy arrays by name in, numpy arrays by name out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime


def load(folder: str | Path = Path(__file__).parent, threads: int = 0) -> Callable[..., dict[str, Any]]:
    """A function of the model's inputs by name; 0 threads are those of contract.json, or else ONNX Runtime's."""
    contract = json.loads((Path(folder) / "contract.json").read_text())
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or contract["threads"]
    session = onnxruntime.InferenceSession(Path(folder) / "model.onnx", options, providers=["CPUExecutionProvider"])
    outputs = [it.name for it in session.get_outputs()]
    return lambda **arrays: dict(zip(outputs, session.run(outputs, arrays), strict=True))
