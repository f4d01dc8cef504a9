"""Whole searches on scripts where nothing helps, by arithmetic: how many end with a plan?

The real search runs through the fake executor of the tests, whose scripts take computed times and whose levers have the
effects that they are given: here none. Its blocks are disturbed as :mod:`bench.aa.noise` says. Four procedures are
compared: levers that a process can switch (trials within one launch come first), a few of them (their first launch has
all combinations), the same levers launched each by itself, and those of the first within a short budget. A search that
never finds anything raises no alarm either, so the same searches are run with one lever that gains 10 %.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec

from bench.aa.noise import SCENARIOS, Scenario, draw_replicate
from hotlap.experiment.options import Options
from hotlap.levers.api import Lever
from hotlap.levers.support.switching import Switch
from hotlap.plan import setting
from hotlap.procedures.search import tune
from hotlap.records import LaunchRequest, Replicate, Run, Setting, Study, TurnRequest
from hotlap.trial.command import KEPT_WHILE_SWITCHING

_TESTS = Path(__file__).parents[2] / "tests"
sys.path[:0] = [str(_TESTS), str(_TESTS / "procedures")]

from fake_levers import lever, named  # noqa: E402
from fake_script import WORKLOAD, Effect, FakeExecutor, FakeScript  # noqa: E402

GAIN = 1.10
HELPS = "precision"
SWITCHABLE = ("precision", "optimizer", "layout", "compile", "threads", "matmul")
FEW_SWITCHABLE = SWITCHABLE[:3]
LAUNCHED = ("loader",)
VARIABLES = (KEPT_WHILE_SWITCHING, "pages")
"""Exact levers that are set before the process starts, the first of which a process has that switches."""

SCRIPTS: Mapping[str, FakeScript] = {
    "computation": FakeScript(),
    "slow start": FakeScript(startup_seconds=30.0, compute=0.04),
    "loader": FakeScript(data=0.02, compute=0.006, has_loader=True),
    "short steps": FakeScript(data=0.0001, compute=0.001, optimizer=0.0003),
}
"""Studies take them in turns."""

Procedure = Literal["within one launch first", "all combinations at once", "launches alone", "in a short budget"]
PROCEDURES: tuple[Procedure, ...] = (
    "within one launch first",
    "all combinations at once",
    "launches alone",
    "in a short budget",
)


class Searches(msgspec.Struct, kw_only=True, frozen=True):
    """What many searches of one scenario ended with.

    ``gain`` is the true gain of one of the levers (1: none helps), ``plans`` how many ended with a plan, ``found`` how
    many plans have that lever, ``alarms`` how many have another one, without an effect, that is no variable, and
    ``variables`` how many have a variable without an effect. ``launches`` is the mean.
    """

    scenario: str
    procedure: str
    gain: float
    studies: int
    plans: int
    found: int
    alarms: int
    launches: float
    variables: int = 0


@dataclass(frozen=True)
class Cell:
    """Searches that belong together: a scenario, a procedure, and what one of the levers gains."""

    scenario: Scenario
    procedure: Procedure
    gain: float
    studies: int
    seed: int

    @property
    def name(self) -> str:
        """The name of its file among the pieces; other studies or another seed are another piece."""
        words = f"{self.scenario.name} {self.procedure} {self.gain:g} {self.studies} {self.seed}"
        return f"search-{words.replace(' ', '-').replace('%', 'percent')}"

    def run(self) -> Searches:
        """Run the searches. One takes about a tenth of a second."""
        ended = [self._search(number) for number in range(self.studies)]
        names = [{it.lever for it in study.plan.settings} for study, _ in ended]
        useless = [it - ({HELPS} if self.gain != 1 else set()) for it in names]
        return Searches(
            scenario=self.scenario.name,
            procedure=self.procedure,
            gain=self.gain,
            studies=self.studies,
            plans=sum(map(bool, names)),
            found=sum(HELPS in it for it in names) if self.gain != 1 else 0,
            alarms=sum(bool(it - set(VARIABLES)) for it in useless),
            launches=sum(launches for _, launches in ended) / self.studies,
            variables=sum(bool(it & set(VARIABLES)) for it in useless),
        )

    def _search(self, number: int) -> tuple[Study, int]:
        script = list(SCRIPTS.values())[number % len(SCRIPTS)]
        executor = Disturbed(_with_gain(script, self.gain), self.scenario, seed=self.seed * 1_000_000 + number)
        budget_seconds = short_budget(script) if self.procedure == "in a short budget" else None
        options = Options(budget_seconds=budget_seconds)
        study = tune(WORKLOAD, options, executor, levers=levers_of(self.procedure), clock=executor.clock)
        return study, executor.launches


def cells(
    studies: int, seed: int, scenarios: Sequence[Scenario] = SCENARIOS, *, found_studies: int | None = None
) -> list[Cell]:
    """All cells: searches where nothing helps, and ``found_studies`` (default: a quarter) where one lever does."""
    with_gain = max(1, studies // 4) if found_studies is None else found_studies
    counts = {1.0: studies, GAIN: with_gain}
    return [
        Cell(scenario, procedure, gain, count, seed)
        for scenario in scenarios
        for procedure in PROCEDURES
        for gain, count in counts.items()
        if count
    ]


def levers_of(procedure: Procedure) -> Mapping[str, Lever]:
    """Levers of both kinds of proof, each for a cause of its own; how their numbers are measured, and how many there
    are, is what the procedures differ in."""
    names = FEW_SWITCHABLE if procedure == "all combinations at once" else SWITCHABLE
    switched = [lever(it, addresses=(it,)) for it in names]
    if procedure != "launches alone":
        switched = [replace(it, switch=_never) for it in switched]
    launched = [lever(it, proof="exact", addresses=(it,)) for it in (*LAUNCHED, *VARIABLES)]
    return named(*switched, *(replace(it, environment=_variable(it.name)) for it in launched))


def short_budget(script: FakeScript) -> float:
    """Seconds that suffice for one plan to be verified, and for little else."""
    return 150.0 + 30.0 * script.startup_seconds


def _variable(name: str) -> Callable[[Setting], dict[str, str]]:
    """What a lever sets before the process starts: of those that are variables, one of that name."""
    return lambda setting: {name: "1"} if name in VARIABLES else {}


def _never(hooks: object, setting: Setting) -> Switch:
    raise AssertionError("a fake executor switches nothing")


def _with_gain(script: FakeScript, gain: float) -> FakeScript:
    """The script, of whose steps the lever that helps shortens every phase alike."""
    share = 1 / gain
    effect = Effect(data=share, compute=share, optimizer=share)
    return replace(script, effects={setting(HELPS): effect} if gain != 1 else {})


class Disturbed(FakeExecutor):
    """The fake executor with a scenario's noise, which counts launches."""

    def __init__(self, script: FakeScript, scenario: Scenario, *, seed: int) -> None:
        super().__init__(script, seed=seed)
        self.scenario = scenario
        self.launches = 0

    def launch(self, request: LaunchRequest) -> Run:
        self.launches += 1
        return super().launch(request)

    def take_turns(self, request: TurnRequest) -> Replicate:
        self.launches += 1 if request.one_launch else len(request.arms)
        return super().take_turns(request)

    def launch_factor(self, noise: random.Random) -> float:
        """The scenario's own launches have it."""
        return 1.0

    def rows(
        self, noise: random.Random, levels: Sequence[float], rounds: int, *, one_launch: bool
    ) -> list[list[float]]:
        speedups = tuple(1 / it for it in levels)
        return draw_replicate(noise, self.scenario, rounds=rounds, speedups=speedups, one_launch=one_launch)
