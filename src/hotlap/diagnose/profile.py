"""All that is known of one script when its causes of slowness are looked for."""

from __future__ import annotations

from collections.abc import Iterable

from hotlap.evidence import RunEvidence
from hotlap.records import (
    BatchRate,
    Ceiling,
    CompileReport,
    LoaderRate,
    Machine,
    Measurement,
    Outcome,
    PhaseAccount,
    Record,
    RunAccount,
    ScriptFacts,
    Situation,
    Steps,
)
from hotlap.traces.records import Breakdown, HostTime, OperatorRow


class Profile(Record, frozen=True, kw_only=True):
    """What a rule is shown. A field at its default was not measured, and gives no ground for a finding.

    ``account``, ``run_account`` and ``steps`` are the untouched script's own (warm-up left out of ``account``);
    ``evidence``, ``breakdowns`` (one a rank), ``operators`` and ``host_time`` come from the profiled run, whose times
    are longer, and so is its start-up of ``watched_startup_seconds``.
    ``rank_step_seconds`` are the wall seconds of each step, one row a rank, where there are several, and
    ``rank_forward_seconds`` those until backward was called, and ``rank_other_seconds`` those
    outside of all phases. ``run_seconds`` is how long the untouched script ran where
    it came to its own end (0: hotlap ended it, and its length is unknown). ``batch_rates`` is the model alone with
    other batch sizes, where these were asked for. ``fresh_bytes_per_step`` is the memory that the system had to provide
    in an untouched step. ``outcomes`` is what trials have shown of the levers so far; there
    are none before the first trial. ``disturbed`` are the measurements during which others kept the machine busy.
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
    run_seconds: float = 0.0
    fresh_bytes_per_step: float = 0.0
    outcomes: tuple[Outcome, ...] = ()
    disturbed: tuple[Measurement, ...] = ()

    @property
    def situation(self) -> Situation:
        """The part of it that levers are shown."""
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
        """Whether others kept the machine busy during one of these."""
        return not set(self.disturbed).isdisjoint(measurements)

    @property
    def on_accelerator(self) -> bool:
        """Whether the script trains on a device other than the CPU."""
        return self.facts.device.partition(":")[0] not in ("", "cpu")
