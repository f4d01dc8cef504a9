"""The evidence of a profiled run besides its time account, on which findings are based.

Declarations only, as in :mod:`hotlap.records`: written by ``runtime`` inside the user's process, read by ``diagnose``.
Everything here was observed; a field at its default means "not examined" or "not observed", and no rule may base a
finding on it. Seconds are the host's clock unless the name says otherwise. Names and lines are the user's text.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from hotlap.records import CallSite, Phase, Record

SampledPhase: TypeAlias = Phase | Literal["startup", "first step", "evaluation", "checkpoint"]

SyncKind: TypeAlias = Literal[
    "item", "cpu", "numpy", "tolist", "bool", "nonzero", "print", "synchronize", "copy-to-device"
]

LoopCallKind: TypeAlias = Literal[
    "empty-cache",
    "garbage-collection",
    "print",
    "logging",
    "tensorboard",
    "tracker",
    "progress-bar",
    "file-write",
    "tensor-on-host",
]


class HostSync(Record, frozen=True, kw_only=True):
    """Calls from one line by which the host reads the result of a device, and so waits for it.

    ``seconds`` is what all ``calls`` took, ``steps`` in how many of the observed steps one was made (far fewer than
    were observed: the line is guarded), ``phase`` what the step was doing (``optimizer``: torch's own doing).
    ``on_device`` says that the tensor lay on an accelerator; on a CPU such a call waits for nothing, and ``within`` is
    the function of a library that the line made it by (``transformers.masking_utils.sdpa_mask``).
    """

    kind: SyncKind
    phase: Phase = "other"
    calls: int
    steps: int
    seconds: float
    on_device: bool = False
    site: CallSite | None = None
    within: str = ""


class LoopCall(Record, frozen=True, kw_only=True):
    """Calls from one line of the training loop that cost time without contributing to training.

    ``tensor-on-host`` is a tensor made on the CPU and then copied to the device in the same step, of ``bytes`` in all.
    A ``tracker`` is one that hotlap keeps silent: what its own work would take is no part of ``seconds``.
    """

    kind: LoopCallKind
    phase: Phase = "other"
    calls: int
    steps: int
    seconds: float
    bytes: int = 0
    site: CallSite | None = None


class FunctionTime(Record, frozen=True, kw_only=True):
    """One function below ``Dataset.__getitem__`` or the collate function; ``own_seconds`` leaves out what it called.

    ``caller`` is the user's line that it ran longest for, where it is not the user's own.
    """

    name: str
    file: str = ""
    line: int = 0
    calls: int = 1
    own_seconds: float
    total_seconds: float
    caller: CallSite | None = None


class DatasetProfile(Record, frozen=True, kw_only=True):
    """Where the time of loading samples goes, from fetching ``samples`` of them in the main process under a profiler.

    ``functions`` are those with the most own time, longest first. ``accelerator_calls`` names calls inside
    ``__getitem__`` that used the accelerator; ``sample_devices`` are the devices the samples' tensors lay on.
    ``collate_seconds`` are part of ``seconds``, and ``collate_site`` is where the user's own collate function begins.
    """

    dataset: str
    samples: int
    seconds: float
    functions: tuple[FunctionTime, ...] = ()
    collate_seconds: float = 0.0
    collate_site: CallSite | None = None
    accelerator_calls: tuple[CallSite, ...] = ()
    sample_devices: tuple[str, ...] = ()
    site: CallSite | None = None


class LoaderUse(Record, frozen=True, kw_only=True):
    """How the training loader was used.

    ``start_seconds`` is what each ``iter(loader)`` took and ``first_fetch_seconds`` the first batch after it, in order;
    ``fetch_seconds`` the other fetches. ``queue_lengths`` is how many finished batches waited at each fetch (workers
    only). ``pageable_copies`` counts batches that were copied to a device from pageable memory, and
    ``blocking_copies`` those for which the host waited although the memory was pinned.
    """

    dataset: str
    start_seconds: tuple[float, ...] = ()
    first_fetch_seconds: tuple[float, ...] = ()
    fetch_seconds: tuple[float, ...] = ()
    queue_lengths: tuple[int, ...] = ()
    pageable_copies: int = 0
    blocking_copies: int = 0
    copy_site: CallSite | None = None


class MemoryHolder(Record, frozen=True, kw_only=True):
    """A variable of the user's code that holds more tensors with every step.

    ``tensors`` and ``bytes`` are what it held at the end, ``tensors_per_step`` how fast it grew, and ``holds_graph``
    says that its tensors keep the graph of their computation alive. A single tensor that is carried on with its graph
    (``total_loss += loss``) counts as the tensors that were added up in it. ``emptied``: the script empties it again,
    as once per epoch, or its function ends.
    """

    name: str
    tensors: int
    bytes: int
    tensors_per_step: float
    holds_graph: bool = False
    emptied: bool = False
    site: CallSite | None = None


class MemoryTimeline(Record, frozen=True, kw_only=True):
    """Memory at the end of each observed step, as columns; the device's are empty on a CPU.

    ``host_bytes`` are those allocated, where the C library counts them, else those resident. ``limit_bytes`` is the
    device's memory. ``retries`` counts how often the allocator had to free its cache.
    """

    allocated_bytes: tuple[int, ...] = ()
    reserved_bytes: tuple[int, ...] = ()
    host_bytes: tuple[int, ...] = ()
    peak_allocated_bytes: int = 0
    limit_bytes: int = 0
    retries: int = 0
    holders: tuple[MemoryHolder, ...] = ()


class Numbers(Record, frozen=True, kw_only=True):
    """What the numbers did, one row a step: the norm of all gradients before the update (None: not finite, and then
    the row is in ``gradient_not_finite``, or not computed) and the gradient scaler's scale (empty without one).

    ``scaler_attempts`` is how often the scaler was asked to step until the step was taken: more than once where it left
    out what came before, since a step that is left out has no row of its own.
    """

    gradient_norms: tuple[float | None, ...] = ()
    gradient_not_finite: tuple[int, ...] = ()
    scaler_scales: tuple[float, ...] = ()
    scaler_attempts: tuple[int, ...] = ()


class LayerUse(Record, frozen=True, kw_only=True):
    """A layer with weights, seen in one training forward. ``weight_shape`` is torch's own order (out, in, ...).

    ``normalised_after`` says that a batch-norm took its output as it was. ``count`` layers are alike but for the name.
    """

    kind: str
    name: str
    weight_shape: tuple[int, ...]
    bias: bool = False
    normalised_after: bool = False
    count: int = 1


class SampledLine(Record, frozen=True, kw_only=True):
    """How often the training thread was seen at one of the user's lines while it did one thing.

    ``seconds`` is what its ``samples`` stand for; for ``asleep_seconds`` of them the thread neither ran nor waited for
    a core: it waited for a disk, another process or a device, or slept. ``phase`` is ``startup`` up to the
    first step's forward. ``called`` is the function that the line called, ``innermost`` the one that was running (each
    empty where that is the line itself; ``import`` for a module's import); ``site`` is None where no frame was the
    user's. ``collective`` says that it was a collective operation of ``torch.distributed``. ``native`` is the function
    of C that the line was in, as its bytecode names it (``torch.sort``, ``.write``; ``operator`` for one without a
    name). ``sampler`` says that a loader was getting the indices of a batch from its sampler.
    """

    phase: SampledPhase
    samples: int
    seconds: float
    asleep_seconds: float = 0.0
    site: CallSite | None = None
    called: str = ""
    innermost: str = ""
    collective: bool = False
    native: str = ""
    sampler: bool = False


class LineSamples(Record, frozen=True, kw_only=True):
    """Samples of the training thread's position, about every ``interval_seconds``, longest first.

    They cover start-up, the observed steps, and the time between them. ``knows_sleep``: the system counts sleep.
    """

    interval_seconds: float = 0.0
    samples: int = 0
    knows_sleep: bool = False
    lines: tuple[SampledLine, ...] = ()


FEWEST_COLLECTIONS: Final = 10
"""With fewer runs of the garbage collector in observed steps, the observer's own objects may have caused them."""


class GarbagePauses(Record, frozen=True, kw_only=True):
    """Runs of Python's garbage collector in the observed steps, those that the script requested among them.

    ``full_collections`` traversed all objects of the process.
    """

    collections: int = 0
    full_collections: int = 0
    seconds: float = 0.0
    longest_seconds: float = 0.0


class PaddedForwards(Record, frozen=True, kw_only=True):
    """Padded batches in the training forwards of observed steps: those that a model got with an ``attention_mask``.

    ``positions`` are all positions of these batches, ``used`` those that the mask does not leave out.
    """

    forwards: int = 0
    positions: int = 0
    used: int = 0


class Window(Record, frozen=True, kw_only=True):
    """The steps that ran under ``torch.profiler``; their times are not comparable with unprofiled ones.

    ``libraries`` are the installed packages that the process had imported, by the names of their folders or files: the
    trace names files without the folder that they were imported from.
    """

    first_step: int
    steps: int
    wall_seconds: float
    trace_path: str
    with_stack: bool = False
    libraries: tuple[str, ...] = ()


class RunEvidence(Record, frozen=True, kw_only=True):
    """All evidence of one process's profiled run.

    ``observed_steps`` is the number of steps in which calls were counted, and ``observed_seconds`` their duration.
    """

    rank: int = 0
    observed_steps: int = 0
    observed_seconds: float = 0.0
    syncs: tuple[HostSync, ...] = ()
    calls: tuple[LoopCall, ...] = ()
    datasets: tuple[DatasetProfile, ...] = ()
    loaders: tuple[LoaderUse, ...] = ()
    layers: tuple[LayerUse, ...] = ()
    memory: MemoryTimeline = MemoryTimeline()
    numbers: Numbers = Numbers()
    garbage: GarbagePauses = GarbagePauses()
    padding: PaddedForwards = PaddedForwards()
    sampled: LineSamples = LineSamples()
    window: Window | None = None
    anomaly_detection: bool = False
    anomaly_site: CallSite | None = None
    data_parallel: bool = False
    data_parallel_site: CallSite | None = None
