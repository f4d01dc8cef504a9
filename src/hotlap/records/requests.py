"""What one child runs, and what one replicate runs."""

from __future__ import annotations

from typing import TypeVar

from hotlap.records.base import Record
from hotlap.records.instruments import Instrument
from hotlap.records.scaling import TrainedParts
from hotlap.records.workload import Plan, StepSource, Workload

_Kind = TypeVar("_Kind", bound=Record)


class Assignment(Record, frozen=True, kw_only=True):
    """Everything that a child process must know about its trial.

    ``instruments`` is what it does besides running the script, in the order in which they are installed.
    ``block_limit_seconds`` is for all steps of a block together (to which a launch's ``seconds`` are added),
    ``step_limit_seconds`` for a single step of it: a block may have many. With ``waits_on_device`` a process whose
    model is on an accelerator waits before its first step until the controller lets it continue.
    """

    workload: Workload
    plan: Plan = Plan()
    seed: int = 0
    step_source: StepSource = "auto"
    instruments: tuple[Instrument, ...] = ()
    startup_limit_seconds: float = 600.0
    block_limit_seconds: float = 300.0
    step_limit_seconds: float | None = None
    show_output: bool = False
    waits_on_device: bool = False

    def instrument(self, kind: type[_Kind]) -> _Kind | None:
        """The instrument of that kind; None where it has none."""
        return next((it for it in self.instruments if isinstance(it, kind)), None)


class Slot(Record, frozen=True, kw_only=True):
    """A place where one trial can run while others run elsewhere: this machine, or a node of a cluster."""

    name: str


class CollectivesRequest(Record, frozen=True, kw_only=True):
    """Time collectives between so many processes, on the ``device`` that they compute on: ``cpu`` or ``cuda``.

    Between processes that compute on the processor, also what strategies do with ``parts`` of a model (None: not).
    """

    processes: int
    device: str = "cpu"
    parts: TrainedParts | None = None


class LaunchRequest(Record, frozen=True, kw_only=True):
    """One child alone: run until ``steps`` steps are done, or until ``seconds`` have passed since the
    first step and at least ``minimum_steps`` are done, or until the script ends by itself. Before it starts, it waits
    up to ``patience_seconds`` for other programs to leave the machine idle.

    ``most_seconds`` bounds the whole launch, start-up included: whatever is running then, the start-up or a step, is
    the last. With ``loads_code`` it loads what torch's compiler made in an earlier launch.
    """

    assignment: Assignment
    steps: int
    seconds: float | None = None
    minimum_steps: int = 1
    patience_seconds: float = 0.0
    most_seconds: float | None = None
    loads_code: bool = False


class TurnRequest(Record, frozen=True, kw_only=True):
    """One replicate: a fresh launch of every arm. After warm-up each round runs one block of each arm, in random order
    drawn from ``order_seed``. A block is at least ``block_seconds`` and ``block_steps``, and is taken in
    ``block_turns`` turns, between which the other arms have theirs. If other processes are using the machine, the start
    of the arms is delayed by up to ``patience_seconds``.

    With ``suspended`` an arm's device memory moves to the host while it waits, since the device has no room for all.
    With ``one_launch`` the arms differ in nothing but their plans and share one process, the first arm's, which between
    two blocks switches what the others have besides. Warm-up has at least ``warm_up_steps``, so that each shape of a
    model's inputs occurs in it. ``most_seconds`` bounds the whole replicate: no round is begun
    that would probably end later, so that there may be fewer than were requested, or none. With ``compiles_all`` no arm
    loads what torch's compiler made in an earlier launch, so that its start is that of a first run.
    """

    arms: tuple[Assignment, ...]
    rounds: int = 15
    block_seconds: float = 0.3
    block_steps: int = 8
    block_turns: int = 1
    order_seed: int = 0
    warm_up_limit_seconds: float = 120.0
    warm_up_steps: int = 0
    interleaved: bool = True
    suspended: bool = False
    one_launch: bool = False
    patience_seconds: float = 0.0
    most_seconds: float | None = None
    compiles_all: bool = False
