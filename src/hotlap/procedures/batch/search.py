"""The search for the batch size: double it, then narrow down to where more samples per step gain nothing.

Each size first runs alone, on the largest samples of the data set, to see whether it fits; then it takes turns with the
script's own size.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from hotlap import plan as plans_of
from hotlap.experiment.draft import OnProgress, StudyDraft, say_nothing
from hotlap.experiment.failures import ran_through
from hotlap.experiment.observe import Observation
from hotlap.experiment.options import Options, check
from hotlap.experiment.plan_ahead import Forecast, Launches
from hotlap.experiment.stages import begin, guarded, opened
from hotlap.experiment.trials import Arm, Trials
from hotlap.levers.api import all_levers
from hotlap.measure.trend import settled_growth
from hotlap.procedures.batch import knee
from hotlap.procedures.batch.advice import note_advice
from hotlap.procedures.batch.changing import WAY_OUT, Changer, beyond_data_set, changer_of
from hotlap.procedures.batch.model_alone import measure_batch_sizes, sizes_launches
from hotlap.procedures.batch.timing import REPLICATES, SizeTimer, cost_of, is_scaled, samples_of
from hotlap.records import (
    BatchRate,
    BatchSearch,
    BoundBy,
    GuardMemory,
    LargestSamples,
    Machine,
    OutOfMemory,
    Run,
    Study,
    WatchFailedPasses,
    WatchMemory,
    Workload,
)
from hotlap.study import Journal
from hotlap.trial.executor import Executor
from hotlap.wording import ending_text

PROBE_STEPS = 40
GROWTH_HORIZON_STEPS = 10_000
"""Steps for which a batch must fit if its memory keeps growing as it did in the probe."""

_PROBE_SECONDS = 10.0
_FEWEST_PROBE_STEPS = 16
_LEAST_GROWTH_BYTES = 1 << 20
_LEAST_GROWTH_SHARE = 0.01
"""Share of the initial memory that must be added within a probe to count as growth."""

_SIDE_BY_SIDE_SHARE = 0.8
"""The share of memory that two launches may use together; otherwise whole launches are alternated."""


def search_batch(
    workload: Workload,
    options: Options,
    executor: Executor,
    on_progress: OnProgress = say_nothing,
    *,
    journal: Journal | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Study:
    """Find the smallest batch size with nearly the best throughput, among those that fit with headroom.

    Raises as :func:`hotlap.procedures.search.tune` does, except that no budget is too small.
    """
    check(options, all_levers())
    trials, draft = opened(workload, options, executor, on_progress, journal, clock, kind="batch")
    return guarded(draft, lambda: _search(trials, draft), lambda: draft.close("interrupted"))


def _search(trials: Trials, draft: StudyDraft) -> None:
    machine, observation = begin(trials, draft, on_free_cores=True)
    found = find_knee(trials, draft, machine, observation)
    if found.rates and trials.options.batch.model_alone:
        scales = [it.scale for it in found.rates if it.scale != 1 and not it.error]
        draft.plan_ahead("ceilings", Forecast.of(*sizes_launches(trials, observation, scales)))
        draft.update(batch_rates=measure_batch_sizes(trials, draft, observation, machine, scales))
    if found.knee and found.knee != found.own:
        note_advice(trials, draft, observation, found.knee / found.own)
    draft.close("finished")


def find_knee(
    trials: Trials, draft: StudyDraft, machine: Machine, observation: Observation, *, smaller: bool = True
) -> BatchSearch:
    """Search for the knee by the options of ``hotlap batch``; keep the study up to date. No lever is on.

    ``smaller``: sizes below the script's own are tried as well.
    """
    choices = trials.options.batch
    changer = changer_of(trials.workload, observation.facts, choices.flag)
    blank = BatchSearch(flag=choices.flag, headroom=choices.headroom, tolerance=knee.TOLERANCE)
    obstacle = changer if isinstance(changer, str) else beyond_data_set(changer, observation.account.samples_per_step)
    if isinstance(changer, str) or obstacle:
        found = msgspec.structs.replace(blank, obstacle=obstacle)
        draft.update(batch_search=found)
        return found
    blank = msgspec.structs.replace(blank, own=changer.own, changed_by=changer.changed_by)
    interleaved = trials.interleaved
    search = _Search(trials, draft, observation, machine, changer, blank)
    try:
        search.run(smaller=smaller)
    finally:
        trials.interleaved = interleaved
    return search.found


class _Search:
    def __init__(
        self,
        trials: Trials,
        draft: StudyDraft,
        observation: Observation,
        machine: Machine,
        changer: Changer,
        blank: BatchSearch,
    ) -> None:
        self._trials = trials
        self._draft = draft
        self._own_run = observation.run
        self._changer = changer
        self._on_device = not observation.facts.device.startswith("cpu")
        self._limit_bytes = _memory_bytes(machine, on_device=self._on_device)
        self._found = msgspec.structs.replace(blank, memory_bytes=self._limit_bytes)
        self._others: list[BatchRate] = []
        self._launches = 0
        self._bound_by: BoundBy = ""
        self._timer = SizeTimer(
            trials=trials,
            draft=draft,
            samples=observation.account.samples_per_step,
            arms=lambda scale: (self._timed_arm(changer.own), self._timed_arm(round(scale * changer.own))),
            what="The script",
        )

    @property
    def rates(self) -> tuple[BatchRate, ...]:
        """All sizes so far, including the script's own, in ascending order."""
        own = [_sized(self._timer.own(), self._changer.own)] if self._timer.replicates else []
        return tuple(sorted([*self._others, *own], key=lambda it: it.batch_size))

    def run(self, *, smaller: bool) -> None:
        """Double, halve if that gained nothing and is wanted, then narrow down; keep the study up to date."""
        own = self._changer.own
        # Where twice the size gains nothing smaller ones follow, else larger ones; then one in between.
        self._plan_sizes([it for it in (2 * own, own // 2 * smaller, 3 * own // 2) if it and not self._bound(it)])
        self._double()
        if smaller:
            self._halve()
        self._narrow(knee.next_below_failure)
        self._narrow(knee.next_below_knee)
        self._record()
        self._timer.judge()

    def _double(self) -> None:
        size, most = self._changer.own, self._trials.options.batch.most
        while not self._bound_by:
            size = 2 * size if most is None or size >= most else min(2 * size, most)
            self._bound_by = self._bound(size)
            if self._bound_by:
                return
            self._plan_sizes([size, 3 * size // 4])
            rate = self._measure(size)
            if rate.error:
                self._bound_by = "memory" if rate.out_of_memory else "budget" if self._spent(size) else "failure"
            elif not knee.still_rising(self.rates):
                self._bound_by = "throughput"

    def _halve(self) -> None:
        """Try smaller sizes as long as they are no slower."""
        size = self._changer.own
        while (size := size // 2) >= 1:
            found = knee.knee(self.rates)
            if found is not None and found.batch_size > min(it.batch_size for it in knee.measured(self.rates)):
                return
            self._plan_sizes([size, 3 * size // 2])
            if self._measure(size).error:
                return

    def _narrow(self, following: Callable[[tuple[BatchRate, ...]], int]) -> None:
        while size := following(self.rates):
            if any(it.batch_size == size for it in self.rates) or self._bound(size):
                return
            self._plan_sizes([size])
            rate = self._measure(size)
            if rate.error and not rate.out_of_memory:
                return

    def _bound(self, size: int) -> BoundBy:
        """Why a size cannot be tried, before measuring; empty if it can."""
        most = self._trials.options.batch.most
        if most is not None and size > most:
            return "cap"
        if self._changer.samples is not None and size > self._changer.samples:
            return "data-set"
        return ""

    def _spent(self, size: int) -> bool:
        return not self._trials.fits(self._cost(size))

    def _cost(self, size: int) -> float:
        return size_seconds(self._trials, size / self._changer.own)

    def _plan_sizes(self, sizes: Sequence[int]) -> None:
        """Plan these sizes, each with a probe and its replicates."""
        count = (1 + 2 * REPLICATES) * len(sizes)
        purpose = "for another batch size" if len(sizes) == 1 else f"for {len(sizes)} other batch sizes"
        part = Launches(count, sum(map(self._cost, sizes)), purpose)
        self._draft.plan_ahead("trial", Forecast.of(part))

    def _measure(self, size: int) -> BatchRate:
        scale = size / self._changer.own
        if self._spent(size):
            rate = self._timer.failed(scale, "Not tried: the budget is too small.")
        else:
            rate = self._probed(size) or self._timed(size)
        rate = _sized(rate, size)
        self._others.append(rate)
        self._record()
        return rate

    def _probed(self, size: int) -> BatchRate | None:
        """Why the size does not work, from one launch by itself; None if it works."""
        scale = size / self._changer.own
        self._draft.report("trial", f"Does a batch of {size} fit?")
        arm = self._arm(size)
        assignment = self._trials.assignment()
        headroom = self._found.headroom
        guards = (LargestSamples(), WatchFailedPasses(), WatchMemory(), GuardMemory(headroom=headroom))
        assignment = msgspec.structs.replace(
            assignment,
            workload=arm.workload or assignment.workload,
            instruments=(*arm.instruments, *guards),
        )
        run = self._trials.launch(
            assignment, steps=PROBE_STEPS, seconds=_PROBE_SECONDS, minimum_steps=_FEWEST_PROBE_STEPS
        )
        self._launches += 1
        if isinstance(run.ending, OutOfMemory):
            return self._timer.failed(scale, f"Out of memory. {run.ending.error}".strip(), out_of_memory=True)
        if not ran_through(run):
            hint = "" if self._found.flag else f" Its model may have the batch size built in. {WAY_OUT}"
            return self._timer.failed(scale, f"{ending_text(run.ending)}{hint}")
        if not run.steps.samples:
            return self._timer.failed(scale, "It ended without a training step: its data set may hold no such batch.")
        if not is_scaled(samples_of(self._own_run), samples_of(run), scale):
            hint = "" if self._found.flag else f" {WAY_OUT}"
            return self._timer.failed(scale, f"The script's batches stayed as they were.{hint}")
        return self._crowded(run, scale)

    def _crowded(self, run: Run, scale: float) -> BatchRate | None:
        """Why a size that ran leaves too little memory; also decides how the next launches share the memory."""
        retries = sum(it.allocator_retries for it in run.blocks)
        if retries:
            reason = f"The device's memory was full: its allocator had to free its cache and retry {retries} times."
            return self._timer.failed(scale, reason, out_of_memory=True)
        peak = max(run.device_peak_bytes, run.device_footprint_bytes) if self._on_device else run.host_peak_bytes
        if self._limit_bytes and peak > (1 - self._found.headroom) * self._limit_bytes:
            reason = f"It took {100 * peak / self._limit_bytes:.0f} % of the memory, more than the headroom allows."
            return self._timer.failed(scale, reason, out_of_memory=True)
        growth = _growth_per_step(run.step_end_bytes)
        left = (1 - self._found.headroom) * self._limit_bytes - peak
        if self._limit_bytes and growth * GROWTH_HORIZON_STEPS > left:
            reason = (
                f"Its memory grows by {_mebibytes(growth)} per step, and would pass the headroom after about "
                f"{_two_digits(left / growth)} more steps. `hotlap memory` shows what grows."
            )
            return self._timer.failed(scale, reason, out_of_memory=True)
        own = self._own_run.device_footprint_bytes if self._on_device else self._own_run.host_peak_bytes
        fits = not self._limit_bytes or own + peak <= _SIDE_BY_SIDE_SHARE * self._limit_bytes
        self._trials.interleaved = fits
        return None

    def _timed(self, size: int) -> BatchRate:
        rate = self._timer.timed(size / self._changer.own)
        self._launches += 2 * REPLICATES
        return rate

    def _timed_arm(self, size: int) -> Arm:
        """An arm that ends where the script catches an error of memory: such a step would count as a fast one."""
        arm = self._arm(size)
        return replace(arm, instruments=(*arm.instruments, WatchFailedPasses()))

    def _arm(self, size: int) -> Arm:
        return Arm(workload=self._changer.workload(size), instruments=self._changer.instruments(size))

    @property
    def found(self) -> BatchSearch:
        """The result so far."""
        rates = self.rates
        found = knee.knee(rates)
        worked = knee.measured(rates)
        return msgspec.structs.replace(
            self._found,
            rates=rates,
            knee=found.batch_size if found is not None else 0,
            bound_by=self._bound_by,
            largest_fitting=worked[-1].batch_size if worked else 0,
            launches=self._launches,
        )

    def _record(self) -> None:
        self._draft.update(batch_search=self.found)


def size_seconds(trials: Trials, scale: float) -> float:
    """What a probe of ``scale`` times the script's own size takes, and its replicates."""
    costs, longer = trials.costs, max(1.0, scale)
    fewest, all_steps = (longer * costs.of_steps(it) for it in (_FEWEST_PROBE_STEPS, PROBE_STEPS))
    probe = costs.of_launch(plans_of.EMPTY, 0) + max(fewest, min(all_steps, _PROBE_SECONDS))
    return probe + cost_of(trials, scale)


def _sized(rate: BatchRate, size: int) -> BatchRate:
    return msgspec.structs.replace(rate, batch_size=size)


def _growth_per_step(column: Sequence[int]) -> float:
    """Return the bytes that memory grows by per step of a probe; 0 within noise."""
    growth = settled_growth(column)
    added = growth * len(column)
    return growth if column and added >= max(_LEAST_GROWTH_BYTES, _LEAST_GROWTH_SHARE * column[0]) else 0.0


def _mebibytes(amount: float) -> str:
    return f"{amount / (1 << 20):.2g} MiB"


def _two_digits(steps: float) -> str:
    """Format with two significant digits: the estimate is not more precise."""
    return f"{float(f'{max(1.0, steps):.2g}'):,.0f}"


def _memory_bytes(machine: Machine, *, on_device: bool) -> int:
    """The memory limit of the search: that of the smallest device, or of this machine."""
    if on_device:
        return min((it.memory_bytes for it in machine.accelerators), default=0)
    return machine.memory_bytes
