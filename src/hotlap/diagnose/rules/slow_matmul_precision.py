"""Matrix products run in float32 on hardware that has a faster mode for them.

## What it is
Matrix products, convolutions and recurrent layers with float32 inputs take a large part of the step. The hardware
multiplies a shorter format several times as fast, and the script does not use it: it runs without autocast, and
`torch.get_float32_matmul_precision()` is `highest`.

## Why it is slow
A GPU's matrix units multiply float16, bfloat16 and TensorFloat-32 numbers; true float32 products run on its ordinary
units, at a fraction of the rate. The same holds for CPUs with bfloat16 instructions. Shorter numbers also halve memory
traffic.

## How to see it
`hotlap profile train.py` multiplies matrices of many sizes in each format, and compares the products of a step with the
rates of their own sizes and forms: a product of 64 x 64 matrices is often slower in bfloat16 than in float32, and one
of a few rows with a large matrix, as with small batches, reaches a different part of its rate. The finding's share is
what the format could save at those rates, minus the cost of autocast's calls, of converting weights and gradients, and
of their memory if the system provides it again in every step. It is a bound: at most the time of forward and backward,
and for each product at most the time of its operations at its rate. If no rate of such a size was measured, there is no
figure. cuDNN computes float32 convolutions in TensorFloat-32 by default, so only the difference to 16 bits counts.

## What to do
Run forward and loss under `torch.autocast(device, dtype=torch.bfloat16)`. Or allow a shorter mantissa inside float32
products: `torch.set_float32_matmul_precision("high")` on GPUs, `"medium"` on CPUs.

## When it is fine
If the digits matter: solvers, second-order optimizers, some recurrent models and physics. Compare the loss over several
hundred steps before you keep it; `hotlap tune train.py` does that automatically.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import msgspec

from hotlap.diagnose.compiled import is_compiled
from hotlap.diagnose.examples import CPU, GPU, operator, run_on
from hotlap.diagnose.operators import (
    WORTH_A_LOOK,
    dtype_of,
    in_words,
    is_attention,
    is_matrix_work,
    is_product,
    is_wrapper,
    kernels_matter,
    own_nanoseconds,
    profiled_steps,
    share_of,
    site_with,
)
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import at_most, computing_share, exactly
from hotlap.diagnose.wording import flop_rate, levers_for, percent
from hotlap.diagnose.work import Rates, Work, convolution_outputs, is_sparse, product_of, why_doubted, work_of
from hotlap.evidence import LayerUse, RunEvidence
from hotlap.levers.support.situations import device_kind, native_dtypes
from hotlap.records import Ceilings, Finding, FlatRate, Machine, SizedRate
from hotlap.traces.records import OperatorRow

title = "Float32 matrix products on hardware with a faster mode"
group = "compute"
rests_on = ("account", "profile", "matmul")

_ROWS_SHOWN = 2
_QUARTER = 0.25
_GRADIENT_BYTES, _CONVERTED_BYTES = 4, 2
_LEFT_ALONE = frozenset({"Embedding", "EmbeddingBag"})
"""Layers whose weights autocast does not convert: their outputs keep the format of the weights."""
_LARGE = 256
"""A product whose shortest side is this long is limited neither by memory nor by call overhead."""


@dataclass(frozen=True, slots=True)
class _Slow:
    """An operator on float32 matrices, its compute format, and its work if known."""

    row: OperatorRow
    computes_in: str
    work: Work | None


@dataclass(frozen=True, slots=True)
class _Saving:
    """What a format saves at most, as shares of the step: without conversions, what these cost, and what the operators
    take of whose sizes no rate was measured."""

    mode: str
    products: float
    conversions: float
    unknown: float

    @property
    def whole(self) -> float:
        return max(0.0, self.products + self.unknown - self.conversions)


def check(profile: Profile) -> Iterator[Finding]:
    """Only where the script asks for no faster mode. A cost where the rates measured for these sizes leave something to
    gain; a hint, without a figure, where they were not measured or are in doubt."""
    facts = profile.facts
    modes = _faster_modes(profile)
    if profile.account.wall <= 0:
        return
    if facts.autocast_dtype or facts.matmul_precision != "highest" or not modes or not kernels_matter(profile):
        return
    slow = _slow(profile, modes)
    rows = [it.row for it in slow]
    share = min(share_of(profile, rows), computing_share(profile))
    if share < WORTH_A_LOOK:
        return
    rates = Rates(profile.machine.ceilings, device_kind(profile.situation), profile.facts.threads)
    best = max((_saving(profile, slow, mode, rates) for mode in modes), key=lambda it: it.whole - it.unknown)
    doubt = why_doubted(profile) or _why_unknown(best)
    saving = min(best.whole, share)
    if saving < WORTH_A_LOOK:  # unreliable rates too: those of other sizes were measured at the same time
        return
    has_plain_products = any(it.computes_in == "float32" for it in slow)
    if doubt and not has_plain_products:
        return
    levers = levers_for("slow-matmul-precision", profile.situation)
    costliest = max(rows, key=lambda it: own_nanoseconds(profile, it))
    most = percent(min(share, share_of(profile, [costliest])))
    yield Finding(
        rule="slow-matmul-precision",
        kind="hint" if doubt else "cost",
        share=exactly(0.0) if doubt else at_most(saving),
        title=_title(share, best.mode, None if doubt else saving),
        evidence=(
            f"Most of it: {in_words(costliest)}, {most} of the step.",
            *([f"What {best.mode} would save is unknown. {doubt}"] if doubt else _figures(profile, slow, best, rates)),
        ),
        remedy=_remedy(profile, modes, has_plain_products),
        site=site_with(profile, "model"),
        levers=tuple(it for it in levers if has_plain_products or it != "matmul-precision"),
    )


def _slow(profile: Profile, modes: tuple[str, ...]) -> list[_Slow]:
    outputs = convolution_outputs(profile.operators)
    found = [
        _Slow(it, _runs_in(it, modes), work_of(it, outputs))
        for it in profile.operators
        if is_matrix_work(it) and not is_wrapper(it) and dtype_of(it) == "float32"
    ]
    return [it for it in found if it.work is None or not is_sparse(profile, it.row, it.work)]


def _faster_modes(profile: Profile) -> tuple[str, ...]:
    """Return the formats that the hardware multiplies natively and usually faster; the best first."""
    wanted = ("bfloat16", "float16", "tf32") if profile.on_accelerator else ("bfloat16",)
    native = native_dtypes(profile.situation)
    return tuple(it for it in wanted if it in native)


def _runs_in(row: OperatorRow, modes: tuple[str, ...]) -> str:
    """What float32 inputs are multiplied in: cuDNN, which computes convolutions and recurrent layers, takes
    TensorFloat-32 unless it is forbidden."""
    return "tf32" if "tf32" in modes and not (is_product(row) or is_attention(row)) else "float32"


def _saving(profile: Profile, slow: Sequence[_Slow], mode: str, rates: Rates) -> _Saving:
    """The bound for one format: of each operator no more than its own time, and of a product no more than what its
    operations take at the rate of their size."""
    wall = profile.account.wall
    slowness = _slowness(profile, slow, rates)
    saved = unknown = 0.0
    for it in slow:
        if it.computes_in == mode:
            continue
        own = share_of(profile, [it.row])
        now, then = (rates.seconds(dtype, it.work) if it.work else None for dtype in (it.computes_in, mode))
        if now is None or then is None:
            unknown += own
        else:
            at_the_rate = slowness * _share_at_the_rate(profile, it.row, now)
            taken = min(own, at_the_rate) if is_product(it.row) else own
            saved += taken * max(0.0, 1 - then / now)
    converting = 0.0 if mode == "tf32" else _conversion_seconds(profile, mode, rates) / wall
    return _Saving(mode, saved, converting, unknown)


def _slowness(profile: Profile, slow: Sequence[_Slow], rates: Rates) -> float:
    """How many times slower than in the test the script's machine was: by how much even the best of its large
    products took longer. Other programs slow a script down, but not a test's best try. 1 without a large product."""
    found = []
    for it in slow:
        now = rates.seconds(it.computes_in, it.work) if it.work else None
        product = product_of(it.row)
        if now and product is not None and min(product[1:]) >= _LARGE:
            found.append(share_of(profile, [it.row]) / _share_at_the_rate(profile, it.row, now))
    return max(1.0, min(found, default=1.0))


def _share_at_the_rate(profile: Profile, row: OperatorRow, seconds_per_call: float) -> float:
    return seconds_per_call * row.calls / profiled_steps(profile) / profile.account.wall


def _conversion_seconds(profile: Profile, mode: str, rates: Rates) -> float:
    """Under autocast every weight is converted in the forward pass and its gradient in the backward pass, each to
    memory of its own, by operators that a processor calls one after the other; a device seldom waits for calls."""
    layers = _converted_layers(profile)
    smallest = rates.conversion_seconds(mode, 1)
    call = smallest if profile.on_accelerator else max(smallest, rates.layer_seconds(mode))
    once = sum(
        it.count * (call + max(0.0, rates.conversion_seconds(mode, prod(it.weight_shape)) - smallest)) for it in layers
    )
    once += _fresh_memory_seconds(profile, sum(it.count * prod(it.weight_shape) for it in layers))
    return once * max(1.0, profile.facts.backwards_per_step)


def _converted_layers(profile: Profile) -> list[LayerUse]:
    """The layers whose weights autocast converts, as they were seen, or in a compiled model, where layers are not
    watched, as their products show them: what a bias is added to is a layer's input times its weight."""
    if profile.evidence.layers or not is_compiled(profile):
        return [it for it in profile.evidence.layers if it.kind not in _LEFT_ALONE]
    forwards = profiled_steps(profile) * max(1.0, profile.facts.backwards_per_step)
    rows = [it for it in profile.operators if it.name == "aten::addmm" and len(it.shapes) >= 3]
    return [
        LayerUse(kind="Linear", name="", weight_shape=it.shapes[2], count=max(1, round(it.calls / forwards)))
        for it in rows
    ]


def _fresh_memory_seconds(profile: Profile, weights: int) -> float:
    """What the system takes to provide the memory of so many converted weights and gradients, where it takes large
    pieces back as soon as they are freed: page faults show it.

    Up to a quarter of the gradients' bytes it counts in proportion, and from there on in full: a heap is given back
    once its free end has grown beyond a threshold, which the conversions' own pieces then make it do in every step.
    """
    seconds_per_byte = profile.machine.ceilings.fresh_memory_seconds_per_byte
    if profile.on_accelerator or not seconds_per_byte or not weights:
        return 0.0
    part = min(1.0, profile.fresh_bytes_per_step / (_QUARTER * _GRADIENT_BYTES * weights))
    return part * 2 * _CONVERTED_BYTES * weights * seconds_per_byte


def _why_unknown(best: _Saving) -> str:
    if best.unknown < WORTH_A_LOOK:
        return ""
    return f"No rate was measured for the sizes of operators that take {percent(best.unknown)} of the step."


def _title(share: float, mode: str, saving: float | None) -> str:
    start = f"Products of float32 matrices take {percent(share)} of the step"
    if saving is None:
        return f"{start}, on hardware that has instructions for {mode}."
    return (
        f"{start}; at the rates measured here for their sizes, {mode} would shorten them by at most {percent(saving)} "
        "of the step."
    )


def _figures(profile: Profile, slow: Sequence[_Slow], best: _Saving, rates: Rates) -> Iterator[str]:
    longest = sorted(slow, key=lambda it: -own_nanoseconds(profile, it.row))[:_ROWS_SHOWN]
    for it in longest:
        now, then = (rates.rate_of(dtype, it.work) if it.work else None for dtype in (it.computes_in, best.mode))
        if now is not None and then is not None:
            yield (
                f"Rates of the size of {in_words(it.row)} in a test: {flop_rate(now)} in {it.computes_in}, "
                f"{flop_rate(then)} in {best.mode}."
            )
    if best.conversions > 0:
        most = percent(best.conversions)
        yield f"Autocast's conversions of weights and gradients take {most} of the step, which is subtracted."


def _remedy(profile: Profile, modes: tuple[str, ...], has_plain_products: bool) -> str:
    kind = device_kind(profile.situation)
    if kind == "cpu":
        return (
            'Run forward and loss under `torch.autocast("cpu", dtype=torch.bfloat16)`, or call '
            '`torch.set_float32_matmul_precision("medium")` once at the start.'
        )
    if "bfloat16" not in modes:
        return f'Run forward and loss under `torch.autocast("{kind}", dtype=torch.float16)` with a gradient scaler.'
    autocast = f'Run forward and loss under `torch.autocast("{kind}", dtype=torch.bfloat16)`'
    if "tf32" not in modes or not has_plain_products:
        return f"{autocast}."
    return f'{autocast}, or call `torch.set_float32_matmul_precision("high")` at the start, which keeps more digits.'


_LINEAR = operator("aten::addmm", 40, [(3072,), (8192, 768), (768, 3072)], calls=50)
_BACKWARD = operator("aten::mm", 30, [(8192, 3072), (3072, 768)], calls=40)
_CONVOLUTION = operator(
    "aten::convolution_backward", 40, [(64, 256, 28, 28), (64, 128, 28, 28), (256, 128, 3, 3)], calls=180
)
_ELEMENTWISE = operator("aten::gelu", 20, [(8192, 3072)])
_ON_CPU = (operator("aten::addmm", 40, [(512,), (1024, 512), (512, 512)], calls=30), _ELEMENTWISE)
_FEW_ROWS = operator("aten::addmm", 60, [(1024,), (32, 1024), (1024, 1024)], calls=400)
_SMALL = operator("aten::mm", 60, [(32, 64), (64, 64)], calls=10_000)
_CHEAP = operator("aten::mm", 60, [(64, 1024), (1024, 1024)])
_ON_GPU = run_on(GPU, _LINEAR, _BACKWARD, _ELEMENTWISE)
_WITHOUT_RATES = msgspec.structs.replace(GPU, ceilings=Ceilings())
_NO_FASTER_HERE = msgspec.structs.replace(
    CPU,
    ceilings=Ceilings(
        matmul_by_size=(
            SizedRate(key="cpu:bfloat16", side=512, flops_per_second=4.9e11, conversion_seconds=1e-5),
            SizedRate(key="cpu:float32", side=512, flops_per_second=5.0e11),
        )
    ),
)
_NO_FASTER_WITH_FEW_ROWS = msgspec.structs.replace(
    CPU,
    ceilings=msgspec.structs.replace(
        CPU.ceilings,
        flat=tuple(
            FlatRate(key=f"cpu:{dtype}", short="rows", short_side=32, side=1024, flops_per_second=rate)
            for dtype, rate in (("float32", 1.1e11), ("bfloat16", 1.0e11))
        ),
    ),
)
_IN_DOUBT = msgspec.structs.replace(
    CPU,
    ceilings=msgspec.structs.replace(
        CPU.ceilings, doubts=(("cpu", "Other programs kept 1.6 of 2 cores busy while these rates were measured."),)
    ),
)
_MANY_WEIGHTS = RunEvidence(layers=(LayerUse(kind="Linear", name="net.0", weight_shape=(4096, 4096), count=32),))


def _with_fresh_memory(profile: Profile, bytes_per_step: float) -> Profile:
    """One layer of a million weights, on a machine that takes 10 ms to provide a megabyte."""
    layers = (LayerUse(kind="Linear", name="net.0", weight_shape=(1024, 1024), count=1),)
    ceilings = msgspec.structs.replace(profile.machine.ceilings, fresh_memory_seconds_per_byte=1e-8)
    return msgspec.structs.replace(
        profile,
        evidence=msgspec.structs.replace(profile.evidence, layers=layers),
        machine=msgspec.structs.replace(profile.machine, ceilings=ceilings),
        fresh_bytes_per_step=bytes_per_step,
    )


def _with_calls(profile: Profile, seconds: float) -> Profile:
    """200 small layers, to each of which autocast adds so long."""
    layers = (LayerUse(kind="Linear", name="net.0", weight_shape=(16, 16), count=200),)
    calls = (("cpu:bfloat16", seconds),)
    ceilings = msgspec.structs.replace(profile.machine.ceilings, autocast_seconds_per_layer=calls)
    return msgspec.structs.replace(
        profile,
        evidence=msgspec.structs.replace(profile.evidence, layers=layers),
        machine=msgspec.structs.replace(profile.machine, ceilings=ceilings),
    )


def _with_layers(profile: Profile) -> Profile:
    evidence = msgspec.structs.replace(profile.evidence, layers=_MANY_WEIGHTS.layers)
    return msgspec.structs.replace(profile, evidence=evidence)


fires = {
    "float32 products on a GPU": _ON_GPU,
    "no rate was measured": run_on(_WITHOUT_RATES, _LINEAR, _BACKWARD, _ELEMENTWISE),
    "the rates are in doubt": run_on(_IN_DOUBT, *_ON_CPU),
    "a processor that multiplies bfloat16": run_on(CPU, *_ON_CPU),
    "many layers, and calls that cost little": _with_calls(run_on(CPU, *_ON_CPU), 2e-5),
    "memory that is used again": _with_fresh_memory(run_on(CPU, *_ON_CPU), 1e4),
    "few rows, for which no rate was measured": run_on(CPU, _FEW_ROWS, _ELEMENTWISE),
    "convolutions in TensorFloat-32, which 16 bits could halve": run_on(GPU, _CONVOLUTION, _ELEMENTWISE),
}
silent = {
    "nothing was measured": Profile(),
    "autocast is in use": run_on(GPU, _LINEAR, _BACKWARD, autocast_dtype="bfloat16"),
    "TensorFloat-32 is allowed": run_on(GPU, _LINEAR, _BACKWARD, matmul_precision="high"),
    "the products are in bfloat16": run_on(GPU, operator("aten::mm", 70, [(512, 512), (512, 512)], "c10::BFloat16")),
    "the products are in float64": run_on(GPU, operator("aten::mm", 70, [(512, 512), (512, 512)], "double")),
    "types were not recorded": run_on(GPU, operator("aten::mm", 70)),
    "products are a small part": run_on(GPU, operator("aten::mm", 4, [(512, 512), (512, 512)]), _ELEMENTWISE),
    "the GPU waits for the host": run_on(GPU, operator("aten::mm", 15, [(512, 512), (512, 512)])),
    "the processor has no faster format": run_on(Machine(cores=8, native_dtypes=("float32",)), *_ON_CPU),
    "the other format is no faster when measured": run_on(_NO_FASTER_HERE, *_ON_CPU),
    "it is no faster with so few rows": run_on(_NO_FASTER_WITH_FEW_ROWS, _FEW_ROWS, _ELEMENTWISE),
    "products so small that the other format is slower": run_on(CPU, _SMALL),
    "the operators take long, but not for their operations": run_on(CPU, _CHEAP),
    "converting the weights costs more than products save": _with_layers(run_on(CPU, *_ON_CPU)),
    "each step needs new memory for the conversions": _with_fresh_memory(run_on(CPU, *_ON_CPU), 8e6),
    "autocast's calls cost more than products save": _with_calls(run_on(CPU, *_ON_CPU), 3e-4),
    "convolutions in TensorFloat-32, and no rates": run_on(_WITHOUT_RATES, _CONVOLUTION, _ELEMENTWISE),
}
