"""Modules with their operators, kernels and backward, as tests write them into traces."""

from __future__ import annotations

from typing import Any

from trace_writer import TraceWriter

BACKWARD_THREAD = 7
ENGINE = "autograd::engine::evaluate_function: "


def module(writer: TraceWriter, name: str, start: float, length: float, **where: Any) -> None:
    writer.host("python", f"nn.Module: {name}", start, length, **where)


def sequence(number: int, forward_thread: int = 0) -> dict[str, int]:
    return {"Sequence number": number, "Fwd thread id": forward_thread}


def two_layers(writer: TraceWriter, begin: float = 0) -> None:
    """Write a model with two linear layers and an own operator: 50 and 70 in the layers, 5 outside."""
    writer.host("python", "train.py(5): step", begin, 500)
    module(writer, "Net_0", begin + 10, 200)
    writer.host("python", "model.py(9): forward", begin + 11, 198)
    for number, length in enumerate((50, 70)):
        at = begin + 20 + 50 * number
        module(writer, f"Linear_{number}", at, 40)
        writer.host("python", "torch/nn/modules/linear.py(110): forward", at + 1, 38)
        writer.host("operator", "aten::addmm", at + 5, 20, **sequence(10 + number))
        writer.launch("gemm", at + 7, begin + 1000 + 100 * number, length)
    writer.host("operator", "aten::relu", begin + 150, 20, **sequence(12))
    writer.launch("relu", begin + 152, begin + 1300, 5)


def backward(
    writer: TraceWriter, number: int, start: float, kernel_at: float, length: float, forward_thread: int = 1,
    thread: int = BACKWARD_THREAD,
) -> None:  # fmt: skip
    """Write an engine operator and the operator it calls, which has no sequence number."""
    args = sequence(number, forward_thread)
    writer.host("operator", ENGINE + "AddmmBackward0", start, 40, thread=thread, **args)
    writer.host("operator", "AddmmBackward0", start + 2, 30, thread=thread, **args)
    writer.host("operator", "aten::mm", start + 4, 20, thread=thread)
    writer.launch("gemm_backward", start + 6, kernel_at, length, thread=thread)
