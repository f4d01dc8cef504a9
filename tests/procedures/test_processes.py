"""The script in several numbers of processes: its commands, and the comparison of a fake script."""

from __future__ import annotations

import msgspec
import pytest
from fake_script import WORKLOAD, FakeExecutor, FakeScript

from hotlap.errors import BudgetError, ScriptError, UsageError
from hotlap.experiment.options import Options
from hotlap.procedures.processes import checked_counts, compare_processes, launched
from hotlap.records import Assignment, ScriptFacts, Workload


def module(target: str, *arguments: str) -> Workload:
    return msgspec.structs.replace(WORKLOAD, kind="module", target=target, arguments=arguments)


TORCHRUN = "torch.distributed.run"


@pytest.mark.parametrize(
    ("workload", "target", "arguments"),
    [
        (module("train", "--lr", "1"), TORCHRUN, ("--standalone", "--nproc-per-node=4", "-m", "train", "--lr", "1")),
        (module(TORCHRUN, "--nproc_per_node", "2", "t.py"), TORCHRUN,
         ("--standalone", "--nproc_per_node", "4", "t.py")),
        (module(TORCHRUN, "--master-port=1", "--nproc-per-node=8", "t.py"), TORCHRUN,
         ("--master-port=1", "--nproc-per-node=4", "t.py")),
        (module(TORCHRUN, "t.py", "--nproc-per-node=8"), TORCHRUN,
         ("--standalone", "--nproc-per-node=4", "t.py", "--nproc-per-node=8")),
        (module("accelerate.commands.launch", "--num_processes", "2", "t.py"), "accelerate.commands.launch",
         ("--num_processes", "4", "t.py")),
    ],
)  # fmt: skip
def test_the_users_launcher_starts_that_many(workload: Workload, target: str, arguments: tuple[str, ...]) -> None:
    found = launched(workload, 4)
    assert (found.kind, found.target, found.arguments) == ("module", target, arguments)


def test_a_script_is_started_by_torchrun() -> None:
    found = launched(msgspec.structs.replace(WORKLOAD, arguments=("--epochs", "1")), 2)
    assert found.arguments == ("--standalone", "--nproc-per-node=2", WORKLOAD.target, "--epochs", "1")


def test_other_launchers_are_refused() -> None:
    with pytest.raises(UsageError, match="cannot change"):
        launched(module("deepspeed.launcher.runner", "t.py"), 2)


@pytest.mark.parametrize("counts", [(), (2,), (0, 1), (1, 65), (1, 2, 3, 4, 5, 6)])
def test_numbers_that_cannot_be_compared(counts: tuple[int, ...]) -> None:
    with pytest.raises(UsageError):
        checked_counts(counts)


def test_processes_that_do_not_hinder_each_other_are_efficient() -> None:
    executor = FakeExecutor(FakeScript(compute=0.02, data=0.004, effects={}))
    study = compare_processes(WORKLOAD, Options(processes=(2, 1)), executor, clock=executor.clock)
    assert study.kind == "processes" and study.status == "finished" and study.workload.target == WORKLOAD.target
    scaling = study.process_scaling
    assert scaling is not None and [it.processes for it in scaling.rates] == [1, 2]
    one, two = scaling.rates
    assert one.efficiency is None and two.efficiency is not None
    assert two.efficiency.low <= 1.02 and two.efficiency.high >= 0.98
    assert two.samples_per_second == pytest.approx(2 * one.samples_per_second, rel=0.1)


def test_a_budget_that_is_too_small_says_which_is_enough() -> None:
    executor = FakeExecutor(FakeScript(compute=0.02, data=0.004, effects={}))
    with pytest.raises(BudgetError, match="budget") as raised:
        compare_processes(WORKLOAD, Options(processes=(1, 2), budget_seconds=20.0), executor, clock=executor.clock)
    assert raised.value.needed_seconds > 20.0


class OneProcess(FakeExecutor):
    """A launcher that starts one process, whatever it is given."""

    def _facts(self, arm: Assignment) -> ScriptFacts:
        return msgspec.structs.replace(super()._facts(arm), processes=1)


def test_a_launcher_that_starts_fewer_processes_is_named() -> None:
    executor = OneProcess(FakeScript(compute=0.02, data=0.004, effects={}))
    with pytest.raises(ScriptError, match="In 2: The launcher started 1 process that trained, not 2"):
        compare_processes(WORKLOAD, Options(processes=(1, 2)), executor, clock=executor.clock)
