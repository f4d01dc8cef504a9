"""The blocks to recompute within a budget of time, and the compiler's own budget."""

from __future__ import annotations

from itertools import chain, combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hotlap.errors import PlanError
from hotlap.levers.support.block_budget import blocks_to_recompute, listed, numbers_of
from hotlap.levers.support.compilers import set_activation_memory_budget
from hotlap.records import BlockCost

COSTS = st.lists(
    st.builds(BlockCost, forward_seconds=st.floats(0.001, 1.0), saved_bytes=st.integers(0, 1000)), max_size=7
)


@given(COSTS, st.floats(0.0, 3.0))
def test_no_other_choice_within_the_budget_frees_clearly_more(costs: list[BlockCost], most: float) -> None:
    chosen = blocks_to_recompute(costs, most)
    assert sum(costs[it].forward_seconds for it in chosen) <= most + 1e-9
    freed = sum(costs[it].saved_bytes for it in chosen)
    tighter = most * (1 - len(costs) / 1000)  # each weight is rounded up to a thousandth
    for subset in chain.from_iterable(combinations(costs, count) for count in range(len(costs) + 1)):
        if sum(it.forward_seconds for it in subset) <= tighter:
            assert sum(it.saved_bytes for it in subset) <= freed


def test_a_cheap_block_that_keeps_much_comes_first() -> None:
    costs = (BlockCost(forward_seconds=0.3, saved_bytes=10), BlockCost(forward_seconds=0.1, saved_bytes=90))
    assert blocks_to_recompute(costs, 0.2) == (1,)
    assert blocks_to_recompute(costs, 1.0) == (0, 1)
    assert blocks_to_recompute(costs, 0.0) == ()


@pytest.mark.parametrize("text", ["", "1,", "0;print()", "a", "-1", "1" * 9])
def test_a_list_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match="blocks"):
        numbers_of(text)


def test_lists_survive() -> None:
    assert numbers_of(listed((0, 2, 11))) == (0, 2, 11)


def kept_bytes(budget: float) -> int:
    """What a compiled forward pass keeps for its backward pass."""
    torch._dynamo.reset()
    set_activation_memory_budget(budget)
    layers = [it for _ in range(6) for it in (torch.nn.Linear(32, 32), torch.nn.GELU())]
    model = torch.compile(torch.nn.Sequential(*layers), backend="aot_eager_decomp_partition")
    saved: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda it: it):
        output = model(torch.randn(512, 32))
    output.sum().backward()
    return sum(saved.values())


def test_the_compiler_keeps_fewer_activations_within_a_smaller_budget() -> None:
    try:
        assert kept_bytes(0.1) < 0.7 * kept_bytes(1.0)
    finally:
        set_activation_memory_budget(1.0)
        torch._dynamo.reset()
