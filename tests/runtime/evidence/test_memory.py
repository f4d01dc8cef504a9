"""Memory step by step, and the variables that hold more with every step."""

from __future__ import annotations

import gc
import sys
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hotlap.evidence import MemoryHolder, MemoryTimeline
from hotlap.runtime.evidence.graph_depth import accumulations
from hotlap.runtime.evidence.growth_lines import growing_line
from hotlap.runtime.evidence.memory import MemoryWatch
from hotlap.runtime.evidence.variables import namespaces
from hotlap.runtime.hooks import Hooks
from hotlap.runtime.interception import Interception

LOOP = """
for inputs, targets in DataLoader(data, batch_size=32):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
"""


def by_name(evidence) -> dict[str, MemoryHolder]:  # type: ignore[no-untyped-def]
    return {it.name: it for it in evidence.memory.holders}


def test_rows_are_those_of_the_observed_steps(launch) -> None:  # type: ignore[no-untyped-def]
    _, evidence = launch(LOOP, steps=20, profiled_steps=4)
    memory = evidence.memory
    assert len(memory.host_bytes) == evidence.observed_steps == 15
    assert min(memory.host_bytes) > 50 * 2**20
    assert memory.allocated_bytes == () and memory.limit_bytes == 0
    assert memory.holders == ()


GROWING = """
class Meter:
    def __init__(self):
        self.values = []
    def update(self, value):
        self.values.append(value)

class Trainer:
    def __init__(self):
        self.outputs = {}
        self.meter = Meter()
    def fit(self):
        total_loss, average = 0.0, torch.zeros(())
        for number, (inputs, targets) in enumerate(DataLoader(data, batch_size=32)):
            optimizer.zero_grad()
            output = model(inputs)
            loss = nn.functional.mse_loss(output, targets) + 0.01 * nn.functional.l1_loss(output, targets)
            loss.backward()
            optimizer.step()
            losses.append(loss)
            total_loss += loss
            average = 0.9 * average + 0.1 * loss.detach()
            self.outputs[number] = output[:, 0].detach()
            self.meter.update(output.detach())

losses = []
Trainer().fit()
"""


def test_what_grows_is_named_with_its_line(launch, line_of) -> None:  # type: ignore[no-untyped-def]
    _, evidence = launch(GROWING, steps=20)
    found = by_name(evidence)
    assert set(found) == {"losses", "total_loss", "self.outputs", "self.meter.values"}
    assert {name: it.site.line for name, it in found.items() if it.site} == {
        "losses": line_of("losses.append"),
        "total_loss": line_of("total_loss += loss"),
        "self.outputs": line_of("self.outputs[number]"),
        "self.meter.values": line_of("self.values.append"),
    }
    assert {name for name, it in found.items() if it.holds_graph} == {"losses", "total_loss"}
    assert {it.tensors_per_step for it in found.values()} == {1.0}
    # The last step ends within optimizer.step(), before anything of it is kept. (The loss is a sum itself: one more.)
    assert {name: it.tensors for name, it in found.items()} == {
        "losses": 19, "total_loss": 20, "self.outputs": 19, "self.meter.values": 19
    }  # fmt: skip
    # A view keeps all of its memory alive.
    assert found["self.outputs"].bytes == found["self.meter.values"].bytes == 19 * 32 * 4


IN_OBJECTS = """
class Meter:
    def __init__(self):
        self.values = []
    def add(self, value):
        self.values.append(value)

class Meters:
    def __init__(self, *names):
        self.meters = {name: Meter() for name in names}
    def add(self, **values):
        for name, value in values.items():
            self.meters[name].add(value)

class Probe:
    def __init__(self):
        self.outputs = {}
    def keeper(self, name):
        def keep(module, inputs, output):
            self.outputs.setdefault(name, []).append(output.detach())
        return keep

def main():
    meters, probes = Meters("loss"), [Probe()]
    model.register_forward_hook(probes[0].keeper("out"))
    for inputs, targets in DataLoader(data, batch_size=32):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        meters.add(loss=loss)

main()
"""


def test_what_grows_in_objects_of_a_container_and_by_hooks_has_its_line(launch, line_of) -> None:  # type: ignore[no-untyped-def]
    _, evidence = launch(IN_OBJECTS, steps=20)
    found = {name: it.site.line for name, it in by_name(evidence).items() if it.site}
    assert found == {
        "meters.meters['loss'].values": line_of("self.values.append"),
        "probes[0].outputs": line_of("self.outputs.setdefault"),
    }


@pytest.mark.slow
def test_what_does_not_keep_growing_is_not_named(launch) -> None:  # type: ignore[no-untyped-def]
    script = (
        """
from collections import deque
window, history, once, numbers = deque(maxlen=20), [], [], []
"""
        + LOOP
        + """
    window.append(loss.detach())
    once.append(loss.detach())
    del once[:-4]
    numbers.append(loss.item())
    history.append(loss.detach())
    if len(history) > 8:
        history.clear()
"""
    )
    _, evidence = launch(script, steps=30)
    assert evidence.memory.holders == ()


# -- without a launch --------------------------------------------------------------------------


class Device:
    """As ``torch.cuda`` is to the collector: each call returns a mebibyte more."""

    def __init__(self) -> None:
        self.memory = self
        self.looks = 0

    def memory_stats_as_nested_dict(self, index: int) -> dict[str, Any]:
        assert index == 1
        self.looks += 1
        used = {"all": {"current": self.looks << 20, "peak": 9 << 20}}
        return {"allocated_bytes": used, "reserved_bytes": {"all": {"current": 8 << 20}}, "num_alloc_retries": 3}

    def max_memory_allocated(self, index: int) -> int:
        return 9 << 20

    def get_device_properties(self, index: int) -> Any:
        return SimpleNamespace(total_memory=1 << 34)


def test_a_device_s_memory_is_read_from_its_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = Hooks(torch=torch)
    clock: Any = SimpleNamespace(steps_done=0)
    watch = MemoryWatch(Interception(hooks), clock)
    monkeypatch.setattr(watch, "_training_device", lambda: (Device(), 1))
    (step_ended,) = hooks.step_ended
    step_ended()
    watch.resume()
    step_ended()
    step_ended()
    watch.pause()
    watch.resume()  # after the profiler, which needs memory itself
    step_ended()
    memory = watch.result()["memory"]
    assert isinstance(memory, MemoryTimeline)
    assert memory.allocated_bytes == (1 << 20, 2 << 20)
    assert memory.reserved_bytes == (8 << 20, 8 << 20)
    assert len(memory.host_bytes) == 2
    assert (memory.peak_allocated_bytes, memory.limit_bytes, memory.retries) == (9 << 20, 1 << 34, 3)


def test_accumulations_are_counted_along_the_chain_of_the_same_shape() -> None:
    weight = torch.ones(3, requires_grad=True)
    loss = (weight * 2).sum() + (weight * 3).sum() + (weight * 4).sum()
    assert accumulations(loss) == 2
    total = torch.zeros(())
    for _ in range(10):
        total = 0.5 * (weight * 2).sum() / 3 + total
    assert accumulations(total) == 10
    assert accumulations(total.detach()) == 0
    for _ in range(10_000):
        total = total + weight.sum()
    assert accumulations(total) <= 4000


def test_the_wide_graph_behind_a_loss_is_not_walked_through() -> None:
    layer = torch.nn.Linear(4, 4)
    hidden = torch.ones(2, 4)
    for _ in range(50):
        hidden = torch.relu(layer(hidden))
    assert accumulations(hidden.mean()) == 1


def test_lines_that_make_a_variable_grow() -> None:
    def code(self, total, cache, losses, other):  # type: ignore[no-untyped-def]
        other = len(losses)
        total = total + other
        cache[other] = total
        self.kept.extend(cache)
        losses.append(total)

    first = code.__code__.co_firstlineno
    codes = (code.__code__,)
    lines = {
        name: site.line - first
        for name in ("total", "cache", "self.kept", "losses", "other")
        if (site := growing_line(codes, name.split("."))) is not None
    }
    assert lines == {"total": 2, "cache": 3, "self.kept": 4, "losses": 5}


def look() -> dict[str, list[str]]:
    return {it.function.rpartition(".")[2]: [name for name, _ in it.variables] for it in namespaces()}


def user_of_a_tensor() -> tuple[dict[str, list[str]], bool]:
    """Its variables as they were observed, and whether one of them outlives its deletion. (Without ``assert``, into
    which pytest puts a call of ``locals()``.)"""
    kept = torch.ones(3)
    reference = weakref.ref(kept)
    seen = look()
    del kept
    gc.collect()
    return seen, reference() is not None


def test_reading_variables_keeps_none_of_them_alive() -> None:
    seen, alive = user_of_a_tensor()
    assert seen["user_of_a_tensor"] == ["kept", "reference"]
    assert not alive


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="locals() is a copy from 3.13 on")
def test_functions_whose_locals_were_taken_are_left_alone() -> None:
    mine = locals()
    later = look()
    assert "test_functions_whose_locals_were_taken_are_left_alone" not in later
    assert "later" not in mine
