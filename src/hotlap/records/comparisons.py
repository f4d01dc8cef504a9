"""The input of levers, and the results of comparisons with the baseline."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from hotlap.records.base import Record
from hotlap.records.engines import EngineReport
from hotlap.records.estimate import Estimate
from hotlap.records.generation import GenerationTimes
from hotlap.records.latency import Latency, LoadComparison
from hotlap.records.machine import Machine
from hotlap.records.phases import StepPhase
from hotlap.records.quality import Quality
from hotlap.records.runs import BlockCost, LoaderRate
from hotlap.records.script import GUESSED_SAMPLES, SampleSource, ScriptFacts
from hotlap.records.workload import Plan


class Ceiling(Record, frozen=True, kw_only=True):
    """The largest possible gain if one resource cost nothing; measured, not assumed.

    ``bound_interval`` is a 95 % interval of ``bound_speedup`` over the rounds of a replicate, where it was measured so.
    """

    name: Literal["loader-alone", "model-alone", "matmul"]
    seconds_per_sample: float | None = None
    bound_speedup: float | None = None
    bound_interval: tuple[float, float] | None = None
    text: str = ""


class PhaseAccount(Record, frozen=True, kw_only=True):
    """Mean seconds per step of one plan: ``wall``, the ``phases`` that add up to it, and those ``outside`` of steps.

    ``samples_per_step`` are those of each of the ``trainers``, counted by ``samples_from``.
    """

    wall: float = 0.0
    phases: tuple[tuple[StepPhase, float], ...] = ()
    outside: float = 0.0
    samples_per_step: float = 1.0
    trainers: int = 1
    samples_from: SampleSource = ""

    def seconds_in(self, phase: StepPhase) -> float:
        """The mean seconds of a phase; 0 where it was not observed."""
        return dict(self.phases).get(phase, 0.0)

    @property
    def is_of_calls(self) -> bool:
        """Whether a step is a call of a model: a forward pass, and no other phase of a training step."""
        return {name for name, seconds in self.phases if seconds > 0} - {"other"} == {"forward"}

    def with_seconds(self, *phases: tuple[StepPhase, float]) -> PhaseAccount:
        """The same account with other seconds in these phases."""
        return msgspec.structs.replace(self, phases=tuple({**dict(self.phases), **dict(phases)}.items()))

    @property
    def samples_are_guessed(self) -> bool:
        return self.samples_from in GUESSED_SAMPLES

    @property
    def samples_of_all(self) -> float:
        """The samples of a step, those of all trainers."""
        return self.samples_per_step * max(1, self.trainers)


class ProposedBatch(Record, frozen=True, kw_only=True):
    """The batch size that a search found to be worth a trial: ``size`` instead of the script's ``own``.

    ``flag`` is the script's own option for it (empty: its DataLoader is changed). ``obstacle`` says why there is none;
    where the budget is the reason, ``size`` is the one for which none was left, and ``untimed_seconds`` is what timing
    it would have taken.
    """

    own: int = 0
    size: int = 0
    flag: str = ""
    obstacle: str = ""
    untimed_seconds: float = 0.0


class Situation(Record, frozen=True, kw_only=True):
    """What a lever decides by whether it applies: the script, the machine, the time account of the baseline, and the
    measured ceilings. ``proposed_batch`` is None unless another batch size was searched for. ``block_costs`` are the
    model's repeated blocks, where they were measured, and ``most_slowdown`` is how many times as long a step may take
    (None: no longer)."""

    facts: ScriptFacts = ScriptFacts()
    machine: Machine = Machine()
    account: PhaseAccount = PhaseAccount()
    ceilings: tuple[Ceiling, ...] = ()
    loader_rates: tuple[LoaderRate, ...] = ()
    device_peak_bytes: int = 0
    host_peak_bytes: int = 0
    proposed_batch: ProposedBatch | None = None
    sample_cache_bytes: int = 0
    block_costs: tuple[BlockCost, ...] = ()
    most_slowdown: float | None = None


SpeedVerdict: TypeAlias = Literal["faster", "slower", "no-effect", "inconclusive"]


class BatchRate(Record, frozen=True, kw_only=True):
    """The script, or its model alone, with ``scale`` times as many samples in each batch.

    ``batch_size`` is that of the DataLoader (0: not known, or fed from memory). ``out_of_memory`` says that this is why
    it did not work. ``speedup`` is its samples per second against those with the script's own batch, an interval of
    ``confidence``; None for that one itself. Where ``error`` is not empty the size did not work or was not tried, and
    the figures mean nothing.
    """

    scale: float
    samples_per_step: float
    seconds_per_sample: float = 0.0
    speedup: Estimate | None = None
    confidence: float = 0.95
    peak_bytes: int = 0
    error: str = ""
    batch_size: int = 0
    out_of_memory: bool = False

    @property
    def throughput(self) -> float:
        """Samples per second as a ratio to the unmodified script's; 0 where none were measured."""
        if self.error:
            return 0.0
        return self.speedup.value if self.speedup is not None else 1.0


class SpeedComparison(Record, frozen=True, kw_only=True):
    """A candidate against a baseline. ``speedup`` above 1 means that the candidate is faster. A baseline that was
    launched twice, for the A/A gate, counts with the mean of both launches.

    ``noise_floor`` is the half-width of the interval of the baseline against itself, as a share;
    ``smallest_detectable`` the smallest effect (a share) that these replicates could detect.
    ``baseline_agrees`` is the A/A gate: false forbids any claim. Of the ``rounds`` of a single launch so many
    ``extreme_rounds`` did not count.
    """

    speedup: Estimate
    verdict: SpeedVerdict
    replicates: int
    rounds: int
    confidence: float
    noise_floor: float
    smallest_detectable: float
    baseline_agrees: bool = True
    baseline_speedup: Estimate | None = None
    remarks: tuple[str, ...] = ()
    extreme_rounds: int = 0


class RecordedGain(Record, frozen=True, kw_only=True):
    """The gain of a plan when it was verified, and on which machine; it is stored in the plan file."""

    speedup: Estimate
    confidence: float
    replicates: int
    machine: str = ""
    torch_version: str = ""


EnergySource: TypeAlias = Literal["device-counter", "device-power", "processor-counter"]


class EnergyComparison(Record, frozen=True, kw_only=True):
    """Joules per sample of a plan and of its baseline, from the same blocks as their speed.

    All are geometric means with intervals over that many ``replicates``; ``ratio`` is the candidate's energy as a share
    of the baseline's, compared replicate by replicate. :class:`Block` says what the counters cover.
    """

    source: EnergySource
    baseline_joules_per_sample: Estimate
    candidate_joules_per_sample: Estimate
    ratio: Estimate
    replicates: int
    confidence: float


MetricVerdict: TypeAlias = Literal["better", "worse", "no-effect", "inconclusive"]


class MetricComparison(Record, frozen=True, kw_only=True):
    """One metric of a candidate against the baseline's; ``ratio`` is candidate over baseline.

    Lower is better for every metric. Intervals are over replicates, of geometric means; the unit of the levels is that
    of their estimates; a level is None where it was not recorded. ``smallest_change`` is what counts as a difference,
    as a share (0 where the search chose it).
    """

    metric: str
    baseline: Estimate | None = None
    candidate: Estimate | None = None
    ratio: Estimate
    verdict: MetricVerdict
    smallest_change: float = 0.0
    replicates: int
    confidence: float


class Comparison(Record, frozen=True, kw_only=True):
    """Speed, memory and quality of a plan against a baseline plan.

    ``baseline_peak_bytes`` and ``candidate_peak_bytes`` are the largest of all launches, of the device where there is
    one; ``metrics`` are the metrics of each launch, with intervals (:mod:`hotlap.measure.metrics`).
    ``extra_startup_seconds`` is how much longer the candidate's start and warm-up took than the baseline's, without
    steady steps; its interval, as that of ``baseline_seconds_per_sample``, is over replicates. None where unknown.
    ``baseline_latency`` and ``candidate_latency`` are those of the calls of an inference target, and
    ``baseline_generation`` and ``candidate_generation`` those of the tokens of ``generate()``. ``load`` says how many
    calls per second may arrive, where a p99 was required.

    With ``within_launch`` both sides took turns in a single launch, which switched levers: the interval of ``speed`` is
    over the rounds of that launch, and does not contain what launches differ by.
    """

    baseline: Plan
    candidate: Plan
    speed: SpeedComparison
    within_launch: bool = False
    quality: Quality | None = None
    baseline_peak_bytes: int = 0
    candidate_peak_bytes: int = 0
    metrics: tuple[MetricComparison, ...] = ()
    baseline_seconds_per_sample: Estimate | None = None
    extra_startup_seconds: Estimate | None = None
    energy: EnergyComparison | None = None
    baseline_latency: Latency | None = None
    candidate_latency: Latency | None = None
    baseline_generation: GenerationTimes | None = None
    candidate_generation: GenerationTimes | None = None
    load: LoadComparison | None = None


class Candidate(Record, frozen=True, kw_only=True):
    """A plan that was compared with the unmodified model of an inference target: its speed, memory and latencies, and,
    where it was faster, its outputs. ``engine`` is what ran the model (None: torch)."""

    plan: Plan
    comparison: Comparison
    engine: EngineReport | None = None


class Refused(Record, frozen=True, kw_only=True):
    """A plan whose outputs were compared before its speed, and are not as required: it was not timed any further.

    ``gain`` is how many times better the metric of the study's objective was in a first measurement, one replicate
    (None: there was none).
    """

    plan: Plan
    quality: Quality
    gain: float | None = None
    engine: EngineReport | None = None


class LossCurves(Record, frozen=True, kw_only=True):
    """The loss step by step, of the unmodified script and with the plan, from the runs that were compared.

    Columns of equal length; ``steps`` count from 1. Of ``compared_steps`` steps every ``every``-th is kept. The
    averages are exponential moving averages over all steps (those that gate G3 compares), and ``allowed`` is how far
    the plan's may be from the baseline's at that step; it is empty where G3 gave no limit.
    """

    compared_steps: int
    every: int = 1
    steps: tuple[int, ...] = ()
    baseline: tuple[float, ...] = ()
    plan: tuple[float, ...] = ()
    baseline_average: tuple[float, ...] = ()
    plan_average: tuple[float, ...] = ()
    allowed: tuple[float, ...] = ()
