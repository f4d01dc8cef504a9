"""NaN and infinities that come in with data, or that a script notices by itself."""

from __future__ import annotations

import pytest
import torch
from hunting import INFINITY, Calls, Hunt, fit, line, ones, origin
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

# ---------------------------------------------------------------------------------------------
# Data
# ---------------------------------------------------------------------------------------------


class Samples(Dataset[torch.Tensor]):
    """Samples of which one is damaged, by an operation of torch or before torch sees it."""

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


def test_a_dataset_that_damages_a_sample_in_this_process(hunt: Hunt) -> None:
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
    model[1].running_var.fill_(INFINITY - INFINITY)  # type: ignore[operator]
    found = origin(hunt(lambda: fit(model, ones())))
    assert (found.source, found.name) == ("state", "1.running_var")


def test_memory_that_was_never_written(hunt: Hunt) -> None:
    def train() -> None:
        model = Calls(torch.tanh)
        model.scale = nn.Parameter(torch.empty(4))  # never written
        # What such memory holds is arbitrary; NaN is put there where no operation of torch is seen.
        model.scale.detach().numpy()[:] = INFINITY - INFINITY
        model.head.function = lambda x: x * model.scale
        fit(model, ones())

    found = origin(hunt(train))
    assert (found.source, found.operation, found.phase, found.name) == ("uninitialised", "empty", "setup", "scale")
    assert found.site is not None and found.site.line == line("never written")


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


def test_a_script_that_exits_on_nan(hunt: Hunt) -> None:
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
    """Operations in which torch raises an error are checked too."""

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


def test_a_mask_that_is_read_explains_no_end(hunt: Hunt) -> None:
    def train() -> None:
        mask = torch.full((4, 4), -INFINITY).triu(1)
        assert torch.isinf(mask).any()
        fit(nn.Linear(4, 4), ones())

    assert hunt(train, at_the_end=True) is None
