"""Prove that training still produces the same results, by the launches that the parity gates need, once per study.

A plan is always compared with the unmodified baseline, however many levers were kept before. Only an exact lever needs
no launch of its own: the timing runs of its trial already recorded the losses, which must be bitwise identical.

The runs that show how much losses may differ (the baseline again, and with nudged weights) are made only if the
smallest limit is exceeded: they can only widen it. Two more nudges are made before losses are called different. That
the script is repeatable is shown by earlier runs of the study.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import msgspec

from hotlap import plan as plans_of
from hotlap.experiment.failures import Failure, ran_through
from hotlap.experiment.trials import Trials
from hotlap.levers.api import Lever
from hotlap.measure import speed
from hotlap.measure.parity.losses import FEWEST_STEPS
from hotlap.measure.parity.verdict import (
    ParityEvidence,
    RestoredSteps,
    judge,
    judge_exact,
    needs_more_nudges,
    needs_more_runs,
    needs_single_steps,
)
from hotlap.records import (
    EVALUATION_SECONDS,
    AlignRandomness,
    Assignment,
    CaptureGradients,
    ComputeInFloat64,
    Instrument,
    KeepSteps,
    NudgeWeights,
    Parity,
    Plan,
    Proof,
    Quality,
    Replicate,
    ReseedAugmentation,
    RestoreSteps,
    RoundWeights,
    Run,
    Setting,
    Situation,
    WatchEvaluation,
    WithoutDropout,
)
from hotlap.wording import ending_text

_STRENGTH: Mapping[Proof, int] = {"exact": 0, "rounding": 1, "behaviour": 2}
_BUDGET_SHARE = 0.2
_LAUNCHES_EXPECTED = 8
_SEEDS = 5
_SEED = " with seed "
_NEAR_EPOCHS = 4
"""How many times longer than usual runs may be, to see an evaluation at the end of an epoch."""

NUDGES: Mapping[str, NudgeWeights] = {
    "nudged": NudgeWeights(),
    "nudged below": NudgeWeights(towards="below"),
    "nudged outward": NudgeWeights(towards="outward"),
}
"""All but the first are made only where a plan's losses would otherwise be called different, and time is left."""

_ONLY_FOR_NOISE = frozenset({"again", "nudged", "reseeded"})
"""The runs of a rounding proof that only widen its limit."""

_KEPT, _RESTORED, _CANDIDATE_RESTORED = "kept", "restored", "candidate restored"
_SINGLE_STEPS = 12
_MOST_KEPT_BYTES = 2_000_000_000

_COARSEST_FIRST = ("float8_e4m3fn", "bfloat16", "float16")
_PRECISION_VALUES = frozenset({"dtype", "precision"})


class Prover(ABC):
    """Proves that a plan's results are still those of the baseline. One file for each kind of :data:`Quality`."""

    def __init__(self, trials: Trials, levers: Mapping[str, Lever], situation: Situation) -> None:
        self._trials = trials
        self._levers = levers
        self._situation = situation

    def proof_for(self, setting: Setting) -> Proof:
        """The proof that this setting requires."""
        return self._levers[setting.lever].proof_for(self._situation, setting)

    def samples_factor(self, plan: Plan) -> float:
        """How many times as many samples a step of the plan has."""
        return math.prod(self._levers[it.lever].samples_factor(it) for it in plan.settings)

    @abstractmethod
    def cost(self, plan: Plan) -> float:
        """The seconds of the launches that this plan's proof still needs."""

    def least_cost(self, plan: Plan) -> float:
        """Those without which there is no proof, if the plan's results are good at first sight."""
        return self.cost(plan)

    @abstractmethod
    def prove(self, plan: Plan) -> Quality | Failure:
        """Compare the plan with the unmodified baseline; a Failure if the plan's own run failed."""

    def prepare(self, plans: Sequence[Plan]) -> None:  # noqa: B027
        """Make at the same time what the proofs of these plans need, where a kind of proof can."""

    @abstractmethod
    def prove_exact(self, replicates: Sequence[Replicate]) -> Quality:
        """The same for exact levers, from the timing runs if these suffice: arms 0 (reference), 1 (repeat) and 2."""

    @abstractmethod
    def compared_runs(self, plan: Plan) -> tuple[Run, Run] | None:
        """The runs of the baseline and of the plan whose losses :meth:`prove` compared; None if it compared none."""

    def _proof_of(self, plan: Plan) -> Proof:
        """The strongest proof that any of its settings requires."""
        return max((self.proof_for(it) for it in plan.settings), key=_STRENGTH.__getitem__, default="exact")


class ParityProver(Prover):
    """Makes the comparisons of a study and caches them."""

    def __init__(self, trials: Trials, levers: Mapping[str, Lever], situation: Situation) -> None:
        super().__init__(trials, levers, situation)
        self._steps: int | None = None
        self._runs: dict[tuple[Plan, str], Run] = {}
        self._verdicts: dict[Plan, Parity | Failure] = {}

    @property
    def steps(self) -> int:
        """The number of steps over which losses are compared: what the budget allows, the same for all comparisons."""
        return self._steps or affordable_steps(self._trials)

    def cost(self, plan: Plan) -> float:
        """None for exact levers, whose losses the timing runs record."""
        if plan in self._verdicts or self._proof_of(plan) == "exact":
            return 0.0
        return self._cost_of(plan, self._kinds(plan))

    def least_cost(self, plan: Plan) -> float:
        """Without the runs that are made only if its results differ, where replicates have shown that the script
        repeats itself."""
        if plan in self._verdicts or self._proof_of(plan) != "rounding" or self._repeated is None:
            return self.cost(plan)
        return self._cost_of(plan, self._few(plan))

    def prove_exact(self, replicates: Sequence[Replicate]) -> Parity:
        """Whether the losses of arms 0 (reference), 1 (repeat) and 2 (with an exact lever) agree in every replicate."""
        return judge_exact([it.runs[:3] for it in replicates])

    def prove(self, plan: Plan) -> Parity | Failure:
        if plan not in self._verdicts:
            self._verdicts[plan] = self._judge(plan)
        return self._verdicts[plan]

    def prepare(self, plans: Sequence[Plan]) -> None:
        self._make([(plan, kind) for plan in plans for kind in self._kinds(plan)])

    def compared_runs(self, plan: Plan) -> tuple[Run, Run] | None:
        baseline, candidate = self._runs.get((plans_of.EMPTY, "baseline")), self._runs.get((plan, "candidate"))
        return (baseline, candidate) if baseline is not None and candidate is not None else None

    # -- evidence -----------------------------------------------------------------------------

    def _judge(self, plan: Plan) -> Parity | Failure:
        found = self._judge_trajectory(plan)
        if isinstance(found, Failure) or not needs_single_steps(found):
            return found
        obstacle = self._why_no_single_steps(plan)
        if obstacle:
            return msgspec.structs.replace(found, text=f"{found.text} {obstacle}")
        restored = self._restored(plan)
        if isinstance(restored, str):
            return msgspec.structs.replace(found, text=f"{found.text} {restored}")
        known = [it for it in (*self._kinds(plan), *NUDGES) if (_owner(plan, it), it) in self._runs]
        return self._judge_by(plan, list(dict.fromkeys(known)), restored=restored)

    def _why_no_single_steps(self, plan: Plan) -> str:
        """Why single steps cannot be compared; empty where one process trains, on this host, and there is time for them
        and a verification after them."""
        trials = self._trials
        if not trials.has_one_process or trials.executor.slots > 1:
            return "Single steps, which show more, are compared of one process on one host only."
        cost = self._cost_of(plan, (self._keeping, _RESTORED, _CANDIDATE_RESTORED))
        arms = [plans_of.EMPTY, plans_of.EMPTY, plan]
        few = min(trials.rounds, trials.costs.shape.last_resort_rounds)
        if trials.fits(cost + trials.replicates_seconds(arms, speed.HEADLINE_REPLICATES, few)):
            return ""
        return "The budget left no time to compare single steps, which show more."

    def _restored(self, plan: Plan) -> RestoredSteps | str:
        """Single steps from where the unmodified script's started, or why there are none."""
        kept = self._runs_of(plan, [self._keeping])[self._keeping]
        if not kept.kept_steps or not ran_through(kept):
            return " ".join(["What single steps start from could not be kept.", *kept.notes])
        runs = self._runs_of(plan, [_RESTORED, _CANDIDATE_RESTORED])
        failed = next((it for it in runs.values() if not ran_through(it)), None)
        if failed is not None:
            return f"In a run of single steps: {ending_text(failed.ending)}"
        return RestoredSteps(kept, runs[_RESTORED], runs[_CANDIDATE_RESTORED])

    def _judge_trajectory(self, plan: Plan) -> Parity | Failure:
        kinds, repeated = self._kinds(plan), self._repeated
        if self._proof_of(plan) == "rounding" and repeated is not None:
            found = self._judge_by(plan, self._few(plan), repeated)
            if isinstance(found, Failure) or not needs_more_runs(found):
                return found
        found = self._judge_by(plan, kinds)
        if isinstance(found, Failure) or not needs_more_nudges(found):
            return found
        more = (*kinds, *(it for it in NUDGES if it not in kinds))
        return self._judge_by(plan, more) if self._trials.fits(self._cost_of(plan, more)) else found

    @property
    def _repeated(self) -> tuple[Run, Run] | None:
        """Two runs of the unmodified script whose losses agreed, if replicates have shown that."""
        return self._trials.unmodified.repeated(self._trials.own_plan)

    @property
    def _keeping(self) -> str:
        """The run that keeps what its steps start from: the repeat of a script that probably amplifies rounding, since
        its model has batch normalizations, or a run for that alone."""
        return "again" if self._has_batch_norms and (plans_of.EMPTY, "again") in self._runs else _KEPT

    @property
    def _has_batch_norms(self) -> bool:
        return any(it.batch_norms for it in self._situation.facts.models)

    @property
    def _amplifies(self) -> bool:
        """Whether an earlier proof needed single steps: that of most other plans will, so that theirs run beside the
        others of their runs."""
        own = self._runs.get((plans_of.EMPTY, _RESTORED))
        return own is not None and bool(own.restored_steps)

    def _few(self, plan: Plan) -> list[str]:
        """The runs without which there is no proof."""
        return [it for it in self._kinds(plan) if it not in _ONLY_FOR_NOISE]

    def _cost_of(self, plan: Plan, kinds: Sequence[str]) -> float:
        """The seconds of those of these runs that are still missing."""
        missing = [it for it in kinds if (_owner(plan, it), it) not in self._runs]
        launches = [(_owner(plan, it), self._steps_of(plan, it)) for it in missing]
        return self._trials.costs.of_launches(launches, at_once=self._trials.launches_at_once)

    def _judge_by(
        self,
        plan: Plan,
        kinds: Sequence[str],
        repeated: tuple[Run, Run] | None = None,
        restored: RestoredSteps | None = None,
    ) -> Parity | Failure:
        runs = self._runs_of(plan, kinds)
        candidate = runs["candidate"]
        if not ran_through(candidate):
            text = f"In the run that compares numbers: {ending_text(candidate.ending)}"
            return Failure(0, candidate.ending, text)
        optional = {name: run for name, run in runs.items() if ran_through(run)}
        return judge(
            ParityEvidence(
                baseline=runs["baseline"],
                baseline_again=runs.get("again"),
                repeated=repeated,
                candidate=candidate,
                proof=self._proof_of(plan),
                nudged=tuple(optional[it] for it in NUDGES if it in optional),
                reference=optional.get("reference"),
                reseeded=optional.get("reseeded"),
                rounded=next((run for name, run in optional.items() if name.startswith("rounded to ")), None),
                seeds=self._seed_pairs(plan, runs),
                changes_precision=_changes_precision(plan),
                allowed=self._allowed(plan, runs["baseline"]),
                samples_factor=self.samples_factor(plan),
                changes_evaluation=any(self._levers[it.lever].changes_evaluation for it in plan.settings),
                restored=restored,
            )
        )

    def _kinds(self, plan: Plan) -> tuple[str, ...]:
        """The names of the runs that the proof of this plan needs."""
        proof = self._proof_of(plan)
        kinds = ["baseline", "again", "candidate"]
        if proof == "rounding":
            kinds.append("nudged")
            kinds.append(f"rounded to {_format_of(plan)}" if _changes_precision(plan) else "reference")
            if self._draws_otherwise(plan):
                kinds.append("reseeded")
            if self._amplifies:
                kinds.append(_CANDIDATE_RESTORED)
        if proof == "behaviour":
            kinds += [self._with_seed(plan, whose, it) for it in range(_SEEDS) for whose in ("baseline", "candidate")]
        return tuple(kinds)

    def _runs_of(self, plan: Plan, kinds: Sequence[str]) -> dict[str, Run]:
        """These runs of the plan's proof by name."""
        self._make([(plan, it) for it in kinds])
        return {it: self._runs[_owner(plan, it), it] for it in kinds}

    def _make(self, wanted: Sequence[tuple[Plan, str]]) -> None:
        """Make those of these runs of plans' proofs that are still missing; they start at the same time."""
        self._steps = self.steps
        plans = {(_owner(plan, kind), kind): plan for plan, kind in wanted}
        missing = [it for it in plans if it not in self._runs]
        launches = [(self._assignment(plans[it], *it), self._steps_of(plans[it], it[1])) for it in missing]
        self._runs.update(zip(missing, self._trials.launch_together(launches), strict=True))

    def _steps_of(self, plan: Plan, kind: str) -> int:
        """How many steps this run of a plan's proof has.

        Where a step of the plan has more samples, runs of a seed train on equally many; if an epoch ends nearby, up to
        its end, after which most scripts evaluate.
        """
        if _is_first_step(kind):
            return 1
        factor, steps = self.samples_factor(plan), self.steps
        is_candidate = kind.startswith("candidate")
        if factor == 1:
            return steps
        if _SEED not in kind:
            return max(FEWEST_STEPS, math.ceil(steps / factor)) if is_candidate else steps
        steps = min(max(steps, math.ceil(FEWEST_STEPS * factor)), self._trials.costs.shape.most_steps or sys.maxsize)
        lengths = {it.length for it in self._situation.facts.training_loaders if it.length}
        epoch = min(lengths) if len(lengths) == 1 else 0
        and_one = 0
        if 0 < epoch <= _NEAR_EPOCHS * steps:
            steps, and_one = epoch * max(1, steps // epoch), 1  # it has evaluated when it trains again
        return (math.ceil(steps / factor) if is_candidate else steps) + and_one

    def _assignment(self, plan: Plan, owner: Plan, kind: str) -> Assignment:
        plain = self._trials.assignment(owner)
        whose, _, seed = kind.partition(_SEED)
        if seed:
            watched = (WatchEvaluation(),) if self.samples_factor(plan) != 1 else ()
            return msgspec.structs.replace(plain, seed=plain.seed + 1 + int(seed.split()[0]), instruments=watched)
        if kind in (_KEPT, _RESTORED, _CANDIDATE_RESTORED):
            single = (WithoutDropout(), AlignRandomness(), *self._of_single_steps(kind))
            return msgspec.structs.replace(plain, instruments=single)
        instruments: list[Instrument] = [WithoutDropout(), AlignRandomness(), CaptureGradients()]
        if self._trials.options.objective.metric == EVALUATION_SECONDS and not _is_first_step(kind):
            instruments += [WatchEvaluation(), *self._trials.instruments]  # the latter wait for an evaluation
        if kind == "again" and self._has_batch_norms and self._trials.has_one_process:
            instruments += self._of_single_steps(_KEPT)
        if whose in NUDGES:
            instruments.append(NUDGES[whose])
        elif whose == "reference":
            instruments.append(ComputeInFloat64())
        elif whose == "reseeded":
            instruments.append(ReseedAugmentation(seed=plain.seed + 1))
        elif kind.startswith("rounded to "):
            instruments.append(RoundWeights(number_format=kind.removeprefix("rounded to ")))
        return msgspec.structs.replace(plain, instruments=tuple(instruments))

    def _of_single_steps(self, kind: str) -> tuple[Instrument, ...]:
        """What keeps steps spread evenly over the run, or starts them from where those that were kept started."""
        if kind == _KEPT:
            last = self.steps - 1
            steps = {(row + 1) * last // (_SINGLE_STEPS + 1) for row in range(_SINGLE_STEPS)}
            return (KeepSteps(steps=tuple(sorted(steps - {0})), most_bytes=_MOST_KEPT_BYTES),)
        return (RestoreSteps(),) if kind == _CANDIDATE_RESTORED else (NudgeWeights(), RestoreSteps())

    def _seed_pairs(self, plan: Plan, runs: Mapping[str, Run]) -> tuple[tuple[Run, Run], ...]:
        if self._proof_of(plan) != "behaviour":
            return ()
        return tuple(
            (runs[self._with_seed(plan, "baseline", it)], runs[self._with_seed(plan, "candidate", it)])
            for it in range(_SEEDS)
        )

    def _with_seed(self, plan: Plan, whose: str, number: int) -> str:
        """The name of a run; those of the baseline for equal samples depend on how much larger the plan's steps are."""
        factor = self.samples_factor(plan)
        return f"{whose}{_SEED}{number}" + ("" if factor == 1 else f" for {factor:g} times the samples")

    def _allowed(self, plan: Plan, baseline: Run) -> frozenset[str]:
        """The invariants that a plan declares to change.

        Steps with other samples change the samples, and at which sample a schedule changes the learning rate.
        """
        if self.samples_factor(plan) == 1:
            return frozenset({"batch_hashes"}) if self._draws_otherwise(plan) else frozenset()
        scheduled = len(set(baseline.invariants.learning_rates)) > 1
        return frozenset({"samples", "batch_hashes", *(("learning_rates",) if scheduled else ())})

    def _draws_otherwise(self, plan: Plan) -> bool:
        """Whether the data pipeline draws other random numbers although fetches are aligned: those of a stream are not
        (:mod:`hotlap.runtime.aligned_fetches`)."""
        streams = any(it.iterable and it.draws_random for it in self._situation.facts.loaders)
        return streams and any(self._levers[it.lever].changes_randomness(self._situation, it) for it in plan.settings)


def _owner(plan: Plan, kind: str) -> Plan:
    return plan if kind.startswith("candidate") else plans_of.EMPTY


def _is_first_step(kind: str) -> bool:
    """Whether only the first step of this run is compared."""
    return kind == "reference" or kind.startswith("rounded to ")


def _format_of(plan: Plan) -> str:
    """The number format whose rounding a plan's precision lever introduces.

    A ``dtype`` by name, the coarsest of several; float16 for TF32, whose mantissa also has ten bits.
    """
    names = {str(value) for it in plan.settings for key, value in it.values if key == "dtype"}
    return next((it for it in _COARSEST_FIRST if it in names), "float16")


def _changes_precision(plan: Plan) -> bool:
    """Whether a setting names a number format: then the first gradient keeps its direction, not its digits."""
    return any(name in _PRECISION_VALUES for it in plan.settings for name, _ in it.values)


def usual_proof_cost(trials: Trials, plan: Plan, steps: int, *, least: bool = False) -> float:
    """The seconds of a rounding proof over so many steps, whose launches start at the same time; ``least``: without
    those that only results which differ need, if it is known that the script repeats itself."""
    few = least and trials.unmodified.repeated(trials.own_plan) is not None
    launches = [*[(plans_of.EMPTY, steps)] * (1 if few else 3), (plan, steps), (plans_of.EMPTY, 1)]
    return trials.costs.of_launches(launches, at_once=trials.launches_at_once)


def affordable_steps(trials: Trials) -> int:
    """As many steps as the options say; fewer if the script ends sooner or the budget is short."""
    return steps_for(trials, trials.options.budget_seconds)


def steps_for(trials: Trials, budget_seconds: float | None) -> int:
    """The same for another budget."""
    options, shape = trials.options, trials.costs.shape
    steps = options.parity_steps if shape.most_steps is None else min(options.parity_steps, shape.most_steps)
    if budget_seconds is None:
        return steps
    seconds = _BUDGET_SHARE * budget_seconds / _LAUNCHES_EXPECTED - trials.costs.startup_seconds
    affordable = int(seconds / (shape.step_seconds * (1 + shape.outside_share)))
    return max(min(steps, FEWEST_STEPS), min(steps, affordable))
