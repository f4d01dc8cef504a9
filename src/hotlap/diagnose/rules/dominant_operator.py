"""One operator takes most of the computing time, and it is not a matrix product.

## What it is
A single operator, called with the same shapes again and again, takes more than two fifths of all operators' own time.
It is not one of those that hardware and libraries are optimized for (matrix products, convolutions, fused attention,
recurrent layers), for which such a share is a good sign. The gradient of `x[index]` is reported from one fifth on,
since that of `torch.index_select` is often cheaper.

## Why it is slow
Models do most of their arithmetic in matrix products. Any other dominant operator is limited by memory, by an algorithm
that cannot be parallelized, or by being called far too often: the gradient of an embedding writes a table as large as
the vocabulary, a scatter adds to the same positions sequentially, a tensor that grows by concatenation is copied
entirely each time.

## How to see it
`hotlap profile train.py` names the operator, its shapes and the line at which it was sampled, or else the function that
the trace shows around it. `torch.profiler` with `record_shapes=True` and `key_averages(group_by_input_shape=True)`
shows the same.

## What to do
It depends on the operator; the finding names the usual remedy. Often a formulation without it exists, or it can run on
less data, or less often. Chains of element-wise operators are fused by `torch.compile`.

## When it is fine
If the operator is essential to the method, such as sorting in a ranking loss or scatters in a graph network. Then check
only whether it needs that much data.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from types import MappingProxyType

import msgspec

from hotlap.diagnose.device_idle import traced_device
from hotlap.diagnose.examples import CPU, GPU, operator, run_on, with_optimizer
from hotlap.diagnose.host_lines import line_of_operator
from hotlap.diagnose.operators import (
    WORTH_A_LOOK,
    in_words,
    is_matrix_work,
    kernels_matter,
    own_nanoseconds,
    profiled_steps,
    share_of,
    site_of,
    site_with,
)
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.rules.unfused_optimizer import could_be_fused
from hotlap.diagnose.shares import exactly, phase_share
from hotlap.diagnose.wording import duration, levers_for, name, percent
from hotlap.evidence import RunEvidence
from hotlap.records import CallSite, Finding, OptimizerFacts
from hotlap.traces.records import OperatorRow

title = "One operator other than a matrix product takes most of the compute time"
group = "compute"

DOMINANT = 0.40
"""An operator with more than this share of all operators' own time dominates."""

AVOIDABLE = 0.20
"""The share from which an operator with a cheaper equivalent is reported."""

MANY_CALLS = 100
"""This many calls per step with the same shapes indicate a loop in Python."""

_SMALL_SECONDS = 1e-4
_NANOSECONDS = 1e-9

_ADVICE = MappingProxyType(
    {
        "embedding_dense_backward": (
            "It writes a gradient as large as the whole table. If a step uses only some rows, "
            "`nn.Embedding(..., sparse=True)` with SGD or SparseAdam writes these alone."
        ),
        "_index_put_impl_": (
            "It writes to positions that may repeat, so on a GPU it sorts them first. Where it is the gradient of "
            "`x[index]`, `torch.index_select` or `torch.gather` often has a cheaper one; otherwise use `scatter_add_` "
            "or `index_add_`."
        ),
        "fill_": (
            "It fills a whole tensor with one number: a buffer that is allocated again, or the gradient of an "
            "embedding or "
            "of indexing, which is as large as what was indexed. `nn.Embedding(..., sparse=True)` has a small one."
        ),
        "copy_": (
            "It converts or moves whole tensors: `.to()`, `.contiguous()`, `.clone()`, `repeat`, `reshape` after a "
            "transposition. Keep tensors in one type and layout, and use `expand` where nothing is written."
        ),
        "cat": (
            "It copies everything that it concatenates. Collect the parts in a list and concatenate them once, "
            "or write them into a "
            "tensor of the final size."
        ),
        "sort": "Sort fewer elements, or use `torch.topk` if only some are needed.",
        "_unique2": "It sorts. Compute it once and keep it, or use `torch.bincount` for small integers.",
        "nonzero": "Its result's size depends on the values; `torch.where` with three arguments keeps a fixed size.",
        "cumsum": "It is sequential along one dimension: keep that one last in memory, and no longer than needed.",
    }
)
_ALIKE = MappingProxyType(
    {
        "index_put_": "_index_put_impl_",
        "zero_": "fill_",
        "stack": "cat",
        "argsort": "sort",
        "topk": "sort",
        "clone": "copy_",
    }
)
_USUAL = (
    "Check the line that calls it: can it run on less data or less often, or be merged with adjacent operators? "
    "`torch.compile` fuses chains of element-wise operators."
)
_READS = frozenset({"aten::item", "aten::_local_scalar_dense"})
"""They wait and compute nothing; hotlap itself reads the loss in the profiled steps on a CPU."""

_HAVE_EQUIVALENTS = frozenset({"aten::_index_put_impl_"})
"""As the gradient of `x[index]`: that of `torch.index_select(x, 0, index)` is often faster, on a CPU too (as in
`tests/causes/citation_graph`), but slower where what comes in is an expanded tensor, as the gradient of a sum."""

_UPDATES = frozenset(
    f"aten::{it}" for it in ("add", "add_", "addcdiv_", "addcmul_", "div", "div_", "lerp_", "mul", "mul_", "sqrt")
)
"""Operators that optimizers with a fused form call for each parameter if they are not fused."""

_LOOP = "It is called in a loop. Stack the small tensors into one, and call it once for all of them."


def check(profile: Profile) -> Iterator[Finding]:
    """Only for torch's own operators: a library's own operators have a purpose."""
    whole = sum(own_nanoseconds(profile, it) for it in profile.operators)
    rows = _costliest(profile)
    own = sum(own_nanoseconds(profile, it) for it in rows)
    share = share_of(profile, rows)
    enough = AVOIDABLE if rows and rows[0].name in _HAVE_EQUIVALENTS else DOMINANT
    if own <= enough * whole or share < WORTH_A_LOOK or not kernels_matter(profile):
        return
    first = max(rows, key=lambda it: own_nanoseconds(profile, it))
    if _is_upload(profile, first, own) or _is_update(profile, first, share):
        return
    calls = sum(it.calls for it in rows) / profiled_steps(profile)
    seconds = own * _NANOSECONDS / sum(it.calls for it in rows)
    advice = _advice(first.name)
    in_a_loop = calls >= MANY_CALLS and seconds < _SMALL_SECONDS
    yield Finding(
        rule="dominant-operator",
        kind="hint",
        share=exactly(0.0),
        title=f"{in_words(first)} takes {percent(own / whole)} of all operators' time.",
        evidence=(
            f"That is {percent(share)} of the step. Calls per step: {_figure(calls)}, of {duration(seconds)} each.",
            *_runners_up(profile, first, whole),
        ),
        remedy=_LOOP if in_a_loop else advice or _USUAL,
        site=_site(profile, first),
        levers=() if advice or in_a_loop else levers_for("dominant-operator", profile.situation),
    )


def _site(profile: Profile, row: OperatorRow) -> CallSite | None:
    """The line that was sampled in the operator, else the function that the trace shows around it, else the model's
    call."""
    around = site_of(row)
    return line_of_operator(profile, row.name, around) or around or site_with(profile, "model")


def _costliest(profile: Profile) -> list[OperatorRow]:
    """Return the rows of the costliest unusual operator with the same shapes, from all call sites."""
    alike: defaultdict[tuple[str, tuple[tuple[int, ...], ...]], list[OperatorRow]] = defaultdict(list)
    for it in profile.operators:
        usual = it.name in _READS or it.name.startswith("aten::_fused_") or is_matrix_work(it)
        if it.name.startswith("aten::") and not usual:
            alike[it.name, it.shapes].append(it)
    return max(alike.values(), key=lambda rows: sum(own_nanoseconds(profile, it) for it in rows), default=[])


def _figure(calls: float) -> str:
    return f"{calls:,.0f}" if calls >= 10 else f"{calls:.2g}"


def _runners_up(profile: Profile, first: OperatorRow, whole: int) -> Iterator[str]:
    others: defaultdict[str, int] = defaultdict(int)
    for it in profile.operators:
        if it.name != first.name:
            others[it.name] += own_nanoseconds(profile, it)
    if others:
        second = max(others, key=lambda it: others[it])
        yield f"The next is {name(second)}, with {percent(others[second] / whole)} in all."


def _is_upload(profile: Profile, row: OperatorRow, own: int) -> bool:
    """Whether the operator mostly copies batches to the device, which other rules report."""
    device = traced_device(profile)
    if row.name != "aten::copy_" or device is None:
        return False
    return 2 * sum(it.nanoseconds for it in device.copies if it.direction == "HtoD") >= own


def _is_update(profile: Profile, row: OperatorRow, share: float) -> bool:
    """Whether it is one of the operators of a plain optimizer whose phase takes as long: `unfused-optimizer` speaks of
    that."""
    if row.name not in _UPDATES or not any(could_be_fused(it) for it in profile.facts.optimizers):
        return False
    return phase_share(profile, "optimizer").value >= share


def _advice(operator_name: str) -> str:
    plain = operator_name.removeprefix("aten::")
    return _ADVICE.get(_ALIKE.get(plain, plain), "")


_EMBEDDING = operator("aten::embedding_dense_backward", 50, [(64, 128, 256), (64, 128)], place="net.py(12): forward")
_PRODUCTS = operator("aten::mm", 30, [(8192, 256), (256, 1024)])
_LOOPED = operator("aten::mul", 12, [(32, 8)], calls=2000, place="net.py(40): forward")

_INDEXED = [(2000, 96), (20_000,), (20_000, 96)]
_SORTED = operator("aten::sort", 20, [(64, 512)])
_UPDATE = operator("aten::sqrt", 60, [(8, 512)], calls=2000)
_ADAM = OptimizerFacts(kind="Adam", parameters=1000, learning_rate=1e-3, supports_fused=True, from_torch=True)

fires = {
    "the gradient of an embedding": run_on(CPU, _EMBEDDING, _PRODUCTS),
    "concatenations on a GPU": run_on(GPU, operator("aten::cat", 60, [(64, 4096)]), _PRODUCTS),
    "a loop of small operators": run_on(CPU, _LOOPED, operator("aten::mm", 10, [(32, 8), (8, 8)])),
    "its name is that of an update, which takes no time": with_optimizer(
        run_on(CPU, _UPDATE, optimizers=(_ADAM,)), 0.001
    ),
    "the gradient of indexing, for which there is another way": run_on(
        CPU, operator("aten::_index_put_impl_", 30, _INDEXED), _PRODUCTS, _SORTED
    ),
    "element-wise work": run_on(CPU, operator("aten::exp", 70, [(4096, 4096)]), _PRODUCTS),
}
silent = {
    "reading a number": run_on(CPU, operator("aten::_local_scalar_dense", 60, [()]), _PRODUCTS),
    "nothing was measured": Profile(),
    "a matrix product dominates": run_on(CPU, operator("aten::addmm", 90, [(8192, 256), (256, 1024)]), _EMBEDDING),
    "a convolution dominates": run_on(GPU, operator("aten::convolution_backward", 60), _PRODUCTS),
    "a fused optimizer dominates": run_on(GPU, operator("aten::_fused_adamw_", 60), _PRODUCTS),
    "a library's own operator dominates": run_on(GPU, operator("library::scan", 60), _PRODUCTS),
    "some gradients of indexing": run_on(
        CPU, operator("aten::_index_put_impl_", 15, _INDEXED), _PRODUCTS, _SORTED, operator("aten::exp", 15)
    ),
    "no operator dominates": run_on(CPU, *(operator(f"aten::{it}", 20) for it in ("exp", "cat", "sort", "mul"))),
    "it dominates a step that is spent elsewhere": run_on(CPU, operator("aten::cat", 4), operator("aten::mm", 1)),
    "the GPU waits for the host": run_on(GPU, operator("aten::cat", 30), operator("aten::mm", 5)),
    "the update of a plain optimizer": with_optimizer(run_on(CPU, _UPDATE, optimizers=(_ADAM,)), 0.08),
    "the profiled steps are unknown": msgspec.structs.replace(run_on(CPU, _EMBEDDING), evidence=RunEvidence()),
}
