"""The loader's arguments in every form in which scripts write them, and the data that comes out."""

from __future__ import annotations

import random
from functools import partial

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, TensorDataset

from hotlap.levers.data import loader as lever
from hotlap.levers.support.situations import make_setting

TWO = make_setting("loader", num_workers=2, pin_memory=False, persistent_workers=True, prefetch_factor=3)
NONE = make_setting("loader", num_workers=0, pin_memory=False)


class Squares(Dataset):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int):
        return torch.tensor([index, index * index])


class Endless(IterableDataset):
    def __iter__(self):
        yield from (torch.tensor([index]) for index in range(6))


class Epochs(Squares):
    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


def begun(driver, *args: object, **kwargs: object) -> DataLoader:
    """A loader that training has begun to read; no worker is started."""
    loader = driver.loader(*args, **kwargs)
    driver.start(loader, make=lambda it: None)
    return loader


def arguments_of(loader: DataLoader) -> tuple[object, ...]:
    return loader.num_workers, loader.prefetch_factor, loader.persistent_workers, loader.timeout


# -- arguments -----------------------------------------------------------------------------------

FORMS = {
    "defaults": lambda make: make(Squares()),
    "keywords": lambda make: make(dataset=Squares(), batch_size=4, num_workers=0),
    "positions": lambda make: make(Squares(), 4, True, None, None, 0, None, False, True),
    "kwargs": lambda make: make(Squares(), **{"batch_size": 4, "num_workers": 1, "prefetch_factor": 7}),
    "batch sampler": lambda make: make(Squares(), batch_sampler=[[0, 1], [2, 3]]),
    "sampler": lambda make: make(Squares(), 2, sampler=RandomSampler(Squares())),
    "no batching": lambda make: make(Squares(), batch_size=None),
}


@pytest.mark.parametrize("form", FORMS)
def test_arguments_are_replaced_in_every_form(driver, form: str) -> None:
    driver.install(TWO)
    assert arguments_of(FORMS[form](partial(begun, driver))) == (2, 3, True, 0)


@pytest.mark.parametrize("form", FORMS)
def test_going_back_to_no_workers_leaves_a_legal_combination(driver, form: str) -> None:
    driver.install(NONE)
    assert arguments_of(FORMS[form](partial(begun, driver))) == (0, None, False, 0)


def test_what_needs_workers_goes_away_with_them(driver) -> None:
    driver.install(NONE)
    loader = begun(
        driver,
        Squares(),
        num_workers=2,
        prefetch_factor=4,
        persistent_workers=True,
        timeout=200,
        multiprocessing_context="fork",
        pin_memory=True,
    )
    assert arguments_of(loader) == (0, None, False, 0)
    assert loader.multiprocessing_context is None
    assert loader.pin_memory is False
    assert len(list(driver.batches(loader))) == 12


def test_editing_changes_nothing_but_its_own_arguments() -> None:
    given = {"dataset": Squares(), "batch_size": 4, "drop_last": True}
    edited = lever.edited(given, TWO)
    assert given == {"dataset": given["dataset"], "batch_size": 4, "drop_last": True}
    assert {name: edited[name] for name in given} == given


@pytest.mark.parametrize("persistent", [True, False])
def test_workers_persist_only_if_the_data_set_ignores_the_epoch(driver, persistent: bool) -> None:
    driver.install(TWO)
    assert begun(driver, Squares() if persistent else Epochs()).persistent_workers is persistent


# -- left alone ----------------------------------------------------------------------------------


def test_iterable_data_sets_are_left_alone_with_a_note(driver) -> None:
    driver.install(TWO)
    assert begun(driver, Endless(), num_workers=1).num_workers == 1
    assert "was not changed" in driver.hooks.notes[0] and "iterable" in driver.hooks.notes[0]


def test_data_sets_on_a_device_are_left_alone_also_inside_another(driver) -> None:
    driver.install(TWO)
    inner = TensorDataset(torch.empty(4, 2, device="meta"))
    assert begun(driver, torch.utils.data.Subset(inner, [0, 1])).num_workers == 0
    assert "tensors on a device" in driver.hooks.notes[0]


def test_what_cannot_be_sent_to_spawned_workers_is_left_alone(driver) -> None:
    driver.install(TWO)
    loader = begun(driver, Squares(), num_workers=1, multiprocessing_context="spawn", collate_fn=lambda batch: batch)
    assert loader.num_workers == 1
    assert "collate_fn cannot be sent" in driver.hooks.notes[0]
    assert begun(driver, Squares(), collate_fn=lambda batch: batch).num_workers == 2  # forked workers inherit it


# -- training and evaluation ---------------------------------------------------------------------


def test_a_loader_that_is_read_without_gradients_keeps_what_it_has(driver) -> None:
    driver.install(TWO)
    loader = driver.loader(Squares(), batch_size=4)
    with torch.no_grad():
        assert len(list(driver.batches(loader))) == 3
    assert arguments_of(loader) == (0, None, False, 0)
    assert driver.hooks.notes == []


def test_a_loader_that_is_read_with_the_model_in_evaluation_mode_keeps_what_it_has(driver) -> None:
    """Many loops disable gradients only for the forward pass."""
    driver.install(TWO)
    model = torch.nn.Linear(2, 1)
    driver.forward(model, torch.ones(1, 2))
    model.eval()
    validation = begun(driver, Squares())
    model.train()
    training = begun(driver, Squares())
    assert (validation.num_workers, training.num_workers) == (0, 2)


def test_a_loader_that_trains_after_an_evaluation_is_changed_then(driver) -> None:
    driver.install(TWO)
    loader = driver.loader(Squares(), batch_size=4)
    with torch.no_grad():
        evaluated = [it.tolist() for it in driver.batches(loader)]
    assert [it.tolist() for it in driver.batches(loader)] == evaluated
    assert arguments_of(loader) == (2, 3, True, 0)


def test_where_a_model_trains_in_evaluation_mode_the_mode_says_nothing(driver) -> None:
    driver.install(TWO)
    driver.forward(torch.nn.Linear(2, 1).eval(), torch.ones(1, 2))
    assert begun(driver, Squares()).num_workers == 2


def test_persistent_workers_that_an_evaluation_started_are_left_alone(driver) -> None:
    driver.install(NONE)
    loader = driver.loader(Squares(), num_workers=1, persistent_workers=True)
    with torch.no_grad():
        list(driver.batches(loader))
    assert len(list(driver.batches(loader))) == 12
    assert loader.num_workers == 1 and "persistent workers" in driver.hooks.notes[0]


# -- the data ------------------------------------------------------------------------------------


def two_epochs(driver, **arguments: object) -> list[object]:
    """All batches of two epochs, and random numbers that the training would draw between them."""
    torch.manual_seed(7)
    loader = driver.loader(Squares(), batch_size=4, shuffle=True, **arguments)
    drawn: list[object] = []
    for _ in range(3):
        drawn.extend(batch.tolist() for batch in driver.batches(loader))
        drawn.append(torch.rand(2).tolist())
    return drawn


def test_the_same_batches_and_the_same_random_stream_with_persistent_workers(driver) -> None:
    plain = two_epochs(driver)
    driver.install(TWO)
    assert two_epochs(driver) == plain


def test_the_same_with_a_generator_of_the_scripts_own(driver) -> None:
    plain = two_epochs(driver, generator=torch.Generator().manual_seed(3))
    driver.install(TWO)
    assert two_epochs(driver, generator=torch.Generator().manual_seed(3)) == plain


def test_the_same_where_the_script_had_persistent_workers_itself(driver) -> None:
    own = {"num_workers": 1, "persistent_workers": True}
    plain = two_epochs(driver, **own)
    driver.install(TWO)
    assert two_epochs(driver, **own) == plain


def test_the_lever_draws_nothing_from_python_or_numpy(driver) -> None:
    random.seed(1)
    before = random.getstate()
    driver.install(TWO)
    list(driver.batches(driver.loader(Squares())))
    assert random.getstate() == before


# -- copies --------------------------------------------------------------------------------------


def test_copies_of_pinned_batches_do_not_wait_and_others_do(driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """No device here: the plain `to` and `is_pinned` are replaced by ones that record their arguments."""
    reached = []

    def plain_to(tensor, *args, **kwargs):
        reached.append((args, kwargs))
        return tensor

    class Iterator:
        _pin_memory = True

    class Unpinned:
        _pin_memory = False

    monkeypatch.setattr(torch.Tensor, "to", plain_to, raising=False)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: True)
    lever.copy_without_waiting(driver.hooks)
    (fetch,) = driver.hooks.around_fetch
    batch = {"images": torch.ones(2), "more": [torch.ones(3)]}
    assert fetch(Iterator(), lambda: batch) is batch
    other = fetch(Unpinned(), lambda: torch.ones(2))
    batch["images"].to("cuda")
    batch["more"][0].to("cuda", non_blocking=False)
    batch["images"].to("cuda", torch.float16, False)
    other.to("cuda")
    assert reached == [
        (("cuda",), {"non_blocking": True}),
        (("cuda",), {"non_blocking": True}),
        (("cuda", torch.float16, False), {}),
        (("cuda",), {}),
    ]


@pytest.mark.gpu
def test_pinned_copies_arrive_whole(driver) -> None:
    driver.install(make_setting("loader", num_workers=2, pin_memory=True, persistent_workers=True))
    loader = driver.loader(Squares(), batch_size=4)
    arrived = [batch.to("cuda") for batch in driver.batches(loader)]
    assert torch.equal(torch.cat(arrived).cpu(), torch.stack([Squares()[index] for index in range(12)]))
