"""The time that a fused operator saves in attention, by sequence length and head width.

Runs in the child process of :mod:`hotlap.machine.ceilings`. Attention is computed by its definition (two batched
products with a softmax between them) and by ``torch.nn.functional.scaled_dot_product_attention``, in turns, forward and
back. A fused operator does not write the scores to memory; in return its backward pass computes them again. On a
processor it is often slower for short sequences and narrow heads.

Both are timed with memory that is reused, since whether the C library keeps freed pieces depends on what a process
freed before. The cost of fresh memory is counted separately, by the script's page faults. The heads of a token are
contiguous, as in models.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from hotlap.machine.products import DeviceClock
from hotlap.records import AttentionRate

if TYPE_CHECKING:
    import torch

_TOKENS = (64, 256, 1024)
_HEAD_WIDTHS = (16, 64)
_SCORES = 1 << 20
"""As many heads are computed at once as have this many scores together."""

_KEPT_BYTES = 31 << 20
"""glibc keeps freed pieces up to the largest that it has ever freed, but none above 32 MiB (M_MMAP_THRESHOLD, see
mallopt(3)), and twice as much at the end of its heap."""

_ROUNDS = 3


def measure_attention(
    device: str, clock: DeviceClock, limit_seconds: float, threads: int = 1
) -> tuple[AttentionRate, ...]:
    """Time as many sizes as fit into the limit, float32 first.

    A processor is timed with one thread, and then with ``threads``, which stay set.
    """
    import torch

    torch.empty(_KEPT_BYTES, dtype=torch.uint8)  # freed at once
    end = time.perf_counter() + limit_seconds
    found: list[AttentionRate] = []
    for name in ("float32", "bfloat16", "float16") if device == "cuda" else ("float32", "bfloat16"):
        for tokens, width, count in product(_TOKENS, _HEAD_WIDTHS, _thread_counts(device, threads)):
            if time.perf_counter() > end:
                break
            if count:
                torch.set_num_threads(count)
            found += _rate(device, clock, name, tokens, width, count)
    if device == "cpu":
        torch.set_num_threads(threads)
    return tuple(found)


def _thread_counts(device: str, threads: int) -> list[int]:
    return sorted({1, threads}) if device == "cpu" else [0]


@dataclass(frozen=True, slots=True)
class _Attention:
    """Queries, keys and values of some heads, and the gradient of their output."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    gradient: torch.Tensor

    def eager(self) -> None:
        scores = self.query @ self.key.transpose(-2, -1) / math.sqrt(self.query.shape[-1])
        self._backward(scores.softmax(dim=-1) @ self.value)

    def fused(self) -> None:
        import torch

        self._backward(torch.nn.functional.scaled_dot_product_attention(self.query, self.key, self.value))

    def _backward(self, output: torch.Tensor) -> None:
        import torch

        torch.autograd.grad(output, (self.query, self.key, self.value), self.gradient)


def _rate(device: str, clock: DeviceClock, name: str, tokens: int, width: int, threads: int) -> Iterator[AttentionRate]:
    """The best of some rounds of both; nothing where this torch cannot compute one of them in that format."""
    import torch

    shape = (1, tokens, max(1, _SCORES // tokens**2), width)
    try:
        query, key, value, gradient = (
            torch.randn(shape, device=device).to(getattr(torch, name)).transpose(1, 2) for _ in range(4)
        )
        attention = _Attention(query.requires_grad_(), key.requires_grad_(), value.requires_grad_(), gradient)
        rounds = [(clock.seconds(attention.eager), clock.seconds(attention.fused)) for _ in range(1 + _ROUNDS)]
    except RuntimeError:
        return
    eager, fused = (min(it) for it in zip(*rounds[1:], strict=True))  # the first round prepares the kernels
    yield AttentionRate(
        key=f"{device}:{name}",
        tokens=tokens,
        head_width=width,
        eager_seconds=eager,
        fused_seconds=fused,
        threads=threads,
    )
