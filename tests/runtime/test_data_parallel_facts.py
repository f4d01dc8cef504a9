"""What is known of a wrapper: whether the script calls it or goes round it, and a digest of its weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from hotlap.records import CallSite
from hotlap.runtime.data_parallel import DataParallelWatch, weights_digest
from hotlap.runtime.hooks import Hooks
from hotlap.runtime.interception import Interception

SITE = CallSite(role="model", file="/home/ada/train.py", line=7)


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[DataParallelWatch]:
    distributed.init_process_group("gloo", f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    interception = Interception(Hooks(torch=torch))
    interception.install()
    yield DataParallelWatch(interception.hooks, digests=True)
    interception.suspend()
    distributed.destroy_process_group()


@pytest.fixture
def wrapper(watch: DataParallelWatch) -> DistributedDataParallel:
    return DistributedDataParallel(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1)))


def test_a_call_of_the_model_inside_goes_round_the_wrapper(
    watch: DataParallelWatch, wrapper: DistributedDataParallel
) -> None:
    watch.forward_begins(wrapper.module, SITE)
    assert watch.facts()[0].bypassed_at == SITE


def test_so_does_one_of_a_compiled_model_inside(watch: DataParallelWatch, wrapper: DistributedDataParallel) -> None:
    watch.forward_begins(torch.compile(wrapper.module, backend="eager"), SITE)
    assert watch.facts()[0].bypassed_at == SITE


def test_a_script_that_also_calls_the_wrapper_exchanges_gradients(
    watch: DataParallelWatch, wrapper: DistributedDataParallel
) -> None:
    watch.forward_begins(wrapper.module, SITE)
    watch.forward_begins(nn.Sequential(wrapper), None)
    assert watch.facts()[0].bypassed_at is None


def test_another_model_is_none_of_the_wrappers(watch: DataParallelWatch, wrapper: DistributedDataParallel) -> None:
    watch.forward_begins(nn.Linear(3, 1), SITE)
    assert watch.facts()[0].bypassed_at is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_digest_shows_each_bit_of_each_weight(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = nn.BatchNorm1d(3).to(dtype)
    before = weights_digest(torch, model)
    assert model.running_mean is not None
    model.running_mean.add_(1.0)
    assert weights_digest(torch, model) == before, "buffers are not exchanged"
    with torch.no_grad():
        last = model.weight[2]
        last.copy_(torch.nextafter(last, torch.full_like(last, 9.0)))
    assert weights_digest(torch, model) != before
