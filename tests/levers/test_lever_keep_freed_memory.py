"""The lever that keeps freed memory: fewer page faults in a real process, and a word where it comes too late."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from hotlap.levers.host import keep_freed_memory
from hotlap.levers.support.situations import make_setting

SETTING = make_setting("keep-freed-memory")
PROGRAM = """
import json, resource
from types import SimpleNamespace
import torch
from hotlap.levers.host import keep_freed_memory
from hotlap.levers.support.situations import make_setting

def step():
    for megabytes in (8, 40, 64):  # those above 32 are always mapped by the allocator as it is
        torch.empty(megabytes << 20, dtype=torch.uint8).fill_(1)

notes = []
keep_freed_memory.install(SimpleNamespace(note=notes.append), make_setting("keep-freed-memory"))
for _ in range(10):  # until pieces of all sizes have found their place
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print(json.dumps([resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, notes]))
"""


def run(**variables: str) -> tuple[int, list[str]]:
    without = {name: it for name, it in os.environ.items() if name not in keep_freed_memory.VARIABLES}
    without["PYTHONPATH"] = os.pathsep.join(it for it in sys.path if it)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**without, **variables},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    faults, notes = json.loads(done.stdout)
    return faults, notes


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the allocator of glibc")
def test_a_step_gets_the_memory_that_the_last_one_freed() -> None:
    usual, too_late = run()
    kept, notes = run(**keep_freed_memory.environment(SETTING))
    assert "before Python starts" in too_late[0] and notes == []
    assert kept < usual / 10
