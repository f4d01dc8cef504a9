"""What a child measured."""

from __future__ import annotations

from typing import TypeAlias

from hotlap.records.base import Record
from hotlap.records.engines import EngineReport
from hotlap.records.memory import MemoryAccount
from hotlap.records.numbers import BadNumber
from hotlap.records.phases import StepPhase
from hotlap.records.script import Invariants, ScriptFacts
from hotlap.records.workload import Plan, Setting


class Steps(Record, frozen=True, kw_only=True):
    """The time account, one row per step, as columns of equal length.

    ``phases`` are the seconds of each phase that was observed, which in each row add up to ``wall_seconds``;
    ``outside_seconds`` (evaluation, rollout, checkpoints) comes on top, and ``evaluation_seconds`` and
    ``checkpoint_seconds`` are parts of it.

    ``loss`` is None where it could not be read; ``not_finite`` are the rows whose loss was NaN or
    infinite (JSON knows neither), and there ``loss`` is None too.

    Where a step is a call of ``generate()``, ``first_token_seconds`` is the time to its first token, and
    ``token_seconds`` the mean of its further ones (None: there was none); empty otherwise.
    """

    wall_seconds: tuple[float, ...] = ()
    phases: tuple[tuple[StepPhase, tuple[float, ...]], ...] = ()
    outside_seconds: tuple[float, ...] = ()
    evaluation_seconds: tuple[float, ...] = ()
    checkpoint_seconds: tuple[float, ...] = ()
    samples: tuple[int, ...] = ()
    loss: tuple[float | None, ...] = ()
    not_finite: tuple[int, ...] = ()
    first_token_seconds: tuple[float, ...] = ()
    token_seconds: tuple[float | None, ...] = ()

    def seconds_in(self, phase: StepPhase) -> tuple[float, ...]:
        """The column of a phase; empty where it was not observed."""
        return dict(self.phases).get(phase, ())


class Block(Record, frozen=True, kw_only=True):
    """Consecutive steps that were timed as one: the clock was read at both ends only.

    ``wall_seconds`` excludes time outside steps. ``own_cpu_seconds`` is that of this process and its workers;
    ``other_load`` is how many of the cores that it may use were kept busy by others (a hypervisor that took them away
    included), and ``waited_seconds`` how long its threads, taken together, were ready to run and waited for a core
    (None: not reported by the system). ``page_faults`` counts how often the system had to provide a page of memory.
    Energies (None: unknown) are those of whole devices, as many as there are trainers, and of all processors of the
    machine, including other programs' use. ``device_power_sampled`` says that the former was not counted, but computed
    from samples of power. In each of ``allocator_retries`` the device's allocator found no memory, freed its cache and
    tried again: the time of such a block is not representative of the script. ``first_step`` is the row of the account
    at which the block begins (None in studies that did not record it). ``device_peak_bytes`` is the most that tensors
    held on a device within the block (None: not asked for, which it is where a process switches levers, or no device).
    """

    steps: int
    samples: int
    wall_seconds: float
    outside_seconds: float = 0.0
    own_cpu_seconds: float = 0.0
    other_load: float = 0.0
    waited_seconds: float | None = None
    involuntary_switches: int = 0
    page_faults: int = 0
    device_clock_mhz: float | None = None
    throttled: str = ""
    device_energy_joules: float | None = None
    device_power_sampled: bool = False
    allocator_retries: int = 0
    processor_energy_joules: float | None = None
    first_step: int | None = None
    device_peak_bytes: int | None = None


class GraphBreak(Record, frozen=True, kw_only=True):
    """One graph break of ``torch.compile``."""

    reason: str
    file: str = ""
    line: int = 0
    count: int = 1


class CompileReport(Record, frozen=True, kw_only=True):
    """What compiling cost, and how much of the model it covers.

    ``fallbacks`` are the places where eager code runs although compiling was requested. ``loaded`` graphs were compiled
    by an earlier launch, whose code was loaded.
    """

    seconds: float = 0.0
    graphs: int = 0
    loaded: int = 0
    graph_breaks: tuple[GraphBreak, ...] = ()
    recompiles: tuple[GraphBreak, ...] = ()
    fallbacks: tuple[GraphBreak, ...] = ()


class FileWrite(Record, frozen=True, kw_only=True):
    """A file that the script wrote or changed; ``redirected``: it wrote to a copy, and the file itself is untouched."""

    path: str
    redirected: bool


class Contact(Record, frozen=True, kw_only=True):
    """An address that a trial connected to; without a ``port`` only the address that ``name`` was resolved to."""

    address: str
    port: int = 0
    name: str = ""

    @property
    def host(self) -> str:
        """As reports show it: ``huggingface.co:443``, or the address where no name is known."""
        shown = self.name or (f"[{self.address}]" if ":" in self.address else self.address)
        return f"{shown}:{self.port}"


class Completed(Record, frozen=True, kw_only=True, tag="completed"):
    """The script ran to its own end."""

    exit_code: int = 0


class Stopped(Record, frozen=True, kw_only=True, tag="stopped"):
    """hotlap ended the script after its last wanted step."""


class Crashed(Record, frozen=True, kw_only=True, tag="crashed"):
    """The script failed; ``error`` is the last line of its traceback, ``output_tail`` the end of its output.

    ``killed_from_outside``: by a SIGKILL that hotlap did not send, nor, as far as is known, the kernel because memory
    ran out. ``denied_path``: the path, as the script wrote it, that the isolation of the trial kept it from writing,
    where that is why it failed.
    """

    exit_code: int
    error: str = ""
    output_tail: str = ""
    steps_done: int = 0
    killed_from_outside: bool = False
    denied_path: str = ""


class OutOfMemory(Record, frozen=True, kw_only=True, tag="out-of-memory"):
    """The script ran out of device or host memory."""

    error: str = ""
    output_tail: str = ""
    steps_done: int = 0


class TimedOut(Record, frozen=True, kw_only=True, tag="timed-out"):
    """The script made no progress for ``limit_seconds``."""

    limit_seconds: float
    during: str = ""
    output_tail: str = ""
    steps_done: int = 0


Ending: TypeAlias = Completed | Stopped | Crashed | OutOfMemory | TimedOut


class HeldOutLoss(Record, frozen=True, kw_only=True):
    """One evaluation of the script: the mean of the losses that it computed, after ``step`` steps and ``trained``
    samples; ``samples`` were evaluated."""

    step: int
    trained: int
    loss: float
    samples: int


class BlockCost(Record, frozen=True, kw_only=True):
    """One of the model's repeated blocks: the seconds of its forward pass, and the bytes that it keeps for its backward
    pass."""

    forward_seconds: float
    saved_bytes: int


class GradientGroup(Record, frozen=True, kw_only=True):
    """The gradients of consecutive batches of ``samples`` samples at the same weights: the mean of their squared norms,
    and the squared norm of their mean."""

    gradients: int
    samples: float
    mean_square: float
    square_of_mean: float


class LoaderRate(Record, frozen=True, kw_only=True):
    """The training loader alone, with one setting: seconds per sample in steady state.

    ``own_cpu_seconds_per_sample`` is what the training thread itself computed for one: to make it, or, with workers, to
    receive it from them (None in studies that did not measure it). Where ``error`` is not empty the setting did not
    work, and ``seconds_per_sample`` means nothing.
    """

    setting: Setting
    seconds_per_sample: float
    own_cpu_seconds_per_sample: float | None = None
    first_batch_seconds: float = 0.0
    batches: int = 0
    error: str = ""


class RestoredStep(Record, frozen=True, kw_only=True):
    """A step (the first one is 0) that started from where the same step of another run did.

    ``error`` is how far apart what both change of the weights is, as a share of its length in the other run, and
    ``length_ratio`` how many times as long it is; both None where the other run's step changed nothing, or this one's
    something that is not finite. Each weight counts by the other run's gradient: where that is rounding alone (a bias
    before a batch normalization), so is what an optimizer like Adam makes of it. ``tensor_errors`` are the errors of
    each of the model's tensors by itself, None for one that hardly counts.
    """

    step: int
    error: float | None = None
    length_ratio: float | None = None
    tensor_errors: tuple[float | None, ...] = ()


class Run(Record, frozen=True, kw_only=True):
    """One launch of the script, from its start to its end.

    ``blocks`` are the timed blocks in order (warm-up blocks first, ``warm_up_blocks`` of them); a loader sweep has one
    without steps, for all of it; ``steps`` is the account of all steps, warm-up included. ``gradients_path`` names the
    file with the first step's gradients where they were asked for, ``outputs_path`` that with the outputs of an
    inference target (:class:`hotlap.records.CaptureOutputs`), ``artefact_path`` the folder with its deployable model
    (:class:`hotlap.records.WriteArtefact`), and ``evidence_path`` the :class:`hotlap.evidence.RunEvidence` in JSON.
    With several ranks the ``rank_`` fields have one row for each: the wall seconds of its steps, and those of them that
    passed before it called backward, which is before it synchronised with the others; its losses (NaN as None),
    samples, file of gradients, and digest of its weights at the end (``weights_digest`` of
    :class:`DataParallelFacts`; empty where none was made). ``imported_from_original`` are modules that a workload in a
    checkout imported from the original tree nevertheless. ``hosts`` are those that it connected to, as
    ``name:port`` or ``address:port``, this machine's own left out. ``device_peak_bytes`` is the most that its tensors
    held of a device, and ``device_footprint_bytes`` the most that it used of it, the allocator's
    reserve and the context included, and also what other processes held at its end. ``engine`` is what ran an inference
    target's model instead of torch (None: torch itself did). ``resting_bytes`` is the memory of such a target before
    the first call, when everything is loaded: of tensors on the device where its model is on one, else what the process
    holds (0: not observed).
    ``evaluations``, ``gradient_groups`` and ``block_costs`` are there where they were requested
    (:class:`hotlap.records.WatchEvaluation`, :class:`hotlap.records.MeasureGradientNoise`,
    :class:`hotlap.records.MeasureBlocks`).
    Of ``kept_steps`` it was kept what they start from (:class:`hotlap.records.KeepSteps`); ``restored_steps`` started
    from what was kept in another run (:class:`hotlap.records.RestoreSteps`).
    ``step_end_bytes`` is the memory in use at the end of each step, where it was requested
    (:class:`hotlap.records.WatchMemory`).
    ``wall_seconds`` excludes the time for which it was paused while others had their turns; the longest of these pauses
    took ``longest_pause_seconds``.
    """

    plan: Plan = Plan()
    ending: Ending = Stopped()
    facts: ScriptFacts = ScriptFacts()
    steps: Steps = Steps()
    invariants: Invariants = Invariants()
    blocks: tuple[Block, ...] = ()
    warm_up_blocks: int = 0
    startup_seconds: float = 0.0
    wall_seconds: float = 0.0
    longest_pause_seconds: float = 0.0
    outside_seconds: float = 0.0
    host_peak_bytes: int = 0
    device_peak_bytes: int = 0
    device_footprint_bytes: int = 0
    resting_bytes: int = 0
    compile: CompileReport = CompileReport()
    engine: EngineReport | None = None
    scaler_skipped_steps: int = 0
    notes: tuple[str, ...] = ()
    files: tuple[FileWrite, ...] = ()
    hosts: tuple[str, ...] = ()
    output_path: str = ""
    gradients_path: str = ""
    outputs_path: str = ""
    artefact_path: str = ""
    evidence_path: str = ""
    rank_step_seconds: tuple[tuple[float, ...], ...] = ()
    rank_forward_seconds: tuple[tuple[float, ...], ...] = ()
    rank_other_seconds: tuple[tuple[float, ...], ...] = ()
    rank_evidence_paths: tuple[str, ...] = ()
    rank_losses: tuple[tuple[float | None, ...], ...] = ()
    rank_samples: tuple[tuple[int, ...], ...] = ()
    rank_weights: tuple[str, ...] = ()
    rank_gradients_paths: tuple[str, ...] = ()
    imported_from_original: tuple[str, ...] = ()
    loader_rates: tuple[LoaderRate, ...] = ()
    bad_number: BadNumber | None = None
    memory: MemoryAccount | None = None
    step_end_bytes: tuple[int, ...] = ()
    evaluations: tuple[HeldOutLoss, ...] = ()
    gradient_groups: tuple[GradientGroup, ...] = ()
    block_costs: tuple[BlockCost, ...] = ()
    kept_steps: tuple[int, ...] = ()
    restored_steps: tuple[RestoredStep, ...] = ()
    seed: int = 0


class Replicate(Record, frozen=True, kw_only=True):
    """One replicate: a fresh launch of every arm, taking turns block by block.

    ``runs[i]`` is the run of the i-th requested arm; ``rounds[i][r]`` its wall seconds per sample in
    round r. All rows have the same length; it is zero when an arm ended early.
    ``interleaved`` is false where memory forbade it and whole launches were alternated instead.
    ``node`` is the node of a cluster that all arms ran on (empty: this machine), after ``lost_nodes`` were lost.
    """

    runs: tuple[Run, ...]
    rounds: tuple[tuple[float, ...], ...]
    interleaved: bool = True
    wall_seconds: float = 0.0
    node: str = ""
    lost_nodes: tuple[str, ...] = ()
