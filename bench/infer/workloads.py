"""The models of the benchmark and, by name, each engine used by hand as its own documentation shows.

A user's module as ``hotlap infer`` takes it: ``bert_1`` makes a model and ``bert_1_inputs`` its inputs, of batch 1;
``bert_1__openvino`` is the same model run by hand. ``real_models`` is that of ``tests/inference``.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import real_models
import torch

LENGTH = 128
INPUTS = 16
CALIBRATED = 8
"""The first inputs, which calibrate int8 by hand; outputs of the others are compared."""
NUMBER_FORMATS = {"bfloat16": torch.bfloat16}


def bert() -> torch.nn.Module:
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    return BertModel(BertConfig(), add_pooling_layer=False).eval()


def resnet() -> torch.nn.Module:
    from transformers import ResNetConfig, ResNetForImageClassification

    torch.manual_seed(0)
    return ResNetForImageClassification(ResNetConfig(num_labels=1000)).eval()


MAKERS: dict[str, Callable[[], Any]] = {
    "minilm": real_models.minilm,
    "bert": bert,
    "resnet": resnet,
    "lstm": real_models.lstm,
    "cnn": real_models.cnn,
}


def inputs_of(name: str, batch: int) -> list[Any]:
    """Different inputs of one size."""
    torch.manual_seed(1)
    if name == "minilm":
        return [_padded(it) for it in real_models.tokenized_batches(batch)[:INPUTS]]
    if name == "bert":
        ids = torch.randint(0, 30_000, (INPUTS, batch, LENGTH))
        return [{"input_ids": it, "attention_mask": torch.ones_like(it)} for it in ids]
    if name == "resnet":
        return list(torch.randn(INPUTS, batch, 3, 224, 224))
    digits = torch.cat(real_models.digits())
    return list(digits[: INPUTS * batch].split(batch))


def _padded(tokens: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: torch.nn.functional.pad(it, (0, LENGTH - it.shape[1])) for name, it in tokens.items()}


# -- engines by hand -------------------------------------------------------------------------------------


class ByHand(torch.nn.Module):
    """An engine behind the call of a module, which keeps its weights so that their number format is known."""

    def __init__(self, model: torch.nn.Module, call: Callable[..., Any]) -> None:
        super().__init__()
        self.model = model
        self.call = call

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(*args, **kwargs)


def eager(model: torch.nn.Module, inputs: list[Any]) -> Callable[..., Any]:
    """``torch.inference_mode``."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with torch.inference_mode():
            return model(*args, **kwargs)

    return call


def autocast(model: torch.nn.Module, inputs: list[Any]) -> Callable[..., Any]:
    """``torch.autocast`` in bfloat16."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
            return model(*args, **kwargs)

    return call


def compiled(model: torch.nn.Module, inputs: list[Any]) -> Callable[..., Any]:
    """``torch.compile`` with frozen weights."""
    import torch._inductor.config as inductor

    inductor.freezing = True  # type: ignore[attr-defined]
    return _without_gradients(torch.compile(model))


def compiled_bfloat16(model: torch.nn.Module, inputs: list[Any]) -> Callable[..., Any]:
    """``torch.compile`` with frozen weights, of the model under autocast."""
    import torch._inductor.config as inductor

    inductor.freezing = True  # type: ignore[attr-defined]
    found = torch.compile(model)

    def call(*args: Any, **kwargs: Any) -> Any:
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            return found(*args, **kwargs)

    return call


def torchao_int8(model: torch.nn.Module, inputs: list[Any]) -> Callable[..., Any]:
    """torchao's dynamic int8 of linear layers, compiled with frozen weights."""
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    quantize_(model, Int8DynamicActivationInt8WeightConfig())
    return compiled(model, inputs)


def onnx_runtime(model: torch.nn.Module, inputs: list[Any]) -> Callable[..., Any]:
    """ONNX Runtime with the graph of ``torch.onnx.export``."""
    return _session(_exported(model, inputs[0]))


def onnx_int8(model: torch.nn.Module, inputs: list[Any]) -> Callable[..., Any]:
    """ONNX Runtime with ``quantize_dynamic``."""
    import onnx
    from onnxruntime.quantization import quantize_dynamic

    path = _exported(model, inputs[0])
    graph = onnx.load(path)
    del graph.graph.value_info[:]  # inferred shapes contradict the quantized graph's (onnxruntime 1.31)
    quantized = path.with_name("int8.onnx")
    quantize_dynamic(graph, quantized)
    return _session(quantized)


def openvino(model: torch.nn.Module, inputs: list[Any]) -> Callable[..., Any]:
    """OpenVINO as it comes, which computes in bfloat16 where the processor can."""
    return _openvino(_converted(model, inputs[0]))


def openvino_int8(model: torch.nn.Module, inputs: list[Any]) -> Callable[..., Any]:
    """OpenVINO with NNCF's post-training quantization, calibrated with the first inputs."""
    import nncf

    rows = [tuple(it.numpy() for it in _tensors(one)) for one in inputs[:CALIBRATED]]
    kind = nncf.ModelType.TRANSFORMER if isinstance(inputs[0], dict) else None
    quantized = nncf.quantize(_converted(model, inputs[0]), nncf.Dataset(rows), model_type=kind)
    return _openvino(quantized)


ENGINES = {
    it.__name__: it
    for it in (
        eager,
        autocast,
        compiled,
        compiled_bfloat16,
        torchao_int8,
        onnx_runtime,
        onnx_int8,
        openvino,
        openvino_int8,
    )
}


class _Flat(torch.nn.Module):
    """The model with positional tensors, and a tuple of tensors as its output."""

    def __init__(self, model: torch.nn.Module, example: Any) -> None:
        super().__init__()
        self.model = model
        self.names = tuple(example) if isinstance(example, dict) else ()

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if self.names:
            return tuple(_outputs(self.model(**dict(zip(self.names, tensors, strict=True)))))
        return tuple(_outputs(self.model(*tensors)))


def _outputs(found: Any) -> Iterator[torch.Tensor]:
    if isinstance(found, torch.Tensor):
        yield found
    else:
        yield from (it for it in found.values() if isinstance(it, torch.Tensor))


def _tensors(one: Any) -> tuple[torch.Tensor, ...]:
    return tuple(one.values()) if isinstance(one, dict) else (one,)


def _exported(model: torch.nn.Module, example: Any) -> Path:
    path = Path(tempfile.mkdtemp()) / "model.onnx"
    tensors = _tensors(example)
    names = [f"input_{it}" for it in range(len(tensors))]
    program = torch.onnx.export(_Flat(model, example).eval(), tensors, dynamo=True, input_names=names)
    assert program is not None
    program.save(str(path))
    return path


def _session(path: Path) -> Callable[..., Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [it.name for it in session.get_inputs()]

    def call(*args: Any, **kwargs: Any) -> Any:
        arrays = (it.numpy() for it in (*args, *kwargs.values()))
        return [torch.from_numpy(it) for it in session.run(None, dict(zip(names, arrays, strict=True)))]

    return call


def _converted(model: torch.nn.Module, example: Any) -> Any:
    import openvino

    return openvino.convert_model(_Flat(model, example).eval(), example_input=_tensors(example))


def _openvino(found: Any) -> Callable[..., Any]:
    import openvino

    compiled = openvino.compile_model(found, "CPU", {"INFERENCE_NUM_THREADS": torch.get_num_threads()})

    def call(*args: Any, **kwargs: Any) -> Any:
        arrays = [it.numpy() for it in (*args, *kwargs.values())]
        return [torch.from_numpy(it.copy()) for it in compiled(arrays).to_tuple()]

    return call


def _without_gradients(found: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return found(*args, **kwargs)

    return call


# -- targets by name -------------------------------------------------------------------------------------


def _model(name: str, batch: int, engine: str) -> torch.nn.Module:
    torch.set_num_threads(2)
    model: torch.nn.Module = MAKERS[name]()
    if not engine:
        return model
    return ByHand(model, ENGINES[engine](model, inputs_of(name, batch))).eval()


def __getattr__(target: str) -> Callable[[], Any]:
    """``bert_8``, ``bert_8_inputs`` and ``bert_8__openvino``."""
    whole, _, engine = target.partition("__")
    name, _, rest = whole.partition("_")
    batch, _, what = rest.partition("_")
    if name not in MAKERS or not batch.isdecimal() or (engine and engine not in ENGINES):
        raise AttributeError(f"module has no attribute {target!r}")
    if what == "inputs":
        return functools.partial(inputs_of, name, int(batch))
    return functools.partial(_model, name, int(batch), engine)
