"""The pauses of Python's garbage collector, in steps alone."""

from __future__ import annotations

import gc

from hotlap.runtime.garbage_timer import GarbageTimer

CYCLES = """
kept = []
for inputs, targets in DataLoader(data, batch_size=32):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    kept += [[] for _ in range(20_000)]
"""


def test_collections_in_steps_are_timed(launch) -> None:  # type: ignore[no-untyped-def]
    _, evidence = launch(CYCLES, steps=20)
    assert evidence.garbage.collections >= 10
    assert 0 < evidence.garbage.longest_seconds <= evidence.garbage.seconds < evidence.observed_seconds


def test_a_script_without_a_collector_has_no_pauses(launch) -> None:  # type: ignore[no-untyped-def]
    _, evidence = launch("import gc\ngc.disable()\n" + CYCLES, steps=20)
    assert (evidence.garbage.collections, evidence.garbage.seconds) == (0, 0.0)


def test_only_what_is_counted_is_timed_and_no_callback_is_left() -> None:
    before = list(gc.callbacks)
    timer = GarbageTimer()
    gc.collect()
    assert timer.collections == 0
    timer.counting = True
    gc.collect()
    gc.collect(0)
    timer.counting = False
    gc.collect()
    assert (timer.collections, timer.full_collections) == (2, 1)
    assert 0 < timer.longest_seconds <= timer.seconds
    timer.remove()
    timer.remove()
    assert gc.callbacks == before
