"""Memory of a simulated device: segments, limits, and other processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.slow

WHOLE = """
import json
import torch

kept = [torch.empty(4 << 30, dtype=torch.uint8, device="cuda") for _ in range(18)]
allocated = torch.cuda.memory_allocated()
try:
    kept.append(torch.empty(16 << 30, dtype=torch.uint8, device="cuda"))
    text = ""
except torch.OutOfMemoryError as error:
    text = str(error)
kept.clear()
stats = torch.cuda.memory_stats()
print(json.dumps({
    "allocated": allocated,
    "text": text,
    "after": torch.cuda.memory_allocated(),
    "reserved": torch.cuda.memory_reserved(),
    "peak": torch.cuda.max_memory_allocated(),
    "retries": stats["num_alloc_retries"],
    "ooms": stats["num_ooms"],
    "free_and_total": torch.cuda.mem_get_info(),
}))
"""


def test_all_of_it_can_be_used_and_no_more(device: Any, run: Any) -> None:
    found = json.loads(run(device("h100"), WHOLE))
    assert found["allocated"] == found["peak"] == 18 * (4 << 30)
    assert found["text"].startswith(
        "CUDA out of memory. Tried to allocate 16384 MiB. GPU 0 has a total capacity of 79."
    )
    assert (found["after"], found["retries"], found["ooms"]) == (0, 1, 1)
    assert found["reserved"] == 18 * (4 << 30), "freed memory stays with the process"
    assert found["free_and_total"] == [84_900_000_000 - 550_000_000 - found["reserved"], 84_900_000_000]


SEGMENTS = """
import json
import torch

small = torch.empty(1000, device="cuda", dtype=torch.uint8)
large = torch.empty(3 << 20, device="cuda", dtype=torch.uint8)
own = torch.empty(33 << 20, device="cuda", dtype=torch.uint8)
found = [
    (it["segment_type"], it["total_size"] >> 20, [block["size"] for block in it["blocks"]])
    for it in torch.cuda.memory_snapshot()
]
del large
reserved = torch.cuda.memory_reserved()
torch.cuda.empty_cache()
print(json.dumps({"segments": found, "reserved": reserved >> 20, "after": torch.cuda.memory_reserved() >> 20}))
"""


def test_segments_and_blocks_are_as_torch_has_them(device: Any, run: Any) -> None:
    found = json.loads(run(device(), SEGMENTS))
    mib = 1 << 20
    assert found["segments"] == [
        ["small", 2, [1024, 2 * mib - 1024]],
        ["large", 20, [3 * mib, 17 * mib]],
        ["large", 34, [34 * mib]],
    ]
    assert (found["reserved"], found["after"]) == (56, 36)


HOLDS = """
import sys
import torch

kept = torch.empty(int(sys.argv[1]) << 30, dtype=torch.uint8, device="cuda")
print("ready", flush=True)
sys.stdin.read()
"""

ASKS = """
import torch

print(torch.cuda.mem_get_info()[0] >> 30)
try:
    torch.empty(12 << 30, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    print("out of memory")
"""


def test_processes_share_a_device(device: Any, run: Any, tmp_path: Any) -> None:
    a100 = device("a100")
    (tmp_path / "holds.py").write_text(HOLDS)
    other = subprocess.Popen(
        [sys.executable, str(tmp_path / "holds.py"), "28"],
        env={**os.environ, **a100.variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None and other.stdout.readline() == "ready\n"
    assert run(a100, ASKS).split() == ["10", "out", "of", "memory"]
    other.communicate()
    assert run(a100, ASKS).split() == ["39"], "what a process had is free when it ends"


DRIVER = """
import json
import pynvml


pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)
memory = pynvml.nvmlDeviceGetMemoryInfo(device)
try:
    energy = pynvml.nvmlDeviceGetPowerUsage(device)
except pynvml.NVMLError as error:
    energy = str(error)
print(json.dumps([pynvml.nvmlDeviceGetCount(), pynvml.nvmlDeviceGetName(device), memory.total, energy,
                  pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(device)]))
"""


def test_the_driver_says_what_its_file_says(device: Any, run: Any) -> None:
    t4 = device("t4", count=2)
    assert json.loads(run(t4, DRIVER)) == [2, "Tesla T4", 15_800_000_000, 42_000, 0]
    t4.say(throttle_reasons=0x40, power_milliwatts=None)
    assert json.loads(run(t4, DRIVER)) == [2, "Tesla T4", 15_800_000_000, "Not Supported", 0x40]


PHASES = """
import json
import torch

EMPTY = {empty}
for epoch in range(3):
    for step in range(4):
        torch.empty(300 << 20, dtype=torch.uint8, device="cuda")
    if EMPTY:
        torch.cuda.empty_cache()
    reserved = torch.cuda.memory_reserved()
    for batch in range(2):
        torch.empty(3 << 30, dtype=torch.uint8, device="cuda")
    if EMPTY:
        torch.cuda.empty_cache()
stats = torch.cuda.memory_stats()
print(json.dumps({{
    "peak": torch.cuda.max_memory_allocated(),
    "reserved": torch.cuda.memory_reserved(),
    "most_reserved": torch.cuda.max_memory_reserved(),
    "retries": stats["num_alloc_retries"],
}}))
"""


def test_emptying_the_cache_between_phases_lowers_no_peak(device: Any, run: Any) -> None:
    """As docs/recipes/memory.md says: only what other programs find on the device changes."""
    kept, emptied = (json.loads(run(device("h100"), PHASES.format(empty=it))) for it in (False, True))
    assert kept["peak"] == emptied["peak"] == 3 << 30
    assert kept["reserved"] >= 3 << 30 > emptied["reserved"]
    assert kept["retries"] == emptied["retries"] == 0
    assert kept["most_reserved"] - emptied["most_reserved"] <= 300 << 20
