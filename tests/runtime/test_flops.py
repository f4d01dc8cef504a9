"""Operations are counted as they are carried out: a sparse matrix multiplies the numbers that it holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch.utils._python_dispatch import TorchDispatchMode

from hotlap.runtime.flops import FlopCounter
from hotlap.runtime.flops_watch import STEP_THAT_COUNTS_FLOPS, FlopsWatch
from hotlap.runtime.hooks import Hooks
from hotlap.runtime.patches import Patches
from hotlap.runtime.roots import Roots

ROWS, COLUMNS = 40, 16


def counted(call: Callable[[], torch.Tensor]) -> float:
    with FlopCounter() as counter:
        call().sum().backward()
    assert counter.flops is not None
    return counter.flops


@pytest.fixture
def weights() -> torch.Tensor:
    return torch.ones(ROWS, COLUMNS, requires_grad=True)


@pytest.fixture
def held() -> torch.Tensor:
    """A band matrix: 40 numbers on the diagonal, and 39 next to it."""
    return torch.eye(ROWS) + torch.diag(torch.ones(ROWS - 1), 1)


@pytest.mark.parametrize("convert", [torch.Tensor.to_sparse_coo, torch.Tensor.to_sparse_csr])
@pytest.mark.parametrize("multiply", [torch.matmul, torch.sparse.mm])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_a_sparse_product_counts_what_it_holds(
    convert: Callable[[Any], Any], multiply: Callable[[Any, Any], Any], held: torch.Tensor, weights: torch.Tensor
) -> None:
    numbers = 2 * ROWS - 1
    adjacency = convert(held)
    assert counted(lambda: multiply(adjacency, weights)) == 2 * (2 * numbers * COLUMNS), "forward and backward"


def test_a_dense_product_counts_as_torch_counts_it(held: torch.Tensor, weights: torch.Tensor) -> None:
    assert counted(lambda: held @ weights) == 2 * (2 * ROWS * ROWS * COLUMNS)
    layer = torch.nn.Linear(COLUMNS, 8)
    assert counted(lambda: layer(weights)) == 3 * (2 * ROWS * COLUMNS * 8)


def test_gradients_with_respect_to_the_input_of_a_module_are_counted() -> None:
    """A penalty on gradients differentiates an input, which is a leaf, and then what it found."""
    layer = torch.nn.Linear(COLUMNS, 8, bias=False)
    batch = torch.ones(ROWS, COLUMNS, requires_grad=True)

    def penalty() -> torch.Tensor:
        (found,) = torch.autograd.grad(layer(batch).square().sum(), batch, create_graph=True)
        return found.square()

    one = 2 * ROWS * COLUMNS * 8
    assert counted(penalty) == pytest.approx(7 * one, abs=one)


@pytest.mark.skipif(not hasattr(TorchDispatchMode, "ignore_compile_internals"), reason="this torch has no such mode")
@pytest.mark.parametrize("is_compiled", [True, False])
def test_what_is_compiled_first_while_operations_are_counted_is_compiled_and_not_counted(is_compiled: bool) -> None:
    """Flex attention that a script compiles must not run without having been compiled."""
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: object) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    def step() -> torch.Tensor:
        return (torch.ones(ROWS, COLUMNS, requires_grad=True) @ torch.ones(COLUMNS, 8)).sum()

    torch._dynamo.reset()
    counters.clear()
    compute = torch.compile(step, backend=backend) if is_compiled else step
    watch = FlopsWatch(torch, Roots(Hooks(torch), Patches()))
    watch.step_ended(STEP_THAT_COUNTS_FLOPS)
    compute().backward()
    watch.step_ended(STEP_THAT_COUNTS_FLOPS + 1)
    assert len(graphs) == is_compiled
    assert watch.flops == (None if is_compiled else 2 * (2 * ROWS * COLUMNS * 8))
