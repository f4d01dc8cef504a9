"""The rates of matrix products of each size, compared with the device's published peak."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import prod

from hotlap.diagnose.operators import dtype_of
from hotlap.diagnose.trace_verdict.peaks import peak_of
from hotlap.diagnose.work import product_of
from hotlap.records import Record
from hotlap.traces.records import DeviceBreakdown, OperatorRow

_MOST = 100


class ProductRate(Record, frozen=True, kw_only=True):
    """All products of one operator, size and dtype: ``batch`` times ``rows`` x ``common`` by ``common`` x ``columns``.

    ``flops_per_second`` counts two operations for a multiplication with its addition, over the time of the kernels.
    ``peak_share`` is its share of the published dense rate; None where none is listed for the device and dtype.
    """

    operator: str
    batch: int
    rows: int
    common: int
    columns: int
    dtype: str
    calls: int
    nanoseconds: int
    flops_per_second: float
    peak_share: float | None = None


def product_rates(device: DeviceBreakdown, operators: Sequence[OperatorRow]) -> tuple[ProductRate, ...]:
    """Return the rates of all products with recorded sizes and dtypes that launched kernels, longest first."""
    alike: defaultdict[tuple[str, tuple[int, int, int, int], str], list[OperatorRow]] = defaultdict(list)
    for it in operators:
        product, dtype = product_of(it), dtype_of(it)
        if product is not None and prod(product) > 0 and dtype and it.device_nanoseconds > 0:
            alike[it.name, product, dtype].append(it)
    rates = [_rate(device, *key, rows) for key, rows in alike.items()]
    return tuple(sorted(rates, key=lambda it: -it.nanoseconds)[:_MOST])


def _rate(
    device: DeviceBreakdown, operator: str, product: tuple[int, int, int, int], dtype: str, rows: list[OperatorRow]
) -> ProductRate:
    batch, height, common, width = product
    calls, nanoseconds = sum(it.calls for it in rows), sum(it.device_nanoseconds for it in rows)
    rate = 2.0 * prod(product) * calls / nanoseconds * 1e9
    peak = peak_rate(device, dtype)
    share = rate / peak if peak is not None else None
    return ProductRate(
        operator=operator,
        batch=batch,
        rows=height,
        common=common,
        columns=width,
        dtype=dtype,
        calls=calls,
        nanoseconds=nanoseconds,
        flops_per_second=rate,
        peak_share=share if share is not None and share <= 1 else None,
    )


def peak_rate(device: DeviceBreakdown, dtype: str) -> float | None:
    """The rate of this dtype in operations per second. Float32 inputs may be multiplied in TensorFloat-32 where the
    device has it and any of its kernels uses matrix units; then it is not known which rate to compare with."""
    peak = peak_of(device.name)
    if peak is None or dtype == "float64" or (dtype == "bfloat16" and not peak.has_bfloat16):
        return None
    if dtype != "float32":
        return peak.half * 1e12
    in_doubt = peak.tf32 > 0 and any(it.tensor_cores for it in device.kernels)
    return None if in_doubt else peak.float32 * 1e12
