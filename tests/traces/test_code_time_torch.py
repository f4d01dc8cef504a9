"""Time by module and source line in traces as the installed torch writes them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hotlap.traces import Attribution, code_time, read_trace

pytest.importorskip("torch")

SCRIPT = """
import sys

import torch


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)

    def forward(self, given):
        return self.second(torch.relu(self.first(given)))


model = torch.nn.Sequential(Block(), Block(), torch.nn.Linear(16, 4))
given = torch.randn(8, 16)
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_stack=True) as profiler:
    for _ in range(3):
        model(given).square().mean().backward()
profiler.export_chrome_trace(sys.argv[1])
"""


def test_a_training_step_on_the_cpu(tmp_path: Path) -> None:
    script, path = tmp_path / "train.py", tmp_path / "trace.json"
    script.write_text(SCRIPT, encoding="utf-8")
    # In a separate process: one that has used the profiler before may record no stacks.
    subprocess.run([sys.executable, script, path], check=True, timeout=600)
    code = code_time(Attribution(read_trace(path, with_inputs=True)))
    assert code is not None
    found = {it.path: it for it in code.modules}
    block, linear = ("Sequential", "Block"), ("Sequential", "Block", "Linear")
    assert set(found) == {("Sequential",), block, linear, ("Sequential", "Linear")}
    assert [(found[it].instances, found[it].calls) for it in (block, linear)] == [(2, 6), (4, 12)]
    for it in found.values():
        assert it.host.forward_nanoseconds > 0
        assert it.host.backward_nanoseconds > 0
    # The loss is outside of the model, and gradients are accumulated by operators that name no forward operator.
    assert code.outside_modules.host.backward_nanoseconds > code.unmapped_backward.host.backward_nanoseconds > 0
    forward = next(it for it in code.lines if it.place.endswith(": forward"))
    assert forward.host.forward_nanoseconds == found[block].host.forward_nanoseconds
    assert forward.host.backward_nanoseconds == found[block].host.backward_nanoseconds
