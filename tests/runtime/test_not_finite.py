"""Where NaN and infinities come from: planted ones are found at their operation, line, layer and phase, and what
legitimately passes through infinity is left in peace. Driven within this process and taken back afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from hotlap.records import BadNumber, NumberOrigin
from hotlap.runtime.clock import StepClock
from hotlap.runtime.hooks import Hooks
from hotlap.runtime.interception import Interception
from hotlap.runtime.not_finite.watch import NumbersWatch

Train = Callable[[], None]
Hunt = Callable[..., BadNumber | None]
INFINITY = float("inf")
LINES = Path(__file__).read_text(encoding="utf-8").split("\n")


class Stop(BaseException):
    """Stands for the end of the process."""


@pytest.fixture
def hunt(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hunt]:
    """Runs a training and returns what was found. ``check_from`` is the step from which on operations are checked;
    ``at_the_end`` the watch is told that the script has ended."""
    monkeypatch.setattr("hotlap.runtime.not_finite.checked_steps.switch_compiling_off", lambda: None)  # it is for good
    watches: list[NumbersWatch] = []
    interceptions: list[Interception] = []

    def run(train: Train, check_from: int | None = 0, *, at_the_end: bool = False) -> BadNumber | None:
        torch.manual_seed(0)
        found: list[BadNumber] = []

        def stop(bad: BadNumber) -> None:
            found.append(bad)
            raise Stop

        hooks = Hooks(torch=torch)
        interception = Interception(hooks)
        interceptions.append(interception)
        clock = StepClock(
            hooks,
            source="auto",
            scaling=interception,
            on_step=lambda: [tell() for tell in hooks.step_ended],
        )
        interception.install()
        watches.append(NumbersWatch(interception, clock, check_from, stop))
        try:
            train()
            if at_the_end and watches[-1].checked is not None:
                watches[-1].checked.script_ended()
        except Stop:
            return found[0]
        finally:
            watches[-1].stop()
            interception.suspend()
        return None

    yield run
    for watch, interception in zip(watches, interceptions, strict=True):
        watch.stop()
        interception.suspend()


def line(mark: str) -> int:
    """The line of this file that ends in the comment ``# mark``."""
    (number,) = [index + 1 for index, text in enumerate(LINES) if text.endswith(f"  # {mark}")]
    return number


def origin(bad: BadNumber | None) -> NumberOrigin:
    assert bad is not None
    assert bad.origin is not None
    return bad.origin


def fit(model: nn.Module, batches: list[torch.Tensor], rate: float = 0.01) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for batch in batches:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()


class Calls(nn.Module):
    """A linear layer, and a function on what it gives."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.head = Head(function)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.linear(x))
        return result


class Head(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def ones(count: int = 4) -> list[torch.Tensor]:
    return [torch.ones(3, 4) for _ in range(count)]


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
    """The first two steps are sound, so that the check may begin after the first."""
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


def test_what_was_changed_in_place_is_told_as_it_was_before(hunt: Hunt) -> None:
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


def test_a_mask_that_leaves_nothing_is_named_beside_the_softmax(hunt: Hunt) -> None:
    bad = hunt(lambda: fit(Calls(all_masked), ones()))
    assert bad is not None and bad.written is not None
    assert bad.written.operation == "masked_fill"
    assert bad.written.arguments == ("value=-inf",)
    assert bad.written.site is not None and bad.written.site.line == line("all masked mask")


def test_a_parameters_name_stands_with_the_inputs(hunt: Hunt) -> None:
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


# ---------------------------------------------------------------------------------------------
# Data
# ---------------------------------------------------------------------------------------------


class Samples(Dataset[torch.Tensor]):
    """Samples of which one is spoilt, by an operation of torch or before torch sees it."""

    def __init__(self, spoil: str) -> None:
        import numpy

        self.spoil = spoil
        self.array = numpy.ones((12, 4), dtype="float32")
        self.array[7, 1:] = INFINITY - INFINITY

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.spoil == "array":
            return torch.from_numpy(self.array[index])  # out of torch's sight
        sample = torch.ones(4)
        return sample / (sample - sample) - sample / (sample - sample) if index == 7 else sample  # spoilt sample


def train_on(dataset: Dataset[torch.Tensor], workers: int = 0) -> None:
    model = Calls(torch.tanh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in DataLoader(dataset, batch_size=3, num_workers=workers):  # the loader
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()


@pytest.mark.parametrize(("spoil", "workers"), [("array", 0), ("array", 1), ("operation", 1)])
def test_a_batch_that_comes_in_bad(spoil: str, workers: int, hunt: Hunt) -> None:
    bad = hunt(lambda: train_on(Samples(spoil), workers))
    assert bad is not None and bad.step == 2
    found = origin(bad)
    assert found.phase == "data"
    assert found.site is not None
    assert found.site.line == line("out of torch's sight" if workers == 0 else "the loader")
    assert (found.source, found.name) == ("batch", "Samples")
    (batch,) = found.outputs
    assert (batch.shape, batch.rows) == ((3, 4), (1,))
    assert batch.nan == (3 if spoil == "array" else 4)


def test_a_dataset_that_spoils_a_sample_in_this_process(hunt: Hunt) -> None:
    bad = hunt(lambda: train_on(Samples("operation")))
    found = origin(bad)
    assert (found.source, found.operation, found.phase, found.step) == ("operation", "div", "data", 2)
    assert found.site is not None
    assert (found.site.line, found.site.function) == (line("spoilt sample"), "__getitem__")
    assert bad is not None and bad.first_nan is not None and bad.first_nan.operation == "sub"


def test_data_that_was_normalised_before_the_first_step(hunt: Hunt) -> None:
    def train() -> None:
        data = torch.ones(12, 4)
        data = (data - data.mean(dim=0)) / data.std(dim=0)  # normalised
        train_on(TensorDataset(data).tensors[0])  # type: ignore[arg-type]

    found = origin(hunt(train))
    assert (found.operation, found.phase) == ("div", "setup")
    assert found.site is not None and found.site.line == line("normalised")


def test_data_from_before_the_check(hunt: Hunt) -> None:
    data = torch.ones(12, 4)
    data[7, 2] = INFINITY - INFINITY
    found = origin(hunt(lambda: fit(Calls(torch.tanh), list(data.split(3)))))
    assert (found.source, found.operation, found.module) == ("entered", "addmm", "linear (Linear)")
    assert (found.inputs[0].nan, found.inputs[0].rows) == (1, (1,))


def test_a_buffer_from_before_the_check(hunt: Hunt) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4).eval())
    model[1].running_var.fill_(INFINITY - INFINITY)
    found = origin(hunt(lambda: fit(model, ones())))
    assert (found.source, found.name) == ("state", "1.running_var")


def test_memory_that_nobody_wrote_to(hunt: Hunt) -> None:
    def train() -> None:
        model = Calls(torch.tanh)
        model.scale = nn.Parameter(torch.empty(4))  # nobody wrote
        # What such memory holds is up to chance; NaN is put there where no operation of torch is seen.
        model.scale.detach().numpy()[:] = INFINITY - INFINITY
        model.head.function = lambda x: x * model.scale
        fit(model, ones())

    found = origin(hunt(train))
    assert (found.source, found.operation, found.phase, found.name) == ("uninitialised", "empty", "setup", "scale")
    assert found.site is not None and found.site.line == line("nobody wrote")


def test_nothing_but_what_the_script_wrote(hunt: Hunt) -> None:
    def train() -> None:
        model = nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scores = model(torch.ones(2, 4)).masked_fill(torch.tensor([[True, False, False, False]]), -INFINITY)  # wrote
        nn.functional.cross_entropy(scores, torch.tensor([0, 1])).backward()
        optimizer.step()

    bad = hunt(train)
    assert bad is not None and not bad.nan
    assert (origin(bad).source, origin(bad).operation) == ("written", "masked_fill")
    site = origin(bad).site
    assert site is not None and site.line == line("wrote")


# ---------------------------------------------------------------------------------------------
# The script that looks for itself
# ---------------------------------------------------------------------------------------------


def test_a_script_that_leaves_when_it_sees_nan(hunt: Hunt) -> None:
    def train() -> None:
        model = nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(5):
            loss = model(torch.ones(2, 4)).square().mean()
            if step == 3:
                loss = (loss - loss.detach() - 1).log()  # leaves
            if not torch.isfinite(loss):
                return
            loss.backward()
            optimizer.step()

    bad = hunt(train, at_the_end=True)
    assert bad is not None
    assert (bad.step, bad.noticed_in, bad.nan) == (3, "script", True)
    site = origin(bad).site
    assert site is not None and site.line == line("leaves")


def test_a_function_that_refuses_nan(hunt: Hunt) -> None:
    """What torch raises an error about was looked at too."""

    def train() -> None:
        model = nn.Linear(4, 4)
        torch.optim.SGD(model.parameters(), lr=0.1)
        chances = model(torch.ones(2, 4)).sub(1e9).log()  # refuses
        with pytest.raises(RuntimeError, match="nan"):
            torch.multinomial(chances, 1)

    bad = hunt(train, at_the_end=True)
    assert bad is not None and bad.noticed_in == "script"
    site = origin(bad).site
    assert site is not None and site.line == line("refuses")


def test_a_mask_that_is_looked_at_explains_no_end(hunt: Hunt) -> None:
    def train() -> None:
        mask = torch.full((4, 4), -INFINITY).triu(1)
        assert torch.isinf(mask).any()
        fit(nn.Linear(4, 4), ones())

    assert hunt(train, at_the_end=True) is None


# ---------------------------------------------------------------------------------------------
# What is sound is left in peace
# ---------------------------------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.project = nn.Linear(8, 24)
        self.register_buffer("mask", torch.full((5, 5), -INFINITY).triu(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.project(x).chunk(3, dim=-1)
        if self.kind == "fused":
            return nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        if self.kind == "fused-masked":
            return nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=self.mask == 0)
        scores = query @ key.transpose(1, 2) / 8**0.5
        if self.kind == "added":
            scores = scores + self.mask
        elif self.kind == "filled":
            scores = scores.masked_fill(self.mask != 0, -INFINITY)
        else:
            scores = torch.where(self.mask == 0, scores, torch.tensor(-INFINITY))
        return scores.softmax(dim=-1) @ value


@pytest.mark.parametrize("kind", ["added", "filled", "chosen", "fused", "fused-masked"])
def test_attention_with_a_mask(kind: str, hunt: Hunt) -> None:
    assert hunt(lambda: fit(Attention(kind), [torch.randn(2, 5, 8) for _ in range(3)])) is None


def masked_log(x: torch.Tensor) -> torch.Tensor:
    log = torch.relu(x.detach()).log()
    return torch.where(torch.isinf(log), torch.zeros(()), log) + x


def replaced(x: torch.Tensor) -> torch.Tensor:
    return torch.nan_to_num((x.detach() - x.detach()) / 0) + x


def largest(x: torch.Tensor) -> torch.Tensor:
    best = torch.full((3,), -INFINITY)
    return torch.maximum(best, x.amax(dim=1)) + torch.tensor([1.0, INFINITY, 2.0]).clamp(max=5.0)


def partly_filled(x: torch.Tensor) -> torch.Tensor:
    results = torch.empty(3, 4)
    for row in range(3):
        results[row] = x[row]
    return results


@pytest.mark.parametrize("function", [masked_log, replaced, largest, partly_filled], ids=lambda it: it.__name__)
def test_infinities_that_reach_nothing(function: Callable[[torch.Tensor], torch.Tensor], hunt: Hunt) -> None:
    assert hunt(lambda: fit(Calls(function), [torch.randn(3, 4) for _ in range(3)])) is None


def test_gradients_that_a_scaler_leaves_out(hunt: Hunt) -> None:
    """A scale that is far too large overflows in the first steps, until the scaler has halved it often enough."""
    updates: list[int] = []

    def train() -> None:
        model = Calls(lambda x: x.half().float())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        optimizer.register_step_post_hook(lambda *given: updates.append(1))
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
        for batch in [torch.randn(3, 4) for _ in range(20)]:
            optimizer.zero_grad()
            scaler.scale(model(batch).mean()).backward()
            scaler.step(optimizer)
            scaler.update()

    assert hunt(train) is None
    assert 0 < len(updates) < 20, "some updates were left out, others were made"


def test_a_fused_optimizer_under_a_scaler(hunt: Hunt) -> None:
    def train() -> None:
        model = Calls(lambda x: x.half().float())
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
        for batch in [torch.randn(3, 4) for _ in range(20)]:
            optimizer.zero_grad()
            scaler.scale(model(batch).mean()).backward()
            scaler.step(optimizer)
            scaler.update()

    assert hunt(train) is None


def test_weights_that_were_infinite_from_the_start(hunt: Hunt) -> None:
    class Padded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(5, 4)
            with torch.no_grad():
                self.table.weight[4] = -INFINITY

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.table(x)
            return result

    batches = [torch.randint(0, 4, (3,)) for _ in range(3)]
    assert hunt(lambda: fit(Padded(), batches), check_from=None) is None
    assert hunt(lambda: fit(Padded(), batches)) is None


def test_the_check_changes_no_number(hunt: Hunt) -> None:
    def losses() -> list[float]:
        found: list[float] = []

        def train() -> None:
            model = nn.Sequential(nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.3), nn.Flatten())
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
            for _ in range(6):
                optimizer.zero_grad()
                loss = model(torch.randn(3, 2, 8)).square().mean()
                loss.backward()
                optimizer.step()
                found.append(loss.item())

        torch.manual_seed(0)
        if checked:
            assert hunt(train) is None
        else:
            train()
        return found

    checked = False
    plain = losses()
    checked = True
    assert losses() == plain


def test_recomputed_and_recurrent_models(hunt: Hunt) -> None:
    from torch.utils.checkpoint import checkpoint

    def again(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = checkpoint(lambda y: y.sin().cos(), x, use_reentrant=False)
        return result

    assert hunt(lambda: fit(Calls(again), ones())) is None

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.lstm(x)[0]  # type: ignore[no-any-return]

    assert hunt(lambda: fit(Recurrent(), [torch.randn(3, 1, 4) for _ in range(3)])) is None
