"""``hotlap patch`` as a user sees it: output, changed files and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from json_documents import assert_valid

for folder in ("procedures", "check", "source/patch"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))

from fake_script import Effect  # noqa: E402
from pair import Pair  # noqa: E402
from patching import facts_of  # noqa: E402

from hotlap import study as studies  # noqa: E402
from hotlap.api import Engine  # noqa: E402
from hotlap.cli.main import main  # noqa: E402
from hotlap.experiment.options import Options  # noqa: E402
from hotlap.levers.support.situations import make_setting  # noqa: E402
from hotlap.records import Isolation, Machine, Plan, Run, Setting, Workload  # noqa: E402

SOURCE = """\
import torch

model = Net()
optimizer = torch.optim.AdamW(model.parameters())
for x in loader:
    loss = model(x)
    loss.backward()
    optimizer.step()
"""
FUSED = make_setting("fused-optimizer", implementation="fused")
BFLOAT16 = make_setting("mixed-precision", dtype="bfloat16")
PAGES = make_setting("huge-pages")


@pytest.fixture
def script(work: Path) -> Path:
    path = work / "train.py"
    path.write_text(SOURCE)
    return path


def keep(script: Path, *settings: Setting) -> None:
    """Write a finished study of the script that kept these levers."""
    workload = Workload(kind="script", target="train.py", directory=str(script.parent), python=sys.executable)
    with studies.create_study(script.parent / ".hotlap", workload, Options()) as journal:
        found = studies.load_study(journal.directory)
        run = Run(facts=facts_of(script))
        journal.save(msgspec.structs.replace(found, status="finished", plan=Plan(settings=settings), baseline=run))


def patch(*words: str, patched: Effect | None = None, asked: list[Isolation] | None = None) -> int:
    def make(directory: Path, isolation: Isolation) -> Pair:
        if asked is not None:
            asked.append(isolation)
        return Pair(patched or Effect())

    return main(["patch", *words], engine=Engine(executor=make))


def test_the_proof_is_isolated_as_requested(script: Path) -> None:
    keep(script, FUSED)
    asked: list[Isolation] = []
    assert patch("--network", "none", "--unprotected", asked=asked) == 0
    assert asked == [Isolation(network="none", unprotected=True)]


def test_a_proved_patch_is_a_diff_that_git_applies(
    script: Path, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    keep(script, FUSED, BFLOAT16, PAGES)
    assert patch() == 0
    out = capfdbinary.readouterr().out
    assert script.read_text() == SOURCE
    text = out.decode()
    assert "#   written   fused-optimizer" in text and "#   left out  huge-pages" in text
    assert "GLIBC_TUNABLES" in text and "hotlap run --plan" in text
    assert "as fast as the levers" in text and "UNPROVEN" not in text
    diff = tmp_path / "patch.diff"
    diff.write_bytes(out)
    subprocess.run(["git", "apply", str(diff)], check=True, cwd=script.parent)
    assert "fused=True" in script.read_text() and "torch.autocast" in script.read_text()


def test_a_plan_without_a_form_in_the_source_names_the_way_that_works(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(script, PAGES, make_setting("cached-samples"))
    assert main(["report", "--plan-out", "hotlap.toml"]) == 0
    assert "hotlap patch" not in capsys.readouterr().out
    assert patch() == 1
    out, err = capsys.readouterr()
    way = "`hotlap run --plan hotlap.toml train.py` trains with them and changes no file."
    assert out == "" and err.startswith(f"hotlap: No lever of this plan can be written into the source; {way} Why: ")
    assert "huge-pages: It is a variable" in err and "cached-samples: " in err
    keep(script, PAGES)
    assert patch("--check") == 1
    out = capsys.readouterr().out
    assert "This plan's lever cannot be written into the source; `hotlap report --plan-out hotlap.toml .hotlap/" in out
    assert "writes the plan, and `hotlap run train.py` trains with it" in out


def test_a_proved_patch_is_not_run_again(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(script, FUSED)
    assert patch() == 0
    first = capsys.readouterr().out
    slower = Effect(compute=1.5)
    assert patch("--no-proof") == 0  # the stored proof is kept
    assert "UNPROVEN" in capsys.readouterr().out
    assert patch(patched=slower) == 0
    out, err = capsys.readouterr()
    assert out == first and "proved before" in err
    assert (
        patch("--delta", "0.1", "--parity-steps", "50", patched=slower) == 0
    )  # fewer steps are required than were proved
    assert patch("--delta", "0.02", patched=slower) == 1
    assert patch("--parity-steps", "301", patched=slower) == 1
    assert patch("--again", patched=slower) == 1
    keep(script, FUSED, BFLOAT16)
    assert patch(patched=slower) == 1
    assert patch("--write") == 0
    assert "autocast" in script.read_text()


def test_a_patch_proved_on_another_machine_is_proved_again(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(script, FUSED)
    elsewhere = Machine(processor="Another", cores=64)
    monkeypatch.setattr(Pair, "machine", lambda self: elsewhere)
    assert patch() == 0
    assert patch(patched=Effect(compute=1.5)) == 1
    monkeypatch.setattr("hotlap.api.patches.machine_facts", lambda: elsewhere)
    assert patch(patched=Effect(compute=1.5)) == 0


def test_a_diff_without_a_proof_is_marked_unproven(script: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    keep(script, FUSED)
    assert patch("--no-proof") == 0
    assert b"UNPROVEN" in capfdbinary.readouterr().out


def test_write_changes_the_files(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(script, FUSED)
    script.write_bytes(SOURCE.replace("\n", "\r\n").encode())
    keep(script, FUSED)
    assert patch("--write", "--no-proof") == 0
    assert (
        script.read_bytes()
        == SOURCE.replace("parameters())", "parameters(), fused=True)").replace("\n", "\r\n").encode()
    )
    assert f"changed {script}" in capsys.readouterr().out
    assert patch("--check") == 1  # the file is no longer what the study ran


def test_check_runs_nothing_and_changes_nothing(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(script, FUSED)
    assert patch("--check") == 0
    assert "The patch applies: fused-optimizer." in capsys.readouterr().out
    assert script.read_text() == SOURCE
    script.write_text(f"{SOURCE}\n")
    assert patch("--check") == 1
    assert "changed since the study" in capsys.readouterr().err


def test_check_prints_json_on_request(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(script, FUSED)
    assert patch("--check", "--json") == 0
    assert [it["lever"] for it in json.loads(capsys.readouterr().out)["written"]] == ["fused-optimizer"]
    keep(script, PAGES)
    assert patch("--check", "--json") == 1
    assert json.loads(capsys.readouterr().out)["files"] == []


@pytest.mark.parametrize(
    ("patched", "words"),
    [
        (Effect(compute=1.5), "slower than the levers"),
        (Effect(loss=1.02), "does not produce the same results as the levers"),
        (Effect(fails="crash"), "does not run to completion"),
    ],
)
def test_a_patch_that_differs_is_refused(
    script: Path, capsys: pytest.CaptureFixture[str], patched: Effect, words: str
) -> None:
    keep(script, FUSED)
    assert patch("--write", patched=patched) == 1
    out, err = capsys.readouterr()
    assert words in err and "hotlap run --plan" in err
    assert "+++" not in out and script.read_text() == SOURCE


def test_a_study_without_changes_that_can_be_written(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(script, PAGES)
    assert patch() == 1
    assert "GLIBC_TUNABLES" in capsys.readouterr().err
    assert patch("--check") == 1


def test_a_later_profile_is_not_used_for_a_patch(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(script, FUSED)
    workload = Workload(kind="script", target="train.py", directory=str(script.parent), python=sys.executable)
    with studies.create_study(script.parent / ".hotlap" / studies.PROFILES, workload, Options()):
        pass
    assert patch("--check") == 0
    assert "fused-optimizer" in capsys.readouterr().out


def test_a_study_that_kept_nothing(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(script)
    assert patch() == 2
    assert "kept no lever" in capsys.readouterr().err


def test_json_carries_files_and_proof(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(script, FUSED, PAGES)
    assert patch("--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert_valid(found)
    assert found["written"][0]["lever"] == "fused-optimizer"
    assert found["left_out"][0]["setting"]["lever"] == "huge-pages"
    assert found["proof"]["numbers"]["verdict"] == "exact" and not found["proof"]["refusal"]
    assert "fused=True" in found["files"][0]["after"]


def test_a_file_without_a_final_newline(script: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    script.write_text("import torch\n\noptimizer = torch.optim.AdamW(p)")
    keep(script, FUSED)
    assert patch("--no-proof") == 0
    out = capfdbinary.readouterr().out
    assert out.count(b"\\ No newline at end of file\n") == 2
    subprocess.run(["git", "apply", "-"], check=True, cwd=script.parent, input=out)
    assert script.read_text() == "import torch\n\noptimizer = torch.optim.AdamW(p, fused=True)"
