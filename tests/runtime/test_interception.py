"""The hooks in a training loop, run in this process and removed afterwards."""

from __future__ import annotations

import copy
import io
import pickle
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader
from watching import Watched, data, train_on

from hotlap.records import STEP_PHASES


def test_a_plain_loop_is_reported_in_order_and_counted(watched: Watched) -> None:
    watched.listen()
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, targets in DataLoader(data(), batch_size=16):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    assert watched.told == ["found Linear", *["backward", "clip 0.5", "update"] * 3]
    assert watched.steps().samples == (16, 16, 8), "the last batch of an epoch is short"


def test_phases_add_up_to_the_wall(watched: Watched) -> None:
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(5):
        for inputs, targets in DataLoader(data(), batch_size=8, shuffle=True):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
    steps = watched.steps()
    for row in range(len(steps.wall_seconds)):
        whole = sum(steps.seconds_in(phase)[row] for phase in STEP_PHASES)
        assert whole == pytest.approx(steps.wall_seconds[row], rel=1e-9)
    for phase in ("data_wait", "forward", "backward", "optimizer"):
        assert min(steps.seconds_in(phase)) > 0, phase


@pytest.mark.parametrize(
    "backward",
    [lambda it: it.backward(), lambda it: torch.autograd.backward(it), lambda it: torch.autograd.backward([it])],
    ids=["method", "function", "function of a list"],
)
def test_the_losses_are_those_of_the_script(watched: Watched, backward: Callable[[Any], None]) -> None:
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    for inputs, targets in DataLoader(data(), batch_size=10):
        loss = nn.functional.mse_loss(model(inputs), targets)
        backward(loss)
        optimizer.step()
        seen.append(loss.item())
    assert watched.steps().loss == tuple(seen)


def test_a_scaled_loss_is_read_before_scaling(watched: Watched) -> None:
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    inputs, targets = data()[:]
    loss = nn.functional.mse_loss(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert watched.steps().loss == (loss.item(),)


def test_an_update_that_a_lever_leaves_out_ends_its_step(watched: Watched) -> None:
    left_out = iter([True, False, True, True, False])

    def around_step(optimizer: Any, step: Callable[[], Any]) -> Any:
        if not next(left_out):
            return step()
        for tell in watched.hooks.update_skipped:
            tell(optimizer)
        return None

    watched.hooks.around_step.append(around_step)
    train_on(DataLoader(data(5 * 8), batch_size=8))
    assert watched.steps().samples == (8,) * 5


def test_accumulation_is_one_step(watched: Watched) -> None:
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for index, (inputs, targets) in enumerate(DataLoader(data(), batch_size=5)):
        nn.functional.mse_loss(model(inputs), targets).backward()
        if index % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
    assert watched.steps().samples == (20, 20)


def test_evaluation_and_checkpoints_are_outside_steps(watched: Watched, tmp_path) -> None:  # type: ignore[no-untyped-def]
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs, targets = data()[:]
    for _ in range(3):
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        with torch.no_grad():
            for batch, _ in DataLoader(data(), batch_size=4):
                model(batch)
        torch.save(model.state_dict(), tmp_path / "weights.pt")
    nn.functional.mse_loss(model(inputs), targets).backward()
    optimizer.step()
    steps = watched.steps()
    assert steps.outside_seconds[0] == 0
    assert all(seconds > 0 for seconds in steps.outside_seconds[1:])
    assert all(seconds == 0 for seconds in steps.seconds_in("data_wait")), "the evaluation's batches are not the step's"
    assert set(steps.samples) == {40}


def test_without_an_optimizer_backwards_are_counted(watched: Watched) -> None:
    model = nn.Linear(8, 1)
    inputs, targets = data()[:]
    for _ in range(4):
        nn.functional.mse_loss(model(inputs), targets).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad  # type: ignore[misc, operator]
                parameter.grad = None
    assert watched.clock.counts_backwards()
    assert len(watched.steps().loss) == 4


def test_two_optimizers_make_one_step(watched: Watched) -> None:
    generator, critic = nn.Linear(4, 8), nn.Linear(8, 1)
    first = torch.optim.Adam(critic.parameters())
    second = torch.optim.Adam(generator.parameters())
    for _ in range(6):
        critic(generator(torch.randn(3, 4)).detach()).mean().backward()
        first.step()
        critic(generator(torch.randn(3, 4))).mean().backward()
        second.step()
    assert len(watched.steps().loss) == 6
    assert len(watched.interception.roots.all()) == 2


def steps_of(watched: Watched, turns: str) -> int:
    """How many steps updates by the optimizers ``A``, ``B`` and ``C`` in that order are."""
    models = {it: nn.Linear(4, 1) for it in "ABC"}
    optimizers = {it: torch.optim.SGD(model.parameters(), lr=0.1) for it, model in models.items()}
    for name in turns:
        models[name](torch.ones(3, 4)).mean().backward()
        optimizers[name].step()
    return len(watched.steps().loss)


@pytest.mark.parametrize(
    ("turns", "steps"),
    [
        ("A" * 20 + "B" * 30, 50),
        ("A" * 20 + "B" * 10 + "C" * 25, 55),
        (("A" * 10 + "B" * 10) * 3, 60),
        ("AB" * 30, 30),
        ("AAAAAB" * 6, 30),
        ("AABB" * 10, 20),
        ("AAABBC" * 8, 24),
    ],
)
def test_optimizers_one_after_the_other_have_steps_of_their_own(watched: Watched, turns: str, steps: int) -> None:
    """Those that take turns from the beginning share theirs, as in a GAN."""
    assert steps_of(watched, turns) == steps


@pytest.mark.parametrize(
    ("turns", "of_the_first"),
    [
        ("A" * 20 + "AB" * 30, 50),
        ("A" * 20 + "BAA" * 20, 60),
        (("A" * 100 + "B") * 5, 500),
        ("A" * 30 + "BBAA" * 9, 48),
    ],
)
def test_an_optimizer_that_joins_later_belongs_to_the_steps_of_the_first(
    watched: Watched, turns: str, of_the_first: int
) -> None:
    """A critic that is trained alone for a while: only where the other first appears it counts by itself."""
    assert of_the_first <= steps_of(watched, turns) <= of_the_first + 2


def test_no_step_holds_more_updates_than_it_takes_to_see_a_new_order(watched: Watched) -> None:
    assert steps_of(watched, "AB" * 10 + "B" * 40) >= 10 + 40 - 16


def test_lbfgs_with_its_many_closures_is_one_step(watched: Watched) -> None:
    model = nn.Linear(8, 1).double()
    inputs, targets = (it.double() for it in data()[:])
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=5)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    steps = watched.steps()
    assert len(steps.loss) == 3
    assert min(steps.seconds_in("backward")) > 0


def test_the_model_stays_what_it_was(watched: Watched) -> None:
    model = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(2, 8)).sum().backward()
    optimizer.step()
    again = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    assert type(again) is nn.Sequential
    assert not model._forward_hooks and not model._forward_pre_hooks


def test_layers_are_not_watched_once_the_roots_are_known(watched: Watched) -> None:
    plain = watched.interception.roots._plain_call
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(12):
        model(torch.randn(2, 8)).sum().backward()
        optimizer.step()
    assert nn.Module.__call__ is plain
    other = nn.Linear(8, 1)
    torch.optim.SGD(other.parameters(), lr=0.1)
    other(torch.randn(2, 8)).sum().backward()
    assert other in watched.interception.roots.all(), "a new optimizer opens the search again"


def test_a_loader_keeps_its_type_and_its_arguments(watched: Watched) -> None:
    seen: list[dict[str, object]] = []
    watched.hooks.before_loader.append(seen.append)
    dataset = data()
    loader = DataLoader(dataset, 4, True, num_workers=0)
    assert type(loader) is DataLoader
    assert seen[0] == {"dataset": dataset, "batch_size": 4, "shuffle": True, "num_workers": 0}
    assert type(iter(loader)).__name__ == "_SingleProcessDataLoaderIter"


def test_wrong_arguments_fail_as_they_would_without_us(watched: Watched) -> None:
    with pytest.raises(TypeError, match="unexpected keyword"):
        DataLoader(data(), wrokers=2)  # type: ignore[call-arg]


def test_suspending_puts_everything_back() -> None:
    before = (DataLoader.__init__, nn.Module.__call__, torch.autograd.backward, torch.optim.SGD.__init__, torch.save)
    watched = Watched()
    watched.interception.suspend()
    after = (DataLoader.__init__, nn.Module.__call__, torch.autograd.backward, torch.optim.SGD.__init__, torch.save)
    assert after == before


def test_a_profiler_that_records_stacks_takes_the_watch_for_a_module_s_call(watched: Watched) -> None:
    """It recognises the code of ``nn.Module.__call__``, and looks for the module among its variables."""
    model = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert watched.interception.roots.searching
    with torch.profiler.profile(with_stack=True, with_modules=True) as profiler:
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
    assert any(it.name.startswith("aten::") for it in profiler.events())
    assert len(watched.steps().loss) == 1


def test_a_step_that_calls_its_parents_is_one_step(watched: Watched) -> None:
    class Careful(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    model = nn.Linear(4, 1)
    torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)  # now torch reports the parent's steps as well
    optimizer = Careful(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    assert watched.clock.steps_done == 3


def _train(model: nn.Module, optimizer: torch.optim.Optimizer, batches: DataLoader[Any]) -> None:
    for inputs, targets in batches:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()


def _evaluate(model: nn.Module, batches: DataLoader[Any]) -> None:
    for inputs, _ in batches:
        model(inputs)
        time.sleep(0.002)
    time.sleep(0.02)


@pytest.mark.parametrize("way", ["no_grad", "with gradients", "a module within"])
def test_an_evaluation_is_no_part_of_a_step(watched: Watched, way: str) -> None:
    inner = nn.Linear(8, 1)
    model = nn.Sequential(inner) if way == "a module within" else inner
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(14):  # until the search for models is over
        _train(model, optimizer, DataLoader(data(), batch_size=20))
        model.eval()
        with torch.set_grad_enabled(way == "with gradients"):
            _evaluate(inner, DataLoader(data(), batch_size=10))
        model.train()
    steps = watched.steps()
    assert steps.samples == (20,) * 28, "what an evaluation fetches is not trained on"
    after_an_evaluation, others = steps.evaluation_seconds[2::2], steps.evaluation_seconds[1::2]
    # Four batches, and what is made of them at the end.
    assert all(it >= 0.025 for it in after_an_evaluation[5:]) and set(others) == {0.0}
    assert steps.outside_seconds[5:] == steps.evaluation_seconds[5:]
    assert min(steps.wall_seconds[6::2]) < 0.02


def test_a_model_may_train_in_evaluation_mode(watched: Watched) -> None:
    model = nn.Linear(8, 1).eval()
    _train(model, torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(data(), batch_size=10))
    steps = watched.steps()
    assert len(steps.wall_seconds) == 4 and set(steps.outside_seconds) == {0.0}
    assert all(it > 0 for it in steps.seconds_in("forward"))


def test_forwards_without_gradients_in_training_mode_are_rollouts(watched: Watched) -> None:
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        with torch.no_grad():
            for _ in range(3):
                model(torch.ones(2, 8))
                time.sleep(0.002)
        time.sleep(0.01)  # advantages are computed: the step's own preparation
        optimizer.zero_grad()
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
    steps = watched.steps()
    assert set(steps.evaluation_seconds) == {0.0}
    assert all(it > 0.004 for it in steps.outside_seconds) and all(it > 0.009 for it in steps.seconds_in("other"))


def test_checkpoints_are_distinguished_from_the_rest(watched: Watched) -> None:
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        _train(model, optimizer, DataLoader(data(), batch_size=20))
        torch.save(model.state_dict(), io.BytesIO())
    steps = watched.steps()
    assert [it > 0 for it in steps.checkpoint_seconds] == [False, False, True, False, True, False]
    assert steps.outside_seconds == steps.checkpoint_seconds


@pytest.mark.parametrize("steps", [1, 20], ids=["while roots are searched", "afterwards"])
def test_a_forward_that_fails_is_reported_in_place_of_its_end(watched: Watched, steps: int) -> None:
    told: list[str] = []
    watched.hooks.after_forward.append(lambda root, output: told.append("after"))
    watched.hooks.forward_failed.append(lambda: told.append("failed"))
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(torch.zeros(4, 8)).mean().backward()
        optimizer.step()
    assert told == ["after"] * steps
    with pytest.raises(RuntimeError):
        model(torch.zeros(4, 7))
    assert told[steps:] == ["failed"]
