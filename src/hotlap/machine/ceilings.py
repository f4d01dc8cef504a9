"""The rates that this machine reaches: matrix products, memory, and copies to the device.

Runs in a child, since it imports torch and holds the device::

    python -m hotlap.machine.ceilings --device cuda --seconds 3

writes one JSON object of :class:`hotlap.records.Ceilings`. Each rate is the best of many short tries within a bounded
time: a ceiling is what the machine can do, and whatever disturbs a try makes it only slower. Operands are random,
because a device that multiplies zeros draws less power and clocks higher than it does in training. A product of n x n
matrices counts 2 n^3 operations; a copy within memory counts the bytes read and those written, as STREAM does
(McCalpin, 1995).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from hotlap.errors import UsageError
from hotlap.machine import processor
from hotlap.records import Ceilings

if TYPE_CHECKING:
    import torch

# Of the time given: products, then memory, then (with a device) both kinds of copy to it.
_SHARE_OF_PRODUCTS = 0.6
_SHARE_OF_MEMORY = 0.2
_SMALLEST_SIDE = 128
_SIDE_OF_REAL_WORK = 512
_LARGEST_SIDE = 8192
_LARGEST_COPY_BYTES = 1 << 28
# On a device a copy within memory is so fast that starting and awaiting it would count with a smaller one.
_LARGEST_COPY_ON_DEVICE_BYTES = 1 << 31
_PRODUCTS_PER_TRY_ON_DEVICE = 8
_LONGEST_TRY_SECONDS = 0.03
_SIZES_AT_ONCE = 3
_LEAST_ROUNDS = 3
# A precision that reaches less than this share of the fastest is emulated; more tries would only take time.
_HOPELESS = 0.1


def measure(device: str, seconds: float = 3.0) -> Ceilings:
    """The rates of ``cpu`` or ``cuda``, in about ``seconds`` of work (the start of the device comes on top).

    On the processor all physical cores that are available work, or half of them where that multiplies faster: on a
    machine that is shared, every thread more is one more that can be waited for. ``memory_bytes_per_second`` is the
    memory of the device named. Raises :class:`UsageError` for a device that torch cannot use here, and for seconds
    below 0.1 or above 600.
    """
    import torch

    if device not in {"cpu", "cuda"}:
        raise UsageError(f"There are no ceilings for the device {device!r}.", remedy="Ask for cpu or cuda.")
    if not 0.1 <= seconds <= 600:
        raise UsageError(f"{seconds} seconds make no sense.", remedy="Give between 0.1 and 600 seconds.")
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError("torch can use no CUDA device here.", remedy="`hotlap doctor` says why.")
    clock = _DeviceClock(torch.cuda.synchronize) if device == "cuda" else _DeviceClock(lambda: None)
    with torch.inference_mode():
        measure_products = _products_of_processor if device == "cpu" else _products
        products = measure_products(device, clock, seconds * _SHARE_OF_PRODUCTS)
        memory = _memory_rate(device, clock, seconds * _SHARE_OF_MEMORY)
        pageable, pinned = _copy_rates(clock, seconds * _SHARE_OF_MEMORY) if device == "cuda" else (None, None)
    return Ceilings(
        matmul_flops_per_second=tuple(sorted(products.items())),
        memory_bytes_per_second=memory,
        host_to_device_pageable_bytes_per_second=pageable,
        host_to_device_pinned_bytes_per_second=pinned,
    )


def merged(first: Ceilings, second: Ceilings) -> Ceilings:
    """The rates of both, the first's where both have one: a device's ceilings and those of the processor beside it."""
    products = dict(second.matmul_flops_per_second) | dict(first.matmul_flops_per_second)
    scalars = {
        name: getattr(first, name) if getattr(first, name) is not None else getattr(second, name)
        for name in Ceilings.__struct_fields__
        if name not in ("matmul_flops_per_second", "other_load")
    }
    other_load = max(first.other_load, second.other_load)
    return Ceilings(matmul_flops_per_second=tuple(sorted(products.items())), other_load=other_load, **scalars)


@dataclass(frozen=True, slots=True)
class _DeviceClock:
    """Times work on a device that runs behind the processor: it is waited for at both ends."""

    wait: Callable[[], object]

    def seconds(self, work: Callable[[], object]) -> float:
        self.wait()
        start = time.perf_counter()
        work()
        self.wait()
        return max(time.perf_counter() - start, 1e-9)

    def best(self, work: Callable[[], object], limit_seconds: float, least: int = 3) -> float:
        """The least seconds of as many tries as fit into the limit, after one that does not count; some at least."""
        end = time.perf_counter() + limit_seconds
        self.seconds(work)
        best, tries = float("inf"), 0
        while tries < least or time.perf_counter() < end:
            best = min(best, self.seconds(work))
            tries += 1
        return best


# ---------------------------------------------------------------------------------------------
# Matrix products
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Product:
    """The operands of one size, and where the result goes."""

    left: torch.Tensor
    right: torch.Tensor
    result: torch.Tensor
    repeats: int

    def compute(self) -> None:
        import torch

        for _ in range(self.repeats):
            torch.mm(self.left, self.right, out=self.result)

    @property
    def operations(self) -> float:
        return 2.0 * self.left.shape[0] ** 3 * self.repeats


@dataclass(slots=True)
class _Contestant:
    """One precision. Its largest size doubles as long as a try stays short; its last sizes are all tried, since on a
    contended machine the small ones slip between the others' time slices, and on a free one the large ones win."""

    name: str
    dtype: torch.dtype
    precision: str
    products: list[_Product] = field(default_factory=list)
    best_flops_per_second: float = 0.0


def _products_of_processor(device: str, clock: _DeviceClock, limit_seconds: float) -> dict[str, float]:
    """All rates with the number of threads that is best for float32: only rates of equal threads can be compared,
    and it is their comparison that tells hardware from emulation."""
    import torch

    cores = processor.physical_cores()
    found = []
    for threads in sorted({max(1, cores // 2), cores}):
        torch.set_num_threads(threads)
        found.append((threads, _products(device, clock, limit_seconds / min(cores, 2))))
    threads, rates = max(found, key=lambda it: it[1][f"{device}:float32"])
    torch.set_num_threads(threads)
    return rates


def _products(device: str, clock: _DeviceClock, limit_seconds: float) -> dict[str, float]:
    """The best rate of each precision. They take turns, so that what disturbs the machine disturbs all alike."""
    running = _contestants(device)
    finished: list[_Contestant] = []
    end = time.perf_counter() + limit_seconds
    rounds = 0
    while running and (rounds < _LEAST_ROUNDS or time.perf_counter() < end):
        running = [it for it in running if _take_turn(it, device, clock)]
        rounds += 1
        reference = max((it.best_flops_per_second for it in running), default=0.0)
        if rounds >= _LEAST_ROUNDS:
            hopeless = [it for it in running if it.best_flops_per_second < _HOPELESS * reference]
            finished += hopeless
            running = [it for it in running if it not in hopeless]
    return {f"{device}:{it.name}": it.best_flops_per_second for it in running + finished}


def _contestants(device: str) -> list[_Contestant]:
    import torch

    contestants = [
        _Contestant("float32", torch.float32, "highest"),
        _Contestant("bfloat16", torch.bfloat16, "highest"),
        _Contestant("float16", torch.float16, "highest"),
    ]
    if device == "cuda":
        contestants.append(_Contestant("tf32", torch.float32, "high"))
    return contestants


def _take_turn(it: _Contestant, device: str, clock: _DeviceClock) -> bool:
    """A try at each of its last sizes; false where this torch has no product in that precision."""
    import torch

    torch.set_float32_matmul_precision(it.precision)
    try:
        if not it.products:
            it.products.append(_product(it.dtype, device, _SMALLEST_SIDE))
        seconds = [min(clock.seconds(product.compute) for _ in range(2)) for product in it.products[-_SIZES_AT_ONCE:]]
    except RuntimeError:
        return False
    rates = [product.operations / took for product, took in zip(it.products[-_SIZES_AT_ONCE:], seconds, strict=True)]
    it.best_flops_per_second = max(it.best_flops_per_second, *rates)
    side = 2 * it.products[-1].left.shape[0]
    # Twice the side is eight times the work; but what a small product takes may be mostly waiting for its threads.
    expected_seconds = seconds[-1] * (8 if side > _SIDE_OF_REAL_WORK else 1)
    if side <= _LARGEST_SIDE and expected_seconds <= _LONGEST_TRY_SECONDS and _fits(device, side):
        it.products.append(_product(it.dtype, device, side))
    return True


def _product(dtype: torch.dtype, device: str, side: int) -> _Product:
    import torch

    left, right = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    repeats = _PRODUCTS_PER_TRY_ON_DEVICE if device == "cuda" else 1
    return _Product(left, right, torch.empty_like(left), repeats)


def _fits(device: str, side: int) -> bool:
    """Three float32 matrices of that side take at most a sixteenth of what is free (all precisions keep theirs)."""
    return 3 * 4 * side**2 <= _free_bytes(device) // 16


def _free_bytes(device: str) -> int:
    import psutil
    import torch

    if device == "cuda":
        return int(torch.cuda.mem_get_info()[0])
    return int(psutil.virtual_memory().available)


# ---------------------------------------------------------------------------------------------
# Memory and copies
# ---------------------------------------------------------------------------------------------


def _memory_rate(device: str, clock: _DeviceClock, limit_seconds: float) -> float:
    """Bytes per second of a copy within the device's memory, far larger than any cache."""
    import torch

    largest = _LARGEST_COPY_ON_DEVICE_BYTES if device == "cuda" else _LARGEST_COPY_BYTES
    size = min(largest, _free_bytes(device) // 8)
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * size / clock.best(lambda: target.copy_(source), limit_seconds)


def _copy_rates(clock: _DeviceClock, limit_seconds: float) -> tuple[float, float | None]:
    """Bytes per second from the processor's memory to the device, from ordinary and from pinned memory."""
    import torch

    size = min(_LARGEST_COPY_BYTES, _free_bytes("cpu") // 8, _free_bytes("cuda") // 8)
    target = torch.empty(size, dtype=torch.uint8, device="cuda")
    source = torch.ones(size, dtype=torch.uint8)
    pageable = size / clock.best(lambda: target.copy_(source), limit_seconds / 2)
    try:
        locked = source.pin_memory()
    except RuntimeError:  # no more memory may be locked
        return pageable, None
    return pageable, size / clock.best(lambda: target.copy_(locked, non_blocking=True), limit_seconds / 2)


def main(arguments: list[str] | None = None) -> int:
    """The child's entry: writes the ceilings to standard output; 2 and a sentence on standard error if it cannot."""
    parser = argparse.ArgumentParser(prog="python -m hotlap.machine.ceilings", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args(arguments)
    try:
        found = measure(options.device, options.seconds)
    except UsageError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
