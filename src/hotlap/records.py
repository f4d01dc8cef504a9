"""The frozen records that cross a room's border.

No logic and no torch in here: this module is imported into the user's training process, by the
search, and by every renderer. (A study names who renders it for a notebook, which is all.) Times are
in seconds, memory in bytes, and the name says so. Every record is an immutable
:class:`msgspec.Struct`; ``msgspec.json`` and ``msgspec.to_builtins`` turn them into JSON and back,
checking types on the way in. Unknown fields are ignored and new fields carry defaults, so that older
studies stay readable.
"""

from __future__ import annotations

import importlib
from typing import Literal, TypeAlias

import msgspec

Value: TypeAlias = bool | int | float | str
Values: TypeAlias = tuple[tuple[str, Value], ...]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all records: immutable, keyword-only, compared by value."""


# ---------------------------------------------------------------------------------------------
# What is run, and with what
# ---------------------------------------------------------------------------------------------


class Checkout(Record, frozen=True, kw_only=True):
    """A copy of the user's source tree, in which a workload runs in the place of the tree itself.

    ``original`` is the tree's topmost folder and ``copy`` the copy's. ``revision`` is the git commit that the copy
    shows; empty, it shows the tree as it is now. A folder that is searched for modules and lies in the original is
    searched in the copy instead, and ``python_path`` names further ones in the copy.
    """

    original: str
    copy: str
    revision: str = ""
    python_path: tuple[str, ...] = ()


class Workload(Record, frozen=True, kw_only=True):
    """The user's command: what python is told to run, and where.

    ``kind`` is ``script`` (``target`` is a path) or ``module`` (``target`` is a dotted name, run as
    ``python -m`` does). ``torchrun train.py`` is the module ``torch.distributed.run``. ``checkout`` is there where it
    runs in a copy of its source tree.
    """

    kind: Literal["script", "module"]
    target: str
    arguments: tuple[str, ...] = ()
    directory: str
    python: str
    checkout: Checkout | None = None


class Source(Record, frozen=True, kw_only=True):
    """The state of the user's source, as far as it could be told.

    ``git_revision`` is the commit that was checked out (empty: no repository, or no git). ``git_modified`` says whether
    files that git tracks differed from it (None: not known). ``script_sha256`` is the script's own digest (empty: it
    was not found, or is very large).
    """

    git_revision: str = ""
    git_modified: bool | None = None
    script_sha256: str = ""


class Setting(Record, frozen=True, kw_only=True):
    """One lever with the values it is used with; ``values`` is sorted by key."""

    lever: str
    values: Values = ()


class Plan(Record, frozen=True, kw_only=True):
    """The levers that are switched on together, in the order in which they are installed."""

    settings: tuple[Setting, ...] = ()


# ---------------------------------------------------------------------------------------------
# What one child is asked to do
# ---------------------------------------------------------------------------------------------

StepSource: TypeAlias = Literal["auto", "optimizer", "backward"]


class Assignment(Record, frozen=True, kw_only=True):
    """Everything that a child process must know about the trial it is.

    ``observe`` also counts operations and watches for randomness, which costs a few of the first steps;
    ``replay`` feeds the first training batch again and again, so that only the model is timed;
    ``loader_sweep`` times the training loader alone with each of these settings, and no model.
    The fields from ``without_dropout`` on serve the comparison of numbers, never a timing:
    ``reference_precision`` computes in float64, ``nudge`` moves every initial weight by one unit in the last place,
    ``rounded_weights`` rounds them to that number format, ``capture_gradients`` saves the gradients of the first step,
    ``augmentation_seed`` reseeds what the data pipeline draws while weights and sample order stay.
    ``collect_evidence`` watches for the causes of slowness (:mod:`hotlap.evidence`), and ``profiled_steps`` of the last
    steps run under ``torch.profiler``; both make steps longer, and such a run's times are compared with nothing.
    ``watch_numbers`` ends the run at the first loss, gradient or weight that is NaN or infinite; from step
    ``check_numbers_from`` on (0: from torch's import on) every operation is checked too, without ``torch.compile``.
    """

    workload: Workload
    plan: Plan = Plan()
    seed: int = 0
    step_source: StepSource = "auto"
    observe: bool = False
    replay: bool = False
    loader_sweep: tuple[Setting, ...] = ()
    aligned_randomness: bool = False
    without_dropout: bool = False
    reference_precision: bool = False
    nudge: bool = False
    capture_gradients: bool = False
    rounded_weights: str = ""
    augmentation_seed: int | None = None
    collect_evidence: bool = False
    profiled_steps: int = 0
    watch_numbers: bool = False
    check_numbers_from: int | None = None
    startup_limit_seconds: float = 600.0
    block_limit_seconds: float = 300.0
    show_output: bool = False


class LaunchRequest(Record, frozen=True, kw_only=True):
    """One child alone: run until ``steps`` steps are done, or until ``seconds`` have passed since the
    first step and at least ``minimum_steps`` are done, or until the script ends by itself."""

    assignment: Assignment
    steps: int
    seconds: float | None = None
    minimum_steps: int = 1


class TurnRequest(Record, frozen=True, kw_only=True):
    """A set: a fresh launch of every arm; after warm-up each round runs one block of each arm, in
    random order drawn from ``order_seed``. A block is at least ``block_seconds`` and ``block_steps``."""

    arms: tuple[Assignment, ...]
    rounds: int = 15
    block_seconds: float = 0.3
    block_steps: int = 8
    order_seed: int = 0
    warm_up_limit_seconds: float = 120.0
    interleaved: bool = True


# ---------------------------------------------------------------------------------------------
# What was seen in the script
# ---------------------------------------------------------------------------------------------

SiteRole: TypeAlias = Literal[
    "loader", "optimizer", "model", "backward", "step", "clip", "copy", "scheduler", "operation", "call"
]


class CallSite(Record, frozen=True, kw_only=True):
    """A line of the user's code where something that matters was called.

    Where it is known which call of the line it was, ``column``, ``end_line`` and ``end_column`` are where its
    expression begins and ends, as :mod:`ast` counts (columns in bytes of UTF-8, from 0).
    """

    role: SiteRole
    file: str
    line: int
    function: str = ""
    what: str = ""
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None


class FileDigest(Record, frozen=True, kw_only=True):
    """What a source file held when a script was run from it."""

    file: str
    sha256: str


class LoaderFacts(Record, frozen=True, kw_only=True):
    """One DataLoader that fed training steps.

    ``draws_random`` says whether fetching a batch in the main process consumed torch, numpy or
    ``random`` numbers: then moving the fetch into workers changes what is drawn.
    ``batch_bytes`` is the size of one batch's tensors.
    """

    dataset: str
    batch_size: int | None = None
    workers: int = 0
    pin_memory: bool = False
    prefetch_factor: int | None = None
    persistent_workers: bool = False
    iterable: bool = False
    length: int | None = None
    draws_random: bool = False
    batch_bytes: int = 0
    site: CallSite | None = None


class OptimizerFacts(Record, frozen=True, kw_only=True):
    """One optimizer; ``fused`` and ``foreach`` as the script asked for them (None: left open)."""

    kind: str
    parameters: int
    learning_rate: float
    fused: bool | None = None
    foreach: bool | None = None
    supports_fused: bool = False
    supports_foreach: bool = False
    from_torch: bool = True
    site: CallSite | None = None


class ModelFacts(Record, frozen=True, kw_only=True):
    """One root module: the outermost module that owns parameters an optimizer holds.

    ``input_shapes`` are the distinct shapes of its tensor arguments in the observed steps, at most 32.
    """

    kind: str
    parameters: int
    parameter_bytes: int = 0
    dtype: str = "float32"
    device: str = "cpu"
    convolutions: int = 0
    linears: int = 0
    recurrent: int = 0
    batch_norms: int = 0
    dropout: tuple[float, ...] = ()
    trainable: int = 0
    compiled: bool = False
    channels_last: bool = False
    attention: str = ""
    transformers_model: bool = False
    input_shapes: tuple[tuple[int, ...], ...] = ()
    flops_per_step: float | None = None
    site: CallSite | None = None


class ScriptFacts(Record, frozen=True, kw_only=True):
    """What hotlap saw the script do: the ground on which levers decide whether they apply.

    ``files`` are the files that the sites lie in, as they were when the script was run.
    """

    device: str = "cpu"
    step_source: Literal["optimizer", "backward"] = "optimizer"
    torch_version: str = ""
    processes: int = 1
    threads: int = 1
    loaders: tuple[LoaderFacts, ...] = ()
    optimizers: tuple[OptimizerFacts, ...] = ()
    models: tuple[ModelFacts, ...] = ()
    autocast_dtype: str = ""
    grad_scaler: bool = False
    matmul_precision: str = "highest"
    cudnn_benchmark: bool = False
    deterministic: bool = False
    clips_gradients: bool = False
    backwards_per_step: float = 1.0
    random_in_forward: bool = False
    sites: tuple[CallSite, ...] = ()
    files: tuple[FileDigest, ...] = ()


class Invariants(Record, frozen=True, kw_only=True):
    """What a lever may not change from one step to the next (gate G0), one row a step."""

    learning_rates: tuple[tuple[float, ...], ...] = ()
    weight_decays: tuple[tuple[float, ...], ...] = ()
    other_hyperparameters: tuple[str, ...] = ()
    clip_values: tuple[float, ...] = ()
    samples: tuple[int, ...] = ()
    batch_hashes: tuple[str, ...] = ()
    dropout: tuple[float, ...] = ()
    training: tuple[bool, ...] = ()
    trainable: tuple[int, ...] = ()


# ---------------------------------------------------------------------------------------------
# What a lever wants changed in the source
# ---------------------------------------------------------------------------------------------


class LoaderArguments(Record, frozen=True, kw_only=True, tag="loader-arguments"):
    """These arguments for the training loaders over map-style data sets; ``removed`` are those that may not be given
    beside them."""

    values: Values
    removed: tuple[str, ...] = ()


class OptimizerArguments(Record, frozen=True, kw_only=True, tag="optimizer-arguments"):
    """These arguments for each optimizer that leaves them, and the ``alternatives`` to them, open."""

    values: Values
    alternatives: tuple[str, ...] = ()


class ModelStatement(Record, frozen=True, kw_only=True, tag="model-statement"):
    """A statement on each model once it is on its device; the name ``_`` in ``code`` stands for the model. ``needs``
    are the full names that the code uses. With ``convolutions_only`` other models are passed over."""

    code: str
    needs: tuple[str, ...] = ()
    convolutions_only: bool = False


class ModelInputs(Record, frozen=True, kw_only=True, tag="model-inputs"):
    """The tensor that each training forward is given, wrapped; ``_`` stands for it. ``dimensions`` it must have."""

    code: str
    needs: tuple[str, ...] = ()
    dimensions: int


class ForwardRegion(Record, frozen=True, kw_only=True, tag="forward-region"):
    """Forward pass and loss within a ``with`` over this context manager, which the name in ``already`` tells."""

    context: str
    needs: tuple[str, ...] = ()
    already: str = ""


class ScaledLoss(Record, frozen=True, kw_only=True, tag="scaled-loss"):
    """The loss scaled by a ``torch.amp.GradScaler`` for this device, unscaled before clipping, and its steps."""

    device: str


class CopiesWithoutWaiting(Record, frozen=True, kw_only=True, tag="copies-without-waiting"):
    """``non_blocking=True`` for the copies of batches to the device, where they can be seen; others stay."""


class AttentionArgument(Record, frozen=True, kw_only=True, tag="attention-argument"):
    """This implementation, wherever the script asks ``transformers`` for the one in ``instead_of``."""

    implementation: str
    instead_of: str


class TopStatement(Record, frozen=True, kw_only=True, tag="top-statement"):
    """A statement below the imports of the script."""

    code: str
    needs: tuple[str, ...] = ()


class NoSourceForm(Record, frozen=True, kw_only=True, tag="no-source-form"):
    """The lever cannot be written into a script, and why."""

    reason: str


SourceWish: TypeAlias = (
    LoaderArguments
    | OptimizerArguments
    | ModelStatement
    | ModelInputs
    | ForwardRegion
    | ScaledLoss
    | CopiesWithoutWaiting
    | AttentionArgument
    | TopStatement
    | NoSourceForm
)


class LeftOut(Record, frozen=True, kw_only=True):
    """A lever of the plan that is not in the patch, and why."""

    setting: Setting
    reason: str


class PatchedFile(Record, frozen=True, kw_only=True):
    """A file before and after, by its absolute path; ``sha256`` is the digest of its bytes before."""

    path: str
    before: str
    after: str
    sha256: str


class PatchProof(Record, frozen=True, kw_only=True):
    """The patched copy (with no plan) against the original with the same levers installed from outside.

    ``numbers`` compares what training computes; ``speed`` above 1 means that the patched copy is faster. ``refusal`` is
    why the patch may not be used, empty where nothing speaks against it; ``text`` says what was found.
    """

    text: str
    refusal: str = ""
    numbers: ParityComparison | None = None
    speed: SpeedComparison | None = None


class Patch(Record, frozen=True, kw_only=True):
    """The levers of a study as a change of its source: those that are in it, those that are not, and the files."""

    study: str = ""
    directory: str
    written: tuple[Setting, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    files: tuple[PatchedFile, ...] = ()
    remarks: tuple[str, ...] = ()
    proof: PatchProof | None = None


# ---------------------------------------------------------------------------------------------
# What a child measured
# ---------------------------------------------------------------------------------------------


class Steps(Record, frozen=True, kw_only=True):
    """The time account, one row a step, as columns of equal length; in each row the phases add up
    to ``wall_seconds`` and ``outside_seconds`` (evaluation, rollout, checkpoints) comes on top.

    ``loss`` is None where it could not be read; ``not_finite`` are the rows whose loss was NaN or
    infinite (JSON knows neither), and there ``loss`` is None too.
    """

    wall_seconds: tuple[float, ...] = ()
    data_wait_seconds: tuple[float, ...] = ()
    host_to_device_seconds: tuple[float, ...] = ()
    forward_seconds: tuple[float, ...] = ()
    backward_seconds: tuple[float, ...] = ()
    optimizer_seconds: tuple[float, ...] = ()
    other_seconds: tuple[float, ...] = ()
    outside_seconds: tuple[float, ...] = ()
    samples: tuple[int, ...] = ()
    loss: tuple[float | None, ...] = ()
    not_finite: tuple[int, ...] = ()


class Block(Record, frozen=True, kw_only=True):
    """Consecutive steps that were timed as one: the clock was read at both ends only.

    ``wall_seconds`` excludes time outside steps. ``own_cpu_seconds`` is this process and its
    workers; ``other_load`` is how many cores others kept busy meanwhile.
    Energies (None: nobody tells) are those of whole devices, as many as there are trainers, and of all processors of
    the machine, whoever used them in that time. ``device_power_sampled`` says that the former was not counted, but
    taken from samples of power.
    """

    steps: int
    samples: int
    wall_seconds: float
    outside_seconds: float = 0.0
    own_cpu_seconds: float = 0.0
    other_load: float = 0.0
    involuntary_switches: int = 0
    device_clock_mhz: float | None = None
    throttled: str = ""
    device_energy_joules: float | None = None
    device_power_sampled: bool = False
    processor_energy_joules: float | None = None


class GraphBreak(Record, frozen=True, kw_only=True):
    """One place where ``torch.compile`` had to leave its graph."""

    reason: str
    file: str = ""
    line: int = 0
    count: int = 1


class CompileReport(Record, frozen=True, kw_only=True):
    """What compiling cost and how whole the result is.

    ``fallbacks`` are the places where plain eager code runs although compiling was asked for.
    """

    seconds: float = 0.0
    graphs: int = 0
    graph_breaks: tuple[GraphBreak, ...] = ()
    recompiles: tuple[GraphBreak, ...] = ()
    fallbacks: tuple[GraphBreak, ...] = ()


class FileWrite(Record, frozen=True, kw_only=True):
    """A file that the script opened for writing; ``redirected`` says that its own was not touched."""

    path: str
    redirected: bool


class Completed(Record, frozen=True, kw_only=True, tag="completed"):
    """The script ran to its own end."""

    exit_code: int = 0


class Stopped(Record, frozen=True, kw_only=True, tag="stopped"):
    """hotlap ended the script after its last wanted step."""


class Crashed(Record, frozen=True, kw_only=True, tag="crashed"):
    """The script failed; ``error`` is the last line of its traceback, ``output_tail`` its last words."""

    exit_code: int
    error: str = ""
    output_tail: str = ""
    steps_done: int = 0


class OutOfMemory(Record, frozen=True, kw_only=True, tag="out-of-memory"):
    """The script ran out of device or host memory."""

    error: str = ""
    output_tail: str = ""


class TimedOut(Record, frozen=True, kw_only=True, tag="timed-out"):
    """Nothing came from the script for ``limit_seconds``."""

    limit_seconds: float
    during: str = ""
    output_tail: str = ""


Ending: TypeAlias = Completed | Stopped | Crashed | OutOfMemory | TimedOut


class LoaderRate(Record, frozen=True, kw_only=True):
    """The training loader alone, with one setting: seconds per sample once it flows.

    Where ``error`` is not empty the setting did not work, and ``seconds_per_sample`` means nothing.
    """

    setting: Setting
    seconds_per_sample: float
    first_batch_seconds: float = 0.0
    batches: int = 0
    error: str = ""


class NumberRange(Record, frozen=True, kw_only=True):
    """What one tensor held: the smallest and the largest of its finite numbers (None: it had none), and how many of all
    its ``numbers`` were NaN or infinite. ``rows`` are the first few places along its first dimension with such."""

    name: str = ""
    dtype: str
    shape: tuple[int, ...]
    numbers: int
    nan: int = 0
    infinite: int = 0
    low: float | None = None
    high: float | None = None
    rows: tuple[int, ...] = ()


NumberSource: TypeAlias = Literal["operation", "written", "uninitialised", "batch", "state", "entered"]
NoticedIn: TypeAlias = Literal["loss", "gradients", "weights", "script"]
NumberPhase: TypeAlias = Literal["setup", "data", "forward", "backward", "optimizer", "other"]


class NumberOrigin(Record, frozen=True, kw_only=True):
    """Where a number that is NaN or infinite came from.

    ``operation``: one that made it out of finite numbers (or NaN out of infinite ones). ``written``: the script wrote
    it there, as a mask does. ``uninitialised``: memory of ``torch.empty`` that nothing was written to. ``batch``: it
    was in the batch that the loader delivered. ``state``: in a parameter or buffer when the check began. ``entered``:
    in a tensor that came from where torch's operations are not seen, and ``operation`` was the first to read it (that
    of a batch, where the main process made it).

    ``name`` is the parameter's, buffer's or dataset's; ``module`` the layer that called; ``autograd_node`` the node of
    the backward pass, and ``site`` then the line of the forward pass that it belongs to. ``arguments`` are numbers
    among the arguments that were not finite.
    """

    source: NumberSource
    phase: NumberPhase
    step: int
    operation: str = ""
    arguments: tuple[str, ...] = ()
    inputs: tuple[NumberRange, ...] = ()
    outputs: tuple[NumberRange, ...] = ()
    name: str = ""
    module: str = ""
    autograd_node: str = ""
    site: CallSite | None = None


class BadNumber(Record, frozen=True, kw_only=True):
    """The first loss, gradient or weight of a run that was NaN or infinite; ``step`` counts from 0.

    ``noticed_in`` is ``script`` where the script itself looked at the number and ended. ``name`` is the parameter's.
    ``origin`` is known only where every operation was checked: ``first_nan`` is then what made NaN of the origin's
    infinity, and ``written`` an infinity that the script wrote on purpose and that the origin was given.
    """

    step: int
    noticed_in: NoticedIn
    nan: bool
    name: str = ""
    origin: NumberOrigin | None = None
    first_nan: NumberOrigin | None = None
    written: NumberOrigin | None = None


class Run(Record, frozen=True, kw_only=True):
    """One launch of the script, from its start to its end.

    ``blocks`` are the timed blocks in order (warm-up blocks first, ``warm_up_blocks`` of them);
    ``steps`` is the account of all steps, warm-up included. ``gradients_path`` names the file with
    the first step's gradients where they were asked for, and ``evidence_path`` the :class:`hotlap.evidence.RunEvidence`
    in JSON. With several ranks the ``rank_`` fields have one row for each: the wall seconds of its steps, and those of
    them that passed before it called backward, which is to say before it met the others. ``imported_from_original``
    are modules that a workload in a checkout took from the original tree all the same.
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
    outside_seconds: float = 0.0
    host_peak_bytes: int = 0
    device_peak_bytes: int = 0
    compile: CompileReport = CompileReport()
    scaler_skipped_steps: int = 0
    notes: tuple[str, ...] = ()
    files: tuple[FileWrite, ...] = ()
    output_path: str = ""
    gradients_path: str = ""
    evidence_path: str = ""
    rank_step_seconds: tuple[tuple[float, ...], ...] = ()
    rank_forward_seconds: tuple[tuple[float, ...], ...] = ()
    rank_evidence_paths: tuple[str, ...] = ()
    imported_from_original: tuple[str, ...] = ()
    loader_rates: tuple[LoaderRate, ...] = ()
    bad_number: BadNumber | None = None
    seed: int = 0


class TurnSet(Record, frozen=True, kw_only=True):
    """One fresh launch of every arm, the arms having taken turns block by block.

    ``runs[i]`` is the run of the i-th arm asked for; ``rounds[i][r]`` its wall seconds per sample in
    round r. All rows have the same length; it is zero when an arm ended early.
    ``interleaved`` is false where memory forbade it and whole launches were alternated instead.
    """

    runs: tuple[Run, ...]
    rounds: tuple[tuple[float, ...], ...]
    interleaved: bool = True
    wall_seconds: float = 0.0


# ---------------------------------------------------------------------------------------------
# The machine
# ---------------------------------------------------------------------------------------------


class Accelerator(Record, frozen=True, kw_only=True):
    """One device, as its driver describes it.

    ``other_processes`` counts the processes that computed on it, and ``throttled`` holds the reasons why its
    clocks were held down, both at the moment it was looked at.
    """

    kind: str
    name: str
    memory_bytes: int
    capability: str = ""
    driver: str = ""
    native_dtypes: tuple[str, ...] = ()
    power_limit_watts: float | None = None
    pcie: str = ""
    other_processes: int = 0
    throttled: tuple[str, ...] = ()


class Ceilings(Record, frozen=True, kw_only=True):
    """Rates that this machine reached in a short test, the best of several tries.

    Keys of ``matmul_flops_per_second`` are ``device:dtype`` (``cpu:float32``, ``cuda:bfloat16``).
    """

    matmul_flops_per_second: tuple[tuple[str, float], ...] = ()
    memory_bytes_per_second: float | None = None
    host_to_device_pageable_bytes_per_second: float | None = None
    host_to_device_pinned_bytes_per_second: float | None = None


class Machine(Record, frozen=True, kw_only=True):
    """What this machine is and how much of it we may use.

    ``cores`` are those really available (affinity and cgroup quota, whichever is less);
    ``native_dtypes`` those the processor multiplies in hardware, measured rather than believed.
    ``visible_cores`` are those that programs see, and size their thread pools by (affinity without
    quota; 0 where not looked at). ``environment`` holds the variables that change how training runs.
    """

    processor: str = ""
    cores: int = 1
    physical_cores: int = 1
    memory_bytes: int = 0
    shared_memory_bytes: int = 0
    native_dtypes: tuple[str, ...] = ()
    accelerators: tuple[Accelerator, ...] = ()
    system: str = ""
    python_version: str = ""
    library_versions: tuple[tuple[str, str], ...] = ()
    visible_cores: int = 0
    transparent_huge_pages: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    ceilings: Ceilings = Ceilings()
    warnings: tuple[str, ...] = ()


# ---------------------------------------------------------------------------------------------
# What it means
# ---------------------------------------------------------------------------------------------


class Ceiling(Record, frozen=True, kw_only=True):
    """The most that could be gained if one resource were free; measured, not assumed."""

    name: Literal["loader-alone", "model-alone", "matmul"]
    seconds_per_sample: float | None = None
    bound_speedup: float | None = None
    text: str = ""


class PhaseAccount(Record, frozen=True, kw_only=True):
    """Mean seconds per step by phase, of one plan; the phases add up to ``wall``."""

    wall: float = 0.0
    data_wait: float = 0.0
    host_to_device: float = 0.0
    forward: float = 0.0
    backward: float = 0.0
    optimizer: float = 0.0
    other: float = 0.0
    outside: float = 0.0
    samples_per_step: float = 1.0


class Situation(Record, frozen=True, kw_only=True):
    """What a lever is shown when it is asked whether it applies: the script, the machine, the time
    account of the baseline, and the measured ceilings."""

    facts: ScriptFacts = ScriptFacts()
    machine: Machine = Machine()
    account: PhaseAccount = PhaseAccount()
    ceilings: tuple[Ceiling, ...] = ()
    loader_rates: tuple[LoaderRate, ...] = ()
    device_peak_bytes: int = 0
    host_peak_bytes: int = 0


class Estimate(Record, frozen=True, kw_only=True):
    """A measured value with its interval."""

    value: float
    low: float
    high: float
    unit: str = ""


SpeedVerdict: TypeAlias = Literal["faster", "slower", "no-effect", "inconclusive"]


class SpeedComparison(Record, frozen=True, kw_only=True):
    """A candidate against a baseline. ``speedup`` above 1 means that the candidate is faster.

    ``noise_floor`` is the half-width of the interval of the baseline against itself, as a share;
    ``smallest_detectable`` the smallest effect (a share) that these sets could have shown.
    ``baseline_agrees`` is the A/A gate: false forbids any claim.
    """

    speedup: Estimate
    verdict: SpeedVerdict
    sets: int
    rounds: int
    confidence: float
    noise_floor: float
    smallest_detectable: float
    baseline_agrees: bool = True
    baseline_speedup: Estimate | None = None
    remarks: tuple[str, ...] = ()


class RecordedGain(Record, frozen=True, kw_only=True):
    """What a plan was found to give when it was verified, and on which machine; a plan file carries it along."""

    speedup: Estimate
    confidence: float
    sets: int
    machine: str = ""
    torch_version: str = ""


Proof: TypeAlias = Literal["exact", "rounding", "behaviour"]
ParityVerdict: TypeAlias = Literal["exact", "within", "lost", "not-verified"]


class GateResult(Record, frozen=True, kw_only=True):
    """One parity gate: what was compared, the number found and the limit it had to keep."""

    gate: Literal["G0", "G1", "G2", "G3", "G4"]
    passed: bool | None
    found: float | None = None
    limit: float | None = None
    text: str = ""


class ParityComparison(Record, frozen=True, kw_only=True):
    """Whether training still computes the same thing. ``text`` is the sentence for a person."""

    verdict: ParityVerdict
    proof: Proof
    steps: int = 0
    gates: tuple[GateResult, ...] = ()
    text: str = ""


EnergySource: TypeAlias = Literal["device-counter", "device-power", "processor-counter"]


class EnergyComparison(Record, frozen=True, kw_only=True):
    """Joules per sample of a plan and of its baseline, from the same blocks as their speed.

    All are geometric means with intervals over ``sets`` fresh launches; ``ratio`` is the candidate's energy as a part
    of the baseline's, compared set by set. What the counters cover says :class:`Block`.
    """

    source: EnergySource
    baseline_joules_per_sample: Estimate
    candidate_joules_per_sample: Estimate
    ratio: Estimate
    sets: int
    confidence: float


class Comparison(Record, frozen=True, kw_only=True):
    """Speed and sameness of a plan against a baseline plan.

    ``extra_startup_seconds`` is what the candidate's start and warm-up took longer than the baseline's, steady steps
    taken off; its interval, as that of ``baseline_seconds_per_sample``, is over sets. None where it is not known.
    """

    baseline: Plan
    candidate: Plan
    speed: SpeedComparison
    parity: ParityComparison | None = None
    baseline_peak_bytes: int = 0
    candidate_peak_bytes: int = 0
    baseline_seconds_per_sample: Estimate | None = None
    extra_startup_seconds: Estimate | None = None
    energy: EnergyComparison | None = None


class LossCurves(Record, frozen=True, kw_only=True):
    """The loss step by step, of the script as it is and with the plan, from the runs that sameness was judged by.

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


class Kept(Record, frozen=True, kw_only=True, tag="kept"):
    """Faster, and training still computes the same: it became part of the plan."""

    comparison: Comparison
    reason: str = ""


class NoGain(Record, frozen=True, kw_only=True, tag="no-gain"):
    """Not shown to be faster; ``comparison`` is None where a first look was enough."""

    comparison: Comparison | None = None
    reason: str = ""


class ParityLost(Record, frozen=True, kw_only=True, tag="parity-lost"):
    """Faster, but training no longer computes the same."""

    comparison: Comparison
    reason: str = ""


class NotVerified(Record, frozen=True, kw_only=True, tag="not-verified"):
    """Faster, but whether training still computes the same could not be shown."""

    comparison: Comparison
    reason: str = ""


class Failed(Record, frozen=True, kw_only=True, tag="failed"):
    """The trial ended in an error; ``ending`` shows it."""

    ending: Ending
    reason: str = ""


class Skipped(Record, frozen=True, kw_only=True, tag="skipped"):
    """Not tried, and why."""

    reason: str
    bound: float | None = None
    already: bool = False


Verdict: TypeAlias = Kept | NoGain | ParityLost | NotVerified | Failed | Skipped


class Outcome(Record, frozen=True, kw_only=True):
    """What became of one lever (``setting`` is the best values found, where any were tried)."""

    lever: str
    setting: Setting | None = None
    verdict: Verdict
    compile: CompileReport | None = None
    trial_seconds: float = 0.0


FindingKind: TypeAlias = Literal["cost", "wrong-numbers", "risk", "hint"]


class Finding(Record, frozen=True, kw_only=True):
    """A cause of slowness with its evidence.

    ``share`` is what it costs, as a share of the step (0 where it costs no time). ``kind`` tells a ``cost`` from
    ``wrong-numbers``, from a ``risk`` that has not struck yet, and from a ``hint`` whose gain is not known.
    ``title`` is one sentence with its number, ``evidence`` the figures it rests on, ``remedy`` what to do, ``site`` the
    line, and ``levers`` those that answer it.
    """

    rule: str
    share: Estimate
    title: str
    kind: FindingKind = "cost"
    evidence: tuple[str, ...] = ()
    remedy: str = ""
    site: CallSite | None = None
    levers: tuple[str, ...] = ()


class NumbersHunt(Record, frozen=True, kw_only=True):
    """What ``hotlap nan`` found out: one run that only looks, and where it noticed something, one that checks.

    ``finite_steps`` is for how many steps of the first run all was finite, and ``losses_read`` in how many of them the
    loss could be read. ``repeated`` is what the last run, which checked every operation from ``checked_from`` on, found
    within ``repeated_steps`` steps. ``compiled`` says that the script compiles; the repeated run did not.
    """

    workload: Workload
    seed: int = 0
    finite_steps: int = 0
    losses_read: int = 0
    ending: Ending = Stopped()
    noticed: BadNumber | None = None
    repeated: BadNumber | None = None
    repeated_steps: int = 0
    repeated_ending: Ending = Stopped()
    checked_from: int = 0
    compiled: bool = False
    wall_seconds: float = 0.0


StudyStatus: TypeAlias = Literal["running", "finished", "interrupted", "out-of-budget", "script-failed"]
StudyKind: TypeAlias = Literal["search", "profile"]


class Study(Record, frozen=True, kw_only=True):
    """Everything that one ``hotlap tune`` found out, or one ``hotlap profile``, which looks for causes and tries no
    lever. Rendering needs nothing else.

    ``profiled_steps`` is over how many steps evidence was collected (0: there is none, and ``findings`` rest on the
    time account and the ceilings alone), and ``trace_path`` the trace of some of them. ``loader_rates`` is the loader
    alone with the settings that were timed, and ``losses`` what the verification's sameness was judged by.
    """

    format_version: int = 1
    kind: StudyKind = "search"
    identifier: str = ""
    hotlap_version: str = ""
    started: str = ""
    status: StudyStatus = "running"
    status_text: str = ""
    workload: Workload
    source: Source = Source()
    machine: Machine = Machine()
    budget_seconds: float | None = None
    spent_seconds: float = 0.0
    baseline: Run | None = None
    account_before: PhaseAccount | None = None
    account_after: PhaseAccount | None = None
    ceilings: tuple[Ceiling, ...] = ()
    model_flop_utilisation: float | None = None
    loader_rates: tuple[LoaderRate, ...] = ()
    profiled_steps: int = 0
    trace_path: str = ""
    findings: tuple[Finding, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    plan: Plan = Plan()
    verification: Comparison | None = None
    losses: LossCurves | None = None
    files: tuple[FileWrite, ...] = ()
    warnings: tuple[str, ...] = ()
    directory: str = ""

    # Notebooks look for these on the object that they are to show; what they show is rendered elsewhere, on demand.

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        bundle: dict[str, str] = importlib.import_module("hotlap.render.notebook").mime_bundle(self)
        return bundle

    def _repr_html_(self) -> str:
        return self._repr_mimebundle_()["text/html"]


class Price(Record, frozen=True, kw_only=True):
    """What an hour of this machine costs; ``currency`` is the word that stands behind amounts, or nothing."""

    per_hour: float
    currency: str = ""


class BreakEven(Record, frozen=True, kw_only=True):
    """How long training must go on with the plan until seconds that were spent are earned back.

    ``steps`` counts steps of the original script's size; None where nothing is saved, or perhaps nothing.
    """

    spent_seconds: Estimate
    samples: Estimate | None = None
    steps: Estimate | None = None


class WholeRun(Record, frozen=True, kw_only=True):
    """One training run of so many samples, in steps alone; what it takes after has the plan's longer start in it."""

    samples: int
    seconds_before: Estimate
    seconds_after: Estimate | None = None
    price_before: Estimate | None = None
    price_after: Estimate | None = None


class Costs(Record, frozen=True, kw_only=True):
    """What training costs before and after, by arithmetic on what a study measured (:mod:`hotlap.measure.cost`).

    Only training steps count; evaluation, checkpoints and the like come on top of both. What it takes after is what it
    took before divided by the speedup, hence with the speedup's interval; None where no gain is claimed. ``million_``
    is the price of a million samples and ``tuning_price`` that of the study itself, where a price was given.
    :func:`hotlap.render.cost.cost_lines` says all this in sentences.
    """

    confidence: float
    samples_per_step: float
    seconds_per_sample_before: Estimate
    seconds_per_sample_after: Estimate | None = None
    price: Price | None = None
    million_before: Estimate | None = None
    million_after: Estimate | None = None
    run: WholeRun | None = None
    startup: BreakEven | None = None
    tuning: BreakEven | None = None
    tuning_price: float | None = None


# ---------------------------------------------------------------------------------------------
# What passes between a child and the one who times it: one JSON object a line, over a local socket
# ---------------------------------------------------------------------------------------------


class Hello(Record, frozen=True, kw_only=True, tag="hello"):
    """Child: my first training step is done and I wait. Sent once by every process that trains; ``startup_seconds`` are
    those since torch was imported."""

    process: int
    rank: int = 0
    processes: int = 1
    startup_seconds: float = 0.0


class BlockDone(Record, frozen=True, kw_only=True, tag="block-done"):
    """Child: the steps asked for are done, and I wait again."""

    block: Block
    steps_done: int


class Report(Record, frozen=True, kw_only=True, tag="report"):
    """Child: all that I saw; the last message. ``run`` leaves to the controller what only it knows
    (ending, wall and startup seconds, output). ``exit_code`` is None when hotlap ended the script."""

    run: Run
    exit_code: int | None = None


class Proceed(Record, frozen=True, kw_only=True, tag="proceed"):
    """Controller: do ``lead_in`` steps that do not count, then ``steps`` steps as one block.

    ``seconds`` ends the block earlier, once so long has passed and ``minimum_steps`` are done; it is
    never used with several processes, whose blocks must end at the same step.
    """

    steps: int
    lead_in: int = 0
    seconds: float | None = None
    minimum_steps: int = 1


class End(Record, frozen=True, kw_only=True, tag="end"):
    """Controller: send your report and end the process at once, whatever the script would still do."""


FromChild: TypeAlias = Hello | BlockDone | Report
ToChild: TypeAlias = Proceed | End


# ---------------------------------------------------------------------------------------------
# What the search tells while it works
# ---------------------------------------------------------------------------------------------

Stage: TypeAlias = Literal[
    "machine", "baseline", "ceilings", "profile", "screening", "trial", "parity", "ablation", "verification"
]


class Progress(Record, frozen=True, kw_only=True):
    """One thing that just began or became known; a live view needs nothing else.

    ``running`` is the interval so far of what is being tried; ``best`` the speedup of the plan so far. ``peak_bytes``
    is its memory so far, the device's where there is one, and ``baseline_peak_bytes`` that of what it is compared with
    (0: not known).
    """

    stage: Stage
    text: str
    lever: str = ""
    outcome: Outcome | None = None
    running: Estimate | None = None
    sets_done: int = 0
    sets_planned: int = 0
    best: Estimate | None = None
    peak_bytes: int = 0
    baseline_peak_bytes: int = 0
    spent_seconds: float = 0.0
    budget_seconds: float | None = None
