"""``hotlap.check`` and ``hotlap.patch`` called from Python on real scripts, with real launches."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import hotlap
from hotlap import study as studies
from hotlap.experiment.options import Options
from hotlap.levers.support.situations import make_setting
from hotlap.records import Assignment, LaunchRequest, Observe, Setting, Workload
from hotlap.trial.local import LocalExecutor

SCRIPT = """\
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(12)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
values, labels = torch.randn(64, 64), torch.randint(0, 10, (64,))
for _ in range(20000):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(values), labels).backward()
    optimizer.step()
"""
FUSED = make_setting("fused-optimizer", implementation="fused")
PAGES = make_setting("huge-pages")


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    top = tmp_path / "project"
    top.mkdir()
    path = top / "train.py"
    path.write_text(SCRIPT)
    monkeypatch.chdir(top)
    return path


def keep(script: Path, *settings: Setting) -> Path:
    """A finished study of the script that kept these levers; its facts of the script are those of a launch."""
    workload = Workload(kind="script", target="train.py", directory=str(script.parent), python=sys.executable)
    executor = LocalExecutor(script.parent.parent / "runs")
    seen = executor.launch(LaunchRequest(assignment=Assignment(workload=workload, instruments=(Observe(),)), steps=4))
    with studies.create_study(script.parent / ".hotlap", workload, Options()) as journal:
        found = studies.load_study(journal.directory)
        plan = hotlap.Plan(settings=settings)
        journal.save(msgspec.structs.replace(found, status="finished", plan=plan, baseline=seen))
    return journal.directory


def test_a_patch_without_a_proof_is_a_diff_that_git_applies(script: Path) -> None:
    keep(script, FUSED, PAGES)
    found = hotlap.patch(prove=False)
    assert [it.lever for it in found.written] == ["fused-optimizer"]
    assert [it.setting.lever for it in found.left_out] == ["huge-pages"]
    assert "UNPROVEN" in found.diff and script.read_text() == SCRIPT
    subprocess.run(["git", "apply", "-"], check=True, cwd=script.parent, input=found.diff, text=True)
    assert "lr=1e-3, fused=True)" in script.read_text()
    with pytest.raises(hotlap.HotlapError, match="changed since the study"):
        hotlap.patch(prove=False)


def test_a_patch_that_writes_changes_the_file(script: Path) -> None:
    directory = keep(script, FUSED)
    hotlap.patch(directory, prove=False, write=True)
    assert "lr=1e-3, fused=True)" in script.read_text()


@pytest.mark.slow
def test_levers_without_a_form_in_source_make_no_file(script: Path) -> None:
    keep(script, PAGES)
    found = hotlap.patch()
    assert found.files == () and "GLIBC_TUNABLES" in found.left_out[0].reason
    empty = keep(script)
    with pytest.raises(hotlap.HotlapError, match="kept no lever"):
        hotlap.patch(empty)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_patch_is_proved_once(script: Path) -> None:
    keep(script, FUSED)
    found = hotlap.patch(delta=0.5, parity_steps=60)
    assert found.proof is not None and found.proof.speed is not None and not found.proof.refusal
    assert found.proof.numbers is not None and found.proof.numbers.verdict == "exact"
    told: list[object] = []
    assert hotlap.patch(delta=0.5, parity_steps=60, write=True, on_progress=told.append).proof == found.proof
    assert told == [], "nothing is run again"
    assert "fused=True" in script.read_text()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_check_of_two_versions(script: Path) -> None:
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "as it was"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=script.parent, check=True)
    script.write_text(SCRIPT.replace("lr=1e-3", "lr=2e-3"))
    found = hotlap.check("train.py", baseline="main", delta=0.4, parity_steps=60)
    assert found.verdict == "failed" and "learning rate is 0.002 instead of 0.001" in found.text
    assert found.numbers.verdict == "failed" and found.speed.verdict != "failed"
    assert sorted(it.name for it in script.parent.iterdir()) == [".git", ".hotlap", "train.py"]
