"""The memory account: what storages are for, when most exist, and what keeps them from step to step."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from hunting import line
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode

from hotlap.records import AccountMemory, FakeTensors, MemoryAccount, MemoryGrowth
from hotlap.runtime.clock import StepClock
from hotlap.runtime.hooks import Hooks
from hotlap.runtime.instruments import account_memory, fake_tensors
from hotlap.runtime.instruments.api import Place
from hotlap.runtime.interception import Interception

Account = Callable[..., MemoryAccount]
STEPS, BATCH, WIDE = 14, 32, 256
FLOAT = 4


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Account]:
    """Run a training with the instrument, and return what it reports."""
    monkeypatch.setattr("hotlap.runtime.not_finite.checked_steps.switch_compiling_off", lambda: None)  # it is for good
    running: list[Interception] = []

    def run(train: Callable[[], object], *, without_data: bool = False) -> MemoryAccount:
        hooks = Hooks(torch=torch)
        interception = Interception(hooks)
        running.append(interception)
        clock = StepClock(
            hooks,
            source="auto",
            scaling=interception,
            on_step=lambda: [tell() for tell in hooks.step_ended],  # type: ignore[arg-type]
        )
        interception.install()
        account_memory.install(Place(interception, clock, lambda **found: None, tmp_path), AccountMemory(steps=STEPS))
        if without_data:
            fake_tensors.install(Place(interception, clock, lambda **found: None, tmp_path), FakeTensors())
        train()
        for tell in hooks.before_exit:
            tell()
        interception.suspend()
        running.remove(interception)
        found: MemoryAccount = hooks.found["memory"]
        return found

    yield run
    for it in running:
        it.suspend()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(8, WIDE)
        self.narrow = nn.Linear(WIDE, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.narrow(torch.relu(self.wide(x)))
        return result


def fit(each: Callable[[torch.Tensor, torch.Tensor], object] = lambda output, loss: None) -> list[float]:
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.Adam(net.parameters())
    losses = []
    for _ in range(STEPS):
        batch = torch.randn(BATCH, 8)
        optimizer.zero_grad()
        output = net(batch)
        loss = output.square().mean()
        loss.backward()
        optimizer.step()
        each(output, loss)
        losses.append(float(loss.detach()))
    return losses


def only(found: MemoryAccount) -> MemoryGrowth:
    (growing,) = found.growing
    return growing


def test_each_storage_is_counted_once_for_what_it_is_for(account: Account) -> None:
    found = account(fit)
    parameters = FLOAT * (8 * WIDE + WIDE + WIDE + 1)
    assert found.peak.parameters == parameters == max(it.gradients for it in found.timeline.amounts)
    assert 2 * parameters <= found.peak.optimizer_state <= 2 * parameters + 4 * FLOAT * 8  # and Adam's four counters
    assert found.peak.inputs >= FLOAT * BATCH * 8
    assert len(found.step_peak_bytes) == STEPS and found.step_peak_bytes[-1] == found.peak.total
    assert max(it.total for it in found.timeline.amounts) == found.peak.total
    activations = max(it.activations for it in found.timeline.amounts)
    assert FLOAT * BATCH * WIDE <= activations <= 2 * FLOAT * BATCH * (WIDE + 8)  # relu's result, and little more
    assert {phase for _, phase in found.timeline.phases} == {"data", "forward", "backward", "between", "optimizer"}
    wide = next(it for it in found.modules if it.name == "wide")
    assert wide.kind == "Linear" and wide.amounts.parameters == FLOAT * 9 * WIDE


def test_a_clean_script_grows_by_nothing(account: Account) -> None:
    found = account(fit)
    assert found.growth_bytes_per_step == 0 and found.growing == ()


def test_counting_changes_no_loss_and_leaves_nothing_in_torch(account: Account) -> None:
    plain = fit()
    state = torch.get_rng_state()
    counted: list[list[float]] = []
    account(lambda: counted.append(fit()))
    assert counted == [plain] and torch.equal(torch.get_rng_state(), state)
    assert _get_current_dispatch_mode() is None
    assert not torch.nn.modules.module._global_forward_pre_hooks
    assert not torch.nn.modules.module._global_forward_hooks


def test_a_list_of_outputs_is_named_with_its_line(account: Account) -> None:
    kept: list[torch.Tensor] = []

    def train() -> None:
        fit(lambda output, loss: kept.append(output.detach().repeat(1, 50)))  # kept

    found = account(train)
    assert found.growth_bytes_per_step >= FLOAT * BATCH * 50
    growing = only(found)
    assert growing.made_at is not None and growing.made_at.line == line("kept")
    assert growing.site is not None and growing.site.line == line("kept")
    assert growing.name == "kept" and growing.tensors_per_step == pytest.approx(1.0) and not growing.holds_graph


def test_a_loss_summed_with_its_graph_is_named_with_its_line(account: Account) -> None:
    def train() -> None:
        torch.manual_seed(0)
        net = Net()
        optimizer = torch.optim.SGD(net.parameters())
        total: torch.Tensor | float = 0.0
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = net(torch.randn(BATCH, 8)).square().mean()
            loss.backward()
            optimizer.step()
            total = total + loss  # summed

    growing = only(account(train))
    assert (growing.name, growing.holds_graph) == ("total", True)
    assert growing.site is not None and growing.site.line == line("summed")


def test_a_hook_that_keeps_tensors_is_named_with_its_line(account: Account) -> None:
    def train() -> None:
        features: list[torch.Tensor] = []

        def keep(module: nn.Module, args: object, output: torch.Tensor) -> None:
            features.append(output)  # hooked

        torch.manual_seed(0)
        net = Net()
        net.wide.register_forward_hook(keep)
        optimizer = torch.optim.SGD(net.parameters())
        for _ in range(STEPS):
            optimizer.zero_grad()
            net(torch.randn(BATCH, 8)).square().mean().backward()
            optimizer.step()

    found = account(train)
    assert found.growth_bytes_per_step >= FLOAT * BATCH * WIDE
    growing = only(found)
    assert (growing.name, growing.holds_graph) == ("features", True)
    assert growing.site is not None and growing.site.line == line("hooked")


def test_a_cache_that_grows_is_named_with_its_line(account: Account) -> None:
    def train() -> None:
        masks: dict[int, torch.Tensor] = {}
        lengths = iter(range(STEPS))

        def mask(output: torch.Tensor, loss: torch.Tensor) -> None:
            length = next(lengths)
            if length not in masks:
                masks[length] = torch.zeros(BATCH, 64)  # cached

        fit(mask)

    found = account(train)
    assert found.growth_bytes_per_step >= FLOAT * BATCH * 64
    growing = only(found)
    assert (growing.name, growing.holds_graph) == ("masks", False)
    assert growing.site is not None and growing.site.line == line("cached")


def test_nothing_is_kept_alive_by_counting(account: Account) -> None:
    made: list[weakref.ref[torch.Tensor]] = []
    account(lambda: fit(lambda output, loss: made.extend(map(weakref.ref, (output, loss)))))
    gc.collect()
    assert made and not any(it() is not None for it in made)


def test_tensors_without_data_have_the_same_peak(account: Account) -> None:
    estimated = account(fit, without_data=True).peak
    parameters, activations = FLOAT * (10 * WIDE + 1), FLOAT * BATCH * (WIDE + 1)
    assert (
        estimated.parameters == parameters
        and activations - FLOAT * BATCH <= estimated.activations <= activations + FLOAT
    )
    assert 2 * parameters <= estimated.optimizer_state <= 2 * parameters + 4 * FLOAT * 8


@pytest.mark.parametrize("layers", [2, 30])
def test_a_model_larger_than_this_machine_is_estimated(account: Account, layers: int) -> None:
    wide = 16_384

    def train() -> None:
        net = nn.Sequential(*(nn.Linear(wide, wide, bias=False) for _ in range(layers)))
        optimizer = torch.optim.Adam(net.parameters())
        for _ in range(2):
            optimizer.zero_grad()
            loss = net(torch.randn(BATCH, wide)).square().mean()
            loss.backward()
            assert loss.item() == 1.0
            optimizer.step()

    found = account(train, without_data=True)
    parameters = FLOAT * layers * wide * wide
    assert found.peak.parameters == parameters
    assert parameters * 4 <= found.peak.total <= parameters * 4.6 + FLOAT * 8 * wide * wide


@pytest.mark.parametrize("length", [5, 70])
def test_a_recurrent_kernels_workspace_is_estimated_by_running_it_on_a_short_sequence(
    account: Account, length: int
) -> None:
    def train() -> None:
        net = nn.LSTM(24, 40, 2)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(STEPS):
            optimizer.zero_grad()
            output, _ = net(torch.randn(length, 6, 24))
            output.square().mean().backward()
            optimizer.step()

    real = account(train).peak
    estimated = account(train, without_data=True).peak
    assert real.activations > 2 * FLOAT * length * 6 * 40 * 4, "it keeps the gates of each step, among others"
    assert estimated.activations == pytest.approx(real.activations, rel=0.02)
