"""The models of the benchmark and, by name, each engine used by hand as its own documentation shows.

A user's module as ``hotlap infer`` takes it: ``bert_1`` makes a model and ``bert_1_inputs`` its inputs, of batch 1;
``bert_1_others`` are as many others, and ``bert_1__openvino`` is the same model run by hand. ``real_models`` is that of
``tests/inference``. What an engine writes is kept for later launches, as hotlap keeps it for its own.
"""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import real_models
import torch

LENGTH = 128
SAMPLES = {"minilm": 256, "bert": 128, "resnet": 128, "lstm": 256, "cnn": 256}
"""So many rows have the inputs of each model, whatever their batch size: as many decisions are compared. The first half
of the inputs calibrates int8, and outputs of the other half are compared."""


def bert() -> torch.nn.Module:
    """Four of the twelve layers of the base size, which are all alike."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    return BertModel(BertConfig(num_hidden_layers=4), add_pooling_layer=False).eval()


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


def inputs_of(name: str, batch: int, *, others: bool = False) -> list[Any]:
    """Different inputs of one size; with ``others`` as many that are not among the first ones."""
    torch.manual_seed(2 if others else 1)
    count = SAMPLES[name]
    if name == "minilm":
        texts = other_sentences(count) if others else real_models.sentences(count)
        return [_padded(it) for it in real_models.tokenized(texts, batch)]
    if name == "bert":
        ids = torch.randint(0, 30_000, (count // batch, batch, LENGTH))
        return [{"input_ids": it, "attention_mask": torch.ones_like(it)} for it in ids]
    if name == "resnet":
        return list(torch.randn(count // batch, batch, 3, 224, 224))
    images, _ = real_models.labelled_digits()
    first = 1200 + (count if others else 0)  # the earlier ones were trained on
    return list(images[first : first + count].split(batch))


def other_sentences(count: int) -> list[str]:
    """Documentation strings of other modules than those of ``real_models.sentences``."""
    import http.client
    import json
    import logging
    import random
    import socket
    import statistics
    import tarfile
    import unittest
    import zipfile

    known = set(real_models.sentences(10_000))
    modules = (http.client, json, logging, random, socket, statistics, tarfile, unittest, zipfile)
    found = dict.fromkeys(it for it in real_models.documentation(modules) if it not in known)
    return list(found)[:count]


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


def pt2e_int8(model: torch.nn.Module, inputs: list[Any]) -> Callable[..., Any]:
    """PT2E with the quantizer for x86 processors: static for convolutions, dynamic for transformers."""
    from torchao.quantization.pt2e import move_exported_model_to_eval
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    program = torch.export.export(_Flat(model, inputs[0]).eval(), _tensors(inputs[0]))
    quantizer = x86.X86InductorQuantizer()
    is_dynamic = isinstance(inputs[0], dict)
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config(is_dynamic=is_dynamic))
    with torch.no_grad():
        prepared = prepare_pt2e(program.module(), quantizer)
        for one in _calibrating(inputs):
            prepared(*_tensors(one))
        quantized = convert_pt2e(prepared)
    move_exported_model_to_eval(quantized)
    return _by_position(compiled(quantized, inputs))


def aot_inductor(model: torch.nn.Module, inputs: list[Any]) -> Callable[..., Any]:
    """``torch.export`` and ``aoti_compile_and_package``, with frozen weights."""

    def write(folder: Path) -> None:
        path = str(folder / "model.pt2")
        with torch.no_grad():
            program = torch.export.export(_Flat(model, inputs[0]).eval(), _tensors(inputs[0]))
            torch._inductor.aoti_compile_and_package(program, package_path=path, inductor_configs={"freezing": True})

    package: Callable[..., Any] = torch._inductor.aoti_load_package(str(_built(write) / "model.pt2"))
    return _by_position(_without_gradients(package))


def torchscript(model: torch.nn.Module, inputs: list[Any]) -> Callable[..., Any]:
    """``torch.jit``: traced, frozen, and optimized for inference."""
    with torch.no_grad():
        traced = torch.jit.trace(_Flat(model, inputs[0]).eval(), _tensors(inputs[0]))
    found: Callable[..., Any] = torch.jit.optimize_for_inference(torch.jit.freeze(traced))
    return _by_position(_without_gradients(found))


def onnx_runtime(model: torch.nn.Module, inputs: list[Any]) -> Callable[..., Any]:
    """ONNX Runtime with the graph of ``torch.onnx.export``."""
    return _session(_built(functools.partial(_export, model, inputs[0])) / "model.onnx")


def onnx_int8(model: torch.nn.Module, inputs: list[Any]) -> Callable[..., Any]:
    """ONNX Runtime with ``quantize_dynamic``, recommended for transformers and recurrent networks."""
    from onnxruntime.quantization import quantize_dynamic

    def write(folder: Path) -> None:
        _export(model, inputs[0], folder)
        quantize_dynamic(_without_inferred_shapes(folder / "model.onnx"), folder / "int8.onnx")

    return _session(_built(write) / "int8.onnx")


def onnx_int8_static(model: torch.nn.Module, inputs: list[Any]) -> Callable[..., Any]:
    """ONNX Runtime with ``quantize_static``, recommended for convolutions."""
    from onnxruntime.quantization import CalibrationDataReader, quantize_static

    base: Any = CalibrationDataReader

    class Inputs(base):  # type: ignore[misc]
        def __init__(self) -> None:
            self._rows = iter([{"input_0": it.numpy()} for one in _calibrating(inputs) for it in _tensors(one)])

        def get_next(self) -> dict[str, Any] | None:
            return next(self._rows, None)

    def write(folder: Path) -> None:
        _export(model, inputs[0], folder)
        quantize_static(folder / "model.onnx", folder / "int8.onnx", Inputs(), per_channel=True)

    return _session(_built(write) / "int8.onnx")


def openvino(model: torch.nn.Module, inputs: list[Any]) -> Callable[..., Any]:
    """OpenVINO as it comes, which computes in bfloat16 where the processor can."""
    return _openvino(lambda: _converted(model, inputs[0]))


def openvino_int8(model: torch.nn.Module, inputs: list[Any]) -> Callable[..., Any]:
    """OpenVINO with NNCF's post-training quantization, calibrated with the first inputs."""

    def quantized() -> Any:
        import nncf

        rows = [tuple(it.numpy() for it in _tensors(one)) for one in _calibrating(inputs)]
        kind = nncf.ModelType.TRANSFORMER if isinstance(inputs[0], dict) else None
        return nncf.quantize(_converted(model, inputs[0]), nncf.Dataset(rows), model_type=kind)

    return _openvino(quantized)


ENGINES = {
    it.__name__: it
    for it in (
        eager,
        autocast,
        compiled,
        compiled_bfloat16,
        torchao_int8,
        pt2e_int8,
        aot_inductor,
        torchscript,
        onnx_runtime,
        onnx_int8,
        onnx_int8_static,
        openvino,
        openvino_int8,
    )
}


def _calibrating(inputs: list[Any]) -> list[Any]:
    return inputs[: len(inputs) // 2]


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


def _export(model: torch.nn.Module, example: Any, folder: Path) -> None:
    tensors = _tensors(example)
    names = [f"input_{it}" for it in range(len(tensors))]
    program = torch.onnx.export(_Flat(model, example).eval(), tensors, dynamo=True, input_names=names)
    assert program is not None
    program.save(str(folder / "model.onnx"))


def _without_inferred_shapes(path: Path) -> Any:
    """They contradict the quantized graph's (onnxruntime 1.31)."""
    import onnx

    graph = onnx.load(path)
    del graph.graph.value_info[:]
    return graph


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


def _openvino(make: Callable[[], Any]) -> Callable[..., Any]:
    import openvino

    path = _built(lambda folder: openvino.save_model(make(), folder / "model.xml", compress_to_fp16=False))
    threads = {"INFERENCE_NUM_THREADS": torch.get_num_threads()}
    compiled = openvino.compile_model(path / "model.xml", "CPU", threads)

    def call(*args: Any, **kwargs: Any) -> Any:
        arrays = [it.numpy() for it in (*args, *kwargs.values())]
        return [torch.from_numpy(it.copy()) for it in compiled(arrays).to_tuple()]

    return call


def _by_position(found: Callable[..., Any]) -> Callable[..., Any]:
    """An exported model takes its tensors in the order in which it was exported."""
    return lambda *args, **kwargs: found(*args, *kwargs.values())


def _without_gradients(found: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return found(*args, **kwargs)

    return call


# -- what an engine writes is written once ---------------------------------------------------------------


_folder = Path(tempfile.gettempdir()) / "unused"


def _built(write: Callable[[Path], object]) -> Path:
    """The folder with what an earlier launch of this engine wrote, or else with what ``write`` does."""
    if not _folder.exists():
        making = Path(tempfile.mkdtemp(dir=_folder.parent))
        write(making)
        with contextlib.suppress(OSError):  # another launch was faster, and its files are the same
            making.rename(_folder)
    return _folder


def _keep_files(name: str) -> None:
    """In the folder where hotlap's own engines are kept for the launches of an executor."""
    global _folder
    shared = Path(os.environ.get("HOTLAP_BUILT_ENGINES") or tempfile.mkdtemp())
    _folder = shared / f"by-hand-{name}"
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.fspath(shared / f"compiled-{name}")


# -- targets by name -------------------------------------------------------------------------------------


def _model(name: str, batch: int, engine: str) -> torch.nn.Module:
    torch.set_num_threads(2)
    model: torch.nn.Module = MAKERS[name]()
    if not engine:
        return model
    _keep_files(f"{name}-{batch}-{engine}")
    return ByHand(model, ENGINES[engine](model, inputs_of(name, batch))).eval()


def __getattr__(target: str) -> Callable[[], Any]:
    """``bert_8``, ``bert_8_inputs``, ``bert_8_others`` and ``bert_8__openvino``."""
    whole, _, engine = target.partition("__")
    name, _, rest = whole.partition("_")
    batch, _, what = rest.partition("_")
    if name not in MAKERS or not batch.isdecimal() or (engine and engine not in ENGINES):
        raise AttributeError(f"module has no attribute {target!r}")
    if what in ("inputs", "others"):
        return functools.partial(inputs_of, name, int(batch), others=what == "others")
    return functools.partial(_model, name, int(batch), engine)
