"""Callbacks that keep a study of the training they are in: with stand-ins of their base classes, and for real."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import hotlap
from hotlap.runtime.watch import watcher as watching
from hotlap.study import load_study

TRAINER = """
import hotlap, torch
from torch import nn
from transformers import Trainer, TrainingArguments

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)
    def forward(self, x=None, labels=None):
        out = self.layer(x)
        return {"loss": (out - labels).pow(2).mean(), "logits": out}

data = [{"x": torch.ones(4) * i, "labels": torch.ones(1)} for i in range(64)]
arguments = TrainingArguments(output_dir="out", num_train_epochs=4, per_device_train_batch_size=4, use_cpu=True,
                              gradient_accumulation_steps=2, report_to=[], save_strategy="no", disable_tqdm=True)
Trainer(model=Net(), args=arguments, train_dataset=data, callbacks=[hotlap.trainer_callback()]).train()
"""
LIGHTNING = """
import hotlap, lightning, torch
from torch import nn

class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)
    def training_step(self, batch, index):
        return self.layer(batch).pow(2).mean()
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())

loader = torch.utils.data.DataLoader(torch.randn(64, 4), batch_size=4)
trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
                            enable_progress_bar=False, callbacks=[hotlap.lightning_callback()])
trainer.fit(Net(), loader)
"""


def train(steps: int) -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).mean().backward()
        optimizer.step()


def made(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A callback of a library whose base class has nothing but its name."""
    monkeypatch.setattr(watching, "ROW_SECONDS", 0.02)
    base = type("Base", (), {})
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(TrainerCallback=base))
    monkeypatch.setitem(sys.modules, "lightning", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "lightning.pytorch", SimpleNamespace(Callback=base))
    callback = getattr(hotlap, f"{kind}_callback")(directory=folder)
    assert isinstance(callback, base)
    return callback


@pytest.mark.parametrize(("kind", "begins"), [("trainer", "on_train_begin"), ("lightning", "on_train_start")])
def test_a_study_of_the_training_is_kept(
    kind: str, begins: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    callback = made(kind, tmp_path, monkeypatch)
    getattr(callback, begins)(None, None)
    train(60)
    callback.on_train_end(None, None)
    train(10)
    callback.on_train_end(None, None)
    study = load_study(tmp_path / "watch")
    assert study.status == "finished" and study.watch is not None and study.watch.steps == 60
    assert study.watch.account is not None and dict(study.watch.account.phases)["backward"] > 0


def test_a_training_that_fails_leaves_a_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    callback = made("lightning", tmp_path, monkeypatch)
    callback.on_train_start(None, None)
    train(20)
    callback.on_exception(None, None, ValueError("boom"))
    study = load_study(tmp_path / "watch")
    assert (study.status, study.status_text) == ("interrupted", "The training ended with ValueError.")
    assert study.watch is not None and study.watch.steps == 20


@pytest.mark.parametrize("variable", ["HOTLAP_ASSIGNMENT", "HOTLAP_WATCH"])
def test_where_hotlap_watches_already_nothing_is_done(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "somewhere")
    callback = made("trainer", tmp_path, monkeypatch)
    callback.on_train_begin()
    train(5)
    callback.on_train_end()
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    callback = made("trainer", tmp_path / "file", monkeypatch)
    with pytest.warns(UserWarning, match="keeps no study"):
        callback.on_train_begin()
    train(5)
    callback.on_train_end()


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(hotlap.HotlapError, match="for transformers"):
        hotlap.trainer_callback()


@pytest.mark.slow
@pytest.mark.parametrize(("library", "script", "steps"), [("transformers", TRAINER, 32), ("lightning", LIGHTNING, 32)])
def test_the_real_library_calls_it(library: str, script: str, steps: int, tmp_path: Path) -> None:
    pytest.importorskip(library)
    (tmp_path / "train.py").write_text(script)
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    study = load_study(tmp_path / ".hotlap" / "watch")
    assert study.status == "finished" and study.watch is not None and study.watch.steps == steps
    account = study.watch.account
    assert account is not None
    # Accelerate fetches a batch ahead, so that the first step of an epoch has one more and the last one less.
    assert account.samples_per_step == pytest.approx(8 if library == "transformers" else 4, rel=0.1)
    assert min(dict(account.phases)[it] for it in ("forward", "backward")) > 0
