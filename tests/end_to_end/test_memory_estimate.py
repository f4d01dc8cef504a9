"""Estimates of a real script's peak through the command line, against what ``hotlap memory`` counts of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

SCRIPT = """\
import torch
from torch import nn

torch.manual_seed(0)
tokens = torch.randint(0, 16, (512, 128))
layer = nn.TransformerEncoderLayer(64, 2, 256, batch_first=True)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(16, 64), nn.Linear(64, 16)
        self.encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)

    def forward(self, x):
        return self.head(self.encoder(self.embed(x)).mean(1))


model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(tokens, tokens[:, 0]), 64, shuffle=True)
for epoch in range(100):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
"""
RECURRENT = """\
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(4, 4)

    def forward(self, x):
        return self.lstm(x)[0]


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(100):
    model(torch.randn(8, 2, 4)).mean().backward()
    optimizer.step()
"""
BY_NUMBERS = """\
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(100):
    output = model(torch.randn(8, 4))
    output[output.nonzero()[:, 0]].mean().backward()
    optimizer.step()
"""


def asked(folder: Path, *words: str) -> tuple[int, dict[str, Any], str]:
    command = [sys.executable, "-m", "hotlap", "memory", "--json", *words, "train.py"]
    environment = {**os.environ, "XDG_STATE_HOME": str(folder.parent / "state")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


@pytest.mark.slow
def test_an_estimate_is_what_is_counted_and_follows_batch_size_and_levers(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
    code, measured, said = asked(folder)
    assert code == 0, said
    code, estimated, said = asked(
        folder, "--estimate", "--batch-size", "128", "--device-memory", "256MiB", "--ranks", "2"
    )
    assert code == 0, said
    counted = measured["memory"]["peak"]
    counted_bytes = sum(counted.values()) - counted["other"]
    peaks = estimated["memory_estimate"]["peaks"]
    own, doubled = peaks[:2]
    assert own["peak_bytes"] == pytest.approx(counted_bytes, rel=0.1)
    assert doubled["batch_size"] == 128 and doubled["peak_bytes"] > 1.5 * own["peak_bytes"]
    by_lever = {it["plan"]["settings"][0]["lever"]: it for it in peaks if len(it["plan"]["settings"]) == 1}
    assert by_lever["activation-checkpointing"]["peak_bytes"] < 0.7 * doubled["peak_bytes"]
    assert by_lever["accumulation"]["peak_bytes"] < doubled["peak_bytes"]
    sharded = next(it for it in peaks if it["ranks"] == 2)
    assert sharded["peak_bytes"] < doubled["peak_bytes"]
    assert {it.name for it in folder.iterdir()} == {"train.py", ".hotlap"}


@pytest.mark.slow
def test_of_recurrent_layers_it_is_said_what_cannot_be_known(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(RECURRENT, encoding="utf-8")
    code, estimated, said = asked(folder, "--estimate", "--device-memory", "256MiB")
    assert code == 0, said
    assert any("Recurrent layers" in it for it in estimated["warnings"])


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="the device is here")
def test_a_script_that_needs_a_missing_device_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    moved = SCRIPT.replace("model = Classifier()", "model = Classifier().cuda()")
    (folder / "train.py").write_text(moved, encoding="utf-8")
    code, _, said = asked(folder, "--estimate")
    assert code != 0
    assert "a device that is not here" in said and "depends on numbers" not in said


@pytest.mark.slow
def test_a_script_that_goes_by_numbers_cannot_be_estimated(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(BY_NUMBERS, encoding="utf-8")
    code, _, said = asked(folder, "--estimate")
    assert code != 0
    assert "tensors without data" in said and "depends on numbers" in said
