"""Compare a naive script with the same script under hotlap's levers, in replicates, and prove its numbers.

The plan is made in one of two ways. The short one takes every lever that applies, each with the setting that hotlap
would try first, and does not search: that fits into minutes. The long one is ``hotlap tune`` itself.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from hotlap import plan as plans_of
from hotlap.api import begin as search
from hotlap.experiment.comparing import compare_replicates
from hotlap.experiment.costs import Costs
from hotlap.experiment.failures import Failure
from hotlap.experiment.journaled import JournaledExecutor
from hotlap.experiment.observe import account_of, first_run, interpret
from hotlap.experiment.options import Options
from hotlap.experiment.prove import ParityProver
from hotlap.experiment.trials import Trials
from hotlap.levers.api import all_levers
from hotlap.levers.data import loader
from hotlap.measure import speed
from hotlap.procedures.prospects import prospects_of
from hotlap.records import (
    CollectiveRates,
    CollectivesRequest,
    CompileReport,
    LaunchRequest,
    LoaderRate,
    Machine,
    PhaseAccount,
    Plan,
    Quality,
    Replicate,
    Run,
    Situation,
    SpeedComparison,
    SweepLoader,
    TurnRequest,
    Workload,
)
from hotlap.trial.executor import OneSlot
from hotlap.trial.local import LocalExecutor

ROUNDS = 6
MOST_REPLICATES = speed.HEADLINE_REPLICATES
FEWEST_REPLICATES = 2
WORTH_A_SWEEP = 0.2
WORKERS_SWEPT = 3
PARITY_STEPS = 60
LONGEST_STARTUP_SECONDS, LONGEST_BLOCK_SECONDS = 120.0, 60.0
Say = Callable[[str], None]


class NotMeasured(Exception):
    """A part has no result; the text says why."""


@dataclass(frozen=True, slots=True)
class Naive:
    """A script to make faster; ``only`` leaves all other levers out."""

    name: str
    script: Path
    arguments: tuple[str, ...]
    only: tuple[str, ...] = ()

    @property
    def workload(self) -> Workload:
        return Workload(
            kind="script",
            target=str(self.script),
            arguments=self.arguments,
            directory=str(self.script.parent),
            python=sys.executable,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """``speed`` is None where the search found no plan. ``how`` says how the plan was made, ``remarks`` what
    went wrong."""

    plan: Plan
    how: str
    speed: SpeedComparison | None = None
    quality: Quality | None = None
    before: PhaseAccount | None = None
    after: PhaseAccount | None = None
    peak_bytes: tuple[int, int] = (0, 0)
    compile: CompileReport | None = None
    remarks: tuple[str, ...] = ()
    seconds: float = 0.0


class KnownMachine(OneSlot):
    """The executor, with the machine measured once for all parts."""

    def __init__(self, inner: OneSlot, machine: Machine) -> None:
        self._inner = inner
        self._machine = machine

    def machine(self) -> Machine:
        return self._machine

    def collectives(self, request: CollectivesRequest) -> CollectiveRates:
        return self._inner.collectives(request)

    def launch(self, request: LaunchRequest) -> Run:
        return self._inner.launch(request)

    def launch_together(self, requests: Sequence[LaunchRequest]) -> tuple[Run, ...]:
        return self._inner.launch_together(requests)

    def take_turns(self, request: TurnRequest) -> Replicate:
        return self._inner.take_turns(request)

    def take_replicates(self, requests: Sequence[TurnRequest]) -> tuple[Replicate, ...]:
        return self._inner.take_replicates(requests)


@dataclass(slots=True)
class _Short:
    """The short way, within so many seconds."""

    naive: Naive
    machine: Machine
    trials: Trials
    end: float
    say: Say
    remarks: list[str] = field(default_factory=list)

    def run(self) -> Result:
        began = time.monotonic()
        trials = self.trials
        self.say("the unmodified script")
        observation = interpret(first_run(trials), trials)
        trials.costs = Costs(observation.run.startup_seconds, observation.shape, cores=self.machine.cores)
        situation = Situation(
            facts=observation.run.facts,
            machine=self.machine,
            account=observation.account,
            device_peak_bytes=observation.run.device_peak_bytes,
            host_peak_bytes=observation.run.host_peak_bytes,
        )
        situation = msgspec.structs.replace(situation, loader_rates=self._sweep(situation))
        plan = self._first_guesses(situation)
        plan, replicates = self._replicates(plan)
        found = compare_replicates(replicates, delta=trials.options.delta, confidence=speed.HEADLINE_CONFIDENCE)
        candidate = replicates[-1].runs[2]
        return Result(
            plan=plan,
            how="every lever that applies, each with the setting that hotlap would try first; no search",
            speed=found,
            quality=self._quality(situation, plan, replicates),
            before=observation.account,
            after=account_of(candidate)[0],
            peak_bytes=(replicates[-1].runs[0].device_peak_bytes, candidate.device_peak_bytes),
            compile=replicates[0].runs[2].compile,  # later launches find in the cache what this one compiled
            remarks=tuple(self.remarks),
            seconds=time.monotonic() - began,
        )

    @property
    def _left_seconds(self) -> float:
        return self.end - time.monotonic()

    def _sweep(self, situation: Situation) -> tuple[LoaderRate, ...]:
        """The loader alone with a few numbers of workers, where the script waits for data often enough."""
        phases = situation.account
        wanted = not self.naive.only or "loader" in self.naive.only
        if not wanted or phases.wall <= 0 or phases.seconds_in("data_wait") < WORTH_A_SWEEP * phases.wall:
            return ()
        settings = [it for it in loader.sweep_candidates(situation) if dict(it.values)["num_workers"]]
        self.say("the loader alone")
        sweep = SweepLoader(settings=tuple(settings[-WORKERS_SWEPT:]))
        assignment = msgspec.structs.replace(self.trials.assignment(), instruments=(sweep,))
        return self.trials.launch(assignment, steps=1).loader_rates

    def _first_guesses(self, situation: Situation) -> Plan:
        names = all_levers()
        wanted = [it for name, it in names.items() if not self.naive.only or name in self.naive.only]
        prospects, _ = prospects_of(wanted, situation, self.trials.options)
        if not prospects:
            raise NotMeasured("No lever applies to this script here.")
        return Plan(settings=tuple(it.settings[0] for it in prospects))

    def _replicates(self, plan: Plan) -> tuple[Plan, list[Replicate]]:
        """Replicates of the script, its repeat and the plan, as many as the time allows. A plan that fails loses its
        compilation, or else its last lever, and is tried again."""
        replicates: list[Replicate] = []
        longest = 0.0
        while len(replicates) < MOST_REPLICATES:
            began = time.monotonic()
            if len(replicates) >= FEWEST_REPLICATES and longest > self._left_seconds - self._reserve():
                break
            self.say(f"replicate {len(replicates) + 1} of at most {MOST_REPLICATES}: {_words(plan)}")
            taken = self.trials.take_replicate(
                [plans_of.EMPTY, plans_of.EMPTY, plan], rounds=ROUNDS, purpose=self.naive.name
            )
            if not isinstance(taken, Failure):
                replicates.append(taken)
                longest = time.monotonic() - began  # the first one compiles, later ones find that done
                continue
            self.remarks.append(f"With {_words(plan)}: {taken.reason}")
            if taken.arm < 2 or not plan.settings or replicates:
                break
            plan = _smaller(plan)
            if not plan.settings:
                break
        if len(replicates) < FEWEST_REPLICATES:
            why = " ".join(self.remarks) or "the time was over."
            raise NotMeasured(f"Only {len(replicates)} replicates could be taken, and an interval needs two: {why}")
        if len(replicates) < MOST_REPLICATES:
            self.remarks.append(
                f"The time ended the measurement after {len(replicates)} of {MOST_REPLICATES} replicates."
            )
        return plan, replicates

    def _reserve(self) -> float:
        """Seconds to keep for the proof: some launches of few steps."""
        return 5 * (self.trials.costs.startup_seconds + self.trials.costs.of_steps(PARITY_STEPS))

    def _quality(self, situation: Situation, plan: Plan, replicates: Sequence[Replicate]) -> Quality | None:
        prover = ParityProver(self.trials, all_levers(), situation)
        if all(prover.proof_for(it) == "exact" for it in plan.settings):
            return prover.prove_exact(replicates)
        cost = prover.cost(plan)
        if cost > self._left_seconds:
            self.remarks.append(
                f"Losses were not compared: it needs {cost:.0f} s, and {self._left_seconds:.0f} s were left."
            )
            return None
        self.say(f"comparing the losses of {prover.steps} steps")
        found = prover.prove(plan)
        if isinstance(found, Failure):
            self.remarks.append(f"Losses could not be compared. {found.reason}")
            return None
        return found


def short(naive: Naive, machine: Machine, executor: OneSlot, seconds: float, say: Say) -> Result:
    """Every lever that applies, at its first guess, in about so many seconds. Raises :class:`HotlapError` for a script
    that cannot be tuned and :class:`NotMeasured` if too few replicates succeed."""
    options = Options(
        only=naive.only,
        parity_steps=PARITY_STEPS,
        startup_limit_seconds=LONGEST_STARTUP_SECONDS,
        block_limit_seconds=LONGEST_BLOCK_SECONDS,
    )
    trials = Trials(naive.workload, options, JournaledExecutor(executor))
    return _Short(naive, machine, trials, time.monotonic() + seconds, say).run()


def long(naive: Naive, machine: Machine, directory: Path, seconds: float, say: Say) -> Result:
    """``hotlap tune`` with that budget. Raises :class:`HotlapError` as it does."""
    began = time.monotonic()
    study = search(
        naive.workload,
        Options(budget_seconds=seconds, only=naive.only),
        root=directory / naive.name,
        on_progress=lambda it: say(f"{it.stage}: {it.text}"),
        executor=lambda folder, isolation: KnownMachine(LocalExecutor(folder / "runs"), machine),
    )
    compared = study.verification
    remarks = [it for it in (study.status_text,) if it]
    if study.status == "out-of-budget":
        remarks.append(f"The budget of {seconds:.0f} s ended the search.")
    return Result(
        plan=study.plan,
        how=f"hotlap tune, {study.status}",
        speed=compared.speed if compared else None,
        quality=compared.quality if compared else None,
        before=study.account_before,
        after=study.account_after,
        peak_bytes=(compared.baseline_peak_bytes, compared.candidate_peak_bytes) if compared else (0, 0),
        compile=next((it.compile for it in study.outcomes if it.lever == "compile"), None),
        remarks=(*remarks, *study.warnings),
        seconds=time.monotonic() - began,
    )


def _smaller(plan: Plan) -> Plan:
    names = [it.lever for it in plan.settings]
    return plans_of.without(plan, "compile" if "compile" in names else names[-1])


def _words(plan: Plan) -> str:
    return ", ".join(plans_of.describe(it) for it in plan.settings) or "nothing"
