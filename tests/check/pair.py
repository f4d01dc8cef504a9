"""Two versions of a script made of arithmetic: the one that runs in a checkout of the past, and the present one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from fake_script import WORKLOAD, Effect, FakeExecutor, FakeScript

from hotlap.errors import HotlapError
from hotlap.experiment.options import Options
from hotlap.levers.api import Lever
from hotlap.plan import setting
from hotlap.procedures.check import check
from hotlap.records import (
    Against,
    Assignment,
    Check,
    Checkout,
    Ending,
    LaunchRequest,
    Machine,
    Plan,
    Replicate,
    Run,
    Setting,
    Sides,
    TurnRequest,
    Workload,
)

NOW = setting("the-present-script")
"""Marks the present version in a plan, so that the fake script can give it another speed and other losses."""

UNCHANGED = Effect()
REVISION = Against(kind="revision", name="main", commit="c" * 40)


def in_checkout(workload: Workload, revision: str = "") -> Workload:
    return msgspec.structs.replace(
        workload, checkout=Checkout(original="/home/ada", copy=f"/copy/{revision or 'now'}", revision=revision)
    )


SIDES = Sides(before=in_checkout(WORKLOAD, "c" * 40), now=in_checkout(WORKLOAD))


class Pair(FakeExecutor):
    """Answers for both versions: ``now`` changes only the present one."""

    def __init__(
        self, now: Effect = UNCHANGED, *, seed: int = 0, machine: Machine | None = None, **script: Any
    ) -> None:
        effects: Mapping[Setting, Effect] = {NOW: now, **dict(script.pop("effects", {}))}
        super().__init__(FakeScript(effects=effects, **script), seed=seed)
        self.assignments: list[Assignment] = []
        self.imported: tuple[str, ...] = ()
        self.before_ends: Ending | None = None
        self._machine = machine

    def machine(self) -> Machine:
        found = super().machine()
        return self._machine or found

    def launch(self, request: LaunchRequest) -> Run:
        self.seed += 1  # two launches of a script that is not seeded differ
        run = super().launch(msgspec.structs.replace(request, assignment=self._marked(request.assignment)))
        return msgspec.structs.replace(run, imported_from_original=self.imported)

    def take_turns(self, request: TurnRequest) -> Replicate:
        return super().take_turns(msgspec.structs.replace(request, arms=tuple(map(self._marked, request.arms))))

    def _marked(self, arm: Assignment) -> Assignment:
        self.assignments.append(arm)
        checkout = arm.workload.checkout
        arm = msgspec.structs.replace(arm, workload=WORKLOAD)  # noise may not depend on a temporary folder's name
        if checkout is None or checkout.revision:
            return arm
        return msgspec.structs.replace(arm, plan=Plan(settings=(*arm.plan.settings, NOW)))


def compare(
    executor: Pair,
    against: Against = REVISION,
    sides: Sides = SIDES,
    *,
    speed_only: bool = False,
    levers: Mapping[str, Lever] | None = None,
    delta: float = 0.05,
    **options: Any,
) -> Check:
    return check(
        WORKLOAD,
        against,
        sides,
        Options(delta=delta, **options),
        executor,
        speed_only=speed_only,
        levers=levers,
        clock=executor.clock,
    )


__all__ = ["NOW", "REVISION", "SIDES", "HotlapError", "Pair", "Path", "compare"]
