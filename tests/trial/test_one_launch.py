"""Arms that share one process: real children that switch levers between blocks."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hotlap.experiment.failures import failure_of
from hotlap.levers.support.situations import make_setting
from hotlap.records import (
    Assignment,
    CompileReport,
    Completed,
    Crashed,
    Plan,
    Replicate,
    Run,
    Steps,
    Stopped,
    TurnRequest,
    Workload,
)
from hotlap.trial.local import LocalExecutor
from hotlap.trial.one_launch import shared_assignment

SCRIPT = """
import sys, time, torch
torch.set_num_threads(2)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
done = 0
while done < {steps}:
    for inputs, targets in torch.utils.data.DataLoader(data, 8):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs).float(), targets)
        {during}
        loss.backward()
        optimizer.step()
        done += 1
"""

RANKS = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
torch.set_num_threads(1)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(10, 24), torch.nn.ReLU(), torch.nn.Linear(24, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
seen = None
inside = [False]
model.module.register_forward_pre_hook(lambda *_: inside.__setitem__(0, torch.is_autocast_enabled("cpu")))
for step in range(10**9):
    inputs = torch.randn(8, 10)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs).float(), inputs.sum(dim=1, keepdim=True))
    now = (inside[0], bool(optimizer.param_groups[0]["fused"]))
    if now != seen:
        print(f"rank{rank} {step} {now}", flush=True)
        seen = now
    loss.backward()
    optimizer.step()
"""

BF16 = Plan(settings=(make_setting("mixed-precision", dtype="bfloat16"),))
ONE_THREAD = Plan(settings=(make_setting("cpu-threads", threads=1),))
FUSED = Plan(settings=(make_setting("fused-optimizer", implementation="fused"),))

Take = Callable[..., Replicate]


@pytest.fixture
def take(tmp_path: Path) -> Take:
    def take(*plans: Plan, during: str = "pass", steps: int = 10**9, **fields: Any) -> Replicate:
        (tmp_path / "train.py").write_text(SCRIPT.format(during=during, steps=steps))
        workload = Workload(kind="script", target="train.py", directory=str(tmp_path), python=sys.executable)
        fields = {"rounds": 4, "block_seconds": 0.02, "block_steps": 3, "warm_up_limit_seconds": 20.0, **fields}
        arms = tuple(Assignment(workload=workload, plan=it) for it in plans)
        return LocalExecutor(tmp_path / "runs").take_turns(TurnRequest(arms=arms, one_launch=True, **fields))

    return take


def endings(turns: Replicate) -> list[type]:
    return [type(run.ending) for run in turns.runs]


def test_one_process_times_every_configuration(take: Take, tmp_path: Path) -> None:
    plans = (Plan(), Plan(), BF16, ONE_THREAD, Plan(settings=BF16.settings + FUSED.settings))
    turns = take(*plans)
    assert endings(turns) == [Stopped] * 5
    assert [len(row) for row in turns.rounds] == [4] * 5
    assert all(seconds > 0 for row in turns.rounds for seconds in row)
    assert tuple(run.plan for run in turns.runs) == plans
    assert len(list((tmp_path / "runs").glob("[0-9]*"))) == 1, "one launch"
    assert all(run.startup_seconds == turns.runs[0].startup_seconds for run in turns.runs)
    for run in turns.runs:
        assert run.compile == CompileReport() and run.steps == Steps(), "they cover the whole process"
        assert len(run.blocks) > 4 and all(it.steps >= 1 for it in run.blocks)


# Longer than two threads may wait for each other where other tests use the cores.
SLOW_UNDER_AUTOCAST = "time.sleep(0.5 if torch.is_autocast_enabled('cpu') else 0.001)"


def test_each_configuration_is_timed_while_it_is_on(take: Take) -> None:
    turns = take(Plan(), BF16, Plan(), ONE_THREAD, during=SLOW_UNDER_AUTOCAST)
    plain, slow, again, other = (sorted(row)[len(row) // 2] for row in turns.rounds)
    assert slow > 2 * max(plain, again, other)


@pytest.mark.parametrize("arm", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_the_configuration_that_failed_is_named(take: Take, arm: int) -> None:
    plans = [Plan(), ONE_THREAD, ONE_THREAD]
    plans[arm] = BF16
    turns = take(*plans, during="assert not torch.is_autocast_enabled('cpu'), 'no autocast, please'")
    expected = [Stopped, Stopped, Stopped]
    expected[arm] = Crashed  # type: ignore[assignment]
    assert endings(turns) == expected
    ending = turns.runs[arm].ending
    assert isinstance(ending, Crashed) and "no autocast, please" in ending.error
    assert turns.rounds == ((), (), ())


@pytest.mark.slow
def test_a_script_that_ends_has_no_rounds(take: Take) -> None:
    turns = take(Plan(), BF16, steps=12)
    assert Completed in endings(turns)
    assert all(len(row) < 4 for row in turns.rounds)


def test_rounds_end_before_the_first_loss_that_is_not_finite(take: Take) -> None:
    """From the twelfth switch on: three are made before the first round, in as many steps as the machine needs to
    settle, and a round has one or two."""
    seen = "before, threads = globals().get('threads', 2), torch.get_num_threads()"
    counted = "switches = globals().get('switches', 0) + (threads != before)"
    during = f"{seen}; {counted}; loss = loss * (float('nan') if switches >= 12 else 1.0)"
    turns = take(Plan(), ONE_THREAD, during=during, rounds=30, block_seconds=0.001, block_steps=4)
    assert endings(turns) == [Stopped, Stopped]
    assert 1 <= len(turns.rounds[0]) < 30


def test_the_configuration_after_which_the_loss_was_not_finite_is_named(take: Take) -> None:
    """In its third step: in the first one the weights are those that another configuration left."""
    counted = "under = globals().get('under', 0) + 1 if torch.is_autocast_enabled('cpu') else 0"
    after_it = f"{counted}; loss = loss * (float('nan') if done >= 60 and under > 2 else 1.0)"
    turns = take(Plan(), ONE_THREAD, BF16, during=after_it, rounds=30, block_seconds=0.001, block_steps=4)
    assert endings(turns) == [Stopped] * 3
    assert [bool(run.steps.not_finite) for run in turns.runs] == [False, False, True]
    failure = failure_of(turns)
    assert failure is not None and failure.arm == 2 and "diverged" in failure.reason


def test_all_ranks_switch_at_the_same_step(tmp_path: Path) -> None:
    """Each rank prints the step of every change that it sees."""
    (tmp_path / "train.py").write_text(RANKS)
    arguments = ("--nproc_per_node", "2", "--standalone", "train.py")
    workload = Workload(
        kind="module",
        target="torch.distributed.run",
        arguments=arguments,
        directory=str(tmp_path),
        python=sys.executable,
    )
    arms = tuple(Assignment(workload=workload, plan=it) for it in (Plan(), Plan(), BF16, FUSED))
    request = TurnRequest(arms=arms, one_launch=True, rounds=4, block_seconds=0.01, block_steps=3)
    turns = LocalExecutor(tmp_path / "runs").take_turns(request)
    assert endings(turns) == [Stopped] * 4, turns.runs
    assert [len(row) for row in turns.rounds] == [4] * 4
    (output,) = (tmp_path / "runs").glob("[0-9]*/output.txt")
    seen = re.findall(r"rank([01]) (\d+ \([^)]*\))", output.read_text())  # two ranks may write into one line
    first, second = ([rest for rank, rest in seen if rank == name] for name in "01")
    assert len(first) > 8, "off and on, many times"
    assert first == second


def test_blocks_of_a_shared_launch_are_taken_in_several_turns(take: Take) -> None:
    turns = take(
        Plan(), ONE_THREAD, during="time.sleep(0.01)", rounds=4, block_seconds=0.01, block_steps=8, block_turns=4
    )
    assert endings(turns) == [Stopped, Stopped]
    assert [len(row) for row in turns.rounds] == [4, 4]
    whole = take(Plan(), ONE_THREAD, during="time.sleep(0.01)", rounds=4, block_seconds=0.01, block_steps=8)
    longest = [max(block.steps for run in it.runs for block in run.blocks) for it in (turns, whole)]
    assert longest[0] < 8 <= longest[1]


def test_the_deadline_ends_a_shared_launch(take: Take) -> None:
    turns = take(Plan(), ONE_THREAD, during="time.sleep(0.05)", rounds=200, most_seconds=6.0)
    assert endings(turns) == [Stopped, Stopped]
    assert len(turns.rounds[0]) < 200


def test_arms_that_differ_in_more_than_plans_cannot_share() -> None:
    one = Assignment(workload=Workload(kind="script", target="train.py", directory="/", python="python"))
    other = msgspec.structs.replace(one, plan=BF16, seed=1)
    with pytest.raises(ValueError, match="plans alone"):
        shared_assignment(TurnRequest(arms=(one, other), one_launch=True))


def test_the_reference_keeps_its_own_levers(take: Take) -> None:
    with_both = Plan(settings=BF16.settings + ONE_THREAD.settings)
    turns = take(BF16, with_both, during="assert torch.is_autocast_enabled('cpu')")
    assert endings(turns) == [Stopped, Stopped]
    assert [len(row) for row in turns.rounds] == [4, 4]
    assert isinstance(turns.runs[1], Run) and turns.runs[1].plan == with_both
