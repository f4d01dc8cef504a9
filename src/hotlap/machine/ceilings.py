"""The rates that this machine reaches: matrix products, attention, memory, and copies to the device.

Runs in a child, since it imports torch and holds the device::

    python -m hotlap.machine.ceilings --device cuda --seconds 3

writes one JSON object of :class:`hotlap.records.MeasuredRates`. Each rate is the best of many short tries within a
bounded time: a ceiling is what the machine can do, and whatever disturbs a try makes it only slower. Products are
tested again, at most twice, where other programs or a wide spread leave the result in doubt. Operands are random,
because a device that multiplies zeros draws less power and clocks higher than in training. A product of n x n matrices
counts 2 n^3 operations; a copy within memory counts the bytes read and those written, as STREAM does (McCalpin, 1995).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator

import msgspec
import psutil

from hotlap.errors import UsageError
from hotlap.machine.attention import measure_attention
from hotlap.machine.autocast_calls import measure_autocast_calls
from hotlap.machine.flat_products import measure_flat_products
from hotlap.machine.processor import busy_seconds
from hotlap.machine.products import DeviceClock, Products, free_bytes, measure_products
from hotlap.machine.torch_devices import devices_of_torch
from hotlap.records import Ceilings, MeasuredRates, SizedRate

# Shares of the time: products, then memory, then (with a device) both kinds of copy to it.
_SHARE_OF_PRODUCTS = 0.6
_SHARE_OF_MEMORY = 0.2
# Attention and products with a short side have a time of their own.
_MOST_ATTENTION_SECONDS = 2.0
_MOST_FLAT_SECONDS = 1.0
_LARGEST_COPY_BYTES = 1 << 28
# On a device a copy within memory is so fast that starting and awaiting it would count with a smaller one.
_LARGEST_COPY_ON_DEVICE_BYTES = 1 << 31
# More than what the C library ever keeps: glibc's M_MMAP_THRESHOLD grows up to 32 MiB, see mallopt(3).
_FRESH_BYTES = 1 << 26
_FRESH_TRIES = 5
_MOST_TESTS = 3
# The halves of a test on an idle machine differ by a few percent.
_DOUBTFUL_SPREAD = 0.25
# Two tests whose rates are this close confirm each other, whatever else was running.
_AGREEMENT = 0.15
_CORES_LACKING = 0.5
# Caches make large products somewhat slower than smaller ones; a larger loss than this is an interruption.
_LOST_BY_SIZE = 0.5
# A format that reaches less than this share of the best rate is emulated; tests need not agree on it.
_EMULATED = 0.1


def measure(device: str, seconds: float = 3.0) -> Ceilings:
    """The rates of ``cpu`` or ``cuda``, in about ``seconds`` of work, up to 2.2 times as much on a busy
    machine (products with a short side, with up to 1 second, attention, with up to 2, and the start of the device
    come on top).

    On the processor all available physical cores are used, or half of them where that multiplies faster: on a shared
    machine each further thread is one more to wait for. ``memory_bytes_per_second`` is the memory of the device named.
    Raises :class:`UsageError` for a device that torch cannot use here, and for seconds below 0.1 or above 600.
    """
    import torch

    if device not in {"cpu", "cuda"}:
        raise UsageError(f"There are no ceilings for the device {device!r}.", remedy="Choose cpu or cuda.")
    if not 0.1 <= seconds <= 600:
        raise UsageError(f"{seconds} seconds is out of range.", remedy="Give between 0.1 and 600 seconds.")
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError("torch can use no CUDA device here.", remedy="`hotlap doctor` shows why.")
    clock = DeviceClock(torch.cuda.synchronize) if device == "cuda" else DeviceClock(lambda: None)
    with torch.inference_mode():
        products, doubt = products_until_sure(device, lambda: _test(device, clock, seconds * _SHARE_OF_PRODUCTS))
        memory = _memory_rate(device, clock, seconds * _SHARE_OF_MEMORY)
        pageable, pinned = _copy_rates(clock, seconds * _SHARE_OF_MEMORY) if device == "cuda" else (None, None)
    attention = measure_attention(device, clock, min(_MOST_ATTENTION_SECONDS, seconds), products.threads)
    with torch.inference_mode():
        flat = measure_flat_products(device, _in_hardware(products), clock, min(_MOST_FLAT_SECONDS, seconds))
    # This is overhead of the processor, for which a device seldom waits.
    on_processor = device == "cpu"
    autocast = measure_autocast_calls(_in_hardware(products), clock, products.threads) if on_processor else ()
    return Ceilings(
        matmul_flops_per_second=tuple(sorted(products.best.items())),
        matmul_by_size=products.by_size,
        flat=flat,
        attention=attention,
        autocast_seconds_per_layer=autocast,
        memory_bytes_per_second=memory,
        fresh_memory_seconds_per_byte=_fresh_memory(clock) if device == "cpu" else None,
        host_to_device_pageable_bytes_per_second=pageable,
        host_to_device_pinned_bytes_per_second=pinned,
        doubts=((device, doubt),) if doubt else (),
        threads=products.threads if device == "cpu" else 0,
    )


def merged(first: Ceilings, second: Ceilings) -> Ceilings:
    """The rates of both, the first's where both have one: a device's ceilings and those of the processor next to it."""
    products = dict(second.matmul_flops_per_second) | dict(first.matmul_flops_per_second)
    sized = {(it.key, it.side): it for it in (*second.matmul_by_size, *first.matmul_by_size)}
    calls = dict(second.autocast_seconds_per_layer) | dict(first.autocast_seconds_per_layer)
    doubts = dict(second.doubts) | dict(first.doubts)
    scalars = {
        name: getattr(first, name) if getattr(first, name) is not None else getattr(second, name)
        for name in Ceilings.__struct_fields__
        if name.endswith(("bytes_per_second", "seconds_per_byte"))
    }
    return Ceilings(
        matmul_flops_per_second=tuple(sorted(products.items())),
        matmul_by_size=tuple(sized[it] for it in sorted(sized)),
        flat=(*first.flat, *second.flat),
        attention=(*first.attention, *second.attention),
        autocast_seconds_per_layer=tuple(sorted(calls.items())),
        doubts=tuple(sorted(doubts.items())),
        threads=first.threads or second.threads,
        other_load=max(first.other_load, second.other_load),
        **scalars,
    )


# ---------------------------------------------------------------------------------------------
# Products that can be relied on
# ---------------------------------------------------------------------------------------------


def products_until_sure(device: str, test: Callable[[], tuple[Products, float]]) -> tuple[Products, str]:
    """The best of up to three tests, and why even that is in doubt (empty: it is not).

    A test returns its rates, and how many cores others kept busy meanwhile. An undisturbed test counts, and so do two
    whose best rates agree.
    """
    found: list[Products] = []
    doubt = ""
    for _ in range(_MOST_TESTS):
        products, other_load = test()
        found.append(products)
        doubt = " ".join(_doubts(device, products, other_load))
        if not doubt or _agree(found):
            return _best_of(found), ""
    return _best_of(found), doubt


def _test(device: str, clock: DeviceClock, limit_seconds: float) -> tuple[Products, float]:
    began, busy, own = time.perf_counter(), busy_seconds(psutil.cpu_times()), time.process_time()
    products = measure_products(device, clock, limit_seconds)
    others = (busy_seconds(psutil.cpu_times()) - busy) - (time.process_time() - own)
    return products, max(0.0, others) / (time.perf_counter() - began)


def _in_hardware(products: Products) -> list[str]:
    """The formats that are not emulated, by name."""
    least = _EMULATED * max(products.best.values())
    return [key.partition(":")[2] for key, rate in products.best.items() if rate >= least]


def _doubts(device: str, products: Products, other_load: float) -> Iterator[str]:
    cores = psutil.cpu_count() or 1
    if device == "cpu" and other_load + products.threads >= cores + _CORES_LACKING:
        yield f"Other programs kept {other_load:.1f} of {cores} cores busy while these rates were measured."
    if products.spread > _DOUBTFUL_SPREAD:
        yield f"These rates varied by {100 * products.spread:.0f} % within their test."
    sized = [it for it in products.by_size if it.key == f"{device}:float32"]
    largest = max(sized, key=lambda it: it.side, default=None)
    best = max(sized, key=lambda it: it.flops_per_second, default=None)
    if largest and best and largest.flops_per_second < _LOST_BY_SIZE * best.flops_per_second:
        part = 100 * largest.flops_per_second / best.flops_per_second
        yield (
            f"Products of {largest.side} x {largest.side} matrices reached {part:.0f} % of the rate of "
            f"{best.side} x {best.side}."
        )


def _agree(found: list[Products]) -> bool:
    """Whether the best two tests reached the same with every format that is not emulated, in every size."""
    if len(found) < 2:
        return False
    tables = [_rates_of(it) for it in found]
    for key in set.intersection(*map(set, tables)):
        first, second = sorted((it[key] for it in tables), reverse=True)[:2]
        if second < (1 - _AGREEMENT) * first:
            return False
    return True


def _rates_of(products: Products) -> dict[tuple[str, int], float]:
    """By format and size, the best of all sizes under 0."""
    emulated = {key for key, rate in products.best.items() if rate < _EMULATED * max(products.best.values())}
    table = {(it.key, it.side): it.flops_per_second for it in products.by_size}
    table |= {(key, 0): rate for key, rate in products.best.items()}
    return {(key, side): rate for (key, side), rate in table.items() if key not in emulated}


def _best_of(found: list[Products]) -> Products:
    best: dict[str, float] = {}
    sized: dict[tuple[str, int], SizedRate] = {}
    for it in found:
        for key, rate in it.best.items():
            best[key] = max(rate, best.get(key, 0.0))
        for one in it.by_size:
            sized[one.key, one.side] = _faster(one, sized.get((one.key, one.side), one))
    last = found[-1]
    return Products(best, tuple(sized[it] for it in sorted(sized)), last.spread, last.threads)


def _faster(one: SizedRate, other: SizedRate) -> SizedRate:
    return SizedRate(
        key=one.key,
        side=one.side,
        flops_per_second=max(one.flops_per_second, other.flops_per_second),
        conversion_seconds=min(one.conversion_seconds, other.conversion_seconds),
    )


# ---------------------------------------------------------------------------------------------
# Memory and copies
# ---------------------------------------------------------------------------------------------


def _memory_rate(device: str, clock: DeviceClock, limit_seconds: float) -> float:
    """Bytes per second of a copy within the device's memory, far larger than any cache."""
    import torch

    largest = _LARGEST_COPY_ON_DEVICE_BYTES if device == "cuda" else _LARGEST_COPY_BYTES
    size = min(largest, free_bytes(device) // 8)
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * size / clock.best(lambda: target.copy_(source), limit_seconds)


def _fresh_memory(clock: DeviceClock) -> float:
    """Seconds per byte that the system takes to provide memory when it is first written. A piece of this size is mapped
    at every allocation and unmapped when it is freed."""
    import torch

    again = torch.empty(_FRESH_BYTES, dtype=torch.uint8)
    known = clock.best(lambda: again.fill_(1), 0.0, _FRESH_TRIES)
    fresh = clock.best(lambda: torch.empty(_FRESH_BYTES, dtype=torch.uint8).fill_(1), 0.0, _FRESH_TRIES)
    return max(0.0, fresh - known) / _FRESH_BYTES


def _copy_rates(clock: DeviceClock, limit_seconds: float) -> tuple[float, float | None]:
    """Bytes per second from the processor's memory to the device, from ordinary and from pinned memory."""
    import torch

    size = min(_LARGEST_COPY_BYTES, free_bytes("cpu") // 8, free_bytes("cuda") // 8)
    target = torch.empty(size, dtype=torch.uint8, device="cuda")
    source = torch.ones(size, dtype=torch.uint8)
    pageable = size / clock.best(lambda: target.copy_(source), limit_seconds / 2)
    try:
        locked = source.pin_memory()
    except RuntimeError:  # no more memory may be locked
        return pageable, None
    return pageable, size / clock.best(lambda: target.copy_(locked, non_blocking=True), limit_seconds / 2)


def main(arguments: list[str] | None = None) -> int:
    """Write the ceilings to standard output; return 2, with a message on standard error, on failure."""
    parser = argparse.ArgumentParser(prog="python -m hotlap.machine.ceilings", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args(arguments)
    try:
        found = MeasuredRates(ceilings=measure(options.device, options.seconds), devices=devices_of_torch())
    except UsageError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
