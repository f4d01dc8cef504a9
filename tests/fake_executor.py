"""An executor that computes its answers instead of running processes."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import world
from fakes import MACHINE

from hotlap.records import (
    AccountMemory,
    Assignment,
    Block,
    Ending,
    Invariants,
    LaunchRequest,
    LoaderFacts,
    LoaderRate,
    Machine,
    MemoryAccount,
    ModelFacts,
    OptimizerFacts,
    ReplayBatch,
    Replicate,
    Run,
    ScriptFacts,
    Steps,
    Stopped,
    SweepLoader,
    TurnRequest,
)
from hotlap.trial.executor import OneSlot


@dataclass
class FakeExecutor(OneSlot):
    """Trials by arithmetic: every lever divides the time of a step by a fixed factor, give or take ``noise``.

    ``ending`` is how the unmodified script ends, after ``steps_before_end`` steps unless it goes on.
    ``interrupt_after`` raises KeyboardInterrupt at that request.
    """

    factors: dict[str, float] = field(default_factory=lambda: {"compile": 1.6, "huge-pages": 1.3})
    noise: float = 0.004
    seconds_per_sample: float = 0.002
    ending: Ending = field(default_factory=Stopped)
    steps_before_end: int = 0
    interrupt_after: int | None = None
    requests: int = 0

    def machine(self) -> Machine:
        return MACHINE

    def launch(self, request: LaunchRequest) -> Run:
        self._count()
        assignment = request.assignment
        sweep = assignment.instrument(SweepLoader)
        if sweep is not None:
            rates = tuple(LoaderRate(setting=it, seconds_per_sample=1e-4, batches=50) for it in sweep.settings)
            return Run(facts=_facts(), loader_rates=rates)
        return self._run(assignment, max(1, request.steps), self.requests)

    def launch_together(self, requests: Sequence[LaunchRequest]) -> tuple[Run, ...]:
        """One request, whatever it holds."""
        self._count()
        return tuple(self._run(it.assignment, max(1, it.steps), self.requests) for it in requests)

    def take_turns(self, request: TurnRequest) -> Replicate:
        self._count()
        draw = random.Random(request.order_seed + 1_000_003 * world.NUMBER)
        runs = tuple(self._run(arm, 8 * request.rounds, request.order_seed) for arm in request.arms)
        rounds = tuple(
            tuple(
                self._seconds(arm) * math.exp(draw.gauss(0, self.noise)) * math.exp(launch)
                for _ in range(request.rounds)
            )
            for arm, launch in ((arm, draw.gauss(0, self.noise)) for arm in request.arms)
        )
        return Replicate(runs=runs, rounds=rounds, wall_seconds=1.0)

    def _count(self) -> None:
        self.requests += 1
        if self.interrupt_after is not None and self.requests >= self.interrupt_after:
            raise KeyboardInterrupt

    def _seconds(self, arm: Assignment) -> float:
        seconds = self.seconds_per_sample
        for it in arm.plan.settings:
            seconds /= self.factors.get(it.lever, 1.0)
        return seconds * (0.6 if arm.instrument(ReplayBatch) else 1.0)

    def _run(self, arm: Assignment, steps: int, seed: int) -> Run:
        if not isinstance(self.ending, Stopped):
            steps = self.steps_before_end
        wall = self._seconds(arm) * 32
        return Run(
            plan=arm.plan,
            ending=self.ending,
            facts=_facts(),
            steps=Steps(
                wall_seconds=(wall,) * steps,
                phases=(
                    ("data_wait", (wall * 0.5,) * steps),
                    ("host_to_device", (0.0,) * steps),
                    ("forward", (wall * 0.2,) * steps),
                    ("backward", (wall * 0.2,) * steps),
                    ("optimizer", (wall * 0.1,) * steps),
                    ("other", (0.0,) * steps),
                ),
                outside_seconds=(0.0,) * steps,
                samples=(32,) * steps,
                loss=tuple(2.0 / (1 + step / 50) for step in range(steps)),
            ),
            invariants=Invariants(
                learning_rates=((1e-3,),) * steps,
                weight_decays=((0.0,),) * steps,
                samples=(32,) * steps,
                training=(True,) * steps,
                trainable=(1000,) * steps,
            ),
            memory=MemoryAccount() if arm.instrument(AccountMemory) else None,
            blocks=(Block(steps=8, samples=256, wall_seconds=wall * 8),) * (steps // 8),
            startup_seconds=1.0,
            wall_seconds=1.0 + wall * steps,
            host_peak_bytes=2**30,
            seed=seed,
        )


def _facts() -> ScriptFacts:
    return ScriptFacts(
        torch_version="2.13.0",
        loaders=(LoaderFacts(dataset="Images", batch_size=32, length=100, batch_bytes=2**20),),
        optimizers=(
            OptimizerFacts(
                kind="AdamW", parameters=1000, learning_rate=1e-3, supports_fused=True, supports_foreach=True
            ),
        ),
        models=(ModelFacts(kind="Net", parameters=1000, linears=2),),
    )
