"""The engines that ``workloads.py``, which only trials import, uses by hand, by the models they are meant for."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

_TORCH = ("eager", "autocast", "compiled", "compiled_bfloat16")
_OPENVINO = ("openvino", "openvino_int8")
_TRANSFORMER = (*_TORCH, "torchao_int8", "pt2e_int8", "aot_inductor", "onnx_runtime", "onnx_int8", *_OPENVINO)
_CONVOLUTIONS = (*_TORCH, "pt2e_int8", "aot_inductor", "onnx_runtime", "onnx_int8_static", *_OPENVINO)
_RECURRENT = (*_TORCH, "torchscript", "onnx_runtime", "onnx_int8", *_OPENVINO)

ENGINES: Final = MappingProxyType(
    {
        "minilm": _TRANSFORMER,
        "bert": _TRANSFORMER,
        "resnet": _CONVOLUTIONS,
        "lstm": _RECURRENT,
        "cnn": _CONVOLUTIONS,
    }
)
"""As the engines' documentation recommends: static int8 for convolutions, dynamic for other models."""
