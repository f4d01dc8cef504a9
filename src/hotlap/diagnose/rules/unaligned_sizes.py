"""Matrices have sizes that are not aligned for the GPU's tensor cores.

## What it is
Large matrix products or convolutions run in a tensor-core format, and a size of their weights (a vocabulary, a number
of features or channels) is not a multiple of 16 bytes: of 8 numbers in float16 or bfloat16, of 4 in TensorFloat-32. The
number of tokens in a batch does not count: it is the number of rows, whose alignment does not matter.

## Why it is slow
Tensor cores load aligned blocks of 16 bytes. Rows of 50257 numbers begin at unaligned addresses, so the library falls
back to kernels with narrower loads, which reach a part of the rate (see NVIDIA's *Matrix Multiplication Background
User's Guide*).

## How to see it
`hotlap profile train.py` names the products with their shapes. In a trace the kernels of such products often carry
`align1` or `align2` in their names, where the others say `align8`.

## What to do
Round the size up: a vocabulary of 50257 to 50304, say. The added entries are never used, and cost less than the
unaligned size. Multiples of 64 are best for numbers of features and channels.

## When it is fine
If the size is part of the task and the product is small. A checkpoint of the old size must be padded before it is
loaded into the new one. The products of unfused attention have the sequence length as a side; there, use fused
attention (`eager-attention`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hotlap.diagnose.examples import CPU, GPU, operator, run_on
from hotlap.diagnose.operators import (
    WORTH_A_LOOK,
    dtype_of,
    in_words,
    is_convolution,
    is_product,
    kernels_matter,
    own_nanoseconds,
    share_of,
    site_with,
)
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import at_most, computing_share
from hotlap.diagnose.wording import percent
from hotlap.diagnose.work import Work, convolution_of, convolution_outputs, is_batched, product_of, work_of
from hotlap.levers.support.situations import accelerator
from hotlap.records import Finding
from hotlap.traces.records import OperatorRow

title = "Matrix sizes that are not aligned for the GPU's tensor cores"
group = "compute"
rests_on = ("account", "profile", "matmul")

SMALLEST_SIDE = 64
"""A product with a shorter side is limited by memory, whatever its alignment."""

SHORTEST_SECONDS = 20e-6
"""A shorter kernel is mostly launch overhead."""

_MULTIPLES = {"bfloat16": 8, "float16": 8, "tf32": 4}
_BYTES = {"bfloat16": 2, "float16": 2, "tf32": 4}
_IMAGE_CHANNELS = 4
_EMBEDDING = "Embedding"
_WITH_BIAS = ("aten::addmm", "aten::_addmm_activation")
_LITTLE = 0.02
_SIZES_SHOWN = 3
_ROWS_SHOWN = 2
_NANOSECONDS = 1e-9


@dataclass(frozen=True, slots=True)
class _Unaligned:
    """An operator with its unaligned sizes, and the largest share of the step that a full rate would save."""

    row: OperatorRow
    mode: str
    sizes: tuple[int, ...]
    bound: float


def check(profile: Profile) -> Iterator[Finding]:
    """Check NVIDIA GPUs only, and products large enough for their alignment to matter."""
    device = accelerator(profile.situation)
    if device is None or device.kind != "cuda" or not kernels_matter(profile):
        return
    found = sorted(_unaligned(profile, device.native_dtypes), key=lambda it: -it.bound)
    bound = min(sum(it.bound for it in found), computing_share(profile))
    if bound < WORTH_A_LOOK:
        return
    sizes = _costliest_sizes(found)
    share = min(share_of(profile, [it.row for it in found]), computing_share(profile))
    better = ", ".join(f"{_padded(it)} instead of {it}" for it in sizes)
    yield Finding(
        rule="unaligned-sizes",
        share=at_most(bound),
        title=f"Matrix products with unaligned sides ({', '.join(map(str, sizes))}) take {percent(share)} of the step.",
        evidence=(
            *(_in_words(profile, it) for it in found[:_ROWS_SHOWN]),
            f"Aligned, they would save at most {percent(min(1.0, bound))} of the step{_basis(profile)}.",
        ),
        remedy=f"Round the sizes up: {better}. A checkpoint of the old size must be padded before it is loaded.",
        site=site_with(profile, "model"),
    )


def _unaligned(profile: Profile, native: tuple[str, ...]) -> Iterator[_Unaligned]:
    weights, outputs = _weights(profile), convolution_outputs(profile.operators)
    for row in profile.operators:
        mode = _mode(profile, row)
        seconds = own_nanoseconds(profile, row) * _NANOSECONDS
        if mode not in native or mode not in _MULTIPLES or seconds < SHORTEST_SECONDS * row.calls:
            continue
        sizes = _channels(row) if is_convolution(row) else _widths(row, weights)
        unaligned = tuple(dict.fromkeys(it for it in sizes if it % _MULTIPLES[mode]))
        if unaligned:
            least = _least_seconds(profile, work_of(row, outputs), mode) * row.calls
            yield _Unaligned(row, mode, unaligned, max(0.0, 1 - least / seconds) * share_of(profile, [row]))


def _least_seconds(profile: Profile, work: Work | None, mode: str) -> float:
    """What the work takes at least at the rates that this GPU reached in a test; 0 where none was measured.

    It is the longer of multiplying and moving, as in the roofline model (Williams, Waterman and Patterson, 2009).
    """
    if work is None:
        return 0.0
    ceilings = profile.machine.ceilings
    products, memory = dict(ceilings.matmul_flops_per_second).get(f"cuda:{mode}"), ceilings.memory_bytes_per_second
    multiplying = work.operations / products if products else 0.0
    moving = work.numbers * _BYTES[mode] / memory if memory else 0.0
    return max(multiplying, moving)


def _mode(profile: Profile, row: OperatorRow) -> str:
    """The format in which matrix units compute it; empty where they do not. What cuDNN does with float32 is its own
    choice, and it pads such channels itself."""
    dtype = dtype_of(row)
    if dtype != "float32":
        return dtype
    return "tf32" if is_product(row) and profile.facts.matmul_precision != "highest" else ""


@dataclass(frozen=True, slots=True)
class _Weights:
    """The shapes of the weights that products may multiply by, both ways round; ``tables`` are those of embeddings,
    which a single product multiplies by where the output layer shares them."""

    matrices: frozenset[tuple[int, ...]]
    tables: frozenset[tuple[int, ...]]


def _weights(profile: Profile) -> _Weights:
    linear = [it.shapes[1] for it in profile.operators if it.name == "aten::linear" and len(it.shapes) > 1]
    biased = [it.shapes[2] for it in profile.operators if _adds_a_bias(it)]
    layers = profile.evidence.layers
    matrices = [it.weight_shape[-2:] for it in layers if _EMBEDDING not in it.kind]
    tables = [it.weight_shape for it in layers if _EMBEDDING in it.kind]
    return _Weights(_both_ways((*linear, *biased, *matrices)), _both_ways(tables))


def _adds_a_bias(row: OperatorRow) -> bool:
    return row.name in _WITH_BIAS and len(row.shapes) > 2 and len(row.shapes[0]) == 1


def _both_ways(shapes: Iterable[tuple[int, ...]]) -> frozenset[tuple[int, ...]]:
    return frozenset(it for shape in shapes if len(shape) == 2 for it in (shape, shape[::-1]))


def _widths(row: OperatorRow, weights: _Weights) -> tuple[int, ...]:
    """The sides of a large product that its weight has: the second factor of a layer's product and of the gradient of
    its input, the result in the gradient of the weight. The remaining side is the number of rows."""
    product = product_of(row)
    if product is None or min(product[1:]) < SMALLEST_SIDE:
        return ()
    _, rows, common, columns = product
    known = weights.matrices if is_batched(row) else weights.matrices | weights.tables
    return next((it for it in ((common, columns), (rows, columns)) if it in known), ())


def _channels(row: OperatorRow) -> tuple[int, ...]:
    """Return the channels of an ungrouped convolution; images' few channels have special kernels."""
    operands = convolution_of(row)
    if operands is None:
        return ()
    image, weight = operands
    if image[1] != weight[1]:
        return ()
    return tuple(it for it in weight[:2] if it > _IMAGE_CHANNELS)


def _costliest_sizes(found: list[_Unaligned]) -> tuple[int, ...]:
    bounds: defaultdict[int, float] = defaultdict(float)
    for it in found:
        for size in it.sizes:
            bounds[size] += it.bound
    return tuple(sorted(bounds, key=lambda it: -bounds[it])[:_SIZES_SHOWN])


def _padded(size: int) -> int:
    """Return the next multiple of 64, or of 8 if that would add too much."""
    generous = -(-size // 64) * 64
    return generous if generous - size <= _LITTLE * size else -(-size // 8) * 8


def _basis(profile: Profile) -> str:
    measured = any(key.startswith("cuda:") for key, _ in profile.machine.ceilings.matmul_flops_per_second)
    return ", at the rates that this GPU reached in a test" if measured else ", as this GPU's rates were not measured"


def _in_words(profile: Profile, it: _Unaligned) -> str:
    share, multiple = percent(share_of(profile, [it.row])), _MULTIPLES[it.mode]
    sizes = " and ".join(map(str, it.sizes))
    return f"{in_words(it.row)} in {it.mode} takes {share} of the step; {sizes}: not a multiple of {multiple}."


_BF16, _FP16 = "c10::BFloat16", "c10::Half"
_LINEAR = operator("aten::linear", 0, [(64, 1024, 768), (50257, 768)], _BF16)
_LOGITS = operator("aten::mm", 30, [(65536, 768), (768, 50257)], _BF16)
_PADDED = operator("aten::mm", 30, [(65536, 768), (768, 50304)], _BF16)
_BODY = operator("aten::mm", 50, [(65536, 768), (768, 3072)], _BF16)
_FULL_RATE = operator("aten::mm", 9, [(65536, 768), (768, 50257)], _BF16)
_ODD_ROWS = operator("aten::mm", 60, [(65531, 768), (768, 3072)], _BF16)
_SCORES = operator("aten::bmm", 30, [(768, 577, 64), (768, 64, 577)], _FP16, calls=24)
_CHANNELS = operator("aten::convolution_backward", 30, [(64, 90, 56, 56), (64, 90, 56, 56), (90, 90, 3, 3)], _FP16)
_TF32 = operator("aten::addmm", 40, [(1001,), (65536, 770), (770, 1001)])

fires = {
    "a vocabulary of 50257": run_on(GPU, _LINEAR, _LOGITS, _BODY, autocast_dtype="bfloat16"),
    "90 channels": run_on(GPU, _CHANNELS, _BODY),
    "TensorFloat-32 with 1001 classes": run_on(GPU, _TF32, _BODY, matmul_precision="high"),
}
silent = {
    "nothing was measured": Profile(),
    "a padded vocabulary": run_on(GPU, _LINEAR, _PADDED, _BODY),
    "it reaches the full rate all the same": run_on(GPU, _LINEAR, _FULL_RATE, _BODY),
    "an odd number of rows": run_on(GPU, _LINEAR, _ODD_ROWS),
    "attention over 577 tokens, which no weight has as a width": run_on(GPU, _SCORES, _BODY),
    "plain float32, which matrix units do not compute": run_on(GPU, _TF32, _BODY),
    "ten classes": run_on(GPU, operator("aten::addmm", 20, [(10,), (8192, 768), (768, 10)], _BF16), _BODY),
    "a first layer of three channels": run_on(
        GPU,
        operator("aten::convolution_backward", 30, [(64, 64, 112, 112), (64, 3, 224, 224), (64, 3, 7, 7)], _FP16),
        _BODY,
    ),
    "thousands of short kernels": run_on(
        GPU, operator("aten::addmm", 30, [(65,), (128, 65), (65, 65)], _FP16, calls=6000), _BODY
    ),
    "a processor": run_on(CPU, _LINEAR, _LOGITS),
    "the GPU waits for the host": run_on(GPU, _LINEAR, _LOGITS),
}
