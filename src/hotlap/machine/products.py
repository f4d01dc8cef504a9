"""The rates of matrix products by number format and size, and the cost of converting between formats.

Runs in the child process of :mod:`hotlap.machine.ceilings`. The formats take turns, so that disturbances affect all of
them alike, and each size keeps its own best rate: a product of 32 x 32 matrices is mostly call overhead, and a format
that is three times as fast for large products can be slower for small ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psutil

from hotlap.machine import processor
from hotlap.records import SizedRate

if TYPE_CHECKING:
    import torch

_SMALLEST_SIDE = 16
_SIDE_OF_REAL_WORK = 512
_LARGEST_SIDE = 8192
# Such a small product takes about a microsecond: this many make a try that a clock can resolve.
_SIDE_OF_ONE_PRODUCT = 256
_PRODUCTS_PER_TRY_ON_DEVICE = 8
_LONGEST_TRY_SECONDS = 0.03
_SIZES_AT_ONCE = 3
_LEAST_ROUNDS = 3
_CONVERSION_TRIES = 5
# A precision that reaches less than this share of the fastest is emulated; more tries would only take time.
_HOPELESS = 0.1


@dataclass(frozen=True, slots=True)
class DeviceClock:
    """Times work on an asynchronous device: it is synchronised at both ends."""

    wait: Callable[[], object]

    def seconds(self, work: Callable[[], object]) -> float:
        self.wait()
        start = time.perf_counter()
        work()
        self.wait()
        return max(time.perf_counter() - start, 1e-9)

    def best(self, work: Callable[[], object], limit_seconds: float, least: int = 3) -> float:
        """The shortest of as many tries as fit into the limit, after one that does not count; some at least."""
        end = time.perf_counter() + limit_seconds
        self.seconds(work)
        best, tries = float("inf"), 0
        while tries < least or time.perf_counter() < end:
            best = min(best, self.seconds(work))
            tries += 1
        return best


@dataclass(frozen=True, slots=True)
class Products:
    """The result of one test: the best rate of each format by its key, the rates of each size, how far the two halves
    of the test differ, and the number of threads on a processor."""

    best: dict[str, float]
    by_size: tuple[SizedRate, ...]
    spread: float
    threads: int = 1


def measure_products(device: str, clock: DeviceClock, limit_seconds: float) -> Products:
    """The rates of one device within a bounded time.

    A processor uses the number of threads that is best for float32: only rates with equal threads can be compared, and
    that comparison distinguishes hardware from emulation.
    """
    if device != "cpu":
        return _measure(device, clock, limit_seconds)
    import torch

    cores = processor.physical_cores()
    found: list[Products] = []
    for threads in sorted({max(1, cores // 2), cores}):
        torch.set_num_threads(threads)
        found.append(_measure(device, clock, limit_seconds / min(cores, 2), threads))
    best = max(found, key=lambda it: it.best[f"{device}:float32"])
    torch.set_num_threads(best.threads)
    return best


def spread_of(rounds: Sequence[float]) -> float:
    """How far the best rates of the first and of the second half of the rounds differ, as a share of the larger; 0 for
    fewer than four."""
    middle = len(rounds) // 2
    if middle < 2:
        return 0.0
    first, second = max(rounds[:middle]), max(rounds[middle:])
    return abs(first - second) / max(first, second)


@dataclass(frozen=True, slots=True)
class _Product:
    """The operands of one size, and the matrix for the result."""

    left: torch.Tensor
    right: torch.Tensor
    result: torch.Tensor
    repeats: int

    def compute(self) -> None:
        import torch

        for _ in range(self.repeats):
            torch.mm(self.left, self.right, out=self.result)

    @property
    def side(self) -> int:
        return int(self.left.shape[0])

    @property
    def operations(self) -> float:
        return 2.0 * self.side**3 * self.repeats


@dataclass(slots=True)
class _Contestant:
    """One precision. Its largest size doubles as long as a try stays short; its last sizes are all tried, since small
    ones are fastest on a busy machine (they fit between other programs' time slices), and large ones on an idle one.
    ``rounds`` are the best rates of the rounds since the largest size last grew."""

    name: str
    dtype: torch.dtype
    precision: str
    products: list[_Product] = field(default_factory=list)
    by_side: dict[int, float] = field(default_factory=dict)
    rounds: list[float] = field(default_factory=list)

    @property
    def best_flops_per_second(self) -> float:
        return max(self.by_side.values(), default=0.0)


def _measure(device: str, clock: DeviceClock, limit_seconds: float, threads: int = 1) -> Products:
    running = _contestants(device)
    finished: list[_Contestant] = []
    end = time.perf_counter() + limit_seconds
    rounds = 0
    while running and (rounds < _LEAST_ROUNDS or time.perf_counter() < end):
        running = [it for it in running if _take_turn(it, device, clock)]
        rounds += 1
        hopeless = [it for it in running if _is_hopeless(it, running)]
        finished += hopeless
        running = [it for it in running if it not in hopeless]
    everyone = running + finished
    return Products(
        best={f"{device}:{it.name}": it.best_flops_per_second for it in everyone},
        by_size=tuple(_sized_rates(device, everyone, clock)),
        spread=max((spread_of(it.rounds) for it in running), default=0.0),
        threads=threads,
    )


def _is_hopeless(it: _Contestant, running: Sequence[_Contestant]) -> bool:
    """Whether it is far behind at the largest size that it has tried, if that is large enough to judge."""
    side = max(it.by_side)
    if side < _SIDE_OF_ONE_PRODUCT:
        return False
    return it.by_side[side] < _HOPELESS * max(other.by_side.get(side, 0.0) for other in running)


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


def _take_turn(it: _Contestant, device: str, clock: DeviceClock) -> bool:
    """Try each of its last sizes; false where this torch has no product in that precision."""
    import torch

    torch.set_float32_matmul_precision(it.precision)
    tried = it.products[-_SIZES_AT_ONCE:]
    try:
        if not tried:
            it.products.append(_product(it.dtype, device, _SMALLEST_SIDE))
            tried = it.products
        seconds = [min(clock.seconds(product.compute) for _ in range(2)) for product in tried]
    except RuntimeError:
        return False
    rates = [product.operations / took for product, took in zip(tried, seconds, strict=True)]
    for product, rate in zip(tried, rates, strict=True):
        it.by_side[product.side] = max(rate, it.by_side.get(product.side, 0.0))
    it.rounds.append(max(rates))
    _grow(it, device, seconds[-1])
    return True


def _grow(it: _Contestant, device: str, seconds: float) -> None:
    """Double its largest size where a try of that stays short. Twice the side is eight times the work; but the time of
    a small product may be mostly waiting for its threads."""
    largest = it.products[-1]
    side = 2 * largest.side
    one = seconds / largest.repeats * (8 if side > _SIDE_OF_REAL_WORK else 1)
    if side <= _LARGEST_SIDE and one * _repeats(device, side) <= _LONGEST_TRY_SECONDS and _fits(device, side):
        it.products.append(_product(it.dtype, device, side))
        it.rounds.clear()


def _product(dtype: torch.dtype, device: str, side: int) -> _Product:
    import torch

    left, right = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    return _Product(left, right, torch.empty_like(left), _repeats(device, side))


def _repeats(device: str, side: int) -> int:
    least = _PRODUCTS_PER_TRY_ON_DEVICE if device == "cuda" else 1
    return max(least, (_SIDE_OF_ONE_PRODUCT // side) ** 2)


def _fits(device: str, side: int) -> bool:
    """Three float32 matrices of that side take at most a sixteenth of what is free (all precisions keep theirs)."""
    return 3 * 4 * side**2 <= free_bytes(device) // 16


def free_bytes(device: str) -> int:
    """Free memory on ``cpu`` or ``cuda``, in bytes."""
    import torch

    if device == "cuda":
        return int(torch.cuda.mem_get_info()[0])
    return int(psutil.virtual_memory().available)


def _sized_rates(device: str, contestants: Sequence[_Contestant], clock: DeviceClock) -> list[SizedRate]:
    """All sizes of all formats, with the cost of conversion where float32 matrices must be converted."""
    import torch

    return [
        SizedRate(
            key=f"{device}:{it.name}",
            side=product.side,
            flops_per_second=it.by_side[product.side],
            conversion_seconds=0.0 if it.dtype == torch.float32 else _conversion_seconds(product, clock),
        )
        for it in sorted(contestants, key=lambda it: it.name)
        for product in it.products
        if product.side in it.by_side
    ]


def _conversion_seconds(product: _Product, clock: DeviceClock) -> float:
    """One float32 matrix to the product's format and one back, as autocast converts weights and their gradients."""
    import torch

    there = torch.empty_like(product.left, dtype=torch.float32)

    def convert() -> None:
        for _ in range(product.repeats):
            there.copy_(product.left)
            product.result.copy_(there)

    return min(clock.seconds(convert) for _ in range(_CONVERSION_TRIES)) / product.repeats
