"""Samples of the training thread's lines, by phase, with waits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from hotlap.evidence import RunEvidence, SampledLine
from hotlap.records import Stopped

SCRIPT = """
import os, sys, threading, time
import torch.distributed as dist

def work(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sum(range(100))                                           # worked

dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/meeting", rank=0, world_size=1)
time.sleep(0.3)                                                   # before the loop
interval = sys.getswitchinterval()
for inputs, targets in DataLoader(data, batch_size=32, num_workers=2):
    optimizer.zero_grad()
    model(inputs).pow(2).mean().backward()
    optimizer.step()
    time.sleep(0.03)                                              # slept
    work(0.03)
    end = time.perf_counter() + 0.03
    while time.perf_counter() < end:
        dist.barrier()                                            # met
    with torch.no_grad():
        model(inputs)
        time.sleep(0.03)                                          # evaluated
    assert [it.name for it in threading.enumerate()][0] == "MainThread"
    assert not any("sampl" in it.name for it in threading.enumerate())
"""


def lines(evidence: RunEvidence, number: int) -> list[SampledLine]:
    return [it for it in evidence.sampled.lines if it.site is not None and it.site.line == number]


def test_lines_are_sampled_by_phase(launch: Any, line_of: Callable[[str], int]) -> None:
    run, evidence = launch(SCRIPT, steps=30)
    assert isinstance(run.ending, Stopped), run.ending
    sampled = evidence.sampled
    assert sampled.samples >= sum(it.samples for it in sampled.lines) > 0

    (before,) = lines(evidence, line_of("# before the loop"))
    assert before.phase == "startup" and before.seconds > 0.2

    # Each of the four takes at least 30 ms in each of 28 steps: start-up ends with the first, and the last never ended.
    # The forward under no_grad folds what was before it: a model that is left in training mode evaluates nothing.
    for text in ("# slept", "# worked", "# met", "# evaluated"):
        seen = lines(evidence, line_of(text))
        assert {it.phase for it in seen} == {"outside"}, text
        assert sum(it.seconds for it in seen) > 0.4, text
        assert any(it.collective for it in seen) == (text == "# met")
    if sampled.knows_sleep:
        asleep = {text: _asleep_share(lines(evidence, line_of(text))) for text in ("# slept", "# worked")}
        assert asleep["# slept"] > 0.6 and asleep["# worked"] < 0.4
    (met, *_) = [it for it in lines(evidence, line_of("# met")) if it.collective]
    assert "torch.distributed" in met.called


def _asleep_share(seen: list[SampledLine]) -> float:
    return sum(it.asleep_seconds for it in seen) / sum(it.seconds for it in seen)


def test_a_sample_keeps_its_place_however_long_it_takes(launch: Any, line_of: Callable[[str], int]) -> None:
    """The script goes on while a stack is read, here for so long that it is often evaluating before that ends."""
    script = """
    import time
    from hotlap.runtime.evidence.sampled_lines import SampledLines

    at_once = SampledLines._seen
    def later(samples, stack):
        time.sleep(0.005)
        return at_once(samples, stack)
    SampledLines._seen = later

    for inputs, targets in DataLoader(data, batch_size=32):
        optimizer.zero_grad()
        model(inputs).pow(2).mean().backward()
        optimizer.step()
        time.sleep(0.02)                                          # slept
        with torch.no_grad():
            model(inputs)
        time.sleep(0.01)
    """
    run, evidence = launch(script, steps=30)
    assert isinstance(run.ending, Stopped), run
    slept = lines(evidence, line_of("# slept"))
    assert sum(it.samples for it in slept) > 10
    assert {it.phase for it in slept} == {"outside"}


def test_a_samplers_lines_are_distinguished_from_the_data_sets(launch: Any, line_of: Callable[[str], int]) -> None:
    script = """
    import time

    class Slow(torch.utils.data.Sampler):
        def __len__(self):
            return 4000
        def __iter__(self):
            for index in range(4000):
                if index % 32 == 0:
                    time.sleep(0.02)                              # chosen
                yield index

    class Held(Dataset):
        def __len__(self):
            return 4000
        def __getitem__(self, index):
            if index % 32 == 0:
                time.sleep(0.02)                                  # made
            return torch.zeros(8)

    for inputs in DataLoader(Held(), batch_size=32, sampler=Slow()):
        optimizer.zero_grad()
        model(inputs).pow(2).mean().backward()
        optimizer.step()
    """
    run, evidence = launch(script, steps=30)
    assert isinstance(run.ending, Stopped), run
    chosen, made = (lines(evidence, line_of(text)) for text in ("# chosen", "# made"))
    assert sum(it.seconds for it in chosen if it.phase == "data_wait" and it.sampler) > 0.3
    assert sum(it.seconds for it in made if it.phase == "data_wait" and not it.sampler) > 0.3
    assert not any(it.sampler for it in made if it.phase == "data_wait")


@pytest.mark.slow
def test_what_follows_no_evaluation_is_the_steps_own(launch: Any, line_of: Callable[[str], int]) -> None:
    script = """
    import time
    for inputs, targets in DataLoader(data, batch_size=32):
        optimizer.zero_grad()
        loss = model(inputs).pow(2).mean()
        time.sleep(0.02)                                          # slept
        loss.backward()
        optimizer.step()
    """
    run, evidence = launch(script, steps=30)
    assert isinstance(run.ending, Stopped), run
    assert evidence.sampled.samples, run
    seen = [it for it in lines(evidence, line_of("# slept")) if it.phase != "first step"]
    assert {it.phase for it in seen} == {"other"} and sum(it.seconds for it in seen) > 0.2
    assert {it.called for it in seen} == {""}


def test_what_the_line_was_in_is_reported(launch: Any, line_of: Callable[[str], int]) -> None:
    script = """
    words = [str(it % 97) for it in range(200_000)]
    table, text = open("/dev/null", "w", encoding="utf-8"), "\u00e9" * 1_000_000
    large, huge = torch.randn(1_000_000), torch.randn(4_000_000)
    for inputs, targets in DataLoader(data, batch_size=32):
        optimizer.zero_grad()
        model(inputs).pow(2).mean().backward()
        optimizer.step()
        counts = {}
        for word in words: counts[word] = counts.get(word, 0) + 1          # counted
        for _ in range(20): table.write(text)                              # written
        torch.sort(large)                                                  # sorted
        for _ in range(12): huge * huge                                    # multiplied
    """
    _, evidence = launch(script, steps=20)
    # Each of the four takes many times the interval between two samples, so that none is missed by chance.
    met = {text: _most_met(evidence, line_of(text)) for text in ("# counted", "# written", "# sorted", "# multiplied")}
    assert met["# counted"] in ("", ".get")
    assert met["# written"] in (".write", ".flush")
    assert met["# sorted"] == "torch.sort"
    assert met["# multiplied"] == "operator"


def _most_met(evidence: RunEvidence, number: int) -> str:
    seen = [it for it in lines(evidence, number) if it.phase != "startup"]
    return max(seen, key=lambda it: it.seconds).native


COLLECTING = """
import _thread, gc, sys, threading, time
from hotlap.runtime.evidence.sampled_lines import MAXIMUM_DEPTH, _stack_of

def collected(phase, _):
    if threading.get_ident() == sampler.ident:
        time.sleep(1e-4)  # the other thread returns from everything meanwhile

def deep(frames):
    if frames:
        deep(frames - 1)
    else:
        time.sleep(1e-5)

def sample():
    while depths.count(MAXIMUM_DEPTH) < 20:
        depths.append(len(_stack_of(trainer)))

trainer, depths = _thread.get_ident(), []
sampler = threading.Thread(target=sample)
sys.setrecursionlimit(10_000)
gc.set_threshold(1)
gc.callbacks.append(collected)
sampler.start()
while sampler.is_alive():
    for frames in (1, 3_000):
        deep(frames)
assert gc.isenabled()
gc.disable()
_stack_of(trainer)
assert not gc.isenabled()
"""


def test_a_collection_cannot_take_away_the_frames_that_are_being_read() -> None:
    subprocess.run([sys.executable, "-c", COLLECTING], check=True, timeout=120)
