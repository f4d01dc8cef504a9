"""Attention writes its whole score matrix to memory, which a fused kernel avoids.

## What it is
Attention is computed by its definition: a batched matrix product, a softmax over the scores of every pair of tokens,
and another product. A Hugging Face model does this with `attn_implementation="eager"`, `torch.nn.MultiheadAttention`
with `need_weights=True` (its default), and many hand-written models.

## Why it is slow
The memory and memory traffic of the scores grow with the square of the sequence length. Each operation on them
(scaling, mask, softmax, dropout, and the same backward) reads and writes all of them. Fused kernels such as
FlashAttention keep a block of scores on the chip and use it immediately.

## How to see it
In a profile: `aten::_softmax` over shapes that end in (tokens, tokens), between two `aten::bmm` of the same sizes. With
the fused operator there is `aten::_scaled_dot_product_..._attention` instead. Its saving was measured on this machine
for sequences and heads of several sizes; of the sizes around the script's, the one with the largest saving is the
bound. The time for masks and dropout on the scores, and for allocating their memory in every step (as page faults
show), is added. If no size saves a material share of the step, there is no finding: on a CPU the fused operator is
often slower for short sequences and narrow heads.

## What to do
Call `torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=..., is_causal=...)`. For a Hugging
Face model load it with `attn_implementation="sdpa"`; for `nn.MultiheadAttention` pass `need_weights=False`.

## When it is fine
If the attention weights themselves are needed, for short sequences, or if a learned mask or bias needs gradients that
no fused kernel computes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import msgspec

from hotlap.diagnose.examples import CPU, GPU, operator, run_on
from hotlap.diagnose.operators import (
    WORTH_A_LOOK,
    dtype_of,
    kernels_matter,
    own_nanoseconds,
    profiled_steps,
    share_of,
    site_of,
    site_with,
)
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import at_most, computing_share, exactly
from hotlap.diagnose.wording import levers_for, name, percent, size
from hotlap.levers.support.situations import device_kind
from hotlap.records import AttentionRate, Ceilings, Finding, Machine, ModelFacts
from hotlap.traces.records import OperatorRow

title = "Attention writes its matrix of scores to memory"
group = "compute"

_Shape: TypeAlias = tuple[int, ...]

_SOFTMAX = frozenset({"aten::_softmax", "aten::_softmax_backward_data"})
_PRODUCTS = frozenset({"aten::bmm", "aten::baddbmm"})
_DEFINITION = _SOFTMAX | {"aten::mul", "aten::div", "aten::mul_", "aten::div_"}
"""What is done to scores where attention is computed by its definition, which is how it was measured: softmax, scaling,
and both backwards."""

_FUSED_ALREADY = "aten::_scaled_dot_product_attention_math"
_MUCH_LARGER = 2
_BYTES = {"double": 8, "float": 4, "c10::Half": 2, "c10::BFloat16": 2}


def check(profile: Profile) -> Iterator[Finding]:
    """Judge by profiled operators, or else by a Hugging Face model's configuration."""
    if any(it.name == _FUSED_ALREADY for it in profile.operators):
        return  # the script calls the fused function, which found no kernel for its inputs
    if profile.operators:
        yield from _by_operators(profile)
    else:
        yield from _by_configuration(profile)


@dataclass(frozen=True, slots=True)
class _Attention:
    """All operators on scores of these ``shapes``; ``products`` compute them or multiply by them."""

    softmax: OperatorRow
    shapes: frozenset[_Shape]
    products: tuple[OperatorRow, ...]
    others: tuple[OperatorRow, ...]

    @property
    def rows(self) -> tuple[OperatorRow, ...]:
        return self.products + self.others

    @property
    def besides(self) -> tuple[OperatorRow, ...]:
        """Operators on scores that are not part of the definition: masks, biases, dropout."""
        return tuple(it for it in self.others if it.name not in _DEFINITION)


def _by_operators(profile: Profile) -> Iterator[Finding]:
    found = _attention(profile)
    if found is None or not kernels_matter(profile):
        return
    share = min(share_of(profile, found.rows), computing_share(profile))
    saved = _most_saved(profile, found)
    besides = min(share, share_of(profile, found.besides))
    fresh = min(share - besides, _fresh_share(profile, found))
    most = share if saved is None else besides + fresh + (share - besides - fresh) * saved
    if most < WORTH_A_LOOK:
        return
    products = min(share, share_of(profile, found.products))
    shape = "x".join(map(str, found.softmax.shapes[0]))
    yield Finding(
        rule="eager-attention",
        share=at_most(most),
        title=f"Attention that is not fused takes {percent(share)} of the step, with scores of {shape}.",
        evidence=(
            *_measured_saving(saved, besides, fresh),
            f"Of the step, {percent(products)} go to products that make or use the scores, {percent(share - products)} "
            "to softmax and other work on them.",
            f"One layer's scores take {size(_written(found.softmax))}, and each operation on them reads or writes all "
            "of it.",
        ),
        remedy=_remedy(profile),
        site=site_of(found.softmax) or site_with(profile, "model"),
        levers=levers_for("eager-attention", profile.situation),
    )


def _measured_saving(saved: float | None, besides: float, fresh: float) -> Iterator[str]:
    if saved is None:
        return
    yield f"For these sizes a fused operator took at most {percent(saved)} less time in a test without masks."
    if besides >= WORTH_A_LOOK:
        yield f"Masks and other work on the scores take {percent(besides)} of the step; a fused operator includes them."
    if fresh >= WORTH_A_LOOK:
        yield f"Allocating memory for the scores takes {percent(fresh)} of the step; a fused operator needs none."


def _by_configuration(profile: Profile) -> Iterator[Finding]:
    eager = [it for it in profile.facts.models if it.transformers_model and it.attention == "eager"]
    if not eager:
        return
    yield Finding(
        rule="eager-attention",
        kind="hint",
        share=exactly(0.0),
        title=f"{name(eager[0].kind)}, with {eager[0].parameters:,} parameters, computes its attention eagerly.",
        evidence=(
            f"This is the configuration of {len(eager)} of {len(profile.facts.models)} models.",
            "No operators were profiled, so its cost is unknown.",
        ),
        remedy=_remedy(profile),
        site=eager[0].site or site_with(profile, "model"),
        levers=levers_for("eager-attention", profile.situation),
    )


def _attention(profile: Profile) -> _Attention | None:
    """The operators on scores; None unless scores are both made by a batched product and multiplied by another.

    A softmax over images has the same number of dimensions, but no such products around it.
    """
    softmax = [it for it in profile.operators if it.name in _SOFTMAX and it.shapes and len(it.shapes[0]) in (3, 4)]
    shapes = {it.shapes[0] for it in softmax}
    products = [it for it in profile.operators if it.name in _PRODUCTS]
    attended = {
        shape
        for shape in shapes
        if any(_makes(it, _flat(shape)) for it in products) and any(_uses(it, _flat(shape)) for it in products)
    }
    if not attended:
        return None
    flat = {_flat(it) for it in attended}
    flat |= {(batch, columns, rows) for batch, rows, columns in flat}
    forward = [it for it in softmax if it.shapes[0] in attended and it.name == "aten::_softmax"]
    costliest = max(forward or softmax, key=lambda it: own_nanoseconds(profile, it))
    touching = tuple(it for it in products if any(_makes(it, shape) or _uses(it, shape) for shape in flat))
    others = tuple(it for it in profile.operators if it.name not in _PRODUCTS and attended & set(it.shapes[:2]))
    return _Attention(costliest, frozenset(attended), touching, others)


def _flat(shape: _Shape) -> _Shape:
    """Scores as batched products see them: batch and heads in one dimension."""
    return (prod(shape[:-2]), *shape[-2:])


def _operands(row: OperatorRow) -> tuple[_Shape, ...]:
    return row.shapes[1:3] if row.name == "aten::baddbmm" else row.shapes[:2]


def _most_saved(profile: Profile, attention: _Attention) -> float | None:
    """Which part of attention a fused operator saves at most, by the rates of the sizes around this one; None where
    none was measured."""
    made = next((it for it in attention.products if any(_makes(it, _flat(shape)) for shape in attention.shapes)), None)
    if made is None:
        return None
    tokens, width = _operands(made)[0][1:]
    key = f"{device_kind(profile.situation)}:{dtype_of(made)}"
    rates = _with_threads([it for it in profile.machine.ceilings.attention if it.key == key], profile.facts.threads)
    lengths, widths = (_around(rates, name, value) for name, value in (("tokens", tokens), ("head_width", width)))
    near = [it for it in rates if it.tokens in lengths and it.head_width in widths]
    return max((max(0.0, 1 - it.fused_seconds / it.eager_seconds) for it in near), default=None)


def _with_threads(rates: Sequence[AttentionRate], threads: int) -> list[AttentionRate]:
    """Return the rates measured with one thread for a single-threaded script, else with the most threads."""
    measured = {it.threads for it in rates}
    wanted = 1 if threads == 1 and 1 in measured else max(measured, default=0)
    return [it for it in rates if it.threads == wanted]


def _fresh_share(profile: Profile, attention: _Attention) -> float:
    """Which part of a step the system takes to provide memory that is used for scores, where it takes large pieces back
    as soon as they are freed. It shows by the script's page faults; rates were measured without any."""
    seconds_per_byte = profile.machine.ceilings.fresh_memory_seconds_per_byte
    if profile.on_accelerator or not seconds_per_byte or profile.account.wall <= 0:
        return 0.0
    calls = sum(it.calls for it in attention.rows) / profiled_steps(profile)
    written = calls * _written(attention.softmax)
    return min(profile.fresh_bytes_per_step, written) * seconds_per_byte / profile.account.wall


def _written(softmax: OperatorRow) -> int:
    """Return the bytes of one layer's scores."""
    return prod(softmax.shapes[0]) * _BYTES.get(softmax.types[0] if softmax.types else "", 4)


def _around(rates: Sequence[AttentionRate], name: str, value: int) -> set[int]:
    """Return the next smaller and larger measured size; empty if the script's is much larger than all."""
    sizes = sorted({getattr(it, name) for it in rates})
    if not sizes or value > _MUCH_LARGER * sizes[-1]:
        return set()
    return {*[it for it in sizes if it <= value][-1:], *[it for it in sizes if it >= value][:1]}


def _makes(row: OperatorRow, scores: _Shape) -> bool:
    operands = _operands(row)
    if len(operands) != 2 or any(len(it) != 3 for it in operands):
        return False
    return (operands[0][0], operands[0][1], operands[1][2]) == scores


def _uses(row: OperatorRow, scores: _Shape) -> bool:
    return scores in _operands(row)


def _remedy(profile: Profile) -> str:
    if any(it.transformers_model and it.attention == "eager" for it in profile.facts.models):
        return 'Load the model with `attn_implementation="sdpa"`.'
    return (
        "Call `torch.nn.functional.scaled_dot_product_attention` in place of product, softmax and product; pass "
        "`need_weights=False` to `nn.MultiheadAttention`."
    )


_SCORES = (8, 12, 512, 512)
_FLAT = (96, 512, 512)
_QUERY, _KEY, _VALUE = (96, 512, 64), (96, 64, 512), (96, 512, 64)
_EAGER = (
    operator("aten::bmm", 6, [_QUERY, _KEY]),
    operator("aten::div", 4, [_SCORES]),
    operator("aten::_softmax", 6, [_SCORES], place="model.py(88): attend"),
    operator("aten::bmm", 5, [_FLAT, _VALUE]),
    operator("aten::_softmax_backward_data", 9, [_SCORES, _SCORES]),
)
_REST = operator("aten::mm", 60, [(4096, 768), (768, 3072)])
_BERT = ModelFacts(kind="BertModel", parameters=110_000_000, transformers_model=True, attention="eager", device="cuda")
_IMAGES = operator("aten::_softmax", 20, [(8, 12, 512, 512)])
_FUSED = operator("aten::_scaled_dot_product_efficient_attention", 30, [(8, 12, 512, 64)] * 3)
_HARDLY_ANY = tuple(operator(it.name, 0.8, it.shapes) for it in _EAGER)
_WITHOUT_KERNEL = operator(_FUSED_ALREADY, 1, [(8, 12, 512, 64)] * 3)


def _measured(fused_seconds: float, tokens: int = 256) -> Machine:
    """A processor on which eager attention of such sequences takes ten milliseconds."""
    rate = AttentionRate(
        key="cpu:float32", tokens=tokens, head_width=64, eager_seconds=0.01, fused_seconds=fused_seconds
    )
    longer = msgspec.structs.replace(rate, tokens=4 * tokens)
    return msgspec.structs.replace(CPU, ceilings=Ceilings(attention=(rate, longer)))


def _with_fresh_memory(profile: Profile, bytes_per_step: float) -> Profile:
    """On a machine that takes a millisecond to provide a megabyte."""
    ceilings = msgspec.structs.replace(profile.machine.ceilings, fresh_memory_seconds_per_byte=1e-9)
    machine = msgspec.structs.replace(profile.machine, ceilings=ceilings)
    return msgspec.structs.replace(profile, machine=machine, fresh_bytes_per_step=bytes_per_step)


fires = {
    "each step needs new memory for the scores": _with_fresh_memory(run_on(_measured(0.012), *_EAGER, _REST), 1e8),
    "a fused operator was measured to be faster": run_on(_measured(0.004), *_EAGER, _REST),
    "sequences much longer than those that were measured": run_on(_measured(0.012, 32), *_EAGER, _REST),
    "attention by hand on a GPU": run_on(GPU, *_EAGER, _REST),
    "attention by hand on a CPU": run_on(CPU, *_EAGER, _REST),
    "an eager Hugging Face model": run_on(GPU, *_EAGER, _REST, model=_BERT),
    "an eager Hugging Face model that was not profiled": run_on(GPU, model=_BERT),
    "multi-head attention with its weights": run_on(
        CPU,
        operator("aten::bmm", 5, [(64, 128, 32), (64, 32, 128)]),
        operator("aten::_softmax", 5, [(64, 128, 128)]),
        operator("aten::bmm", 5, [(64, 128, 128), (64, 128, 32)]),
        _REST,
    ),
}
silent = {
    "nothing was measured": Profile(),
    "a fused operator was measured to be slower": run_on(_measured(0.012), *_EAGER, _REST),
    "fused attention": run_on(GPU, _FUSED, _REST),
    "a softmax over images": run_on(GPU, _IMAGES, _REST),
    "a softmax over images next to other products": run_on(
        GPU, _IMAGES, operator("aten::bmm", 5, [_FLAT, _VALUE]), _REST
    ),
    "it takes a small part of the step": run_on(GPU, *_HARDLY_ANY, _REST),
    "an eager Hugging Face model that spends its time elsewhere": run_on(GPU, *_HARDLY_ANY, _REST, model=_BERT),
    "the fused function found no kernel": run_on(GPU, *_EAGER, _REST, _WITHOUT_KERNEL),
    "a Hugging Face model with fused attention": run_on(
        GPU, model=ModelFacts(kind="BertModel", parameters=1, transformers_model=True, attention="sdpa")
    ),
}
