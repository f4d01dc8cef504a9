"""The arithmetic of one call of an operator, derived from its shapes, and its time at measured rates. Not a rule.

A multiplication with its addition counts as two operations. A rate belongs to a size: the side of square matrices whose
product takes as many operations as one product of the operator; or to a form with one side much shorter than the
others, as with small batches.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from hotlap.diagnose.operators import (
    dtype_of,
    in_words,
    is_attention,
    is_convolution,
    is_product,
    is_recurrent,
    is_wrapper,
    own_nanoseconds,
)
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.wording import flop_rate
from hotlap.levers.support.situations import device_kind
from hotlap.records import Ceilings, FlatRate, ShortSide, SizedRate
from hotlap.traces.records import OperatorRow

Outputs = Mapping[tuple[object, ...], tuple[int, ...]]

LARGER = 4
"""The rate of the largest measured matrices is used for matrices up to this many times as large: rates no longer change
by then."""

FLAT = 4
"""A product is flat if one side is this many times shorter than both others."""

_CLEARLY_MORE = 1.25
_COUNTED_ALIKE = 1.5
_LEAST_SECONDS = 1e-3
_NANOSECONDS = 1e-9
_CONVERTED_BYTES = 12  # four bytes are read and two written per number, and the reverse
_BACKWARD_OF_ATTENTION = 2.5  # five products of the scores' size instead of two: the scores are recomputed


@dataclass(frozen=True, slots=True)
class Flat:
    """A product with a short side: its length, and the mean of the two others."""

    short: ShortSide
    short_side: int
    side: float


@dataclass(frozen=True, slots=True)
class Work:
    """The minimum work of one call: operations, and numbers read and written (0: unknown).

    ``single`` is the number of operations of one of its products; ``flat`` is its form if one side is far shorter than
    the others.
    """

    operations: float
    numbers: int
    single: float
    flat: Flat | None = None

    @property
    def side(self) -> float:
        """Return the side of square matrices whose product takes as much work as one of these."""
        return math.cbrt(self.single / 2)


def work_of(row: OperatorRow, outputs: Outputs) -> Work | None:
    """Return the work of one call; None if the shapes do not show it."""
    if is_product(row):
        return _work_of_product(row)
    if is_convolution(row):
        return _work_of_convolution(row, outputs)
    if is_recurrent(row):
        return _work_of_layer(row)
    return _work_of_attention(row) if is_attention(row) else None


def is_sparse(profile: Profile, row: OperatorRow, work: Work) -> bool:
    """Whether its shapes imply more operations than were counted for the whole step.

    Then its matrices contain fewer numbers than their shapes suggest, which a trace does not show.
    """
    counted = max((it.flops_per_step or 0.0 for it in profile.facts.models), default=0.0)
    window = profile.evidence.window
    if not counted or window is None or not window.steps:
        return False
    return work.operations * row.calls / window.steps > _COUNTED_ALIKE * counted


def product_of(row: OperatorRow) -> tuple[int, int, int, int] | None:
    """Return batch, rows, common side and columns of a product."""
    if not is_product(row) or row.name == "aten::linear":
        return None
    dimensions = 3 if is_batched(row) else 2
    operands = row.shapes[1:3] if "add" in row.name else row.shapes[:2]
    if len(operands) != 2 or any(len(it) != dimensions for it in operands) or operands[0][-1] != operands[1][-2]:
        return None
    batch = operands[0][0] if dimensions == 3 else 1
    return batch, operands[0][-2], operands[0][-1], operands[1][-1]


def is_batched(row: OperatorRow) -> bool:
    """Whether it multiplies many pairs of matrices in one call."""
    return row.name.endswith("bmm")


def convolution_of(row: OperatorRow) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the shapes of a convolution's input and weight."""
    operands = row.shapes[1:3] if "backward" in row.name else row.shapes[:2]
    if len(operands) != 2 or len(operands[0]) < 3 or len(operands[0]) != len(operands[1]):
        return None
    return operands[0], operands[1]


def convolution_outputs(operators: Iterable[OperatorRow]) -> Outputs:
    """Return the shapes of convolutions' outputs, which only their backward calls show."""
    backward = [it for it in operators if it.name == "aten::convolution_backward" and len(it.shapes) > 2]
    return {it.shapes[1:3]: it.shapes[0] for it in backward}


def _work_of_product(row: OperatorRow) -> Work | None:
    product = product_of(row)
    if product is None:
        return None
    batch, rows, common, columns = product
    operations = 2.0 * prod(product)
    numbers = batch * (rows * common + common * columns + rows * columns)
    return Work(operations, numbers, operations, _flat(rows, common, columns) if batch == 1 else None)


def _flat(rows: int, common: int, columns: int) -> Flat | None:
    """Return the form of a product; few columns are to a library what few rows are."""
    shortest, middle, longest = sorted((rows, common, columns))
    if FLAT * shortest > middle:
        return None
    return Flat("common" if common == shortest else "rows", shortest, math.sqrt(middle * longest))


def _work_of_convolution(row: OperatorRow, outputs: Outputs) -> Work | None:
    convolution = convolution_of(row)
    output = outputs.get(convolution) if convolution is not None else None
    if convolution is None or not output:
        return None
    image, weight = convolution
    passes = 2 if "backward" in row.name else 1
    forward = 2.0 * image[0] * prod(output[2:]) * prod(weight)
    groups = max(1, image[1] // max(1, weight[1]))
    return Work(passes * forward, passes * (prod(image) + prod(output) + prod(weight)), forward / groups)


def _work_of_layer(row: OperatorRow) -> Work | None:
    """Return the work of a recurrent layer.

    It multiplies its input and its state by their weights, step by step of the sequence.
    """
    if len(row.shapes) < 3 or len(row.shapes[0]) != 3 or any(len(it) != 2 for it in row.shapes[1:3]):
        return None
    (length, batch, _), inputs, states = row.shapes[0], row.shapes[1], row.shapes[2]
    passes = 2 if "backward" in row.name else 1
    single = 2.0 * length * batch * max(prod(inputs), prod(states))  # those of the input are independent
    return Work(2.0 * passes * length * batch * (prod(inputs) + prod(states)), 0, single)


def _work_of_attention(row: OperatorRow) -> Work | None:
    operands = row.shapes[1:4] if "backward" in row.name else row.shapes[:3]
    if len(operands) != 3 or any(len(it) != 4 for it in operands):
        return None
    query, key, value = (_heads_first(row.name, it) for it in operands)
    forward = 2.0 * prod(query[:3]) * key[2] * (query[3] + value[3])
    operations = forward * (_BACKWARD_OF_ATTENTION if "backward" in row.name else 1.0)
    return Work(operations, 0, forward / 2)


def _heads_first(operator: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return batch, heads, length and head size.

    The operators below the common one have the length before the heads.
    """
    if operator.startswith(("aten::_flash_attention", "aten::_efficient_attention")):
        return shape[0], shape[2], shape[1], shape[3]
    return shape


# ---------------------------------------------------------------------------------------------
# Times at measured rates
# ---------------------------------------------------------------------------------------------


def why_doubted(profile: Profile) -> str:
    """Return why the rates measured for the training device are unreliable, in sentences; may be empty."""
    said = dict(profile.machine.ceilings.doubts).get(device_kind(profile.situation), "")
    return " ".join(filter(None, (said, beaten(profile))))


def beaten(profile: Profile) -> str:
    """Return a sentence if the script's own operators multiplied faster than the test did."""
    kind, outputs = device_kind(profile.situation), convolution_outputs(profile.operators)
    ceilings = dict(profile.machine.ceilings.matmul_flops_per_second)
    for row in profile.operators:
        ceiling, work = ceilings.get(f"{kind}:{dtype_of(row)}"), work_of(row, outputs)
        seconds = own_nanoseconds(profile, row) * _NANOSECONDS
        if not ceiling or work is None or not is_product(row) or seconds < _LEAST_SECONDS or is_wrapper(row):
            continue
        if is_sparse(profile, row, work):
            continue
        reached = work.operations * row.calls / seconds
        if reached > _CLEARLY_MORE * ceiling:
            return (
                f"The script's own {in_words(row)} reached {flop_rate(reached)}, more than the {flop_rate(ceiling)} "
                f"of this machine's test in {dtype_of(row)}."
            )
    return ""


class Rates:
    """The rates that a device reached in a short test, by format and size.

    A script on a CPU that has fewer ``threads`` than the test had reaches at least its share of the rates.
    """

    def __init__(self, ceilings: Ceilings, device: str, threads: int = 0) -> None:
        known = device == "cpu" and threads > 0 and ceilings.threads > 0
        self._part = min(1.0, threads / ceilings.threads) if known else 1.0
        self._memory = ceilings.memory_bytes_per_second
        self._autocast_seconds = {
            dtype: seconds
            for key, seconds in ceilings.autocast_seconds_per_layer
            for kind, _, dtype in [key.partition(":")]
            if kind == device
        }
        self._by_format: dict[str, list[SizedRate]] = {}
        for it in sorted(ceilings.matmul_by_size, key=lambda it: it.side):
            kind, _, dtype = it.key.partition(":")
            if kind == device and it.side > 0 and it.flops_per_second > 0:
                self._by_format.setdefault(dtype, []).append(it)
        self._flat: dict[tuple[str, ShortSide], dict[int, list[FlatRate]]] = {}
        for flat in sorted(ceilings.flat, key=lambda it: (it.short_side, it.side)):
            kind, _, dtype = flat.key.partition(":")
            if kind == device and flat.short_side > 0 and flat.side > 0 and flat.flops_per_second > 0:
                self._flat.setdefault((dtype, flat.short), {}).setdefault(flat.short_side, []).append(flat)

    def rate(self, dtype: str, side: float) -> float | None:
        """Return operations per second with products of that side, interpolated between two sides.

        None if they are far larger than any that was measured.
        """
        known = self._by_format.get(dtype)
        if not known or side > LARGER * known[-1].side:
            return None
        return self._part * _between([it.side for it in known], [it.flops_per_second for it in known], side)

    def flat_rate(self, dtype: str, flat: Flat) -> float | None:
        """Return the rate with products of that form; None if none was measured."""
        by_short_side = self._flat.get((dtype, flat.short))
        if not by_short_side:
            return None
        rates = [_between([it.side for it in row], [it.flops_per_second for it in row], flat.side)
                 for row in by_short_side.values()]  # fmt: skip
        return self._part * _between(list(by_short_side), rates, flat.short_side)

    def rate_of(self, dtype: str, work: Work) -> float | None:
        """Return the rate with products of that size, and of that form if it was measured."""
        flat = self.flat_rate(dtype, work.flat) if work.flat is not None else None
        return flat or self.rate(dtype, work.side)

    def seconds(self, dtype: str, work: Work) -> float | None:
        """Return the seconds that the work takes in that format; None without a rate for its size."""
        rate = self.rate_of(dtype, work)
        return work.operations / rate if rate else None

    def layer_seconds(self, dtype: str) -> float:
        """Return the time that autocast adds to a layer's forward and backward; 0 if not measured.

        It does not depend on the layer's size.
        """
        return self._autocast_seconds.get(dtype, 0.0)

    def conversion_seconds(self, dtype: str, numbers: int) -> float:
        """Return the time to convert so many numbers from float32 to that format and back.

        More numbers than were measured may not fit into the caches: then memory's rate is the bound.
        """
        known = [it for it in self._by_format.get(dtype, ()) if it.conversion_seconds > 0]
        if not known or numbers <= 0:
            return 0.0
        each = [it.conversion_seconds / it.side**2 for it in known]
        side = math.sqrt(numbers)
        if side < known[0].side:
            return known[0].conversion_seconds  # for so few numbers the time is that of the call itself
        at_the_rate = numbers * _between([it.side for it in known], each, side)
        if side <= known[-1].side or not self._memory:
            return at_the_rate
        return max(at_the_rate, numbers * _CONVERTED_BYTES / self._memory)


def _between(sides: Sequence[int], values: Sequence[float], side: float) -> float:
    """Interpolate the value at a side in logarithms; outside, take the nearest end's."""
    if side <= sides[0]:
        return values[0]
    if side >= sides[-1]:
        return values[-1]
    after = bisect_left(sides, side)
    (low, high), (first, last) = tuple(pairwise(sides))[after - 1], tuple(pairwise(values))[after - 1]
    part = math.log(side / low) / math.log(high / low)
    return float(math.exp(math.log(first) + part * math.log(last / first)))
