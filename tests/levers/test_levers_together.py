"""All levers of a plan for the CPU at once, through the real interception, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"

SCRIPT = """
import json, sys
import torch
from torch.nn import functional

from hotlap.levers.api import find
from hotlap.levers.support.situations import make_setting
from hotlap.runtime.hooks import Hooks
from hotlap.runtime.interception import Interception

interception = Interception(Hooks(torch=torch))
interception.install()
for setting in (
    make_setting("channels-last"),
    make_setting("cpu-threads", threads=1),
    make_setting("fused-optimizer", implementation="fused"),
    make_setting("loader", num_workers=1, pin_memory=False, persistent_workers=True, prefetch_factor=2),
    make_setting("mixed-precision", dtype=sys.argv[1]),
):
    find(setting.lever).install(interception.hooks, setting)

torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(32, 3, 8, 8), torch.randint(0, 4, (32,)))
loader = torch.utils.data.DataLoader(data, 8, shuffle=True)
model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
losses, outputs, evaluated = [], set(), set()
for epoch in range(4):
    for images, labels in loader:
        optimizer.zero_grad()
        output = model(images)
        loss = functional.cross_entropy(output, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        outputs.add(str(output.dtype))
    with torch.no_grad():
        evaluated.add(str(model(data.tensors[0]).dtype))
print(json.dumps({
    "losses": losses, "outputs": sorted(outputs), "evaluated": sorted(evaluated), "workers": loader.num_workers,
    "fused": optimizer.param_groups[0]["fused"], "threads": torch.get_num_threads(),
    "strides": model[0].weight.is_contiguous(memory_format=torch.channels_last),
    "skipped": interception.hooks.scaler_skipped_steps, "notes": interception.hooks.notes,
}))
"""


def run(tmp_path: Path, dtype: str) -> dict[str, object]:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script), dtype],
        capture_output=True,
        env={"PYTHONPATH": str(SOURCE), "PATH": "/usr/bin:/bin"},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def test_every_lever_does_its_part_and_the_model_still_learns(tmp_path: Path) -> None:
    for dtype in ("bfloat16", "float16"):
        seen = run(tmp_path, dtype)
        assert seen["outputs"] == [f"torch.{dtype}"]
        assert seen["evaluated"] == ["torch.float32"]
        assert (seen["workers"], seen["fused"], seen["threads"], seen["strides"]) == (1, True, 1, True)
        assert seen["notes"] == []
        assert isinstance(seen["skipped"], int) and seen["skipped"] <= 2
        losses = seen["losses"]
        assert len(losses) == 16  # type: ignore[arg-type]
        assert sum(losses[-4:]) < sum(losses[:4]) / 2  # type: ignore[index]
