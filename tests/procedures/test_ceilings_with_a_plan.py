"""The ceiling of the loader, which was timed without a plan, bounds nothing once the plan may have made it faster."""

from __future__ import annotations

import pytest

from hotlap.experiment.ceilings import situation_with
from hotlap.levers.api import all_levers
from hotlap.plan import with_setting
from hotlap.procedures.prospects import bound_of
from hotlap.records import Ceiling, LoaderFacts, PhaseAccount, Plan, Run, ScriptFacts, Setting, Situation, Steps

LEVERS = all_levers()
LOADER = Ceiling(name="loader-alone", seconds_per_sample=0.010, bound_speedup=1.5)
SITUATION = Situation(
    facts=ScriptFacts(loaders=(LoaderFacts(dataset="Images", batch_size=16, trains=True),)),
    account=PhaseAccount(wall=0.24, samples_per_step=16),
    ceilings=(LOADER,),
)
STEPS = 40
RUN = Run(
    steps=Steps(
        wall_seconds=(0.1,) * STEPS,
        phases=(("data_wait", (0.001,) * STEPS), ("forward", (0.05,) * STEPS), ("backward", (0.049,) * STEPS)),
        samples=(16,) * STEPS,
    )
)


def ceilings_with(*settings: Setting) -> tuple[str, ...]:
    plan = Plan()
    for it in settings:
        plan = with_setting(plan, it)
    return tuple(it.name for it in situation_with(SITUATION, plan, RUN, LEVERS).ceilings)


def setting(lever: str, **values: object) -> Setting:
    return Setting(lever=lever, values=tuple(values.items()))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changed",
    [
        setting("cached-samples"),
        setting("loader", num_workers=2),
        setting("cpu-threads", threads=1),
        setting("huge-pages"),
    ],
    ids=lambda it: it.lever,
)
def test_a_lever_that_may_load_faster_ends_the_loaders_ceiling(changed: Setting) -> None:
    assert ceilings_with(changed) == ()
    assert ceilings_with(setting("mixed-precision", dtype="bfloat16"), changed) == ()


@pytest.mark.parametrize(
    "kept", [setting("mixed-precision", dtype="bfloat16"), setting("channels-last")], ids=lambda it: it.lever
)
def test_a_lever_that_only_computes_keeps_it(kept: Setting) -> None:
    assert ceilings_with(kept) == ("loader-alone",)


def test_what_computes_is_not_bounded_by_a_loader_that_the_plan_replaced() -> None:
    """Samples from memory arrive faster than the loader alone delivered them: its rate is no bound any more."""
    plan = with_setting(Plan(), setting("cached-samples"))
    after = situation_with(SITUATION, plan, RUN, LEVERS)
    bound = bound_of(LEVERS["channels-last"], after)
    assert bound is not None and bound > 50, "forward and backward are all but a hundredth of the step"
