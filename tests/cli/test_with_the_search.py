"""The command line with the real search, on simulated trials."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from fake_executor import FakeExecutor

from hotlap import plan
from hotlap.api import Engine
from hotlap.cli.main import main
from hotlap.records import Completed, Crashed, Isolation, TimedOut
from hotlap.trial.executor import Executor

QUICK = ["tune", "--quiet", "--only", "compile,huge-pages,fused-optimizer"]


def engine(executor: FakeExecutor) -> Engine:
    def make(directory: Path, isolation: Isolation) -> Executor:
        return executor

    return Engine(executor=make)


def test_faster_levers_are_kept(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "train.py"], engine=engine(FakeExecutor())) == 0
    out = capsys.readouterr().out
    headline = re.search(r"^([\d.]+)x faster \(95 % interval ([\d.]+) to ([\d.]+)\)", out, re.MULTILINE)
    assert headline is not None
    _, low, high = map(float, headline.groups())
    assert low - 0.02 <= 1.6 * 1.3 <= high + 0.02
    assert {it.lever for it in plan.read(work / "hotlap.toml").settings} == {"compile", "huge-pages"}
    assert "hotlap run --plan hotlap.toml train.py" in out


def test_an_interrupted_search_is_resumed_and_repeats_nothing(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = FakeExecutor()
    assert main([*QUICK, "--study", "whole", "train.py"], engine=engine(whole)) == 0
    first = FakeExecutor(interrupt_after=9)
    assert main([*QUICK, "train.py"], engine=engine(first)) == 130
    assert "Interrupted with" in capsys.readouterr().out
    second = FakeExecutor()
    assert main(["tune", "--quiet", "--resume"], engine=engine(second)) == 0
    assert "x faster (95 % interval" in capsys.readouterr().out
    assert (first.requests - 1) + second.requests == whole.requests


def test_nothing_faster(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "train.py"], engine=engine(FakeExecutor(factors={}))) == 0
    assert "No lever made it faster." in capsys.readouterr().out
    assert not (work / "hotlap.toml").exists()


@pytest.mark.parametrize(
    ("ending", "steps", "code", "said"),
    [
        (Crashed(exit_code=3, error="ValueError: no data"), 0, 3, "ValueError: no data"),
        (Completed(exit_code=5), 0, 5, "exit code 5"),
        (Completed(), 0, 1, "no training step was seen"),
        (Completed(), 2, 1, "after 2 training steps"),
        (TimedOut(limit_seconds=600.0), 0, 1, "No training step was seen"),
        (Crashed(exit_code=1, error="EOFError: EOF when reading a line"), 0, 1, "input from the terminal"),
    ],
)
def test_scripts_that_cannot_be_tuned(
    work: Path,
    capsys: pytest.CaptureFixture[str],
    ending: Completed | Crashed | TimedOut,
    steps: int,
    code: int,
    said: str,
) -> None:
    executor = FakeExecutor(ending=ending, steps_before_end=steps)
    assert main([*QUICK, "train.py"], engine=engine(executor)) == code
    out, err = capsys.readouterr()
    assert said in err
    assert "Traceback" not in out + err
    assert main(["report", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "script-failed"


def test_a_budget_too_small_for_one_comparison(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*QUICK, "--budget", "1s", "train.py"]
    assert main(words, engine=engine(FakeExecutor())) == 4
    out = capsys.readouterr().out
    assert "Quick look, nothing proved" in out and "The budget of 1 s is too small for a proof." in out
    assert not (work / "hotlap.toml").exists()


def test_profile(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The fake executor gives no evidence: the report is based on the time account and the ceilings."""
    assert main(["profile", "--json", "--quiet", "train.py"], engine=engine(FakeExecutor())) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["status"], found["profiled_steps"]) == ("profile", "finished", 0)
    assert {it["name"] for it in found["ceilings"]} >= {"loader-alone", "model-alone"}
    assert found["outcomes"] == [] and found["plan"] == {"settings": []}
    assert any("returned no evidence" in it for it in found["warnings"])


@pytest.mark.parametrize(("ending", "code"), [(Crashed(exit_code=3, error="ValueError: no"), 3), (Completed(), 1)])
def test_a_script_that_cannot_be_profiled(
    work: Path, capsys: pytest.CaptureFixture[str], ending: Completed | Crashed, code: int
) -> None:
    assert main(["profile", "--quiet", "train.py"], engine=engine(FakeExecutor(ending=ending))) == code
    assert "hotlap: The script" in capsys.readouterr().err


def test_lab(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "--json", "--quiet", "train.py"], engine=engine(FakeExecutor())) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["status"] == "finished"
    assert {it["lever"] for it in found["outcomes"]} >= {"mixed-precision", "compile"}
