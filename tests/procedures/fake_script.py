"""A fake script: true speedups, noise, drift, and levers that crash, hang, run out of memory or return wrong results.

Every answer is a function of the request alone (and of the seed and ``world.NUMBER``), so that an interrupted and
resumed study gets the same answers. Its clock counts the seconds that real children would have taken.
"""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import world
from fake_requests import is_replayed, processes_of, scale_of, swept, told, warm_up_steps
from fake_steps import invariants_of, steps_of

from hotlap.records import (
    Accelerator,
    Assignment,
    Block,
    Ceilings,
    CollectEvidence,
    CompileReport,
    Completed,
    Crashed,
    Ending,
    EvaluationFacts,
    GradientGroup,
    LaunchRequest,
    LoaderFacts,
    LoaderRate,
    Machine,
    MeasureGradientNoise,
    ModelFacts,
    NudgeWeights,
    OptimizerFacts,
    OutOfMemory,
    Plan,
    Replicate,
    Run,
    ScriptFacts,
    Setting,
    Stopped,
    TimedOut,
    TurnRequest,
    WatchMemory,
    Workload,
)
from hotlap.trial.executor import OneSlot

WORKLOAD = Workload(kind="script", target="train.py", directory="/home/ada", python="python")
PHASES = ("data", "compute", "optimizer")


@dataclass(frozen=True)
class Effect:
    """The true effect of a setting: factors on the phases (0.5 halves one), and its faults."""

    data: float = 1.0
    compute: float = 1.0
    optimizer: float = 1.0
    loss: float = 1.0
    peak: float = 1.0
    startup_seconds: float = 0.0
    fails: str = ""


@dataclass
class FakeScript:
    """The script's properties, and the effect of each setting."""

    data: float = 0.004
    compute: float = 0.014
    optimizer: float = 0.002
    startup_seconds: float = 2.0
    launch_noise: float = 0.01
    round_noise: float = 0.02
    drift: float = 0.1
    total_steps: int | None = None
    peak_bytes: int = 100_000_000
    memory_bytes: int = 16_000_000_000
    effects: Mapping[Setting, Effect] = field(default_factory=dict)
    baseline_ending: Ending = field(default_factory=Stopped)
    baseline_steps: int | None = None
    has_loader: bool = False
    loader_trains: bool | None = None
    loader_workers: int = 0
    reads_loss: bool = True
    repeatable: bool = True
    nudge: float = 1e-6
    """By so much the loss changes where the initial weights change by one unit in the last place,"""
    nudges: Mapping[str, float] = field(default_factory=dict)
    """and by so much if it is in that direction."""
    backwards_only: bool = False
    evidence_paths: tuple[str, ...] = ()
    profiled_ending: Ending = field(default_factory=Stopped)
    plan_evidence_paths: tuple[str, ...] = ()
    """What the profiled launch of a plan leaves behind,"""
    plan_profiled_ending: Ending = field(default_factory=Stopped)
    """and how it ends."""
    samples_per_step: int = 1
    batch_size: int | None = 1
    batches: int | None = None
    breaks_at: float = math.inf
    """From this scale on it crashes."""
    ends_from: float = math.inf
    """From this scale on it ends without a step: its data set has no such batch."""
    fixed_share: float = 0.5
    largest_scale: float = 100.0
    largest_timed_scale: float = math.inf
    """Beyond this scale it runs out of memory in timing, which is longer than a probe."""
    resizable: bool = True
    evaluates: bool = False
    """It was seen to evaluate, with a graph."""
    seed_spread: float = 0.0
    """Seeds change the loss by up to this share,"""
    large_batch_loss: float = 0.0
    """and twice the batch adds this to the loss."""
    noise: float | None = None
    """The gradient noise scale, in samples."""
    growth_bytes: int = 0
    """So much more memory is in use after each step, times the scale."""
    retries_from: float = math.inf
    """From this scale on the device's allocator retries."""
    others: float = 0.0
    """So many cores are kept busy by others, who make every step three times as long,"""
    calm_after_seconds: float = math.inf
    """until that much time has passed."""
    cores: int = 1
    threads: int = 1
    """With fewer threads than there are cores, others do not make steps longer and no thread waits."""

    def level(self, arm: Assignment) -> float:
        """Seconds for a sample: of a step, ``fixed_share`` is the same for any number of samples."""
        growth = self.fixed_share + (1 - self.fixed_share) * self.scale(arm)
        return self.step_seconds(arm.plan, replay=is_replayed(arm)) * growth / self.scale(arm)

    def scale(self, arm: Assignment) -> float:
        return scale_of(arm) if self.resizable else 1.0

    def step_seconds(self, plan: Plan, *, replay: bool = False) -> float:
        return sum(self.phases(plan, replay=replay).values())

    def phases(self, plan: Plan, *, replay: bool = False) -> dict[str, float]:
        seconds = {name: getattr(self, name) for name in PHASES}
        for setting in plan.settings:
            effect = self.effects.get(setting, Effect())
            for name in PHASES:
                seconds[name] *= getattr(effect, name)
        if replay:
            seconds["data"] = 1e-5
        return seconds

    def peak_factor(self, plan: Plan) -> float:
        return math.prod(self.effects.get(it, Effect()).peak for it in plan.settings)

    def speedup(self, plan: Plan) -> float:
        return self.step_seconds(Plan()) / self.step_seconds(plan)


class Interrupt:
    """Raises an exception at the how-manieth call of the executor."""

    def __init__(self, call: int, error: type[BaseException]) -> None:
        self.call = call
        self.error = error


def _besides(request: TurnRequest) -> int:
    """The steps of a block that do not count: the one before each of its turns, and what several turns have more."""
    return math.ceil(1.5 * request.block_turns) if request.block_turns > 1 else 1


class FakeExecutor(OneSlot):
    """Computed answers; ``seconds`` is what real trials would have taken, ``requests`` are all requests."""

    def __init__(self, script: FakeScript, *, seed: int = 0, interrupt: Interrupt | None = None) -> None:
        self.script = script
        self.seed = seed
        self.seconds = 0.0
        self.requests: list[bytes] = []
        self._interrupt = interrupt
        self._within_a_call = False

    def clock(self) -> float:
        return self.seconds

    def _pass_time(self, seconds: float) -> None:
        """In binary fractions, so that differences and sums of this clock are exact, whenever it was started."""
        self.seconds += round(seconds * 1024) / 1024

    def machine(self) -> Machine:
        self._note(b"machine")
        self._pass_time(3.0)
        rates = Ceilings(matmul_flops_per_second=(("cpu:float32", 1e11),))
        accelerators: tuple[Accelerator, ...] = ()
        return Machine(
            cores=self.script.cores, memory_bytes=self.script.memory_bytes, ceilings=rates, accelerators=accelerators
        )

    @property
    def _others(self) -> float:
        return self.script.others if self.seconds < self.script.calm_after_seconds else 0.0

    def _slowdown(self, arm: Assignment) -> float:
        return 3.0 if self._others and self._threads(arm) >= self.script.cores else 1.0

    def _threads(self, arm: Assignment) -> int:
        values = [dict(it.values)["threads"] for it in arm.plan.settings if it.lever == "cpu-threads"]
        return int(values[0]) if values else self.script.threads

    def _wait_for_others(self, patience_seconds: float) -> None:
        if self._others:
            self._pass_time(min(patience_seconds, max(0.0, self.script.calm_after_seconds - self.seconds)))

    def launch(self, request: LaunchRequest) -> Run:
        self._wait_for_others(request.patience_seconds)
        request = msgspec.structs.replace(request, patience_seconds=0.0)
        noise = self._noise(request)
        steps = request.steps
        if request.seconds is not None:
            affordable = int(request.seconds / self.script.step_seconds(request.assignment.plan))
            steps = min(steps, max(request.minimum_steps, affordable))
        if request.most_seconds is not None:
            left = request.most_seconds - self.script.startup_seconds
            steps = min(steps, max(2, math.ceil(left / self.script.step_seconds(request.assignment.plan))))
        run = self._run(request.assignment, steps, noise)
        self._pass_time(2.0 * len(swept(request.assignment)))
        self._pass_time(run.startup_seconds + sum(run.steps.wall_seconds))
        self._wait_for(run.ending)
        return run

    def launch_together(self, requests: Sequence[LaunchRequest]) -> tuple[Run, ...]:
        """One call, which answers all or nothing; the start is paid once."""
        self._note(b"\n".join(map(msgspec.json.encode, requests)))
        self._within_a_call = True
        runs = tuple(map(self.launch, requests))
        self._within_a_call = False
        self._pass_time(-(len(requests) - 1) * self.script.startup_seconds)
        return runs

    def take_turns(self, request: TurnRequest) -> Replicate:
        self._wait_for_others(request.patience_seconds)
        request = msgspec.structs.replace(request, patience_seconds=0.0)
        began = self.seconds
        noise = self._noise(request)
        runs, levels = [], []
        of_launch = self.launch_factor(noise) if request.one_launch else None
        for arm in request.arms:
            level = self.script.level(arm) * self._slowdown(arm)
            levels.append(level * (of_launch or self.launch_factor(noise)))
            runs.append(self._run(arm, 40, noise))
        starts = self.seconds_of_starts(request, runs)
        self._pass_time(starts if request.most_seconds is None else min(starts, request.most_seconds))
        for run in runs:
            self._wait_for(run.ending)
        if any(not isinstance(run.ending, Stopped) for run in runs):
            return Replicate(runs=tuple(runs), rounds=((),) * len(runs), wall_seconds=self.seconds - began)
        step_seconds = self.script.step_seconds(Plan()) * self._slowdown(request.arms[0])
        block = max(request.block_steps, math.ceil(1.25 * request.block_seconds / step_seconds)) + _besides(request)
        warm_up = warm_up_steps(request, step_seconds) * sum(levels)
        rounds = min(
            self._rounds_until_the_end(request, block), self._rounds_in_time(request, block, levels, began, warm_up)
        )
        if request.one_launch:
            runs = [self._configuration(run, level) for run, level in zip(runs, levels, strict=True)]
        rows = self.rows(noise, levels, rounds, one_launch=request.one_launch)
        self._pass_time(sum(sum(row) for row in rows) * block + self._warm_up_seconds(request, warm_up, began))
        if not rounds and self.script.total_steps is not None:
            ended = tuple(msgspec.structs.replace(run, ending=Completed()) for run in runs)
            return Replicate(runs=ended, rounds=((),) * len(runs), wall_seconds=self.seconds - began)
        return Replicate(runs=tuple(runs), rounds=tuple(map(tuple, rows)), wall_seconds=self.seconds - began)

    def _configuration(self, run: Run, step_seconds: float) -> Run:
        """One configuration of a process, which compiles in its first block; the process says nothing of each."""
        more_seconds = run.startup_seconds - self.script.startup_seconds
        first = Block(steps=1, samples=1, wall_seconds=step_seconds + more_seconds)
        later = Block(steps=8, samples=8, wall_seconds=8 * step_seconds)
        blocks = run.blocks or (first, later, later)
        return msgspec.structs.replace(run, compile=CompileReport(), blocks=blocks)

    def seconds_of_starts(self, request: TurnRequest, runs: Sequence[Run]) -> float:
        """How long all arms take to start: one after the other, or one process."""
        starts = sum(run.startup_seconds for run in runs)
        return starts - (len(runs) - 1) * runs[0].startup_seconds if request.one_launch else starts

    def launch_factor(self, noise: random.Random) -> float:
        """How many times as long the blocks of a launch take."""
        return math.exp(noise.gauss(0.0, self.script.launch_noise))

    def rows(
        self, noise: random.Random, levels: Sequence[float], rounds: int, *, one_launch: bool
    ) -> list[list[float]]:
        """The seconds per sample of each arm, with noise, from its level and launch."""
        rows: list[list[float]] = [[] for _ in levels]
        for number in range(rounds):
            disturbed = 1.0 + self.script.drift * math.sin(number / 3.0 + noise.random())
            for row, level in zip(rows, levels, strict=True):
                row.append(level * disturbed * math.exp(noise.gauss(0.0, self.script.round_noise)))
        return rows

    def _rounds_until_the_end(self, request: TurnRequest, block: int) -> int:
        if self.script.total_steps is None:
            return request.rounds
        of_round = block * len(request.arms) if request.one_launch else block
        return max(0, min(request.rounds, self.script.total_steps // of_round - 4))

    def _rounds_in_time(
        self, request: TurnRequest, block: int, levels: list[float], began: float, warm_up_seconds: float
    ) -> int:
        """How many rounds are over by then, with the margin that real ones are begun with."""
        if request.most_seconds is None:
            return request.rounds
        left = request.most_seconds - (self.seconds - began) - warm_up_seconds
        return max(0, int(left / (1.25 * block * sum(levels))))

    def _warm_up_seconds(self, request: TurnRequest, whole_seconds: float, began: float) -> float:
        """The warm-up of all arms, as far as there is time."""
        if request.most_seconds is None:
            return whole_seconds
        return max(0.0, min(whole_seconds, request.most_seconds - (self.seconds - began)))

    def _run(self, arm: Assignment, steps: int, noise: random.Random) -> Run:
        script = self.script
        ending, done = self._ending(arm, steps)
        phases = {
            name: it * self._slowdown(arm) for name, it in script.phases(arm.plan, replay=is_replayed(arm)).items()
        }
        startup = script.startup_seconds + sum(
            script.effects.get(it, Effect()).startup_seconds for it in arm.plan.settings
        )
        sweep = tuple(
            LoaderRate(setting=it, seconds_per_sample=0.002 / (1 + int(dict(it.values)["num_workers"])), batches=10)
            for it in swept(arm)
        )
        return Run(
            plan=arm.plan,
            seed=arm.seed,
            ending=ending,
            facts=self._facts(arm),
            steps=steps_of(
                phases, self._losses(arm, done, noise), round(script.samples_per_step * script.scale(arm)) or 1
            ),
            invariants=invariants_of(done),
            startup_seconds=startup,
            wall_seconds=startup + done * sum(phases.values()),
            host_peak_bytes=round(script.peak_bytes * script.scale(arm) * script.peak_factor(arm.plan)),
            loader_rates=sweep,
            compile=CompileReport(seconds=startup - script.startup_seconds),
            blocks=self._blocks(arm, done, sum(phases.values())),
            step_end_bytes=self._step_end_bytes(arm, done),
            gradient_groups=self._gradient_groups(arm),
            evidence_path=next(iter(self._evidence_paths(arm)), ""),
            rank_evidence_paths=self._evidence_paths(arm),
        )

    def _evidence_paths(self, arm: Assignment) -> tuple[str, ...]:
        if arm.instrument(CollectEvidence) is None:
            return ()
        return self.script.plan_evidence_paths if arm.plan.settings else self.script.evidence_paths

    def _blocks(self, arm: Assignment, steps: int, step_seconds: float) -> tuple[Block, ...]:
        """The controller's note, if there is one."""
        if scale_of(arm) >= self.script.retries_from:
            return (Block(steps=steps, samples=steps, wall_seconds=steps * step_seconds, allocator_retries=2),)
        if not self.script.others or not steps:
            return ()
        wall = steps * step_seconds
        own = wall / self._slowdown(arm)
        block = Block(
            steps=steps,
            samples=steps,
            wall_seconds=wall,
            own_cpu_seconds=own,
            other_load=self._others,
            waited_seconds=wall - own,
        )
        return (block,)

    def _gradient_groups(self, arm: Assignment) -> tuple[GradientGroup, ...]:
        """Of a gradient of norm 1, with noise around its scale."""
        if self.script.noise is None or arm.instrument(MeasureGradientNoise) is None:
            return ()
        samples = self.script.samples_per_step
        around = [self.script.noise * (1 + 0.2 * (row - 2) / 2) / samples for row in range(5)]
        return tuple(
            GradientGroup(gradients=4, samples=samples, mean_square=1 + it, square_of_mean=1 + it / 4) for it in around
        )

    def _step_end_bytes(self, arm: Assignment, steps: int) -> tuple[int, ...]:
        if arm.instrument(WatchMemory) is None:
            return ()
        growth = round(self.script.growth_bytes * scale_of(arm))
        return tuple(self.script.peak_bytes // 2 + growth * step for step in range(steps))

    def _ending(self, arm: Assignment, steps: int) -> tuple[Ending, int]:
        for setting in arm.plan.settings:
            fails = self.script.effects.get(setting, Effect()).fails
            if fails == "crash":
                return Crashed(exit_code=1, error="RuntimeError: planted"), 0
            if fails == "hang":
                return TimedOut(limit_seconds=arm.block_limit_seconds, during="warm-up"), 3
            if fails == "memory":
                return OutOfMemory(error="planted"), 0
        probed = arm.instrument(WatchMemory) is not None
        if scale_of(arm) > (self.script.largest_scale if probed else self.script.largest_timed_scale):
            return OutOfMemory(error="planted"), 0
        if scale_of(arm) > self.script.largest_scale:
            return OutOfMemory(error="planted"), 0
        if scale_of(arm) >= self.script.breaks_at:
            return Crashed(exit_code=1, error="RuntimeError: shape '[8, 4]' is invalid"), 0
        if scale_of(arm) >= self.script.ends_from:
            return Completed(), 0
        profiled = self.script.plan_profiled_ending if arm.plan.settings else self.script.profiled_ending
        if arm.instrument(CollectEvidence) and not isinstance(profiled, Stopped):
            return profiled, 0
        if not arm.plan.settings and not isinstance(self.script.baseline_ending, Stopped):
            return self.script.baseline_ending, self.script.baseline_steps or 0
        if self.script.backwards_only and arm.step_source != "backward":
            return Completed(), 0
        if self.script.total_steps is not None and steps >= self.script.total_steps:
            return Completed(), self.script.total_steps
        return Stopped(), steps

    def _losses(self, arm: Assignment, steps: int, noise: random.Random) -> tuple[float | None, ...]:
        if not self.script.reads_loss:
            return (None,) * steps
        nudge = arm.instrument(NudgeWeights)
        factor = 1.0 + (self.script.nudges.get(nudge.towards, self.script.nudge) if nudge else 0.0)
        for setting in arm.plan.settings:
            factor *= self.script.effects.get(setting, Effect()).loss
        if not self.script.repeatable:
            factor *= 1.0 + noise.uniform(-0.2, 0.2)
        scale = self.script.scale(arm)
        factor *= 1.0 + self.script.seed_spread * math.sin(7.0 * arm.seed)
        factor += self.script.large_batch_loss * math.log2(scale)
        diverges = any(self.script.effects.get(it, Effect()).fails == "diverge" for it in arm.plan.settings)
        losses = [factor * (1.0 + math.exp(-step * scale / 30.0)) for step in range(steps)]
        return tuple(None if diverges and step >= 12 else loss for step, loss in enumerate(losses))

    def _facts(self, arm: Assignment) -> ScriptFacts:
        by_hand = self.script.backwards_only
        loader = LoaderFacts(
            dataset="Numbers",
            batch_size=self.script.batch_size,
            length=self.script.batches,
            batch_bytes=1000,
            workers=self.script.loader_workers,
            trains=self.script.loader_trains,
        )
        return ScriptFacts(
            processes=processes_of(arm),
            step_source="backward" if by_hand else "optimizer",
            loaders=(loader,) if self.script.has_loader else (),
            models=(ModelFacts(kind="Net", parameters=10, flops_per_step=1e8),),
            optimizers=(OptimizerFacts(kind="SGD", parameters=10, learning_rate=0.1),),
            evaluation=EvaluationFacts(forwards=2, with_gradients=True) if self.script.evaluates else None,
            backwards_per_step=200.0 if by_hand and arm.step_source == "auto" else 1.0,
            threads=self._threads(arm),
        )

    def _noise(self, request: msgspec.Struct) -> random.Random:
        """Noise that depends on the request alone: not on the script's folder, nor on later fields of records."""
        self._note(msgspec.json.encode(request))
        return random.Random(zlib.crc32(f"{world.NUMBER or ''}{told(request)}".encode()) * 1000003 + self.seed)

    def _note(self, text: bytes) -> None:
        if self._within_a_call:
            return
        self.requests.append(text)
        if self._interrupt is not None and len(self.requests) == self._interrupt.call:
            raise self._interrupt.error

    def _wait_for(self, ending: Ending) -> None:
        if isinstance(ending, TimedOut):
            self._pass_time(ending.limit_seconds)
