"""The loader alone, in a launch of its own, or after the steps of another one."""

from __future__ import annotations

import textwrap
import time
from typing import Any

import pytest

from hotlap.records import CollectEvidence, Completed, Setting, Stopped, SweepLoader, TimedOut

SETTING = Setting(lever="loader", values=(("pin_memory", False), ("num_workers", 0)))
AFTER_STEPS = (CollectEvidence(profiled_steps=3), SweepLoader(settings=(SETTING,), after_steps=True))
TRAINS_AND_EVALUATES = """
    import itertools, time

    class Slow(TensorDataset):
        def __getitem__(self, index):
            time.sleep(0.002)
            return super().__getitem__(index)

    held_out = DataLoader(Slow(*data.tensors), batch_size=8)
    for epoch in range(100):
        for inputs, targets in DataLoader(data, batch_size=32):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
        for inputs, targets in itertools.islice(held_out, 2):
            with torch.no_grad():
                model(inputs)
    """


def test_the_loader_that_trains_is_timed(launch: Any) -> None:
    script = """
    for inputs, targets in DataLoader(data, batch_size=32):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    """
    run, _ = launch(script, steps=1, instruments=(SweepLoader(settings=(SETTING,)),))
    assert isinstance(run.ending, Stopped)
    (rate,) = run.loader_rates
    assert rate.seconds_per_sample > 0 and rate.error == ""


def test_nothing_is_waited_for_where_training_has_no_loader(launch: Any) -> None:
    """The first step comes before any loader: without an end the launch would wait for an order of steps."""
    script = """
    held_out = DataLoader(data, batch_size=32)
    for epoch in range(100):
        optimizer.zero_grad()
        model(torch.randn(32, 8)).pow(2).mean().backward()
        optimizer.step()
        for inputs, targets in held_out:
            with torch.no_grad():
                model(inputs)
    """
    began = time.perf_counter()
    run, _ = launch(
        script,
        steps=1,
        instruments=(SweepLoader(settings=(SETTING,)),),
        startup_limit_seconds=240.0,
        block_limit_seconds=1.0,
    )
    assert isinstance(run.ending, Stopped), run.ending
    assert run.loader_rates == ()
    assert time.perf_counter() - began < 240.0


def test_after_steps_the_loader_that_trains_is_timed_and_the_steps_are_as_without(launch: Any) -> None:
    plain, _ = launch(TRAINS_AND_EVALUATES, steps=40, profiled_steps=3)
    run, evidence = launch(TRAINS_AND_EVALUATES, steps=40, instruments=AFTER_STEPS)
    assert isinstance(run.ending, Stopped)
    (rate,) = run.loader_rates
    assert rate.error == "" and 0 < rate.seconds_per_sample < 0.002, "not the slow one, which evaluates"
    assert run.steps.loss == plain.steps.loss and run.invariants == plain.invariants
    assert evidence.observed_steps > 0 and evidence.window is not None
    assert [it.steps for it in run.blocks if it.steps] == [it.steps for it in plain.blocks] == [39]


def test_after_steps_nothing_is_timed_where_training_has_no_loader(launch: Any) -> None:
    script = """
    for epoch in range(100):
        optimizer.zero_grad()
        model(torch.randn(32, 8)).pow(2).mean().backward()
        optimizer.step()
    """
    run, _ = launch(script, steps=20, instruments=AFTER_STEPS)
    assert isinstance(run.ending, Stopped) and run.loader_rates == () and len(run.steps.wall_seconds) == 20


def test_a_loader_that_hangs_after_steps_is_given_up(launch: Any) -> None:
    script = """
    import time

    class Hanging(TensorDataset):
        def __getitem__(self, index):
            if torch.utils.data.get_worker_info() is not None:
                time.sleep(1000)
            return super().__getitem__(index)

    for epoch in range(100):
        for inputs, targets in DataLoader(Hanging(*data.tensors), batch_size=32):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
    """
    sweep = SweepLoader(settings=(Setting(lever="loader", values=(("num_workers", 1),)),), after_steps=True)
    limits = {"startup_limit_seconds": 20.0, "block_limit_seconds": 10.0}
    run, _ = launch(script, steps=20, instruments=(sweep,), **limits)
    assert isinstance(run.ending, TimedOut), run.ending
    assert (run.ending.limit_seconds, run.ending.during) == (30.0, "loader sweep") and run.loader_rates == ()


def test_an_error_of_the_loader_after_steps_is_told(launch: Any) -> None:
    script = """
    class Failing(TensorDataset):
        def __getitem__(self, index):
            if torch.utils.data.get_worker_info() is not None:
                raise RuntimeError("planted")
            return super().__getitem__(index)

    for epoch in range(100):
        for inputs, targets in DataLoader(Failing(*data.tensors), batch_size=32):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
    """
    with_worker = Setting(lever="loader", values=(("num_workers", 1),))
    sweep = SweepLoader(settings=(with_worker, SETTING), after_steps=True)
    run, _ = launch(script, steps=20, instruments=(sweep,))
    assert isinstance(run.ending, Stopped)
    failed, fine = run.loader_rates
    assert "RuntimeError" in failed.error and fine.error == "" and fine.seconds_per_sample > 0


def test_a_script_that_ends_by_itself_is_not_held_up(launch: Any) -> None:
    script = """
    for inputs, targets in itertools.islice(DataLoader(data, batch_size=4), 12):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    """
    run, evidence = launch("import itertools\n" + textwrap.dedent(script), steps=40, instruments=AFTER_STEPS)
    assert isinstance(run.ending, Completed) and len(run.steps.wall_seconds) == 12
    assert run.loader_rates == () and evidence.observed_steps > 0


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        ('KeyError("no such image: 17")', "KeyError: 'no such image: 17'"),
        ('PageError("page 17 is not mapped")', "PageError: page 17 is not mapped"),
    ],
)
def test_a_setting_whose_workers_fail_has_no_rate_and_the_others_have(launch: Any, raised: str, told: str) -> None:
    """Workers cannot read a file that was opened before they were forked, and libraries raise a KeyError then, or an
    error of their own kind."""
    script = f"""
    class PageError(Exception):
        pass

    class Opened(TensorDataset):
        def __getitem__(self, index):
            if torch.utils.data.get_worker_info() is not None:
                raise {raised}
            return super().__getitem__(index)

    for epoch in range(100):
        for inputs, targets in DataLoader(Opened(*data.tensors), batch_size=32):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
    """
    in_workers = Setting(lever="loader", values=(("pin_memory", False), ("num_workers", 1), ("prefetch_factor", 2)))
    run, evidence = launch(
        script,
        steps=8,
        instruments=(
            CollectEvidence(profiled_steps=3),
            SweepLoader(settings=(in_workers, SETTING), after_steps=True),
        ),
    )
    assert isinstance(run.ending, Stopped), run.ending
    failed, timed = run.loader_rates
    assert failed.error.endswith(told) and failed.seconds_per_sample == 0
    assert timed.error == "" and timed.seconds_per_sample > 0
    assert evidence.observed_steps > 0
