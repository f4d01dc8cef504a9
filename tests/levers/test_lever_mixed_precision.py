"""Where the autocast region begins and ends, and float16's loss scaling, on a real loop."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from torch.nn import functional

from hotlap.levers.support.loss_scaler import FIRST_SCALE, STEPS_BETWEEN_GROWTH, LossScaler
from hotlap.levers.support.situations import make_setting

BFLOAT16 = make_setting("mixed-precision", dtype="bfloat16")
FLOAT16 = make_setting("mixed-precision", dtype="float16")


def in_autocast() -> bool:
    return torch.is_autocast_enabled("cpu")


class Noticing(torch.autograd.Function):
    """Record whether autocast was on in forward and in backward."""

    seen: list[tuple[str, bool]] = []  # noqa: RUF012

    @staticmethod
    def forward(context, value):
        Noticing.seen.append(("forward", in_autocast()))
        return value.clone()

    @staticmethod
    def backward(context, gradient):
        Noticing.seen.append(("backward", in_autocast()))
        return gradient


@pytest.fixture(autouse=True)
def forget() -> None:
    Noticing.seen.clear()


# -- the region ----------------------------------------------------------------------------------


def test_forward_and_loss_are_inside_and_backward_and_step_are_outside(driver, model, batch) -> None:
    driver.install(BFLOAT16)
    optimizer = driver.optimizer(torch.optim.SGD, model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        output = driver.forward(model, batch[0])
        assert output.dtype is torch.bfloat16
        loss = functional.cross_entropy(Noticing.apply(output), batch[1])
        assert in_autocast()
        assert loss.dtype is torch.float32
        driver.backward(loss)
        assert not in_autocast()
        driver.step(optimizer)
    assert Noticing.seen == [("forward", True), ("backward", False)] * 3
    assert all(it.dtype is torch.float32 and it.grad.dtype is torch.float32 for it in model.parameters())


def test_evaluation_stays_outside_and_the_region_goes_on_after_it(driver, model, batch) -> None:
    driver.install(BFLOAT16)
    output = driver.forward(model, batch[0])
    with torch.no_grad():
        target = driver.forward(model, batch[0])
    assert target.dtype is torch.float32
    assert in_autocast()
    driver.backward((output - target).square().mean())
    with torch.no_grad():
        assert driver.forward(model, batch[0]).dtype is torch.float32
    assert not in_autocast()


def test_a_forward_without_backward_does_not_leave_the_region_open(driver, model, batch) -> None:
    driver.install(BFLOAT16)
    data = torch.utils.data.TensorDataset(*batch)
    loader = driver.loader(data, batch_size=4)
    optimizer = driver.optimizer(torch.optim.SGD, model.parameters(), lr=0.1)
    driver.forward(model, batch[0])
    for _ in driver.batches(loader):
        assert not in_autocast()
        driver.forward(model, batch[0])
    driver.forward(model, batch[0])
    driver.step(optimizer)
    assert not in_autocast()
    driver.forward(model, batch[0])
    for finish in driver.hooks.before_exit:
        finish()
    assert not in_autocast()


def test_an_error_in_the_model_is_survived(driver, model, batch) -> None:
    driver.install(BFLOAT16)
    with pytest.raises(RuntimeError):
        driver.forward(model, torch.randn(8, 99))
    output = driver.forward(model, batch[0])
    driver.backward(functional.cross_entropy(output, batch[1]))
    assert not in_autocast()


def test_several_roots_and_forwards_share_one_backward(driver, batch) -> None:
    driver.install(BFLOAT16)
    first, second = torch.nn.Linear(6, 6), torch.nn.Linear(6, 3)
    output = driver.forward(second, driver.forward(first, driver.forward(first, batch[0])))
    assert output.dtype is torch.bfloat16
    driver.backward(functional.cross_entropy(output, batch[1]))
    assert not in_autocast()
    assert all(it.grad is not None for module in (first, second) for it in module.parameters())


def test_weights_changed_after_a_forward_without_backward_are_seen_by_the_next(driver, batch) -> None:
    """Autocast remembers the weights it has cast for as long as a region lasts."""
    driver.install(BFLOAT16)
    layer = torch.nn.Linear(6, 3)
    driver.forward(layer, batch[0])
    for parameter in layer.parameters():
        parameter.data.zero_()
    output = driver.forward(layer, batch[0])
    driver.backward(output.sum())
    assert not output.any()


def test_gradients_survive_a_forward_without_gradients_in_the_same_step(driver, batch) -> None:
    driver.install(BFLOAT16)
    actor, critic = torch.nn.Linear(6, 6), torch.nn.Linear(6, 1)
    action = driver.forward(actor, batch[0])
    with torch.no_grad():
        critic.forward(batch[0])  # by a method, which no hook notices
    driver.backward(driver.forward(critic, action.float()).mean())
    assert all(it.grad is not None for module in (actor, critic) for it in module.parameters())


def test_the_scripts_own_region_is_left_alone(driver, model, batch) -> None:
    driver.install(BFLOAT16)
    with torch.autocast("cpu", dtype=torch.float16):
        output = driver.forward(model, batch[0])
        assert output.dtype is torch.float16
        loss = functional.cross_entropy(output, batch[1])
    driver.backward(loss)


def test_a_closure_of_lbfgs_is_understood(driver, model, batch) -> None:
    driver.install(BFLOAT16)
    optimizer = driver.optimizer(torch.optim.LBFGS, model.parameters(), max_iter=4)
    losses = []

    def closure():
        optimizer.zero_grad()
        loss = functional.cross_entropy(driver.forward(model, batch[0]), batch[1])
        assert in_autocast()
        driver.backward(loss)
        assert not in_autocast()
        losses.append(loss.item())
        return loss

    driver.step(optimizer, closure)
    assert len(losses) > 1
    assert losses[-1] < losses[0]


def test_float64_and_short_losses_stay_close_to_float32(driver, model, batch) -> None:
    reference = copy.deepcopy(model)
    driver.install(BFLOAT16)
    optimizer = driver.optimizer(torch.optim.SGD, model.parameters(), lr=0.1)
    plain = torch.optim.SGD(reference.parameters(), lr=0.1)
    for _ in range(20):
        for root, own, forward, backward, step in (
            (model, optimizer, driver.forward, driver.backward, driver.step),
            (reference, plain, lambda it, x: it(x), lambda it: it.backward(), lambda it: it.step()),
        ):
            own.zero_grad()
            loss = functional.cross_entropy(forward(root, batch[0]), batch[1])
            backward(loss)
            step(own)
            if root is model:
                tuned = loss.item()
    assert tuned == pytest.approx(loss.item(), rel=0.02)


# -- loss scaling --------------------------------------------------------------------------------


def test_float16_trains_with_true_gradients_before_clip_and_step(driver, model, batch) -> None:
    driver.install(FLOAT16)
    optimizer = driver.optimizer(torch.optim.SGD, model.parameters(), lr=0.1)
    output = driver.forward(model, batch[0])
    assert output.dtype is torch.float16
    driver.backward(functional.cross_entropy(output, batch[1]))
    scaled_away = torch.cat([it.grad.flatten() for it in model.parameters()])
    reference = torch.autograd.grad(functional.cross_entropy(model(batch[0]), batch[1]), list(model.parameters()))
    torch.testing.assert_close(scaled_away, torch.cat([it.flatten() for it in reference]), rtol=0.02, atol=2e-3)
    norm = driver.clip(model.parameters(), 0.01)
    assert norm.item() == pytest.approx(scaled_away.norm().item(), rel=1e-5)
    clipped = torch.cat([it.grad.flatten() for it in model.parameters()]).norm().item()
    assert clipped == pytest.approx(0.01, rel=1e-2)
    driver.step(optimizer)
    assert driver.hooks.scaler_skipped_steps == 0


def test_a_step_whose_gradients_overflow_is_left_out_and_the_next_is_taken(driver, model, batch) -> None:
    driver.install(FLOAT16)
    optimizer = driver.optimizer(torch.optim.AdamW, model.parameters(), lr=0.1)
    weights = [it.detach().clone() for it in model.parameters()]
    loss = functional.cross_entropy(driver.forward(model, batch[0]), batch[1])
    driver.backward(loss * torch.tensor(float("inf")))
    driver.step(optimizer)
    assert driver.hooks.scaler_skipped_steps == 1
    assert all(torch.equal(old, new) for old, new in zip(weights, model.parameters(), strict=True))
    optimizer.zero_grad()
    driver.backward(functional.cross_entropy(driver.forward(model, batch[0]), batch[1]))
    driver.step(optimizer)
    assert driver.hooks.scaler_skipped_steps == 1
    assert not any(torch.equal(old, new) for old, new in zip(weights, model.parameters(), strict=True))
    assert all(it.isfinite().all() for it in model.parameters())


def test_the_first_step_is_taken_however_small_its_scale_must_be(driver, model, batch) -> None:
    driver.install(FLOAT16)
    optimizer = driver.optimizer(torch.optim.SGD, model.parameters(), lr=0.1)
    driver.backward(1e4 * functional.cross_entropy(driver.forward(model, batch[0]), batch[1]))
    gradients = torch.cat([it.grad.flatten() for it in model.parameters()])
    reference = torch.autograd.grad(functional.cross_entropy(model(batch[0]), batch[1]), list(model.parameters()))
    torch.testing.assert_close(gradients / 1e4, torch.cat([it.flatten() for it in reference]), rtol=0.02, atol=2e-3)
    driver.step(optimizer)
    assert driver.hooks.scaler_skipped_steps == 0


def test_sparse_gradients_settle_the_first_scale_as_well(driver) -> None:
    driver.install(FLOAT16)
    embedding = torch.nn.Embedding(10, 4, sparse=True)
    optimizer = driver.optimizer(torch.optim.SGD, embedding.parameters(), lr=0.1)
    driver.backward(1e4 * driver.forward(embedding, torch.tensor([1, 2])).half().sum())
    assert embedding.weight.grad.is_sparse and embedding.weight.grad._values().isfinite().all()
    driver.step(optimizer)
    assert driver.hooks.scaler_skipped_steps == 0


def test_a_step_that_is_left_out_is_reported(driver, model, batch) -> None:
    told: list[object] = []
    driver.hooks.update_skipped.append(told.append)
    driver.install(FLOAT16)
    optimizer = driver.optimizer(torch.optim.SGD, model.parameters(), lr=0.1)
    for factor in (1.0, float("inf"), 1.0):
        driver.backward(functional.cross_entropy(driver.forward(model, batch[0]), batch[1]) * factor)
        driver.step(optimizer)
        optimizer.zero_grad()
    assert told == [optimizer]


def test_an_overflow_in_any_micro_batch_leaves_the_whole_step_out(driver, model, batch) -> None:
    driver.install(FLOAT16)
    optimizer = driver.optimizer(torch.optim.SGD, model.parameters(), lr=0.1)
    for factor in (1.0, float("inf"), 1.0):
        driver.backward(functional.cross_entropy(driver.forward(model, batch[0]), batch[1]) * factor)
    driver.step(optimizer)
    assert driver.hooks.scaler_skipped_steps == 1


def test_an_overflow_inside_a_closure_changes_no_weight(driver, model, batch) -> None:
    driver.install(FLOAT16)
    optimizer = driver.optimizer(torch.optim.AdamW, model.parameters(), lr=0.1)
    weights = [it.detach().clone() for it in model.parameters()]

    def closure():
        optimizer.zero_grad()
        loss = functional.cross_entropy(driver.forward(model, batch[0]), batch[1])
        driver.backward(loss * float("inf"))
        return loss

    driver.step(optimizer, closure)
    assert driver.hooks.scaler_skipped_steps == 1
    assert all(torch.equal(old, new) for old, new in zip(weights, model.parameters(), strict=True))


def test_accumulated_gradients_are_exactly_the_sum_of_their_parts() -> None:
    """Scales are powers of two: scaling what waits, adding and unscaling rounds nothing."""
    weight = torch.nn.Parameter(torch.randn(50))
    plain = torch.nn.Parameter(weight.detach().clone())
    scaler = LossScaler(torch)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler.add(optimizer)
    for index in range(4):
        inputs = torch.randn(50, generator=torch.Generator().manual_seed(index))
        scaler.begin_backward()
        scaler.scaled((weight * inputs).square().sum()).backward()
        scaler.unscale()
        (plain * inputs).square().sum().backward()
        assert torch.equal(weight.grad, plain.grad)  # type: ignore[arg-type]


def test_two_optimizers_keep_true_gradients_and_their_own_overflows() -> None:
    scaler = LossScaler(torch)
    weights = [torch.nn.Parameter(torch.ones(3)) for _ in range(3)]
    first, second = torch.optim.SGD(weights[:2], lr=0.1), torch.optim.SGD(weights[1:], lr=0.1)  # they share one
    scaler.add(first)
    scaler.add(second)
    for weight, factor in zip(weights, (1.0, 2.0, float("inf")), strict=True):
        scaler.begin_backward()
        scaler.scaled((weight * factor).sum()).backward()
        scaler.unscale()
    assert [it.grad[0].item() for it in weights] == [1.0, 2.0, float("inf")]  # type: ignore[index]
    assert not scaler.overflown(first)
    assert scaler.overflown(second)
    assert scaler.scale == FIRST_SCALE / 2


def test_the_scale_grows_after_many_good_steps() -> None:
    scaler = LossScaler(torch)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    assert not any(scaler.overflown(optimizer) for _ in range(STEPS_BETWEEN_GROWTH))
    assert scaler.scale == FIRST_SCALE * 2


def test_backward_from_several_tensors_scales_each(driver, model, batch) -> None:
    driver.install(FLOAT16)
    optimizer = driver.optimizer(torch.optim.SGD, model.parameters(), lr=0.1)
    output = driver.forward(model, batch[0]).float()
    driver.backward([output.mean() / 100, output.square().mean() / 100])
    tuned = [it.grad.clone() for it in model.parameters()]
    model.zero_grad()
    plain = model(batch[0])
    torch.autograd.backward([plain.mean() / 100, plain.square().mean() / 100])
    for ours, theirs in itertools.zip_longest(tuned, (it.grad for it in model.parameters())):
        torch.testing.assert_close(ours, theirs, rtol=0.05, atol=1e-4)
    driver.step(optimizer)
    assert driver.hooks.scaler_skipped_steps == 0
