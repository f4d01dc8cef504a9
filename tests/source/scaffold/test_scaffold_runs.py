"""The scripts started as people start them: they learn, resume exactly where they were interrupted, and share work."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from hotlap.source.scaffold.compose import Task

DISTRIBUTED = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def losses(lines: list[str]) -> list[str]:
    """The losses of single steps and of evaluations, without the rates."""
    return [match[0] for line in lines if (match := re.match(r"step .*loss [\d.]+(, accuracy .*)?", line))]


def checkpoint(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = torch.load(path, weights_only=True)
    return loaded


def same(one: object, other: object) -> bool:
    """Equal to the last bit."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def test_same_detects_a_single_bit() -> None:
    weights = {"a": [torch.ones(3)], "step": 4}
    assert same(weights, {"a": [torch.ones(3)], "step": 4})
    assert not same(weights, {"a": [torch.nextafter(torch.ones(3), torch.zeros(3))], "step": 4})


@pytest.mark.slow
def test_a_run_with_everything_on(train: Any, tmp_path: Path) -> None:
    flags = ["--max-steps", "18", "--log-every", "6", "--accumulation", "2", "--workers", "1", "--precision", "bf16"]
    lines = train("image", *flags, "--profile", "1", "--checkpoint", "state.pt")
    assert "torch.bfloat16, 1 x cpu" in lines[0]
    assert [line.split()[1] for line in lines if "warming up" in line or "samples/s" in line] == ["6", "12", "18"]
    assert [line.split()[1] for line in lines if "validation" in line] == ["18"]
    assert checkpoint(tmp_path / "state.pt")["step"] == 18
    steps = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    assert sum(it.get("name", "").startswith("ProfilerStep#") for it in steps) == 1
    assert {it.name for it in tmp_path.iterdir()} == {"state.pt", "trace.json"}


@pytest.mark.parametrize("task", ["text", pytest.param("lm", marks=pytest.mark.slow)])
def test_the_other_tasks_train(train: Any, task: Task) -> None:
    lines = train(task, "--max-steps", "3", "--log-every", "2", "--save-every", "2", "--workers", "0")
    assert [line.split()[1] for line in lines if line.startswith("step")] == ["2", "3", "3"]


def check_resume(train: Any, task: Task, folder: Path, *flags: str) -> None:
    """A run that was interrupted within an epoch resumes with the same numbers as an uninterrupted one."""
    flags = (*flags, "--log-every", "1", "--dropout", "0.1", "--workers", "0")
    whole = train(task, *flags, "--max-steps", "7", "--save-every", "3", "--checkpoint", "whole.pt")
    first = train(task, *flags, "--max-steps", "3", "--checkpoint", "cut.pt")
    second = train(task, *flags, "--max-steps", "7", "--save-every", "3", "--checkpoint", "cut.pt", "--resume")
    assert losses(first)[:3] + losses(second) == losses(whole)
    assert same(checkpoint(folder / "cut.pt"), checkpoint(folder / "whole.pt"))


@pytest.mark.slow
def test_a_resumed_run_is_the_run_that_was_not_cut(train: Any, tmp_path: Path) -> None:
    check_resume(train, "image", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_every_task_resumes_exactly_in_each_precision(train: Any, task: Task, tmp_path: Path, precision: str) -> None:
    check_resume(train, task, tmp_path, "--precision", precision, "--accumulation", "2")
    assert bool(checkpoint(tmp_path / "cut.pt")["scaler"]) is (precision == "fp16")


@pytest.mark.slow
def test_resuming_over_the_end_of_an_epoch(train: Any, tmp_path: Path) -> None:
    """1,438 samples are 5 steps of 256 per epoch; the third epoch is interrupted before its end."""
    flags = ["--batch-size", "256", "--epochs", "3", "--log-every", "1", "--save-every", "1"]
    whole = train("image", *flags, "--checkpoint", "whole.pt")
    parts: list[str] = []
    for steps in ("4", "5", "6", "13", "0"):
        parts += train("image", *flags, "--max-steps", steps, "--checkpoint", "cut.pt", "--resume")
    trained = [line for line in losses(whole) if "accuracy" not in line]
    assert [line for line in losses(parts) if "accuracy" not in line] == trained and len(trained) == 15
    assert same(checkpoint(tmp_path / "cut.pt"), checkpoint(tmp_path / "whole.pt"))


@pytest.mark.slow
def test_compiled_it_computes_the_same(train: Any) -> None:
    flags = ["--max-steps", "4", "--log-every", "1", "--workers", "0", "--dropout", "0"]
    # torch's compiler warns of what torch itself deprecates.
    plain, compiled = (train("lm", *flags, "--compile", choice, launcher=("-W", "default")) for choice in ("off", "on"))
    for one, two in zip(losses(plain), losses(compiled), strict=True):
        assert numbers(two) == pytest.approx(numbers(one), rel=1e-3)


@pytest.mark.slow
def test_two_processes_are_one_with_twice_the_batch(train: Any, tmp_path: Path) -> None:
    """Gradients are averaged, shares of the data do not overlap, and evaluation counts every sample once."""
    flags = ["--dropout", "0", "--log-every", "1", "--max-steps", "6", "--workers", "0"]
    alone = train("text", *flags, "--batch-size", "16", "--accumulation", "2")
    flags += ["--batch-size", "8", "--accumulation", "2"]
    together = train("text", *flags, "--save-every", "6", launcher=DISTRIBUTED)
    assert "2 x cpu" in together[0]
    assert len(together) == len(alone)
    for one, two in zip(losses(alone), losses(together), strict=True):
        assert numbers(two) == pytest.approx(numbers(one), rel=2e-3)
    assert len(checkpoint(tmp_path / "checkpoint.pt")["streams"]) == 2


@pytest.mark.slow
def test_two_processes_resume_exactly(train: Any, tmp_path: Path) -> None:
    flags = ["--dropout", "0.2", "--log-every", "1", "--workers", "0"]
    whole = train("text", *flags, "--max-steps", "5", "--save-every", "3", launcher=DISTRIBUTED)
    expected = checkpoint(tmp_path / "checkpoint.pt")
    train("text", *flags, "--max-steps", "3", launcher=DISTRIBUTED)
    rest = train("text", *flags, "--max-steps", "5", "--save-every", "3", "--resume", launcher=DISTRIBUTED)
    assert losses(rest) == losses(whole)[-len(losses(rest)) :]
    assert same(checkpoint(tmp_path / "checkpoint.pt"), expected)


def numbers(line: str) -> list[float]:
    return [float(it) for it in re.findall(r"\d+\.\d+", line)]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("name", "least"), [("image", 95.0), ("text", 65.0), ("lm", 35.0)])
def test_with_its_defaults_every_task_learns(
    scripts: dict[Task, Path], tmp_path: Path, name: Task, least: float
) -> None:
    """The accuracy at the end, in percent. Always the most frequent answer would give 10, 22 and 28."""
    command = [sys.executable, "-W", "error", str(scripts[name])]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}  # threads that wait for each other starve on a busy machine
    done = subprocess.run(command, cwd=tmp_path, env=one_thread, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    last = done.stdout.splitlines()[-1]
    assert "validation" in last and numbers(last)[-1] >= least


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["image", "text", "lm"])
def test_hotlap_profiles_what_it_writes(scripts: dict[Task, Path], tmp_path: Path, name: Task) -> None:
    words = ["profile", "--quiet", "--json", str(scripts[name]), "--workers", "1"]
    done = subprocess.run([sys.executable, "-m", "hotlap", *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["baseline"] is not None
    assert not (tmp_path / "checkpoint.pt").exists()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_hotlap_tunes_what_it_writes(scripts: dict[Task, Path], tmp_path: Path) -> None:
    words = ["tune", "--quiet", "--json", "--budget", "15m", "--only", "loader", str(scripts["image"])]
    done = subprocess.run([sys.executable, "-m", "hotlap", *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    verdicts = {it["lever"]: it["verdict"]["type"] for it in document["outcomes"]}
    assert document["baseline"] is not None
    # Skipped where the loader alone is so fast that nothing could be gained: then the script has been measured.
    assert verdicts.pop("loader") in {"kept", "no-gain", "skipped"}
    assert set(verdicts.values()) == {"skipped"}
