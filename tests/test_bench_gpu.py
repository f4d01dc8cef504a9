"""The benchmark of accelerators on a fake script: it measures, renders, and skips what fails."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from bench.gpu import __main__ as command
from bench.gpu import measuring, naive, report
from bench.gpu.naive import Naive, NotMeasured
from bench.gpu.report import Findings

from hotlap.levers.support.situations import make_setting

sys.path.insert(0, str(Path(__file__).parent / "procedures"))

from fake_script import Effect, FakeExecutor, FakeScript

SCRIPT = Naive("script", Path("/home/ada/train.py"), ("--epochs", "1"))
FUSED = make_setting("fused-optimizer", implementation="foreach")
COMPILED = make_setting("compile", mode="default", dynamic=False)


def said(text: str) -> None:
    assert text


def test_first_guesses_are_measured_and_shown() -> None:
    executor = FakeExecutor(FakeScript(effects={COMPILED: Effect(compute=0.5)}))
    result = naive.short(SCRIPT, executor.machine(), executor, 600, said)
    assert COMPILED in result.plan.settings
    assert result.speed is not None and result.speed.verdict == "faster"
    found = report.Findings(machine=executor.machine(), naive={"script": (SCRIPT, result)})
    text = report.markdown(found)
    assert "compile (mode default)" in text
    assert f"{result.speed.speedup.value:.3f}" in text
    assert json.loads(json.dumps(report.data(found)))["naive"]["script"]["script"] == "train.py"


def test_a_plan_that_fails_loses_its_compilation_and_says_so() -> None:
    executor = FakeExecutor(FakeScript(effects={COMPILED: Effect(fails="crash")}))
    result = naive.short(SCRIPT, executor.machine(), executor, 600, said)
    assert COMPILED not in result.plan.settings
    assert any("compile" in it for it in result.remarks)


def test_a_script_without_a_lever_is_not_measured() -> None:
    executor = FakeExecutor(FakeScript())
    only = Naive("script", SCRIPT.script, (), only=("sdpa-attention",))
    with pytest.raises(NotMeasured, match="No lever applies"):
        naive.short(only, executor.machine(), executor, 600, said)


def test_equal_arms_make_few_claims() -> None:
    found = measuring.false_alarms(SCRIPT, FakeExecutor(FakeScript()), 0.0, said)
    assert (found.replicates, found.orders) == (measuring.FEWEST_REPLICATES, 6)
    assert found.claims <= 2
    assert "3 replicates of three equal arms" in report.markdown(report.Findings(false_alarms=found))


def test_without_an_accelerator_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert command.main(["--out", str(tmp_path / "gpu")]) == 0
    assert "no accelerator" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_a_part_that_fails_is_reported_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part's result is on disk before the next begins."""
    options = command.parse(["--out", str(tmp_path / "gpu"), "--parts", "hooks", "false-alarms"])
    executor = FakeExecutor(FakeScript())
    monkeypatch.setattr(command, "LocalExecutor", lambda directory: executor)

    def no_hooks(device: str, seconds: float, say: naive.Say) -> None:
        assert (tmp_path / "gpu.json").exists()
        raise NotMeasured("planted")

    monkeypatch.setattr(measuring, "hook_cost", no_hooks)
    found = command.Benchmark(options, tmp_path).run()
    assert found.failures == {"hooks": "NotMeasured: planted"}
    assert found.false_alarms is not None
    assert "planted" in (tmp_path / "gpu.md").read_text(encoding="utf-8")


def test_what_the_hooks_cost_is_judged_as_it_was_measured() -> None:
    row: dict[str, float | str | bool] = {
        "kind": "tiny",
        "plain_seconds": 1e-3,
        "cost_seconds": 3e-4,
        "low_seconds": 2e-4,
        "high_seconds": 4e-4,
    }
    found = Findings(hooks=[{**row, "allowed_seconds": 25e-6, "kept": "no"}])
    assert "| tiny | 1000 µs | +300.0 µs (+200.0 to +400.0) | 25 µs | no |" in report.markdown(found)
