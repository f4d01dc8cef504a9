"""The names of the engines that ``workloads.py`` uses by hand; that file is imported only in trials."""

from __future__ import annotations

NAMES = (
    "eager",
    "autocast",
    "compiled",
    "compiled_bfloat16",
    "torchao_int8",
    "onnx_runtime",
    "onnx_int8",
    "openvino",
    "openvino_int8",
)
