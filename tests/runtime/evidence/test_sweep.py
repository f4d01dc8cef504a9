"""The loader alone, in a launch of its own."""

from __future__ import annotations

import time
from typing import Any

from hotlap.records import Setting, Stopped, SweepLoader

SETTING = Setting(lever="loader", values=(("pin_memory", False), ("num_workers", 0)))


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
