"""Where rounding alone moves a script's losses by per cents, single steps from where its own started prove levers."""

from __future__ import annotations

import random
from collections.abc import Mapping

import msgspec
import pytest
from fake_levers import lever, named
from fake_script import WORKLOAD, Effect, FakeScript
from test_together import QUIET, Counting, chosen, kept, outcomes, switchable

from hotlap.experiment.options import Options
from hotlap.plan import setting
from hotlap.procedures.search import tune
from hotlap.records import (
    Assignment,
    CaptureGradients,
    KeepSteps,
    NotVerified,
    NudgeWeights,
    Parity,
    Plan,
    RestoredStep,
    RestoreSteps,
    Run,
    ScriptFacts,
    Study,
)

FASTER = {setting("half"): Effect(compute=0.5, loss=1.04), setting("step"): Effect(optimizer=0.2, loss=1.002)}
CHAOTIC = FakeScript(effects=FASTER, nudge=0.03, optimizer=0.004, **QUIET)  # type: ignore[arg-type]


class Restoring(Counting):
    """A script of which single steps can be started again: each setting makes them differ by its error."""

    def __init__(self, script: FakeScript, errors: Mapping[str, float], *, hidden: float = 0.0) -> None:
        super().__init__(script)
        self.errors = errors
        self.hidden = hidden
        self.keeps = True
        self._kept: tuple[int, ...] = ()

    def _run(self, arm: Assignment, steps: int, noise: random.Random) -> Run:
        run = super()._run(arm, steps, noise)
        asked = arm.instrument(KeepSteps)
        if asked is not None:
            self._kept = asked.steps if self.keeps else ()
            notes = () if self.keeps else ("The model is too large.",)
            return msgspec.structs.replace(run, kept_steps=self._kept, notes=notes)
        if arm.instrument(RestoreSteps) is None:
            return run
        plain = super()._run(msgspec.structs.replace(arm, plan=Plan(), instruments=()), steps, noise)
        losses = [plain.steps.loss[it] if it in self._kept else loss for it, loss in enumerate(run.steps.loss)]
        error = self.hidden + sum(self.errors.get(it.lever, 0.0) for it in arm.plan.settings)
        return msgspec.structs.replace(
            run,
            steps=msgspec.structs.replace(run.steps, loss=tuple(losses)),
            restored_steps=tuple(RestoredStep(step=it, error=error, length_ratio=1.0) for it in self._kept),
        )

    def of(self, kind: type[KeepSteps | RestoreSteps]) -> list[Assignment]:
        """The launches with such an instrument."""
        return [it.assignment for it in self.launched if it.assignment.instrument(kind) is not None]


def search(executor: Restoring, *names: str, budget_seconds: float | None = None) -> Study:
    levers = named(*map(switchable, names), lever("feed", proof="exact"))
    return tune(WORKLOAD, Options(budget_seconds=budget_seconds), executor, levers=levers, clock=executor.clock)


def test_a_lever_is_kept_whose_single_steps_are_the_same() -> None:
    executor = Restoring(CHAOTIC, {"half": 1e-6, "step": 1e-6})
    study = search(executor, "half", "step")
    assert chosen(study) == {"half", "step"}
    quality = kept(study, "half").comparison.quality
    assert isinstance(quality, Parity) and quality.single_steps and quality.steps == 12
    assert "12 single steps from the unmodified script's own weights" in quality.text
    assert "rounding alone changes the losses" in quality.text.lower()
    assert len(executor.of(KeepSteps)) == 1 and len(executor.of(RestoreSteps)) == 2
    own, candidate = executor.of(RestoreSteps)
    assert not own.plan.settings and own.instrument(NudgeWeights) is not None
    assert candidate.plan == study.plan and candidate.instrument(NudgeWeights) is None


def test_what_steps_of_one_lever_change_otherwise_is_not_kept() -> None:
    executor = Restoring(CHAOTIC, {"half": 0.03, "step": 1e-6})
    study = search(executor, "half", "step")
    assert chosen(study) == {"step"}
    verdict = outcomes(study)["half"].verdict
    assert isinstance(verdict, NotVerified) and "differs by 3 % in the median" in verdict.reason
    assert len(executor.of(KeepSteps)) == 1, "of the unmodified script, for all plans"


def test_a_script_whose_steps_depend_on_more_is_not_verified() -> None:
    executor = Restoring(CHAOTIC, {}, hidden=0.02)
    study = search(executor, "half")
    assert not chosen(study)
    verdict = outcomes(study)["half"].verdict
    assert isinstance(verdict, NotVerified) and "depend on more than" in verdict.reason


def test_without_kept_steps_the_trajectory_decides() -> None:
    executor = Restoring(CHAOTIC, {})
    executor.keeps = False
    study = search(executor, "half")
    assert not chosen(study) and not executor.of(RestoreSteps)
    verdict = outcomes(study)["half"].verdict
    assert isinstance(verdict, NotVerified)
    assert "start from could not be kept. The model is too large." in verdict.reason


@pytest.mark.parametrize("nudge", [1e-6, 0.004])
def test_no_single_step_is_compared_where_losses_can_be(nudge: float) -> None:
    script = FakeScript(effects={setting("half"): Effect(compute=0.5, loss=1.0005)}, nudge=nudge, **QUIET)  # type: ignore[arg-type]
    executor = Restoring(script, {})
    assert chosen(search(executor, "half")) == {"half"} and not executor.of(KeepSteps)


def test_single_steps_leave_time_for_the_verification() -> None:
    """Exact levers would be lost with it."""
    effects = {setting("half"): Effect(compute=0.8, loss=1.04), setting("feed"): Effect(data=0.05)}
    script = FakeScript(effects=effects, nudge=0.03, startup_seconds=4.0, **QUIET)  # type: ignore[arg-type]
    ample = Restoring(script, {})
    assert chosen(search(ample, "half")) == {"half", "feed"}
    ended, said = [], False
    for share in (0.44, 0.47, 0.50, 0.52, 0.54, 0.56, 0.58, 0.60, 0.62, 0.8):
        executor = Restoring(script, {})
        study = search(executor, "half", budget_seconds=share * ample.seconds)
        ended.append((bool(executor.of(KeepSteps)), study.verification is not None))
        reason = getattr(outcomes(study)["half"].verdict, "reason", "")
        said |= "left no time to compare single steps" in reason
    assert (True, False) not in ended and (False, True) in ended and (True, True) in ended, ended
    assert said, "why they were not compared"


def test_what_was_proved_by_itself_is_not_proved_again_where_the_others_are_dropped() -> None:
    """Also where an exact lever is between those that round: a launch is made once for an answer."""
    effects = {**FASTER, setting("feed"): Effect(data=0.05, loss=1.03), setting("pages"): Effect(compute=0.85)}
    script = FakeScript(effects=effects, nudge=0.03, optimizer=0.004, data=0.01, **QUIET)  # type: ignore[arg-type]
    executor = Restoring(script, {"half": 0.03})
    levers = named(switchable("half"), lever("pages", proof="exact"), lever("feed", addresses=("data",)))
    study = tune(WORKLOAD, Options(), executor, levers=levers, clock=executor.clock)
    assert chosen(study) == {"feed", "pages"}
    candidates = [it for it in executor.of(RestoreSteps) if it.plan.settings]
    names = [frozenset(one.lever for one in it.plan.settings) for it in candidates]
    assert len(names) == len(set(names)), names


class OnTwoHosts(Restoring):
    """Two nodes of a cluster: a launch may be on either, and what one kept is not on the other."""

    def slots(self) -> tuple[str, ...]:
        return ("first", "second")


def test_single_steps_are_compared_on_one_host_only() -> None:
    executor = OnTwoHosts(CHAOTIC, {})
    study = search(executor, "half")
    assert not executor.of(KeepSteps)
    verdict = outcomes(study)["half"].verdict
    assert isinstance(verdict, NotVerified) and "of one process on one host only" in verdict.reason


class Normalizing(Restoring):
    """A network with batch normalizations."""

    def _facts(self, arm: Assignment) -> ScriptFacts:
        facts = super()._facts(arm)
        return msgspec.structs.replace(facts, models=(msgspec.structs.replace(facts.models[0], batch_norms=4),))


def test_the_repeat_of_a_network_that_normalizes_batches_keeps_its_steps() -> None:
    """No launch is made for that alone."""
    executor, plain = Normalizing(CHAOTIC, {"half": 1e-6}), Restoring(CHAOTIC, {"half": 1e-6})
    assert chosen(search(executor, "half")) == chosen(search(plain, "half")) == {"half"}
    (kept_run,) = executor.of(KeepSteps)
    assert kept_run.instrument(CaptureGradients) is not None and not kept_run.plan.settings
    assert executor.launches == plain.launches - 1
