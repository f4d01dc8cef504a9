"""A search whose first run met neighbours that come and go takes its blocks in several turns."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
from fake_levers import lever, named
from fake_script import WORKLOAD, Effect, FakeScript
from test_together import QUIET, Counting, chosen, switchable

from hotlap.experiment.costs import Shape
from hotlap.experiment.options import Options
from hotlap.plan import setting
from hotlap.procedures.search import tune
from hotlap.records import LaunchRequest, Run, Study

SLOW_STEPS = {"data": 0.02, "compute": 0.07, "optimizer": 0.01}
EFFECTS = {setting("half"): Effect(compute=0.6), setting("early"): Effect(data=0.5)}


class Neighbours(Counting):
    """They slow steps of the first run, on average for twelve in a row."""

    def __init__(self, slowdown: float) -> None:
        super().__init__(FakeScript(effects=EFFECTS, **QUIET, **SLOW_STEPS))
        self._beside = slowdown

    def launch(self, request: LaunchRequest) -> Run:
        run = super().launch(request)
        if len(self.launched) > 1:
            return run
        draw, factor, factors = random.Random(1), 1.0, []
        for _ in run.steps.wall_seconds:
            factor = (1.0 if factor > 1 else self._beside) if draw.random() < 1 / 12 else factor
            factors.append(factor)

        def slowed(column: Sequence[float]) -> tuple[float, ...]:
            return tuple(own * it for own, it in zip(column, factors, strict=True))

        phases = tuple((name, slowed(column)) for name, column in run.steps.phases)
        steps = msgspec.structs.replace(run.steps, wall_seconds=slowed(run.steps.wall_seconds), phases=phases)
        return msgspec.structs.replace(run, steps=steps)


def search(slowdown: float) -> tuple[Study, Counting]:
    executor = Neighbours(slowdown)
    levers = named(lever("early"), switchable("half"), switchable("odd"))
    return tune(WORKLOAD, Options(), executor, levers=levers, clock=executor.clock), executor


def test_all_replicates_have_blocks_in_several_turns() -> None:
    study, executor = search(slowdown=1.5)
    assert {it.block_turns for it in executor.replicates} == {4}
    assert {it.block_steps for it in executor.replicates} == {8}
    assert chosen(study) == {"early", "half"}


def test_a_quiet_machine_leaves_blocks_whole() -> None:
    study, executor = search(slowdown=1.0)
    assert {it.block_turns for it in executor.replicates} == {1}
    assert chosen(study) == {"early", "half"}


def test_turns_make_rounds_longer() -> None:
    """Each has a step that leads in, and half a step more on average."""
    assert Shape(step_seconds=0.1).round_seconds == 0.1 * (8 + 1)
    assert Shape(step_seconds=0.1, block_turns=4).round_seconds == 0.1 * (8 + 4 * 1.5)
