"""Screening of levers that a process can switch: one launch for all of them, or launches where that cannot be."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from fake_levers import lever, named
from fake_script import WORKLOAD, Effect, FakeExecutor, FakeScript
from fakes import speed

from hotlap.experiment.options import Options
from hotlap.levers.api import Lever
from hotlap.levers.support.switching import Switch
from hotlap.plan import setting, with_setting
from hotlap.procedures.screen import Screened
from hotlap.procedures.search import tune
from hotlap.procedures.verdicts import no_gain_within_launch, seen
from hotlap.records import (
    PEAK_BYTES,
    Comparison,
    Crashed,
    Failed,
    Kept,
    LaunchRequest,
    Objective,
    Outcome,
    Plan,
    Replicate,
    Run,
    Seen,
    Setting,
    Steps,
    Study,
    TurnRequest,
)
from hotlap.render.headline import headline
from hotlap.render.lever_table import row

EFFECTS = {
    setting("half"): Effect(compute=0.5),
    setting("step"): Effect(optimizer=0.2),
    setting("slow"): Effect(compute=1.5),
    setting("stuck"): Effect(fails="hang"),
    setting("feed"): Effect(data=0.05),
}
SWITCHED = ("half", "step", "slow", "idle")
MORE = ("feed", "huge")


def switchable(name: str) -> Lever:
    def switch(hooks: object, setting: Setting) -> Switch:
        raise AssertionError("a fake executor switches nothing")

    return replace(lever(name), switch=switch)


LEVERS = named(*(switchable(it) for it in SWITCHED), *(lever(it, proof="exact") for it in MORE))


class Recording(FakeExecutor):
    """Record the requests; ``processes`` is how many the script has, and one of them may never switch."""

    def __init__(self, script: FakeScript, *, processes: int = 1, never_switches: bool = False) -> None:
        super().__init__(script)
        self.asked: list[TurnRequest] = []
        self.processes = processes
        self.never_switches = never_switches

    def launch(self, request: LaunchRequest) -> Run:
        run = super().launch(request)
        return msgspec.structs.replace(run, facts=msgspec.structs.replace(run.facts, processes=self.processes))

    def take_turns(self, request: TurnRequest) -> Replicate:
        self.asked.append(request)
        turns = super().take_turns(request)
        if not (request.one_launch and self.never_switches):
            return turns
        crashed = msgspec.structs.replace(turns.runs[0], ending=Crashed(exit_code=1, error="it will not"))
        return msgspec.structs.replace(turns, runs=(crashed, *turns.runs[1:]), rounds=((),) * len(turns.runs))

    def shared(self) -> list[TurnRequest]:
        return [it for it in self.asked if it.one_launch]


def search(executor: FakeExecutor, levers: object = LEVERS, **options: object) -> Study:
    return tune(WORKLOAD, Options(**options), executor, levers=levers, clock=executor.clock)  # type: ignore[arg-type]


def kept(study: Study) -> set[str]:
    return {it.lever for it in study.outcomes if isinstance(it.verdict, Kept)}


def tried(request: TurnRequest) -> list[str]:
    """The levers that a shared launch switched by themselves: it has the present plan twice."""
    return [it.plan.settings[-1].lever for it in request.arms[2:]]


def test_one_launch_screens_all_that_can_be_switched() -> None:
    executor = Recording(FakeScript(effects=EFFECTS))
    study = search(executor)
    first = executor.shared()[0]
    assert sorted(tried(first)) == sorted(SWITCHED)
    assert first.arms[0] == first.arms[1], "what is switched is compared with nothing, and nothing with itself"
    assert not set(MORE) & {name for it in executor.shared() for name in tried(it)}
    assert {"half", "step", "feed"} <= kept(study)
    assert not any(it.one_launch for it in executor.asked if len(it.arms) == 3 and it.arms[0] == it.arms[1]), (
        "claims are based on launches"
    )


def test_it_finds_what_launches_find_in_less_time() -> None:
    without = named(*(lever(it) for it in SWITCHED), *(lever(it, proof="exact") for it in MORE))
    script = FakeScript(effects=EFFECTS, startup_seconds=30.0)
    fast, slow = Recording(script), Recording(script)
    assert kept(search(fast)) == kept(search(slow, without))
    assert slow.shared() == []
    assert sum(1 if it.one_launch else len(it.arms) for it in fast.asked) < sum(len(it.arms) for it in slow.asked)
    assert fast.seconds < slow.seconds


def test_one_that_hangs_is_removed_and_the_rest_screened() -> None:
    executor = Recording(FakeScript(effects=EFFECTS))
    levers = named(*(switchable(it) for it in (*SWITCHED, "stuck")))
    study = search(executor, levers)
    first, second = executor.shared()[:2]
    assert set(tried(first)) - set(tried(second)) == {"stuck"}
    assert {"half", "step"} <= kept(study)
    assert [it.lever for it in study.outcomes if isinstance(it.verdict, Failed)] == ["stuck"]


def test_what_needs_variables_before_the_start_is_launched() -> None:
    """As freezing, which Inductor reads from the environment when it is imported."""
    executor = Recording(FakeScript(effects=EFFECTS))
    of_the_environment = replace(switchable("step"), environment=lambda setting: {"READ_AT_IMPORT": "1"})
    study = search(executor, named(switchable("half"), switchable("idle"), of_the_environment))
    assert {name for it in executor.shared() for name in tried(it)} == {"half", "idle"}
    assert {"half", "step"} <= kept(study)


def test_where_several_processes_train_they_switch_too() -> None:
    executor = Recording(FakeScript(effects=EFFECTS), processes=2)
    study = search(executor)
    assert executor.shared()
    assert {"half", "step", "feed"} <= kept(study)


class Diverging(Recording):
    """In a shared launch the loss is not finite while one of the levers is on."""

    def take_turns(self, request: TurnRequest) -> Replicate:
        turns = super().take_turns(request)
        if not request.one_launch:
            return turns
        steps = Steps(not_finite=(40,))
        on = [any(it.lever == "idle" for it in run.plan.settings) for run in turns.runs]
        runs = [
            msgspec.structs.replace(run, steps=steps if it else Steps()) for run, it in zip(turns.runs, on, strict=True)
        ]
        return msgspec.structs.replace(turns, runs=tuple(runs))


@pytest.mark.parametrize("names", [SWITCHED, ("half", "idle")])
def test_a_loss_that_is_not_finite_ends_its_configuration(names: tuple[str, ...]) -> None:
    """Whether each first takes turns by itself, or all combinations at once."""
    executor = Diverging(FakeScript(effects=EFFECTS))
    study = search(executor, named(*map(switchable, names)))
    assert "half" in kept(study)
    (failed,) = (it for it in study.outcomes if isinstance(it.verdict, Failed))
    assert failed.lever == "idle" and isinstance(failed.verdict, Failed) and "diverged" in failed.verdict.reason


def test_one_launch_screens_as_many_as_there_are_steps_for() -> None:
    executor = Recording(FakeScript(effects=EFFECTS, total_steps=100))
    study = search(executor)
    assert all(len(it.arms) * it.rounds * it.block_steps <= 100 for it in executor.shared())
    assert not any(len(it.arms) > len(SWITCHED) for it in executor.shared())
    assert "half" in kept(study)


@pytest.mark.parametrize(
    "executor",
    [
        pytest.param(Recording(FakeScript(effects=EFFECTS), never_switches=True), id="it crashes"),
        pytest.param(Recording(FakeScript(effects=EFFECTS, total_steps=420)), id="it ends"),
    ],
)
def test_a_script_that_cannot_be_switched_is_launched(executor: Recording) -> None:
    study = search(executor)
    assert executor.shared()
    assert {"half", "feed"} <= kept(study)


def test_a_screening_for_memory_has_a_process_for_each() -> None:
    effects = {setting("half"): Effect(peak=0.5), setting("step"): Effect(peak=0.9)}
    executor = Recording(FakeScript(effects=effects))
    study = search(executor, named(switchable("half"), switchable("step")), objective=Objective(metric=PEAK_BYTES))
    assert executor.shared() == []
    assert "half" in kept(study)


def test_a_quick_screening_costs_one_launch() -> None:
    executor = Recording(FakeScript(effects=EFFECTS, startup_seconds=30.0))
    study = search(executor, named(*(switchable(it) for it in SWITCHED)), quick=True)
    assert study.status == "quick-look"
    assert [it.one_launch for it in executor.asked] == [True]


def test_what_was_only_seen_says_where_its_number_comes_from() -> None:
    """Within one launch a lever has an interval over rounds; next to it one with a launch of its own has none."""
    study = search(Recording(FakeScript(effects=EFFECTS)), quick=True)
    looks = {it.lever: it.verdict for it in study.outcomes if isinstance(it.verdict, Seen)}
    half, feed = looks["half"], looks["feed"]
    assert half.within_launch is not None and half.within_launch.value == half.speedup
    assert half.within_launch.low < half.speedup < half.within_launch.high
    assert half.reason.startswith(f"Within one launch, {half.rounds} rounds gave {half.speedup:.2f}x (")
    assert feed.within_launch is None and "no interval" in feed.reason
    cells = {it.lever: row(it).speedup for it in study.outcomes}
    assert " to " in cells["half"] and cells["feed"].endswith("no interval")
    half_and_others, feed_alone = headline(study).sentence.split("; ")
    assert f"half {half.speedup:.2f}x ({half.within_launch.low:.2f} to " in half_and_others
    assert half_and_others.endswith(" within one launch") and "feed " in feed_alone
    assert feed_alone.endswith(" in one replicate, without an interval.")
    slow = next(it for it in study.outcomes if it.lever == "slow")
    reason = getattr(slow.verdict, "reason", "")
    assert reason.startswith("A first measurement within one launch showed 0.")
    assert reason.endswith("), which is too little for a trial."), "an interval may reach beyond what is a gain"


def test_what_was_seen_next_to_other_levers_names_them() -> None:
    before, own = Plan(settings=(setting("half"),)), setting("step")
    compared = Comparison(baseline=before, candidate=with_setting(before, own), speed=speed(1.2, 0.05))
    look = seen(Screened(own, gain=1.2, rounds=8, comparison=compared), 1.2, Options().goal)
    assert "8 rounds gave 1.20x (1.14 to 1.26) next to half; not proved on fresh launches" in look.reason


def test_an_interval_that_says_nothing_is_not_shown() -> None:
    """Of two rounds during which a compiler ran it reached from 0.00 to 2365."""
    own = setting("half")
    compared = Comparison(baseline=Plan(), candidate=Plan(settings=(own,)), speed=speed(0.62, 8.0), within_launch=True)
    look = seen(Screened(own, gain=0.62, rounds=2, comparison=compared), 0.62, Options().goal)
    assert "2 rounds gave 0.62x (no interval, since rounds differ too much)" in look.reason
    for verdict in (look, no_gain_within_launch(compared, Options().goal)):
        assert row(Outcome(lever="half", setting=own, verdict=verdict)).speedup == "0.62x  no interval"
