"""Everything known of a script when its causes of slowness are diagnosed."""

from __future__ import annotations

from collections.abc import Iterable

from hotlap.evidence import LineSamples, RunEvidence
from hotlap.records import (
    BatchRate,
    Ceiling,
    CollectiveRate,
    CompileReport,
    LoaderRate,
    Machine,
    Measurement,
    Outcome,
    PhaseAccount,
    Plan,
    Record,
    RunAccount,
    ScriptFacts,
    Situation,
    Steps,
)
from hotlap.traces.collective_records import CollectiveComparison, ExposedCommunication
from hotlap.traces.records import Breakdown, HostTime, OperatorRow


class Profile(Record, frozen=True, kw_only=True):
    """The input of a rule. A field with its default value was not measured, and cannot support a finding.

    ``account``, ``run_account`` and ``steps`` are those of the unmodified script (``account`` without the warm-up);
    ``evidence``, ``breakdowns`` (one per rank), ``operators`` and ``host_time`` come from the profiled run, whose times
    are longer, and so is its start-up of ``watched_startup_seconds``. With several ranks, ``rank_step_seconds`` are the
    wall seconds of each step, one row per rank, ``rank_forward_seconds`` those until backward was called, and
    ``rank_other_seconds`` those outside of all phases; ``rank_losses`` and ``rank_samples`` are each step's loss and
    samples, ``rank_weights`` a digest of each rank's weights at the end, and
    ``rank_lines`` the sampled lines of each rank in the profiled run (none: not all ranks have any).
    ``collectives`` are those that the ranks' traces share (None: fewer than two have any), ``exposed`` is what of them
    ran while nothing was computed, one per rank, and ``measured_rates`` what collectives take between idle processes of
    this machine, where that was measured.
    ``run_seconds`` is the duration of an unmodified run that ended by itself (0: hotlap ended it, and its length is
    unknown). ``batch_rates`` are the rates of the model alone with other batch sizes, if requested.
    ``fresh_bytes_per_step`` is the memory that the system had to provide in an
    unmodified step. ``outcomes`` are the results of trials of levers so far; there are none before the first trial.
    ``disturbed`` are the measurements during which other processes kept the machine busy. ``plan`` is what the profiled
    run ran with; a profile of a plan has what that run showed, and no account or ceilings.
    """

    facts: ScriptFacts = ScriptFacts()
    machine: Machine = Machine()
    account: PhaseAccount = PhaseAccount()
    run_account: RunAccount | None = None
    steps: Steps = Steps()
    ceilings: tuple[Ceiling, ...] = ()
    loader_rates: tuple[LoaderRate, ...] = ()
    batch_rates: tuple[BatchRate, ...] = ()
    model_flop_utilisation: float | None = None
    compile: CompileReport = CompileReport()
    scaler_skipped_steps: int = 0
    host_peak_bytes: int = 0
    device_peak_bytes: int = 0
    evidence: RunEvidence = RunEvidence()
    breakdowns: tuple[Breakdown, ...] = ()
    operators: tuple[OperatorRow, ...] = ()
    host_time: HostTime | None = None
    watched_startup_seconds: float = 0.0
    rank_step_seconds: tuple[tuple[float, ...], ...] = ()
    rank_forward_seconds: tuple[tuple[float, ...], ...] = ()
    rank_other_seconds: tuple[tuple[float, ...], ...] = ()
    rank_losses: tuple[tuple[float | None, ...], ...] = ()
    rank_samples: tuple[tuple[int, ...], ...] = ()
    rank_weights: tuple[str, ...] = ()
    rank_lines: tuple[LineSamples, ...] = ()
    collectives: CollectiveComparison | None = None
    exposed: tuple[ExposedCommunication, ...] = ()
    measured_rates: tuple[CollectiveRate, ...] = ()
    run_seconds: float = 0.0
    fresh_bytes_per_step: float = 0.0
    outcomes: tuple[Outcome, ...] = ()
    disturbed: tuple[Measurement, ...] = ()
    plan: Plan = Plan()

    @property
    def situation(self) -> Situation:
        """Return the part of the profile that levers receive."""
        return Situation(
            facts=self.facts,
            machine=self.machine,
            account=self.account,
            ceilings=self.ceilings,
            loader_rates=self.loader_rates,
            device_peak_bytes=self.device_peak_bytes,
            host_peak_bytes=self.host_peak_bytes,
        )

    def was_disturbed(self, measurements: Iterable[Measurement]) -> bool:
        """Whether other processes disturbed one of these measurements."""
        return not set(self.disturbed).isdisjoint(measurements)

    @property
    def on_accelerator(self) -> bool:
        """Whether the script trains on a device other than the CPU."""
        return self.facts.device.partition(":")[0] not in ("", "cpu")
