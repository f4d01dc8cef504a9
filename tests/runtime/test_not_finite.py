"""Where NaN and infinities come from: planted ones are found at their operation, line, layer and phase. Driven within
this process and taken back afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hunting import INFINITY, Calls, Hunt, fit, line, ones, origin
from torch import nn

from hotlap.records import BadNumber

LINES = Path(__file__).read_text(encoding="utf-8").split("\n")


# ---------------------------------------------------------------------------------------------
# Planted in the forward pass
# ---------------------------------------------------------------------------------------------


def log_of_negative(x: torch.Tensor) -> torch.Tensor:
    return (x - x.detach() - 1.0).log()  # log of negative


def zero_by_zero(x: torch.Tensor) -> torch.Tensor:
    return (x - x) / (x.detach() - x.detach())  # zero by zero


def zero_deviation(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(dim=0)) / x.std(dim=0)  # zero deviation


def half_overflow(x: torch.Tensor) -> torch.Tensor:
    return (x.half() * 0 + 12.0).exp().float()  # half overflow


def cast_overflow(x: torch.Tensor) -> torch.Tensor:
    return (x * 0 + 1e6).to(torch.float16).float()  # cast overflow


def all_masked(x: torch.Tensor) -> torch.Tensor:
    masked = x.masked_fill(torch.ones(3, 4, dtype=torch.bool), -INFINITY)  # all masked mask
    return masked.softmax(dim=-1)  # all masked


def log_of_zero(x: torch.Tensor) -> torch.Tensor:
    p = torch.relu(x.detach() * 0)
    return x.sum() + (p * p.log())  # log of zero


def of_whole_numbers(x: torch.Tensor) -> torch.Tensor:
    counts = torch.zeros(3, 4, dtype=torch.int64)
    return x + counts / counts  # of whole numbers


def in_place(x: torch.Tensor) -> torch.Tensor:
    y = x - x.detach()
    y.div_(0.0)  # in place
    return y


@pytest.mark.parametrize(
    ("function", "operation", "mark", "nan"),
    [
        (log_of_negative, "log", "log of negative", True),
        (zero_by_zero, "div", "zero by zero", True),
        (zero_deviation, "div", "zero deviation", True),
        (half_overflow, "exp", "half overflow", False),
        (cast_overflow, "_to_copy", "cast overflow", False),
        (all_masked, "_softmax", "all masked", True),
        (of_whole_numbers, "div", "of whole numbers", True),
        (in_place, "div_", "in place", True),
    ],
    ids=lambda it: it.__name__ if callable(it) else None,
)
@pytest.mark.parametrize("check_from", [0, 1])
def test_in_the_forward_pass(
    function: Callable[[torch.Tensor], torch.Tensor], operation: str, mark: str, nan: bool, check_from: int, hunt: Hunt
) -> None:
    """The first two steps are finite, so that the check may begin after the first."""
    steps: list[int] = []

    def sometimes(x: torch.Tensor) -> torch.Tensor:
        steps.append(1)
        return function(x) if len(steps) > 2 else x

    bad = hunt(lambda: fit(Calls(sometimes), ones()), check_from=check_from)
    assert bad is not None
    assert (bad.step, bad.noticed_in, bad.nan) == (2, "loss", nan)
    found = origin(bad)
    assert (found.source, found.operation, found.phase, found.step) == ("operation", operation, "forward", 2)
    assert found.site is not None
    assert (found.site.file, found.site.line, found.site.function) == (__file__, line(mark), function.__name__)
    assert found.site.what == LINES[line(mark) - 1].strip()
    assert found.module == "head (Head)"
    assert bad.first_nan is None
    (output,) = found.outputs
    assert (output.nan > 0, output.infinite > 0) == (nan, not nan)
    assert output.numbers == 12 and output.shape == (3, 4)
    assert output.rows == (0, 1, 2)


def test_without_the_check_only_the_step_is_known(hunt: Hunt) -> None:
    bad = hunt(lambda: fit(Calls(log_of_negative), ones()), check_from=None)
    assert bad == BadNumber(step=0, noticed_in="loss", nan=True)


def test_ranges_of_inputs(hunt: Hunt) -> None:
    found = origin(hunt(lambda: fit(Calls(log_of_negative), ones())))
    (read,) = found.inputs
    assert (read.name, read.dtype, read.shape, read.low, read.high) == ("self", "float32", (3, 4), -1.0, -1.0)
    assert (read.nan, read.infinite) == (0, 0)


def test_what_was_changed_in_place_is_reported_as_it_was_before(hunt: Hunt) -> None:
    found = origin(hunt(lambda: fit(Calls(in_place), ones())))
    assert (found.inputs[0].name, found.inputs[0].low, found.inputs[0].high) == ("self", 0.0, 0.0)


def test_an_infinity_that_becomes_nan_later(hunt: Hunt) -> None:
    bad = hunt(lambda: fit(Calls(log_of_zero), ones()))
    assert bad is not None and bad.nan
    assert (origin(bad).operation, origin(bad).outputs[0].infinite, origin(bad).outputs[0].nan) == ("log", 12, 0)
    assert bad.first_nan is not None
    assert (bad.first_nan.operation, bad.first_nan.outputs[0].nan) == ("mul", 12)


# -- infinities that were hidden in between ------------------------------------------------------------


def hidden_by_nan_to_num(x: torch.Tensor) -> torch.Tensor:
    scores = (x.detach() * 0).log()  # hidden log
    scores = torch.nan_to_num(scores)  # hides it
    return x + (scores * 0.5).pow(2)  # overflows again


def hidden_in_place(x: torch.Tensor) -> torch.Tensor:
    scores = (x.detach() * 0).log()  # hidden in place log
    scores.clamp_(min=-1e30)  # hides it in place
    return x + scores.abs().mul(1e10)  # overflows in place


def hidden_and_nan(x: torch.Tensor) -> torch.Tensor:
    scores = torch.nan_to_num((x.detach() * 0).log())
    squares = scores.pow(2)
    return x + (squares - squares)


@pytest.mark.parametrize(
    ("function", "mark", "hides", "overflows"),
    [
        (hidden_by_nan_to_num, "hidden log", "nan_to_num", "pow"),
        (hidden_in_place, "hidden in place log", "clamp_", "mul"),
    ],
)
def test_huge_numbers_are_followed_to_the_infinity_that_they_stand_for(
    function: Callable[[torch.Tensor], torch.Tensor], mark: str, hides: str, overflows: str, hunt: Hunt
) -> None:
    bad = hunt(lambda: fit(Calls(function), ones()))
    assert bad is not None and not bad.nan
    found = origin(bad)
    assert (found.operation, found.outputs[0].infinite) == ("log", 12)
    assert found.site is not None and found.site.line == line(mark)
    assert bad.replaced is not None and bad.overflow is not None and bad.first_nan is None
    assert (bad.replaced.operation, bad.overflow.operation) == (hides, overflows)
    assert bad.replaced.outputs[0].low is not None and bad.replaced.outputs[0].low <= -9.9e29
    assert bad.overflow.outputs[0].infinite == 12


def test_nan_of_an_overflow_goes_back_as_far(hunt: Hunt) -> None:
    bad = hunt(lambda: fit(Calls(hidden_and_nan), ones()))
    assert bad is not None and bad.nan and bad.first_nan is not None
    assert (origin(bad).operation, bad.first_nan.operation) == ("log", "sub")
    assert bad.overflow is not None and bad.overflow.operation == "pow"


def replaced_by_small_numbers(x: torch.Tensor) -> torch.Tensor:
    scores = torch.nan_to_num((x.detach() * 0).log(), neginf=-100.0)
    return x + scores.exp() + (x * 0 + 1e30).pow(2)  # its own overflow


def masked_elsewhere(x: torch.Tensor) -> torch.Tensor:
    masked = torch.nan_to_num(x.masked_fill(torch.ones(3, 4, dtype=torch.bool), -INFINITY))
    return x + masked.softmax(dim=-1) + (x * 0 + 1e30).pow(2)  # not the mask's


@pytest.mark.parametrize(
    ("function", "mark"),
    [(replaced_by_small_numbers, "its own overflow"), (masked_elsewhere, "not the mask's")],
)
def test_what_is_small_again_is_not_blamed(
    function: Callable[[torch.Tensor], torch.Tensor], mark: str, hunt: Hunt
) -> None:
    bad = hunt(lambda: fit(Calls(function), ones()))
    assert bad is not None and bad.replaced is None and bad.overflow is None
    found = origin(bad)
    assert found.operation == "pow" and found.site is not None and found.site.line == line(mark)


def test_a_mask_that_leaves_nothing_is_named_next_to_the_softmax(hunt: Hunt) -> None:
    bad = hunt(lambda: fit(Calls(all_masked), ones()))
    assert bad is not None and bad.written is not None
    assert bad.written.operation == "masked_fill"
    assert bad.written.arguments == ("value=-inf",)
    assert bad.written.site is not None and bad.written.site.line == line("all masked mask")


def test_a_parameters_name_is_shown_with_the_inputs(hunt: Hunt) -> None:
    def train() -> None:
        model = nn.Linear(4, 4)
        with torch.no_grad():
            model.weight.fill_(3e38)
        fit(model, ones())

    found = origin(hunt(train))
    assert (found.operation, found.module, found.phase) == ("addmm", "Linear", "forward")
    assert {it.name for it in found.inputs} == {"bias", "mat1", "weight"}
    assert found.outputs[0].infinite == 12


def test_a_loss_outside_any_layer_is_forward_too(hunt: Hunt) -> None:
    def train() -> None:
        model = nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss = (model(torch.ones(3, 4)).sum() * 0).log()  # loss outside
        loss.backward()
        optimizer.step()

    bad = hunt(train)
    assert (origin(bad).operation, origin(bad).phase, origin(bad).module) == ("log", "forward", "")
    site = origin(bad).site
    assert site is not None and site.line == line("loss outside")
    assert bad is not None and not bad.nan


# ---------------------------------------------------------------------------------------------
# Planted in the backward pass and in the optimizer
# ---------------------------------------------------------------------------------------------


def root_of_zero(x: torch.Tensor) -> torch.Tensor:
    return (x * 0).sqrt()  # root of zero


def hidden_by_where(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x.isfinite() & (x > 100), (x * 0).log(), x)  # hidden by where


def norm_of_zero(x: torch.Tensor) -> torch.Tensor:
    distance = (x - x.detach()).square().sum(dim=1).sqrt()  # norm of zero
    return distance


@pytest.mark.parametrize(
    ("function", "operation", "node"),
    [
        (root_of_zero, "div", "SqrtBackward0"),
        (hidden_by_where, "div", "LogBackward0"),
        (norm_of_zero, "div", "SqrtBackward0"),
    ],
    ids=lambda it: it.__name__ if callable(it) else None,
)
def test_in_the_backward_pass(
    function: Callable[[torch.Tensor], torch.Tensor], operation: str, node: str, hunt: Hunt
) -> None:
    bad = hunt(lambda: fit(Calls(function), ones()))
    assert bad is not None
    assert (bad.step, bad.noticed_in, bad.name) == (0, "gradients", "linear.weight")
    found = origin(bad)
    assert (found.operation, found.phase, found.autograd_node) == (operation, "backward", node)
    assert found.module == "head (Head)"
    assert found.site is not None
    assert found.site.line == line(function.__name__.replace("_", " ")), "the line of the forward pass"


def test_a_forward_infinity_is_blamed_for_its_gradient(hunt: Hunt) -> None:
    def overflow(x: torch.Tensor) -> torch.Tensor:
        large = (x * 0 + 200.0).exp()  # hidden overflow
        return torch.where(large < 1e9, large, x)

    bad = hunt(lambda: fit(Calls(overflow), ones()))
    assert bad is not None and bad.noticed_in == "gradients"
    assert (origin(bad).operation, origin(bad).phase) == ("exp", "forward")
    site = origin(bad).site
    assert site is not None and site.line == line("hidden overflow")
    assert bad.first_nan is not None and bad.first_nan.autograd_node == "ExpBackward0"


class OwnFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        return gradient / 0  # own backward


def test_a_backward_of_the_users_own(hunt: Hunt) -> None:
    found = origin(hunt(lambda: fit(Calls(OwnFunction.apply), ones())))
    assert (found.operation, found.phase, found.autograd_node) == ("div", "backward", "OwnFunctionBackward")
    assert found.site is not None and found.site.line == line("own backward")


@pytest.mark.parametrize("implementation", [{"foreach": False}, {"foreach": True}, {"fused": True}], ids=str)
@pytest.mark.parametrize("check_from", [0, 2])
def test_a_learning_rate_of_infinity(implementation: dict[str, bool], check_from: int, hunt: Hunt) -> None:
    def train() -> None:
        model = Calls(torch.tanh)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, **implementation)
        for step, batch in enumerate(ones(5)):
            optimizer.zero_grad()
            model(batch).mean().backward()
            optimizer.param_groups[0]["lr"] = INFINITY if step == 3 else 0.1
            optimizer.step()  # infinite rate

    bad = hunt(train, check_from=check_from)
    assert bad is not None
    assert (bad.step, bad.noticed_in, bad.name) == (3, "weights", "linear.weight")
    found = origin(bad)
    assert (found.source, found.phase, found.name) == ("operation", "optimizer", "linear.weight")
    assert any(it.endswith("inf") for it in found.arguments)
    assert found.site is not None and found.site.line == line("infinite rate")


def test_weights_that_overflow_under_adam(hunt: Hunt) -> None:
    def train() -> None:
        model = nn.Linear(4, 4)
        optimizer = torch.optim.Adam(model.parameters(), lr=2e37)
        for batch in ones():
            optimizer.zero_grad()
            model(batch).mean().backward()
            optimizer.step()

    bad = hunt(train)
    assert bad is not None and bad.noticed_in in ("weights", "loss")
    assert origin(bad).phase in ("optimizer", "forward")
