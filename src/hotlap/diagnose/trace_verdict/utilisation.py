"""A step's floating-point operations, their rate, and its share of the device's published peak.

Operations are derived from the recorded shapes of matrix products, convolutions, attention and recurrent layers; a
multiplication with its addition counts as two, and causal attention counts in full. They are the executed operations.
With recomputed activations (checkpointing) the share of the peak is therefore what the PaLM paper (Chowdhery et al.
2022, arXiv:2204.02311, appendix B) calls hardware FLOPs utilisation; without them it is its model FLOPs utilisation
(MFU).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from hotlap.diagnose.operators import dtype_of, is_attention, is_convolution, is_matrix_work, is_wrapper
from hotlap.diagnose.trace_verdict.products import peak_rate
from hotlap.diagnose.work import convolution_of, convolution_outputs, work_of
from hotlap.records import Record
from hotlap.traces.records import Breakdown, DeviceBreakdown, OperatorRow

LEAST_KNOWN = 0.5
"""A share of the time of matrix work. If the operations of less are known, no figure is given."""

NEARLY_ALL = 0.95
"""If the operations of less are known, figures are lower bounds."""

_NANOSECONDS = 1e-9
_COMMON_ATTENTION = "aten::_scaled_dot_product"


class DtypeWork(Record, frozen=True, kw_only=True):
    """The operations with inputs of one type. ``peak_flops_per_second`` is the dense rate that the manufacturer
    publishes for one device; None where none is listed, or where it is unknown whether TensorFloat-32 was in use.
    ``dtype`` is empty where types were not recorded."""

    dtype: str
    flops: float
    peak_flops_per_second: float | None = None


class StepWork(Record, frozen=True, kw_only=True):
    """The operations of all steps of a trace, or of the whole trace if ``steps`` is 0.

    ``known_matrix_share`` is which part of the time of matrix work has known operations, ``known_kernel_share`` which
    part of the time in which kernels computed. ``is_lower_bound`` says that the first is too small for the figures to
    be more than that. ``peak_share`` (MFU) is the time that the operations take at the peak rate of their types over
    the time that passed, None where a peak is unknown, or exceeded.
    """

    steps: int
    devices: int
    nanoseconds: int
    flops: float
    backward_flops: float
    known_matrix_share: float
    known_kernel_share: float
    is_lower_bound: bool = False
    peak_share: float | None = None
    dtypes: tuple[DtypeWork, ...] = ()

    @property
    def flops_per_second(self) -> float:
        return self.flops / (self.nanoseconds * _NANOSECONDS) if self.nanoseconds else 0.0

    @property
    def flops_per_step(self) -> float:
        return self.flops / max(1, self.steps)

    @property
    def backward_flops_per_step(self) -> float:
        return self.backward_flops / max(1, self.steps)


def step_work(breakdown: Breakdown, operators: Sequence[OperatorRow]) -> StepWork | None:
    """Return the operations of a trace with identical devices; None if too few are known."""
    device = breakdown.busiest_device
    if device is None:
        return None
    sizes = _Sizes(operators)
    multiplying = list(_multiplying(operators))
    counted = [_Counted(row, flops) for row in multiplying if (flops := sizes.flops_of(row)) > 0]
    computing = sum(_computing(it) for it in breakdown.devices)
    known = sum(it.row.device_nanoseconds for it in counted)
    elsewhere = sum(map(_on_tensor_cores, breakdown.devices)) - sum(it.tensor_core_nanoseconds for it in multiplying)
    matrix = sum(it.device_nanoseconds for it in multiplying) + max(0, elsewhere)
    if not counted or known < LEAST_KNOWN * matrix:
        return None
    return _work(breakdown, device, counted, known / matrix, min(1.0, known / computing) if computing else 0.0)


class _Counted(NamedTuple):
    """An operator and the operations of one of its calls."""

    row: OperatorRow
    flops: float

    @property
    def total(self) -> float:
        return self.flops * self.row.calls


def _work(
    breakdown: Breakdown, device: DeviceBreakdown, counted: list[_Counted], matrix_share: float, kernel_share: float
) -> StepWork:
    steps, devices = breakdown.steps, len(breakdown.devices)
    window = device.in_steps if steps and device.in_steps is not None else device.time
    by_dtype: Counter[str] = Counter()
    for it in counted:
        by_dtype[dtype_of(it.row)] += it.total  # type: ignore[assignment]
    dtypes = tuple(
        DtypeWork(dtype=dtype, flops=flops, peak_flops_per_second=peak_rate(device, dtype) if dtype else None)
        for dtype, flops in by_dtype.most_common()
    )
    return StepWork(
        steps=len(steps),
        devices=devices,
        nanoseconds=window.window_nanoseconds,
        flops=sum(it.total for it in counted),
        backward_flops=sum(it.flops * it.row.backward_calls for it in counted),
        known_matrix_share=matrix_share,
        known_kernel_share=kernel_share,
        is_lower_bound=matrix_share < NEARLY_ALL,
        peak_share=_peak_share(dtypes, devices, window.window_nanoseconds),
        dtypes=dtypes,
    )


def _peak_share(dtypes: Iterable[DtypeWork], devices: int, nanoseconds: int) -> float | None:
    """Return the time at peak rates over the elapsed time; None above 1, since the device's name must be wrong."""
    seconds = 0.0
    for it in dtypes:
        if it.peak_flops_per_second is None:
            return None
        seconds += it.flops / (it.peak_flops_per_second * devices)
    share = seconds / (nanoseconds * _NANOSECONDS) if nanoseconds else 0.0
    return share if 0 < share <= 1 else None


def _multiplying(operators: Sequence[OperatorRow]) -> Iterator[OperatorRow]:
    """The operators of matrix work that launched kernels themselves. Of attention's operators the common one may launch
    some besides those that multiply, which are launched within."""
    within = {it.name for it in operators if is_attention(it) and it.device_nanoseconds > 0}
    inner = {"backward" in it for it in within if not it.startswith(_COMMON_ATTENTION)}
    for it in operators:
        if not is_matrix_work(it) or is_wrapper(it) or it.device_nanoseconds <= 0:
            continue
        if not (it.name.startswith(_COMMON_ATTENTION) and ("backward" in it.name) in inner):
            yield it


def _computing(device: DeviceBreakdown) -> int:
    """Return the time in which kernels computed, in the steps or in total."""
    return (device.in_steps or device.time).compute_nanoseconds


def _on_tensor_cores(device: DeviceBreakdown) -> int:
    """Estimate the time of kernels named for tensor cores in the steps, from their share of the trace."""
    whole = device.time.compute_nanoseconds
    found = sum(it.nanoseconds for it in device.kernels if it.tensor_cores)
    return round(found * _computing(device) / whole) if whole else 0


class _Sizes:
    """Sizes known from other calls: outputs of convolutions, which only some calls show."""

    def __init__(self, operators: Sequence[OperatorRow]) -> None:
        self._outputs = convolution_outputs(operators)
        written = [it for it in operators if it.flops and is_convolution(it)]
        self._written = {sizes: it.flops for it in written if (sizes := convolution_of(it)) is not None}

    def flops_of(self, row: OperatorRow) -> float:
        """The operations of one call; 0 where they are unknown. What is written on the operator comes before what the
        shapes say, which do not show a convolution's stride."""
        if row.flops:
            return float(row.flops)
        sizes = convolution_of(row) if is_convolution(row) else None
        if sizes is not None and sizes in self._written:
            return self._written[sizes] * (2.0 if "backward" in row.name else 1.0)
        work = work_of(row, self._outputs)
        return work.operations if work is not None else 0.0
