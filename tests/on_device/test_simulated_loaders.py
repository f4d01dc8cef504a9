"""A DataLoader's workers on simulated time: they work ahead of the training process, each by a clock of its own."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = pytest.mark.slow

LOADING = """
import json, sys, time
import torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 40 * 8

    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.full((4,), float(index))

loader = DataLoader(Slow(), batch_size=8, num_workers=int(sys.argv[1]), pin_memory=True)
torch.cuda.synchronize()
seconds, total, last = [], 0.0, time.perf_counter()
for batch in loader:
    total += batch.cuda(non_blocking=True).sum().item()
    time.sleep(float(sys.argv[2]))
    now = time.perf_counter()
    seconds.append(now - last)
    last = now
print(json.dumps({"step": sum(seconds[10:30]) / 20, "total": total}))
"""


@pytest.mark.parametrize(
    ("workers", "compute", "expected"),
    [("0", "0.01", 0.026), ("1", "0", 0.016), ("1", "0.01", 0.016), ("2", "0", 0.008), ("2", "0.01", 0.01)],
)
def test_workers_hide_their_time_behind_the_steps(
    device: Any, run: Any, workers: str, compute: str, expected: float
) -> None:
    found = json.loads(run(device(), LOADING, workers, compute))
    assert found["step"] == pytest.approx(expected, rel=0.05)
    assert found["total"] == 4 * sum(range(320))
