"""Rows of steps and invariants, as a run of the fake script has them."""

from __future__ import annotations

from hotlap.records import Invariants, Steps


def steps_of(phases: dict[str, float], losses: tuple[float | None, ...], samples: int) -> Steps:
    rows = len(losses)
    wall = sum(phases.values())
    diverged = any(it is None for it in losses) and any(it is not None for it in losses)
    return Steps(
        wall_seconds=(wall,) * rows,
        phases=(
            ("data_wait", (phases["data"],) * rows),
            ("host_to_device", (0.0,) * rows),
            ("forward", (phases["compute"] / 2,) * rows),
            ("backward", (phases["compute"] / 2,) * rows),
            ("optimizer", (phases["optimizer"],) * rows),
            ("other", (0.0,) * rows),
        ),
        outside_seconds=(0.0,) * rows,
        samples=(samples,) * rows,
        loss=losses,
        not_finite=tuple(row for row, it in enumerate(losses) if it is None) if diverged else (),
    )


def invariants_of(steps: int) -> Invariants:
    return Invariants(
        learning_rates=((0.1,),) * steps, samples=(1,) * steps, training=(True,) * steps, trainable=(4,) * steps
    )
