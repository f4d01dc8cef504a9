"""Write a model as ONNX, and have ONNX Runtime say what it executes. Not a lever itself."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotlap.levers.support.engines import Calls

MODEL_FILE = "model.onnx"


def export(calls: Calls, folder: Path) -> Path:
    """Write the model with the names of its inputs and outputs; return the file. Raises ValueError, with the cause, for
    an operator that ONNX lacks."""
    onnx = calls.torch.onnx
    try:
        program = onnx.export(
            calls.exported(),
            (),
            dynamo=True,
            verbose=False,
            input_names=list(calls.dynamic),
            output_names=list(calls.outputs),
        )
    except onnx.OnnxExporterError as error:
        raise ValueError(f"The model cannot be written as ONNX: {_cause_of(error)}") from error
    program.save(folder / MODEL_FILE)
    return folder / MODEL_FILE


def _cause_of(error: BaseException) -> str:
    """The first line of what an error was raised from in the end."""
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error).partition("\n")[0]


@dataclass(frozen=True, slots=True)
class Executed:
    """The kinds of the operators that ONNX Runtime executes after fusion, and the provider of each that it assigned."""

    kinds: tuple[str, ...]
    providers: tuple[str, ...]


def executed(folder: Path, providers: Sequence[Any], *, fused: bool = True) -> Executed:
    """Open a second session, which records the provider of each operator and, with ``fused``, writes its graph after
    fusion: only that one shows integers where a static quantization puts conversions around operators."""
    import onnx
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    options.log_severity_level = 3  # it warns that the graph it writes is for this machine
    kinds: tuple[str, ...] = ()
    with tempfile.TemporaryDirectory() as written:
        path = Path(written) / MODEL_FILE
        if fused:
            options.optimized_model_filepath = str(path)
            name = "session.optimized_model_external_initializers_file_name"
            options.add_session_config_entry(name, f"{MODEL_FILE}.data")
        session = onnxruntime.InferenceSession(folder / MODEL_FILE, options, providers=list(providers))
        if fused:
            kinds = tuple(it.op_type for it in onnx.load(path, load_external_data=False).graph.node)
    assigned = session.get_provider_graph_assignment_info()
    return Executed(kinds, tuple(it.ep_name for it in assigned for _ in it.get_nodes()))
