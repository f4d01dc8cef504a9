"""The levers that are made for memory, in real trials of a real script: the peak of a launch with and without them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hotlap.levers.support.situations import make_setting
from hotlap.records import Assignment, LaunchRequest, Plan, Run, Setting, Workload
from hotlap.trial.local import LocalExecutor

SCRIPT = """\
import torch
from torch import nn
from torch.nn import functional

torch.manual_seed(0)
torch.set_num_threads(1)
tokens = torch.randint(0, 16, (512, 128))
labels = functional.one_hot(tokens, 16).sum(1).argmax(1)
layer = nn.TransformerEncoderLayer(64, 2, 256, dropout=0.1, batch_first=True, norm_first=True)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(16, 64), nn.Linear(64, 16)
        self.encoder = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)

    def forward(self, x):
        return self.head(self.encoder(self.embed(x)).mean(1))


model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(tokens, labels), 64, shuffle=True)
for epoch in range(100):
    for x, y in loader:
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
"""
LEVERS = (
    make_setting("activation-checkpointing", share="all"),
    make_setting("accumulation", micro_batches=4),
)


def launched(folder: Path, *settings: Setting) -> Run:
    workload = Workload(kind="script", target="train.py", directory=str(folder), python=sys.executable)
    assignment = Assignment(workload=workload, plan=Plan(settings=settings))
    return LocalExecutor(folder.parent / "runs").launch(LaunchRequest(assignment=assignment, steps=4))


@pytest.mark.slow
def test_each_holds_at_most_four_fifths_of_what_the_unmodified_script_does(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    plain = launched(folder)
    for setting in LEVERS:
        changed = launched(folder, setting)
        assert changed.ending == plain.ending and not changed.notes
        assert 0 < changed.host_peak_bytes < 0.8 * plain.host_peak_bytes, setting.lever
