"""``--network`` and ``--unprotected``: every command that starts trials passes them on."""

from __future__ import annotations

from pathlib import Path

import fakes
import pytest

from hotlap.api import Engine, OnProgress
from hotlap.cli.main import main
from hotlap.errors import UsageError
from hotlap.experiment.options import Options, check
from hotlap.levers.api import all_levers
from hotlap.records import Completed, Isolation, LaunchRequest, Machine, Replicate, Run, Study, TurnRequest, Workload
from hotlap.study import Journal
from hotlap.trial.executor import Executor, OneSlot

STRICT = Isolation(network="none", unprotected=True)


class Engines:
    """Make engines whose search does nothing, and record how each executor isolates its trials."""

    def __init__(self) -> None:
        self.asked: list[Isolation] = []

    def made(self) -> Engine:
        return Engine(executor=self._executor, search=self._search, lab=self._search, profile=self._search)

    def _executor(self, directory: Path, isolation: Isolation) -> Executor:
        self.asked.append(isolation)
        return _NeverTrains()

    def _search(
        self, workload: Workload, options: Options, journal: Journal, executor: Executor, tell: OnProgress
    ) -> Study:
        journal.save(fakes.INTERRUPTED)
        return fakes.INTERRUPTED


class _NeverTrains(OneSlot):
    def machine(self) -> Machine:
        return fakes.MACHINE

    def launch(self, request: LaunchRequest) -> Run:
        return Run(ending=Completed())

    def take_turns(self, request: TurnRequest) -> Replicate:
        raise AssertionError("nothing here compares")


@pytest.mark.parametrize("command", ["tune", "lab", "profile", "nan"])
def test_the_executor_gets_the_options(work: Path, command: str) -> None:
    engines = Engines()
    main([command, "--network", "none", "--unprotected", "train.py"], engine=engines.made())
    main([command, "train.py"], engine=engines.made())
    assert engines.asked == [STRICT, Isolation()]


def test_a_resumed_study_keeps_its_isolation(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engines = Engines()
    assert main(["tune", "--network", "none", "--unprotected", "train.py"], engine=engines.made()) == 130
    assert main(["tune", "--resume"], engine=engines.made()) == 130
    assert engines.asked == [STRICT, STRICT]
    capsys.readouterr()
    assert main(["tune", "--resume", "--network", "none"], engine=engines.made()) == 2
    assert "--network cannot be given with --resume" in capsys.readouterr().err


def test_a_mode_that_does_not_exist_is_refused(work: Path) -> None:
    assert main(["tune", "--network", "off", "train.py"], engine=Engines().made()) == 2
    with pytest.raises(UsageError, match="--network is 'off'"):
        check(Options(network="off"), all_levers())  # type: ignore[arg-type]
