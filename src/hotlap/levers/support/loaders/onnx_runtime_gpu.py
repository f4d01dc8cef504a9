"""Load the model of this folder with ONNX Runtime on a GPU: tensors by name in, tensors on its device by name out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import onnxruntime
import torch
import torch.utils.dlpack


def load(folder: str | Path = Path(__file__).parent, threads: int = 0) -> Callable[..., dict[str, Any]]:
    """A function of the model's inputs by name; 0 threads are those of contract.json, or else ONNX Runtime's.

    Raises RuntimeError where the GPU's provider cannot be loaded: ONNX Runtime would take the CPU instead.
    """
    contract = json.loads((Path(folder) / "contract.json").read_text())
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or contract["threads"]
    providers = [(name, _in_folder(values, Path(folder))) for name, values in contract["providers"]]
    session = onnxruntime.InferenceSession(Path(folder) / "model.onnx", options, providers=providers)
    missing = [name for name, _ in providers if name not in session.get_providers()]
    if missing:
        raise RuntimeError(f"ONNX Runtime cannot load {missing[0]}; it has {', '.join(session.get_providers())}.")
    device: str = contract["runs_on"]
    outputs = [it.name for it in session.get_outputs()]

    def call(**tensors: Any) -> dict[str, Any]:
        binding = session.io_binding()
        held = {name: it.to(device).contiguous() for name, it in tensors.items()}
        for name, it in held.items():
            kind = numpy.dtype(str(it.dtype).removeprefix("torch."))
            binding.bind_input(name, device, 0, kind, tuple(it.shape), it.data_ptr())
        for name in outputs:
            binding.bind_output(name, device)
        if device == "cuda":  # ONNX Runtime has a stream of its own
            torch.cuda.current_stream().synchronize()
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        found = (torch.utils.dlpack.from_dlpack(it) for it in binding.get_outputs())
        return dict(zip(outputs, found, strict=True))

    return call


def _in_folder(values: dict[str, str], folder: Path) -> dict[str, str]:
    """Paths of the provider's options are within the folder."""
    return {key: str(folder / it) if key.endswith("_path") else it for key, it in values.items()}
