"""Gradient norms and the scaler's scale equal those that the script itself computes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from hotlap.diagnose import Profile
from hotlap.diagnose.api import all_rules
from hotlap.diagnose.loss_scale import scale_history
from hotlap.records import Completed, Run

NORM = """
import json, math

def norm(optimizer):
    gradients = [it.grad for group in optimizer.param_groups for it in group["params"] if it.grad is not None]
    return math.sqrt(sum(it.to_dense().double().square().sum().item() for it in gradients))

expected = []
"""


def told(run: Run) -> Any:
    """What the script printed at its end, which is JSON."""
    assert run.ending == Completed(), run.ending
    return json.loads(Path(run.output_path).read_text().splitlines()[-1])


MIXED = (
    NORM
    + """
table = nn.Embedding(50, 8, sparse=True)
wide = nn.Linear(8, 1).double()
half = nn.Parameter(torch.ones(4, dtype=torch.float16))
unused = nn.Parameter(torch.ones(3))
parameters = [*model.parameters(), *table.parameters(), *wide.parameters(), half, unused]
optimizer = torch.optim.SGD(parameters, lr=1e-9)
for step in range(12):
    optimizer.zero_grad()
    inputs = data[step * 8 : step * 8 + 8][0] + table(torch.tensor([1, 1, 2, 3, 5, 8, 13, 21]))
    loss = model(inputs).square().mean() + wide(inputs.double()).mean().float() + (half * 40000.0).float().sum()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    if step == 5: wide.bias.grad[0] = math.nan
    if step == 7: half.grad[0] = math.inf
    expected.append(norm(optimizer) if step not in (5, 7) else None)
    optimizer.step()
print(json.dumps(expected))
"""
)


def test_the_norm_is_over_all_gradients(launch: Any) -> None:
    """Of every number format, sparse ones too, after clipping; sums that half precision could not hold are right."""
    run, evidence = launch(MIXED, steps=1000)
    expected, numbers = told(run), evidence.numbers
    assert numbers.gradient_not_finite == (5, 7)
    assert [it is None for it in numbers.gradient_norms] == [it is None for it in expected]
    assert [it for it in numbers.gradient_norms if it is not None] == pytest.approx([it for it in expected if it])
    assert numbers.gradient_norms[0] > 65504, "the largest number in half precision"
    assert numbers.scaler_scales == ()


TWO = (
    NORM
    + """
other = nn.Linear(8, 1)
second = torch.optim.Adam(other.parameters(), lr=0.1)
for step in range(12):
    optimizer.zero_grad(), second.zero_grad()
    inputs = data[step * 8 : step * 8 + 8][0]
    model(inputs).square().mean().backward()
    other(inputs).square().mean().backward()
    expected.append([norm(optimizer), norm(second)])
    optimizer.step()
    second.step()
print(json.dumps(expected))
"""
)


@pytest.mark.slow
def test_optimizers_that_take_turns_share_a_step(launch: Any) -> None:
    """The first to update sets the pace; what updates after it belongs to the step that ends next."""
    run, evidence = launch(TWO, steps=1000)
    pairs = told(run)
    ends_with = [first for first, _ in pairs]
    begins_with = [0.0, *(second for _, second in pairs[:-1])]
    expected = [math.hypot(a, b) for a, b in zip(begins_with, ends_with, strict=True)]
    assert evidence.numbers.gradient_norms == pytest.approx(expected)


SCALED = (
    NORM
    + """
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused={fused})
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
for step in range(12):
    optimizer.zero_grad()
    inputs, targets = data[step * 8 : step * 8 + 8]
    scaler.scale(nn.functional.mse_loss(model(inputs), targets)).backward()
    if step == 7: model[0].bias.grad[0] = math.inf
    scale = scaler.get_scale()
    expected.append([norm(optimizer) / scale, scale])
    scaler.step(optimizer)
    scaler.update()
print(json.dumps(expected))
"""
)


def test_the_scale_is_that_of_the_step_and_not_in_the_norm(launch: Any) -> None:
    """A step that the scaler skips has no row; the scale shows it."""
    run, evidence = launch(SCALED.replace("{fused}", "False"), steps=1000)
    expected = [it for step, it in enumerate(told(run)) if step != 7]
    assert evidence.numbers.gradient_norms == pytest.approx([norm for norm, _ in expected])
    assert evidence.numbers.scaler_scales == tuple(scale for _, scale in expected)
    assert evidence.numbers.scaler_scales[3] == 2048 and evidence.numbers.scaler_scales[7] == 2048
    assert evidence.numbers.scaler_attempts == tuple(2 if row == 7 else 1 for row in range(11))
    assert evidence.numbers.gradient_not_finite == ()


def test_a_fused_optimizer_takes_the_scale_out_itself(launch: Any) -> None:
    """It is called for the left-out step as well, whose gradients may be infinite."""
    run, evidence = launch(SCALED.replace("{fused}", "True"), steps=1000)
    expected = told(run)
    assert evidence.numbers.gradient_not_finite == (7,)
    found = [it for step, it in enumerate(evidence.numbers.gradient_norms) if step != 7]
    assert found == pytest.approx([norm for step, (norm, _) in enumerate(expected) if step != 7])
    assert evidence.numbers.scaler_scales == tuple(scale for _, scale in expected)
    assert evidence.numbers.scaler_attempts == (1,) * 12


BOUNCING = (
    NORM
    + """
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
skipped, tried = 0, 0
while tried < 59:
    optimizer.zero_grad()
    inputs, targets = data[tried % 12 * 8 : tried % 12 * 8 + 8]
    scaler.scale(nn.functional.mse_loss(model(inputs), targets)).backward()
    scale = scaler.get_scale()
    if scale > 1024: model[0].bias.grad[0] = math.inf
    scaler.step(optimizer)
    scaler.update()
    skipped, tried = skipped + (scaler.get_scale() < scale), tried + 1
print(json.dumps([skipped, tried]))
"""
)


def test_a_real_scaler_that_bounces_is_followed_and_reported(launch: Any) -> None:
    """It grows every third step and overflows above 1024: every fourth step is skipped."""
    run, evidence = launch(BOUNCING, steps=1000)
    skipped, tried = told(run)
    history = scale_history(evidence.numbers)
    assert history is not None and skipped > 10
    assert (sum(history.skipped), len(history.scales)) == (skipped, tried - skipped)
    assert set(history.scales) == {1024.0}
    (finding,) = all_rules()["scaler-skips"].check(Profile(facts=run.facts, steps=run.steps, evidence=evidence))
    assert finding.share.value == pytest.approx(history.overflow_rate)
    assert finding.share.value > 0.2
    assert f"rose {history.rises} times" in finding.evidence[-1] and history.rises >= 3


CLOSURE = (
    NORM
    + """
optimizer = torch.optim.LBFGS(model.parameters(), lr=1e-3, max_iter=4)
inputs, targets = data[:64]

def closure():
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    last.append(norm(optimizer))
    return loss

for step in range(8):
    last = []
    optimizer.step(closure)
    expected.append(last[-1])
print(json.dumps(expected))
"""
)


def test_a_backward_within_the_step_is_the_steps(launch: Any) -> None:
    run, evidence = launch(CLOSURE, steps=1000)
    assert evidence.numbers.gradient_norms == pytest.approx(told(run))


def test_what_runs_under_the_profiler_is_left_out(launch: Any) -> None:
    script = """
    for inputs, targets in DataLoader(data, batch_size=32):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    """
    _, evidence = launch(script, steps=16, profiled_steps=4)
    assert evidence.window is not None
    assert len(evidence.numbers.gradient_norms) == 12
    assert None not in evidence.numbers.gradient_norms


@pytest.mark.slow
def test_gradients_of_an_unknown_kind_are_left_alone(launch: Any) -> None:
    """Those of sharded models compute their own norm, which requires communication."""
    script = """
    class Sharded(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            assert "norm" not in getattr(func, "__name__", ""), func
            return super().__torch_function__(func, types, args, kwargs or {})

    for inputs, targets in DataLoader(data, batch_size=32):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        model[0].bias.grad = model[0].bias.grad.as_subclass(Sharded)
        optimizer.step()
    """
    run, evidence = launch(script, steps=1000)
    assert run.ending == Completed(), run.ending
    assert evidence.observed_steps == 124
    assert evidence.numbers.gradient_norms == ()


ON_DEVICE = (
    NORM
    + """
model = model.cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
inputs, targets = (it.cuda() for it in data[:64])
for step in range(24):
    torch.cuda.set_sync_debug_mode("error" if step >= 4 else "default")
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    scaler.scale(loss).backward()
    if step < 4: expected.append(norm(optimizer) / 1024.0)
    scaler.step(optimizer)
    scaler.update()
torch.cuda.set_sync_debug_mode("default")
print(json.dumps(expected))
"""
)


@pytest.mark.gpu
def test_nothing_waits_for_a_device(launch: Any) -> None:
    """torch itself raises in every operation that waits; a fused optimizer does without them."""
    run, evidence = launch(ON_DEVICE, steps=1000)
    expected = told(run)
    assert len(evidence.numbers.gradient_norms) == 24
    assert evidence.numbers.gradient_norms[:4] == pytest.approx(expected, rel=1e-4)
    assert evidence.numbers.scaler_scales == (1024.0,) * 24
