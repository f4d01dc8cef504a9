"""``hotlap.check`` as a program calls it, with a script made of arithmetic in place of launches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import fakes
import pytest
from fake_script import Effect
from pair import Pair

import hotlap
from hotlap import api
from hotlap.api import engine
from hotlap.history import history_of
from hotlap.records import Check, Isolation, Progress

Commit = Callable[..., str]


@pytest.fixture(autouse=True)
def project(repository: Path, commit: Commit) -> Path:
    commit(train_dot_py="old")
    commit(train_dot_py="new")
    return repository


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> Callable[[Pair], list[Isolation]]:
    """Replace launches by this executor; return the requested isolation."""

    def use(executor: Pair) -> list[Isolation]:
        asked: list[Isolation] = []

        def make(directory: Path, isolation: Isolation) -> Pair:
            asked.append(isolation)
            return executor

        monkeypatch.setattr(engine, "local_executor", make)
        return asked

    return use


@pytest.mark.parametrize(
    ("now", "verdict"),
    [(Effect(), "passed"), (Effect(compute=1.3), "failed"), (Effect(loss=1.02), "failed")],
)
def test_the_answer_is_a_record(trials: Callable[..., object], now: Effect, verdict: str) -> None:
    trials(Pair(now))
    found = hotlap.check("train.py", arguments=["--epochs", "1"], baseline="HEAD~1")
    assert isinstance(found, Check)
    assert (found.verdict, found.workload.arguments, found.against.name) == (verdict, ("--epochs", "1"), "HEAD~1")


def test_options_mean_what_they_mean_on_the_command_line(trials: Callable[..., object]) -> None:
    asked = trials(Pair(Effect(compute=1.3, loss=1.02)))
    found = hotlap.check(
        "train.py", baseline="HEAD~1", delta=0.4, speed_only=True, network="none", unprotected=True, parity_steps=50
    )
    assert (found.verdict, found.delta) == ("passed", 0.4)
    assert asked == [Isolation(network="none", unprotected=True)]


def test_the_answer_is_kept_and_progress_is_reported(trials: Callable[..., object], project: Path) -> None:
    trials(Pair())
    told: list[Progress] = []
    hotlap.check("train.py", baseline="HEAD~1", directory=project / "studies", on_progress=told.append)
    assert {"baseline", "trial", "parity"} <= {it.stage for it in told}
    assert [it.check for it in history_of(project / "studies").entries] == ["passed"]


def test_without_a_baseline_it_is_the_recorded_plan(trials: Callable[..., object], project: Path) -> None:
    trials(Pair())
    with pytest.raises(hotlap.HotlapError, match="nothing to compare with"):
        hotlap.check("train.py")
    api.write_plan(fakes.FINISHED, project / "hotlap.toml")
    found = hotlap.check("train.py")
    assert (found.against.kind, found.against.name) == ("plan", "hotlap.toml")


def test_both_sides_run_under_the_plan_that_is_named(trials: Callable[..., object], project: Path) -> None:
    trials(Pair())
    api.write_plan(fakes.FINISHED, project / "other.toml")
    found = hotlap.check("train.py", baseline="HEAD~1", plan_path=project / "other.toml")
    assert found.against.plan == fakes.FINISHED.plan
    assert hotlap.check("train.py", baseline="HEAD~1", without_plan=True).against.plan == hotlap.Plan()
    with pytest.raises(hotlap.HotlapError, match="exclude each other"):
        hotlap.check("train.py", baseline="HEAD~1", plan_path="other.toml", without_plan=True)


def test_a_baseline_that_does_not_exist_is_an_error(trials: Callable[..., object]) -> None:
    trials(Pair())
    with pytest.raises(hotlap.HotlapError, match="no git revision 'nowhere'"):
        hotlap.check("train.py", baseline="nowhere")
